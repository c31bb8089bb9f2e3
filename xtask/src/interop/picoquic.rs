//! picoquic: multipath in C, with `interop/peers/picoquic` on top. Our end is `our_end`.
//!
//! Its sources come with the Python package aiopquic, the only registry that has a release.

use super::case::{Case, NOT_RUN, Role};
use super::cases::{Bench, PATIENCE, ensure, ensure_said, free, number};
use super::install::{self, Installed};
use super::process::Running;
use super::{Peer, Shop};
use anabranch_testbed::{LinkSpec, Node, Rate, Relay, Testbed};
use std::net::SocketAddr;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const PEER: Peer = Peer {
    name: "picoquic",
    version: "1.1.53",
    is_required: true,
    install,
    cases,
};

/// What is moved: enough that something can happen in the middle.
const BYTES: u64 = 20_000_000;
/// What a relay lets through before it falls silent or forgets.
const BEFORE_FAULT: u64 = 500_000;
/// Bytes of datagrams that arrive for each byte of content, at most: headers take 0.024. What a
/// busy peer's socket drops has to be sent again and does not arrive, so that it does not count.
const ARRIVED: f64 = 1.05;
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

/// What must be so afterwards, beside equal content.
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
    /// The path carried little.
    Spared(u32),
    /// Hardly anything was sent again by our end.
    Sparing,
}

/// A transfer in each direction and each role.
struct Plan {
    feature: &'static str,
    request: &'static str,
    /// After how many bytes the client opens a second path; 0 is before the request.
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

const TWO: Plan = Plan {
    second_path: Some(0),
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
            Check::Spared(1),
            Check::Sparing,
        ],
        ..TWO
    },
    Plan {
        feature: "backup and available said by the peer",
        theirs: &["4000000:backup:0", "10000000:available:0"],
        checks: &[Check::Theirs("did available"), Check::Sparing],
        ..TWO
    },
    Plan {
        feature: "backup said by us",
        ours: &["5000000:backup:1"],
        checks: &[Check::Ours("did Backup"), Check::Sparing],
        ..TWO
    },
    Plan {
        feature: "backup said by us, upload",
        request: "put",
        ours: &["5000000:backup:1"],
        checks: &[Check::Ours("did Backup"), Check::Sparing],
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
        flap,
    ));
    cases
}

/// One end's command, before addresses.
fn end(bench: &Bench<'_>, is_ours: bool) -> Command {
    let program = if is_ours {
        &bench.ours.our_end
    } else {
        &bench.theirs.client
    };
    Command::new(program)
}

fn transfer(bench: &mut Bench<'_>, plan: &Plan, role: Role, retry: bool) -> Result<(), String> {
    let we_serve = role == Role::TheirClient;
    let address = free(1)?;
    let steps = |is_ours: bool| {
        let steps = if is_ours { plan.ours } else { plan.theirs };
        steps.iter().flat_map(|step| ["--at", step])
    };
    let mut server = end(bench, we_serve);
    server
        .arg("serve")
        .arg(&bench.ours.cert)
        .arg(&bench.ours.key);
    server.arg(address.to_string()).args(steps(we_serve));
    if retry {
        server.arg("--retry");
    }
    spread(&mut server, we_serve, plan);
    let mut server = bench.start("server", &mut server)?;
    server.says("listening")?;
    let relays = [relay(plan, 0, address)?, relay(plan, 1, address)?];
    let ways = [0, 1].map(|at| relays[at].as_ref().map_or(address, Relay::addr));

    let mut client = end(bench, !we_serve);
    client.args([
        plan.request,
        &BYTES.to_string(),
        &ways[0].to_string(),
        "127.0.0.1",
    ]);
    if !we_serve {
        client.arg(&bench.ours.cert);
    }
    if let Some(after) = plan.second_path {
        let pair = format!("127.0.0.2={}", ways[1]);
        client.args(["--path", &pair, "--at", &format!("{after}:open:1")]);
    }
    client.args(steps(!we_serve));
    spread(&mut client, !we_serve, plan);
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
    judge(plan, role, ours, theirs)
}

/// Both paths are to be used, whichever is the quicker one.
fn spread(command: &mut Command, is_ours: bool, plan: &Plan) {
    if is_ours && plan.second_path.is_some() {
        command.args(["--scheduler", "round-robin"]);
    }
}

/// What stands before the server on this path, if something has to.
fn relay(plan: &Plan, path: usize, server: SocketAddr) -> Result<Option<Relay>, String> {
    let is_here = match plan.fault {
        Fault::None => false,
        Fault::Cut(at) => at == path,
        Fault::Rebind => path == 0,
    };
    if !is_here {
        return Ok(None);
    }
    let relay = Relay::start(free(1)?, server).map_err(|e| e.to_string())?;
    match plan.fault {
        Fault::Cut(_) => relay.cut_after(BEFORE_FAULT),
        _ => relay.rebind_after(BEFORE_FAULT),
    }
    Ok(Some(relay))
}

