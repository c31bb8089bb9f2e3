//! masque-go: a foreign client of the far end of a tunnel for UDP, in QUIC datagrams, and a foreign
//! proxy for the near end, with `dev/interop/peers/masque-go` on top.

use super::case::{Case, Role};
use super::cases::{Bench, NAME, PATIENCE, ensure, ensure_said, free};
use super::far_end::FarEnd;
use super::install::{self, Installed};
use super::near_end::NearEnd;
use super::process::Running;
use super::{Peer, Shop};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::process::Command;
use std::time::Instant;

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
    let mut all = of_their_client();
    all.extend(at_their_proxy());
    all.extend(refused_by_their_proxy());
    all
}

fn of_their_client() -> Vec<Case> {
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

/// Those of a proxy that knows nothing of us.
fn at_their_proxy() -> Vec<Case> {
    use Role::OurClient;
    let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    vec![
        Case::run("CONNECT-UDP to IPv4, echo", OurClient, move |bench| {
            through(bench, &[], |near| near.echo(v4.into(), "127.0.0.1", 1, 1))
        }),
        Case::run("CONNECT-UDP to IPv6, echo", OurClient, move |bench| {
            through(bench, &[], |near| near.echo(v6.into(), "::1", 1, 1))
        }),
        Case::run("CONNECT-UDP to a name, echo", OurClient, move |bench| {
            // Answers are from the address that the proxy says.
            through(bench, &[], |near| near.echo(v4.into(), "localhost", 1, 1))
        }),
        Case::run("2,000 datagrams", OurClient, move |bench| {
            through(bench, &[], |near| {
                near.echo(v4.into(), "127.0.0.1", 1, 2000)
            })
        }),
        Case::run("80 requests on a connection", OurClient, move |bench| {
            through(bench, &[], |near| near.echo(v4.into(), "127.0.0.1", 80, 20))
        }),
        Case::run("template of its own", OurClient, move |bench| {
            let path = "/u?h={target_host}&p={target_port}";
            let near = |near: &NearEnd| near.echo(v4.into(), "127.0.0.1", 1, 1);
            serving(bench, &["-udp-path", path], |bench, url| {
                near(&NearEnd::start(bench, url, &["--udp-template", path])?)
            })
        }),
        Case::run("CONNECT, content equal", OurClient, |bench| {
            let (file, arrived) = (bench.offer_file()?, bench.logs()?.join("arrived"));
            through(bench, &[], |near| near.echo_file(&file, &arrived))?;
            bench.compare(&arrived)
        }),
        Case::run("right credential", OurClient, move |bench| {
            let file = credential(bench, "user:right")?;
            serving(bench, &["-shown", SHOWN], |bench, url| {
                let near = NearEnd::start(bench, url, &["--credential", &file])?;
                near.echo(v4.into(), "127.0.0.1", 1, 1)
            })
        }),
    ]
}

/// What it does not do, or not for everybody, and what is told of that.
fn refused_by_their_proxy() -> Vec<Case> {
    use Role::OurClient;
    vec![
        Case::run("CONNECT to a closed port", OurClient, |bench| {
            let closed = closed()?;
            // A status without any name: a host that cannot be reached.
            through(bench, &[], |near| near.ensure_refused(&closed, 4))
        }),
        Case::run("name that nobody has", OurClient, |bench| {
            serving(bench, &[], |bench, url| {
                let near = NearEnd::start(bench, url, &[])?;
                let _asking = near.send("no-such-host.invalid:9")?;
                refused_as(
                    bench,
                    &near,
                    "no-such-host.invalid",
                    "the name has no address",
                )
            })
        }),
        Case::run("no credential", OurClient, |bench| {
            denied(bench, None, "the proxy wants to know who this is")
        }),
        Case::run("wrong credential", OurClient, |bench| {
            denied(
                bench,
                Some("user:wrong"),
                "the proxy does not accept the credential",
            )
        }),
        Case::run("certificate of another authority", OurClient, |bench| {
            serving(bench, &[], |bench, url| {
                let (other, key) = (bench.logs()?.join("ca.pem"), bench.logs()?.join("key.pem"));
                let mut make = Command::new(&bench.ours.our_end);
                make.arg("certificate").arg(&other).arg(&key);
                bench.start("certificate", &mut make)?.succeeds(PATIENCE)?;
                let mut near = NearEnd::begin(bench, url, &other, &[])?;
                near.tells("invalid peer certificate")?;
                near.tells("hint: the URL pins no key")
            })
        }),
    ]
}

/// What `user:right` is as a value of `proxy-authorization`.
const SHOWN: &str = "Basic dXNlcjpyaWdodA==";

/// Our near end at their proxy, which has said nothing of what only we know.
fn through(
    bench: &mut Bench<'_>,
    options: &[&str],
    work: impl FnOnce(&NearEnd) -> Result<(), String>,
) -> Result<(), String> {
    serving(bench, options, |bench, url| {
        let mut near = NearEnd::start(bench, url, &[])?;
        near.tells("note: it does not speak multipath QUIC")?;
        work(&near)
    })
}

/// Does something at their proxy, and looks at what that was asked.
fn serving(
    bench: &mut Bench<'_>,
    options: &[&str],
    work: impl FnOnce(&Bench<'_>, &str) -> Result<(), String>,
) -> Result<(), String> {
    let address = free(1)?;
    let mut server = Command::new(&bench.theirs.server);
    server
        .args(["serve", &address.to_string()])
        .arg("-cert")
        .arg(&bench.ours.cert)
        .arg("-key")
        .arg(&bench.ours.key)
        .args(options);
    let mut server: Running = bench.start("their-proxy", &mut server)?;
    server.says("listening")?;
    work(bench, &format!("https://localhost:{}/", address.port()))?;
    let said = server.said();
    ensure(!said.contains("\nfield "), || {
        "it was sent a field that it cannot know".to_owned()
    })
}

/// Waits until a flow was refused for this reason.
fn refused_as(bench: &Bench<'_>, near: &NearEnd, flow: &str, why: &str) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    while !near.why(bench, flow)?.contains(why) {
        if Instant::now() > until {
            return Err(format!("{flow} was not refused as `{why}`"));
        }
    }
    Ok(())
}

/// A request that their proxy answers by 407.
fn denied(bench: &mut Bench<'_>, shows: Option<&str>, words: &str) -> Result<(), String> {
    let file = shows.map(|text| credential(bench, text)).transpose()?;
    let options: Vec<&str> = file.iter().flat_map(|it| ["--credential", it]).collect();
    serving(bench, &["-shown", SHOWN], |bench, url| {
        let mut near = NearEnd::start(bench, url, &options)?;
        near.ensure_refused("127.0.0.1:9", 1)?;
        near.tells(words)?;
        near.tells("--credential FILE")
    })
}

fn credential(bench: &Bench<'_>, text: &str) -> Result<String, String> {
    let file = bench.logs()?.join("credential");
    fs::write(&file, format!("{text}\n")).map_err(|e| e.to_string())?;
    Ok(file.display().to_string())
}

/// An address where nobody listens to TCP.
fn closed() -> Result<String, String> {
    let bound = TcpListener::bind((IpAddr::from(Ipv4Addr::LOCALHOST), 0));
    let address = bound.and_then(|listener| listener.local_addr());
    address.map(|it| it.to_string()).map_err(|e| e.to_string())
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
