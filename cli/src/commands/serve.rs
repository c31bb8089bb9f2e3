//! `anabranch serve`: offers the files of a directory.

use super::interrupted;
use crate::args::Serve;
use crate::failure::{Failure, Outcome};
use crate::files::service::Service;
use crate::guest::Guest;
use crate::http3::Done;
use crate::output::{self, units};
use crate::qlog;
use crate::session::H3_NO_ERROR;
use crate::trust::ALPN_HQ;
use crate::tuning::Granted;
use crate::url::{Host, ServerUrl};
use crate::{http3, http09};
use anabranch_net::defaults;
use anabranch_net::endpoint::Endpoint;
use anabranch_net::engine::{
    ConnectionError, EndpointConfig, ReceiveBudget, ServerConfig, TransportConfig, tls,
};
use anabranch_net::interfaces::{self, Interface, Kind};
use anabranch_proto::error::printable;
use anabranch_schedulers::Names;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;

/// How long clients have to learn that the server is leaving.
const FAREWELL: Duration = Duration::from_secs(1);

/// Label for the key's other use besides identifying the server: resetting connections from before
/// a restart.
pub(super) const RESET_LABEL: &[u8] = b"anabranch stateless reset";

/// Clients that may measure the speed at a time: two would measure each other.
const SPEED_TESTS: usize = 1;

/// Refused clients logged per second: strangers must not fill the log.
const REFUSALS_A_SECOND: u32 = 10;

/// Time between two searches for abandoned uploads. If uploads are kept for less, they are searched
/// for that often, but not more often than `LEAST_SWEEP`.
const SWEEP: Duration = Duration::from_secs(3600);
const LEAST_SWEEP: Duration = Duration::from_secs(1);

/// Characters of a path that the log shows.
const PATH_CHARS: usize = 300;

/// The most addresses in the URL.
const MAX_HOSTS: usize = 8;

/// Runs the command.
pub(crate) async fn run(args: &Serve, names: &Arc<Names>, quiet: bool) -> Outcome {
    let serving = Serving::start(args, names).await?;
    if args.report.json {
        let url = serving.url.to_string();
        output::json(&serde_json::json!({ "event": "listening", "url": url }))?;
    } else {
        output::data(&serving.url)?;
    }
    serving.run(quiet, args.report.json, interrupted()).await;
    Ok(())
}

/// A server that listens.
#[derive(Debug)]
pub(crate) struct Serving {
    /// For clients.
    pub(crate) url: ServerUrl,
    endpoint: Endpoint,
    service: Arc<Service>,
    granted: Granted,
    names: Arc<Names>,
    /// How long unfinished uploads are kept; none are taken if `None`.
    keep: Option<Duration>,
}

impl Serving {
    /// Begins to listen.
    pub(crate) async fn start(args: &Serve, names: &Arc<Names>) -> Outcome<Self> {
        let sending = args.tuning.resolve(names)?;
        let mut service = Service::new(&args.root, args.uploads.limits()).map_err(|error| {
            Failure::usage(format!("cannot serve {}: {error}", args.root.display()))
                .hint("`--root` must be a directory that can be read (and Linux 5.6 or later)")
        })?;
        service.speed = args.speed.then(|| Semaphore::new(SPEED_TESTS));
        // Sent to clients that ask for timestamps.
        let mut transport = TransportConfig {
            timestamps: true,
            ..defaults::transport()
        };
        sending.configure(&mut transport);
        raise_file_limit();
        let qlog = args.report.qlog.as_deref();
        transport.observer = qlog.map(qlog::into_directory).transpose()?;
        let (tls, key) = args.trust.config(&["localhost"])?;
        let setup = Setup {
            server: configure(args, transport, tls),
            endpoint: EndpointConfig {
                receive_budget: ReceiveBudget::new(args.receive_budget.0),
                ..EndpointConfig::default()
            },
            workers: args.workers,
        };
        let (endpoint, url) = open(setup, &key, &args.listen, &args.advertise).await?;
        let granted = if args.fixed_tuning {
            Granted::Nothing
        } else {
            Granted::Harmless
        };
        let uploads = &args.uploads;
        Ok(Self {
            url,
            endpoint,
            service: Arc::new(service),
            granted,
            names: Arc::clone(names),
            keep: uploads.writable.then_some(uploads.keep_unfinished),
        })
    }

