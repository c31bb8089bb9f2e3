//! Flows over the engine: one UDP socket for each path, each unit on a stream of its own.

mod addresses;
mod flows;
mod observe;
mod paths;
mod race;
mod stripe;

pub(crate) use flows::AFTERGLOW;

use crate::ledger::{Ledger, is_source};
use crate::rules::{Doors, Rules};
use crate::run::Ending;
use crate::series::{Now, PathNow};
use anabranch_lab::engine::{Setup, ends, path_options};
use anabranch_lab::hosts::{Carrier, HostPath, HostReport, Job, Ready, Role};
use anabranch_lab::scenario::{Profile, Way};
use anabranch_net::engine::{
    ClientConfig, ConnectionError, EndpointConfig, PathStats, ServerConfig, TransportConfig, tls,
};
use anabranch_net::error::{ReadError, WriteError};
use anabranch_net::identity::{Identity, provider};
use anabranch_net::sockets::SocketConfig;
use anabranch_net::{Connection, Endpoint};
use anabranch_proto::datagram::{SocketId, Tuple};
use anabranch_proto::wire::{ErrorCode, PathId};
use anabranch_qlog::Folder;
use anabranch_schedulers::Names;
use observe::Eyes;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The application protocol of both hosts.
const ALPN: &[u8] = b"anabranch-lab";

/// The name by which clients address the server.
const SERVER_NAME: &str = "host.lab";

/// The application error code of a host that has received everything it waited for.
const DONE: u64 = 0;

/// The application error code of a run that was cut off.
const CUT: u64 = 1;

/// How long a host that has everything waits for the other one to learn that.
const LINGER: Duration = Duration::from_secs(1);

/// How long a leaving host tries to deliver the end of the connection.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why a flow failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection ended; its own error says more.
    Connection,
    /// Something else.
    Other(String),
}

impl Failure {
    pub(crate) fn other(error: &dyn std::fmt::Display) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<ConnectionError> for Failure {
    fn from(_: ConnectionError) -> Self {
        Self::Connection
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Connection(_) => Self::Connection,
            other => Self::other(&other),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Connection(_) => Self::Connection,
            other => Self::other(&other),
        }
    }
}

/// Counters of paths by connection and path ID, kept after the path is gone.
type Known = BTreeMap<(usize, PathId), (usize, PathStats)>;

/// A host that is ready to carry flows.
#[derive(Debug)]
pub(crate) struct Host {
    job: Job,
    endpoint: Endpoint,
    /// All sockets that each path has had; the last one is current.
    sockets: Mutex<Vec<Vec<SocketId>>>,
    listens: Vec<SocketAddr>,
    identity: Option<Identity>,
    transport: Arc<TransportConfig>,
    eyes: Eyes,
    connections: Mutex<Vec<Connection>>,
    known: Mutex<Known>,
    handshake: Mutex<Option<Duration>>,
    stripe: Option<stripe::Stripe>,
    /// Why changes of address are not noticed, if they are not.
    unfollowed: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Binds the sockets and interprets the transport.
    ///
    /// # Errors
    /// What cannot be done, in words.
    pub(crate) fn prepare(job: &Job, qlog: Option<Folder>, rules: &Rules) -> Result<Self, String> {
        let eyes = Eyes::new(job.decisions, qlog);
        let mut transport = transport(job, &rules.names)?;
        transport.observer = Some(eyes.factory());
        let transport = Arc::new(transport);
        let mut builder = Endpoint::builder()
            .config(EndpointConfig::default())
            .seed(seed(job));
        let mut identity = None;
        if job.role == Role::Server {
            let own = Identity::generate().map_err(|error| error.to_string())?;
            let tls = tls::ServerTls::with_raw_key(provider(), own.key()).alpn(&[ALPN]);
            let mut config = ServerConfig::new(tls.build().map_err(|error| error.to_string())?);
            config.transport = Arc::clone(&transport);
            builder = builder.server(config);
            identity = Some(own);
        }
        let endpoint = builder.bind().map_err(|error| error.to_string())?;
        let (sockets, listens) = bind(job, &endpoint, &rules.doors)?;
        Ok(Self {
            job: job.clone(),
            endpoint,
            sockets: Mutex::new(sockets.into_iter().map(|socket| vec![socket]).collect()),
            listens,
            identity,
            transport,
            eyes,
            connections: Mutex::default(),
            known: Mutex::default(),
            handshake: Mutex::default(),
            stripe: stripe::Stripe::of(job),
            unfollowed: Mutex::default(),
        })
    }

