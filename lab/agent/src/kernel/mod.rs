//! Flows over the kernel's TCP or multipath TCP, observed through netlink.

mod diag;
mod flows;
mod socket;

use crate::ledger::Ledger;
use crate::rules::Doors;
use crate::run::Ending;
use crate::series::{Now, PathNow};
use anabranch_lab::hosts::{HostReport, Job, Ready, Role};
use diag::Flow;
use socket::Kind;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How long a client may take to name the flow of a connection.
const HELLO: Duration = Duration::from_secs(30);

/// How long a host that has everything waits for the other one to learn that.
const LINGER: Duration = Duration::from_secs(1);

/// Connections and subflows by their addresses, with the path of each.
type Known = BTreeMap<(SocketAddr, SocketAddr), (usize, Flow)>;

/// A host that is ready to carry flows.
#[derive(Debug)]
pub(crate) struct Host {
    job: Job,
    kind: Kind,
    listener: Option<TcpListener>,
    /// The server's port, once it is known.
    port: Mutex<Option<u16>>,
    /// Connections whose flows are over, kept for their counters.
    kept: Mutex<Vec<TcpStream>>,
    /// All connections ever seen; those that are gone keep their last figures.
    known: Mutex<Known>,
    told: Mutex<Told>,
    /// How often multipath TCP had fallen back before this run.
    fallbacks: Option<u64>,
}

/// What the kernel reported besides figures.
#[derive(Debug, Default)]
struct Told {
    congestion: Option<String>,
    /// Connections made so far.
    connections: usize,
    /// The largest number of subflows for each connection, averaged over the connections.
    subflows: usize,
    handshake: Option<Duration>,
    error: Option<String>,
}

