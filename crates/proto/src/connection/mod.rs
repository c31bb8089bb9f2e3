//! One connection: the order in which its parts work.
//!
//! The connection decides which part is asked when, and carries outcomes from one part to the next.
//! It holds no protocol state that a part could hold: packet numbers live in spaces, windows in
//! routes, bytes in streams. Its timers are listed in `timers`.

mod ack_frequency;
mod acks;
mod answers;
mod builder;
mod close;
mod commands;
mod control;
mod dispatch;
mod early_data;
mod establish;
mod flights;
mod migrate;
mod observe;
mod one_way;
mod paths;
mod receive;
mod remember;
mod silence;
mod timers;
mod transmit;

pub use crate::handshake::{ExportError, KeyUpdateRefused};
pub use crate::path::{AbandonPathError, MigrateError, OpenPathError, PathUnknown};
pub use crate::placement::{BlockedStats, BlockedTime, SchedulerStats};
pub use crate::recovery::{DelayDifference, DelayMethod};
pub use crate::stats::{ConnectionStats, PathStats};
pub use crate::timer::Timer;

use crate::config::TransportConfig;
use crate::congestion::Bottlenecks;
use crate::datagram::Tuple;
use crate::error::TransportError;
use crate::event::Event;
use crate::handshake::Handshake;
use crate::handshake::flights::Flights;
use crate::handshake::undecryptable::Undecryptable;
use crate::identity::{Identity, Parties};
use crate::idle::Idle;
use crate::known_paths::Recollection;
use crate::life::Life;
use crate::outbox::Outbox;
use crate::path::ack_routes::AckRoutes;
use crate::path::cids::RemoteCids;
use crate::path::manager::{Manager, Routing};
use crate::path::route::Route;
use crate::path::state::{Path, PathOptions};
use crate::placement::Placement;
use crate::recovery::{AckRequests, AckWish, OneWay, SentPacket};
use crate::rng::Rng;
use crate::streams::{ReceiveBudget, SendBudget, Streams};
use crate::time::{Duration, Instant};
use crate::wire::{ConnectionId, PathId};
use control::OwedFrames;
use early_data::EarlyData;
use remember::Memories;
use std::net::IpAddr;
use std::sync::Arc;

/// A QUIC connection over one or more paths.
///
/// Driven by its [`Endpoint`](crate::endpoint::Endpoint), commanded by the application.
#[derive(Debug)]
pub struct Connection {
    identity: Identity,
    config: Arc<TransportConfig>,
    rng: Rng,
    life: Life,
    handshake: Handshake,
    /// Initial and Handshake packets; 1-RTT packets belong to paths.
    flights: Flights,
    /// Packets that came before the keys they need; replayed once.
    undecryptable: Undecryptable,
    early_data: EarlyData,
    paths: Manager,
    ack_routes: AckRoutes,
    streams: Streams,
    placement: Placement,
    owed: OwedFrames,
    memories: Memories,
    outbox: Outbox,
    idle: Idle,
    last_data: LastData,
    /// The time of the last input.
    clock: Instant,
    /// The end of a batch found that nothing more is to be sent at this time. Any input may change
    /// that.
    sent_all_at: Option<Instant>,
    /// When the connection began: what our timestamps count from.
    began: Instant,
    /// Delays in one direction compare paths with each other, so no path owns them.
    one_way: OneWay,
    bottlenecks: Bottlenecks,
    ack_wish: AckWish,
    /// What the peer was asked for.
    ack_requests: AckRequests,
    scratch: Scratch,
}

/// The last arrival of stream data that was not there before, or the beginning.
#[derive(Debug, Clone, Copy)]
struct LastData {
    at: Instant,
    by: Option<PathId>,
}

/// Buffers that are reused instead of allocated for each packet.
#[derive(Debug, Default)]
struct Scratch {
    acked: Vec<(u64, SentPacket)>,
    lost: Vec<(u64, SentPacket)>,
    members: Vec<crate::congestion::Member>,
}

/// What a new connection is made of.
pub(crate) struct Beginning {
    pub(crate) parties: Parties,
    pub(crate) config: Arc<TransportConfig>,
    pub(crate) handshake: Handshake,
    pub(crate) tuple: Tuple,
    /// What an earlier connection saw of paths.
    pub(crate) earlier: Recollection,
    /// The address that the first path leaves from, if that is known.
    pub(crate) local_address: Option<IpAddr>,
    /// The connection ID that goes with the server's preferred address.
    pub(crate) preferred_cid: Option<ConnectionId>,
    /// Whether the client's address is proven already, by Retry or a token.
    pub(crate) address_validated: bool,
    pub(crate) rng: Rng,
    /// What the connections of a server may keep in memory together.
    pub(crate) send_budget: Option<SendBudget>,
    /// What the connections of the endpoint may promise to take.
    pub(crate) receive_budget: ReceiveBudget,
}

