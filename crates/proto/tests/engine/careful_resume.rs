//! Paths that begin where an earlier connection left them (RFC 9959).

mod paths;

use crate::pair::{MBIT, Pair, Way, provider};
use anabranch_proto::config::{ClientConfig, ServerConfig, TransportConfig};
use anabranch_proto::congestion::Registry;
use anabranch_proto::connection::PathStats;
use anabranch_proto::resumption::{Resume, ResumptionState};
use anabranch_proto::tls::{self, KeyPair, ServerResumption};
use anabranch_proto::wire::{Dir, PathId};
use bytes::Bytes;
use rustls::time_provider::DefaultTimeProvider;
use std::sync::Arc;
use std::time::Duration;

const RTT: Duration = Duration::from_millis(200);
const FILE: usize = 1_000_000;
/// What a path starts with, in bytes.
const INITIAL: u64 = 14_720;

/// How a transfer went.
#[derive(Debug)]
struct Course {
    took: Duration,
    /// The largest window, in bytes.
    widest: u64,
    /// How long the tokens are that came meanwhile.
    tokens: Vec<usize>,
    /// The sender's path at the end.
    stats: PathStats,
}

/// A client that comes more than once, and its server.
struct Visits {
    pair: Pair,
    client: ClientConfig,
    resume: Option<Resume>,
    /// By which path files go.
    path: PathId,
}

impl Visits {
    /// Over 50 Mbit/s with a queue of half a round trip.
    fn of(transport: TransportConfig) -> Self {
        let key = KeyPair::generate(&provider(), [7; 32]).expect("a key");
        let server = tls::ServerTls::with_raw_key(provider(), &key)
            .alpn(&[b"test"])
            .resumption(ServerResumption {
                clock: Arc::new(DefaultTimeProvider),
                early_data: true,
            });
        let client = tls::ClientTls::pinned(provider(), key.fingerprint())
            .alpn(&[b"test"])
            .resumption(true);
        let transport = Arc::new(transport);
        let client = ClientConfig {
            transport: Arc::clone(&transport),
            ..ClientConfig::new(client.build().expect("a client"))
        };
        let server = ServerConfig {
            transport,
            ..ServerConfig::new(server.build().expect("a server"))
        };
        let ways = (0..3).map(|n| Way::new(n).delay(100).rate(50 * MBIT).queue_ms(100));
        let mut pair = Pair::with_configs(ways.collect(), client.clone(), server);
        pair.connect();
        Self {
            pair,
            client,
            resume: None,
            path: PathId::ZERO,
        }
    }

    fn new() -> Self {
        Self::of(TransportConfig::default())
    }

    /// Takes what the connection leaves behind, once all of it is there.
    fn keep(&mut self) {
        self.pair.run_for(2 * RTT);
        let state = self.pair.client_conn().take_resumption();
        let state = ResumptionState::decode(&state.expect("a ticket").encode());
        self.resume = Some(Resume {
            state: state.expect("it was just written"),
            age: Duration::ZERO,
            early_data: false,
        });
    }

    /// The client leaves, and comes again with what it kept.
    fn come_again(&mut self) {
        let resume = self.resume.take();
        assert!(resume.is_some());
        self.pair.come_again(ClientConfig {
            resume,
            ..self.client.clone()
        });
        self.path = PathId::ZERO;
        self.pair.connect();
        assert!(self.pair.client_conn().is_resumed());
    }

    /// The server, or the client, sends a file; the time is from the request, or the beginning.
    fn transfer(&mut self, download: bool, length: usize) -> Course {
        let (began, path) = (self.pair.now, self.path);
        let (id, mut got, mut widest) = {
            let client = self.pair.client_conn();
            let id = client.open(Dir::Bi).expect("a stream");
            let mut request = Bytes::from(vec![b'!'; if download { 1 } else { length }]);
            while !request.is_empty() {
                client.write(id, &mut request).expect("credit");
            }
            client.finish(id).expect("an open stream");
            (id, 0, 0)
        };
        let (mut tokens, mut token) = (Vec::new(), self.pair.client_conn().next_token().to_vec());
        let (mut asked, mut answer) = (false, Bytes::from(vec![b'!'; length]));
        let done = self.pair.run_until(Duration::from_secs(20), |pair| {
            let sender = pair.side(download).expect("a connection");
            let stats = sender.path_stats(path).expect("the path");
            widest = widest.max(stats.congestion_window);
            if pair.client_conn().next_token() != token {
                token = pair.client_conn().next_token().to_vec();
                tokens.push(token.len());
            }
            asked |= download && pair.server_conn().accept(Dir::Bi) == Some(id);
            while asked && !answer.is_empty() && pair.server_conn().write(id, &mut answer).is_ok() {
                if answer.is_empty() {
                    pair.server_conn().finish(id).expect("an open stream");
                }
            }
            while download
                && got < length
                && let Ok(Some(bytes)) = pair.client_conn().read(id, 1 << 16)
            {
                got += bytes.len();
            }
            if download {
                got == length
            } else {
                pair.finished.contains(&id)
            }
        });
        assert!(done, "{got} of {length} bytes");
        let took = self.pair.now.since(began);
        let sender = self.pair.side(download).expect("a connection");
        Course {
            took,
            widest,
            tokens,
            stats: sender.path_stats(path).expect("the path"),
        }
    }

