//! picoquic: multipath in C, with `dev/interop/peers/picoquic` on top. Our end is `our_end`.
//!
//! Its sources come with the Python package aiopquic, the only registry that has a release.

use super::case::{Case, Role};
use super::cases::{Bench, PATIENCE, ensure, ensure_said, number};
use super::install::{self, Installed};
use super::links::{CLIENT, Links, RATE, SERVER};
use super::process::Running;
use super::{Peer, Shop};
use anabranch_testbed::{Rate, Relay};
use std::path::Path;
use std::process::Command;

pub(crate) const PEER: Peer = Peer {
    name: "picoquic",
    version: "1.1.53",
    is_required: true,
    install,
    cases,
};

/// What is moved: enough that something can happen in the middle.
const BYTES: u64 = 20_000_000;
/// Of each link while something happens that takes its own time: the content takes 16 s at least.
const SLOW: Rate = Rate::mbit(5);
/// What a relay lets through before it falls silent or forgets: by then there are two paths.
const BEFORE_FAULT: u64 = 4_000_000;
/// Bytes of datagrams that arrive for each byte of content, at most: headers take 0.024. What a
/// busy peer's socket drops has to be sent again and does not arrive, so that it does not count.
const ARRIVED: f64 = 1.05;
/// Bytes of datagrams that our end sends for each byte of content, at most, although the peer
/// acknowledges late: what links drop and what is sent in doubt is among them.
const SENT: f64 = 1.05;
/// How often our end may doubt its paths in one such transfer, which takes more than a second. Each
/// late acknowledgement may be a surprise once; a path that flapped was doubted every 10 to 50 ms.
const DOUBTS: f64 = 4.0;
/// Of the bytes, those that may have passed when the last step is done: later it shows nothing.
const IN_TIME: f64 = 0.75;
/// Of the bytes, those that each of two paths must carry.
const SHARE: f64 = 0.1;
/// Of the bytes, what a path may carry that is backup after a quarter of the transfer.
const BACKUP_SHARE: f64 = 0.4;

fn install(shop: &Shop) -> Result<Installed, String> {
    let python = install::python(shop)?;
    install::debian(
        shop,
        &[
            ("cmake", "cmake"),
            ("cc", "gcc"),
            ("make", "make"),
            ("/usr/include/openssl/evp.h", "libssl-dev"),
        ],
    )?;
    let folder = shop.cache.join("picoquic");
    let own = shop.peers.join("picoquic");
    let pins = own.join("requirements.txt");
    install::once(shop, &pins, || {
        let mut pip = Command::new(&python);
        // It is not installed: what Python it wants does not matter.
        pip.args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            "aiopquic",
        ])
        .args([
            "--ignore-requires-python",
            "--require-hashes",
            "--requirement",
        ])
        .arg(&pins)
        .arg("--dest")
        .arg(&folder);
        install::step(shop, "picoquic-download", &mut pip)?;
        let mut unpack = Command::new("tar");
        unpack
            .current_dir(&folder)
            .args(["xzf", "aiopquic-0.6.1.tar.gz", "--strip-components=1"]);
        install::step(shop, "picoquic-unpack", &mut unpack)
    })?;
    let build = folder.join("build");
    let mut configure = Command::new("cmake");
    configure
        .arg("-S")
        .arg(&own)
        .arg("-B")
        .arg(&build)
        .arg("-DCMAKE_BUILD_TYPE=Release")
        .arg(format!(
            "-DSOURCES={}",
            folder.join("third_party").display()
        ));
    install::step(shop, "picoquic-configure", &mut configure)?;
    let mut make = Command::new("cmake");
    make.arg("--build").arg(&build).args(["--parallel", "2"]);
    install::step(shop, "picoquic-build", &mut make)?;
    let program = build.join("picoquic_peer");
    Ok(Installed {
        client: program.clone(),
        server: program,
    })
}

/// What goes wrong between both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The path falls silent in both directions.
    Cut(usize),
    /// A NAT on the first path takes another port.
    Rebind,
}

