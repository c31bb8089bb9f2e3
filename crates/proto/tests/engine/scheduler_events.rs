//! What a connection tells its scheduler between questions.

use crate::pair::{MBIT, Pair, Way};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::sched::{Choice, MinRtt, PathEvent, Scheduler, SchedulerFactory, SendView};
use anabranch_proto::wire::PathId;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Events = Arc<Mutex<Vec<PathEvent>>>;

/// Lowest RTT, and a note of everything it is told.
#[derive(Debug)]
struct Listener {
    inner: MinRtt,
    events: Events,
}

impl Scheduler for Listener {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.inner.select(view)
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.events
            .lock()
            .expect("nothing panicked with it")
            .push(*event);
        self.inner.on_event(event);
    }
}

/// A transfer over two paths, the second of which dies, to a server that reads into small windows.
fn listened_to() -> (Pair, Vec<PathEvent>) {
    let events = Events::default();
    let into = events.clone();
    let scheduler = SchedulerFactory::from_fn("listener", move || {
        Box::new(Listener {
            inner: MinRtt,
            events: into.clone(),
        })
    });
    let client = TransportConfig {
        scheduler,
        ..TransportConfig::default()
    };
    let mut server = TransportConfig::default();
    server.streams.stream_receive_window = 20_000;
    server.streams.max_stream_receive_window = 20_000;
    let ways = vec![
        Way::new(1).delay(10).rate(20 * MBIT),
        Way::new(2).delay(12).rate(20 * MBIT),
    ];
    let mut pair = Pair::with(ways, client, server);
    pair.connect();
    pair.open_all();
    pair.upload(200_000, Duration::from_secs(30));
    (pair.ways[1].up, pair.ways[1].down) = (false, false);
    let _ = pair.client_conn().ping(PathId(1));
    pair.upload(200_000, Duration::from_secs(30));
    let events = events.lock().expect("nothing panicked with it").clone();
    (pair, events)
}

#[test]
fn a_scheduler_hears_of_every_byte_that_asks_for_an_answer() {
    let (mut pair, events) = listened_to();
    for id in [0, 1] {
        let counters = pair.client_conn().path_stats(PathId(id)).unwrap().counters;
        let told = |wanted: fn(&PathEvent) -> Option<(PathId, u64)>| -> u64 {
            let of_path = events.iter().filter_map(wanted);
            of_path
                .filter(|(path, _)| path.0 == id)
                .map(|(_, bytes)| bytes)
                .sum()
        };
        let sent = told(|event| match *event {
            PathEvent::Sent { path, bytes } => Some((path, bytes)),
            _ => None,
        });
        let acked = told(|event| match *event {
            PathEvent::Acked { path, bytes, .. } => Some((path, bytes)),
            _ => None,
        });
        assert!(
            sent > 0 && sent <= counters.sent_bytes,
            "{sent} of {counters:?}"
        );
        assert!(
            acked > 0 && acked <= counters.acked_bytes,
            "{acked} of {counters:?}"
        );
        // What elicits no answer is small: acknowledgements and the handshake.
        assert!(
            sent + 10_000 > counters.sent_bytes,
            "{sent} of {counters:?}"
        );
    }
}

#[test]
fn a_scheduler_hears_of_writes_and_of_flow_control() {
    let (_, events) = listened_to();
    assert!(events.contains(&PathEvent::Written));
    assert!(events.contains(&PathEvent::FlowBlocked));
}

#[test]
fn a_scheduler_hears_of_paths_that_come_and_go_silent() {
    let (_, events) = listened_to();
    let path = PathId(1);
    let at = |wanted| events.iter().position(|event| *event == wanted);
    let opened = at(PathEvent::Opened { path }).expect("opened");
    let pto = at(PathEvent::Pto { path }).expect("a probe time-out");
    let doubted = at(PathEvent::Doubted { path }).expect("doubted");
    assert!(opened < pto && pto < doubted);
}
