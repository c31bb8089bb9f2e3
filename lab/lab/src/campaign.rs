//! Runs a plan, stores its results, and resumes an earlier campaign.
//!
//! Simulated runs are spread over all cores in the order of the plan. Runs in real kernels take
//! place one at a time, in blocks of repetitions whose contenders are shuffled ([`Order::Blocks`]).

use crate::backend::Backend;
use crate::plan::{Plan, Run};
use crate::results::{Part, SCHEMA_VERSION, Status, Store, StoreError};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What happens while a plan runs.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// A run had a stored result.
    Found(&'a Part),
    /// A run has ended.
    Ended(&'a Part),
}

/// How a plan is to be run.
#[derive(Debug, Default)]
pub struct Campaign<'a> {
    /// Where results are kept; nowhere if `None`.
    pub store: Option<&'a Store>,
    /// Runs at a time; as many as there are cores if 0.
    pub jobs: usize,
    /// Once set, no further run is started.
    pub stop: Option<&'a AtomicBool>,
    /// The order of the runs.
    pub order: Order,
}

/// The order in which the runs of a plan take place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Several at a time, in the order of the plan.
    #[default]
    Plan,
    /// One at a time, in blocks. Of an earlier campaign, only runs that ended well are kept:
    /// whatever disturbed the machine may be over.
    Blocks {
        /// The seed of the order within blocks.
        seed: u64,
        /// Whether the first missing block is run once beforehand and discarded, so that caches
        /// fill and processors reach their clock rate.
        warm_up: bool,
    },
}

/// The results of a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Results {
    /// The runs that ended, in the order of the plan.
    pub parts: Vec<Part>,
    /// Runs that were not started.
    pub missing: usize,
}