    /// What the other host has to know.
    pub(crate) fn ready(&self) -> Ready {
        let key = self.identity.as_ref();
        Ready {
            listens: match self.job.role {
                Role::Server => self.listens.clone(),
                Role::Client => Vec::new(),
            },
            key: key.map(|identity| identity.fingerprint().to_string()),
        }
    }

    fn index_of(&self, id: PathId, tuple: &Tuple) -> usize {
        paths::index_of(&self.job.paths, &lock(&self.sockets), id, tuple)
    }

    /// The current socket of a path.
    fn socket(&self, index: usize) -> SocketId {
        let sockets = lock(&self.sockets);
        *sockets[index].last().expect("each path has a socket")
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
        let mut helpers = JoinSet::new();
        let connections = match self.job.role {
            Role::Client => {
                self.dial(ready.unwrap_or_default(), &ledger, &mut helpers)
                    .await?
            }
            Role::Server => self.accept(&ledger, &mut helpers).await?,
        };
        let mut work = JoinSet::new();
        if let Some(stripe) = &self.stripe {
            stripe.carry(&connections, &ledger, &mut work, &mut helpers);
        } else {
            let connection = connections[0].clone();
            helpers.spawn(flows::receive(connection.clone(), Arc::clone(&ledger)));
            for (index, _) in ledger.flows() {
                work.spawn(flows::carry(connection.clone(), Arc::clone(&ledger), index));
            }
        }
        let mut ends = JoinSet::new();
        for connection in &connections {
            let connection = connection.clone();
            ends.spawn(async move { connection.closed().await });
        }
        self.watch(&ledger, &mut work, &mut ends).await
    }

    /// Waits until everything is sent and received.
    async fn watch(
        &self,
        ledger: &Ledger,
        work: &mut JoinSet<Result<(), Failure>>,
        ends: &mut JoinSet<ConnectionError>,
    ) -> Result<Ending, String> {
        let mut settled = std::pin::pin!(ledger.settled());
        let mut all_here = false;
        loop {
            if all_here && work.is_empty() {
                return Ok(Ending::Done);
            }
            tokio::select! {
                biased;
                Some(done) = work.join_next(), if !work.is_empty() => match done {
                    Ok(Ok(()) | Err(Failure::Connection)) => {}
                    Ok(Err(Failure::Other(error))) => return Err(error),
                    Err(error) => return Err(error.to_string()),
                },
                () = &mut settled, if !all_here => all_here = true,
                Some(end) = ends.join_next() => {
                    let error = end.map_err(|error| error.to_string())?;
                    // The last bytes may not have been read yet.
                    let rest = tokio::time::timeout(FAREWELL, &mut settled);
                    all_here = all_here || rest.await.is_ok();
                    return closed(&error, all_here);
                }
            }
        }
    }

