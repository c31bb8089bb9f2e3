//! The descriptor of the device, which systemd keeps while it starts a node again: what it hands
//! over to this process, and what it is to hand over to the next.

use crate::failure::Outcome;
use crate::output;
use anabranch_gateway::Keeper;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::close;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use sd_notify::{NotifyState, listen_fds, listen_fds_with_names, notify_with_fds};
use std::env;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What the device of a near end is kept as.
pub(super) const NEAR: &str = "near-tun";
/// The same of a far end.
pub(super) const FAR: &str = "far-tun";

/// How long systemd may take to close what it kept, in milliseconds.
const PATIENCE: u16 = 5000;

/// Whether somebody started this process who may keep something for it.
pub(super) fn is_there() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some()
}

/// What systemd keeps for this service.
#[derive(Debug)]
pub(super) struct Keeping {
    /// As what it keeps the device, if there is one.
    name: &'static str,
    stored: Mutex<Option<OwnedFd>>,
    /// Whether it has the device that is in use.
    holds: AtomicBool,
}

impl Keeping {
    /// Takes what was kept as `wanted`, and refuses everything else. Once in a process.
    pub(super) fn open(wanted: Option<&'static str>) -> Arc<Self> {
        let mut stored = Vec::new();
        for (name, descriptor) in handed_over() {
            if Some(name.as_str()) == wanted {
                stored.push(descriptor);
                continue;
            }
            drop(descriptor);
            refuse(&name, "nothing of this node is kept so");
        }
        let name = wanted.unwrap_or_default();
        if stored.len() > 1 {
            let why = format!("{} are kept so", stored.len());
            stored.clear();
            refuse(name, &why);
        }
        Arc::new(Self {
            name,
            stored: Mutex::new(stored.pop()),
            holds: AtomicBool::default(),
        })
    }

    /// Whether the device that is in use may outlive this process, which ends so, for another one.
    /// After a failure that one would fail as well, and nobody would ever undo what is left.
    pub(super) fn outlives(&self, ended: &Outcome) -> bool {
        ended.is_ok() && self.holds.load(Ordering::Relaxed)
    }
}

impl Keeper for Keeping {
    fn take(&self) -> Option<OwnedFd> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.take()
    }

    fn took_over(&self) {
        self.holds.store(is_there(), Ordering::Relaxed);
    }

    fn refuse(&self, why: &str) {
        refuse(self.name, why);
    }

    fn keep(&self, device: BorrowedFd<'_>) {
        let states = [NotifyState::FdStore, NotifyState::FdName(self.name)];
        match notify_with_fds(&states, &[device]) {
            Ok(()) => self.holds.store(is_there(), Ordering::Relaxed),
            Err(error) => output::say(format!(
                "note: systemd does not keep the device over a restart: {error}"
            )),
        }
    }
}

/// Has something removed from the store that was closed here, and waits until it is closed there:
/// a device has its name until then.
fn refuse(name: &str, why: &str) {
    output::say(format!(
        "note: what systemd has handed over as `{name}` is closed and not used: {why}"
    ));
    let removed = notify_with_fds(
        &[NotifyState::FdStoreRemove, NotifyState::FdName(name)],
        &[],
    );
    if let Err(error) = removed.and_then(|()| barrier()) {
        output::say(format!("note: systemd may keep it: {error}"));
    }
}

/// Waits until everything is done that was said so far (`sd_notify_barrier(3)`): then the
/// descriptor that goes with this is closed.
fn barrier() -> io::Result<()> {
    if !is_there() {
        return Ok(());
    }
    let (here, there) = io::pipe()?;
    notify_with_fds(&[NotifyState::Custom("BARRIER=1")], &[there.as_fd()])?;
    drop(there);
    // Nothing asked for: the end is told in any case.
    let mut polled = [PollFd::new(here.as_fd(), PollFlags::empty())];
    match poll(&mut polled, PollTimeout::from(PATIENCE))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Descriptors that this process was started with, by their names. They are closed in processes
/// that it starts.
fn handed_over() -> Vec<(String, OwnedFd)> {
    let named = listen_fds_with_names().map(Iterator::collect::<Vec<_>>);
    let named = named.or_else(|error| {
        output::say(format!(
            "note: what systemd hands over is not named: {error}"
        ));
        listen_fds().map(|all| all.map(|descriptor| (descriptor, String::new())).collect())
    });
    let mut owned = Vec::new();
    for (descriptor, name) in named.unwrap_or_default() {
        match own(descriptor) {
            Ok(descriptor) => owned.push((name, descriptor)),
            Err(error) => output::say(format!("note: `{name}` of systemd is not here: {error}")),
        }
    }
    owned
}

/// Owns a descriptor of this process. Who receives one owns it, so it is sent from here to here;
/// the number by which it came is closed.
fn own(descriptor: RawFd) -> io::Result<OwnedFd> {
    let owned = sent_here(descriptor);
    close(descriptor)?;
    owned
}

fn sent_here(descriptor: RawFd) -> io::Result<OwnedFd> {
    let (from, to) = UnixStream::pair()?;
    let descriptors = [descriptor];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let byte = [IoSlice::new(b".")];
    sendmsg::<()>(from.as_raw_fd(), &byte, &rights, MsgFlags::empty(), None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(&to, &mut bytes, &mut received, RecvFlags::CMSG_CLOEXEC)?;
    let owned = received.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    owned.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
}
