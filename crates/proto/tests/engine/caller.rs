//! A caller that passes anything, in any order: every value is refused, bounded or harmless.
//!
//! A script of bytes chooses settings and commands; both sides of a connection over a perfect
//! network are driven by it. The same play is a fuzz target (`dev/fuzz/fuzz_targets/caller.rs`).

use crate::pair::tls_pair;
use crate::policies;
use anabranch_proto::cid_format::CidFormat;
use anabranch_proto::config::{
    AckReturn, ClientConfig, CreditReturn, EndpointConfig, Rescue, RetransmissionPolicy,
    RetryPolicy, ServerConfig, Split, TransportConfig,
};
use anabranch_proto::congestion::{self, ControllerFactory};
use anabranch_proto::datagram::{SocketId, Tuple};
use anabranch_proto::path::PathOptions;
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::streams::{DatagramOptions, ReceiveBudget};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_proto::wire::{Dir, ErrorCode, PathId, StreamId, TransportErrorCode};
use anabranch_proto::{Connection, Endpoint, Handle, tls};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Steps of one script: what a longer one finds, a shorter one found before.
const MAX_STEPS: usize = 80;

/// Datagrams one side may send, and timers it may have, in an instant.
const MAX_AT_ONCE: usize = 20_000;

/// One pair of TLS settings for all: keys take longer to make than a handshake.
fn tls_configs() -> (tls::ClientTls, tls::ServerTls) {
    static CONFIGS: OnceLock<(tls::ClientTls, tls::ServerTls)> = OnceLock::new();
    CONFIGS.get_or_init(tls_pair).clone()
}

/// Plays a script to its end.
pub(crate) fn play(script: &[u8]) {
    let mut script = Script(script);
    let Some(mut play) = Play::begin(&mut script) else {
        return;
    };
    for _ in 0..MAX_STEPS {
        if play.step(&mut script).is_none() {
            break;
        }
    }
    play.pass(Duration::from_secs(60));
}