    fn download(&mut self) -> Course {
        self.transfer(true, FILE)
    }
}

#[test]
fn a_client_that_comes_again_gets_a_file_two_round_trips_earlier() {
    let mut visits = Visits::new();
    let first = visits.download();
    visits.keep();
    visits.come_again();
    let second = visits.download();
    assert!(first.took >= second.took + 2 * RTT, "{first:?} {second:?}");
    assert_eq!(second.stats.counters.lost_bytes, 0);
}

#[test]
fn a_client_that_comes_again_and_again_is_never_slower_for_it() {
    let mut visits = Visits::new();
    visits.download();
    let mut next = || {
        visits.keep();
        visits.come_again();
        visits.download().took
    };
    let second = next();
    for visit in 3..=5 {
        let took = next();
        assert!(
            took <= second + RTT / 4,
            "visit {visit}: {took:?}, {second:?}"
        );
    }
}

#[test]
fn an_upload_resumes_from_what_the_client_kept() {
    let mut visits = Visits::new();
    let first = visits.transfer(false, FILE);
    visits.keep();
    visits.come_again();
    let second = visits.transfer(false, FILE);
    assert!(first.took >= second.took + 2 * RTT, "{first:?} {second:?}");
}

#[test]
fn of_what_a_client_kept_one_state_knows_the_path() {
    let mut visits = Visits::new();
    let first = visits.transfer(false, FILE);
    visits.keep();
    visits.keep();
    visits.come_again();
    let both = [first, visits.transfer(false, FILE)];
    assert!(is_as_slow(&both), "{both:?}");
}

#[test]
fn a_bottleneck_that_shrank_costs_the_jump_and_no_timeout() {
    let mut visits = Visits::new();
    visits.transfer(true, 4 * FILE);
    visits.keep();
    visits.pair.ways[0] = Way::new(0).delay(100).rate(5 * MBIT).queue_ms(100);
    visits.come_again();
    let second = visits.download();
    let lost = second.stats.counters.lost_bytes;
    assert!(second.widest > 10 * INITIAL, "it jumped: {second:?}");
    assert!(lost > 0 && lost <= second.widest, "{second:?}");
    assert_eq!(second.stats.counters.ptos, 0);
    // A megabyte takes 1.6 s there.
    assert!(second.took < Duration::from_secs(4), "{second:?}");
}

/// What a second download is like if something is changed before it; the first one beside it.
fn again(transport: TransportConfig, change: impl FnOnce(&mut Visits)) -> [Course; 2] {
    let mut visits = Visits::of(transport);
    let first = visits.download();
    visits.keep();
    change(&mut visits);
    visits.come_again();
    [first, visits.download()]
}

fn is_as_slow([first, second]: &[Course; 2]) -> bool {
    second.took + RTT / 2 > first.took
}

#[test]
fn a_token_from_another_address_resumes_nothing() {
    let elsewhere = |visits: &mut Visits| {
        visits.pair.ways[0]
            .server
            .remote
            .set_ip("10.0.0.9".parse().expect("an address"));
    };
    let both = again(TransportConfig::default(), elsewhere);
    assert!(is_as_slow(&both), "{both:?}");
}

#[test]
fn what_was_seen_more_than_an_hour_ago_is_forgotten() {
    let later = |visits: &mut Visits| visits.pair.server_ahead = Duration::from_secs(3600);
    let both = again(TransportConfig::default(), later);
    assert!(is_as_slow(&both), "{both:?}");
}

#[test]
fn a_path_of_another_rtt_resumes_nothing() {
    let nearer = |visits: &mut Visits| visits.pair.ways[0].delay = Duration::from_millis(45);
    let [first, second] = again(TransportConfig::default(), nearer);
    assert!(second.widest * 2 > first.widest, "{second:?}");
    assert!(second.took > 6 * Duration::from_millis(90), "{second:?}");
}

#[test]
fn a_path_that_moved_resumes_nothing() {
    let mut visits = Visits::new();
    let first = visits.download();
    visits.keep();
    visits.come_again();
    let (now, tuple) = (visits.pair.now, visits.pair.ways[1].client);
    let moved = visits
        .pair
        .client_conn()
        .migrate_path(now, PathId::ZERO, tuple);
    moved.expect("the handshake is confirmed");
    visits.pair.run_for(2 * RTT);
    let both = [first, visits.download()];
    assert_eq!(both[1].stats.tuple, visits.pair.ways[1].server);
    assert!(is_as_slow(&both), "{both:?}");
}

#[test]
fn it_can_be_turned_off_and_other_controllers_do_without() {
    let off = TransportConfig {
        careful_resume: false,
        ..TransportConfig::default()
    };
    let lia = "lia".parse().expect("a name");
    let coupled = TransportConfig {
        congestion: Registry::builtin().factory(&lia).expect("a controller"),
        ..TransportConfig::default()
    };
    for transport in [off, coupled] {
        let both = again(transport, |_| {});
        assert!(is_as_slow(&both), "{both:?}");
    }
}
