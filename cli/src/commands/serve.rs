//! `anabranch serve`: offers the files of a directory.

use super::interrupted;
use crate::args::Serve;
use crate::failure::{Failure, Outcome};
use crate::files::service::Service;
use crate::http3::{self, Done};
use crate::output::{self, units};
use crate::qlog;
use crate::session::H3_NO_ERROR;
use crate::trust::ALPN_HQ;
use crate::url::{Host, ServerUrl};
use anabranch_net::connection::Connection;
use anabranch_net::endpoint::Endpoint;
use anabranch_net::engine::{ServerConfig, TransportConfig};
use anabranch_net::interfaces::{self, Interface, Kind};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long clients are given to learn that the server leaves.
const FAREWELL: Duration = Duration::from_secs(1);

/// What the key is used for besides showing who the server is: resetting connections it had before
/// it was restarted.
const RESET_LABEL: &[u8] = b"anabranch stateless reset";

/// Clients that measure the speed at a time: two would measure each other.
const SPEED_TESTS: usize = 1;

/// Addresses put into the URL at most.
const MAX_HOSTS: usize = 8;

/// Runs the command.
pub(crate) async fn run(args: &Serve, quiet: bool) -> Outcome {
    let mut service = Service::new(&args.root, args.writable).map_err(|error| {
        Failure::usage(format!("cannot serve {}: {error}", args.root.display()))
            .hint("`--root` must be a directory that can be read (and Linux 5.6 or later)")
    })?;
    service.speed = args.speed.then(|| Semaphore::new(SPEED_TESTS));
    // Used by clients that ask for them.
    let mut transport = TransportConfig {
        timestamps: true,
        ..TransportConfig::default()
    };
    args.tuning
        .configure(&mut transport)
        .map_err(Failure::usage)?;
    let qlog = args.report.qlog.as_deref();
    transport.observer = qlog.map(qlog::into_directory).transpose()?;
    let (tls, key) = args.trust.config(&["localhost"])?;
    let mut config = ServerConfig::new(tls);
    config.transport = Arc::new(transport);
    config.retry = args.retry.into();
    config.max_connections = args.max_connections as usize;
    let secret = key.derive_secret(RESET_LABEL);
    let endpoint = bind(&config, secret, &args.listen)?;
    let hosts = match args.advertise.as_slice() {
        [] => reachable(&endpoint.local_addrs()).await?,
        hosts => hosts.to_vec(),
    };
    let url = ServerUrl {
        pin: Some(key.fingerprint()),
        hosts,
        path: String::new(),
    };
    if args.report.json {
        output::json(&serde_json::json!({ "event": "listening", "url": url.to_string() }))?;
    } else {
        output::data(&url)?;
    }
    let log = Log {
        json: args.report.json,
        quiet,
    };
    let service = Arc::new(service);
    let accepting = accept(&endpoint, &service, log);
    tokio::select! {
        () = accepting => {}
        () = interrupted() => {}
    }
    endpoint.close(H3_NO_ERROR, b"the server was stopped");
    let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
    Ok(())
}

async fn accept(endpoint: &Endpoint, service: &Arc<Service>, log: Log) {
    while let Some(connection) = endpoint.accept().await {
        tokio::spawn(serve(connection, Arc::clone(service), log));
    }
}

async fn serve(connection: Connection, service: Arc<Service>, log: Log) {
    let first = connection
        .paths()
        .first()
        .map(|(_, stats)| stats.tuple.remote);
    let client = first.map_or_else(
        || "?".into(),
        |remote| remote.ip().to_canonical().to_string(),
    );
    let watched = connection.downgrade();
    let report = move |done: Done| {
        let paths = watched
            .upgrade()
            .map_or(0, |connection| connection.paths().len());
        log.request(&client, paths, &done);
    };
    if connection.alpn().as_deref() == Some(ALPN_HQ) {
        http3::serve_hq(connection, service, report).await;
    } else {
        http3::serve(connection, service, report).await;
    }
}

/// Where requests are told.
#[derive(Debug, Clone, Copy)]
struct Log {
    json: bool,
    quiet: bool,
}

impl Log {
    fn request(self, client: &str, paths: usize, done: &Done) {
        let rate = units::rate(done.bytes, done.duration);
        if self.json {
            // Nobody reading any more is no reason to stop serving.
            let _ = output::json(&serde_json::json!({
                "event": "request",
                "client": client,
                "method": done.method,
                "path": done.path,
                "status": done.status,
                "bytes": done.bytes,
                "seconds": units::json_seconds(done.duration),
                "goodput_bps": rate.round(),
                "paths": paths,
                "error": done.error,
            }));
        } else if !self.quiet {
            let path: String = done
                .path
                .chars()
                .map(|c| if c.is_control() { '?' } else { c })
                .collect();
            let error = done
                .error
                .as_ref()
                .map(|error| format!(": {error}"))
                .unwrap_or_default();
            output::say(format!(
                "{client} {} {path} {} {}, {} over {}{error}",
                done.method,
                done.status,
                units::bytes(done.bytes),
                units::bit_rate(rate),
                units::counted(paths, "path"),
            ));
        }
    }
}

fn bind(config: &ServerConfig, reset_secret: [u8; 32], listen: &[SocketAddr]) -> Outcome<Endpoint> {
    let fail = |error: io::Error| {
        let failure = Failure::usage(error.to_string());
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                failure.hint("choose another port with `--listen ADDR:PORT`")
            }
            io::ErrorKind::AddrNotAvailable => {
                failure.hint("`--listen` takes addresses of this machine: see `anabranch doctor`")
            }
            io::ErrorKind::PermissionDenied => failure.hint("ports below 1024 need root"),
            _ => failure,
        }
    };
    let bind_to = |addresses: &[SocketAddr]| {
        let builder = Endpoint::builder()
            .server(config.clone())
            .reset_secret(reset_secret);
        let addresses = addresses.iter();
        addresses
            .fold(builder, |builder, &address| builder.listen(address))
            .bind()
    };
    if !listen.is_empty() {
        return bind_to(listen).map_err(fail);
    }
    let port = crate::url::DEFAULT_PORT;
    match bind_to(&[(Ipv6Addr::UNSPECIFIED, port).into()]) {
        // A machine without IPv6.
        Err(error) if error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => {
            bind_to(&[(Ipv4Addr::UNSPECIFIED, port).into()]).map_err(fail)
        }
        result => result.map_err(fail),
    }
}

/// The hosts under which sockets bound to `bound` are reached, for the URL.
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
        // Loopback is of use on this machine only.
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
    fn an_address_is_reached_at_itself() {
        assert_eq!(names("127.0.0.1:5000", &[]), ["127.0.0.1:5000"]);
    }
}
