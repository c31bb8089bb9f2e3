//! This engine on real sockets, with the doors the foreign peers have.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

pub(crate) mod watched;

use anabranch_interop::service;
use anabranch_interop::tls::Certificate;
use anabranch_interop::{
    ALPN, Answer, FetchConfig, Fetched, FurtherPath, Request, SERVER_NAME, Trust,
};
use anabranch_net::engine::{
    ClientConfig, OpenPathError, PathNotice, PathOptions, PathStats, RetryPolicy, ServerConfig,
    TransportConfig, tls,
};
use anabranch_net::error::ConnectError;
use anabranch_net::identity::provider;
use anabranch_net::sockets::SocketConfig;
use anabranch_net::{Connection, Endpoint, Notice};
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_testbed::Need;
use rustls::time_provider::DefaultTimeProvider;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use watched::{Tripwire, Watched};

/// What is moved to see every path at work.
pub(crate) const LARGE: u64 = 20_000_000;

/// A test that hangs is a failed one: what takes seconds gets minutes, for a machine that is busy
/// with something else.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often an upload is made twice as long: to 2.5 GB, seconds on any machine.
const MAX_DOUBLINGS: u32 = 8;

/// Fails a test instead of letting it hang.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .expect("loopback tests end within minutes")
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let is_late = soon_over();
    while !is_so() {
        assert!(!is_late(), "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Tells when patience is at its end.
pub(crate) fn soon_over() -> impl Fn() -> bool {
    let started = Instant::now();
    move || started.elapsed() > PATIENCE
}

/// An action that updates the keys as soon as that is allowed.
pub(crate) fn update_keys_soon(connection: &Connection) -> impl FnOnce() + Send + use<> {
    let (connection, runtime) = (connection.clone(), tokio::runtime::Handle::current());
    move || {
        runtime.spawn(async move {
            until("the keys to be updated", || {
                connection.update_keys().is_ok()
            })
            .await;
        });
    }
}

/// A client of ours updates its keys while `server` answers, and again while it listens.
pub(crate) async fn our_client_updates_keys(server: &anabranch_interop::Server) {
    for request in [Request::Get(LARGE), Request::Put(LARGE)] {
        let client = Client::connect(server.addr(), server.fingerprint()).await;
        let update = update_keys_soon(&client.connection);
        let answer = client.ask_and(request, LARGE / 4, update).await;
        assert_eq!(answer, Answer::expected(request));
        until("the keys to be updated", || {
            client.connection.stats().keys_updated > 0
        })
        .await;
        let request = Request::Get(1000);
        assert_eq!(client.ask(request).await, Answer::expected(request));
        client.close().await;
    }
}

/// A server of ours updates its keys in the middle of an upload that `fetch` makes.
///
/// Keys may not be updated while they are young (RFC 9001, section 6.5), and a fast machine is
/// through before they are old: then the next upload is twice as long.
pub(crate) async fn our_server_updates_keys<F, E>(server: &mut Server, fetch: impl Fn(Request) -> F)
where
    F: Future<Output = Result<Fetched, E>> + Send + 'static,
    E: std::fmt::Debug + Send + 'static,
{
    for doublings in 0..MAX_DOUBLINGS {
        let bytes = LARGE << doublings;
        let request = Request::Put(bytes);
        let fetching = tokio::spawn(fetch(request));
        let accepted = server.accepted().await;
        let updated = update_keys_during(&accepted, bytes).await;
        let fetched = soon(fetching).await.unwrap().unwrap();
        assert_eq!(fetched.answer, Answer::expected(request));
        if updated {
            assert!(accepted.stats().keys_updated > 0);
            return;
        }
    }
    panic!("{MAX_DOUBLINGS} uploads were over before the keys could be updated");
}

/// Returns whether an update was permitted before an upload of so many bytes was over. What arrives
/// is a little more than them: the request stands before them.
async fn update_keys_during(accepted: &Connection, upload: u64) -> bool {
    let mut updated = false;
    until("the upload to be over", || {
        let received = accepted.stats().streams.bytes_received;
        updated = received > upload / 10 && received < upload && accepted.update_keys().is_ok();
        updated || received >= upload
    })
    .await;
    updated
}

pub(crate) fn loopback(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

pub(crate) fn v6() -> IpAddr {
    "::1".parse().unwrap()
}

/// Whether there is IPv6 here, which many containers lack; if not, that is said.
pub(crate) fn has_ipv6() -> bool {
    match std::net::UdpSocket::bind((v6(), 0)) {
        Ok(_) => true,
        Err(error) => {
            let why = format!("no IPv6 on the loopback interface ({error})");
            Need::Network.skip("interop", why);
            false
        }
    }
}

/// Settings with a scheduler that uses every path there is, whatever its RTT.
pub(crate) fn in_turn() -> TransportConfig {
    let spec = "round-robin".parse().unwrap();
    TransportConfig {
        scheduler: SchedulerFactory::new(&anabranch_schedulers::builtin(), &spec).unwrap(),
        ..anabranch_schedulers::transport()
    }
}

/// How a server of ours differs from the usual one.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) listen: IpAddr,
    pub(crate) retry: bool,
    /// Clients resume, and their early data is read.
    pub(crate) resumption: bool,
    pub(crate) transport: TransportConfig,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            listen: Ipv4Addr::LOCALHOST.into(),
            retry: false,
            resumption: false,
            transport: anabranch_schedulers::transport(),
        }
    }
}

