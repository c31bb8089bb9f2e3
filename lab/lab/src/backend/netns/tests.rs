//! Networks that are built, disturbed and removed, with agents that only wait.

use super::*;
use crate::hosts::{Answer, Ask, LinkTotals, PathReport, Ready};
use crate::plan::{Changes, Plan};
use crate::scenario::Document;
use anabranch_testbed::Testbed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often something is measured at the most, until the machine had time for it.
const FAIR_TRIES: usize = 5;

/// An agent that waits and then reports that nothing happened.
#[derive(Debug)]
struct Waiting {
    name: String,
    takes: Duration,
    began: Option<Instant>,
    prepared: bool,
    panics: bool,
}

impl Host for Waiting {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&mut self, ask: Ask) -> Result<(), HostError> {
        match ask {
            Ask::Prepare(job) => {
                assert_eq!(job.paths.len(), 2);
                self.prepared = true;
            }
            Ask::Start(_) => self.began = Some(Instant::now()),
            Ask::Hello | Ask::Serve(_) => panic!("no lab in namespaces asks this"),
            Ask::Stop => self.takes = Duration::ZERO,
        }
        Ok(())
    }

    fn answer(&mut self, timeout: Duration) -> Result<Answer, HostError> {
        if std::mem::take(&mut self.prepared) {
            return Ok(Answer::Ready(Ready::default()));
        }
        assert!(!self.panics, "as asked for");
        if self
            .began
            .is_some_and(|began| began.elapsed() >= self.takes)
        {
            return Ok(Answer::Done(Box::default()));
        }
        std::thread::sleep(timeout);
        Err(HostError::Silent {
            host: self.name.clone(),
            waited: timeout,
        })
    }
}

#[derive(Debug)]
struct Waiters {
    takes: Duration,
    panics: bool,
}

impl Launch for Waiters {
    fn launch(&self, name: &str, _: Command) -> Result<Box<dyn Host>, HostError> {
        Ok(Box::new(Waiting {
            name: name.to_owned(),
            takes: self.takes,
            began: None,
            prepared: false,
            panics: self.panics,
        }))
    }
}

fn netns(takes: Duration, panics: bool, conduct: Conduct) -> Netns {
    let agents = Box::new(Waiters { takes, panics });
    Netns::new(vec!["agent".to_owned()], agents, conduct)
}

fn planned(text: &str) -> Run {
    let document = Document::parse("t.toml", text).unwrap();
    let plan = Plan::make(&document, &Changes::default()).unwrap();
    plan.runs[0].clone()
}

fn run(rest: &str) -> Run {
    let text = format!(
        r#"
format = 1
name = "waiting"
stop = "20s"
singles = false
[[node]]
name = "under_way"
[[link]]
name = "first"
ends = ["client", "under_way"]
forward = {{ rate = "5Mbit/s", delay = "5ms" }}
[[link]]
name = "second"
ends = ["under_way", "server"]
[[path]]
name = "long"
client = "first"
server = "second"
[[path]]
name = "direct"
forward = {{ rate = "5Mbit/s", delay = "10ms" }}
[[flow]]
kind = "bulk"
duration = "2s"
{rest}"#
    );
    planned(&text)
}

/// The namespaces of this process.
fn ours() -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mine = format!("ab-{}-", std::process::id());
    names
        .filter(|name| name.starts_with(&mine) && name.contains("-lab-"))
        .collect()
}

/// Runs the tests one at a time, since they count namespaces.
static ALONE: Mutex<()> = Mutex::new(());

/// Traffic of each kind, and a link that falls silent, comes back and becomes slow.
const SCRIPT: &str = r#"
[[background]]
kind = "udp"
rate = "1Mbit/s"
size = "500B"
path = "long"
[[background]]
kind = "tcp"
path = "direct"
direction = "backward"
[[background]]
kind = "web"
size = "20kB"
pause = "50ms"
path = "direct"
[[event]]
at = "1s"
link = "first"
down = "forward"
[[event]]
at = "2s"
link = "first"
up = "forward"
[[event]]
at = "2500ms"
link = "first"
set = { rate = "100kbit/s" }
"#;

