//! The path manager: decides which paths are open as interfaces appear and disappear.
//!
//! Connecting is a race over the wanted interfaces; afterwards a task keeps one path open for each
//! of them. The scheduler, not this module, decides which path carries what.
//!
//! ```text
//! Waiting --due, connection ready--> Opening --validated--> Open
//!    ^                                  |                     |
//!    +------ backing off <--------------+--- abandoned -------+
//! a path that used to work is retried about once a second for a minute, then once a minute
//! interface or address gone --> doubted at once, abandoned as soon as another path is open
//! ```

mod start;
mod table;
#[cfg(test)]
mod tests;

pub use crate::race::race;
pub use table::{EntryState, PathEntry};

use crate::connection::{Connection, Notice, PathNotices, WeakConnection};
use crate::endpoint::Endpoint;
use crate::engine::{ClientConfig, OpenPathError, PathOptions, Resume};
use crate::error::ConnectError;
use crate::interfaces::spec::{Candidate, PathSpec, SpecOptions, resolve};
use crate::interfaces::{Change, Interface, Watch};
use crate::netlink::NetlinkError;
use crate::sockets::SocketConfig;
use anabranch_proto::datagram::SocketId;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_proto::wire::{PathId, TransportErrorCode};
use start::{Start, start};
use std::future::pending;
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use table::{Request, Seen, Table};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// How long a handshake may take before the same interface is tried with another address, or a
/// path in reserve.
pub const STAGGER: Duration = Duration::from_millis(250);

/// The delay between the start of a handshake on one interface and on the next. All of them are
/// tried at the same time: a connection that begins on a slow path stays behind one over the best
/// path alone for several of its round trips.
pub const SPREAD: Duration = Duration::ZERO;

/// The time limit for connecting.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the socket of an abandoned attempt stays open, so that the peer can be told.
const LINGER: Duration = Duration::from_secs(1);

/// A peer: the name in its certificate or for its key, and its addresses.
#[derive(Debug, Clone)]
pub struct Target {
    /// The name to use in TLS.
    pub name: String,
    /// The server's addresses, in order of preference.
    pub remotes: Vec<SocketAddr>,
}

impl Target {
    /// Resolves a host name.
    ///
    /// # Errors
    ///
    /// The name has no address.
    pub async fn lookup(host: &str, port: u16) -> Result<Self, ConnectError> {
        let fail = |error| ConnectError::Lookup {
            name: host.into(),
            error,
        };
        let found = tokio::net::lookup_host((host, port)).await.map_err(fail)?;
        let remotes: Vec<SocketAddr> = found.collect();
        if remotes.is_empty() {
            return Err(fail(std::io::ErrorKind::NotFound.into()));
        }
        Ok(Self {
            name: host.into(),
            remotes,
        })
    }
}

/// Which paths are wanted, and how long connecting may take.
#[derive(Debug, Clone)]
pub struct PathsConfig {
    /// The paths the user asked for; if empty, there is one path, routed by the kernel.
    pub specs: Vec<PathSpec>,
    /// Falls back to one kernel-routed path if every spec is `auto` and selects nothing, or not the
    /// kernel's interface.
    pub or_as_routed: bool,
    /// See [`STAGGER`].
    pub stagger: Duration,
    /// See [`SPREAD`].
    pub spread: Duration,
    /// See [`CONNECT_TIMEOUT`].
    pub timeout: Duration,
}

impl Default for PathsConfig {
    fn default() -> Self {
        Self {
            specs: Vec::new(),
            or_as_routed: false,
            stagger: STAGGER,
            spread: SPREAD,
            timeout: CONNECT_TIMEOUT,
        }
    }
}

impl PathsConfig {
    /// How long after the candidate before it the one at this position is tried.
    fn pause(&self, candidates: &[Candidate], position: usize) -> Duration {
        let (before, from) = candidates.split_at(position.min(candidates.len()));
        let is_other = |next: &&Candidate| {
            let same = |one: &Candidate| one.index == next.index;
            next.options.status == PathStatus::Available && !before.iter().any(same)
        };
        match from.first().filter(is_other) {
            Some(_) => self.spread,
            None => self.stagger,
        }
    }
}

