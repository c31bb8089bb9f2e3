//! A host that speaks QUIC: the unchanged engine, and the applications above it.
//!
//! The host owns one socket per address. It starts the connections it was told to
//! [dial](QuicHost::dial) and keeps their paths open as planned; a server accepts incoming
//! connections. What is sent and read is up to its [`App`]s.

mod app;
mod identity;
mod session;
#[cfg(test)]
mod tests;

pub use app::{App, Sessions};
pub use identity::{ALPN, SERVER_NAME, configs};
pub use session::{Dial, PathPlan, Session};

use crate::{Buffers, Packet, Payload, Process, Seed};
use anabranch_proto::config::{EndpointConfig, ServerConfig};
use anabranch_proto::connection::{Connection, OpenPathError};
use anabranch_proto::datagram::{SocketId, Transmit, Tuple};
use anabranch_proto::path::PathOptions;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use anabranch_proto::{Endpoint, Event, Handle};
use session::{Progress, RETRY};
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The most datagrams the engine may hand over at a time.
const MAX_SEGMENTS: usize = 32;

/// Identifies a connection of a host, numbered in the order of dialling or accepting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub usize);

/// Datagrams that the engine handed over and that have not been sent yet.
#[derive(Debug)]
struct Batch {
    transmit: Transmit,
    at: usize,
}

/// A QUIC endpoint on a host, with its applications.
#[derive(Debug)]
pub struct QuicHost {
    endpoint: Endpoint,
    sockets: Vec<SocketAddr>,
    sessions: Vec<Session>,
    apps: Vec<Box<dyn App>>,
    /// How a server wants its paths to be used, indexed by path ID.
    path_options: Vec<PathOptions>,
    buffer: Vec<u8>,
    batch: Option<Batch>,
    buffers: Buffers,
}

impl QuicHost {
    /// A host with a socket on each of these addresses. It neither accepts nor dials yet.
    pub fn new(seed: Seed, sockets: Vec<SocketAddr>) -> Self {
        Self {
            endpoint: Endpoint::new(EndpointConfig::default(), seed.bytes()),
            sockets,
            sessions: Vec::new(),
            apps: Vec::new(),
            path_options: Vec::new(),
            buffer: Vec::new(),
            batch: None,
            buffers: Buffers::default(),
        }
    }

    /// Sends and accepts packets without protection, on connections to come; see the method of the
    /// engine. Both hosts must agree.
    #[cfg(feature = "null-protection")]
    pub fn leave_unprotected(mut self) -> Self {
        self.endpoint.leave_unprotected();
        self
    }

    /// Accepts clients.
    pub fn serve(mut self, config: ServerConfig) -> Self {
        self.endpoint.set_server(Some(Arc::new(config)));
        self
    }

    /// Schedules a connection, which starts at its time.
    ///
    /// # Panics
    /// If it has no path, or a path over a socket that does not exist.
    pub fn dial(&mut self, dial: Dial) -> SessionId {
        assert!(!dial.paths.is_empty(), "a connection needs a path");
        let known = |plan: &PathPlan| plan.socket < self.sockets.len();
        assert!(
            dial.paths.iter().all(known),
            "a path leaves by a socket of the host"
        );
        self.sessions.push(Session::dialing(dial));
        SessionId(self.sessions.len() - 1)
    }

    /// Adds an application.
    pub fn app(mut self, app: impl App) -> Self {
        self.apps.push(Box::new(app));
        self
    }

    /// Sets how accepted connections are to use their paths, by path ID; nothing is requested for
    /// paths beyond the end, nor for a client's paths.
    pub fn path_options(mut self, options: Vec<PathOptions>) -> Self {
        self.path_options = options;
        self
    }

    /// The first application of type `T`.
    ///
    /// # Panics
    /// If there is none.
    pub fn get<T: App>(&self) -> &T {
        self.all().next().expect("an application of this type")
    }

    /// All applications of type `T`.
    pub fn all<T: App>(&self) -> impl Iterator<Item = &T> {
        let apps = self.apps.iter().map(|app| -> &dyn Any { &**app });
        apps.filter_map(|app| app.downcast_ref())
    }

    /// Like [`Self::get`], but mutable; the host has to be drained afterwards.
    ///
    /// # Panics
    /// If there is none.
    pub fn get_mut<T: App>(&mut self) -> &mut T {
        let apps = self.apps.iter_mut();
        let mut apps = apps.map(|app| -> &mut dyn Any { &mut **app });
        let found = apps.find_map(|app| app.downcast_mut());
        found.expect("an application of this type")
    }

