//! What a program offers by name: schedulers and congestion controllers.
//!
//! A program has one [`Names`], made where it starts and handed down to whatever reads names from
//! users: there is no global registry.

use anabranch_proto::congestion::{self, ControllerFactory};
use anabranch_proto::sched::{self, SchedulerFactory};
use anabranch_proto::spec::SpecError;

/// The schedulers and congestion controllers that can be chosen by name.
///
/// The default is everything that is built in. Those of one's own are registered beside them:
///
/// ```
/// use anabranch_schedulers::Names;
///
/// let mut names = Names::default();
/// // names.schedulers.register(MINE);
/// // names.controllers.register(MINE_TOO);
/// assert!(names.scheduler("tail+blest").is_ok());
/// let error = names.scheduler("blesd").unwrap_err();
/// assert!(error.to_string().contains("did you mean `blest`?"));
/// ```
#[derive(Debug, Clone)]
pub struct Names {
    /// Schedulers, and wrappers around them.
    pub schedulers: sched::Registry,
    /// Congestion controllers.
    pub controllers: congestion::Registry,
}

/// Everything that is built in.
impl Default for Names {
    fn default() -> Self {
        Self {
            schedulers: crate::builtin(),
            controllers: congestion::Registry::builtin(),
        }
    }
}

/// These schedulers, and the built-in controllers.
impl From<sched::Registry> for Names {
    fn from(schedulers: sched::Registry) -> Self {
        Self {
            schedulers,
            ..Self::default()
        }
    }
}

/// These controllers, and the built-in schedulers.
impl From<congestion::Registry> for Names {
    fn from(controllers: congestion::Registry) -> Self {
        Self {
            controllers,
            ..Self::default()
        }
    }
}

impl Names {
    /// The scheduler of this name and parameters.
    ///
    /// # Errors
    /// What is wrong with the text, with the closest known name.
    pub fn scheduler(&self, text: &str) -> Result<SchedulerFactory, SpecError> {
        SchedulerFactory::new(&self.schedulers, &text.parse()?)
    }

    /// The congestion controller of this name and parameters.
    ///
    /// # Errors
    /// What is wrong with the text, with the closest known name.
    pub fn controller(&self, text: &str) -> Result<ControllerFactory, SpecError> {
        self.controllers.factory(&text.parse()?)
    }
}