impl From<SpecOptions> for PathOptions {
    fn from(options: SpecOptions) -> Self {
        let SpecOptions {
            status,
            weight,
            priority,
            cost,
            keep_alive,
            paths: _,
        } = options;
        Self {
            status,
            weight,
            priority,
            cost,
            keep_alive,
            ..Self::default()
        }
    }
}

/// Observes the path manager of a connection. The manager works until the connection ends, whether
/// or not this handle is kept.
#[derive(Debug, Clone)]
pub struct PathManager {
    entries: watch::Receiver<Vec<PathEntry>>,
    /// None if there is one path, routed by the kernel.
    wishes: Option<watch::Sender<Wishes>>,
}

/// What is wanted of the paths of a connection.
#[derive(Debug, Clone, Default)]
struct Wishes {
    specs: Vec<PathSpec>,
    /// Interfaces that carry data only if no others do, whatever their specification says.
    standing_by: Vec<String>,
}

impl Wishes {
    fn resolve(&self, interfaces: &[Interface], remotes: &[SocketAddr]) -> Vec<Candidate> {
        let mut candidates = resolve(&self.specs, interfaces, remotes);
        for candidate in &mut candidates {
            if self.standing_by.contains(&candidate.interface) {
                candidate.options.status = PathStatus::Backup;
            }
        }
        candidates
    }
}

impl PathManager {
    /// Replaces the wanted paths, or how they are used; paths that are not wanted any more are
    /// abandoned once another one is open. Returns false if the connection has one kernel-routed
    /// path, which stays as it is.
    pub fn set_specs(&self, specs: Vec<PathSpec>) -> bool {
        let Some(wishes) = &self.wishes else {
            return false;
        };
        wishes.send_modify(|wishes| wishes.specs = specs);
        true
    }

    /// Has these interfaces stand by, and no others: their paths are backups, whatever their
    /// specifications say. Returns false if the connection has one kernel-routed path.
    pub fn set_standing_by(&self, interfaces: Vec<String>) -> bool {
        let Some(wishes) = &self.wishes else {
            return false;
        };
        wishes.send_modify(|wishes| wishes.standing_by = interfaces);
        true
    }

    /// The wanted paths and their current state.
    pub fn entries(&self) -> Vec<PathEntry> {
        self.entries.borrow().clone()
    }

    /// Waits for a change of [`entries`](Self::entries); returns false once the manager has ended.
    pub async fn changed(&mut self) -> bool {
        self.entries.changed().await.is_ok()
    }
}

impl Endpoint {
    /// Connects over the first of the wanted paths that answers, and from then on keeps the others
    /// open too.
    ///
    /// # Errors
    ///
    /// There is no path to try, or none of them reached the peer in time.
    pub async fn connect(
        &self,
        target: &Target,
        config: ClientConfig,
        paths: &PathsConfig,
    ) -> Result<(Connection, PathManager), ConnectError> {
        let no_more = async || None;
        self.connect_early(target, config, paths, no_more, |_| {})
            .await
    }

