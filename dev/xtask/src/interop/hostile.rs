//! aioquic again, as a peer that breaks the rules: a client of our far end, and a proxy, or what
//! claims to be a far end, for our near end. `dev/interop/peers/hostile` has the cases, and says of
//! each what came of it; here is what they run against.

use super::aioquic::{self, AIOQUIC};
use super::case::{Case, Role};
use super::cases::{Bench, ensure};
use super::far_end::FarEnd;
use super::near_end::NearEnd;
use super::process::Running;
use super::{Peer, Shop};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// How long all cases of a group may take: some wait for half a minute by themselves.
const WHOLE: Duration = Duration::from_secs(240);

pub(crate) const PEER: Peer = Peer {
    name: "aioquic-hostile",
    version: AIOQUIC,
    is_required: true,
    install: |shop: &Shop| aioquic::install(shop),
    cases,
};

/// Features, and the groups of their cases.
const GROUPS: [(&str, &str); 7] = [
    ("control stream and SETTINGS", "control"),
    ("field sections of a table that is not there", "qpack"),
    ("frames and datagrams that end a connection", "frames"),
    ("malformed requests", "requests"),
    ("capsules and datagrams that end a request", "capsules"),
    ("floods of datagrams and connections", "floods of datagrams"),
    ("floods of streams", "floods of streams"),
];

/// Near ends that are told to the hosts' program, by what they are at. Each has cases of its own,
/// which run side by side.
const NEAR_ENDS: [(&str, u16); 5] = [
    ("proxy", 9),
    ("ours", 1),
    ("early", 1),
    ("leaving", 1),
    ("stingy", 1),
];

fn cases() -> Vec<Case> {
    let groups = GROUPS.into_iter().map(|(feature, group)| {
        Case::run(feature, Role::TheirClient, move |bench| {
            attack(bench, group)
        })
    });
    let answered = Case::run("answers that break the rules", Role::OurClient, answer);
    groups.chain([answered]).collect()
}

fn python(bench: &Bench<'_>, program: &str) -> Command {
    let mut command = Command::new(&bench.theirs.client);
    // What it says is needed also if it is ended.
    command
        .arg("-u")
        .arg(bench.shop.peers.join("hostile").join(program));
    command
}

/// Their client against our far end.
fn attack(bench: &mut Bench<'_>, group: &str) -> Result<(), String> {
    let far_end = FarEnd::start(bench, &["--allow", "127.0.0.1"])?;
    let mut client = python(bench, "client.py");
    client
        .args([group, &far_end.address.port().to_string()])
        // One in 64 begins with a dash, which by itself would be taken for an option.
        .arg(format!("--invitation={}", far_end.invitation))
        .arg("--ca")
        .arg(&bench.ours.cert)
        .args(["--pid", &far_end.process().to_string()]);
    judge(bench.start("their-client", &mut client)?)
}

/// Their proxies for our near ends, and hosts behind these.
fn answer(bench: &mut Bench<'_>) -> Result<(), String> {
    // What claims to be a far end has the key of this one, which is asked for nothing.
    let far_end = FarEnd::start(bench, &[])?;
    let near = bench.root.join("near-ends");
    let mut server = python(bench, "server.py");
    server
        .arg(&near)
        .arg("--cert")
        .arg(&bench.ours.cert)
        .arg("--key")
        .arg(&bench.ours.key);
    let mut server = bench.start("their-server", &mut server)?;
    server.says_more("listening", NEAR_ENDS.len() - 1)?;
    let said = server.said();
    let mut near_ends = Vec::new();
    for (at, count) in NEAR_ENDS {
        let port = port(&said, at)?;
        let url = if at == "ours" {
            let (pin, invitation) = (far_end.pin()?, &far_end.invitation);
            format!("anabranch://{pin}@127.0.0.1:{port}/join/{invitation}")
        } else {
            format!("https://localhost:{port}/")
        };
        for _ in 0..count {
            let number = near_ends.len() as u16;
            near_ends.push((at, NearEnd::begin_another(bench, number, &url)?));
        }
    }
    let lines = near_ends
        .iter()
        .map(|(at, near_end)| format!("{at} {}\n", near_end.port_and_process()));
    let written = near.with_extension("new");
    fs::write(&written, lines.collect::<String>()).map_err(|e| e.to_string())?;
    fs::rename(&written, &near).map_err(|e| e.to_string())?;
    judge(server)
}

/// Where their server listens as this.
fn port<'a>(said: &'a str, at: &str) -> Result<&'a str, String> {
    let beginning = format!("listening {at} ");
    let mut ports = said
        .lines()
        .filter_map(|line| line.strip_prefix(&beginning));
    ports.next().ok_or(format!("it does not listen as {at}"))
}

/// Waits for the end of a program that judges its cases, and tells what memory they took.
fn judge(mut program: Running) -> Result<(), String> {
    let ended = program.succeeds(WHOLE);
    let said = program.said();
    let lines = |beginning: &'static str| {
        let lines = said.lines();
        lines.filter_map(move |line| line.strip_prefix(beginning))
    };
    for line in lines("memory ") {
        eprintln!("interop: {}: memory {line}", PEER.name);
    }
    let wrong: Vec<&str> = lines("wrong ").collect();
    ended.map_err(|error| format!("{error}: {}", wrong.join("; ")))?;
    let good = lines("ok ").count();
    eprintln!("interop: {}: {good} cases", PEER.name);
    ensure(good > 0, || "it has judged nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_by_what_listens_there() {
        let said = "listening proxy 45\nlistening ours 46\n";
        assert_eq!(port(said, "ours"), Ok("46"));
        assert!(port(said, "early").is_err());
    }
}
