//! Two agents in one process, over the loopback interface.

use crate::rules::{Doors, QlogAt, Rules};
use crate::serve::serve;
use anabranch_lab::hosts::{Answer, Ask, Carrier, HostPath, HostReport, Job, JobFlow, Ready, Role};
use anabranch_lab::machine::Machine;
use anabranch_lab::scenario::{FlowKind, Profile, Settings, Usage, Way};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};

/// An agent as a task, and its lines.
struct Agent {
    input: WriteHalf<DuplexStream>,
    output: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
}

/// Fails a test instead of letting it hang.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(180), future)
        .await
        .expect("in time")
}

impl Agent {
    fn new() -> Self {
        Self::with(Rules {
            qlog: QlogAt::Nowhere,
            ..Rules::own(Arc::default())
        })
    }

    fn with(rules: Rules) -> Self {
        let (near, far) = duplex(1 << 16);
        let (input, output) = (split(far), split(near));
        tokio::spawn(serve(input.0, input.1, rules));
        Self {
            input: output.1,
            output: BufReader::new(output.0).lines(),
        }
    }

    async fn ask(&mut self, ask: &Ask) {
        let mut line = serde_json::to_vec(ask).unwrap();
        line.push(b'\n');
        self.input.write_all(&line).await.unwrap();
    }

    /// The next answer other than progress.
    async fn answer(&mut self) -> Answer {
        loop {
            let line = soon(self.output.next_line()).await.unwrap().unwrap();
            match serde_json::from_str(&line).unwrap() {
                Answer::Progress(_) => {}
                answer => return answer,
            }
        }
    }

    async fn prepare(&mut self, job: Job) -> Ready {
        self.ask(&Ask::Prepare(Box::new(job))).await;
        match self.answer().await {
            Answer::Ready(ready) => ready,
            other => panic!("{other:?}"),
        }
    }

    async fn refusal(&mut self, job: Job) -> String {
        self.ask(&Ask::Prepare(Box::new(job))).await;
        match self.answer().await {
            Answer::Failed(why) => why,
            other => panic!("{other:?}"),
        }
    }

    async fn report(&mut self) -> HostReport {
        match self.answer().await {
            Answer::Done(report) => *report,
            other => panic!("{other:?}"),
        }
    }
}

fn engine(profile: Profile, settings: Settings) -> Carrier {
    Carrier::Anabranch {
        profile,
        scheduler: (profile == Profile::Quic).then(|| "round-robin".parse().unwrap()),
        congestion: None,
        settings: Box::new(settings),
    }
}

fn quic() -> Carrier {
    engine(Profile::Quic, Settings::default())
}

fn tcp() -> Carrier {
    Carrier::Tcp {
        // The only one that every user may set.
        congestion: "reno".to_owned(),
        buffers: None,
    }
}

/// Two paths between addresses of the loopback interface.
fn path(role: Role, number: u8) -> HostPath {
    let ends = [1, 2].map(|net| IpAddr::from(Ipv4Addr::new(127, 0, net, number + 1)));
    let [local, remote] = match role {
        Role::Client => ends,
        Role::Server => [ends[1], ends[0]],
    };
    HostPath {
        name: format!("path-{number}"),
        interface: None,
        local,
        remote,
        opens: Duration::ZERO,
        usage: Usage::default(),
    }
}

fn flow(kind: FlowKind, way: Way) -> JobFlow {
    JobFlow {
        kind,
        way,
        start: Duration::ZERO,
        warm_up: Duration::ZERO,
    }
}

fn job(role: Role, carrier: &Carrier, flows: &[JobFlow]) -> Job {
    Job {
        run_id: "test-1".to_owned(),
        role,
        carrier: carrier.clone(),
        paths: (0..2).map(|number| path(role, number)).collect(),
        flows: flows.to_vec(),
        stop: Duration::from_secs(120),
        bin: Some(Duration::from_millis(20)),
        decisions: false,
        qlog: None,
        seed: 7,
    }
}

/// Runs flows; returns the reports of the client and the server.
async fn run(carrier: &Carrier, flows: &[JobFlow]) -> [HostReport; 2] {
    let jobs = [Role::Client, Role::Server].map(|role| job(role, carrier, flows));
    run_jobs(jobs).await
}

