//! Agents as processes and behind connections, as a laboratory sees them.

#![allow(
    clippy::unwrap_used,
    reason = "a test helper that fails, fails the test"
)]

use anabranch_agent::{Listen, Local, Remote, Service};
use anabranch_lab::hosts::{
    Answer, Ask, Carrier, Host, HostError, HostPath, HostReport, Job, JobFlow, Ready, Role, merge,
};
use anabranch_lab::results::Status;
use anabranch_lab::scenario::{Document, FlowKind, Profile, Scenario, Settings, Usage, Way};
use anabranch_net::identity::Identity;
use anabranch_testbed::{LinkSpec, Need, Node, Rate, Testbed};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// After this time a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(180);

const AGENT: &str = env!("CARGO_BIN_EXE_anabranch-agent");

fn local(name: &str) -> Local {
    Local::start(name, Command::new(AGENT)).unwrap()
}

/// Gives the address of a host on a path.
type Address = dyn Fn(Role, u8) -> IpAddr;

fn loopback(role: Role, path: u8) -> IpAddr {
    let net = match role {
        Role::Client => 3,
        Role::Server => 4,
    };
    IpAddr::from([127, 0, net, path + 1])
}

fn job(role: Role, carrier: &Carrier, kind: FlowKind, address: &Address) -> Job {
    let flow = JobFlow {
        kind,
        way: Way::Forward,
        start: Duration::ZERO,
        warm_up: Duration::ZERO,
    };
    job_of(role, carrier, flow, address)
}

fn job_of(role: Role, carrier: &Carrier, flow: JobFlow, address: &Address) -> Job {
    let other = match role {
        Role::Client => Role::Server,
        Role::Server => Role::Client,
    };
    let paths = (0..2).map(|number| HostPath {
        name: format!("path-{number}"),
        interface: None,
        local: address(role, number),
        remote: address(other, number),
        opens: Duration::ZERO,
        usage: Usage::default(),
    });
    Job {
        run_id: "run-1".to_owned(),
        role,
        carrier: carrier.clone(),
        paths: paths.collect(),
        flows: vec![flow],
        stop: Duration::from_secs(120),
        bin: Some(Duration::from_millis(50)),
        decisions: false,
        qlog: None,
        seed: 1,
    }
}

fn quic() -> Carrier {
    Carrier::Anabranch {
        profile: Profile::Quic,
        scheduler: None,
        congestion: None,
        settings: Box::new(Settings::default()),
    }
}

fn answer(host: &mut dyn Host) -> Answer {
    loop {
        match host.answer(PATIENCE).unwrap() {
            Answer::Progress(_) => {}
            answer => return answer,
        }
    }
}

fn run(
    hosts: [&mut dyn Host; 2],
    carrier: &Carrier,
    kind: FlowKind,
    address: &Address,
) -> [HostReport; 2] {
    let job = job(Role::Client, carrier, kind, address);
    run_flow(hosts, carrier, &job.flows[0], address)
}

fn run_flow(
    hosts: [&mut dyn Host; 2],
    carrier: &Carrier,
    flow: &JobFlow,
    address: &Address,
) -> [HostReport; 2] {
    run_where(hosts, carrier, flow, address, |_| {})
}

/// Like [`run_flow`], but the client is told of the server what `change` makes of it.
fn run_where(
    [client, server]: [&mut dyn Host; 2],
    carrier: &Carrier,
    flow: &JobFlow,
    address: &Address,
    change: impl FnOnce(&mut Ready),
) -> [HostReport; 2] {
    let prepare = |role| Ask::Prepare(Box::new(job_of(role, carrier, flow.clone(), address)));
    server.ask(prepare(Role::Server)).unwrap();
    let Answer::Ready(mut ready) = answer(server) else {
        panic!("the server is not ready");
    };
    change(&mut ready);
    client.ask(prepare(Role::Client)).unwrap();
    assert!(matches!(answer(client), Answer::Ready(_)));
    server.ask(Ask::Start(None)).unwrap();
    client.ask(Ask::Start(Some(ready))).unwrap();
    let [client, server] = [client, server].map(|host| match answer(host) {
        Answer::Done(report) => *report,
        other => panic!("{}: {other:?}", host.name()),
    });
    assert_eq!((&*client.error, &*server.error), ("", ""));
    [client, server]
}

