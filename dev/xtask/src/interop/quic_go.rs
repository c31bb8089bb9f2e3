//! quic-go: HTTP/3 in Go, with `dev/interop/peers/quic-go` on top.

use super::case::{Case, Role};
use super::cases::{Bench, NAME, PATIENCE, ensure_said, free};
use super::install::{self, Installed};
use super::{Peer, Shop};
use std::process::Command;

pub(crate) const PEER: Peer = Peer {
    name: "quic-go",
    version: "0.65.0",
    is_required: false,
    install,
    cases,
};

fn install(shop: &Shop) -> Result<Installed, String> {
    let program = install::go(shop, PEER.name)?;
    Ok(Installed {
        client: program.clone(),
        server: program,
    })
}

fn cases() -> Vec<Case> {
    use Role::{OurClient, TheirClient};
    vec![
        Case::run("GET, content equal", TheirClient, |bench| {
            fetch(bench, &[], &[], "status 200")
        }),
        Case::run("GET, content equal", OurClient, |bench| {
            get(bench, &[], false)
        }),
        Case::run("GET by hq-interop", TheirClient, |bench| {
            fetch(bench, &["-hq"], &[], "bytes")
        }),
        Case::run("PUT, content equal", TheirClient, put),
        Case::run("Retry", TheirClient, |bench| {
            fetch(bench, &[], &["--retry", "always"], "status 200")
        }),
        Case::run("Retry", OurClient, |bench| get(bench, &["-retry"], false)),
        Case::run("rebinding by a NAT", OurClient, |bench| {
            get(bench, &[], true)
        }),
        Case::run("migration", TheirClient, |bench| {
            fetch(bench, &["-migrate", "1000000"], &[], "did migrate")
        }),
    ]
}

fn client(bench: &Bench<'_>, address: &str, path: &str) -> Command {
    let mut command = Command::new(&bench.theirs.client);
    command
        .args(["get", address, path])
        .arg(bench.logs.join("arrived"))
        .arg("-ca")
        .arg(&bench.ours.cert);
    command
}

fn fetch(bench: &mut Bench<'_>, theirs: &[&str], ours: &[&str], said: &str) -> Result<(), String> {
    bench.offer_file()?;
    let (address, _server) = bench.serve(ours)?;
    let path = format!("/{NAME}");
    let mut client = client(bench, &address.to_string(), &path);
    let mut client = bench.start("their-client", client.args(theirs))?;
    client.succeeds(PATIENCE)?;
    ensure_said(&client.said(), said)?;
    bench.compare(&bench.logs.join("arrived"))
}

fn put(bench: &mut Bench<'_>) -> Result<(), String> {
    let file = bench.offer_file()?;
    let (address, _server) = bench.serve(&[])?;
    let mut client = client(bench, &address.to_string(), "/sent.bin");
    let mut client = bench.start("their-client", client.arg("-put").arg(&file))?;
    client.succeeds(PATIENCE)?;
    bench.compare(&bench.root.join("sent.bin"))
}

/// Our client gets the file, through a NAT that forgets if `is_moved`.
fn get(bench: &mut Bench<'_>, theirs: &[&str], is_moved: bool) -> Result<(), String> {
    bench.offer_file()?;
    let address = free(1)?;
    let mut server = Command::new(&bench.theirs.server);
    server
        .args(["serve", &address.to_string()])
        .arg(&bench.root)
        .arg("-cert")
        .arg(&bench.ours.cert)
        .arg("-key")
        .arg(&bench.ours.key)
        .args(theirs);
    let mut server = bench.start("their-server", &mut server)?;
    server.says("listening")?;
    if is_moved {
        bench.get_through_nat(address)?;
    } else {
        bench.get(address.port())?;
    }
    Ok(())
}