#[test]
fn a_script_really_happens_and_everything_is_removed() {
    let Some(_bed) = Testbed::require("netns-script") else {
        return;
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let run = run(SCRIPT);
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes.jsonl");
    let conduct = Conduct {
        notes_file: Some(notes.clone()),
        ..Conduct::default()
    };
    let outcome = netns(Duration::from_secs(3), false, conduct).run(&run);
    assert_eq!(ours(), Vec::<String>::new());
    let notes = std::fs::read_to_string(notes).unwrap();
    let note: Note = serde_json::from_str(&notes).unwrap();
    assert_eq!(note.events.len(), 3);
    assert!(!note.links.is_empty() && note.others_cores.is_some());
    if outcome.status == Status::Invalid && outcome.reason.contains("late") {
        // The machine was so busy that links were late: the figures mean nothing, and the run says
        // so.
        return;
    }
    assert_eq!(outcome.reason, "", "{:?}", outcome.status);
    let delivered = |path: u32, from: f64, to: f64| -> u64 {
        let rows = outcome.series.iter().filter(|row| row.path == path);
        let inside = rows.filter(|row| row.t_s > from + 0.05 && row.t_s <= to + 0.05);
        inside.map(|row| row.delivered_bytes).sum()
    };
    // 125 kB/s, and 12.5 kB/s once the link is slow. A shift of a tenth of a second on a busy
    // machine must not matter.
    for (from, to, expected) in [
        (0.2, 0.9, 40_000..100_000),
        (1.2, 1.9, 0..15_000),
        (2.1, 2.5, 20_000..65_000),
        (2.7, 3.0, 1..12_000),
    ] {
        let bytes = delivered(1, from, to);
        assert!(expected.contains(&bytes), "{from} to {to} s: {bytes}");
    }
    // The backward direction of the direct path is unlimited, so TCP fills it; downloads go
    // forward.
    assert!(outcome.paths[1].delivered_bytes > 0);
}

/// A path over a link that other hosts use too.
const FURTHER: &str = r#"
format = 1
name = "further"
stop = "20s"
singles = false
[[node]]
name = "r1"
[[node]]
name = "r2"
[[node]]
name = "neighbour"
kind = "host"
[[node]]
name = "far"
kind = "host"
[[link]]
name = "access"
ends = ["client", "r1"]
[[link]]
name = "shared"
ends = ["r1", "r2"]
forward = { rate = "8Mbit/s", delay = "5ms" }
backward = { like = "forward" }
[[link]]
name = "exit"
ends = ["r2", "server"]
[[link]]
name = "near"
ends = ["neighbour", "r1"]
[[link]]
name = "end"
ends = ["r2", "far"]
[[path]]
name = "long"
client = "access"
server = "exit"
[[path]]
name = "direct"
forward = { rate = "5Mbit/s", delay = "10ms" }
[[flow]]
kind = "bulk"
duration = "2s"
"#;

/// Runs traffic between further hosts while the client and the server are silent. Returns the bytes
/// that the links delivered forward and backward, in order, and the tables' totals of the paths.
fn beside(background: &str) -> (Vec<[u64; 2]>, Vec<LinkTotals>, u64) {
    let run = planned(&format!("{FURTHER}{background}"));
    let mut net = Net::build(&run.scenario, run.seed, Links::default(), None).unwrap();
    let wait = |(): &mut ()| {
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    };
    let ((), log) = during(&mut net, &run, &mut (), |()| Ok(()), wait).unwrap();
    let last = &log.samples.last().unwrap().links;
    let delivered = last.iter().map(|ways| {
        let [forward, backward] = ways;
        [forward.bytes_delivered, backward.bytes_delivered]
    });
    let reports = [0, 1].map(|_| HostReport {
        paths: vec![PathReport::default(); 2],
        ..HostReport::default()
    });
    let mut totals = totals::totals(&net, &log.samples);
    totals::tell_apart(&net, &mut totals, [&reports[0], &reports[1]]);
    (delivered.collect(), totals, log.background[0].bytes)
}

#[test]
fn traffic_between_further_hosts_shares_the_link_in_the_middle_alone() {
    let Some(_bed) = Testbed::require("netns-further") else {
        return;
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let further = "ends = [\"neighbour\", \"far\"]";
    let backward = "direction = \"backward\"";
    // The least number of bytes in two seconds that even a busy machine carries.
    for (kind, direction, way, least) in [
        (
            "kind = \"udp\"\nrate = \"2Mbit/s\"\nsize = \"500B\"",
            "",
            0,
            150_000,
        ),
        (
            "kind = \"tcp\"\ncongestion = \"reno\"",
            backward,
            1,
            500_000,
        ),
        ("kind = \"tcp\"\ncongestion = \"cubic\"", "", 0, 500_000),
        (
            "kind = \"web\"\nsize = \"50kB\"\npause = \"10ms\"",
            "",
            0,
            20_000,
        ),
    ] {
        let (links, totals, got) =
            beside(&format!("[[background]]\n{kind}\n{direction}\n{further}\n"));
        let [access, shared, exit, near, end, direct] = links.try_into().unwrap();
        assert_eq!([access, exit, direct], [[0; 2]; 3], "{kind}");
        assert!(shared[way] >= least, "{kind}: {shared:?}");
        // What arrived is what the shared link carried, less headers and what was on its way.
        let carried = shared[way];
        assert!(
            got <= carried && got > carried / 2,
            "{kind}: {got} of {carried}"
        );
        // The bytes on the shared link all came from the neighbour or went to it; likewise at the
        // other end.
        for own in [near, end] {
            let apart = own[way].abs_diff(shared[way]);
            assert!(
                apart < shared[way] / 4 + 50_000,
                "{kind}: {own:?} {shared:?}"
            );
        }
        for path in totals {
            assert_eq!(
                (path.forward.sent_bytes, path.backward.sent_bytes),
                (0, 0),
                "{kind}"
            );
        }
    }
    assert_eq!(ours(), Vec::<String>::new());
}

#[test]
fn bytes_of_a_path_are_the_hosts_own_where_its_end_sends_to_further_hosts() {
    let Some(_bed) = Testbed::require("netns-own") else {
        return;
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let udp = "[[background]]\nkind = \"udp\"\nrate = \"2Mbit/s\"\nsize = \"500B\"\n";
    for (ends, used, unused) in [
        ("[\"client\", \"far\"]", ["access", "end"], ["exit", "near"]),
        (
            "[\"neighbour\", \"server\"]",
            ["near", "exit"],
            ["access", "end"],
        ),
    ] {
        let (links, totals, _) = beside(&format!("{udp}ends = {ends}\n"));
        let names = ["access", "shared", "exit", "near", "end"];
        let bytes = |name: &str| links[names.iter().position(|own| *own == name).unwrap()][0];
        let (used, unused) = (used.map(bytes), unused.map(bytes));
        // `near` leads to the router and `end` away from it, so all traffic goes forward.
        assert!(
            used.iter().all(|bytes| *bytes > 150_000),
            "{ends}: {links:?}"
        );
        assert_eq!(unused, [0, 0], "{ends}");
        // The hosts report no bytes sent for the flows, whatever the links counted.
        let forward = totals[0].forward;
        assert_eq!(
            (forward.sent_bytes, forward.delivered_bytes),
            (0, 0),
            "{ends}"
        );
    }
}

#[test]
fn a_panic_and_an_abort_leave_nothing_behind() {
    let Some(_bed) = Testbed::require("netns-abort") else {
        return;
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let run = run("");
    let outcome = netns(Duration::from_secs(600), true, Conduct::default()).run(&run);
    assert_eq!(outcome.status, Status::Failed);
    assert!(
        outcome.reason.contains("as asked for"),
        "{}",
        outcome.reason
    );
    assert_eq!(ours(), Vec::<String>::new());
    let abort = Arc::new(AtomicBool::new(false));
    let conduct = Conduct {
        abort: Arc::clone(&abort),
        ..Conduct::default()
    };
    let netns = netns(Duration::from_secs(600), false, conduct);
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| netns.run(&run));
        while ours().len() < 3 && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        abort.store(true, Ordering::Relaxed);
        running.join().unwrap()
    });
    assert!(netns.was_broken_off(), "{}", outcome.reason);
    assert_eq!(ours(), Vec::<String>::new());
}

#[test]
fn what_kernels_cannot_do_is_named() {
    for (kind, expected) in [
        (
            "kind = \"bonding\"\nscheduler = \"delivery-delay\"",
            "--backend sim",
        ),
        ("kind = \"mlppp\"", "simulator"),
        (
            "kind = \"tcp\"\ncongestion = \"lia\"",
            "expected reno, cubic or bbr",
        ),
    ] {
        let run = run(&format!("[transport]\n{kind}\n"));
        let outcome = netns(Duration::ZERO, false, Conduct::default()).run(&run);
        assert_eq!(outcome.status, Status::Unsupported);
        assert!(outcome.reason.contains(expected), "{}", outcome.reason);
    }
}

#[test]
fn a_contender_of_a_file_is_run_measured_and_ended() {
    let Some(_bed) = Testbed::require("netns-command") else {
        return;
    };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fake.toml");
    let with = |client: &str| {
        let text = format!(
            "format = 1\nname = \"fake\"\npaths = \"all\"\nready = \"here I am\"\n\
             [server]\ncommand = [\"sh\", \"-c\", \"echo here I am; exec sleep 600\"]\n\
             [client]\ncommand = [\"sh\", \"-c\", \"{client}\"]\n\
             [measure]\nbytes = \"moved {{}} bytes\"\ntime = \"in {{}} s\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let transport = format!("[transport]\nkind = \"command\"\nfile = {file:?}\n");
        let measure = || netns(Duration::ZERO, false, Conduct::default()).run(&run(&transport));
        // A machine that is busy makes packets late: then nothing was measured.
        let outcomes = (1..FAIR_TRIES).map(|_| measure());
        let mut fair = outcomes.filter(|outcome| outcome.status != Status::Invalid);
        fair.next().unwrap_or_else(measure)
    };
    let outcome = with("ping -c 3 -i 0.01 {server} >&2; echo moved 1000000 bytes in 2 s");
    assert_eq!((outcome.status, outcome.reason.as_str()), (Status::Ok, ""));
    assert_eq!((outcome.bytes, outcome.goodput_bps), (1_000_000, Some(4e6)));
    let outcome = with("echo no such thing >&2; exit 3");
    assert_eq!(outcome.status, Status::Failed);
    assert!(
        outcome.reason.contains("no such thing"),
        "{}",
        outcome.reason
    );
    let outcome = with("echo moved nothing");
    assert!(
        outcome.reason.contains("moved {} bytes"),
        "{}",
        outcome.reason
    );
    assert_eq!(ours(), Vec::<String>::new());
}