const BULK: FlowKind = FlowKind::BulkBytes(3_000_000);

fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn two_processes_carry_a_flow_and_end_with_who_started_them() {
    let (mut client, mut server) = (local("client"), local("server"));
    let pids = [client.pid(), server.pid()];
    for _ in 0..2 {
        let reports = run([&mut client, &mut server], &quic(), BULK, &loopback);
        assert_eq!(reports[1].received_bytes, 3_000_000);
        let lag = reports[0].started_ns.abs_diff(reports[1].started_ns);
        assert!(lag < 60_000_000_000, "one clock: {lag}");
    }
    drop((client, server));
    assert!(pids.into_iter().all(is_gone));
}

#[test]
fn a_client_whose_paths_race_begins_on_one_that_answers() {
    let (mut client, mut server) = (local("client"), local("server"));
    let settings = Settings {
        race: Some(true),
        ..Settings::default()
    };
    let carrier = Carrier::Anabranch {
        profile: Profile::Quic,
        scheduler: None,
        congestion: None,
        settings: Box::new(settings),
    };
    let flow = job(Role::Client, &carrier, BULK, &loopback).flows.remove(0);
    let silent = UdpSocket::bind("127.0.4.99:0").unwrap();
    let hosts: [&mut dyn Host; 2] = [&mut client, &mut server];
    let [client, server] = run_where(hosts, &carrier, &flow, &loopback, |ready| {
        ready.listens[0] = silent.local_addr().unwrap();
    });
    assert_eq!(server.received_bytes, 3_000_000);
    assert!(client.handshake_s.is_some_and(|seconds| seconds < 60.0));
}

#[test]
fn an_agent_whose_input_ends_dies_even_during_a_run() {
    let mut child = Command::new(AGENT)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let endless = FlowKind::BulkTime(Duration::from_secs(100));
    let job = job(Role::Server, &quic(), endless, &loopback);
    for ask in [Ask::Prepare(Box::new(job)), Ask::Start(None)] {
        let line = serde_json::to_string(&ask).unwrap();
        std::io::Write::write_all(&mut input, format!("{line}\n").as_bytes()).unwrap();
    }
    drop(input);
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "it lives on");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{status}");
}

#[test]
fn qlog_of_both_sides_is_whole_when_the_agents_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (mut client, mut server) = (local("client"), local("server"));
    for (host, role) in [(&mut server, Role::Server), (&mut client, Role::Client)] {
        let mut job = job(role, &quic(), BULK, &loopback);
        job.qlog = Some(folder.path().join("run-1"));
        host.ask(Ask::Prepare(Box::new(job))).unwrap();
    }
    let Answer::Ready(ready) = answer(&mut server) else {
        panic!("the server is not ready");
    };
    answer(&mut client);
    server.ask(Ask::Start(None)).unwrap();
    client.ask(Ask::Start(Some(ready))).unwrap();
    for host in [&mut client, &mut server] {
        assert!(matches!(answer(host), Answer::Done(_)));
    }
    drop((client, server));
    let files = std::fs::read_dir(folder.path().join("run-1")).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let texts: Vec<String> = texts.collect();
    assert_eq!(texts.len(), 2);
    for text in texts {
        assert!(text.lines().count() > 100);
        let last = text.trim_end().rsplit('\u{1e}').next().unwrap();
        serde_json::from_str::<serde_json::Value>(last).unwrap();
    }
}

#[test]
fn a_job_that_cannot_be_done_is_refused_and_another_one_is_not() {
    let mut server = local("server");
    let nowhere = |_, path| IpAddr::from([192, 0, 2, path + 1]);
    let bad = job(Role::Server, &quic(), BULK, &nowhere);
    server.ask(Ask::Prepare(Box::new(bad))).unwrap();
    let Answer::Failed(why) = answer(&mut server) else {
        panic!("refused");
    };
    assert!(
        why.contains("path `path-0`") && why.contains("192.0.2.1"),
        "{why}"
    );
    let good = job(Role::Server, &quic(), BULK, &loopback);
    server.ask(Ask::Prepare(Box::new(good))).unwrap();
    assert!(matches!(answer(&mut server), Answer::Ready(_)));
}