impl Beginning {
    /// The path that a connection starts on.
    fn first_path(&self, now: Instant, rng: &mut Rng) -> Manager {
        let config = &self.config;
        let mut route = Route::new(config, rng, now, PathId::ZERO, self.tuple, 0);
        if self.parties.side.is_client() || self.address_validated {
            route.set_validated();
        }
        if self.parties.side.is_server() {
            route.allow_early_data();
        }
        let space = paths::one_rtt_space(config, rng);
        let first = Path::new(PathId::ZERO, space, route, PathOptions::default(), now);
        let mut paths = Manager::new(first);
        for cid in [Some(self.parties.local_cid), self.preferred_cid]
            .into_iter()
            .flatten()
        {
            paths.adopt_cid(cid, self.parties.keys.reset_token(&cid));
        }
        let initial = RemoteCids::with_initial(self.parties.remote_cid);
        paths.change_cids(PathId::ZERO, |cids| *cids = initial);
        paths
    }
}

impl Connection {
    pub(crate) fn new(now: Instant, from: Beginning) -> Self {
        let side = from.parties.side;
        let (mut rng, config) = (from.rng.clone(), Arc::clone(&from.config));
        let flights = Flights::new(&mut rng);
        let paths = from.first_path(now, &mut rng);
        let identity = Identity::new(from.parties, from.tuple.remote);
        let mut streams = Streams::new(side, &config.streams);
        if let Some(budget) = from.send_budget {
            streams.charge_to(budget);
        }
        streams.charge_windows_to(from.receive_budget);
        let mut connection = Self {
            identity,
            life: Life::default(),
            handshake: from.handshake,
            flights,
            undecryptable: Undecryptable::default(),
            early_data: EarlyData::None,
            paths,
            ack_routes: AckRoutes::new(config.ack_return),
            streams,
            placement: Placement::new(&config),
            owed: OwedFrames::default(),
            memories: Memories::of(from.earlier),
            outbox: Outbox::default(),
            idle: Idle::new(now),
            last_data: LastData { at: now, by: None },
            clock: now,
            sent_all_at: None,
            began: now,
            one_way: OneWay::new(),
            bottlenecks: Bottlenecks::default(),
            ack_wish: AckWish::default(),
            ack_requests: AckRequests::default(),
            scratch: Scratch::default(),
            config,
            rng,
        };
        connection.resume_path(now, PathId::ZERO, from.local_address);
        if side.is_server() {
            connection.outbox.tell(Event::Handshaking);
        } else {
            connection.invite_observer(now);
        }
        connection
    }

    /// The next thing the application has to know.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.outbox.next_event() {
            return Some(event);
        }
        if self.life.is_over() {
            return None;
        }
        self.streams.poll_event().map(Event::Stream)
    }

    /// The application may ask for anything now.
    pub(crate) fn expect_command(&mut self) {
        self.sent_all_at = None;
    }

    /// The next change of routing.
    pub(crate) fn poll_routing(&mut self) -> Option<Routing> {
        self.paths.poll_routing()
    }

    /// The changes that take back everything routed to this connection.
    pub(crate) fn last_routing(&self) -> impl Iterator<Item = Routing> + '_ {
        let original = Routing::RemoveCid(self.identity.original_dcid());
        self.paths.last_routing().chain([original])
    }

    /// Three times the largest probe time-out: how long anything about the past is remembered
    /// (RFC 10069 makes it the largest over all paths).
    fn three_pto(&self) -> Duration {
        let max_ack_delay = self.peer_max_ack_delay();
        let open = self.paths.open().filter_map(|slot| slot.open());
        let largest = open.map(|path| path.pto(max_ack_delay)).max();
        largest.unwrap_or(self.config.initial_rtt * 3) * 3
    }

    /// The longest that the peer may hold an acknowledgement back: as announced, or as asked for.
    fn peer_max_ack_delay(&self) -> Duration {
        if self.handshake.is_complete() {
            let announced = Duration::from_millis(self.identity.peer().max_ack_delay_ms);
            self.ack_requests.longest_delay(announced)
        } else {
            Duration::ZERO
        }
    }

    #[cold]
    fn fail(&mut self, now: Instant, error: TransportError) {
        self.close_with_error(now, error);
    }
}
