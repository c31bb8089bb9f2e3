//! ngtcp2 as Debian packages it, with nothing of ours on top: `gtlsclient` and `gtlsserver`.

use super::case::{Case, Role};
use super::cases::{Bench, NAME, PATIENCE, ensure, ensure_said, free};
use super::install::{self, Installed};
use super::links::{Links, RATE, SERVER};
use super::process::Running;
use super::{Peer, Shop};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

pub(crate) const PEER: Peer = Peer {
    name: "ngtcp2",
    version: "of Debian",
    is_required: false,
    install,
    cases,
};

fn install(shop: &Shop) -> Result<Installed, String> {
    install::debian(
        shop,
        &[
            ("gtlsclient", "ngtcp2-client"),
            ("gtlsserver", "ngtcp2-server"),
        ],
    )?;
    let find = |name| install::find(name).ok_or(format!("no {name} in these packages"));
    Ok(Installed {
        client: find("gtlsclient")?,
        server: find("gtlsserver")?,
    })
}

/// Feature, what the client is told, what our server is told, and a line the client must say.
type FromThem = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

/// The client acts this long after the handshake: the file takes six times as long at least. Its
/// rebinding by a NAT is not tried: it ignores what still comes to its old address, has nothing to
/// send by the new one, and no server learns of it.
const FROM_THEM: &[FromThem] = &[
    ("GET, content equal", &[], &[], ""),
    ("Retry", &[], &["--retry", "always"], ""),
    (
        "key update by the peer",
        &["--key-update=100ms"],
        &[],
        "Initiate key update",
    ),
    (
        "migration",
        &["--change-local-addr=100ms"],
        &[],
        "Local address is now",
    ),
];

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = FROM_THEM
        .iter()
        .map(|&(feature, theirs, ours, said)| {
            Case::run(feature, Role::TheirClient, move |bench| {
                fetch(bench, theirs, ours, said)
            })
        })
        .collect();
    cases.push(Case::run("GET, content equal", Role::OurClient, |bench| {
        get(bench, &[]).map(|_| ())
    }));
    cases.push(Case::run("rebinding by a NAT", Role::OurClient, |bench| {
        let (address, _server) = serve(bench, &[])?;
        bench.get_through_nat(address).map(|_| ())
    }));
    cases.push(Case::run("Retry", Role::OurClient, |bench| {
        get(bench, &["--validate-addr"]).map(|_| ())
    }));
    cases.push(Case::cannot(
        "preferred address",
        Role::TheirClient,
        "`serve` offers none",
    ));
    cases.push(Case::run("preferred address", Role::OurClient, |bench| {
        let preferred = free(2)?.to_string();
        let said = get(bench, &[&format!("--preferred-ipv4-addr={preferred}")])?;
        ensure(
            said.contains(&format!("\"remote\":\"{preferred}\"")),
            || "our client did not move to the preferred address".to_owned(),
        )
    }));
    cases
}

fn fetch(bench: &mut Bench<'_>, theirs: &[&str], ours: &[&str], said: &str) -> Result<(), String> {
    bench.offer_file()?;
    let links = Links::new(Some(RATE))?;
    let _server = bench.serve_behind(&links, ours)?;
    let arrived = bench.logs()?.join("arrived");
    fs::create_dir_all(&arrived).map_err(|e| e.to_string())?;
    let mut client = links.on_client(&bench.theirs.client);
    client
        .args([
            "--no-quic-dump",
            "--no-http-dump",
            "--exit-on-all-streams-close",
            "--download",
        ])
        .arg(&arrived)
        .args(theirs)
        .args([SERVER.ip().to_string(), SERVER.port().to_string()])
        .arg(format!("https://localhost:{}/{NAME}", SERVER.port()));
    let mut client = bench.start("their-client", &mut client)?;
    client.succeeds(PATIENCE)?;
    bench.compare(&arrived.join(NAME))?;
    // It logs to standard error.
    let log = fs::read_to_string(bench.logs.join("their-client.err")).unwrap_or_default();
    ensure_said(&log, said)
}

/// Our client gets the file. Returns its result, JSON.
fn get(bench: &mut Bench<'_>, options: &[&str]) -> Result<String, String> {
    let (address, _server) = serve(bench, options)?;
    bench.get(address.port())
}

/// Their server of the file, listening.
fn serve(bench: &Bench<'_>, options: &[&str]) -> Result<(SocketAddr, Running), String> {
    bench.offer_file()?;
    let address = free(1)?;
    let mut server = Command::new(&bench.theirs.server);
    server
        .args(["--quiet", "--htdocs"])
        .arg(&bench.root)
        .args(options)
        .args([address.ip().to_string(), address.port().to_string()])
        .arg(&bench.ours.key)
        .arg(&bench.ours.cert);
    let mut server = bench.start("their-server", &mut server)?;
    server.listens(address)?;
    Ok((address, server))
}