    /// Connects, and keeps the paths open.
    async fn dial(
        self: &Arc<Self>,
        ready: Ready,
        ledger: &Arc<Ledger>,
        helpers: &mut JoinSet<()>,
    ) -> Result<Vec<Connection>, String> {
        let config = self.client_config(&ready)?;
        let paths = &self.job.paths;
        if ready.listens.len() != paths.len() {
            let count = ready.listens.len();
            return Err(format!(
                "the server listens on {count} addresses: expected one for each of {} paths",
                paths.len()
            ));
        }
        ledger.wait_until(ledger.first_start()).await;
        let began = ledger.elapsed();
        let moves: Vec<watch::Receiver<SocketId>> = self.follow_addresses(helpers);
        let plan = |index: usize, open| paths::Plan {
            socket: moves[index].clone(),
            remote: ready.listens[index],
            options: path_options(paths[index].usage),
            opens: paths[index].opens,
            open,
        };
        let lanes = match &self.stripe {
            Some(stripe) => stripe.lanes(paths.len()),
            None => vec![0],
        };
        let mut connections = Vec::new();
        for (number, lane) in lanes.into_iter().enumerate() {
            let (lane, connection) = match &self.stripe {
                Some(_) => (
                    lane,
                    self.connect(lane, ready.listens[lane], &config).await?,
                ),
                None => self.begin(&ready.listens, &config).await?,
            };
            if number == 0 {
                *lock(&self.handshake) = Some(ledger.elapsed().saturating_sub(began));
            }
            lock(&self.connections).push(connection.clone());
            let first = plan(lane, Some(PathId::ZERO));
            let more = (0..paths.len()).filter(|index| self.stripe.is_none() && *index != lane);
            let plans = std::iter::once(first).chain(more.map(|index| plan(index, None)));
            for plan in plans {
                helpers.spawn(paths::keep_open(
                    connection.clone(),
                    plan,
                    Arc::clone(ledger),
                ));
            }
            connections.push(connection);
        }
        Ok(connections)
    }

    /// Connects on one path.
    async fn connect(
        &self,
        index: usize,
        remote: SocketAddr,
        config: &ClientConfig,
    ) -> Result<Connection, String> {
        let socket = self.socket(index);
        let connecting = self
            .endpoint
            .connect_over(socket, remote, SERVER_NAME, config.clone());
        connecting.await.map_err(|error| error.to_string())
    }

    fn client_config(&self, ready: &Ready) -> Result<ClientConfig, String> {
        let Some(key) = &ready.key else {
            return Err("the server told no key: expected what it said when it was ready".into());
        };
        let pin = key.parse();
        let pin = pin.map_err(|error| format!("the server's key `{key}`: {error}"))?;
        let tls = tls::ClientTls::pinned(provider(), pin).alpn(&[ALPN]);
        let mut config = ClientConfig::new(tls.build().map_err(|error| error.to_string())?);
        config.transport = Arc::clone(&self.transport);
        Ok(config)
    }

    /// Waits for the client to connect.
    async fn accept(
        self: &Arc<Self>,
        ledger: &Arc<Ledger>,
        helpers: &mut JoinSet<()>,
    ) -> Result<Vec<Connection>, String> {
        let count = match &self.stripe {
            Some(stripe) => stripe.lanes(self.job.paths.len()).len(),
            None => 1,
        };
        let mut connections = Vec::new();
        while connections.len() < count {
            let accepted = self.next_kept().await;
            let connection = accepted.ok_or("the endpoint was closed")?;
            lock(&self.handshake).get_or_insert(ledger.elapsed());
            lock(&self.connections).push(connection.clone());
            helpers.spawn(paths::follow(connection.clone(), Arc::clone(self)));
            connections.push(connection);
        }
        Ok(connections)
    }

