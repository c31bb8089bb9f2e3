//! One transfer of the demonstration: paths, connection, download, figures.

use super::relay::{Relay, Shape};
use crate::failure::{Failure, Outcome};
use crate::files::digest::{REPR_DIGEST, Sum};
use crate::session::{H3_NO_ERROR, stream_error};
use crate::tuning::{Sending, Tuning};
use anabranch_net::connection::Connection;
use anabranch_net::defaults;
use anabranch_net::endpoint::Endpoint;
use anabranch_net::engine::{ClientConfig, OpenPathError, PathOptions, tls};
use anabranch_net::h3::H3Connection;
use anabranch_net::sockets::SocketConfig;
use anabranch_proto::wire::PathId;
use bytes::{Buf, Bytes};
use http::Request;
use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The longest a transfer may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// How long to wait for paths to open.
const OPENING: Duration = Duration::from_secs(5);

/// How often to check whether a path has opened.
const LOOK: Duration = Duration::from_millis(2);

/// The server of all runs.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Its address.
    pub(super) address: SocketAddr,
    /// What the client trusts.
    pub(super) tls: tls::ClientTls,
    /// The file's name on it.
    pub(super) name: &'static str,
}

/// One transfer to run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The paths, as indices into `shapes`.
    pub(super) paths: Vec<usize>,
    /// The shapes of all paths.
    pub(super) shapes: Vec<Shape>,
    /// What the server is asked to send by.
    pub(super) tuning: Tuning,
    /// What this side sends by.
    pub(super) sending: Sending,
    /// Decides which packets get lost.
    pub(super) seed: u64,
    /// Cuts the first path once this share of the file has arrived.
    pub(super) cut_at: Option<f64>,
}

/// The result of a transfer.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    /// Bytes of the file.
    pub(super) bytes: u64,
    /// From request to last byte.
    pub(super) duration: Duration,
    /// Share of the received bytes for each shape; `None` if it had no path.
    pub(super) shares: Vec<Option<f64>>,
    /// The most bytes that waited behind a gap in the stream.
    pub(super) reassembly_peak: u64,
    /// Stream bytes received more than once.
    pub(super) duplicates: u64,
    /// The longest time without data for the application after the cut.
    pub(super) pause: Option<Duration>,
}

/// Runs one transfer.
pub(super) async fn run(target: &Target, plan: &Plan) -> Outcome<Figures> {
    let done = timeout(PATIENCE, transfer(target, plan)).await;
    done.map_err(|_| {
        let failure = Failure::failed(format!("no end within {} s", PATIENCE.as_secs()));
        failure.hint("is the machine very busy?")
    })?
}

async fn transfer(target: &Target, plan: &Plan) -> Outcome<Figures> {
    let mut relays = Vec::new();
    for &place in &plan.paths {
        let seed = plan.seed.wrapping_mul(31).wrapping_add(place as u64);
        let relay = Relay::start(
            address(place),
            target.address,
            [plan.shapes[place]; 2],
            seed,
        );
        relays.push(relay.map_err(|error| Failure::io("cannot start a path", &error))?);
    }
    let endpoint = Endpoint::client().map_err(|error| Failure::io("no socket", &error))?;
    let connection = connect(&endpoint, target, plan, &relays).await?;
    let ids = open_paths(&endpoint, &connection, plan, &relays).await?;
    let fetched = fetch(&connection, target, plan, &relays).await;
    let paths = connection.paths();
    let stats = connection.stats();
    connection.close(H3_NO_ERROR, b"");
    let (bytes, duration, pause) = fetched?;
    let received = |id: PathId| {
        let stats = paths.iter().find(|(path, _)| *path == id);
        stats.map_or(0, |(_, stats)| stats.counters.received_bytes)
    };
    let total: u64 = ids.iter().map(|&id| received(id)).sum();
    let mut shares = vec![None; plan.shapes.len()];
    for (&place, &id) in plan.paths.iter().zip(&ids) {
        shares[place] = Some(received(id) as f64 / total.max(1) as f64);
    }
    Ok(Figures {
        bytes,
        duration,
        shares,
        reassembly_peak: stats.streams.reassembly_peak,
        duplicates: stats.streams.duplicate_bytes,
        pause,
    })
}

/// Each path has a loopback address of its own: 127.0.0.1, .2, .3.
fn address(place: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, place as u8 + 1).into()
}

