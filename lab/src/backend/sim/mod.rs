//! The simulator as a backend: one run is one world.

mod apps;
mod measure;
mod mechanisms;
mod network;

#[cfg(test)]
mod tests;

use super::Backend;
use crate::plan::Run;
use crate::results::{Outcome, Status};
use crate::scenario::{Kind, Profile, Scenario};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::time::Instant;
use anabranch_sim::profile::{self, Names, Settings};
use anabranch_sim::quic::{QuicHost, configs};
use anabranch_sim::record::{End, Probe, Recorder, STEP, Watch};
use anabranch_sim::{ProcessId, World};
use network::Built;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs scenarios in virtual time.
#[derive(Debug, Clone, Default)]
pub struct Sim {
    names: Names,
}

impl Sim {
    /// A simulator that knows these schedulers and controllers.
    pub fn new(names: Names) -> Self {
        Self { names }
    }
}

impl Backend for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn run(&self, run: &Run) -> Outcome {
        let started = std::time::Instant::now();
        // One broken run must not take the campaign with it: it becomes a row with its reason.
        let caught = catch_unwind(AssertUnwindSafe(|| self.carry_out(run)));
        let mut outcome = match caught {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(outcome)) => *outcome,
            Err(panic) => ended(Status::Failed, &panic_message(panic.as_ref())),
        };
        outcome.wall_s = started.elapsed().as_secs_f64();
        outcome
    }
}

impl Sim {
    fn carry_out(&self, run: &Run) -> Result<Outcome, Box<Outcome>> {
        let scenario = &*run.scenario;
        refuse_what_it_cannot_do(scenario)?;
        let (sender, receiver, probe) = self.transports(scenario)?;
        let mut built = Built::of(scenario, run.seed);
        let begin = built.first_start();
        let (near, far) = if built.flows_backward() {
            (receiver, sender)
        } else {
            (sender, receiver)
        };
        let (client_config, server_config) = configs(near, far);
        let (mut client, mut server) = built.hosts(server_config);
        let lanes = built.dial(&mut client, &client_config, begin);
        (client, server) = apps::install(&built, &lanes, client, server);
        let hosts = built.start(client, server);
        let (from, to) = if built.flows_backward() {
            (hosts.server, hosts.client)
        } else {
            (hosts.client, hosts.server)
        };
        let end = |host| End {
            host,
            session: anabranch_sim::scene::FIRST,
        };
        let step = scenario.record.series.unwrap_or(STEP);
        let mut recorder = Recorder::new(end(from), end(to), probe, step);
        let progress = drive(&mut built, &mut recorder, [from, to]);
        Ok(measure::outcome(
            &mut built,
            &mut recorder,
            &progress,
            [from, to],
        ))
    }

    /// The settings of the sender and of the receiver, with a probe that watches both.
    fn transports(
        &self,
        scenario: &Scenario,
    ) -> Result<(TransportConfig, TransportConfig, Probe), Box<Outcome>> {
        let transport = &scenario.transport;
        let settings = &transport.settings;
        let profile = match transport.profile {
            Profile::Quic => profile::Profile::Quic,
            Profile::CmtSctp => profile::Profile::CmtSctp,
            Profile::Mptcp => profile::Profile::Mptcp,
            Profile::Stripe => profile::Profile::Stripe,
        };
        let striped = transport.profile == Profile::Stripe;
        let named = Settings {
            scheduler: transport
                .scheduler
                .as_ref()
                .filter(|_| !striped)
                .map(ToString::to_string),
            congestion: transport.congestion.as_ref().map(ToString::to_string),
            receive_buffer: settings.receive_buffer,
            send_buffer: settings.send_buffer,
            chunk: settings.chunk.filter(|_| !striped),
            datagram_size: settings.packet_size.map(|bytes| bytes as u16),
            ack_threshold: settings.ack_every,
            max_ack_delay: settings.ack_delay,
            // Nobody waits for an idle connection: a run has a time limit of its own.
            max_idle_timeout: Some(None),
            ..Settings::default()
        };
        let made = profile::transport(profile, &named, &self.names);
        let sender = made.map_err(|error| Box::new(ended(Status::Failed, &error.to_string())))?;
        let probe = Probe::new(Watch {
            order: true,
            decisions: scenario.record.decisions,
            packets: false,
        });
        let mut receiver = sender.clone();
        let mut sender = sender;
        for side in [&mut sender, &mut receiver] {
            mechanisms::apply(side, transport);
        }
        mechanisms::spare_the_sender(&mut sender, transport);
        sender.observer = Some(probe.sender());
        receiver.observer = Some(probe.receiver());
        Ok((sender, receiver, probe))
    }
}

/// How far a run came.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Whether everything was delivered.
    done: bool,
    /// Application bytes when the warm-up was over, and when.
    warm: Option<(u64, Instant)>,
    /// Application bytes when flows of a given duration were over, and when.
    cold: Option<(u64, Instant)>,
}

/// Runs the world until all flows are over or time is.
fn drive(built: &mut Built<'_>, recorder: &mut Recorder, hosts: [ProcessId; 2]) -> Progress {
    let stop = Instant::ZERO + built.scenario.stop;
    let bytes = |world: &World| apps::delivered(world, hosts[1]);
    let mut progress = Progress::default();
    let warm = built.warm_at();
    recorder.run_while(&mut built.world, warm.min(stop), |world| world.now() < warm);
    progress.warm = Some((bytes(&built.world), built.world.now()));
    let unfinished = |world: &World| {
        let done = |host: &ProcessId| world.process::<QuicHost>(*host).is_done();
        !hosts.iter().all(done)
    };
    if let Some(over) = built.over_at() {
        let over = over.min(stop);
        recorder.run_while(&mut built.world, over, |world| world.now() < over);
        progress.cold = Some((bytes(&built.world), built.world.now()));
        progress.done = built.world.now() < stop || over < stop || over == stop;
        if !built.only_timed() {
            progress.done = recorder.run_while(&mut built.world, stop, unfinished);
        }
        return progress;
    }
    progress.done = recorder.run_while(&mut built.world, stop, unfinished);
    progress
}

fn refuse_what_it_cannot_do(scenario: &Scenario) -> Result<(), Box<Outcome>> {
    let settings = &scenario.transport.settings;
    let cannot = match scenario.transport.kind {
        Kind::Anabranch => None,
        Kind::KernelMptcp => Some("the kernel's multipath TCP does not run in a simulator"),
        Kind::Tcp => Some("plain TCP"),
        Kind::Bonding => Some("a bonding device"),
        Kind::Mlppp => Some("multilink PPP"),
    };
    let cannot =
        cannot.or_else(|| (!scenario.background.is_empty()).then_some("background traffic"));
    let missing = [
        (settings.initial_window.is_some(), "initial-window"),
        (settings.pacing.is_some(), "pacing"),
        (settings.protection == Some(false), "protection = false"),
        (scenario.record.qlog, "qlog"),
    ];
    let missing = missing
        .iter()
        .find(|(given, _)| *given)
        .map(|(_, name)| *name);
    match cannot.or(missing) {
        None => Ok(()),
        Some(what) => Err(Box::new(ended(Status::Unsupported, what))),
    }
}

fn ended(status: Status, reason: &str) -> Outcome {
    Outcome {
        status,
        reason: reason.to_owned(),
        ..Outcome::default()
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "panic: {}",
        text.unwrap_or_else(|| "without a message".to_owned())
    )
}