    /// Serves until `stop` completes.
    pub(crate) async fn run(self, quiet: bool, json: bool, stop: impl Future<Output = ()>) {
        let log = Log { json, quiet };
        let expiring = async {
            if let Some(keep) = self.keep {
                expire(&self.service, keep, log).await;
            }
            std::future::pending::<()>().await;
        };
        let watching = async {
            watch_handshakes(&self.endpoint, log).await;
            std::future::pending::<()>().await;
        };
        let chosen = (self.granted, &self.names);
        tokio::select! {
            () = accept(&self.endpoint, &self.service, log, chosen) => {}
            () = expiring => {}
            () = watching => {}
            () = stop => {}
        }
        self.endpoint.close(H3_NO_ERROR, b"the server was stopped");
        let _ = tokio::time::timeout(FAREWELL, self.endpoint.wait_idle()).await;
    }
}

/// What a server is made of.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) server: ServerConfig,
    pub(crate) endpoint: EndpointConfig,
    /// One for each processor core if `None`.
    pub(crate) workers: Option<NonZeroUsize>,
}

/// Binds a server, and says how clients find it.
pub(crate) async fn open(
    setup: Setup,
    key: &tls::KeyPair,
    listen: &[SocketAddr],
    advertise: &[Host],
) -> Outcome<(Endpoint, ServerUrl)> {
    let secret = key.derive_secret(RESET_LABEL);
    let place = (listen, crate::url::DEFAULT_PORT);
    let endpoint = bind(&setup, secret, place)?;
    let hosts = match advertise {
        [] => reachable(&endpoint.local_addrs()).await?,
        hosts => hosts.to_vec(),
    };
    let url = ServerUrl {
        pin: Some(key.fingerprint()),
        hosts,
        path: String::new(),
    };
    Ok((endpoint, url))
}

fn configure(args: &Serve, transport: TransportConfig, tls: tls::ServerTls) -> ServerConfig {
    let mut config = ServerConfig::new(tls);
    config.transport = Arc::new(transport);
    config.retry = args.retry.into();
    config.max_connections = args.max_connections as usize;
    config.max_connections_per_address = args.max_connections_per_address as usize;
    config.send_budget = args.send_budget.0;
    config
}

/// Serves clients as they come.
async fn accept(
    endpoint: &Endpoint,
    service: &Arc<Service>,
    log: Log,
    (granted, names): (Granted, &Arc<Names>),
) {
    let paused = Arc::default();
    while let Some(connection) = endpoint.accept().await {
        let first = connection.paths().first().map(|(_, stats)| stats.tuple);
        let client = first.map_or_else(|| "?".into(), |tuple| name_of(tuple.remote));
        let report = move |done: Done| log.request(&client, &done);
        let (service, paused) = (Arc::clone(service), Arc::clone(&paused));
        let guest = Guest::new(connection, service, paused, (granted, Arc::clone(names)));
        if guest.connection.alpn().as_deref() == Some(ALPN_HQ) {
            tokio::spawn(http09::serve(guest, report));
        } else {
            tokio::spawn(http3::serve(guest, report));
        }
    }
}

/// Logs which clients did not get in.
async fn watch_handshakes(endpoint: &Endpoint, log: Log) {
    let mut second = Instant::now();
    let mut told = 0;
    while let Some(failed) = endpoint.failed_handshake().await {
        let Some(reason) = refusal(&failed.error) else {
            tracing::debug!(client = %failed.remote, "no handshake: {}", failed.error);
            continue;
        };
        if second.elapsed() >= Duration::from_secs(1) {
            (second, told) = (Instant::now(), 0);
        }
        told += 1;
        if told <= REFUSALS_A_SECOND {
            log.refused(&name_of(failed.remote), &reason);
        }
    }
}

/// Why a client was not let in, or chose not to come in.
fn refusal(error: &ConnectionError) -> Option<String> {
    match error {
        ConnectionError::Transport(error) if error.code.tls_alert().is_some() => {
            Some(error.reason.to_string())
        }
        ConnectionError::PeerClosed(error) if error.code.tls_alert().is_some() => {
            Some(format!("the client does not accept this server: {error}"))
        }
        _ => None,
    }
}

