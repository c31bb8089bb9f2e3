//! masque-go: a foreign client of the far end of a tunnel for UDP, in QUIC datagrams, with
//! `dev/interop/peers/masque-go` on top.

use super::case::{Case, Role};
use super::cases::{Bench, NAME, PATIENCE, ensure_said, free};
use super::far_end::FarEnd;
use super::install::{self, Installed};
use super::{Peer, Shop};
use std::process::Command;

pub(crate) const PEER: Peer = Peer {
    name: "masque-go",
    version: "0.4.0 (quic-go 0.60.0)",
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
    use Role::TheirClient;
    vec![
        Case::run("CONNECT-UDP to IPv4, echo", TheirClient, |bench| {
            echo(bench, &["-at", "127.0.0.1"], 1)
        }),
        Case::run("CONNECT-UDP to IPv6, echo", TheirClient, |bench| {
            echo(bench, &["-at", "::1"], 1)
        }),
        Case::run("CONNECT-UDP to a name, echo", TheirClient, |bench| {
            // The next hop that the answer names is compared with the address there.
            echo(bench, &["-at", "127.0.0.1", "-as", "localhost"], 1)
        }),
        Case::run("2,000 datagrams", TheirClient, |bench| {
            echo(bench, &["-count", "2000"], 2000)
        }),
        // More than have one byte for the number of their stream.
        Case::run("80 requests on a connection", TheirClient, |bench| {
            echo(bench, &["-flows", "80", "-count", "20"], 80 * 20)
        }),
        Case::run("HTTP/3 through it, content equal", TheirClient, fetch),
        Case::run("target that is not allowed", TheirClient, |bench| {
            let said = ask(bench, &["-target", "10.0.0.1:9"])?;
            ensure_said(&said, "answer 502")?;
            ensure_said(
                &said,
                "proxy-status anabranch; error=destination_ip_prohibited",
            )
        }),
        Case::run("target where nobody is", TheirClient, |bench| {
            let closed = free(1)?.to_string();
            let said = ask(bench, &["-target", &closed])?;
            ensure_said(&said, "answer 200")?;
            // H3_CONNECT_ERROR, as soon as the target's host says so.
            ensure_said(
                &said,
                "ended stream 0 canceled by remote with error code 271",
            )
        }),
        Case::run("no credential", TheirClient, |bench| {
            let said = ask(bench, &["-target", "127.0.0.1:9", "-stranger"])?;
            ensure_said(&said, "answer 401")
        }),
        Case::run("credential of `clients add`", TheirClient, |bench| {
            let far_end = start(bench)?;
            let credential = far_end.add_client(bench, "masque-go")?;
            let said = run_at(bench, &far_end, "echo", &["-credential", &credential])?;
            ensure_said(&said, "echoed 1 again")
        }),
        Case::cannot(
            "CONNECT-UDP in capsules",
            TheirClient,
            "it skips all capsules",
        ),
    ]
}

/// Sends datagrams through our far end to a server in the client itself.
fn echo(bench: &mut Bench<'_>, options: &[&str], count: u32) -> Result<(), String> {
    let said = run(bench, "echo", options)?;
    ensure_said(&said, "join 200")?;
    ensure_said(&said, "answer 200")?;
    ensure_said(&said, "capsule-protocol ?1")?;
    ensure_said(&said, "next-hop is the target")?;
    ensure_said(&said, &format!("echoed {count} again"))
}

fn ask(bench: &mut Bench<'_>, options: &[&str]) -> Result<String, String> {
    run(bench, "ask", options)
}

/// QUIC inside QUIC: their client fetches from our file server.
fn fetch(bench: &mut Bench<'_>) -> Result<(), String> {
    bench.offer_file()?;
    let (server, _server) = bench.serve(&[])?;
    let arrived = bench.logs()?.join("arrived");
    let arrived = arrived.display().to_string();
    let target = format!("localhost:{}", server.port());
    let path = format!("/{NAME}");
    let said = run(
        bench,
        "fetch",
        &["-target", &target, "-path", &path, "-output", &arrived],
    )?;
    ensure_said(&said, "fetched 200")?;
    bench.compare(arrived.as_ref())
}

/// Their client against a far end that leads to this machine. Returns what it said.
fn run(bench: &mut Bench<'_>, what: &str, options: &[&str]) -> Result<String, String> {
    let far_end = start(bench)?;
    run_at(bench, &far_end, what, options)
}

fn start(bench: &Bench<'_>) -> Result<FarEnd, String> {
    FarEnd::start(bench, &["--allow", "127.0.0.1", "--allow", "::1"])
}

fn run_at(
    bench: &Bench<'_>,
    far_end: &FarEnd,
    what: &str,
    options: &[&str],
) -> Result<String, String> {
    let mut client = Command::new(&bench.theirs.client);
    client
        .args([what, &far_end.address.to_string(), &far_end.invitation])
        .arg("-ca")
        .arg(&bench.ours.cert)
        .args(options);
    let mut client = bench.start("their-client", &mut client)?;
    client.succeeds(PATIENCE)?;
    Ok(client.said())
}