async fn run_jobs([near, far]: [Job; 2]) -> [HostReport; 2] {
    let (mut client, mut server) = (Agent::new(), Agent::new());
    let ready = server.prepare(far).await;
    client.prepare(near).await;
    server.ask(&Ask::Start(None)).await;
    client.ask(&Ask::Start(Some(ready))).await;
    let reports = [client.report().await, server.report().await];
    for report in &reports {
        assert_eq!(report.error, "");
        assert!(!report.timed_out);
        assert!(report.cpu_s.is_some() && report.peak_rss_bytes > Some(0));
    }
    reports
}

/// A time that one host reports, counted from the start of the other: on a busy machine they start
/// apart.
fn on_clock_of(other: &HostReport, host: &HostReport, seconds: Option<f64>) -> f64 {
    let apart_ns = i128::from(host.started_ns) - i128::from(other.started_ns);
    seconds.unwrap() + apart_ns as f64 / 1e9
}

const MB: u64 = 1_000_000;

#[tokio::test]
async fn a_bulk_transfer_over_the_engine_uses_both_paths_and_arrives_whole() {
    let flows = [flow(FlowKind::BulkBytes(20 * MB), Way::Forward)];
    let [client, server] = run(&quic(), &flows).await;
    assert_eq!((server.received_bytes, client.received_bytes), (20 * MB, 0));
    assert_eq!(server.counted_bytes, 20 * MB);
    assert!(client.handshake_s.unwrap() > 0.0);
    let first = server.first_byte_s.unwrap();
    assert!(first > 0.0 && server.last_byte_s.unwrap() > first);
    for path in 0..2 {
        let (near, far) = (&client.paths[path], &server.paths[path]);
        assert!(near.sent_bytes > 20_000, "path {path}: {near:?}");
        assert!(far.received_bytes > 20_000, "path {path}: {far:?}");
        assert!(near.srtt_s.unwrap().0 > 0.0 && near.cwnd_mean_bytes.unwrap() > 1000.0);
    }
    let first_copies: u64 = server.paths.iter().filter_map(|p| p.first_copy_bytes).sum();
    assert!((20 * MB..21 * MB).contains(&first_copies), "{first_copies}");
    assert!(server.reseq_peak_bytes.unwrap() > 0);
    assert!(!client.reasons.is_empty());
    let goodput: u64 = server.series.iter().map(|row| row.goodput_bytes).sum();
    assert_eq!(goodput, 20 * MB);
    let of_path = |path| client.series.iter().filter(move |row| row.path == path);
    let all: u64 = of_path(0).map(|row| row.sent_bytes).sum();
    let sent: u64 = client.paths.iter().map(|path| path.sent_bytes).sum();
    assert_eq!(all, sent);
    assert!(of_path(2).count() > 0);
}

#[tokio::test]
async fn a_download_comes_over_the_engine_and_over_tcp() {
    for carrier in [quic(), tcp()] {
        let flows = [flow(FlowKind::BulkBytes(5 * MB), Way::Backward)];
        let [client, server] = run(&carrier, &flows).await;
        assert_eq!((client.received_bytes, server.received_bytes), (5 * MB, 0));
        let sent: u64 = server.paths.iter().map(|path| path.sent_bytes).sum();
        assert!(sent > 5 * MB, "{:?}", server.paths);
        assert_eq!(server.sent_units, [(0, 1)]);
    }
}

#[tokio::test]
async fn tcp_keeps_to_the_first_path_and_the_kernel_says_what_it_did() {
    let flows = [flow(FlowKind::BulkBytes(30 * MB), Way::Forward)];
    let [client, server] = run(&tcp(), &flows).await;
    assert_eq!(server.received_bytes, 30 * MB);
    let [first, second] = &client.paths[..] else {
        panic!("two paths");
    };
    assert!(first.sent_bytes > 30 * MB, "{first:?}");
    assert_eq!(second.sent_bytes, 0);
    assert!(server.paths[0].received_bytes > 30 * MB);
    assert!(
        client.kernel.contains("congestion=reno"),
        "{}",
        client.kernel
    );
    assert!(client.retransmitted_bytes.is_some() && client.handshake_s.is_some());
}