/// What must be so afterwards, beside equal content and every step done in time.
#[derive(Debug, Clone, Copy)]
enum Check {
    /// Both paths carried their share.
    BothPaths,
    /// The keys have been updated.
    Keys,
    /// Our end said this.
    Ours(&'static str),
    /// Their end said this.
    Theirs(&'static str),
    /// The path carried little: it was given up.
    Spared(u32),
    /// Our end sent little on the path, which is backup. What picoquic sends there is its affair:
    /// once a retransmission timer has fired on the other path, it takes the backup.
    Obeyed(u32),
    /// Hardly anything was sent again by our end.
    Sparing,
    /// Our end hardly doubted its paths, nor did it send for doubts: a peer that acknowledges late,
    /// as picoquic does once it was told that a path is backup, has no path that flaps.
    Calm,
}

/// A transfer in each direction and each role.
struct Plan {
    feature: &'static str,
    request: &'static str,
    /// After how many bytes the client opens a second path.
    second_path: Option<u64>,
    ours: &'static [&'static str],
    theirs: &'static [&'static str],
    fault: Fault,
    checks: &'static [Check],
}

const PLAIN: Plan = Plan {
    feature: "",
    request: "get",
    second_path: None,
    ours: &[],
    theirs: &[],
    fault: Fault::None,
    checks: &[],
};

/// The second path opens when the first has carried some of the content. picoquic never answers on
/// a path whose first packet overtakes the connection IDs for it, which travel on the first path.
const TWO: Plan = Plan {
    second_path: Some(1_000_000),
    ..PLAIN
};

const PLANS: &[Plan] = &[
    Plan {
        feature: "GET, content equal",
        ..PLAIN
    },
    Plan {
        feature: "PUT, content equal",
        request: "put",
        ..PLAIN
    },
    Plan {
        feature: "rebinding by a NAT",
        fault: Fault::Rebind,
        ..PLAIN
    },
    Plan {
        feature: "two paths, GET",
        checks: &[Check::BothPaths, Check::Sparing],
        ..TWO
    },
    Plan {
        feature: "two paths, PUT",
        request: "put",
        checks: &[Check::BothPaths, Check::Sparing],
        ..TWO
    },
    Plan {
        feature: "path added late",
        second_path: Some(5_000_000),
        checks: &[Check::BothPaths],
        ..TWO
    },
    Plan {
        feature: "second path abandoned by the peer",
        theirs: &["5000000:abandon:1"],
        checks: &[Check::Ours("event abandoned 1 by_peer 1"), Check::Spared(1)],
        ..TWO
    },
    Plan {
        feature: "first path abandoned by the peer",
        theirs: &["5000000:abandon:0"],
        checks: &[Check::Ours("event abandoned 0 by_peer 1"), Check::Spared(0)],
        ..TWO
    },
    Plan {
        feature: "second path abandoned by us",
        ours: &["5000000:abandon:1"],
        checks: &[Check::Theirs("path 1 deleted"), Check::Spared(1)],
        ..TWO
    },
    Plan {
        feature: "first path abandoned by us",
        ours: &["5000000:abandon:0"],
        checks: &[Check::Ours("event abandoned 0 by_peer 0"), Check::Spared(0)],
        ..TWO
    },
    Plan {
        feature: "backup said by the peer",
        theirs: &["5000000:backup:1"],
        checks: &[
            Check::Theirs("did backup"),
            Check::Obeyed(1),
            Check::Sparing,
            Check::Calm,
        ],
        ..TWO
    },
    Plan {
        feature: "backup and available said by the peer",
        theirs: &["4000000:backup:0", "10000000:available:0"],
        checks: &[Check::Theirs("did available"), Check::Sparing, Check::Calm],
        ..TWO
    },
    Plan {
        feature: "backup said by us",
        ours: &["5000000:backup:1"],
        checks: &[Check::Ours("did Backup"), Check::Sparing, Check::Calm],
        ..TWO
    },
    Plan {
        feature: "backup said by us, upload",
        request: "put",
        ours: &["5000000:backup:1"],
        checks: &[Check::Ours("did Backup"), Check::Sparing, Check::Calm],
        ..TWO
    },
    Plan {
        feature: "keys updated by the peer on two paths",
        theirs: &["5000000:keys"],
        checks: &[Check::Keys, Check::BothPaths],
        ..TWO
    },
    Plan {
        feature: "keys updated by us on two paths",
        ours: &["5000000:keys"],
        checks: &[Check::Keys, Check::BothPaths],
        ..TWO
    },
    Plan {
        feature: "first path cut",
        fault: Fault::Cut(0),
        ..TWO
    },
    Plan {
        feature: "second path cut",
        fault: Fault::Cut(1),
        ..TWO
    },
    Plan {
        feature: "second path cut, PUT",
        request: "put",
        fault: Fault::Cut(1),
        ..TWO
    },
];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for plan in PLANS {
        for role in Role::BOTH {
            cases.push(Case::run(plan.feature, role, move |bench| {
                transfer(bench, plan, role, false)
            }));
        }
    }
    let plain = |role| move |bench: &mut Bench<'_>| transfer(bench, &PLAIN, role, true);
    cases.push(Case::run(
        "Retry",
        Role::TheirClient,
        plain(Role::TheirClient),
    ));
    cases.push(Case::run("Retry", Role::OurClient, plain(Role::OurClient)));
    cases.push(Case::run(
        "interface down and up, twice",
        Role::OurClient,
        our_flap,
    ));
    cases.push(Case::run(
        "interface down and up, twice",
        Role::TheirClient,
        their_flap,
    ));
    cases
}

