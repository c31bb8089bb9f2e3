//! What a connection was, for the one who compares both ends.

use anabranch_net::engine::{PathNotice, PathStats};
use anabranch_net::{Connection, Notice};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How often the paths' counters are noted: those of a path end with it.
const TICK: Duration = Duration::from_millis(5);

/// Prints a line to standard output, which is this program's product.
pub(crate) fn say(line: &str) {
    // A reader that went away is not an error.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

type Seen = Arc<Mutex<BTreeMap<u32, PathStats>>>;

/// Follows a connection.
#[derive(Debug)]
pub(crate) struct Report {
    seen: Seen,
    tasks: [JoinHandle<()>; 2],
}

impl Report {
    pub(crate) fn follow(connection: &Connection) -> Self {
        let seen = Seen::default();
        let mut notices = connection.path_notices();
        let telling = tokio::spawn(async move {
            while let Some(notice) = notices.next().await {
                tell(notice);
            }
        });
        let (noting, into) = (connection.clone(), Arc::clone(&seen));
        let noting = tokio::spawn(async move {
            loop {
                note(&noting, &into);
                tokio::time::sleep(TICK).await;
            }
        });
        Self {
            seen,
            tasks: [telling, noting],
        }
    }

    /// Says how it went: each path there was, and the whole.
    pub(crate) fn print(self, connection: &Connection) {
        for task in &self.tasks {
            task.abort();
        }
        note(connection, &self.seen);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut sent, mut doubts) = (0, 0);
        for (id, path) in seen.iter() {
            let counters = path.counters;
            sent += counters.sent_bytes;
            doubts += counters.doubts;
            say(&format!(
                "path {id} in {} out {} lost {} doubts {}",
                counters.received_bytes, counters.sent_bytes, counters.lost_bytes, counters.doubts
            ));
        }
        let stats = connection.stats();
        say(&format!(
            "total out {sent} doubts {doubts} keys {} multipath {} stream_out {} stream_in {} \
             again {} duplicate {}",
            stats.keys_updated,
            u8::from(connection.has_multipath()),
            stats.streams.bytes_sent,
            stats.streams.bytes_received,
            stats.streams.bytes_retransmitted,
            stats.streams.duplicate_bytes
        ));
        if let Some(reason) = connection.close_reason() {
            say(&format!("closed {reason}"));
        }
    }
}

fn note(connection: &Connection, seen: &Seen) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    for (id, stats) in connection.paths() {
        seen.insert(id.0, stats);
    }
}

fn tell(notice: Notice) {
    match notice {
        Notice::Path(PathNotice::Opened { id, .. }) => say(&format!("event opened {}", id.0)),
        Notice::Path(PathNotice::Doubted { id }) => say(&format!("event doubted {}", id.0)),
        Notice::Path(PathNotice::Recovered { id, .. }) => {
            say(&format!("event recovered {}", id.0));
        }
        Notice::Path(PathNotice::Moved { id, .. }) => say(&format!("event moved {}", id.0)),
        Notice::Path(PathNotice::Abandoned { id, by_peer, .. }) => {
            say(&format!(
                "event abandoned {} by_peer {}",
                id.0,
                u8::from(by_peer)
            ));
        }
        _ => {}
    }
}