/// Removes abandoned uploads from time to time.
async fn expire(service: &Arc<Service>, age: Duration, log: Log) {
    loop {
        let service = Arc::clone(service);
        let removed = tokio::task::spawn_blocking(move || service.expire(age)).await;
        if let Ok(removed @ 1..) = removed {
            log.expired(removed);
        }
        tokio::time::sleep(SWEEP.min(age.max(LEAST_SWEEP))).await;
    }
}

/// Allows as many open files as the system permits this user: many clients have many open.
pub(super) fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // If it is not allowed after all, clients beyond the limit are told that the server is
        // busy.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// A client's address without port.
fn name_of(remote: SocketAddr) -> String {
    remote.ip().to_canonical().to_string()
}

/// Where events are reported.
#[derive(Debug, Clone, Copy)]
struct Log {
    json: bool,
    quiet: bool,
}

impl Log {
    fn request(self, client: &str, done: &Done) {
        let rate = units::rate(done.bytes, done.duration);
        if self.json {
            Self::event(&serde_json::json!({
                "time": now(),
                "event": "request",
                "client": client,
                "method": done.method,
                "path": done.path,
                "status": done.status,
                "bytes": done.bytes,
                "seconds": units::json_seconds(done.duration),
                "goodput_bps": rate.round(),
                "paths": done.paths,
                "error": done.error,
            }));
            return;
        }
        let error = done.error.as_ref().map(|error| format!(": {error}"));
        self.line(&format!(
            "{client} {} {} {} {}, {} over {}{}",
            done.method,
            shortened(&done.path),
            done.status,
            units::bytes(done.bytes),
            units::bit_rate(rate),
            units::counted(done.paths, "path"),
            error.unwrap_or_default(),
        ));
    }

    fn refused(self, client: &str, reason: &str) {
        if self.json {
            Self::event(&serde_json::json!({
                "time": now(),
                "event": "refused",
                "client": client,
                "reason": reason,
            }));
        } else {
            self.line(&format!("{client} refused: {reason}"));
        }
    }

    fn expired(self, uploads: usize) {
        if self.json {
            Self::event(&serde_json::json!({
                "time": now(),
                "event": "expired",
                "uploads": uploads,
            }));
        } else {
            let uploads = units::counted(uploads, "unfinished upload");
            self.line(&format!("{uploads} too old to be continued: removed"));
        }
    }

    fn event(event: &serde_json::Value) {
        // A closed stdout is no reason to stop serving.
        let _ = output::json(event);
    }

    /// Writes a line for people. Clients choose much of what is in it.
    fn line(self, words: &str) {
        if !self.quiet {
            output::say(format!("{} {}", now(), printable(words)));
        }
    }
}

/// The time, as RFC 3339 writes it.
fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// A path, shortened for the log.
fn shortened(path: &str) -> String {
    match path.char_indices().nth(PATH_CHARS) {
        Some((end, _)) => format!("{}...", &path[..end]),
        None => path.to_owned(),
    }
}

/// Why an address of ours is no place to listen.
pub(super) fn cannot_listen(error: &io::Error) -> Failure {
    let failure = Failure::usage(error);
    match error.kind() {
        io::ErrorKind::AddrInUse => failure.hint("choose another port with `--listen ADDR:PORT`"),
        io::ErrorKind::AddrNotAvailable => {
            failure.hint("`--listen` takes addresses of this machine: see `anabranch doctor`")
        }
        io::ErrorKind::PermissionDenied => failure.hint("ports below 1024 need root"),
        _ => failure,
    }
}

/// Binds a server to the addresses given, else to a port of all addresses.
pub(super) fn bind(
    setup: &Setup,
    reset_secret: [u8; 32],
    (listen, port): (&[SocketAddr], u16),
) -> Outcome<Endpoint> {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let workers = setup.workers.unwrap_or_else(cores);
    let bind_to = |addresses: &[SocketAddr]| {
        let builder = Endpoint::builder()
            .config(setup.endpoint.clone())
            .server(setup.server.clone())
            .workers(workers)
            .reset_secret(reset_secret);
        let addresses = addresses.iter();
        addresses
            .fold(builder, |builder, &address| builder.listen(address))
            .bind()
    };
    if !listen.is_empty() {
        return bind_to(listen).map_err(|error| cannot_listen(&error));
    }
    match bind_to(&[(Ipv6Addr::UNSPECIFIED, port).into()]) {
        // This machine has no IPv6.
        Err(error) if error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => {
            bind_to(&[(Ipv4Addr::UNSPECIFIED, port).into()]).map_err(|error| cannot_listen(&error))
        }
        result => result.map_err(|error| cannot_listen(&error)),
    }
}