/// One end's program.
fn end<'a>(bench: &'a Bench<'_>, is_ours: bool) -> &'a Path {
    if is_ours {
        &bench.ours.our_end
    } else {
        &bench.theirs.client
    }
}

fn transfer(bench: &mut Bench<'_>, plan: &Plan, role: Role, retry: bool) -> Result<(), String> {
    let we_serve = role == Role::TheirClient;
    // On one path nothing depends on how long the transfer takes.
    let rate = plan.second_path.map(|_| RATE);
    let links = Links::new(rate)?;
    let mut server = serve(bench, &links, we_serve);
    server.args(orders(plan, we_serve));
    if retry {
        server.arg("--retry");
    }
    let mut server = bench.start("server", &mut server)?;
    server.says("listening")?;
    let relays = [relay(&links, plan, 0)?, relay(&links, plan, 1)?];
    let ways = [0, 1].map(|at| relays[at].as_ref().map_or(SERVER, Relay::addr));

    let mut client = links.on_client(end(bench, !we_serve));
    client.args([plan.request, &BYTES.to_string()]);
    client.args([&ways[0].to_string(), CLIENT[0]]);
    if !we_serve {
        client.arg(&bench.ours.cert);
    }
    if let Some(after) = plan.second_path {
        let pair = format!("{}={}", CLIENT[1], ways[1]);
        client.args(["--path", &pair, "--at", &format!("{after}:open:1")]);
    }
    client.args(orders(plan, !we_serve));
    let mut client = bench.start("client", &mut client)?;
    client.succeeds(PATIENCE)?;
    server.succeeds(PATIENCE)?;
    for relay in relays.iter().flatten() {
        let happened = relay.cut_for().is_some() || relay.rebinds() > 0;
        ensure(happened, || "the fault did not happen".to_owned())?;
    }
    let (ours, theirs) = if we_serve {
        (&server, &client)
    } else {
        (&client, &server)
    };
    judge(plan, role, &ours.said(), &theirs.said())
}

/// A server of either side, before what only one plan wants of it.
fn serve(bench: &Bench<'_>, links: &Links, is_ours: bool) -> Command {
    let mut command = links.on_server(end(bench, is_ours));
    command
        .arg("serve")
        .arg(&bench.ours.cert)
        .arg(&bench.ours.key)
        .arg(SERVER.to_string());
    command
}

/// What an end is told for a plan: its steps, and ours to use both paths, whichever is quicker.
fn orders(plan: &Plan, is_ours: bool) -> Vec<&'static str> {
    let steps = if is_ours { plan.ours } else { plan.theirs };
    let mut words: Vec<_> = steps.iter().flat_map(|step| ["--at", step]).collect();
    if is_ours && plan.second_path.is_some() {
        words.extend(["--scheduler", "round-robin"]);
    }
    words
}

