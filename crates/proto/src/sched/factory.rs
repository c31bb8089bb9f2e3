//! One scheduler for each connection.

use super::{MinRtt, Registry, Scheduler};
use crate::spec::{Spec, SpecError};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// Builds the scheduler of each connection that shares a configuration.
#[derive(Clone)]
pub struct SchedulerFactory {
    name: String,
    build: Arc<dyn Fn() -> Box<dyn Scheduler> + Send + Sync>,
}

impl SchedulerFactory {
    /// Builds what `spec` names in `registry`.
    ///
    /// # Errors
    /// As [`Registry::build`]: the name or a parameter is unknown, or a value is out of range.
    pub fn new(registry: &Registry, spec: &Spec) -> Result<Self, SpecError> {
        registry.build(spec)?;
        let (registry, of) = (registry.clone(), spec.clone());
        let build = move || {
            registry
                .build(&of)
                .expect("the same specification was built before")
        };
        Ok(Self {
            name: spec.to_string(),
            build: Arc::new(build),
        })
    }

    /// Calls `build` for each connection; `name` is for people.
    pub fn from_fn(
        name: impl Into<String>,
        build: impl Fn() -> Box<dyn Scheduler> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            build: Arc::new(build),
        }
    }

    /// The name of the schedulers it builds.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A new scheduler.
    pub fn build(&self) -> Box<dyn Scheduler> {
        (self.build)()
    }
}

// A factory makes something new each time: what an unwinding interrupted is not seen again.
impl UnwindSafe for SchedulerFactory {}
impl RefUnwindSafe for SchedulerFactory {}

/// The plain `min-rtt`.
impl Default for SchedulerFactory {
    fn default() -> Self {
        Self::from_fn("min-rtt", || Box::new(MinRtt))
    }
}

impl fmt::Debug for SchedulerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SchedulerFactory").field(&self.name).finish()
    }
}