/// The hosts for the URL, under which sockets bound to `bound` can be reached.
pub(super) async fn reachable(bound: &[SocketAddr]) -> Outcome<Vec<Host>> {
    let wildcard = bound.iter().any(|address| address.ip().is_unspecified());
    let own = if wildcard {
        interfaces::list().await.map_err(Failure::failed)?
    } else {
        Vec::new()
    };
    Ok(hosts(bound, &own))
}

fn hosts(bound: &[SocketAddr], own: &[Interface]) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut add = |ip: IpAddr, port: u16| {
        let host = Host {
            name: ip.to_string(),
            port,
        };
        if hosts.len() < MAX_HOSTS && !hosts.contains(&host) {
            hosts.push(host);
        }
    };
    for address in bound {
        let ip = address.ip();
        if !ip.is_unspecified() {
            add(ip, address.port());
            continue;
        }
        let usable = || own.iter().filter(|interface| interface.is_usable());
        let mut best: Vec<&Interface> =
            usable().filter(|interface| interface.is_uplink()).collect();
        if best.is_empty() {
            best = usable().collect();
        }
        // Loopback comes last: it is of use on this machine only.
        best.sort_by_key(|one| (one.kind == Kind::Loopback, !one.default_route));
        // The IPv6 wildcard serves IPv4 too. Link-local addresses mean nothing elsewhere.
        let fits = |other: &IpAddr| ip.is_ipv6() || other.is_ipv4();
        for own in best.iter().flat_map(|interface| &interface.addresses) {
            let link_local = match own.ip {
                IpAddr::V4(ip) => ip.is_link_local(),
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            if fits(&own.ip) && !link_local {
                add(own.ip, address.port());
            }
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_net::interfaces::{Address, Kind};
    use std::collections::BTreeSet;

    fn interface(name: &str, kind: Kind, default_route: bool, addresses: &[&str]) -> Interface {
        let address = |ip: &&str| Address {
            ip: ip.parse().unwrap(),
            prefix_len: 24,
        };
        Interface {
            index: 1,
            name: name.into(),
            kind,
            up: true,
            running: true,
            mtu: 1500,
            addresses: addresses.iter().map(address).collect(),
            gateways: Vec::new(),
            default_route,
            destinations: BTreeSet::new(),
        }
    }

    fn names(bound: &str, own: &[Interface]) -> Vec<String> {
        let hosts = hosts(&[bound.parse().unwrap()], own);
        hosts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_wildcard_is_reached_at_every_uplink_the_default_one_first() {
        let own = [
            interface("lo", Kind::Loopback, false, &["127.0.0.1"]),
            interface("eth1", Kind::Uplink, false, &["192.0.2.2", "fe80::2"]),
            interface("eth0", Kind::Uplink, true, &["192.0.2.1", "2001:db8::1"]),
            interface("docker0", Kind::Virtual, false, &["172.17.0.1"]),
        ];
        let all = ["192.0.2.1:4433", "[2001:db8::1]:4433", "192.0.2.2:4433"];
        assert_eq!(names("[::]:4433", &own), all);
        assert_eq!(names("0.0.0.0:4433", &own), [all[0], all[2]]);
        assert_eq!(names("[::]:4433", &own[..1]), ["127.0.0.1:4433"]);
    }

    #[test]
    fn a_long_path_does_not_fill_the_log() {
        let path = "/é".repeat(PATH_CHARS);
        assert_eq!(shortened(&path).chars().count(), PATH_CHARS + 3);
        assert_eq!(shortened("/file"), "/file");
    }

    #[test]
    fn an_address_is_reached_at_itself() {
        assert_eq!(names("127.0.0.1:5000", &[]), ["127.0.0.1:5000"]);
    }
}