/// What stands before the server on this path, if something has to.
fn relay(links: &Links, plan: &Plan, path: usize) -> Result<Option<Relay>, String> {
    let is_here = match plan.fault {
        Fault::None => false,
        Fault::Cut(at) => at == path,
        Fault::Rebind => path == 0,
    };
    if !is_here {
        return Ok(None);
    }
    let relay = links.relay()?;
    match plan.fault {
        Fault::Cut(_) => relay.cut_after(BEFORE_FAULT),
        _ => relay.rebind_after(BEFORE_FAULT),
    }
    Ok(Some(relay))
}

fn judge(plan: &Plan, role: Role, ours: &str, theirs: &str) -> Result<(), String> {
    // The content goes from server to client in a GET.
    let we_send = (role == Role::TheirClient) == (plan.request == "get");
    let way = if we_send { "out" } else { "in" };
    let carried =
        |path: u32| Ok::<f64, String>(number(ours, &format!("path {path} "), way)? / BYTES as f64);
    in_time(plan, &[ours, theirs])?;
    plan.checks.iter().try_for_each(|check| match *check {
        Check::BothPaths => {
            let shares = [carried(0)?, carried(1)?];
            ensure(shares.iter().all(|&share| share >= SHARE), || {
                format!(
                    "the paths carried {:.2} and {:.2} of the content",
                    shares[0], shares[1]
                )
            })
        }
        Check::Obeyed(_) | Check::Sparing if !we_send => Ok(()),
        Check::Spared(path) | Check::Obeyed(path) => {
            let share = carried(path)?;
            ensure(share <= BACKUP_SHARE, || {
                format!("path {path} carried {share:.2} of the content all the same")
            })
        }
        Check::Keys => ensure(number(ours, "total", "keys")? >= 1.0, || {
            "the keys were not updated".to_owned()
        }),
        Check::Ours(line) => ensure_said(ours, line),
        Check::Theirs(line) => ensure_said(theirs, line),
        Check::Sparing => {
            let arrived = arrived(theirs)? / BYTES as f64;
            ensure((1.0..=ARRIVED).contains(&arrived), || {
                format!("{arrived:.3} times the content arrived")
            })
        }
        Check::Calm => calm(ours, we_send),
    })
}

/// Whether our end kept its trust in paths whose acknowledgements come late. Says what it found:
/// the figures move long before the limit is reached.
fn calm(ours: &str, we_send: bool) -> Result<(), String> {
    let doubts = number(ours, "total ", "doubts")?;
    let sent = number(ours, "total ", "out")? / BYTES as f64;
    let found = format!("doubted {doubts} times, sent {sent:.3} times the content");
    eprintln!("interop: picoquic: our end {found}");
    // Who receives sends acknowledgements alone.
    let most = if we_send { SENT } else { SENT - 1.0 };
    ensure(doubts <= DOUBTS && sent <= most, || found)
}

/// Whether both ends did what they were told while there was enough to come.
fn in_time(plan: &Plan, said: &[&str]) -> Result<(), String> {
    let told = plan.ours.len() + plan.theirs.len() + usize::from(plan.second_path.is_some());
    let lines = said.iter().flat_map(|said| said.lines());
    let done: Vec<_> = lines.filter(|line| line.starts_with("did ")).collect();
    ensure(done.len() == told, || {
        format!("of {told} steps {} were done", done.len())
    })?;
    done.iter().try_for_each(|line| {
        let at = number(line, "did ", "at")?;
        ensure(at <= IN_TIME * BYTES as f64, || format!("too late: {line}"))
    })
}

/// Bytes of datagrams that the peer received, by its own count for each pair of addresses.
fn arrived(theirs: &str) -> Result<f64, String> {
    let roads = theirs.lines().filter(|line| line.starts_with("road "));
    roads.map(|line| number(line, "road ", "in")).sum()
}

