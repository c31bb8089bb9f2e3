//! Watches a transfer: samples its paths, and shows a bar if a person is looking.

use super::{is_interactive, units};
use crate::paths::{Direction, Labels, Samples};
use anabranch_net::connection::Connection;
use anabranch_proto::wire::PathId;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often paths are sampled and the bar is drawn.
const INTERVAL: Duration = Duration::from_millis(250);

/// Weight of the newest sample in the rates shown.
const SMOOTHING: f64 = 0.4;

/// A transfer being watched.
#[derive(Debug)]
pub(crate) struct Progress {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    connection: Connection,
    labels: Labels,
    direction: Direction,
    done: AtomicU64,
    samples: Mutex<Samples>,
    bar: ProgressBar,
}

/// A bar for so many steps, which is only drawn if a person is looking.
pub(crate) fn bar(total: u64, quiet: bool, template: &str) -> ProgressBar {
    let bar = if quiet || !is_interactive() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(total)
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

impl Progress {
    /// Starts watching. Nothing is [expected](Self::expect) yet.
    pub(crate) fn start(
        connection: &Connection,
        labels: &Labels,
        direction: Direction,
        quiet: bool,
    ) -> Self {
        let template = "{bar:24} {decimal_bytes}/{decimal_total_bytes} {eta} {wide_msg}";
        let bar = bar(0, quiet, template);
        let shared = Arc::new(Shared {
            connection: connection.clone(),
            labels: labels.clone(),
            direction,
            done: AtomicU64::new(0),
            samples: Mutex::default(),
            bar,
        });
        let task = tokio::spawn(watch(Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Adds bytes to the total.
    pub(crate) fn expect(&self, bytes: u64) {
        self.shared.bar.inc_length(bytes);
    }

    /// Counts bytes that were there before; they do not count towards the rate.
    pub(crate) fn already(&self, bytes: u64) {
        let before = self.shared.done.fetch_add(bytes, Ordering::Relaxed);
        self.shared.bar.set_position(before + bytes);
        self.shared.bar.reset_eta();
    }

    /// Counts bytes that have been transferred.
    pub(crate) fn advance(&self, bytes: u64) {
        self.shared.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Stops watching; returns what was seen.
    pub(crate) fn finish(self) -> Samples {
        self.shared.sample();
        self.shared.bar.finish_and_clear();
        let samples = self
            .shared
            .samples
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        samples.clone()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.bar.finish_and_clear();
    }
}

impl Shared {
    fn sample(&self) -> Vec<(PathId, u64)> {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.take(&self.connection, &self.labels);
        samples.bytes(self.direction).collect()
    }
}

async fn watch(shared: Arc<Shared>) {
    let mut rates: BTreeMap<PathId, (u64, f64)> = BTreeMap::new();
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let bytes = shared.sample();
        let elapsed = last.elapsed();
        last = Instant::now();
        let mut message = String::new();
        for (id, bytes) in bytes {
            let (before, rate) = rates.entry(id).or_insert((bytes, 0.0));
            let now = units::rate(bytes.saturating_sub(*before), elapsed);
            *rate += SMOOTHING * (now - *rate);
            *before = bytes;
            if *rate > 1000.0 || now > 0.0 {
                let (name, rate) = (shared.labels.interface(id), units::bit_rate(*rate));
                // Writing to a string cannot fail.
                let _ = write!(message, "  {name} {rate}");
            }
        }
        shared.bar.set_position(shared.done.load(Ordering::Relaxed));
        shared.bar.set_message(message);
    }
}