    /// Lets the first application of type `T` act on the connections, on an input of its own. The
    /// host has to be drained afterwards.
    ///
    /// # Panics
    /// If there is none.
    pub fn act<T: App>(&mut self, now: Instant, act: impl FnOnce(&mut T, &mut Sessions<'_>)) {
        let apps = self.apps.iter_mut();
        let mut apps = apps.map(|app| -> &mut dyn Any { &mut **app });
        let app = apps.find_map(|app| app.downcast_mut());
        let mut host = Sessions {
            now,
            endpoint: &mut self.endpoint,
            all: &mut self.sessions,
        };
        act(app.expect("an application of this type"), &mut host);
    }

    /// Whether all applications are done.
    pub fn is_done(&self) -> bool {
        self.apps.iter().all(|app| app.is_done())
    }

    /// Whether an application has data to send that its connection did not accept.
    pub fn is_blocked(&self) -> bool {
        self.apps.iter().any(|app| app.is_blocked())
    }

    /// The connections so far.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// The engine's connection of a session, as long as it exists.
    pub fn connection(&self, id: SessionId) -> Option<&Connection> {
        let handle = self.sessions.get(id.0)?.handle()?;
        self.endpoint.connection(handle)
    }

    /// Like [`Self::connection`], but mutable.
    pub fn connection_mut(&mut self, id: SessionId) -> Option<&mut Connection> {
        let handle = self.sessions.get(id.0)?.handle()?;
        self.endpoint.connection_mut(handle)
    }

    /// The engine.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Whether it receives what is sent to this address.
    pub fn has_socket(&self, address: SocketAddr) -> bool {
        self.sockets.contains(&address)
    }

    /// The current address of a socket.
    pub fn socket(&self, id: SocketId) -> Option<SocketAddr> {
        self.sockets.get(id.0 as usize).copied()
    }

    /// The two ends of a path as the network sees them: ours, then the peer's.
    pub fn ends(&self, tuple: &Tuple) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.socket(tuple.socket)?, tuple.remote))
    }

    /// Passes events on to the applications. Returns whether there were any.
    fn serve_events(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some((handle, event)) = self.endpoint.poll_event() {
            any = true;
            let session = match &event {
                Event::Handshaking => {
                    self.sessions.push(Session::accepted(now, handle));
                    SessionId(self.sessions.len() - 1)
                }
                _ => match self.session_of(handle) {
                    Some(session) => session,
                    None => continue,
                },
            };
            self.note(now, session, &event);
            let mut host = Sessions {
                now,
                endpoint: &mut self.endpoint,
                all: &mut self.sessions,
            };
            for app in &mut self.apps {
                app.on_event(&mut host, session, &event);
            }
            if event == Event::Drained {
                self.sessions[session.0].drained = true;
            }
        }
        any
    }

    /// Handles are reused, so the latest session with this one is meant.
    fn session_of(&self, handle: Handle) -> Option<SessionId> {
        let found = self
            .sessions
            .iter()
            .rposition(|session| session.handle == Some(handle) && !session.drained);
        found.map(SessionId)
    }

    fn note(&mut self, now: Instant, id: SessionId, event: &Event) {
        let session = &mut self.sessions[id.0];
        match event {
            Event::Connected => {
                session.established = Some(now);
                self.set_first_options(id);
                self.plan_further_paths(now, id);
            }
            Event::Closed(error) => session.closed = Some((now, error.clone())),
            Event::Path(notice) => {
                session.note(now, *notice);
                if let anabranch_proto::event::PathNotice::Opened { id: path, .. } = notice {
                    self.set_server_options(id, *path);
                }
            }
            _ => {}
        }
    }

    /// The first path is created before its options can be set.
    fn set_first_options(&mut self, id: SessionId) {
        let plan = self.sessions[id.0].dial.as_ref();
        let options = match plan.and_then(|dial| dial.paths.first()) {
            Some(plan) => Some(plan.options),
            None => self.path_options.first().copied(),
        };
        let options = options.filter(|options| *options != PathOptions::default());
        if let (Some(options), Some(connection)) = (options, self.connection_mut(id)) {
            // The path may already be gone, which a notice reports.
            let _ = connection.set_path_options(PathId::ZERO, options);
        }
    }

    fn set_server_options(&mut self, id: SessionId, path: PathId) {
        if self.sessions[id.0].dial.is_some() {
            return;
        }
        let options = self.path_options.get(path.0 as usize).copied();
        if let (Some(options), Some(connection)) = (options, self.connection_mut(id)) {
            let _ = connection.set_path_options(path, options);
        }
    }

    /// A client's handshake is complete: its further paths become due.
    fn plan_further_paths(&mut self, now: Instant, id: SessionId) {
        let session = &mut self.sessions[id.0];
        let plans = session.dial.iter().flat_map(|dial| &dial.paths);
        for (progress, plan) in session.progress.iter_mut().zip(plans).skip(1) {
            *progress = Progress::Due(now + plan.after);
        }
    }

    /// Does what is due by now.
    fn follow_plans(&mut self, now: Instant) {
        for index in 0..self.sessions.len() {
            let id = SessionId(index);
            let session = &self.sessions[index];
            if session.deadline().is_none_or(|due| due > now) {
                continue;
            }
            if session.handle.is_none() {
                self.begin(now, id);
                continue;
            }
            for at in 0..self.sessions[index].progress.len() {
                if matches!(self.sessions[index].progress[at], Progress::Due(due) if due <= now) {
                    self.open(now, id, at);
                }
            }
        }
    }

    fn begin(&mut self, now: Instant, id: SessionId) {
        let session = &mut self.sessions[id.0];
        let dial = session
            .dial
            .as_ref()
            .expect("a client's session has a plan");
        let (config, first) = (dial.config.clone(), dial.paths[0]);
        session.progress[0] = Progress::Open(PathId::ZERO);
        session.began = Some(now);
        let tuple = ends(&first);
        let handle = self.endpoint.connect(now, config, tuple, SERVER_NAME);
        let handle = handle.expect("a valid name and a free handle");
        self.sessions[id.0].handle = Some(handle);
    }

    fn open(&mut self, now: Instant, id: SessionId, at: usize) {
        let session = &self.sessions[id.0];
        let Some(plan) = session.dial.as_ref().map(|dial| dial.paths[at]) else {
            return;
        };
        let tuple = ends(&plan);
        let Some(connection) = self.connection_mut(id) else {
            return;
        };
        let opened = connection.open_path(now, tuple, plan.options);
        self.sessions[id.0].progress[at] = match opened {
            Ok(path) => Progress::Open(path),
            Err(OpenPathError::NoMultipath) => Progress::Over,
            Err(OpenPathError::NoCid) => Progress::Blocked,
            Err(_) => Progress::Due(now + RETRY),
        };
    }

    /// The next datagram of the batch.
    fn next_datagram(&mut self) -> Option<Packet> {
        let batch = self.batch.as_mut()?;
        let rest = &self.buffer[batch.at..];
        let size = batch.transmit.segment_size.unwrap_or(rest.len());
        let datagram = &rest[..size.min(rest.len())];
        let packet = Packet {
            from: self.sockets[batch.transmit.tuple.socket.0 as usize],
            to: batch.transmit.tuple.remote,
            ecn: batch.transmit.ecn,
            payload: Payload::Udp(self.buffers.filled(datagram)),
        };
        batch.at += datagram.len();
        if batch.at == self.buffer.len() {
            self.batch = None;
        }
        Some(packet)
    }
}

