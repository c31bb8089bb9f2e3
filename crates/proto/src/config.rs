//! Settings and limits. Every queue in the engine is bounded by a value named here or beside its
//! owner.

mod ack_frequency;
mod bounds;
mod mechanisms;

pub use ack_frequency::AckFrequency;
pub(crate) use bounds::MIN_KEEP_ALIVE;
pub use mechanisms::{CreditReturn, Mechanisms, Rescue, RetransmissionPolicy, Split};

use crate::cid_format::CidFormat;
use crate::congestion::ControllerFactory;
use crate::event::ObserverFactory;
use crate::path::mtu::MtuConfig;
use crate::resumption::Resume;
use crate::sched::SchedulerFactory;
use crate::streams::{Limits, ReceiveBudget};
use crate::tls;
use crate::wire::PathId;
use crate::wire::params::{Timestamps, TransportParameters};
use crate::wire::varint;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How a connection behaves. The default is a good start for bulk transfer over unequal paths. A
/// value that the protocol has no room for counts as the nearest that it has.
#[derive(Debug, Clone)]
pub struct TransportConfig {
    /// Stream and datagram limits.
    pub streams: Limits,
    /// The connection ends when no path carried anything for this long; `None` means never.
    pub max_idle_timeout: Option<Duration>,
    /// A PING goes out on each path that was silent for this long, or for half the idle time-out if
    /// that is shorter; `None` means never.
    pub keep_alive: Option<Duration>,
    /// Whether a path is asked as often as the peer asks there, if that is more often than
    /// `keep_alive` says: for servers, which do not know what a question costs on the client's
    /// links.
    pub keep_alive_follows: bool,
    /// A path that does not answer its probes for this long is abandoned, if another one works.
    pub path_idle_timeout: Duration,
    /// Paths that may be open at a time; 0 turns the multipath extension off. At most
    /// [`MAX_OPEN_PATHS`](crate::path::MAX_OPEN_PATHS).
    pub max_paths: u32,
    /// The longest an acknowledgement is held back (RFC 9000, section 18.2).
    pub max_ack_delay: Duration,
    /// Ack-eliciting packets received before an acknowledgement is sent at once.
    pub ack_threshold: u64,
    /// What the ends may ask of each other's acknowledgements. The peer's requests replace the two
    /// settings above.
    pub ack_frequency: AckFrequency,
    /// RTT assumed before the first sample (RFC 9002, section 6.2.2).
    pub initial_rtt: Duration,
    /// UDP payload of the first packets, in bytes; 1200 unless the networks are known.
    pub initial_mtu: u16,
    /// Path MTU discovery.
    pub mtu: MtuConfig,
    /// Whether outgoing packets are marked ECT(0) while the path supports it.
    pub ecn: bool,
    /// Bytes each scheduling decision covers; `None` means one packet.
    pub chunk: Option<u64>,
    /// Builds a congestion controller for each route.
    pub congestion: ControllerFactory,
    /// Whether a path begins from what an earlier connection to the same peer saw of it at most an
    /// hour ago, and later ones are told (RFC 9959): half of what it carried in a round trip goes
    /// out in the second one. A server's memory of up to five addresses of a client travels in its
    /// tokens, beside TLS tickets; a client's memory of as many paths in the
    /// [`ResumptionState`](crate::resumption::ResumptionState).
    /// Controllers that are coupled, measure by themselves or stay constant remember nothing.
    pub careful_resume: bool,
    /// Builds the scheduler of each connection.
    pub scheduler: SchedulerFactory,
    /// Where acknowledgements travel.
    pub ack_return: AckReturn,
    /// Whether timestamps are offered, both ways (draft-huitema-quic-ts-08). If the peer offers
    /// them too, packets with acknowledgements carry 5 to 10 bytes more, and one-way delays of
    /// paths can be compared whatever way acknowledgements take.
    pub timestamps: bool,
    /// Connection IDs the peer may keep for each path (RFC 9000, section 18.2; per path ID with
    /// multipath).
    pub active_connection_id_limit: u64,
    /// Whether the peer's address may change on a path (RFC 9000, section 9); `false` announces
    /// `disable_active_migration`.
    pub migration: bool,
    /// Mechanisms of the multipath literature; none by default.
    pub mechanisms: Mechanisms,
    /// Makes an observer for each connection, for instance one that writes qlog (`anabranch-qlog`).
    pub observer: Option<ObserverFactory>,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            streams: Limits::default(),
            max_idle_timeout: Some(Duration::from_secs(30)),
            keep_alive: None,
            keep_alive_follows: false,
            path_idle_timeout: Duration::from_secs(30),
            max_paths: 8,
            max_ack_delay: Duration::from_millis(25),
            ack_threshold: 2,
            ack_frequency: AckFrequency::default(),
            initial_rtt: Duration::from_millis(333),
            initial_mtu: 1200,
            mtu: MtuConfig::default(),
            ecn: true,
            chunk: None,
            congestion: ControllerFactory::default(),
            careful_resume: true,
            scheduler: SchedulerFactory::default(),
            ack_return: AckReturn::default(),
            timestamps: false,
            active_connection_id_limit: 4,
            migration: true,
            mechanisms: Mechanisms::default(),
            observer: None,
        }
    }
}

impl TransportConfig {
    /// The transport parameters that state these settings; connection IDs are left to the caller.
    pub(crate) fn parameters(&self) -> TransportParameters {
        let timeout = self.max_idle_timeout.unwrap_or_default();
        let mut params = TransportParameters {
            max_idle_timeout_ms: timeout.as_millis().min(u128::from(varint::MAX)) as u64,
            max_ack_delay_ms: self.max_ack_delay.as_millis() as u64,
            min_ack_delay_us: self.ack_frequency.min_ack_delay_us(self.max_ack_delay),
            disable_active_migration: !self.migration,
            active_connection_id_limit: self.active_connection_id_limit,
            enable_timestamp: self.timestamps.then_some(Timestamps::Both),
            ..TransportParameters::default()
        };
        self.streams.announce(&mut params);
        params
    }
}