#[tokio::test]
async fn a_flow_of_a_given_time_counts_from_the_warm_up_to_its_end() {
    for carrier in [quic(), tcp()] {
        let mut one = flow(FlowKind::BulkTime(Duration::from_millis(700)), Way::Forward);
        one.warm_up = Duration::from_millis(200);
        let [client, server] = run(&carrier, &[one]).await;
        assert_eq!(server.counted_s, Some([0.2, 0.7]));
        assert!(server.counted_bytes > 0);
        assert!(server.counted_bytes < server.received_bytes);
        for report in [client, server] {
            assert!(report.ended_s.unwrap() >= 0.7);
        }
    }
}

#[tokio::test]
async fn files_take_their_turns_and_each_has_a_time() {
    let kind = FlowKind::Files {
        count: 20,
        size: 50_000,
        gap: Duration::from_millis(5),
    };
    for carrier in [quic(), tcp()] {
        for way in [Way::Forward, Way::Backward] {
            let [client, server] = run(&carrier, &[flow(kind, way)]).await;
            let (source, sink) = match way {
                Way::Forward => (client, server),
                Way::Backward => (server, client),
            };
            assert_eq!(sink.received_bytes, 1_000_000);
            let numbers: Vec<u64> = sink.units.iter().map(|unit| unit.unit).collect();
            assert_eq!(numbers, (0..20).collect::<Vec<u64>>());
            assert!(sink.units.iter().all(|unit| unit.took_s > 0.0));
            assert_eq!(source.sent_units, [(0, 20)]);
            assert!(on_clock_of(&source, &sink, sink.last_byte_s) >= 0.095);
        }
    }
}

#[tokio::test]
async fn requests_are_answered_by_the_other_side() {
    let kind = FlowKind::Requests {
        count: 15,
        size: 300,
        answer: 40_000,
        every: Duration::from_millis(10),
    };
    for carrier in [quic(), tcp()] {
        for way in [Way::Forward, Way::Backward] {
            let [client, server] = run(&carrier, &[flow(kind, way)]).await;
            let sink = match way {
                Way::Forward => server,
                Way::Backward => client,
            };
            assert_eq!(sink.received_bytes, 15 * 40_000);
            assert_eq!(sink.units.len(), 15);
        }
    }
}

#[tokio::test]
async fn datagrams_are_late_after_their_deadline_only() {
    let kind = |deadline| FlowKind::Datagrams {
        size: 1000,
        every: Duration::from_millis(2),
        duration: Duration::from_millis(400),
        deadline: Some(deadline),
    };
    for carrier in [quic(), tcp()] {
        let flows = [
            flow(kind(Duration::from_secs(10)), Way::Forward),
            // No datagram can meet this deadline.
            flow(kind(Duration::from_nanos(1)), Way::Forward),
        ];
        let [client, server] = run(&carrier, &flows).await;
        assert_eq!(client.sent_units, [(0, 200), (1, 200)]);
        let count = |flow| server.units.iter().filter(|unit| unit.flow == flow).count() as u64;
        assert!(count(0) > 100, "{} of 200", count(0));
        assert_eq!(server.late_units, count(1));
        assert_eq!(server.received_bytes, (count(0) + count(1)) * 1000);
    }
}

#[tokio::test]
async fn flows_of_both_directions_go_at_once() {
    let mut late = flow(FlowKind::BulkBytes(2 * MB), Way::Backward);
    late.start = Duration::from_millis(150);
    let flows = [
        flow(FlowKind::BulkBytes(3 * MB), Way::Forward),
        late,
        flow(FlowKind::BulkBytes(MB), Way::Forward),
    ];
    for carrier in [quic(), tcp()] {
        let [client, server] = run(&carrier, &flows).await;
        assert_eq!(server.received_bytes, 4 * MB);
        assert_eq!(client.received_bytes, 2 * MB);
        assert!(on_clock_of(&server, &client, client.first_byte_s) >= 0.15);
    }
}