    /// Like [`connect`](Self::connect), but hands `early` each connection on which early data can
    /// be sent, as soon as it begins. Only one of them is returned; what was sent on the others has
    /// to be sent again.
    ///
    /// The first attempt resumes from [`ClientConfig::resume`]. A state may be used for one
    /// connection only, so each further attempt asks `resume` when it begins: no state is spent on
    /// an attempt that is not made.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub async fn connect_early(
        &self,
        target: &Target,
        mut config: ClientConfig,
        paths: &PathsConfig,
        resume: impl AsyncFn() -> Option<Resume>,
        early: impl Fn(Connection),
    ) -> Result<(Connection, PathManager), ConnectError> {
        let first = Mutex::new(config.resume.take());
        let Start {
            mut candidates,
            follow,
        } = start(paths, target).await?;
        let pause = |position: usize| paths.pause(&candidates, position);
        let attempts = race(&candidates, pause, |candidate| {
            let mut config = config.clone();
            config.resume = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (resume, early) = (&resume, &early);
            async move {
                if config.resume.is_none() {
                    config.resume = resume().await;
                }
                self.attempt(candidate, target, config, early).await
            }
        });
        let won = timeout(paths.timeout, attempts).await;
        let won = won.map_err(|_| ConnectError::TimedOut(paths.timeout))?;
        let (position, (connection, socket)) = won.map_err(|failed| {
            let named = failed
                .into_iter()
                .map(|(at, error)| (place(&candidates[at]), error));
            ConnectError::AllFailed(named.collect())
        })?;
        let winner = candidates.swap_remove(position);
        let manager = self.manage(&connection, winner, socket.keep(), target, paths, follow);
        Ok((connection, manager))
    }

    async fn attempt(
        &self,
        candidate: Candidate,
        target: &Target,
        config: ClientConfig,
        early: &impl Fn(Connection),
    ) -> Result<(Connection, OwnedSocket), ConnectError> {
        let socket = self.socket_for(&candidate)?;
        let connection = self.begin_over(socket.id, candidate.remote, &target.name, config)?;
        if connection.may_send_early_data() {
            early(connection.clone());
        }
        connection.established().await?;
        Ok((connection, socket))
    }

    fn socket_for(&self, candidate: &Candidate) -> Result<OwnedSocket, ConnectError> {
        let id = self
            .add_socket(&socket_config(candidate))
            .map_err(|error| ConnectError::Socket {
                place: place(candidate),
                error,
            })?;
        Ok(OwnedSocket {
            endpoint: self.clone(),
            id,
            kept: false,
        })
    }

    /// Starts the manager of a connection whose path 0 uses `first` over `socket`.
    fn manage(
        &self,
        connection: &Connection,
        first: Candidate,
        socket: SocketId,
        target: &Target,
        paths: &PathsConfig,
        follow: Option<Watch>,
    ) -> PathManager {
        let options = PathOptions::from(first.options);
        // An error means that the connection has already ended, which the manager will notice.
        let _ = connection.with_engine(|engine| engine.set_path_options(PathId::ZERO, options));
        let mut remotes = target.remotes.clone();
        let planned = follow.as_ref().is_none_or(|follow| {
            let planned = resolve(&paths.specs, follow.current(), &remotes);
            planned.iter().any(|candidate| candidate.same_place(&first))
        });
        if !planned {
            // Prefer the address that answered to those that did not.
            remotes.retain(|remote| *remote != first.remote);
            remotes.insert(0, first.remote);
        }
        let mut table = Table::new(first, socket, remotes.clone(), Instant::now());
        if let Some(follow) = &follow {
            table.on_wanted(
                &resolve(&paths.specs, follow.current(), &remotes),
                Instant::now(),
            );
        }
        let (sender, entries) = watch::channel(table.entries());
        let (wanted, wishes) = watch::channel(Wishes {
            specs: paths.specs.clone(),
            standing_by: Vec::new(),
        });
        let follows = follow.is_some();
        let task = Task {
            endpoint: self.clone(),
            connection: connection.downgrade(),
            notices: connection.path_notices(),
            table,
            wishes,
            remotes,
            follow,
            entries: sender,
        };
        tokio::spawn(task.run());
        PathManager {
            entries,
            wishes: follows.then_some(wanted),
        }
    }
}

/// A socket that is removed when dropped, unless it is kept: the losers of the race lose theirs.
struct OwnedSocket {
    endpoint: Endpoint,
    id: SocketId,
    kept: bool,
}

impl OwnedSocket {
    fn keep(mut self) -> SocketId {
        self.kept = true;
        self.id
    }
}

impl Drop for OwnedSocket {
    fn drop(&mut self) {
        if !self.kept {
            self.endpoint.remove_socket_later(self.id, LINGER);
        }
    }
}

fn place(candidate: &Candidate) -> String {
    match candidate.interface.as_str() {
        "" => format!("any interface to {}", candidate.remote),
        name => format!("{name} ({}) to {}", candidate.local, candidate.remote),
    }
}

fn socket_config(candidate: &Candidate) -> SocketConfig {
    let device = candidate.bind_device.then(|| candidate.interface.clone());
    let mut config = SocketConfig::path(candidate.local, device);
    config.report_local = false;
    if let std::net::IpAddr::V6(ip) = candidate.local
        && ip.is_unicast_link_local()
    {
        config.local = SocketAddrV6::new(ip, 0, 0, candidate.index).into();
    }
    config
}

/// The task of a manager.
struct Task {
    endpoint: Endpoint,
    connection: WeakConnection,
    notices: PathNotices,
    table: Table,
    wishes: watch::Receiver<Wishes>,
    remotes: Vec<SocketAddr>,
    follow: Option<Watch>,
    entries: watch::Sender<Vec<PathEntry>>,
}