/// On which path a `PATH_ACK` travels (RFC 10069 leaves it free).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckReturn {
    /// On the path it acknowledges, while that path answers: estimates stay per path, and peers
    /// that time paths by what they receive on them are content.
    #[default]
    SamePath,
    /// On the path with the lowest smoothed RTT: shorter control loops when return delays differ.
    /// All acknowledgements take the same way, so that the peer can tell its forward delays
    /// apart; the way is kept until another is faster by an eighth.
    LowestRtt,
    /// On this path while it answers, else as [`SamePath`](Self::SamePath).
    Path(PathId),
    /// On the open path with the lowest ID, even if it is dead, as some peers do: to test against.
    LowestId,
}

/// What becomes of a client within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncomingPolicy {
    /// The client gets a connection.
    #[default]
    Accept,
    /// The application is asked: see [`Endpoint::poll_incoming`](crate::Endpoint::poll_incoming).
    Ask,
}

/// When a server makes clients prove their address before it keeps state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryPolicy {
    /// Never; the amplification limit alone protects third parties.
    Never,
    /// Always.
    Always,
    /// While at least this many handshakes are under way.
    #[default]
    WhenBusy,
}

/// A server's settings.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// How the server's connections behave.
    pub transport: Arc<TransportConfig>,
    /// The server's identity, and the clients it admits.
    pub tls: tls::ServerTls,
    /// Other addresses of the same server, where clients are to go once connected: at most one IPv4
    /// and one IPv6 address (RFC 9000, section 9.6).
    pub preferred_addresses: Vec<SocketAddr>,
    /// When it sends Retry.
    pub retry: RetryPolicy,
    /// Whether clients get a connection at once, or wait for the application's answer.
    pub incoming: IncomingPolicy,
    /// Connections kept at a time; further clients are refused.
    pub max_connections: usize,
    /// Connections kept at a time from one IPv4 address, or one /64 of IPv6. Beyond it clients have
    /// to prove that they are there (Retry), and are refused if as many did before. Customers of
    /// some networks share addresses by the hundred.
    pub max_connections_per_address: usize,
    /// Handshakes under way at which [`RetryPolicy::WhenBusy`] starts.
    pub busy_handshakes: usize,
    /// Bytes that all connections together may hold of what the application wrote and clients have
    /// not acknowledged, besides the limit of each
    /// ([`Limits::send_buffer`](crate::streams::Limits::send_buffer)). When there is too little,
    /// connections get equal shares; one that holds more than that and whose client acknowledges
    /// nothing is closed once others have waited for ten seconds. For what connections receive
    /// there is [`EndpointConfig::receive_budget`].
    pub send_budget: u64,
}

impl ServerConfig {
    /// A server of this identity with default settings.
    pub fn new(tls: tls::ServerTls) -> Self {
        Self {
            transport: Arc::default(),
            tls,
            preferred_addresses: Vec::new(),
            retry: RetryPolicy::default(),
            incoming: IncomingPolicy::default(),
            max_connections: 10_000,
            max_connections_per_address: 1_000,
            busy_handshakes: 256,
            send_budget: 1 << 30,
        }
    }
}

/// A client's settings for one connection.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// How the connection behaves.
    pub transport: Arc<TransportConfig>,
    /// Whom it trusts, and who it is.
    pub tls: tls::ClientTls,
    /// A token from an earlier connection to the same server (RFC 9000, section 8.1.3).
    pub token: Vec<u8>,
    /// What to resume from; without effect if it belongs to another server or other settings of
    /// `tls`. Its token is used if there is none in `token`.
    pub resume: Option<Resume>,
    /// The address that its first path leaves from, where the driver knows it. It tells one network
    /// from another for what was remembered of paths, and has no part in where packets go.
    pub local_address: Option<IpAddr>,
}

impl ClientConfig {
    /// A client that trusts as `tls` says, with default settings.
    pub fn new(tls: tls::ClientTls) -> Self {
        Self {
            transport: Arc::default(),
            tls,
            token: Vec::new(),
            resume: None,
            local_address: None,
        }
    }
}

/// An endpoint's settings, whatever its role.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// What the connection IDs that it issues are made of.
    pub cids: CidFormat,
    /// Stateless resets, version negotiations and refusals sent per second at most. Retry packets
    /// are not among them.
    pub max_stateless_per_second: u32,
    /// Whether a panic in the work of one connection, such as in its scheduler, ends that
    /// connection alone, with `INTERNAL_ERROR`. Otherwise it goes on to the caller: simulators and
    /// tests want to know. It takes a program that unwinds: one built with `panic = "abort"` ends.
    pub contain_panics: bool,
    /// Bytes that all connections together may have told their peers to send, beyond the window
    /// that each begins with ([`Limits::receive_window`]) and what was read; 1 GiB unless set. With
    /// the first windows it bounds what applications that read nothing can make the process hold.
    /// Windows grow into what is left: each connection may hold as much as it leaves to others.
    /// When others come, those that hold more get no further credit until that much was read, and
    /// those that nobody uses become small; what peers were told stays theirs (RFC 9000, section
    /// 4.1). Clones of the settings have one budget together, and so have the endpoints that are
    /// made of them.
    pub receive_budget: ReceiveBudget,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            cids: CidFormat::default(),
            max_stateless_per_second: 200,
            contain_panics: false,
            receive_budget: ReceiveBudget::new(1 << 30),
        }
    }
}