/// What is left of the script.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number, mostly one where something begins or ends.
    fn number(&mut self) -> Option<u64> {
        let edges = [
            0,
            1,
            2,
            20,
            63,
            1199,
            1200,
            1452,
            (1 << 14) - 1,
            1 << 14,
            65_527,
            u64::from(u32::MAX),
            1 << 60,
            (1 << 62) - 1,
            1 << 62,
            u64::MAX,
        ];
        let byte = self.byte()?;
        let near = edges[usize::from(byte % 16)];
        Some(match byte >> 6 {
            0 | 1 => near,
            2 => near.saturating_add(1),
            _ => u64::from(byte),
        })
    }

    fn size(&mut self) -> Option<usize> {
        self.number().map(|number| number as usize)
    }

    fn duration(&mut self) -> Option<Duration> {
        Some(match self.byte()? {
            0 => Duration::ZERO,
            1 => Duration::from_nanos(1),
            2 => Duration::MAX,
            3 => Duration::from_nanos(u64::MAX),
            byte => Duration::from_micros(1 << (byte % 40)),
        })
    }

    fn flag(&mut self) -> Option<bool> {
        self.byte().map(|byte| byte & 1 != 0)
    }

    fn code(&mut self) -> Option<ErrorCode> {
        let number = self.number()?;
        Some(ErrorCode::new(number).unwrap_or(TransportErrorCode(number).into()))
    }

    /// Changes a setting at a time, until the script says that it is enough.
    fn transport(&mut self) -> Option<TransportConfig> {
        let mut config = TransportConfig::default();
        for _ in 0..self.byte()? % 6 {
            let (what, limits) = (self.byte()? % 36, &mut config.streams);
            match what {
                0 => limits.receive_window = self.number()?,
                1 => limits.max_receive_window = self.number()?,
                2 => limits.stream_receive_window = self.number()?,
                3 => limits.max_stream_receive_window = self.number()?,
                4 => limits.send_buffer = self.number()?,
                5 => limits.max_streams_bidi = self.number()?,
                6 => limits.max_streams_uni = self.number()?,
                7 => limits.datagram_receive_buffer = self.size()?,
                8 => limits.datagram_send_buffer = self.size()?,
                9 => limits.max_datagram_frame_size = self.number()?,
                10 => limits.max_copies = self.size()?,
                11 => config.max_idle_timeout = Some(self.duration()?),
                12 => config.max_idle_timeout = None,
                13 => config.keep_alive = Some(self.duration()?),
                14 => config.path_idle_timeout = self.duration()?,
                15 => config.max_paths = self.number()? as u32,
                16 => config.max_ack_delay = self.duration()?,
                17 => config.ack_threshold = self.number()?,
                18 => config.initial_rtt = self.duration()?,
                19 => config.initial_mtu = self.number()? as u16,
                20 => config.mtu.min = self.number()? as u16,
                21 => config.mtu.max = self.number()? as u16,
                22 => config.mtu.interval = self.duration()?,
                23 => config.chunk = Some(self.number()?),
                24 => config.active_connection_id_limit = self.number()?,
                25 => config.timestamps = self.flag()?,
                26 => config.migration = self.flag()?,
                27 => config.ack_return = AckReturn::Path(PathId(self.number()? as u32)),
                28 => config.ack_frequency.accept = self.flag()?,
                29 => config.ack_frequency.immediate = self.flag()?,
                30 => config.ack_frequency.most_packets = Some(self.number()? as u32),
                31 => config.congestion = self.congestion()?,
                32 => config.scheduler = self.scheduler()?,
                _ => self.mechanism(&mut config)?,
            }
        }
        Some(config)
    }

    /// One of the engine's congestion controllers.
    fn congestion(&mut self) -> Option<ControllerFactory> {
        let registry = congestion::Registry::builtin();
        let at = usize::from(self.byte()?) % registry.entries().len();
        let spec = registry.entries()[at].name.parse().expect("a name");
        Some(registry.factory(&spec).expect("a controller of the list"))
    }

    /// The engine's own scheduler, or one that does what a third party's may do.
    fn scheduler(&mut self) -> Option<SchedulerFactory> {
        Some(match self.byte()? % 3 {
            0 => SchedulerFactory::default(),
            1 => policies::turns(),
            _ => policies::everywhere(),
        })
    }

    /// Changes one of the mechanisms of the literature.
    fn mechanism(&mut self, config: &mut TransportConfig) -> Option<()> {
        let (what, chosen) = (self.byte()? % 6, usize::from(self.byte()?));
        let split = [Split::Off, Split::Equal, Split::Proportional][chosen % 3];
        let mechanisms = &mut config.mechanisms;
        match what {
            0 => {
                let all = RetransmissionPolicy::ALL;
                mechanisms.retransmission = all[chosen % all.len()];
            }
            1 => {
                let all = [Rescue::Off, Rescue::Copy, Rescue::CopyAndPenalise];
                mechanisms.rescue = all[chosen % all.len()];
            }
            2 => mechanisms.split_send = split,
            3 => mechanisms.split_receive = split,
            4 => {
                let all = [CreditReturn::Fastest, CreditReturn::SamePath];
                mechanisms.credit_return = all[chosen % all.len()];
            }
            _ => mechanisms.unpaced = chosen % 2 == 1,
        }
        Some(())
    }
}

/// Both sides, and the time.
struct Play {
    now: Instant,
    /// The client and the server.
    ends: [Endpoint; 2],
    handles: [Option<Handle>; 2],
}

/// The route between the two, as one side sees it.
fn route(end: usize, n: u8) -> Tuple {
    let octet = u8::from(end == 1);
    Tuple {
        socket: SocketId(u32::from(n)),
        local: None,
        remote: ([10, octet, 0, n], 4433).into(),
    }
}

