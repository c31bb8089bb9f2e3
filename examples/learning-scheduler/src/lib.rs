//! A scheduler that learns: `peekaboo`, opt-in and outside the engine.
//!
//! When the fast path is full and a slow one is free, a contextual bandit (`LinUCB`) decides
//! whether to wait or to send, and is rewarded by how soon what it decided about was acknowledged.
//! It adapts the choice that ECF makes by a fixed rule to paths whose rates come in bursts; what it
//! gains depends on the paths, so it is an experiment and not a default. It takes itself out of
//! service if what it achieves falls behind the fixed rule.
//!
//! Wu et al., Peekaboo, IEEE JSAC 2020, in the form of its public ports. Deviations: the context is
//! normalised, as rates differ by a factor of a million, and what was learnt fades.
//!
//! ```
//! let spec = "peekaboo:alpha=0.5".parse()?;
//! let scheduler = learning_scheduler::registry().build(&spec)?;
//! # drop(scheduler);
//! # Ok::<(), anabranch_proto::spec::SpecError>(())
//! ```

pub mod bandit;
mod peekaboo;

pub use peekaboo::{PEEKABOO, Peekaboo};

use anabranch_proto::sched::Registry;

/// Adds this crate's scheduler to those a program offers.
pub fn register(registry: &mut Registry) {
    registry.register(PEEKABOO);
}

/// The built-in schedulers and this one.
pub fn registry() -> Registry {
    let mut registry = anabranch_schedulers::builtin();
    register(&mut registry);
    registry
}