    /// The current state of the paths.
    pub(crate) fn now(&self) -> Now {
        let connections = lock(&self.connections);
        let mut known = lock(&self.known);
        let mut now = Now {
            paths: vec![PathNow::default(); self.job.paths.len()],
            reseq_bytes: Some(self.eyes.take_waiting()),
            ..Now::default()
        };
        let mut live = Vec::new();
        for (number, connection) in connections.iter().enumerate() {
            let stats = connection.stats();
            now.blocked += stats.blocked.receive_window.time;
            let credit = connection.with_engine(|engine| engine.backlog().credit);
            now.credit_bytes += credit.unwrap_or(0);
            for (id, stats) in connection.paths() {
                let index = paths::index_of_stats(self, &stats);
                known.insert((number, id), (index, stats));
                live.push((number, id));
            }
        }
        for (key, (index, stats)) in &*known {
            let path = &mut now.paths[*index];
            let counters = &stats.counters;
            path.sent_bytes += counters.sent_bytes;
            path.received_bytes += counters.received_bytes;
            *path.lost.get_or_insert(0) += counters.lost_packets;
            *path.spurious.get_or_insert(0) += counters.spurious_losses;
            if self.stripe.is_none() {
                *path.first_copy_bytes.get_or_insert(0) += self.eyes.first_copy(key.1);
            }
            if live.contains(key) {
                path.inflight_bytes += stats.bytes_in_flight;
                path.cwnd_bytes += stats.congestion_window;
                let measured = stats.counters.received_packets > 0 && stats.validated;
                let srtt = Some(stats.smoothed_rtt.as_secs_f64()).filter(|_| measured);
                path.srtt_s = path.srtt_s.or(srtt);
            }
        }
        now
    }

    /// Adds what the engine knows to the report.
    pub(crate) fn report(&self, ledger: &Ledger, report: &mut HostReport) {
        let handshake = lock(&self.handshake).filter(|_| self.job.role == Role::Client);
        report.handshake_s = handshake.map(|time| time.as_secs_f64());
        report.kernel.push_str("protection=on");
        if let Some(why) = &*lock(&self.unfollowed) {
            report.kernel.push_str(" addresses=unfollowed: ");
            report.kernel.push_str(why);
        }
        let known = lock(&self.known).clone();
        let number = |id: PathId| {
            let found = known.iter().find(|((_, known), _)| *known == id);
            found.map_or(id.0, |(_, (index, _))| *index as u32) + 1
        };
        let since_start = |at| ledger.since_start(at).as_nanos() as u64;
        self.eyes.report(report, since_start, number);
        let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
        let add = |slot: &mut Option<u64>, more: u64| *slot = Some(slot.unwrap_or(0) + more);
        let add_s = |slot: &mut Option<f64>, more: Duration| {
            *slot = Some(slot.unwrap_or(0.0) + more.as_secs_f64());
        };
        for connection in lock(&self.connections).iter() {
            let stats = connection.stats();
            add(
                &mut report.retransmitted_bytes,
                stats.streams.bytes_retransmitted,
            );
            add(&mut report.reinjected_bytes, stats.streams.bytes_reinjected);
            add(&mut report.duplicate_bytes, stats.streams.duplicate_bytes);
            add_s(
                &mut report.blocked_receive_s,
                stats.blocked.receive_window.time,
            );
            add_s(&mut report.blocked_send_s, stats.blocked.send_buffer.time);
            add_s(&mut report.blocked_hold_s, stats.blocked.scheduler.time);
            add(&mut report.holds, stats.scheduler.holds);
            for (reason, count) in &stats.scheduler.reasons {
                *reasons.entry(reason.name().to_owned()).or_default() += count;
            }
        }
        report.reasons = reasons.into_iter().collect();
        if let Some(stripe) = &self.stripe {
            stripe.report(report);
        }
        if let Some(error) = self.eyes.qlog_error()
            && report.error.is_empty()
        {
            report.error = error;
        }
    }

    /// Leaves: at once if the run was cut off, else once the other host has closed or `LINGER` has
    /// passed.
    pub(crate) async fn leave(&self, well: bool) {
        let connections = lock(&self.connections).clone();
        if well {
            let all = async {
                for connection in &connections {
                    connection.closed().await;
                }
            };
            // A timeout is fine: both sides have everything.
            let _ = tokio::time::timeout(LINGER, all).await;
        }
        let (code, words): (u64, &[u8]) = if well {
            (DONE, b"done")
        } else {
            (CUT, b"the run was cut off")
        };
        let code = ErrorCode::new(code).unwrap_or_default();
        self.endpoint.close(code, words);
        drop(connections);
        // The other host may be gone.
        let _ = tokio::time::timeout(FAREWELL, self.endpoint.wait_idle()).await;
    }
}