#[test]
fn what_is_no_agent_is_found_out() {
    let error = Local::start("host", Command::new("no-such-program-here")).unwrap_err();
    assert!(matches!(error, HostError::Unreachable { .. }), "{error}");
    if !Need::Network.programs("what_is_no_agent_is_found_out", &["sh", "sleep"]) {
        return;
    }
    let mut talker = Command::new("sh");
    talker.args(["-c", "echo hello; echo broken >&2; exit 3"]);
    let mut host = Local::start("host", talker).unwrap();
    let error = host.answer(PATIENCE).unwrap_err();
    assert!(matches!(error, HostError::Garbled { .. }), "{error}");
    let error = host.answer(PATIENCE).unwrap_err().to_string();
    assert!(error.contains("broken") && error.contains('3'), "{error}");
    let mut silent = Command::new("sleep");
    silent.arg("1");
    let mut host = Local::start("host", silent).unwrap();
    let error = host.answer(Duration::from_millis(10)).unwrap_err();
    assert!(matches!(error, HostError::Silent { .. }), "{error}");
}

/// A listening agent, with its address and identity.
fn service(labs: &[&Identity]) -> (SocketAddr, Identity) {
    let identity = Identity::generate().unwrap();
    let service = Service::bind(&Listen {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        identity: identity.clone(),
        trusted: labs.iter().map(|lab| lab.fingerprint()).collect(),
        qlog: None,
        names: Arc::default(),
        ports: None,
        programs: Vec::new(),
    });
    let service = service.unwrap();
    let address = service.address();
    assert_eq!(service.key(), identity.fingerprint());
    thread::spawn(move || service.run());
    (address, identity)
}

#[test]
fn an_agent_elsewhere_speaks_the_same_lines_and_its_clock_is_compared() {
    let lab = Identity::generate().unwrap();
    let (address, agent) = service(&[&lab]);
    let connect = || Remote::connect("far", address, agent.fingerprint(), &lab);
    let mut far = connect().unwrap();
    let mut near = local("near");
    let [near_report, far_report] = run([&mut near, &mut far], &quic(), BULK, &loopback);
    assert_eq!(far_report.received_bytes, 3_000_000);
    let (ahead, error) = (
        far_report.clock_ahead_ns.unwrap(),
        far_report.clock_error_ns.unwrap(),
    );
    // Both are on one machine, so the true offset is zero and must lie within the error.
    assert!(
        ahead.unsigned_abs() <= error && error > 0,
        "{ahead} {error}"
    );
    assert_eq!(near_report.clock_ahead_ns, None);
    let mut other = connect().unwrap();
    let Answer::Failed(why) = answer(&mut other) else {
        panic!("it has two masters");
    };
    assert!(why.contains("another laboratory"), "{why}");
    let mut wants_files = job(Role::Server, &quic(), BULK, &loopback);
    wants_files.qlog = Some("/".into());
    far.ask(Ask::Prepare(Box::new(wants_files))).unwrap();
    let Answer::Failed(why) = answer(&mut far) else {
        panic!("it writes where it is told");
    };
    assert!(why.contains("no folder for qlog"), "{why}");
}

#[test]
fn who_has_the_wrong_key_is_not_served_and_does_not_ask() {
    let (lab, stranger) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let (address, agent) = service(&[&lab]);
    let wrong = Remote::connect("far", address, stranger.fingerprint(), &lab);
    assert!(matches!(wrong, Err(HostError::Unreachable { .. })));
    // A client's handshake completes before the server checks its key.
    let job = job(Role::Server, &quic(), BULK, &loopback);
    let asked = Remote::connect("far", address, agent.fingerprint(), &stranger)
        .and_then(|mut far| far.ask(Ask::Prepare(Box::new(job))));
    assert!(asked.is_err());
}

/// Two hosts with two links of 20 Mbit/s between them; `None` without namespaces.
fn two_links(name: &str, net: u8) -> Option<(Testbed, Node, Node)> {
    let mut bed = Testbed::require(name)?;
    let (near, far) = (bed.node("client").unwrap(), bed.node("server").unwrap());
    for path in 1..3 {
        let address = |host| format!("10.{net}.{path}.{host}/24").parse().unwrap();
        let spec = LinkSpec::new(address(1), address(2)).rate(Rate::mbit(20));
        bed.link(&near, &far, &spec).unwrap();
    }
    Some((bed, near, far))
}