impl Setup {
    fn config(self, certificate: &Certificate) -> ServerConfig {
        let chain = vec![certificate.der.clone()];
        let tls = tls::ServerTls::with_certificates(provider(), chain, &certificate.key);
        let mut tls = tls.unwrap().alpn(&[ALPN]);
        if self.resumption {
            tls = tls.resumption(tls::ServerResumption {
                clock: Arc::new(DefaultTimeProvider),
                early_data: true,
            });
        }
        let mut config = ServerConfig::new(tls.build().unwrap());
        config.transport = Arc::new(self.transport);
        if self.retry {
            config.retry = RetryPolicy::Always;
        }
        config
    }
}

/// A server that answers requests and echoes datagrams, and hands its connections out.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) certificate: Certificate,
    endpoint: Endpoint,
    connections: mpsc::UnboundedReceiver<Connection>,
}

impl Server {
    pub(crate) fn start(setup: Setup) -> Self {
        // Other stacks take no Ed25519 keys; this is ECDSA.
        let certificate = Certificate::generate().unwrap();
        let listen = SocketAddr::new(setup.listen, 0);
        let endpoint = Endpoint::server(setup.config(&certificate), &[listen]).unwrap();
        let addr = endpoint.local_addrs()[0];
        let (out, connections) = mpsc::unbounded_channel();
        let accepting = endpoint.clone();
        tokio::spawn(async move {
            while let Some(connection) = accepting.accept().await {
                tokio::spawn(echo_datagrams(connection.clone()));
                tokio::spawn(answer_requests(connection.clone()));
                // A test need not look at every connection.
                let _ = out.send(connection);
            }
        });
        Self {
            addr,
            certificate,
            endpoint,
            connections,
        }
    }

    pub(crate) fn usual() -> Self {
        Self::start(Setup::default())
    }

    /// A server whose clients resume, and whose early data it reads.
    pub(crate) fn resuming() -> Self {
        Self::start(Setup {
            resumption: true,
            ..Setup::default()
        })
    }

    /// As if it was another process from now on: it knows no ticket any more.
    pub(crate) fn forget_sessions(&self) {
        let setup = Setup {
            resumption: true,
            ..Setup::default()
        };
        self.endpoint
            .set_server(Some(setup.config(&self.certificate)));
    }

    /// The next connection, as this server sees it.
    pub(crate) async fn accepted(&mut self) -> Connection {
        soon(self.connections.recv()).await.unwrap()
    }

    /// What a foreign client needs for this request, trust by key.
    pub(crate) fn ask(&self, request: Request) -> FetchConfig {
        let trust = Trust::Fingerprint(self.certificate.fingerprint);
        let mut config = FetchConfig::new(self.addr, trust, request);
        if self.addr.is_ipv6() {
            config.local = v6();
        }
        config
    }

    /// The same, trust by certificate.
    pub(crate) fn ask_by_certificate(&self, request: Request) -> FetchConfig {
        let trust = Trust::Certificate(self.certificate.der.clone());
        FetchConfig {
            trust,
            ..self.ask(request)
        }
    }

    /// A path from this loopback address to this server.
    pub(crate) fn path_from(&self, last: u8) -> FurtherPath {
        FurtherPath {
            local: loopback(last),
            remote: self.addr,
        }
    }
}

async fn answer_requests(connection: Connection) {
    while let Ok((send, receive)) = connection.accept_bi().await {
        // A client that goes away early is no failure of the server.
        tokio::spawn(async move { service::answer(receive, send).await });
    }
}

async fn echo_datagrams(connection: Connection) {
    while let Ok(datagram) = connection.read_datagram().await {
        if connection.send_datagram(datagram).is_err() {
            return;
        }
    }
}

/// A client of ours with its connection. Paths are opened by hand: no manager reopens them.
pub(crate) struct Client {
    pub(crate) endpoint: Endpoint,
    pub(crate) connection: Connection,
    pub(crate) notices: Watched<PathNotice>,
}

