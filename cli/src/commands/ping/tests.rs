//! Sums over samples, and one-way delays over shaped paths.

use super::*;
use crate::commands::demo::relay::{Relay, Shape};
use anabranch_net::endpoint::Endpoint;
use anabranch_net::engine::{
    AckReturn, ClientConfig, OpenPathError, PathOptions, ServerConfig, TransportConfig, tls,
};
use anabranch_net::identity::{Identity, provider};
use anabranch_net::sockets::SocketConfig;
use std::net::Ipv4Addr;
use std::sync::Arc;

const RELAYS: [Ipv4Addr; 2] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];

fn series(sent: u32, samples: &[(u64, bool)]) -> PathReport {
    let samples = samples.iter().map(|&(ms, is_direct)| Sample {
        rtt: Duration::from_millis(ms),
        is_direct,
    });
    let samples = samples.collect();
    Series { sent, samples }.report(PathId(0), "lo".into(), "x".into())
}

fn report(sent: u32, samples: &[u64]) -> PathReport {
    let direct: Vec<(u64, bool)> = samples.iter().map(|&ms| (ms, true)).collect();
    series(sent, &direct)
}

#[test]
fn samples_are_summed_up() {
    let report = report(4, &[10, 30, 20]);
    assert_eq!((report.sent, report.lost), (4, 1));
    assert_eq!(report.rtt_min_ms, Some(10.0));
    assert_eq!(report.rtt_avg_ms, Some(20.0));
    assert_eq!(report.rtt_max_ms, Some(30.0));
    assert_eq!(report.jitter_ms, Some(15.0));
}

#[test]
fn answers_that_came_back_by_another_path_count_only_where_there_are_no_others() {
    let mixed = series(4, &[(10, true), (50, false), (20, true), (60, false)]);
    assert_eq!((mixed.lost, mixed.rtt_max_ms), (0, Some(20.0)));
    assert_eq!(mixed.jitter_ms, Some(10.0));
    let detours = series(2, &[(50, false), (60, false)]);
    assert_eq!(detours.rtt_avg_ms, Some(55.0));
}

#[test]
fn a_silent_path_has_no_rtt() {
    let path = report(3, &[]);
    assert!((path.loss - 1.0).abs() < f64::EPSILON);
    assert_eq!((path.rtt_avg_ms, path.jitter_ms), (None, None));
    let report = Report {
        paths: vec![path],
        delays: Delays::unknown("of no reason"),
    };
    assert!(table(&report).to_string().contains("3 (100 %)"));
    assert!(report.delays.remark().ends_with("of no reason"));
}

/// The round trips of each path, and what is known of the delays.
type Measured = (BTreeMap<PathId, Series>, serde_json::Value);

/// Two shaped paths to a server in this process: 5 ms there and 25 back, 35 there and 15 back.
struct Crossed {
    connection: Connection,
    _endpoints: [Endpoint; 2],
    _relays: Vec<Relay>,
}

impl Crossed {
    async fn connect(client: TransportConfig, server: TransportConfig) -> Self {
        let identity = Identity::generate().unwrap();
        let alpn = [&b"test"[..]];
        let theirs = identity.server(&["localhost"]).unwrap().alpn(&alpn);
        let mut config = ServerConfig::new(theirs.build().unwrap());
        config.transport = Arc::new(server);
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let serving = Endpoint::server(config, &[address]).unwrap();
        let accepting = serving.clone();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Some(connection) = accepting.accept().await {
                kept.push(connection);
            }
        });
        let address = serving.local_addrs()[0];
        let shape = |delay_ms| Shape {
            mbit: 100,
            delay_ms,
            loss: 0.0,
        };
        let relays: Vec<Relay> = [[5, 25], [35, 15]]
            .into_iter()
            .zip(RELAYS)
            .map(|(delays, ip)| Relay::start(ip.into(), address, delays.map(shape), 1).unwrap())
            .collect();
        let pinned = tls::ClientTls::pinned(provider(), identity.fingerprint());
        let mut config = ClientConfig::new(pinned.alpn(&alpn).build().unwrap());
        config.transport = Arc::new(client);
        let endpoint = Endpoint::client().unwrap();
        let socket = |ip: Ipv4Addr| {
            let config = SocketConfig::path(ip.into(), None);
            endpoint.add_socket(&config).unwrap()
        };
        let connecting =
            endpoint.connect_over(socket(RELAYS[0]), relays[0].front, "localhost", config);
        let connection = connecting.await.unwrap();
        let second = socket(RELAYS[1]);
        let options = PathOptions::default();
        let opened = loop {
            match connection.open_path(second, relays[1].front, options) {
                Err(OpenPathError::NotYet | OpenPathError::NoCid) => tokio::time::sleep(LOOK).await,
                result => break result.unwrap(),
            }
        };
        let is_open = |stats: PathStats| stats.validated;
        while !connection.path_stats(opened).is_some_and(is_open) {
            tokio::time::sleep(LOOK).await;
        }
        Self {
            connection,
            _endpoints: [endpoint, serving],
            _relays: relays,
        }
    }

    /// What is known after `rounds` PINGs on each path.
    async fn measure(&self, rounds: usize) -> Measured {
        let mut series = BTreeMap::new();
        for _ in 0..rounds {
            probe_once(&self.connection, &mut series).await;
        }
        let delays = Delays::measured(&self.connection, series.keys().copied());
        (series, serde_json::to_value(delays).unwrap())
    }
}

