//! One connection of a host: when it starts, and which paths it should have.

use anabranch_proto::Handle;
use anabranch_proto::config::ClientConfig;
use anabranch_proto::error::ConnectionError;
use anabranch_proto::event::PathNotice;
use anabranch_proto::path::PathOptions;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use std::net::SocketAddr;
use std::time::Duration;

/// How a client starts a connection.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Settings, including which server to trust.
    pub config: ClientConfig,
    /// When to start.
    pub at: Instant,
    /// The first path, which carries the handshake, and those to open once it is complete.
    pub paths: Vec<PathPlan>,
}

/// A path that a client should open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathPlan {
    /// The socket it uses, as an index into those of the host.
    pub socket: usize,
    /// The remote address.
    pub remote: SocketAddr,
    /// How it should be used.
    pub options: PathOptions,
    /// The delay after the handshake is complete; ignored for the first path.
    pub after: Duration,
    /// How long after it is given up a replacement is opened; `None` means never.
    pub reopen: Option<Duration>,
}

impl PathPlan {
    /// A path that is opened as soon as possible, and reopened a second after it was lost.
    pub fn new(socket: usize, remote: SocketAddr) -> Self {
        Self {
            socket,
            remote,
            options: PathOptions::default(),
            after: Duration::ZERO,
            reopen: Some(Duration::from_secs(1)),
        }
    }
}

/// The state of a planned path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// To be opened at this time.
    Due(Instant),
    /// To be opened when something changes.
    Blocked,
    /// The open path.
    Open(PathId),
    /// Lost for good.
    Over,
}

/// How long to wait before trying again to open a path that could not be opened, unless an event
/// says earlier that it can.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// One connection.
#[derive(Debug)]
pub struct Session {
    /// A client's plan; `None` for a server's connections.
    pub(super) dial: Option<Dial>,
    pub(super) handle: Option<Handle>,
    pub(super) progress: Vec<Progress>,
    /// When it started.
    pub(super) began: Option<Instant>,
    pub(super) established: Option<Instant>,
    pub(super) closed: Option<(Instant, ConnectionError)>,
    pub(super) drained: bool,
    /// What happened on its paths, with times.
    pub(super) notices: Vec<(Instant, PathNotice)>,
}

/// The most notices kept per connection.
const MAX_NOTICES: usize = 10_000;

impl Session {
    pub(super) fn dialing(dial: Dial) -> Self {
        Self {
            progress: vec![Progress::Blocked; dial.paths.len()],
            dial: Some(dial),
            ..Self::empty()
        }
    }

    pub(super) fn accepted(now: Instant, handle: Handle) -> Self {
        Self {
            handle: Some(handle),
            began: Some(now),
            ..Self::empty()
        }
    }

    fn empty() -> Self {
        Self {
            dial: None,
            handle: None,
            progress: Vec::new(),
            began: None,
            established: None,
            closed: None,
            drained: false,
            notices: Vec::new(),
        }
    }

    /// The engine's handle for it, as long as it has one.
    pub fn handle(&self) -> Option<Handle> {
        self.handle.filter(|_| !self.drained)
    }

    /// When the client sent its first packet, or the server received it.
    pub fn began(&self) -> Option<Instant> {
        self.began
    }

    /// When the handshake completed on this side.
    pub fn established(&self) -> Option<Instant> {
        self.established
    }

    /// When and why it ended.
    pub fn closed(&self) -> Option<&(Instant, ConnectionError)> {
        self.closed.as_ref()
    }

    /// The notices about its paths, with their times.
    pub fn notices(&self) -> &[(Instant, PathNotice)] {
        &self.notices
    }

    /// For each plan, its open path.
    pub fn paths(&self) -> impl Iterator<Item = Option<PathId>> + '_ {
        self.progress.iter().map(|progress| match progress {
            Progress::Open(id) => Some(*id),
            _ => None,
        })
    }

    pub(super) fn note(&mut self, now: Instant, notice: PathNotice) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push((now, notice));
        }
        match notice {
            PathNotice::Capacity if self.established.is_some() => {
                for progress in &mut self.progress {
                    if *progress == Progress::Blocked {
                        *progress = Progress::Due(now);
                    }
                }
            }
            PathNotice::Abandoned { id, .. } => self.lose(now, id),
            _ => {}
        }
    }

    fn lose(&mut self, now: Instant, id: PathId) {
        let plans = self.dial.iter().flat_map(|dial| &dial.paths);
        for (progress, plan) in self.progress.iter_mut().zip(plans) {
            if *progress == Progress::Open(id) {
                *progress = match plan.reopen {
                    Some(pause) => Progress::Due(now + pause),
                    None => Progress::Over,
                };
            }
        }
    }

    /// When the next planned action is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.closed.is_some() {
            return None;
        }
        let Some(dial) = &self.dial else { return None };
        if self.handle.is_none() {
            return Some(dial.at);
        }
        let due = self.progress.iter().filter_map(|progress| match progress {
            Progress::Due(at) => Some(*at),
            _ => None,
        });
        due.min()
    }
}