impl Play {
    fn begin(script: &mut Script<'_>) -> Option<Self> {
        let (client_tls, server_tls) = tls_configs();
        let mut server = ServerConfig::new(server_tls);
        server.transport = Arc::new(script.transport()?);
        if script.flag()? {
            server.max_connections = script.size()?;
            server.max_connections_per_address = script.size()?;
            server.busy_handshakes = script.size()?;
            server.retry = RetryPolicy::WhenBusy;
        }
        if script.flag()? {
            server.preferred_addresses = vec![([0, 0, 0, 0], 0).into(), ([10, 0, 0, 9], 1).into()];
        }
        let mut client = ClientConfig::new(client_tls);
        client.transport = Arc::new(script.transport()?);
        if script.flag()? {
            client.token = vec![7; script.size()?.min(5000)];
        }
        let (length, number) = (script.size()?, script.number()?);
        let settings = EndpointConfig {
            cids: CidFormat::Random(length),
            max_stateless_per_second: number as u32,
            receive_budget: ReceiveBudget::new(number),
            ..EndpointConfig::default()
        };
        let mut ends = [[1; 32], [2; 32]].map(|seed| Endpoint::new(settings.clone(), seed));
        ends[1].set_server(Some(Arc::new(server)));
        let now = Instant::from_nanos(1_000_000_000);
        let name = match script.byte()? {
            0 => String::new(),
            1 => "x".repeat(5000),
            _ => "server.test".into(),
        };
        let handle = ends[0].connect(now, client, route(0, 1), &name).ok();
        let mut play = Self {
            now,
            ends,
            handles: [handle, None],
        };
        play.pass(Duration::from_secs(1));
        Some(play)
    }

    /// Delivers what both send, at once, until the time is over.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..400 {
            for from in [0, 1] {
                self.deliver(from);
            }
            let next = self
                .ends
                .iter_mut()
                .filter_map(Endpoint::next_timeout)
                .min();
            let next = next.unwrap_or(Instant::FAR_FUTURE).max(self.now);
            if next > end {
                break;
            }
            // Timers that are due at once make time pass all the same.
            self.now = next.max(self.now + Duration::from_micros(1));
            for side in &mut self.ends {
                side.handle_timeout(self.now);
            }
        }
        self.now = self.now.max(end);
        for side in &mut self.ends {
            side.handle_timeout(self.now);
        }
    }

    fn deliver(&mut self, from: usize) {
        let mut bytes = Vec::new();
        for sent in 0.. {
            assert!(sent < MAX_AT_ONCE, "one side sends without end");
            bytes.clear();
            let Some(transmit) = self.ends[from].poll_transmit(self.now, 10, &mut bytes) else {
                break;
            };
            let n = match transmit.tuple.remote.ip() {
                std::net::IpAddr::V4(ip) => ip.octets()[3],
                std::net::IpAddr::V6(_) => 0,
            };
            let size = transmit.segment_size.unwrap_or(bytes.len()).max(1);
            let (to, at) = (1 - from, route(1 - from, n));
            for datagram in bytes.chunks_mut(size) {
                self.ends[to].handle_datagram(self.now, at, transmit.ecn, datagram);
            }
        }
        for end in [0, 1] {
            while let Some((handle, _)) = self.ends[end].poll_event() {
                self.handles[end].get_or_insert(handle);
            }
        }
    }

    fn step(&mut self, script: &mut Script<'_>) -> Option<()> {
        let what = script.byte()?;
        let end = usize::from(what >> 7);
        let now = self.now;
        if what & 0x7f >= 0x60 {
            let span = script.duration()?.min(Duration::from_secs(3600));
            self.pass(span);
            return Some(());
        }
        let handle = self.handles[end]?;
        match self.ends[end].connection_mut(handle) {
            Some(connection) if what % 2 == 0 => of_streams(connection, what, script)?,
            Some(connection) => of_paths(connection, now, end, what, script)?,
            None => {}
        }
        for from in [0, 1] {
            self.deliver(from);
        }
        Some(())
    }
}