fn ends(plan: &PathPlan) -> Tuple {
    Tuple {
        socket: SocketId(plan.socket as u32),
        local: None,
        remote: plan.remote,
    }
}

impl Process for QuicHost {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        let Payload::Udp(mut bytes) = packet.payload else {
            return;
        };
        let Some(socket) = self.sockets.iter().position(|own| *own == packet.to) else {
            return;
        };
        let tuple = Tuple {
            socket: SocketId(socket as u32),
            local: None,
            remote: packet.from,
        };
        self.endpoint
            .handle_datagram(now, tuple, packet.ecn, &mut bytes);
        self.buffers.give_back(bytes);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.follow_plans(now);
        self.endpoint.handle_timeout(now);
        let mut host = Sessions {
            now,
            endpoint: &mut self.endpoint,
            all: &mut self.sessions,
        };
        for app in &mut self.apps {
            if app.next_timeout().is_some_and(|at| at <= now) {
                app.on_timeout(&mut host);
            }
        }
    }

    fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        loop {
            if let Some(packet) = self.next_datagram() {
                return Some(packet);
            }
            self.buffer.clear();
            let transmit = self
                .endpoint
                .poll_transmit(now, MAX_SEGMENTS, &mut self.buffer);
            match transmit {
                Some(transmit) => self.batch = Some(Batch { transmit, at: 0 }),
                // Applications may have reacted to events by sending more.
                None if self.serve_events(now) => {}
                None => return None,
            }
        }
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        let plans = self.sessions.iter().filter_map(Session::deadline).min();
        let apps = self.apps.iter().filter_map(|app| app.next_timeout()).min();
        let engine = self.endpoint.next_timeout();
        [plans, apps, engine].into_iter().flatten().min()
    }

    fn exchange_buffers(&mut self, store: &mut Buffers) {
        std::mem::swap(&mut self.buffers, store);
    }

    fn handle_interface(&mut self, now: Instant, address: IpAddr, up: bool) {
        let sockets = self.sockets.iter().enumerate();
        let affected = sockets.filter(|(_, socket)| socket.ip() == address);
        let affected: Vec<usize> = affected.map(|(index, _)| index).collect();
        for session in &mut self.sessions {
            let Some(handle) = session.handle() else {
                continue;
            };
            if up {
                // A path that is waiting to be reopened can be opened now.
                let plans = session.dial.iter().flat_map(|dial| &dial.paths);
                for (progress, plan) in session.progress.iter_mut().zip(plans) {
                    if affected.contains(&plan.socket)
                        && matches!(progress, Progress::Due(at) if *at > now)
                        && session.established.is_some()
                    {
                        *progress = Progress::Due(now);
                    }
                }
            } else if let Some(connection) = self.endpoint.connection_mut(handle) {
                for socket in &affected {
                    connection.on_socket_error(now, SocketId(*socket as u32));
                }
            }
        }
    }

    fn handle_readdress(&mut self, _now: Instant, old: IpAddr, new: IpAddr) {
        for socket in &mut self.sockets {
            if socket.ip() == old {
                socket.set_ip(new);
            }
        }
    }
}
