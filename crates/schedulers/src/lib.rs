//! Packet schedulers for the engine of `anabranch-proto`, on its public interface alone.
//!
//! - [`builtin`] is the registry of all schedulers and wrappers, by name:
//!   `ecf:beta=0.5`, `tail+blest`, `guard+tail+min-rtt`.
//! - [`RECOMMENDED`] names the one to use unless there is reason for another; [`transport`] is the
//!   engine's configuration with it.
//! - [`Names`] is what a program offers by name, its own schedulers and controllers among it.
//! - [`Classes`] has one scheduler for each class of traffic, and [`steered`] the modes of ATSSS.
//! - [`table`] runs policies trained offline.
//! - [`toolkit`] is what the schedulers here are made of, for authors of new ones.
//!
//! ```
//! use anabranch_proto::sched::SchedulerFactory;
//!
//! let spec = "guard+ecf:beta=0.5".parse()?;
//! let scheduler = SchedulerFactory::new(&anabranch_schedulers::builtin(), &spec)?;
//! assert_eq!(scheduler.name(), "guard+ecf:beta=0.5");
//! # Ok::<(), anabranch_proto::spec::SpecError>(())
//! ```

mod catalogue;
mod classes;
mod names;
pub mod table;
#[cfg(test)]
mod tests;
pub mod toolkit;
mod wrappers;

pub use catalogue::atsss::{
    Atsss, ORDERED, Steering, SteeringAccess, SteeringError, SteeringMode, SteeringRule,
    UnknownMode, steered,
};
pub use classes::Classes;
pub use names::Names;

use anabranch_proto::config::TransportConfig;
use anabranch_proto::sched::{Registry, SchedulerFactory};

/// The scheduler to use unless there is reason for another. `docs/auto.md` says what it does.
pub const RECOMMENDED: &str = "auto";

/// Every scheduler and every wrapper, `min-rtt` first.
pub fn builtin() -> Registry {
    let mut registry = Registry::default();
    for entry in catalogue::ENTRIES {
        registry.register(entry);
    }
    for wrapper in wrappers::ENTRIES {
        registry.register_wrapper(wrapper);
    }
    registry
}

/// What [`RECOMMENDED`] names, for any number of connections.
pub fn recommended() -> SchedulerFactory {
    let spec = RECOMMENDED.parse().expect("the name is one of ours");
    SchedulerFactory::new(&builtin(), &spec).expect("the name is one of ours")
}

/// The defaults of the engine with the [recommended](RECOMMENDED) scheduler. The engine itself
/// knows the plain `min-rtt` alone, so that is what `TransportConfig::default()` has.
pub fn transport() -> TransportConfig {
    TransportConfig {
        scheduler: recommended(),
        ..TransportConfig::default()
    }
}