/// A command about streams, the peer's and those that do not exist among them.
fn of_streams(connection: &mut Connection, what: u8, script: &mut Script<'_>) -> Option<()> {
    let dir = if script.flag()? { Dir::Bi } else { Dir::Uni };
    let any = match script.byte()? {
        byte @ 0..200 => StreamId(u64::from(byte % 12)),
        _ => StreamId(script.number()?),
    };
    let data = Bytes::from(vec![1; 3000]);
    match (what >> 1) % 16 {
        0 | 1 => {
            if let Some(id) = connection.open(dir) {
                let _ = connection.write(id, &mut data.clone());
            }
        }
        2 => drop(connection.accept(dir)),
        3 => drop(connection.write(any, &mut data.clone())),
        4 => drop(connection.write(any, &mut Bytes::new())),
        5 => drop(connection.finish(any)),
        6 => drop(connection.reset(any, script.code()?)),
        7 => drop(connection.stop(any, script.code()?)),
        8 => drop(connection.read(any, script.size()?)),
        9 => drop(connection.set_priority(any, script.number()? as i32)),
        10 => drop(connection.send_datagram(data.slice(..script.size()?.min(3000)))),
        11 => drop(connection.recv_datagram()),
        12 => {
            let options = DatagramOptions {
                flow: script.number()?,
                deadline: Some(Instant::from_nanos(script.number()?)),
                max_skew: None,
                repair: false,
                critical: script.flag()?,
                class: script.number()? as u8,
                tag: script.number()?,
            };
            let _ = connection.send_datagram_with(data.slice(..100), options);
        }
        13 => connection.set_chunk(Some(script.number()?)),
        14 => {
            let mut out = vec![0; script.size()?.min(100_000)];
            let label = "x".repeat(script.size()?.min(1000));
            let _ = connection.export_keying_material(&mut out, label.as_bytes(), &[7; 300]);
        }
        _ => {
            while connection
                .read(any, usize::MAX)
                .is_ok_and(|piece| piece.is_some())
            {}
        }
    }
    Some(())
}

/// A command about paths or the whole, on any path ID and route.
fn of_paths(
    connection: &mut Connection,
    now: Instant,
    end: usize,
    what: u8,
    script: &mut Script<'_>,
) -> Option<()> {
    let path = match script.byte()? {
        byte @ 0..200 => PathId(u32::from(byte % 4)),
        _ => PathId(script.number()? as u32),
    };
    let mut tuple = route(end, script.byte()? % 4);
    if tuple.socket == SocketId(3) {
        tuple.remote.set_port(0);
    }
    match (what >> 1) % 16 {
        0..=2 => drop(connection.open_path(now, tuple, PathOptions::default())),
        3 => {
            let weight = script.number()? as u32;
            let options = PathOptions {
                status: PathStatus::Backup,
                weight,
                priority: script.number()? as i32,
                cost: script.number()? as u32,
                shape: None,
                keep_alive: Some(Duration::from_micros(weight.into())),
            };
            let _ = connection.set_path_options(path, options);
        }
        4 => drop(connection.abandon_path(now, path, script.code()?)),
        5 => drop(connection.set_path_status(path, PathStatus::Available)),
        6 => drop(connection.migrate_path(now, path, tuple)),
        7 => drop(connection.ping(path)),
        8 => drop(connection.update_keys(now)),
        9 => connection.on_socket_error(now, tuple.socket),
        10 => connection.on_route_error(now, tuple),
        11 => connection.set_ack_return(AckReturn::Path(path)),
        12 => {
            let _ = (connection.stats(), connection.path_stats(path));
        }
        13 => connection.set_congestion(now, script.congestion()?),
        14 if script.byte()? > 250 => {
            let reason = vec![0xff; script.size()?.min(100_000)];
            connection.close(now, script.code()?, &reason);
        }
        _ => connection.set_ack_return(AckReturn::LowestRtt),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn no_argument_of_a_caller_panics_or_makes_endless_work(
            script in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            super::play(&script);
        }
    }
}
