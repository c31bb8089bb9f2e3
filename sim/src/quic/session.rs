//! One connection of a host: when it begins, and which paths it is to have.

use anabranch_proto::Handle;
use anabranch_proto::config::ClientConfig;
use anabranch_proto::error::ConnectionError;
use anabranch_proto::event::PathNotice;
use anabranch_proto::path::PathOptions;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use std::net::SocketAddr;
use std::time::Duration;

/// How a client begins a connection.
#[derive(Debug, Clone)]
pub struct Dial {
    /// Settings and trust.
    pub config: ClientConfig,
    /// When.
    pub at: Instant,
    /// The first path, which carries the handshake, and those to open once it is confirmed.
    pub paths: Vec<PathPlan>,
}

/// A path a client is to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathPlan {
    /// The socket it leaves by: an index into the host's.
    pub socket: usize,
    /// Where it goes.
    pub remote: SocketAddr,
    /// How it is to be used.
    pub options: PathOptions,
    /// How long after the handshake is confirmed; nothing for the first one.
    pub after: Duration,
    /// How long after it was given up a new one is to be opened in its place; `None` means never.
    pub reopen: Option<Duration>,
}

impl PathPlan {
    /// A path that is opened as soon as possible and again, a second after it was lost.
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

/// What became of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// To be opened then.
    Due(Instant),
    /// To be opened when something changes.
    Blocked,
    /// The open path.
    Open(PathId),
    /// Lost for good.
    Over,
}

/// How long to wait before a path is asked for again that could not be opened, if nothing else says
/// that it can.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// One connection.
#[derive(Debug)]
pub struct Session {
    /// A client's plan; `None` for a server's connections.
    pub(super) dial: Option<Dial>,
    pub(super) handle: Option<Handle>,
    pub(super) progress: Vec<Progress>,
    pub(super) confirmed: bool,
    /// When it began.
    pub(super) began: Option<Instant>,
    pub(super) established: Option<Instant>,
    pub(super) closed: Option<(Instant, ConnectionError)>,
    pub(super) drained: bool,
    /// What happened on its paths, with times.
    pub(super) notices: Vec<(Instant, PathNotice)>,
}

/// Notices of one connection that are kept.
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
            confirmed: false,
            began: None,
            established: None,
            closed: None,
            drained: false,
            notices: Vec::new(),
        }
    }

    /// The engine's name for it, while it has one.
    pub fn handle(&self) -> Option<Handle> {
        self.handle.filter(|_| !self.drained)
    }

    /// When the client sent or the server got its first packet.
    pub fn began(&self) -> Option<Instant> {
        self.began
    }

    /// When its handshake was complete on this side.
    pub fn established(&self) -> Option<Instant> {
        self.established
    }

    /// When and why it ended.
    pub fn closed(&self) -> Option<&(Instant, ConnectionError)> {
        self.closed.as_ref()
    }

    /// What happened on its paths, and when.
    pub fn notices(&self) -> &[(Instant, PathNotice)] {
        &self.notices
    }

    /// The open path of each plan.
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
            PathNotice::Capacity => {
                for progress in &mut self.progress {
                    if matches!(progress, Progress::Due(_)) && self.confirmed {
                        continue;
                    }
                    if *progress == Progress::Blocked && self.confirmed {
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

    /// When something planned is due.
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
