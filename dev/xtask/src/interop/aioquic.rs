//! aioquic: HTTP/3 in Python, with `dev/interop/peers/aioquic` on top.

use super::case::{Case, Role};
use super::cases::{Bench, NAME, PATIENCE, ensure, ensure_said, free, number};
use super::install::{self, Installed};
use super::{Peer, Shop};
use std::process::Command;

/// Its version.
pub(crate) const AIOQUIC: &str = "1.7.2";

pub(crate) const PEER: Peer = Peer {
    name: "aioquic",
    version: AIOQUIC,
    is_required: true,
    install,
    cases,
};

/// Into the environment that all peers in Python share.
pub(crate) fn install(shop: &Shop) -> Result<Installed, String> {
    let python = install::python(shop)?;
    let pins = shop.peers.join("aioquic/requirements.txt");
    install::once(shop, &pins, || {
        let mut pip = Command::new(&python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "--requirement",
        ])
        .arg(&pins);
        install::step(shop, "aioquic", &mut pip)
    })?;
    Ok(Installed {
        client: python.clone(),
        server: python,
    })
}

/// Feature, what the client is told, what our server is told, and lines the client must say.
type FromThem = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static [&'static str],
);

const FROM_THEM: &[FromThem] = &[
    ("GET, content equal", &[], &[], &["status 200"]),
    ("GET by hq-interop", &["--hq"], &[], &[]),
    ("Retry", &[], &["--retry", "always"], &["retry 1"]),
    (
        "version negotiation",
        &["--unknown-version"],
        &[],
        &["version_negotiation 1"],
    ),
    (
        "key update by the peer",
        &["--at", "1000000:keys"],
        &[],
        &["did keys"],
    ),
    (
        "rebinding by a NAT",
        &["--at", "1000000:rebind"],
        &[],
        &["did rebind"],
    ),
    (
        "migration",
        &["--at", "1000000:migrate"],
        &[],
        &["did migrate"],
    ),
];

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = FROM_THEM
        .iter()
        .map(|&(feature, theirs, ours, said)| {
            Case::run(feature, Role::TheirClient, move |bench| {
                let output = fetch(bench, theirs, ours)?;
                said.iter().try_for_each(|line| ensure_said(&output, line))
            })
        })
        .collect();
    for (feature, action) in [
        ("no connection ID at two addresses, NAT", "1000000:rebind"),
        (
            "no connection ID at two addresses, migration",
            "1000000:migrate",
        ),
    ] {
        cases.push(Case::run(feature, Role::TheirClient, move |bench| {
            let output = fetch(bench, &["--at", action], &[])?;
            let shared = number(&output, "cids", "shared")?;
            ensure(shared == 0.0, || {
                format!("{shared} connection IDs were used towards both addresses")
            })
        }));
    }
    cases.push(Case::run("PUT, content equal", Role::TheirClient, put));
    let ours: [(_, &[&str], _); 3] = [
        ("GET, content equal", &[], false),
        ("Retry", &["--retry"], false),
        ("rebinding by a NAT", &[], true),
    ];
    for (feature, theirs, is_moved) in ours {
        cases.push(Case::run(feature, Role::OurClient, move |bench| {
            get(bench, theirs, is_moved, &[])
        }));
    }
    cases.push(Case::run(
        "key update by the peer",
        Role::OurClient,
        |bench| get(bench, &["--update-keys"], false, &["did keys"]),
    ));
    cases
}

fn client(bench: &Bench<'_>, port: u16, path: &str) -> Command {
    let mut command = Command::new(&bench.theirs.client);
    command
        .arg(bench.shop.peers.join("aioquic/client.py"))
        .args([&port.to_string(), path])
        .arg(bench.logs.join("arrived"))
        .arg("--ca")
        .arg(&bench.ours.cert);
    command
}

/// Their client gets the file from our server. Returns what it said.
fn fetch(bench: &mut Bench<'_>, theirs: &[&str], ours: &[&str]) -> Result<String, String> {
    bench.offer_file()?;
    let (address, _server) = bench.serve(ours)?;
    let path = format!("/{NAME}");
    let mut client = client(bench, address.port(), &path);
    let mut client = bench.start("their-client", client.args(theirs))?;
    client.succeeds(PATIENCE)?;
    bench.compare(&bench.logs.join("arrived"))?;
    Ok(client.said())
}

fn put(bench: &mut Bench<'_>) -> Result<(), String> {
    let file = bench.offer_file()?;
    let (address, _server) = bench.serve(&[])?;
    let mut client = client(bench, address.port(), "/sent.bin");
    let mut client = bench.start("their-client", client.arg("--put").arg(&file))?;
    client.succeeds(PATIENCE)?;
    ensure_said(&client.said(), "status 201")?;
    bench.compare(&bench.root.join("sent.bin"))
}

/// Our client gets the file from their server, through a NAT that forgets if `is_moved`.
fn get(
    bench: &mut Bench<'_>,
    theirs: &[&str],
    is_moved: bool,
    said: &[&str],
) -> Result<(), String> {
    bench.offer_file()?;
    let address = free(1)?;
    let mut server = Command::new(&bench.theirs.server);
    server
        .arg(bench.shop.peers.join("aioquic/server.py"))
        .arg(address.port().to_string())
        .arg(&bench.root)
        .arg("--cert")
        .arg(&bench.ours.cert)
        .arg("--key")
        .arg(&bench.ours.key)
        .args(theirs);
    let mut server = bench.start("their-server", &mut server)?;
    server.listens(address)?;
    if is_moved {
        bench.get_through_nat(address)?;
    } else {
        bench.get(address.port())?;
    }
    let output = server.said();
    said.iter().try_for_each(|line| ensure_said(&output, line))
}