impl Task {
    async fn run(mut self) {
        while self.carry_out() {
            let entries = self.table.entries();
            self.entries.send_if_modified(|shown| {
                let changed = *shown != entries;
                *shown = entries;
                changed
            });
            let due = self.table.next_due();
            tokio::select! {
                notice = self.notices.next() => match notice {
                    Some(notice) => self.on_notice(notice),
                    None => break,
                },
                change = next_change(&mut self.follow) => self.on_change(&change),
                () = next_wish(&mut self.wishes) => self.on_wanted(),
                () = sleep_until_some(due) => {}
            }
        }
        for socket in self.table.sockets() {
            self.endpoint.remove_socket(socket);
        }
    }

    /// Carries out what the table requests. Returns false once the connection has ended.
    fn carry_out(&mut self) -> bool {
        while let Some(request) = self.table.next_request(Instant::now()) {
            let Some(connection) = self.connection.upgrade() else {
                return false;
            };
            match request {
                Request::Open { entry } => match self.open(&connection, entry) {
                    Ok(()) => {}
                    Err(OpenPathError::Closed) => return false,
                    Err(error) => tracing::debug!("a path cannot be opened now: {error}"),
                },
                Request::Doubt { socket } => {
                    self.endpoint.report_fault(socket);
                }
                Request::Use { path, options } => {
                    // An error means that the path is gone, which the table hears.
                    let options = PathOptions::from(options);
                    let _ = connection.with_engine(|engine| engine.set_path_options(path, options));
                }
                Request::Abandon { path } => {
                    let code = TransportErrorCode::PATH_UNSTABLE_OR_POOR;
                    let refused = connection.abandon_path(path, code).is_err();
                    self.table.on_abandoning(path, refused);
                }
                Request::RemoveSocket { socket } => self.endpoint.remove_socket(socket),
            }
        }
        true
    }

    fn open(&mut self, connection: &Connection, entry: usize) -> Result<(), OpenPathError> {
        let now = Instant::now();
        let candidate = self.table.candidate(entry).clone();
        let socket = match self.endpoint.socket_for(&candidate) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!("{error}");
                self.table.on_failed(entry, now);
                return Ok(());
            }
        };
        match connection.open_path(socket.id, candidate.remote, candidate.options.into()) {
            Ok(path) => self.table.on_opening(entry, path, socket.keep()),
            Err(
                error @ (OpenPathError::NoMultipath
                | OpenPathError::NotClient
                | OpenPathError::Forbidden),
            ) => {
                tracing::info!("one path only: {error}");
                self.table.give_up_opening();
                return Err(error);
            }
            Err(error) => {
                self.table.on_no_capacity();
                return Err(error);
            }
        }
        Ok(())
    }

    fn on_notice(&mut self, notice: Notice) {
        let now = Instant::now();
        match notice {
            Notice::Path(notice) => self.table.on_notice(notice, now),
            Notice::Missed => {
                let Some(connection) = self.connection.upgrade() else {
                    return;
                };
                let seen = |path| connection.known_path(path).as_ref().map(Seen::from);
                self.table.on_missed(seen, now);
            }
        }
    }

    fn on_change(&mut self, change: &Result<Change, NetlinkError>) {
        match change {
            Ok(change) => {
                self.on_wanted();
                if let Change::Added(interface) | Change::Updated(interface) = change {
                    self.table.on_changed(interface.index, Instant::now());
                }
            }
            Err(error) => {
                tracing::warn!("interfaces are no longer followed: {error}");
                self.follow = None;
            }
        }
    }

    /// The interfaces have changed, or what is wanted of them.
    fn on_wanted(&mut self) {
        let Some(follow) = &self.follow else {
            return;
        };
        let wishes = self.wishes.borrow_and_update();
        let wanted = wishes.resolve(follow.current(), &self.remotes);
        self.table.on_wanted(&wanted, Instant::now());
    }
}

/// Waits until other paths are wanted; for ever if nobody can want any.
async fn next_wish(wishes: &mut watch::Receiver<Wishes>) {
    if wishes.changed().await.is_err() {
        pending::<()>().await;
    }
}

async fn next_change(follow: &mut Option<Watch>) -> Result<Change, NetlinkError> {
    match follow {
        Some(follow) => follow.next().await,
        None => pending().await,
    }
}

async fn sleep_until_some(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}