impl Drop for Host {
    /// Removes the sockets; otherwise connections that are still closing would hold the ports of
    /// the next run.
    fn drop(&mut self) {
        for socket in lock(&self.sockets).iter().flatten() {
            self.endpoint.remove_socket(*socket);
        }
    }
}

/// What the end of a connection means for the run.
fn closed(error: &ConnectionError, all_here: bool) -> Result<Ending, String> {
    match error {
        ConnectionError::ApplicationClosed { code: DONE, .. } if all_here => Ok(Ending::Done),
        ConnectionError::ApplicationClosed { code: CUT, .. } => Ok(Ending::Cut),
        ConnectionError::ApplicationClosed { code: DONE, .. } => {
            Err("the other host left before everything had arrived".to_owned())
        }
        error => Err(format!("the connection broke: {error}")),
    }
}

/// The settings of this host's end.
fn transport(job: &Job, names: &Names) -> Result<TransportConfig, String> {
    let Carrier::Anabranch {
        profile,
        scheduler,
        congestion,
        settings,
    } = &job.carrier
    else {
        return Err("this job is not for the engine".to_owned());
    };
    if *profile == Profile::Stripe {
        stripe::check(job)?;
    }
    let setup = Setup {
        profile: *profile,
        scheduler: scheduler.as_ref(),
        congestion: congestion.as_ref(),
        settings,
    };
    let ends = ends(&setup, names).map_err(|error| error.to_string())?;
    let way = job.flows.first().map_or(Way::Forward, |flow| flow.way);
    Ok(if is_source(job.role, way) {
        ends.sender
    } else {
        ends.receiver
    })
}

/// The random seed of this host in this run; the two hosts' seeds differ.
fn seed(job: &Job) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&job.seed.to_be_bytes());
    seed[8] = match job.role {
        Role::Client => 1,
        Role::Server => 2,
    };
    seed
}

/// Binds a socket for each path. A client's paths from the same address and interface share one. A
/// server has one for each path, so that even behind a NAT it can tell which path a packet came by.
fn bind(
    job: &Job,
    endpoint: &Endpoint,
    doors: &Doors,
) -> Result<(Vec<SocketId>, Vec<SocketAddr>), String> {
    let mut sockets: Vec<SocketId> = Vec::new();
    for (index, path) in job.paths.iter().enumerate() {
        let same = job.paths[..index]
            .iter()
            .position(|other| (other.local, &other.interface) == (path.local, &path.interface));
        if let Some(same) = same.filter(|_| job.role == Role::Client) {
            sockets.push(sockets[same]);
            continue;
        }
        sockets.push(match job.role {
            Role::Client => bind_path(path, endpoint, &Doors::default())?,
            Role::Server => bind_path(path, endpoint, doors)?,
        });
    }
    let info = endpoint.sockets();
    let address = |id: &SocketId| {
        let found = info.iter().find(|one| one.id == *id);
        found.map(|one| one.local).ok_or("a socket is gone")
    };
    let listens: Result<Vec<SocketAddr>, &str> = sockets.iter().map(address).collect();
    Ok((sockets, listens?))
}

/// Binds the socket of one path.
fn bind_path(path: &HostPath, endpoint: &Endpoint, doors: &Doors) -> Result<SocketId, String> {
    let bound = doors.open(path.local, |local| {
        endpoint.add_socket(&SocketConfig {
            device: path.interface.clone(),
            ..SocketConfig::listen(local)
        })
    });
    bound.map_err(|error| {
        let interface = path.interface.as_deref();
        let by = interface.map_or(String::new(), |name| format!(" on interface `{name}`"));
        format!("path `{}`: {error}{by}", path.name)
    })
}