fn judge(plan: &Plan, role: Role, ours: &Running, theirs: &Running) -> Result<(), String> {
    let (ours, theirs) = (ours.said(), theirs.said());
    // The content goes from server to client in a GET.
    let we_send = (role == Role::TheirClient) == (plan.request == "get");
    let way = if we_send { "out" } else { "in" };
    let carried =
        |path: u32| Ok::<f64, String>(number(&ours, &format!("path {path} "), way)? / BYTES as f64);
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
        Check::Spared(path) => {
            let share = carried(path)?;
            ensure(share <= BACKUP_SHARE, || {
                format!("path {path} carried {share:.2} of the content all the same")
            })
        }
        Check::Keys => ensure(number(&ours, "total", "keys")? >= 1.0, || {
            "the keys were not updated".to_owned()
        }),
        Check::Ours(line) => ensure_said(&ours, line),
        Check::Theirs(line) => ensure_said(&theirs, line),
        Check::Sparing if !we_send => Ok(()),
        Check::Sparing => {
            let arrived = arrived(&theirs)? / BYTES as f64;
            ensure((1.0..=ARRIVED).contains(&arrived), || {
                format!("{arrived:.3} times the content arrived")
            })
        }
    })
}

/// Bytes of datagrams that the peer received, by its own count for each pair of addresses.
fn arrived(theirs: &str) -> Result<f64, String> {
    let roads = theirs.lines().filter(|line| line.starts_with("road "));
    roads.map(|line| number(line, "road ", "in")).sum()
}

/// Our client's path manager and picoquic as server, over two links of which one loses its carrier.
fn flap(bench: &mut Bench<'_>) -> Result<(), String> {
    let unable = |e: anabranch_testbed::Error| format!("{NOT_RUN}{e}");
    let mut bed = Testbed::new("interop").map_err(unable)?;
    let broken = |e: anabranch_testbed::Error| e.to_string();
    let (client, server) = (
        bed.node("client").map_err(broken)?,
        bed.node("server").map_err(broken)?,
    );
    let mut links = Vec::new();
    for at in 1..=2 {
        let [near, far] = [1, 2].map(|host| format!("10.{at}.0.{host}/24"));
        let spec = LinkSpec::new(near.parse().map_err(broken)?, far.parse().map_err(broken)?);
        let rate = Rate::mbit(30);
        links.push(
            bed.link(&client, &server, &spec.rate(rate))
                .map_err(broken)?,
        );
    }
    single_address(&client, &server).map_err(broken)?;
    let mut serving = entered(&server, &bench.theirs.server);
    serving
        .arg("serve")
        .arg(&bench.ours.cert)
        .arg(&bench.ours.key)
        .arg("10.9.9.9:4433");
    let mut serving = bench.start("server", &mut serving)?;
    serving.says("listening")?;
    let mut fetching = entered(&client, &bench.ours.our_end);
    fetching
        .args(["get", &BYTES.to_string(), "10.9.9.9:4433", "10.1.0.1"])
        .arg(&bench.ours.cert)
        .args(["--uplink", "path0", "--uplink", "path1"]);
    let mut fetching = bench.start("client", &mut fetching)?;
    fetching.says("event opened 1")?;
    for _ in 0..2 {
        for up in [false, true] {
            sleep(Duration::from_millis(600));
            bed.set_up(links[1], up).map_err(broken)?;
        }
        add_route(&client, 2).map_err(broken)?;
    }
    fetching.succeeds(PATIENCE)?;
    ensure_said(&fetching.said(), "event opened 2")
}

/// A program in a host's namespace.
fn entered(node: &Node, program: &std::path::Path) -> Command {
    node.command(&program.display().to_string())
}

/// The server's one address, to which every link leads.
fn single_address(client: &Node, server: &Node) -> Result<(), anabranch_testbed::Error> {
    server.run("ip", &["address", "add", "10.9.9.9/32", "dev", "lo"])?;
    (1..=2).try_for_each(|at| add_route(client, at))
}

/// A link's route to the server goes with its carrier.
fn add_route(client: &Node, at: usize) -> Result<(), anabranch_testbed::Error> {
    let (via, device) = (format!("10.{at}.0.2"), format!("path{}", at - 1));
    let metric = format!("{at}00");
    let way = ["via", &via, "dev", &device, "metric", &metric];
    client
        .run(
            "ip",
            &[&["route", "replace", "10.9.9.9/32"][..], &way].concat(),
        )
        .map(|_| ())
}