#[tokio::test]
async fn a_stripe_takes_all_its_connections_both_ways() {
    let settings = Settings {
        connections: Some(2),
        chunk: Some(20_000),
        ..Settings::default()
    };
    let carrier = engine(Profile::Stripe, settings);
    for way in [Way::Forward, Way::Backward] {
        let flows = [flow(FlowKind::BulkBytes(4 * MB), way)];
        let [client, server] = run(&carrier, &flows).await;
        let (source, sink) = match way {
            Way::Forward => (client, server),
            Way::Backward => (server, client),
        };
        assert_eq!(sink.received_bytes, 4 * MB);
        let sent: Vec<u64> = source.paths.iter().map(|path| path.sent_bytes).collect();
        assert!(sent.iter().all(|sent| *sent > 2 * MB), "{sent:?}");
        assert!(sink.units.is_empty() && sink.reseq_peak_bytes.is_some());
    }
}

#[tokio::test]
async fn a_path_is_opened_at_its_time_and_a_backup_carries_nothing() {
    let flows = [flow(
        FlowKind::BulkTime(Duration::from_secs(1)),
        Way::Forward,
    )];
    let mut jobs = [Role::Client, Role::Server].map(|role| job(role, &quic(), &flows));
    for job in &mut jobs {
        job.paths[1].opens = Duration::from_millis(500);
    }
    let [client, _] = run_jobs(jobs.clone()).await;
    let first = client
        .series
        .iter()
        .find(|row| row.path == 2 && row.sent_bytes > 0);
    assert!(first.unwrap().t_s >= 0.5);
    for job in &mut jobs {
        job.paths[1].opens = Duration::ZERO;
        job.paths[1].usage.backup = true;
        if let Carrier::Anabranch { scheduler, .. } = &mut job.carrier {
            *scheduler = None;
        }
    }
    let [client, _] = run_jobs(jobs).await;
    let [first, second] = [0, 1].map(|path| client.paths[path].sent_bytes);
    assert!(second > 0 && second * 10 < first, "{first} {second}");
}

#[tokio::test]
async fn decisions_are_told_one_by_one_if_asked_for() {
    let flows = [flow(FlowKind::BulkBytes(MB), Way::Forward)];
    let mut jobs = [Role::Client, Role::Server].map(|role| job(role, &quic(), &flows));
    jobs[0].decisions = true;
    let [client, server] = run_jobs(jobs).await;
    assert!(!client.decisions.is_empty() && server.decisions.is_empty());
    let end = client.ended_s.unwrap() * 1e9;
    for decided in &client.decisions {
        assert!(decided.t_ns as f64 <= end, "{decided:?}");
        assert!(decided.path.is_none_or(|path| (1..=2).contains(&path)));
    }
}

