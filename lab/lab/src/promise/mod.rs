//! The promise that several links are never slower than the better one: random worlds, each with
//! all its links, with every link alone, and against an oracle.
//!
//! ```text
//! world    a seed -> links, traffic and what happens meanwhile, as the text of a scenario
//! measure  a world -> how all links did, how the best one did alone, what an oracle could do
//! table    many of them -> a row each
//! summary  many of them -> quantiles and broken bars, by class of world
//! ```
//!
//! A world is a scenario file like any other: the worst ones can be written down and run again with
//! `anabranch sim run`.

mod measure;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod world;

pub use measure::{Figure, Measured};
pub use summary::{Bar, Quantiles, Summary, summarise};
pub use table::table;
pub use world::{Condition, Work, World};

use crate::campaign::in_parallel;
use anabranch_schedulers::Names;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct Promise {
    /// The scheduler, as `NAME:key=value,...`.
    pub scheduler: String,
    /// The congestion controller; that of the engine if not given.
    pub congestion: Option<String>,
    /// The first seed; world n has the seed `first + n`.
    pub first: u64,
    /// How many worlds.
    pub worlds: u64,
    /// Whether links only have a rate, a delay, a queue and loss by chance, and carry one file.
    pub plain: bool,
    /// Whether the best link alone, run once more with other luck, stands for all links: what the
    /// bars show where nothing is gained or lost. The scheduler means nothing then.
    pub control: bool,
    /// How often each run is repeated with other luck, the median of which counts; at least once.
    pub draws: u32,
    /// Threads; 0 for one per core.
    pub jobs: usize,
}

impl Promise {
    /// Measures all worlds in parallel, in the order of their seeds. Ends early, with those that
    /// are done, once `stop` is set. `progress` is called after each world.
    ///
    /// # Errors
    /// The scheduler or controller is unknown, or a run failed for a reason other than time.
    pub fn run(
        &self,
        names: &Names,
        stop: &AtomicBool,
        progress: &(dyn Fn(&Measured) + Sync),
    ) -> Result<Vec<Measured>, String> {
        let one = |seed: &u64| {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let measured = self.measure(&World::draw(*seed, self.plain), names);
            if let Ok(measured) = &measured {
                progress(measured);
            }
            Some(measured)
        };
        let last = self.first.saturating_add(self.worlds);
        let seeds: Vec<u64> = (self.first..last).collect();
        let found = in_parallel(self.jobs, &seeds, |_| false, one);
        found.into_iter().flatten().collect()
    }
}