type Carried = (u32, io::Result<Option<TcpStream>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Creates the listening socket; a client checks whether it can create sockets of this kind.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub(crate) fn prepare(job: &Job, doors: &Doors) -> Result<Self, String> {
        let kind = Kind::of(&job.carrier).ok_or("this job is not for the kernel")?;
        if job.qlog.is_some() {
            return Err("unsupported: qlog of the kernel's TCP".to_owned());
        }
        let first = &job.paths[0];
        let server = job.role == Role::Server;
        let listener = if server {
            kind.listen(first, doors)?
        } else {
            kind.listen(first, &Doors::default())?
        };
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        Ok(Self {
            job: job.clone(),
            kind,
            // The client's socket only tested what the kernel can do.
            listener: Some(listener).filter(|_| server),
            port: Mutex::new(Some(address.port()).filter(|_| server)),
            kept: Mutex::default(),
            known: Mutex::default(),
            told: Mutex::default(),
            fallbacks: diag::fallbacks(),
        })
    }

    /// What the other host has to know.
    pub(crate) fn ready(&self) -> Ready {
        let port = lock(&self.port).unwrap_or(0);
        let listens = self.job.paths.iter();
        Ready {
            listens: match self.job.role {
                Role::Server => listens
                    .map(|path| SocketAddr::new(path.local, port))
                    .collect(),
                Role::Client => Vec::new(),
            },
            key: None,
        }
    }

    /// Carries the flows until all are done.
    ///
    /// # Errors
    /// What failed, in words.
    pub(crate) async fn run(
        self: &Arc<Self>,
        ready: Option<Ready>,
        ledger: Arc<Ledger>,
    ) -> Result<Ending, String> {
        let mut work: JoinSet<Carried> = JoinSet::new();
        let mut accepted = JoinSet::new();
        if self.job.role == Role::Client {
            let server = ready.and_then(|ready| ready.listens.first().copied());
            let server = server.ok_or("the server listens nowhere: expected its address")?;
            *lock(&self.port) = Some(server.port());
            for (index, _) in ledger.flows() {
                let (host, ledger) = (Arc::clone(self), Arc::clone(&ledger));
                work.spawn(async move { (index, host.dial(server, ledger, index).await) });
            }
        }
        let sources = ledger.flows().filter(|(_, flow)| ledger.is_source(flow));
        let mut pending: BTreeSet<u32> = sources.map(|(index, _)| index).collect();
        let mut settled = std::pin::pin!(ledger.settled());
        let mut all_here = false;
        while !(all_here && pending.is_empty()) {
            tokio::select! {
                Some(done) = work.join_next(), if !work.is_empty() => {
                    let (index, result) = done.map_err(|error| error.to_string())?;
                    let result = result.map_err(|error| format!("flow {}: {error}", index + 1));
                    lock(&self.kept).extend(result?);
                    pending.remove(&index);
                }
                () = &mut settled, if !all_here => all_here = true,
                stream = accept(self.listener.as_ref()) => {
                    accepted.spawn(hello(stream?));
                }
                Some(hello) = accepted.join_next(), if !accepted.is_empty() => {
                    // A stranger's connection sends nothing, or nothing that makes sense.
                    if let Ok(Some((index, stream))) = hello {
                        self.note(&stream, None);
                        let ledger = Arc::clone(&ledger);
                        work.spawn(async move {
                            (index, flows::carry(stream, ledger, index).await)
                        });
                    }
                }
            }
        }
        // The last figures before connections are closed.
        self.look();
        Ok(Ending::Done)
    }

    /// Connects for a flow and carries this host's part of it.
    async fn dial(
        &self,
        server: SocketAddr,
        ledger: Arc<Ledger>,
        index: u32,
    ) -> io::Result<Option<TcpStream>> {
        if let Some(flow) = ledger.flow(index) {
            ledger.wait_until(flow.start).await;
        }
        let began = ledger.elapsed();
        let connecting = self.kind.connect(&self.job.paths[0], server).await;
        let mut stream = connecting.map_err(io::Error::other)?;
        self.note(&stream, Some(ledger.elapsed().saturating_sub(began)));
        stream.write_u32(index).await?;
        flows::carry(stream, ledger, index).await
    }

    fn note(&self, stream: &TcpStream, handshake: Option<Duration>) {
        let mut told = lock(&self.told);
        told.connections += 1;
        told.handshake = told.handshake.or(handshake);
        if told.congestion.is_none() {
            told.congestion = socket::control_of(stream).ok();
        }
    }

    /// Reads the kernel's figures of this run's connections.
    fn look(&self) -> BTreeSet<(SocketAddr, SocketAddr)> {
        let paths = &self.job.paths;
        let port = *lock(&self.port);
        let flows = match diag::flows(paths[0].local.is_ipv4()) {
            Ok(flows) => flows,
            Err(error) => {
                lock(&self.told).error.get_or_insert(error.to_string());
                return BTreeSet::new();
            }
        };
        let ours = flows.into_iter().filter(|flow| {
            let of_server = match self.job.role {
                Role::Client => flow.remote,
                Role::Server => flow.local,
            };
            Some(of_server.port()) == port
        });
        let mut known = lock(&self.known);
        let mut live = BTreeSet::new();
        for flow in ours {
            let (near, far) = (flow.local.ip(), flow.remote.ip());
            let both = paths
                .iter()
                .position(|path| (path.local, path.remote) == (near, far));
            let local = || paths.iter().position(|path| path.local == near);
            let remote = || paths.iter().position(|path| path.remote == far);
            // Behind address translation, neither address may be the one in the job.
            let only = || (paths.len() == 1).then_some(0);
            let Some(path) = both.or_else(local).or_else(remote).or_else(only) else {
                continue;
            };
            let key = (flow.local, flow.remote);
            live.insert(key);
            known.insert(key, (path, flow));
        }
        let mut told = lock(&self.told);
        if let Some(each) = live.len().checked_div(told.connections) {
            told.subflows = told.subflows.max(each);
        }
        live
    }

    /// The current state of the paths.
    pub(crate) fn now(&self) -> Now {
        let live = self.look();
        let mut now = Now {
            paths: vec![PathNow::default(); self.job.paths.len()],
            ..Now::default()
        };
        for (key, (index, flow)) in &*lock(&self.known) {
            let path = &mut now.paths[*index];
            path.sent_bytes += flow.sent_bytes();
            path.received_bytes += flow.received_bytes();
            *path.lost.get_or_insert(0) += u64::from(flow.info.total_retrans);
            *path.spurious.get_or_insert(0) += u64::from(flow.info.dsack_dups);
            if !self.kind.multipath {
                now.blocked += Duration::from_micros(flow.info.rwnd_limited);
            }
            if live.contains(key) {
                path.inflight_bytes += flow.inflight_bytes();
                path.cwnd_bytes += flow.cwnd_bytes();
                path.srtt_s = path.srtt_s.or(flow.srtt_s());
            }
        }
        now
    }

    /// Adds what the kernel knows to the report.
    pub(crate) fn report(&self, report: &mut HostReport) {
        let told = lock(&self.told);
        let known = lock(&self.known);
        report.handshake_s = told.handshake.map(|time| time.as_secs_f64());
        let sum = |of: fn(&Flow) -> u64| known.values().map(|(_, flow)| of(flow)).sum::<u64>();
        report.retransmitted_bytes = Some(sum(|flow| flow.info.bytes_retrans));
        let congestion = told.congestion.as_deref().unwrap_or("unknown");
        report.kernel = format!("congestion={congestion} subflows={}", told.subflows);
        if self.kind.multipath {
            let before = self.fallbacks.unwrap_or(0);
            let fell = match diag::fallbacks() {
                Some(count) if count > before => "yes",
                Some(_) => "no",
                None => "unknown",
            };
            let scheduler = diag::scheduler();
            report.kernel = format!("scheduler={scheduler} {} fallback={fell}", report.kernel);
        } else {
            // Not for multipath TCP: subflows share a window, so figures of each do not describe
            // the sender.
            let seconds = |micros: u64| Duration::from_micros(micros).as_secs_f64();
            report.blocked_receive_s = Some(seconds(sum(|flow| flow.info.rwnd_limited)));
            report.blocked_send_s = Some(seconds(sum(|flow| flow.info.sndbuf_limited)));
        }
        if let Some(error) = &told.error {
            report.kernel.push_str(" figures=none");
            if report.error.is_empty() {
                report.error = format!("the kernel does not tell of its connections: {error}");
            }
        }
    }

    /// Stays for a moment if all went well. A connection closed with unread bytes is reset, and the
    /// other host may still be writing.
    pub(crate) async fn leave(&self, well: bool) {
        if well {
            tokio::time::sleep(LINGER).await;
        }
        lock(&self.kept).clear();
    }
}

async fn accept(listener: Option<&TcpListener>) -> Result<TcpStream, String> {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let (stream, _) = listener
        .accept()
        .await
        .map_err(|error| format!("accept: {error}"))?;
    let set = stream.set_nodelay(true);
    set.map_err(|error| format!("cannot set up a socket: {error}"))?;
    Ok(stream)
}

/// The flow that a client's connection is for.
async fn hello(mut stream: TcpStream) -> Option<(u32, TcpStream)> {
    let index = tokio::time::timeout(HELLO, stream.read_u32())
        .await
        .ok()?
        .ok()?;
    Some((index, stream))
}