#[tokio::test]
async fn sockets_are_bound_to_the_interfaces_of_their_paths() {
    for carrier in [quic(), tcp()] {
        let flows = [flow(FlowKind::BulkBytes(MB), Way::Forward)];
        let mut jobs = [Role::Client, Role::Server].map(|role| job(role, &carrier, &flows));
        for path in jobs.iter_mut().flat_map(|job| &mut job.paths) {
            path.interface = Some("lo".to_owned());
        }
        let [_, server] = run_jobs(jobs).await;
        assert_eq!(server.received_bytes, MB);
    }
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_with_the_reason() {
    let bulk = [flow(FlowKind::BulkBytes(MB), Way::Forward)];
    let mut agent = Agent::new();
    let mut refuse = async |change: &dyn Fn(&mut Job), expected: &str| {
        let mut job = job(Role::Server, &quic(), &bulk);
        change(&mut job);
        let why = agent.refusal(job).await;
        assert!(why.contains(expected), "{why}: {expected}");
    };
    let foreign = IpAddr::from(Ipv4Addr::new(192, 0, 2, 77));
    refuse(&|job| job.paths[1].local = foreign, "path `path-1`").await;
    refuse(
        &|job| job.paths[0].interface = Some("nowhere0".to_owned()),
        "nowhere0",
    )
    .await;
    refuse(&|job| job.run_id = "../../etc".to_owned(), "run id").await;
    refuse(&|job| job.flows.clear(), "flows").await;
    refuse(&|job| job.qlog = Some("/".into()), "no folder for qlog").await;
    let scheduler = |job: &mut Job| {
        if let Carrier::Anabranch { scheduler, .. } = &mut job.carrier {
            *scheduler = Some("min-rt".parse().unwrap());
        }
    };
    refuse(&scheduler, "did you mean `min-rtt`?").await;
    let reno = |job: &mut Job| {
        job.carrier = Carrier::Tcp {
            congestion: "nosuch".to_owned(),
            buffers: None,
        };
    };
    refuse(&reno, "congestion control `nosuch`").await;
    let stripe = |job: &mut Job| {
        job.carrier = engine(Profile::Stripe, Settings::default());
        job.flows[0].kind = FlowKind::BulkTime(Duration::from_secs(1));
    };
    refuse(&stripe, "unsupported: the profile `stripe`").await;
}

#[tokio::test]
async fn a_run_that_is_stopped_tells_what_it_has_and_the_next_one_works() {
    for carrier in [quic(), tcp()] {
        let endless = [flow(
            FlowKind::BulkTime(Duration::from_secs(100)),
            Way::Forward,
        )];
        let (mut client, mut server) = (Agent::new(), Agent::new());
        let ready = server.prepare(job(Role::Server, &carrier, &endless)).await;
        client.prepare(job(Role::Client, &carrier, &endless)).await;
        server.ask(&Ask::Start(None)).await;
        client.ask(&Ask::Start(Some(ready))).await;
        let line = soon(server.output.next_line()).await.unwrap().unwrap();
        let progress: Answer = serde_json::from_str(&line).unwrap();
        assert!(matches!(progress, Answer::Progress(1..)), "{progress:?}");
        let second = job(Role::Server, &carrier, &endless);
        assert!(server.refusal(second).await.contains("under way"));
        server.ask(&Ask::Hello).await;
        let why = server.answer().await;
        assert!(
            matches!(&why, Answer::Failed(why) if why.contains("under way")),
            "a run is not disturbed: {why:?}"
        );
        server.ask(&Ask::Stop).await;
        let report = server.report().await;
        assert!(report.timed_out && report.received_bytes > 0);
        client.ask(&Ask::Stop).await;
        client.report().await;
        let short = [flow(FlowKind::BulkBytes(MB), Way::Forward)];
        let ready = server.prepare(job(Role::Server, &carrier, &short)).await;
        client.prepare(job(Role::Client, &carrier, &short)).await;
        server.ask(&Ask::Start(None)).await;
        client.ask(&Ask::Start(Some(ready))).await;
        assert_eq!(server.report().await.received_bytes, MB);
        assert_eq!(client.report().await.error, "");
    }
}

/// Below the ports that the kernel assigns.
const PORT: u16 = 21_417;

#[tokio::test]
async fn one_port_a_path_is_enough_for_run_after_run() {
    for carrier in [quic(), tcp()] {
        let flows = [flow(FlowKind::BulkBytes(MB), Way::Forward)];
        let mut server = Agent::with(Rules {
            qlog: QlogAt::Nowhere,
            doors: Doors {
                ports: Some(PORT..=PORT),
                called_from_afar: false,
            },
            ..Rules::own(Arc::default())
        });
        // Prepared, then stopped before it starts.
        server.prepare(job(Role::Server, &carrier, &flows)).await;
        server.ask(&Ask::Stop).await;
        for _ in 0..2 {
            let ready = server.prepare(job(Role::Server, &carrier, &flows)).await;
            assert!(ready.listens.iter().all(|at| at.port() == PORT));
            let mut client = Agent::new();
            client.prepare(job(Role::Client, &carrier, &flows)).await;
            server.ask(&Ask::Start(None)).await;
            client.ask(&Ask::Start(Some(ready))).await;
            assert_eq!(server.report().await.received_bytes, MB);
            // Its sockets linger now, and the client soon disappears without closing.
            client.report().await;
        }
    }
}

#[tokio::test]
async fn an_agent_that_listens_calls_nobody() {
    let flows = [flow(FlowKind::BulkBytes(MB), Way::Forward)];
    let mut agent = Agent::with(Rules {
        may_call: false,
        ..Rules::own(Arc::default())
    });
    for carrier in [quic(), tcp()] {
        let why = agent.refusal(job(Role::Client, &carrier, &flows)).await;
        assert!(why.contains("calls nobody"), "{why}");
        agent.prepare(job(Role::Server, &carrier, &flows)).await;
    }
}

#[tokio::test]
async fn what_a_machine_is_was_found_out_before_anybody_asked() {
    let rules = Rules::own(Arc::default());
    let known = Machine {
        programs: vec![("ip".to_owned(), "as it was".to_owned())],
        ..Machine::default()
    };
    rules.machine.set(known.clone()).unwrap();
    let mut agent = Agent::with(rules);
    agent.ask(&Ask::Hello).await;
    match agent.answer().await {
        Answer::Machine(machine) => assert_eq!(machine.programs, known.programs),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_run_ends_at_its_limit_of_time_if_nobody_answers() {
    let flows = [flow(FlowKind::BulkBytes(MB), Way::Forward)];
    let mut client = Agent::new();
    let mut server = Agent::new();
    // The server never starts, so it never accepts.
    let ready = server.prepare(job(Role::Server, &quic(), &flows)).await;
    drop(server);
    let mut job = job(Role::Client, &quic(), &flows);
    job.stop = Duration::from_millis(300);
    client.prepare(job).await;
    client.ask(&Ask::Start(Some(ready))).await;
    let report = client.report().await;
    assert!(report.timed_out);
    assert_eq!(report.handshake_s, None);
}

#[tokio::test]
async fn hosts_that_run_out_of_time_say_so_and_nothing_else() {
    for carrier in [quic(), tcp()] {
        let flows = [flow(FlowKind::BulkBytes(u64::MAX / 2), Way::Forward)];
        let (mut client, mut server) = (Agent::new(), Agent::new());
        let jobs = [Role::Client, Role::Server].map(|role| Job {
            stop: Duration::from_millis(400),
            ..job(role, &carrier, &flows)
        });
        let [near, far] = jobs;
        let ready = server.prepare(far).await;
        client.prepare(near).await;
        server.ask(&Ask::Start(None)).await;
        // So the client's time ends a little later.
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.ask(&Ask::Start(Some(ready))).await;
        for report in [client.report().await, server.report().await] {
            assert!(report.timed_out);
            assert_eq!(report.error, "");
        }
    }
}

#[tokio::test]
async fn buffers_of_tcp_are_those_asked_for() {
    let carrier = Carrier::Tcp {
        congestion: "reno".to_owned(),
        buffers: Some((40_000, 60_000)),
    };
    let flows = [flow(FlowKind::BulkBytes(2 * MB), Way::Forward)];
    let [client, server] = run(&carrier, &flows).await;
    assert_eq!(server.received_bytes, 2 * MB);
    assert!(
        client.kernel.contains("congestion=reno"),
        "{}",
        client.kernel
    );
    // Bytes in flight are limited by the receiver's window and the sender's buffer.
    let most = client.series.iter().map(|row| row.inflight_bytes).max();
    assert!(most < Some(200_000), "{most:?}");
}

#[tokio::test]
async fn datagrams_that_fit_no_packet_are_a_mistake_that_is_told() {
    let kind = FlowKind::Datagrams {
        size: 60_000,
        every: Duration::from_millis(60),
        duration: Duration::from_millis(100),
        deadline: Some(Duration::from_millis(100)),
    };
    let flows = [flow(kind, Way::Forward)];
    let (mut client, mut server) = (Agent::new(), Agent::new());
    let ready = server.prepare(job(Role::Server, &quic(), &flows)).await;
    client.prepare(job(Role::Client, &quic(), &flows)).await;
    server.ask(&Ask::Start(None)).await;
    client.ask(&Ask::Start(Some(ready))).await;
    let error = client.report().await.error;
    assert!(
        error.contains("flow 1: the datagram is larger than"),
        "{error}"
    );
}