fn with_timestamps() -> TransportConfig {
    TransportConfig {
        timestamps: true,
        ..TransportConfig::default()
    }
}

/// Whether a measured value is the expected one, and not what it would be with swapped directions
/// or from half the round trips: those are at least 10 away. The relays that cause the delays need
/// a processor too, and have to wait for one on a busy machine.
fn is_about(value: &serde_json::Value, expected: f64) -> bool {
    value.as_f64().is_some_and(|ms| (ms - expected).abs() < 9.0)
}

/// Measures until the result is right: delays are sometimes measured too long, but never too short,
/// and on a busy machine a path may not answer at all for a while.
async fn measure_until(
    crossed: &Crossed,
    is_right: impl Fn(&serde_json::Value) -> bool,
) -> Measured {
    const PATIENCE: Duration = Duration::from_secs(120);
    let started = Instant::now();
    loop {
        let (series, delays) = crossed.measure(10).await;
        if is_right(&delays["one_way_delay_difference_ms"][0]) {
            return (series, delays);
        }
        assert!(started.elapsed() < PATIENCE, "{delays}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_tell_forward_from_backward_delay() {
    let crossed = Crossed::connect(with_timestamps(), with_timestamps()).await;
    let (series, delays) = measure_until(&crossed, |known| {
        assert_ne!(known["method"], "common_return_path", "{known}");
        is_about(&known["forward"], 30.0) && is_about(&known["backward"], -10.0)
    })
    .await;
    let known = &delays["one_way_delay_difference_ms"][0];
    assert_eq!(known["method"], "timestamps", "{delays}");
    assert_eq!((&known["path"], &known["against"]), (&1.into(), &0.into()));
    assert!(delays["one_way_delay_reason"].is_null());
    // The RTTs are those of the paths themselves.
    for (id, least) in [(PathId(0), 30), (PathId(1), 50)] {
        let rtts = series[&id].rtts();
        assert!(rtts.iter().all(|rtt| rtt.as_millis() >= least), "{rtts:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_common_way_back_tells_the_forward_delay_without_timestamps() {
    let server = TransportConfig {
        ack_return: AckReturn::LowestId,
        ..TransportConfig::default()
    };
    let crossed = Crossed::connect(with_timestamps(), server).await;
    let (_, delays) = measure_until(&crossed, |known| {
        assert_ne!(known["method"], "timestamps", "{known}");
        assert!(known["backward"].is_null());
        is_about(&known["forward"], 30.0)
    })
    .await;
    let known = &delays["one_way_delay_difference_ms"][0];
    assert_eq!(known["method"], "common_return_path", "{delays}");
}

#[tokio::test]
async fn one_path_is_not_compared() {
    let crossed = Crossed::connect(with_timestamps(), with_timestamps()).await;
    let delays = Delays::measured(&crossed.connection, [PathId(0)]);
    assert_eq!(delays.shown(0), ("-".into(), "-".into()));
    assert!(delays.remark().contains("one path alone"));
}