fn on_links(net: u8, role: Role, path: u8) -> IpAddr {
    let host = if role == Role::Client { 1 } else { 2 };
    IpAddr::from([10, net, path + 1, host])
}

const SCENARIO: &str = r#"
format = 1
name = "two-links"
stop = "60s"
[[path]]
name = "a"
forward = { rate = "20Mbit/s", delay = "0ms" }
[[path]]
name = "b"
forward = { rate = "20Mbit/s", delay = "0ms" }
[[flow]]
kind = "bulk"
duration = "3s"
warm-up = "1s"
"#;

#[test]
fn both_reports_make_an_outcome_with_the_goodput_of_two_links() {
    let Some((_bed, near, far)) = two_links("agent-engine", 72) else {
        return;
    };
    let mut client = Local::start("client", near.command(AGENT)).unwrap();
    let mut server = Local::start("server", far.command(AGENT)).unwrap();
    let address = |role, path| on_links(72, role, path);
    let document = Document::parse("two-links.toml", SCENARIO).unwrap();
    let scenario = Scenario::read(&document).unwrap();
    let flow = JobFlow {
        kind: scenario.flows[0].kind,
        way: scenario.flows[0].way,
        start: Duration::ZERO,
        warm_up: scenario.flows[0].warm_up,
    };
    let hosts: [&mut dyn Host; 2] = [&mut client, &mut server];
    let [client, server] = run_flow(hosts, &quic(), &flow, &address);
    let outcome = merge(&scenario, Way::Forward, &client, &server, &[]);
    assert_eq!(outcome.status, Status::Ok, "{}", outcome.reason);
    assert_eq!(outcome.completion_s, None);
    let goodput = outcome.goodput_bps.unwrap() / 20e6;
    assert!((1.1..2.0).contains(&goodput), "{goodput} links");
    for path in &outcome.paths {
        assert!(path.share > Some(0.1), "{path:?}");
        assert!(path.srtt_mean_s > Some(0.0), "{path:?}");
    }
    let bins = outcome.series.iter().filter(|bin| bin.path == 2);
    assert!(
        bins.clone()
            .any(|bin| bin.delivered_bytes > 0 && bin.sent_bytes > 0)
    );
}

#[test]
fn multipath_tcp_uses_both_paths_and_says_so() {
    if !Path::new("/proc/sys/net/mptcp/enabled").exists() {
        return;
    }
    let Some((_bed, near, far)) = two_links("agent-mptcp", 71) else {
        return;
    };
    let limits = "mptcp limits set subflows 2 add_addr_accepted 2";
    let words = |text: &'static str| text.split(' ').collect::<Vec<&str>>();
    near.run("ip", &words(limits)).unwrap();
    far.run("ip", &words(limits)).unwrap();
    let signal = "mptcp endpoint add 10.71.2.2 signal";
    far.run("ip", &words(signal)).unwrap();
    let mut client = Local::start("client", near.command(AGENT)).unwrap();
    let mut server = Local::start("server", far.command(AGENT)).unwrap();
    let address = |role, path| on_links(71, role, path);
    let carrier = Carrier::Mptcp {
        congestion: "cubic".to_owned(),
        buffers: None,
    };
    let bulk = FlowKind::BulkBytes(12_000_000);
    let [client, server] = run([&mut client, &mut server], &carrier, bulk, &address);
    assert_eq!(server.received_bytes, 12_000_000);
    for word in [
        "scheduler=",
        "congestion=cubic",
        "subflows=2",
        "fallback=no",
    ] {
        assert!(client.kernel.contains(word), "{}", client.kernel);
    }
    for path in 0..2 {
        let (sent, received) = (&client.paths[path], &server.paths[path]);
        assert!(sent.sent_bytes > 1_000_000, "{sent:?}");
        assert!(received.received_bytes > 1_000_000, "{received:?}");
        assert!(sent.srtt_s.is_some() && sent.cwnd_mean_bytes.is_some());
    }
}