impl Campaign<'_> {
    /// Runs whatever `plan` still lacks.
    ///
    /// # Errors
    /// [`StoreError`] if a result could not be kept; runs in progress are finished first.
    pub fn run(
        &self,
        plan: &Plan,
        backend: &dyn Backend,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Results, StoreError> {
        if let Some(store) = self.store {
            store.keep_files(&plan.files)?;
        }
        let binary = backend.program();
        let failure: Mutex<Option<StoreError>> = Mutex::new(None);
        let known = |run: &Run| {
            let part = self.store?.part(&run.id, &binary)?;
            let settled = matches!(part.outcome.status, Status::Ok | Status::Timeout);
            let usable = settled || self.order == Order::Plan;
            (usable && part.backend == backend.name()).then_some(part)
        };
        let one = |run: &Run| -> Option<Part> {
            if let Some(part) = known(run) {
                progress(Progress::Found(&part));
                return Some(part);
            }
            if self.is_stopped() || held(&failure).is_some() {
                return None;
            }
            let part = part(run, backend, &binary);
            if backend.was_broken_off() {
                return None;
            }
            if let Some(Err(error)) = self.store.map(|store| store.keep(&part)) {
                // The first error is reported; if results cannot be stored, going on is pointless.
                held(&failure).get_or_insert(error);
                return None;
            }
            progress(Progress::Ended(&part));
            Some(part)
        };
        let parts = match self.order {
            Order::Plan => in_parallel(self.jobs, &plan.runs, |run| backend.takes_turns(run), one),
            Order::Blocks { seed, warm_up } => {
                let blocks = plan.blocks(seed);
                let missing =
                    |block: &&Vec<usize>| block.iter().any(|at| known(&plan.runs[*at]).is_none());
                if let Some(block) = blocks.iter().find(missing).filter(|_| warm_up) {
                    for at in block {
                        if !self.is_stopped() {
                            backend.run(&plan.runs[*at]);
                        }
                    }
                }
                let mut parts = vec![None; plan.runs.len()];
                for at in blocks.into_iter().flatten() {
                    parts[at] = one(&plan.runs[at]);
                }
                parts
            }
        };
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let missing = parts.iter().filter(|part| part.is_none()).count();
        Ok(Results {
            parts: parts.into_iter().flatten().collect(),
            missing,
        })
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// Does `one` with each item, this many at a time or, if 0, as many as there are cores. Those that
/// take turns are done one after another, beside the others. The results are in the order of the
/// items.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    takes_turns: impl Fn(&T) -> bool,
    one: impl Fn(&T) -> R + Sync + Send,
) -> Vec<R> {
    let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(jobs).build() else {
        // If no thread can be started, they take place one after another.
        return items.iter().map(one).collect();
    };
    let (turns, beside): (Vec<_>, Vec<_>) = items
        .iter()
        .enumerate()
        .partition(|(_, item)| takes_turns(item));
    let done = |(at, item): (usize, &T)| (at, one(item));
    let (mut results, others) = pool.install(|| {
        rayon::join(
            || turns.into_iter().map(done).collect::<Vec<_>>(),
            || {
                let beside = beside.into_par_iter().with_max_len(1).map(done);
                beside.collect::<Vec<_>>()
            },
        )
    });
    results.extend(others);
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Locks a mutex even if a thread panicked while it held it.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn part(run: &Run, backend: &dyn Backend, binary: &str) -> Part {
    let transport = &run.scenario.transport;
    let name = |spec: &Option<anabranch_proto::spec::Spec>| {
        spec.as_ref().map(ToString::to_string).unwrap_or_default()
    };
    Part {
        schema: SCHEMA_VERSION,
        binary_hash: binary.to_owned(),
        run_id: run.id.clone(),
        scenario: run.scenario.name.clone(),
        backend: backend.name().to_owned(),
        contender: run.contender.clone(),
        single: run.single,
        scheduler: name(&transport.scheduler),
        congestion: name(&transport.congestion),
        swept: run.swept.as_ref().clone(),
        repetition: run.repetition,
        seed: run.seed.to_string(),
        // If the links do not have the scenario's rates, their sum means nothing.
        sum_rate_bps: run
            .scenario
            .sum_of_rates()
            .filter(|_| backend.shapes_links()),
        outcome: backend.run(run),
    }
}

/// A hash of the running program: results of different builds are not mixed.
pub fn binary_hash() -> String {
    let bytes = std::env::current_exe().and_then(std::fs::read);
    match bytes {
        Ok(bytes) => {
            let digest = Sha256::digest(&bytes);
            let first = digest.iter().take(8);
            let number = first.fold(0u64, |number, byte| (number << 8) | u64::from(*byte));
            format!("{number:016x}")
        }
        Err(_) => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Changes;
    use crate::results::Outcome;
    use crate::scenario::{Document, TEMPLATE};
    use std::path::Path;
    use std::sync::atomic::AtomicUsize;

    /// Does nothing but count its runs.
    #[derive(Debug, Default)]
    struct Counting {
        asked: AtomicUsize,
        stop_after: Option<(usize, AtomicBool)>,
    }

    impl Backend for Counting {
        fn name(&self) -> &'static str {
            "counting"
        }

        fn run(&self, run: &Run) -> Outcome {
            let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            if let Some((limit, stop)) = &self.stop_after {
                stop.store(asked >= *limit, Ordering::Relaxed);
            }
            Outcome {
                status: Status::Ok,
                goodput_bps: Some(run.seed as f64),
                ..Outcome::default()
            }
        }
    }

    fn plan() -> Plan {
        let document = Document::parse("t", TEMPLATE).unwrap();
        Plan::make(&document, &Changes::default()).unwrap()
    }

    #[test]
    fn results_come_in_the_order_of_the_plan_whatever_the_number_of_jobs() {
        let plan = plan();
        let run = |jobs| {
            let campaign = Campaign {
                jobs,
                ..Campaign::default()
            };
            campaign.run(&plan, &Counting::default(), &|_| {}).unwrap()
        };
        let ids: Vec<String> = run(3).parts.into_iter().map(|part| part.run_id).collect();
        let expected: Vec<&String> = plan.runs.iter().map(|run| &run.id).collect();
        assert_eq!(ids.iter().collect::<Vec<_>>(), expected);
        assert_eq!(run(1), run(4));
    }

    /// Notes whether two of the runs that take turns met.
    #[derive(Debug, Default)]
    struct Turns {
        under_way: AtomicUsize,
        met: AtomicBool,
    }

    impl Backend for Turns {
        fn name(&self) -> &'static str {
            "turns"
        }

        fn takes_turns(&self, run: &Run) -> bool {
            run.repetition.is_multiple_of(2)
        }

        fn run(&self, run: &Run) -> Outcome {
            if self.takes_turns(run) {
                let others = self.under_way.fetch_add(1, Ordering::SeqCst);
                self.met.fetch_or(others > 0, Ordering::SeqCst);
                std::thread::yield_now();
                self.under_way.fetch_sub(1, Ordering::SeqCst);
            }
            Outcome::default()
        }
    }

    #[test]
    fn runs_that_take_turns_never_meet_and_come_in_the_order_of_the_plan() {
        let (plan, backend) = (plan(), Turns::default());
        let campaign = Campaign {
            jobs: 4,
            ..Campaign::default()
        };
        let results = campaign.run(&plan, &backend, &|_| {}).unwrap();
        assert!(!backend.met.into_inner());
        let ids: Vec<&String> = results.parts.iter().map(|part| &part.run_id).collect();
        assert_eq!(ids, plan.runs.iter().map(|run| &run.id).collect::<Vec<_>>());
    }

    const TRACED: &str = r#"format = 1
name = "drive"
stop = "9s"
[[path]]
name = "lte"
forward = { trace = "../lte.trace" }
[[flow]]
kind = "bulk"
bytes = "1MB"
"#;

    fn plan_of(file: &Path) -> Result<Plan, crate::scenario::Mistake> {
        let text = std::fs::read_to_string(file).unwrap();
        let document = Document::parse(&file.display().to_string(), &text)?;
        Plan::make(&document, &Changes::default())
    }

    #[test]
    fn results_carry_their_traces_and_are_not_mixed_with_those_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, study) = (
            folder.path().join("lte.trace"),
            folder.path().join("a/study"),
        );
        std::fs::create_dir_all(&study).unwrap();
        let scenario = folder.path().join("a/drive.toml");
        std::fs::write(&trace, "10\n20\n").unwrap();
        std::fs::write(&scenario, TRACED).unwrap();
        let carried = |plan: &Plan| {
            let store = Store::open(&study, &plan.name, &plan.expanded, "counting").unwrap();
            let campaign = Campaign {
                store: Some(&store),
                ..Campaign::default()
            };
            campaign.run(plan, &Counting::default(), &|_| {})
        };
        let plan = plan_of(&scenario).unwrap();
        let ids = |plan: &Plan| {
            plan.runs
                .iter()
                .map(|run| run.id.clone())
                .collect::<Vec<_>>()
        };
        carried(&plan).unwrap();
        // A trace of the same name with other content is another experiment.
        std::fs::write(&trace, "10\n30\n").unwrap();
        let other = plan_of(&scenario).unwrap();
        assert_ne!(ids(&other), ids(&plan));
        let error = carried(&other).unwrap_err().to_string();
        assert!(error.contains("another `../lte.trace`"), "{error}");
        // Kept results can be read without the original files.
        std::fs::remove_file(&trace).unwrap();
        let moved = folder.path().join("moved");
        carried(&plan).unwrap();
        std::fs::rename(&study, &moved).unwrap();
        let kept = plan_of(&moved.join("campaign.toml")).unwrap();
        assert_eq!(ids(&kept), ids(&plan));
    }

    #[test]
    fn a_stopped_campaign_goes_on_where_it_stopped() {
        let plan = plan();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &plan.name, &plan.expanded, "sim").unwrap();
        let first = Counting {
            stop_after: Some((4, AtomicBool::new(false))),
            ..Counting::default()
        };
        let campaign = Campaign {
            store: Some(&store),
            jobs: 1,
            stop: first.stop_after.as_ref().map(|(_, stop)| stop),
            ..Campaign::default()
        };
        let results = campaign.run(&plan, &first, &|_| {}).unwrap();
        assert_eq!(
            (results.parts.len(), results.missing),
            (4, plan.runs.len() - 4)
        );
        let second = Counting::default();
        let campaign = Campaign {
            store: Some(&store),
            ..Campaign::default()
        };
        let results = campaign.run(&plan, &second, &|_| {}).unwrap();
        assert_eq!(results.missing, 0);
        assert_eq!(second.asked.load(Ordering::Relaxed), plan.runs.len() - 4);
    }

    #[test]
    fn without_a_place_for_results_no_further_run_begins() {
        let plan = plan();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &plan.name, &plan.expanded, "sim").unwrap();
        std::fs::remove_dir_all(folder.path().join("parts")).unwrap();
        let counting = Counting::default();
        let campaign = Campaign {
            store: Some(&store),
            order: Order::Blocks {
                seed: 1,
                warm_up: false,
            },
            ..Campaign::default()
        };
        let error = campaign.run(&plan, &counting, &|_| {}).unwrap_err();
        assert!(error.to_string().contains("parts"), "{error}");
        assert_eq!(counting.asked.into_inner(), 1);
    }

    /// Fails each run the first time and succeeds after that.
    #[derive(Debug, Default)]
    struct Moody(Mutex<Vec<String>>);

    impl Backend for Moody {
        fn name(&self) -> &'static str {
            "moody"
        }

        fn run(&self, run: &Run) -> Outcome {
            let mut asked = self.0.lock().unwrap();
            let status = if asked.contains(&run.id) {
                Status::Ok
            } else {
                Status::Invalid
            };
            asked.push(run.id.clone());
            Outcome {
                status,
                ..Outcome::default()
            }
        }
    }

    #[test]
    fn blocks_run_again_what_did_not_end_well_or_another_backend_ran() {
        let plan = plan();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &plan.name, &plan.expanded, "sim").unwrap();
        let campaign = |warm_up| Campaign {
            store: Some(&store),
            order: Order::Blocks { seed: 1, warm_up },
            ..Campaign::default()
        };
        let counting = Counting::default();
        campaign(false).run(&plan, &counting, &|_| {}).unwrap();
        let moody = Moody::default();
        let first = campaign(false).run(&plan, &moody, &|_| {}).unwrap();
        assert_eq!(first.parts.len(), plan.runs.len());
        let invalid = |part: &Part| part.outcome.status == Status::Invalid;
        assert!(
            first.parts.iter().all(invalid),
            "what another ran is not taken"
        );
        let second = campaign(false).run(&plan, &moody, &|_| {}).unwrap();
        assert!(!second.parts.iter().any(invalid));
        let ids: Vec<&String> = second.parts.iter().map(|part| &part.run_id).collect();
        assert_eq!(ids, plan.runs.iter().map(|run| &run.id).collect::<Vec<_>>());
        campaign(true).run(&plan, &moody, &|_| {}).unwrap();
        let asked = moody.0.lock().unwrap().len();
        assert_eq!(
            asked,
            2 * plan.runs.len(),
            "nothing missing, nothing to warm up for"
        );
        let counting = Counting::default();
        campaign(true).run(&plan, &counting, &|_| {}).unwrap();
        let block = plan.blocks(1)[0].len();
        assert_eq!(counting.asked.into_inner(), plan.runs.len() + block);
    }
}
