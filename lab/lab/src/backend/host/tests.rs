//! Runs over existing links, with hosts that answer every request at once.

use super::*;
use crate::hosts::{Answer, Ask};
use crate::plan::{Changes, Plan};
use crate::results::Status;
use crate::scenario::Document;
use std::net::SocketAddr;

/// A host that answers every request at once, and records where the server was to be called.
#[derive(Debug)]
struct Prompt {
    name: &'static str,
    answers: Vec<Answer>,
    seen: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Host for Prompt {
    fn name(&self) -> &str {
        self.name
    }

    fn ask(&mut self, ask: Ask) -> Result<(), HostError> {
        match ask {
            Ask::Prepare(job) => {
                let listens = job
                    .paths
                    .iter()
                    .map(|_| SocketAddr::from(([10, 9, 9, 9], 5000)));
                self.answers.push(Answer::Ready(Ready {
                    listens: listens.collect(),
                    key: None,
                }));
            }
            Ask::Start(ready) => {
                self.seen
                    .lock()
                    .unwrap()
                    .extend(ready.unwrap_or_default().listens);
                let report = HostReport {
                    received_bytes: 1_000_000,
                    counted_bytes: 1_000_000,
                    counted_s: Some([0.0, 1.0]),
                    clock_ahead_ns: Some(5_000_000),
                    clock_error_ns: Some(1_000_000),
                    ..HostReport::default()
                };
                self.answers.push(Answer::Done(Box::new(report)));
            }
            Ask::Hello | Ask::Serve(_) | Ask::Stop => {}
        }
        Ok(())
    }

    fn answer(&mut self, timeout: Duration) -> Result<Answer, HostError> {
        self.answers.pop().ok_or(HostError::Silent {
            host: self.name.to_owned(),
            waited: timeout,
        })
    }
}

#[derive(Debug, Default)]
struct Reached {
    seen: Arc<Mutex<Vec<SocketAddr>>>,
    calls: Arc<AtomicU32>,
    is_gone: Arc<AtomicBool>,
}

impl Reach for Reached {
    fn near(&self) -> Result<Box<dyn Host>, HostError> {
        Ok(Box::new(Prompt {
            name: "client",
            answers: Vec::new(),
            seen: Arc::clone(&self.seen),
        }))
    }

    fn far(&self) -> Result<Box<dyn Host>, HostError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(HostError::Unreachable {
                host: "server".to_owned(),
                why: "nobody there".to_owned(),
            });
        }
        Ok(Box::new(Prompt {
            name: "server",
            answers: Vec::new(),
            seen: Arc::default(),
        }))
    }
}

fn roads() -> Vec<Road> {
    let road = |path: &str, interface: &str, last: u8| Road {
        path: path.to_owned(),
        interface: interface.to_owned(),
        local: [10, 0, last, 1].into(),
        remote: [198, 51, 100, last].into(),
    };
    vec![road("dsl", "eth0", 1), road("lte", "wwan0", 2)]
}

fn runs(rest: &str) -> Vec<Run> {
    let text = format!(
        "format = 1\nname = \"real\"\nstop = \"20s\"\nsingles = false\n\
         [[path]]\nname = \"dsl\"\nforward = {{ rate = \"5Mbit/s\" }}\n\
         [[path]]\nname = \"lte\"\nforward = {{ rate = \"5Mbit/s\" }}\n\
         [[flow]]\nkind = \"bulk\"\nbytes = \"1MB\"\n{rest}"
    );
    let document = Document::parse("t.toml", &text).unwrap();
    Plan::make(&document, &Changes::default()).unwrap().runs
}

#[test]
fn the_server_is_called_where_the_user_said_and_its_clock_is_noted() {
    let reached = Reached::default();
    let (seen, calls) = (Arc::clone(&reached.seen), Arc::clone(&reached.calls));
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes.jsonl");
    let conduct = Conduct {
        notes_file: Some(notes.clone()),
        ..Conduct::default()
    };
    let host = RealHosts::new(Box::new(reached), roads(), conduct);
    let run = &runs("")[0];
    for _ in 0..2 {
        let outcome = host.run(run);
        assert_eq!((outcome.status, &*outcome.reason), (Status::Ok, ""));
        assert_eq!(outcome.goodput_bps, Some(8e6));
        assert_eq!((outcome.packets, outcome.paths[0].lost_queue), (None, None));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1, "the peer is kept");
    let seen = seen.lock().unwrap();
    let expected = [1, 2].map(|last| SocketAddr::from(([198, 51, 100, last], 5000)));
    assert_eq!(seen[..2], expected);
    let notes = std::fs::read_to_string(notes).unwrap();
    let note: serde_json::Value = serde_json::from_str(notes.lines().next().unwrap()).unwrap();
    assert_eq!(note["links"], "real");
    assert_eq!(note["clock_ahead_s"], serde_json::json!([0.005, 0.001]));
    assert!(note["late_s"].is_null());
}

#[test]
fn a_peer_that_does_not_come_back_ends_the_campaign() {
    let reached = Reached::default();
    reached.is_gone.store(true, Ordering::Relaxed);
    let is_gone = Arc::clone(&reached.is_gone);
    let stop = Arc::new(AtomicBool::new(false));
    let host =
        RealHosts::new(Box::new(reached), roads(), Conduct::default()).stop(Arc::clone(&stop));
    let run = &runs("")[0];
    let outcome = host.run(run);
    assert_eq!(outcome.status, Status::Failed);
    assert!(
        outcome.reason.contains("nobody there"),
        "{}",
        outcome.reason
    );
    assert!(!stop.load(Ordering::Relaxed), "it may come back");
    is_gone.store(false, Ordering::Relaxed);
    assert_eq!(host.run(run).status, Status::Ok);
    is_gone.store(true, Ordering::Relaxed);
    *host.peer() = None;
    host.run(run);
    assert!(!stop.load(Ordering::Relaxed));
    assert_eq!(host.why_given_up(), None);
    host.run(run);
    assert!(stop.load(Ordering::Relaxed));
    let why = host.why_given_up().unwrap();
    assert!(why.contains("nobody there"), "{why}");
}

#[test]
fn what_would_change_machines_or_links_is_unsupported() {
    let host = RealHosts::new(Box::new(Reached::default()), roads(), Conduct::default());
    for (rest, expected) in [
        (
            "[[event]]\nat = \"1s\"\npath = \"dsl\"\ndown = \"both\"\n",
            "events",
        ),
        ("[transport]\nkind = \"bonding\"\n", "both machines"),
        (
            "[[background]]\nkind = \"tcp\"\npath = \"dsl\"\n",
            "background traffic",
        ),
        (
            "[transport]\nkind = \"tcp\"\nsack = false\n",
            "switched off",
        ),
    ] {
        let outcome = host.run(&runs(rest)[0]);
        assert_eq!(outcome.status, Status::Unsupported, "{rest}");
        assert!(outcome.reason.contains(expected), "{}", outcome.reason);
    }
}