async fn connect(
    endpoint: &Endpoint,
    target: &Target,
    plan: &Plan,
    relays: &[Relay],
) -> Outcome<Connection> {
    let mut transport = defaults::transport();
    plan.sending.configure(&mut transport);
    let mut config = ClientConfig::new(target.tls.clone());
    config.transport = Arc::new(transport);
    let socket = endpoint
        .add_socket(&SocketConfig::path(address(plan.paths[0]), None))
        .map_err(|error| Failure::io("no socket", &error))?;
    let connecting = endpoint.connect_over(socket, relays[0].front, "localhost", config);
    connecting.await.map_err(Failure::failed)
}

async fn open_paths(
    endpoint: &Endpoint,
    connection: &Connection,
    plan: &Plan,
    relays: &[Relay],
) -> Outcome<Vec<PathId>> {
    let mut ids = vec![PathId::ZERO];
    for (&place, relay) in plan.paths.iter().zip(relays).skip(1) {
        let socket = endpoint
            .add_socket(&SocketConfig::path(address(place), None))
            .map_err(|error| Failure::io("no socket", &error))?;
        let opening = async {
            loop {
                match connection.open_path(socket, relay.front, PathOptions::default()) {
                    Err(OpenPathError::NotYet | OpenPathError::NoCid) => sleep(LOOK).await,
                    result => return result,
                }
            }
        };
        let opened = timeout(OPENING, opening).await;
        let opened = opened.map_err(|_| Failure::failed("a path cannot be opened"))?;
        ids.push(opened.map_err(Failure::failed)?);
    }
    let ready = |id: &PathId| {
        connection
            .path_stats(*id)
            .is_some_and(|stats| stats.validated)
    };
    let opening = async {
        while !ids.iter().all(ready) {
            sleep(LOOK).await;
        }
    };
    let opened = timeout(OPENING, opening).await;
    opened.map_err(|_| Failure::failed("a path did not open in time"))?;
    Ok(ids)
}

/// Fetches the file and keeps only its digest.
async fn fetch(
    connection: &Connection,
    target: &Target,
    plan: &Plan,
    relays: &[Relay],
) -> Outcome<(u64, Duration, Option<Duration>)> {
    let broken = |error: h3::error::StreamError| Failure::failed(stream_error(&error));
    let built = h3::client::builder()
        .send_grease(false)
        .build::<_, _, Bytes>(H3Connection::new(connection.clone()))
        .await;
    let (mut driver, mut requests) = built.map_err(Failure::failed)?;
    tokio::spawn(async move { driver.wait_idle().await });
    let uri = format!("https://localhost/{}", target.name);
    let mut request = Request::get(uri).body(()).map_err(Failure::failed)?;
    plan.tuning.to_headers(request.headers_mut());
    let started = Instant::now();
    let mut exchange = requests.send_request(request).await.map_err(broken)?;
    exchange.finish().await.map_err(broken)?;
    let response = exchange.recv_response().await.map_err(broken)?;
    let length = response.headers().get(http::header::CONTENT_LENGTH);
    let length: u64 = length
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .unwrap_or(0);
    let mut watch = Watch::new(plan.cut_at.map(|share| (length as f64 * share) as u64));
    let mut hash = Sha256::new();
    let mut bytes = 0;
    while let Some(mut piece) = exchange.recv_data().await.map_err(broken)? {
        bytes += piece.remaining() as u64;
        while piece.has_remaining() {
            hash.update(piece.chunk());
            let chunk = piece.chunk().len();
            piece.advance(chunk);
        }
        if watch.on_data(bytes) {
            relays[0].cut();
        }
    }
    let duration = started.elapsed();
    let trailers = exchange.recv_trailers().await.map_err(broken)?;
    let theirs = trailers
        .as_ref()
        .and_then(|fields| fields.get(REPR_DIGEST)?.to_str().ok());
    if bytes != length || theirs.and_then(Sum::from_field) != Some(Sum::of(hash)) {
        return Err(Failure::failed(
            "the file arrived damaged: its SHA-256 differs",
        ));
    }
    Ok((bytes, duration, watch.pause))
}

/// Finds the longest pause after the cut.
struct Watch {
    cut_at: Option<u64>,
    last: Option<Instant>,
    pause: Option<Duration>,
}

impl Watch {
    fn new(cut_at: Option<u64>) -> Self {
        Self {
            cut_at,
            last: None,
            pause: None,
        }
    }

    /// Records that this many bytes have arrived; returns whether it is time to cut.
    fn on_data(&mut self, bytes: u64) -> bool {
        if let Some(last) = self
            .last
            .replace(Instant::now())
            .filter(|_| self.pause.is_some())
        {
            self.pause = self.pause.max(Some(last.elapsed()));
        }
        let due = self.pause.is_none() && self.cut_at.is_some_and(|at| bytes >= at);
        if due {
            self.pause = Some(Duration::ZERO);
        }
        due
    }
}
