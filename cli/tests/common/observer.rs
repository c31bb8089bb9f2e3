//! Instruments that are not late: threads with priority over the programs under test.

use anabranch_testbed::Node;
use nix::unistd::gettid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(2);

/// If two looks are further apart than this, the machine was busy with something else. An observer
/// has priority over the programs under test, so they could not use that time either.
const LATE: Duration = Duration::from_millis(20);

/// What counts as bulk data.
const BULK: u64 = 100_000;

/// What was seen at one moment.
#[derive(Debug, Clone, Default)]
struct Look {
    /// The time observed so far; each gap counts as [`LATE`] at most.
    clock: Duration,
    /// Bytes of the file being received.
    received: u64,
    /// Bytes in both directions over the interfaces `path0`, `path1` and so on.
    carried: Vec<u64>,
}

/// A moment during an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

/// Watches the file that a transfer writes and the links of a host, until it is dropped.
pub struct Observer {
    looks: Arc<Mutex<Vec<Look>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    /// Starts watching the host's links and the longest file in `directory` whose name contains
    /// `name`.
    pub fn start(host: &Node, directory: PathBuf, name: &'static str) -> Self {
        let looks: Arc<Mutex<Vec<Look>>> = Arc::default();
        let over: Arc<AtomicBool> = Arc::default();
        let (host, into, is_over) = (host.clone(), Arc::clone(&looks), Arc::clone(&over));
        let observe = move || {
            go_ahead();
            let (mut last, mut clock) = (Instant::now(), Duration::ZERO);
            while !is_over.load(Ordering::Relaxed) {
                let now = Instant::now();
                clock += (now - last).min(LATE);
                last = now;
                let look = Look {
                    clock,
                    received: longest(&directory, name),
                    carried: carried(),
                };
                into.lock().unwrap().push(look);
                thread::sleep(PERIOD);
            }
        };
        let thread = thread::spawn(move || host.enter(observe).expect("a host of ours"));
        let observer = Self {
            looks,
            over,
            thread: Some(thread),
        };
        super::wait_for("the observer", Duration::from_secs(60), || {
            !observer.looks.lock().unwrap().is_empty()
        });
        observer
    }

    /// The present.
    pub fn now(&self) -> Mark {
        Mark(self.looks.lock().unwrap().len() - 1)
    }

    /// How much had been received at the last look.
    pub fn received(&self) -> u64 {
        self.looks
            .lock()
            .unwrap()
            .last()
            .map_or(0, |look| look.received)
    }

    /// Observes for this long.
    pub fn wait(&self, time: Duration) {
        let start = self.now();
        while self.since(start) < time {
            thread::sleep(PERIOD);
        }
    }

    fn since(&self, mark: Mark) -> Duration {
        let looks = self.looks.lock().unwrap();
        let now = looks.last().map_or(Duration::ZERO, |look| look.clock);
        now.saturating_sub(looks[mark.0].clock)
    }

    /// The longest time between two moments during which the file did not grow.
    pub fn longest_pause(&self, from: Mark, to: Mark) -> Duration {
        let looks = self.looks.lock().unwrap();
        let (mut grown, mut longest) = (&looks[from.0], Duration::ZERO);
        for look in &looks[from.0..=to.0] {
            longest = longest.max(look.clock.saturating_sub(grown.clock));
            if look.received > grown.received {
                grown = look;
            }
        }
        longest
    }

    /// Waits until a link has carried bulk data after this moment. Returns how long that took, or a
    /// little more than the limit.
    pub fn until_used(&self, link: usize, from: Mark, limit: Duration) -> Duration {
        let bytes = |look: &Look| look.carried.get(link).copied().unwrap_or(0);
        let mut next = from.0;
        loop {
            let looks = self.looks.lock().unwrap();
            let start = &looks[from.0];
            for look in &looks[next..] {
                let elapsed = look.clock.saturating_sub(start.clock);
                if elapsed > limit || bytes(look).saturating_sub(bytes(start)) > BULK {
                    return elapsed;
                }
            }
            next = looks.len();
            drop(looks);
            thread::sleep(PERIOD);
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has already been reported.
            let _ = thread.join();
        }
    }
}

fn longest(directory: &Path, name: &str) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let right = entries.filter(|entry| entry.file_name().to_string_lossy().contains(name));
    let length = |entry: fs::DirEntry| entry.metadata().map_or(0, |data| data.len());
    right.map(length).max().unwrap_or(0)
}

/// What the links of this thread's host have carried. A veth interface counts what its other end
/// sends as received, even if a filter drops it here.
fn carried() -> Vec<u64> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let mut bytes = Vec::new();
    for line in table.lines() {
        let Some((name, numbers)) = line.split_once(':') else {
            continue;
        };
        let number = name.trim().strip_prefix("path");
        let Some(link) = number.and_then(|number| number.parse::<usize>().ok()) else {
            continue;
        };
        let numbers: Vec<u64> = numbers.split_whitespace().flat_map(str::parse).collect();
        if bytes.len() <= link {
            bytes.resize(link + 1, 0);
        }
        // Received bytes, seven more columns, then sent bytes.
        bytes[link] = numbers.first().unwrap_or(&0) + numbers.get(8).unwrap_or(&0);
    }
    bytes
}

/// Gives the calling thread priority over the programs under test, if that is allowed.
fn go_ahead() {
    let thread = gettid().to_string();
    let mut command = Command::new("chrt");
    // Where it is not allowed, the programs under test get no priority either, and that is reported
    // once.
    let _ = command.args(["--rr", "--pid", "2", &thread]).output();
}

/// How late a machine was in resuming a thread that has priority.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lateness {
    pub worst: Duration,
    pub sum: Duration,
    pub of: Duration,
}

impl Lateness {
    /// Whether what was measured meanwhile says more about the machine than about the program: a
    /// queue of 50 ms ran empty, or a fiftieth of the time was lost.
    pub fn is_too_much(self) -> bool {
        self.worst > Duration::from_millis(40) || self.sum * 50 > self.of
    }
}

/// Measures lateness from start to end.
pub struct Meter {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Lateness>>,
}

impl Meter {
    pub fn start() -> Self {
        let over: Arc<AtomicBool> = Arc::default();
        let is_over = Arc::clone(&over);
        let measure = move || {
            go_ahead();
            let started = Instant::now();
            let mut lateness = Lateness::default();
            while !is_over.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(PERIOD);
                let late = before.elapsed().saturating_sub(PERIOD);
                lateness.worst = lateness.worst.max(late);
                // Kernel timers are not exact, and that does not count as lateness.
                lateness.sum += late.saturating_sub(PERIOD);
            }
            lateness.of = started.elapsed();
            lateness
        };
        Self {
            over,
            thread: Some(thread::spawn(measure)),
        }
    }

    pub fn end(mut self) -> Lateness {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