impl Client {
    pub(crate) async fn connect(server: SocketAddr, pin: [u8; 32]) -> Self {
        let local = if server.is_ipv6() { v6() } else { loopback(1) };
        Self::connect_as(server, pin, local, in_turn())
            .await
            .unwrap()
    }

    pub(crate) async fn connect_as(
        server: SocketAddr,
        pin: [u8; 32],
        local: IpAddr,
        transport: TransportConfig,
    ) -> Result<Self, ConnectError> {
        let endpoint = Endpoint::client().unwrap();
        let socket = endpoint
            .add_socket(&SocketConfig::path(local, None))
            .unwrap();
        let tls = tls::ClientTls::pinned_certificate(provider(), tls::Fingerprint(pin));
        let mut config = ClientConfig::new(tls.alpn(&[ALPN]).build().unwrap());
        config.transport = Arc::new(transport);
        let connecting = endpoint.connect_over(socket, server, SERVER_NAME, config);
        let connection = soon(connecting).await?;
        let notices = watch(&connection);
        Ok(Self {
            endpoint,
            connection,
            notices,
        })
    }

    /// Opens a path from a socket of its own, and waits until it carries data. A busy machine may
    /// take longer than validation may last: then it is tried again, with the next ID.
    pub(crate) async fn open_path(&self, further: FurtherPath, status: PathStatus) -> PathId {
        let is_late = soon_over();
        loop {
            let id = self.start_path(further, status).await.unwrap();
            let settled = |notice: &PathNotice| match notice {
                PathNotice::Opened { id: at, .. } | PathNotice::Abandoned { id: at, .. } => {
                    *at == id
                }
                _ => false,
            };
            self.notices.wait("our path to open", settled).await;
            if self.notices.count(is_opened(id)) > 0 {
                return id;
            }
            assert!(!is_late(), "our path {id} does not open");
        }
    }

    /// Opens a path as soon as the peer has sent what that takes.
    pub(crate) async fn start_path(
        &self,
        further: FurtherPath,
        status: PathStatus,
    ) -> Result<PathId, OpenPathError> {
        let is_late = soon_over();
        loop {
            match self.try_path(further, status) {
                Err(e) if e != OpenPathError::NoMultipath && !is_late() => {}
                settled => return settled,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Opens a path now, if that is possible.
    pub(crate) fn try_path(
        &self,
        further: FurtherPath,
        status: PathStatus,
    ) -> Result<PathId, OpenPathError> {
        let socket = SocketConfig::path(further.local, None);
        let socket = self.endpoint.add_socket(&socket).unwrap();
        let options = PathOptions {
            status,
            ..PathOptions::default()
        };
        self.connection.open_path(socket, further.remote, options)
    }

    /// Makes a request.
    pub(crate) async fn ask(&self, request: Request) -> Answer {
        self.ask_and(request, u64::MAX, || ()).await
    }

    /// Makes a request and does something when so many bytes of content have passed here.
    pub(crate) async fn ask_and(
        &self,
        request: Request,
        after: u64,
        action: impl FnOnce() + Send + 'static,
    ) -> Answer {
        let (send, receive) = self.connection.open_bi().await.unwrap();
        let (receive, send) = Tripwire::pair(request, after, action, receive, send);
        soon(service::ask(request, receive, send)).await.unwrap()
    }

    /// The round trip of a datagram; lost ones are sent again.
    pub(crate) async fn echo(&self, data: &'static [u8]) {
        let is_late = soon_over();
        while !is_late() {
            let data = bytes::Bytes::from_static(data);
            self.connection
                .send_datagram_wait(data.clone())
                .await
                .unwrap();
            let reading = self.connection.read_datagram();
            let read = tokio::time::timeout(Duration::from_millis(500), reading).await;
            if let Ok(read) = read {
                assert_eq!(read.unwrap(), data);
                return;
            }
        }
        panic!("no datagram came back");
    }

    pub(crate) async fn close(self) {
        self.connection.close(0, b"done");
        soon(self.endpoint.wait_idle()).await;
    }
}

/// Collects what happens to the paths of a connection of ours.
pub(crate) fn watch(connection: &Connection) -> Watched<PathNotice> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut notices, into) = (connection.path_notices(), Arc::clone(&seen));
    tokio::spawn(async move {
        while let Some(notice) = notices.next().await {
            if let Notice::Path(notice) = notice {
                into.lock().unwrap().push(notice);
            }
        }
    });
    Watched(seen)
}

/// Whether this path of ours has opened.
fn is_opened(id: PathId) -> impl Fn(&PathNotice) -> bool {
    move |notice| matches!(notice, PathNotice::Opened { id: at, .. } if *at == id)
}

/// What our connection knows of a path that exists.
pub(crate) fn path(connection: &Connection, id: u32) -> PathStats {
    connection.path_stats(PathId(id)).expect("an open path")
}
