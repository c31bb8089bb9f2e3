//! libcurl (the build in `curl_cffi`, which has HTTP/3 proxies): a foreign client of the far end of
//! a tunnel, with `dev/interop/peers/curl` on top.

use super::case::{Case, Role};
use super::cases::{Bench, NAME, PATIENCE, ensure_said, free};
use super::far_end::FarEnd;
use super::install::{self, Installed};
use super::{Peer, Shop};
use std::process::Command;

pub(crate) const PEER: Peer = Peer {
    name: "curl",
    version: "8.23.0 (curl_cffi 0.17.0)",
    is_required: false,
    install,
    cases,
};

fn install(shop: &Shop) -> Result<Installed, String> {
    let python = install::python(shop)?;
    let pins = shop.peers.join("curl/requirements.txt");
    install::once(shop, &pins, || {
        let mut pip = Command::new(&python);
        // Nothing but what is pinned: its own list wants a newer certifi than there is.
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps"])
            .args(["--require-hashes", "--requirement"])
            .arg(&pins);
        install::step(shop, "curl", &mut pip)
    })?;
    Ok(Installed {
        client: python.clone(),
        server: python,
    })
}

fn cases() -> Vec<Case> {
    vec![
        Case::run("CONNECT, content equal", Role::TheirClient, |bench| {
            let said = fetch(bench, &[])?;
            ensure_said(&said, "join 200")?;
            ensure_said(&said, "* CONNECT Response Status 200")?;
            ensure_said(&said, "fetched 200")?;
            bench.compare(&bench.logs.join("arrived"))
        }),
        Case::run("CONNECT to a closed port", Role::TheirClient, |bench| {
            // Nobody listens to TCP on a port that is free for UDP, or nearly never.
            let port = free(1)?.port().to_string();
            ensure_said(
                &fetch(bench, &["--target", &port])?,
                "* CONNECT Response Status 502",
            )
        }),
        Case::run(
            "CONNECT-UDP in capsules, content equal",
            Role::TheirClient,
            |bench| {
                // QUIC inside QUIC: their client fetches from our file server.
                bench.offer_file()?;
                let (server, _server) = bench.serve(&[])?;
                let port = server.port().to_string();
                let said = fetch(bench, &["--over-http3", "--target", &port])?;
                ensure_said(&said, "* CONNECT-UDP Response Status 200")?;
                ensure_said(&said, "fetched 200")?;
                bench.compare(&bench.logs.join("arrived"))
            },
        ),
        Case::run("CONNECT without credential", Role::TheirClient, |bench| {
            ensure_said(
                &fetch(bench, &["--stranger"])?,
                "* CONNECT Response Status 401",
            )
        }),
    ]
}

/// Their client gets the file from a server of its own through our far end. Returns what it said.
fn fetch(bench: &mut Bench<'_>, options: &[&str]) -> Result<String, String> {
    bench.offer_file()?;
    let far_end = FarEnd::start(bench, &["--allow", "127.0.0.1"])?;
    let proxy = format!("localhost:{}", far_end.address.port());
    let mut client = Command::new(&bench.theirs.client);
    client
        .arg(bench.shop.peers.join("curl/client.py"))
        .arg(&proxy)
        .arg(&bench.root)
        .arg(NAME)
        .arg(bench.logs.join("arrived"))
        // One in 64 begins with a dash, which by itself would be taken for an option.
        .arg(format!("--invitation={}", far_end.invitation))
        .arg("--ca")
        .arg(&bench.ours.cert)
        .args(options);
    let mut client = bench.start("their-client", &mut client)?;
    client.succeeds(PATIENCE)?;
    Ok(client.said())
}
