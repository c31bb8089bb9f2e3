//! The emulator: TAP devices at the ends, and one thread between them.
//!
//! This is the caller's half: it builds the ends, starts the thread and sends it commands. The
//! thread itself is in [`engine`].

mod device;
mod engine;
mod frame;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use anabranch_link::LinkConfig;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::emulate::capture::Capture;
use crate::emulate::ends::{self, SavedRoutes};
use crate::emulate::{Counters, Error, Health, LinkLayer, LinkPlan, Way};
use engine::{Clock, Command, Direction, Engine};

/// Builds links that a thread of this process carries between TAP devices. They vanish when the
/// returned object is dropped, or with the process.
///
/// # Errors
/// [`Error::Plan`] for a plan that no machine can carry out, [`Error::Tap`] and
/// [`Error::Testbed`] where devices cannot be made, [`Error::Capture`] for a file that cannot.
pub fn emulator(links: Vec<LinkPlan>) -> Result<Box<dyn LinkLayer>, Error> {
    ends::check(&links)?;
    let clock = Clock::start();
    // Before any device: the kernel takes a while to free one that was made for nothing.
    let captures = links.iter().map(|plan| capture(plan, &clock));
    let captures = captures.collect::<Result<Vec<_>, Error>>()?;
    let mut ports = Vec::new();
    let mut directions = Vec::new();
    for (index, (plan, capture)) in links.iter().zip(captures).enumerate() {
        for end in [0, 1] {
            ports.push(device::open(plan, end)?);
        }
        for end in [0, 1] {
            ends::set_up(index, plan, end)?;
        }
        for way in Way::BOTH {
            directions.push(Direction::new(plan, way, capture.clone()));
        }
    }
    let (commands, received) = channel();
    let failed = |errno: nix::Error| Error::System {
        what: "cannot make an event to wake the emulator",
        reason: errno.into(),
    };
    let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).map_err(failed)?);
    let engine = Engine::new(clock, ports, directions, received, Arc::clone(&wake));
    let thread = std::thread::Builder::new()
        .name("emulator".to_owned())
        .spawn(move || engine.run())
        .map_err(|reason| Error::System {
            what: "cannot start the emulator's thread",
            reason,
        })?;
    let saved = links.iter().map(|_| None).collect();
    Ok(Box::new(Emulator {
        links,
        saved,
        commands,
        wake,
        thread: Some(thread),
    }))
}

/// The file that a link's packets are written to, if there is to be one.
fn capture(plan: &LinkPlan, clock: &Clock) -> Result<Option<Arc<Capture>>, Error> {
    let Some(path) = &plan.pcap else {
        return Ok(None);
    };
    let names = [0, 1].map(|end| plan.ends[end].interface.as_str());
    let created = Capture::create(path, names, clock.now());
    let created = created.map_err(|reason| Error::Capture {
        path: path.clone(),
        reason,
    })?;
    Ok(Some(Arc::new(created)))
}

/// The caller's half.
#[derive(Debug)]
struct Emulator {
    links: Vec<LinkPlan>,
    /// What is restored when a link comes up again.
    saved: Vec<Option<SavedRoutes>>,
    commands: Sender<Command>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    fn plan(&self, link: usize) -> Result<&LinkPlan, Error> {
        self.links.get(link).ok_or(Error::NoSuchLink {
            link,
            count: self.links.len(),
        })
    }

    /// Sends the thread a command and waits for the answer.
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, Error> {
        let stopped = || Error::Stopped("its thread ended before it was told to".to_owned());
        let (reply, answer) = sync_channel(1);
        self.commands.send(command(reply)).map_err(|_| stopped())?;
        // Fails only after 2^64 unread wake-ups.
        let _ = self.wake.write(1);
        answer.recv().map_err(|_| stopped())
    }
}

impl LinkLayer for Emulator {
    fn name(&self) -> &'static str {
        "emulator"
    }

    fn change(&mut self, link: usize, way: Way, config: LinkConfig) -> Result<(), Error> {
        self.plan(link)?;
        self.ask(|done| Command::Change {
            direction: 2 * link + way.index(),
            config,
            done,
        })
    }

    fn set_silent(&mut self, link: usize, way: Way, silent: bool) -> Result<(), Error> {
        self.plan(link)?;
        self.ask(|done| Command::Silence {
            direction: 2 * link + way.index(),
            silent,
            done,
        })
    }

    fn set_admin(&mut self, link: usize, up: bool) -> Result<(), Error> {
        self.plan(link)?;
        if !ends::set_admin(link, &self.links[link], up, &mut self.saved[link])? {
            return Ok(());
        }
        self.ask(|done| Command::Admin { link, up, done })
    }

    fn counters(&mut self, link: usize, way: Way) -> Result<Counters, Error> {
        self.plan(link)?;
        self.ask(|reply| Command::Counters {
            direction: 2 * link + way.index(),
            reply,
        })
    }

    fn health(&mut self) -> Health {
        let mut health = match self.ask(|reply| Command::Health { reply }) {
            Ok(health) => health,
            Err(error) => {
                return Health {
                    verdict: Some(error.to_string()),
                    ..Health::default()
                };
            }
        };
        let missed: u64 = self.links.iter().map(device::missed).sum();
        if missed > 0 {
            health.own_drops += missed;
            health.verdict.get_or_insert_with(|| {
                format!("the emulator did not fetch {missed} packets in time and lost them")
            });
        }
        health
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.ask(|done| Command::Stop { done });
        if let Some(thread) = self.thread.take() {
            // A panic has been printed, and made later commands fail.
            let _ = thread.join();
        }
    }
}
