//! What the stacks are asked to do.

use crate::stack::Stack;
use std::time::{Duration, Instant};

/// Requests under way at once on one connection.
const CONCURRENT: usize = 64;
/// Bytes of an answer to a small request.
const SMALL: usize = 1000;
/// Requests made on each of many connections.
const EACH: usize = 10;

/// One kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Megabytes on one stream.
    Bulk,
    /// Thousands of small requests on one connection, many at once.
    Requests,
    /// Connections, one after the other, each closed before the next.
    Handshakes,
    /// Connections that stay open, with a few requests each.
    Connections,
}

/// What one run took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Seconds for the work; of `Handshakes`, the median of a single one.
    pub(crate) seconds: f64,
    /// Processor time of the whole process in seconds.
    pub(crate) cpu: f64,
    /// Bytes of memory by which the process grew.
    pub(crate) memory: f64,
}

impl Workload {
    pub(crate) const ALL: [Self; 4] = [
        Self::Bulk,
        Self::Requests,
        Self::Handshakes,
        Self::Connections,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Requests => "requests",
            Self::Handshakes => "handshakes",
            Self::Connections => "connections",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == name)
    }

    /// The amount unless one is given, in this work's unit.
    pub(crate) fn default_amount(self) -> usize {
        match self {
            Self::Bulk => 512,
            Self::Requests => 200,
            Self::Handshakes => 300,
            Self::Connections => 1000,
        }
    }

    pub(crate) async fn run<S: Stack>(self, amount: usize, paths: usize) -> Cost {
        let stack = S::start(paths);
        let (cpu, memory) = (cpu_seconds(), resident_bytes());
        let (seconds, _open) = match self {
            Self::Bulk => bulk(&stack, amount * 1_000_000).await,
            Self::Requests => requests(&stack, amount * 1000).await,
            Self::Handshakes => handshakes(&stack, amount).await,
            Self::Connections => connections(&stack, amount).await,
        };
        Cost {
            seconds,
            cpu: cpu_seconds() - cpu,
            memory: resident_bytes() - memory,
        }
    }
}

/// How long the work took, and the connections that it leaves open.
type Done<S> = (f64, Vec<<S as Stack>::Connection>);

async fn bulk<S: Stack>(stack: &S, bytes: usize) -> Done<S> {
    let connection = stack.connect().await;
    let started = Instant::now();
    assert_eq!(S::ask(&connection, bytes).await, bytes);
    (started.elapsed().as_secs_f64(), vec![connection])
}

async fn requests<S: Stack>(stack: &S, count: usize) -> Done<S> {
    let connection = stack.connect().await;
    let started = Instant::now();
    let clients: Vec<_> = (0..CONCURRENT)
        .map(|_| {
            let connection = connection.clone();
            tokio::spawn(async move {
                for _ in 0..count / CONCURRENT {
                    assert_eq!(S::ask(&connection, SMALL).await, SMALL);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    (started.elapsed().as_secs_f64(), vec![connection])
}

async fn handshakes<S: Stack>(stack: &S, count: usize) -> Done<S> {
    let mut times = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        drop(stack.connect().await);
        times.push(started.elapsed());
        // The end of one connection shall not count as time of the next.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    times.sort();
    (times[times.len() / 2].as_secs_f64(), Vec::new())
}

async fn connections<S: Stack>(stack: &S, count: usize) -> Done<S> {
    let started = Instant::now();
    let mut open = Vec::new();
    for _ in 0..count {
        let connection = stack.connect().await;
        for _ in 0..EACH {
            assert_eq!(S::ask(&connection, SMALL).await, SMALL);
        }
        open.push(connection);
    }
    (started.elapsed().as_secs_f64(), open)
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

/// Memory of this process that is resident.
fn resident_bytes() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let resident = pages.split_whitespace().nth(1).unwrap();
    resident.parse::<f64>().unwrap() * 4096.0
}