/// Our client's path manager and picoquic as server; one of two links loses its carrier, and the
/// client says what it makes of it. Until that is over the links are slow.
fn our_flap(bench: &mut Bench<'_>) -> Result<(), String> {
    let mut links = Links::new(Some(SLOW))?;
    let mut server = bench.start("server", &mut serve(bench, &links, false))?;
    server.says("listening")?;
    let mut client = links.on_client(&bench.ours.our_end);
    client.args(["get", &BYTES.to_string()]);
    client.args([&SERVER.to_string(), CLIENT[0]]);
    client.arg(&bench.ours.cert);
    client.args(["--uplink", "path0", "--uplink", "path1"]);
    let mut client = bench.start("client", &mut client)?;
    flap(
        &mut links,
        &mut client,
        ["event opened", "event abandoned", "event opened"],
    )?;
    client.succeeds(PATIENCE)?;
    server.succeeds(PATIENCE)
}

/// picoquic as client, which leaves the path as it is, and our server, which notices that nothing
/// answers there and that something does again.
fn their_flap(bench: &mut Bench<'_>) -> Result<(), String> {
    let mut links = Links::new(Some(SLOW))?;
    let mut server = serve(bench, &links, true);
    server.args(["--scheduler", "round-robin"]);
    let mut server = bench.start("server", &mut server)?;
    server.says("listening")?;
    let mut client = links.on_client(end(bench, false));
    client.args(["get", &BYTES.to_string()]);
    client.args([&SERVER.to_string(), CLIENT[0]]);
    client.args(["--path", &format!("{}={SERVER}", CLIENT[1])]);
    client.args(["--at", "1000000:open:1"]);
    let mut client = bench.start("client", &mut client)?;
    flap(
        &mut links,
        &mut server,
        ["event opened 1", "event doubted 1", "event recovered 1"],
    )?;
    client.succeeds(PATIENCE)?;
    server.succeeds(PATIENCE)
}

/// Takes the second link down and up, twice; each step waits until `witness` has said so of the one
/// before: the path opened, it is not used, it is used again. The links are quick from then on.
fn flap(links: &mut Links, witness: &mut Running, says: [&str; 3]) -> Result<(), String> {
    let [begun, gone, back] = says;
    witness.says(begun)?;
    for _ in 0..2 {
        let before = witness.count(gone);
        links.set_up(1, false)?;
        witness.says_more(gone, before)?;
        let before = witness.count(back);
        links.set_up(1, true)?;
        witness.says_more(back, before)?;
    }
    links.set_rate(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_comes_late_or_never_fails_the_case() {
        let plan = Plan {
            ours: &["5000000:keys"],
            ..TWO
        };
        let opened = "did Open(0) at 0\n";
        let early = format!("{opened}did Keys at 5012345\n");
        assert_eq!(in_time(&plan, &[&early, "ready"]), Ok(()));
        let late = format!("{opened}did Keys at 19000000\n");
        assert!(in_time(&plan, &[&late, "ready"]).is_err());
        assert!(in_time(&plan, &[opened, "ready"]).is_err());
    }

    #[test]
    fn an_end_whose_path_flaps_fails_the_case_although_little_arrives_twice() {
        let plan = Plan {
            second_path: None,
            checks: &[Check::Sparing, Check::Calm],
            ..TWO
        };
        let theirs = "road 10.1.0.1 in 10300000\nroad 10.2.0.1 in 10200000\n";
        let ours = |out: u64, doubts: u64| {
            format!("path 0 in 9 out 9 lost 0 doubts 0\ntotal out {out} doubts {doubts} keys 0\n")
        };
        let judge = |role, out, doubts| judge(&plan, role, &ours(out, doubts), theirs);
        assert_eq!(judge(Role::TheirClient, 20_600_000, 1), Ok(()));
        assert!(judge(Role::TheirClient, 20_600_000, 24).is_err());
        assert!(judge(Role::TheirClient, 27_100_000, 1).is_err());
        assert_eq!(judge(Role::OurClient, 400_000, 1), Ok(()));
        assert!(judge(Role::OurClient, 400_000, 24).is_err());
        assert!(judge(Role::OurClient, 7_100_000, 1).is_err());
    }
}
