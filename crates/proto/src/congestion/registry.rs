//! Congestion controllers by name.

use super::{Controller, balia, bbr, cmt, constant, cubic, lia, new_reno, olia, westwood, wvegas};
pub use crate::spec::ParamDoc;
use crate::spec::{Params, Spec, SpecError};
use crate::time::Instant;
use anabranch_wire::PathId;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// What a controller is made for.
#[derive(Debug, Clone, Copy)]
pub struct ControllerInit {
    /// Bytes of the largest datagram on the path.
    pub max_datagram_size: u16,
    /// The time.
    pub now: Instant,
    /// A random number, for controllers that spread their probes.
    pub seed: u64,
    /// The path.
    pub path: PathId,
}

/// Makes one controller.
pub type Build = fn(&mut Params, &ControllerInit) -> Result<Box<dyn Controller>, SpecError>;

/// One controller that can be asked for by name.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What users type: lower case, dashes between words.
    pub name: &'static str,
    /// One line for the list.
    pub summary: &'static str,
    /// Every parameter that `build` takes.
    pub params: &'static [ParamDoc],
    /// Makes one controller for one route.
    pub build: Build,
}

/// The controllers a program offers.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    made: Vec<ControllerFactory>,
}

impl Registry {
    /// The controllers of this crate, the default first.
    pub fn builtin() -> Self {
        Self {
            entries: vec![
                cubic::ENTRY,
                new_reno::ENTRY,
                bbr::ENTRY,
                lia::ENTRY,
                olia::ENTRY,
                balia::ENTRY,
                wvegas::ENTRY,
                cmt::PLAIN,
                cmt::RPV1,
                cmt::RPV2,
                westwood::ENTRY,
                constant::ENTRY,
            ],
            made: Vec::new(),
        }
    }

    /// Adds a controller. One that has the same name already is replaced.
    pub fn register(&mut self, entry: Entry) {
        match self
            .entries
            .iter_mut()
            .find(|known| known.name == entry.name)
        {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// Adds what a factory makes under the factory's name, for programs that learn of a controller
    /// while they run: one written in another language, for example. It takes no parameters. It
    /// comes before an [`Entry`] of the same name.
    pub fn register_factory(&mut self, factory: ControllerFactory) {
        let same = |known: &&mut ControllerFactory| known.name() == factory.name();
        match self.made.iter_mut().find(same) {
            Some(known) => *known = factory,
            None => self.made.push(factory),
        }
    }

    /// What makes the controllers that `spec` asks for.
    ///
    /// # Errors
    ///
    /// [`SpecError`] with a message for a person if there is no such controller or parameter, or if
    /// a value cannot be used.
    pub fn factory(&self, spec: &Spec) -> Result<ControllerFactory, SpecError> {
        if let Some(made) = self.made.iter().find(|made| made.name() == spec.name) {
            let params = spec.params.clone().owned_by(made.name());
            params.check(&[])?;
            params.finish()?;
            return Ok(made.clone());
        }
        let Some(entry) = self.entries.iter().find(|entry| entry.name == spec.name) else {
            let made = self.made.iter().map(ControllerFactory::name);
            let known = self.entries.iter().map(|entry| entry.name).chain(made);
            return Err(SpecError::unknown_name(
                "congestion control",
                &spec.name,
                known,
            ));
        };
        spec.params.check(entry.params)?;
        let mut params = spec.params.clone();
        (entry.build)(&mut params, &TRIAL)?;
        params.finish()?;
        Ok(ControllerFactory::of(*entry, spec.params.clone()))
    }

    /// What there is, in order of registration.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// For the controller that is made only to see whether its parameters can be used.
const TRIAL: ControllerInit = ControllerInit {
    max_datagram_size: 1200,
    now: Instant::ZERO,
    seed: 0,
    path: PathId(0),
};

/// Makes a controller for each route.
#[derive(Clone)]
pub struct ControllerFactory {
    name: Arc<str>,
    /// Shown to people.
    params: Arc<Params>,
    build: Arc<BuildChecked>,
}

/// Makes one controller, from parameters that were checked.
type BuildChecked = dyn Fn(&ControllerInit) -> Box<dyn Controller> + Send + Sync;

impl ControllerFactory {
    /// Calls `build` for each route. `name` is for people, and for who registers it.
    pub fn from_fn(
        name: impl Into<Arc<str>>,
        build: impl Fn(&ControllerInit) -> Box<dyn Controller> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            params: Arc::default(),
            build: Arc::new(build),
        }
    }

    /// From parameters that were checked.
    fn of(entry: Entry, params: Params) -> Self {
        let params = Arc::new(params);
        let given = Arc::clone(&params);
        let build = move |init: &ControllerInit| {
            let mut params = Params::clone(&given);
            (entry.build)(&mut params, init).expect("the parameters built a controller before")
        };
        Self {
            params,
            ..Self::from_fn(entry.name, build)
        }
    }

    /// The controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A controller for one route.
    pub fn build(&self, init: &ControllerInit) -> Box<dyn Controller> {
        (self.build)(init)
    }
}

impl Default for ControllerFactory {
    /// CUBIC, which unlike most of the Internet's puts few losses without a queue down to chance.
    fn default() -> Self {
        Self::of(cubic::ENTRY, Params::default())
    }
}

// A factory makes something new each time: what an unwinding interrupted is not seen again.
impl UnwindSafe for ControllerFactory {}
impl RefUnwindSafe for ControllerFactory {}

impl fmt::Debug for ControllerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerFactory")
            .field("name", &self.name)
            .field("params", &self.params)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factory(text: &str) -> Result<ControllerFactory, String> {
        Registry::builtin()
            .factory(&text.parse().unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_builtin_can_be_built_by_name_alone() {
        for entry in Registry::builtin().entries() {
            let factory = factory(entry.name).unwrap();
            assert_eq!(factory.name(), entry.name);
            let controller = factory.build(&ControllerInit {
                max_datagram_size: 1400,
                ..TRIAL
            });
            assert_eq!(controller.window(), 14_000);
        }
        assert_eq!(ControllerFactory::default().name(), "cubic");
    }

    #[test]
    fn every_documented_parameter_is_taken() {
        for entry in Registry::builtin().entries() {
            for doc in entry.params {
                let message = factory(&format!("{}:{}=?", entry.name, doc.key)).unwrap_err();
                assert!(message.contains("cannot use"), "{message}");
            }
        }
    }

    #[test]
    fn mistakes_name_what_is_nearest() {
        let message = factory("reno").unwrap_err();
        assert!(
            message.contains("no congestion control `reno`"),
            "{message}"
        );
        assert!(message.contains("did you mean `new-reno`?"), "{message}");
        assert!(
            factory("cubic:hystrt=1")
                .unwrap_err()
                .contains("did you mean `hystart`?")
        );
        assert!(
            factory("new-reno:x=1")
                .unwrap_err()
                .contains("it takes initial-window")
        );
    }

    #[test]
    fn what_a_factory_makes_is_a_controller_without_parameters_like_any_other() {
        let mut registry = Registry::builtin();
        let own =
            ControllerFactory::from_fn("mine", |init| ControllerFactory::default().build(init));
        registry.register_factory(own);
        let factory = |text: &str| registry.factory(&text.parse().unwrap());
        assert_eq!(factory("mine").unwrap().name(), "mine");
        assert_eq!(factory("mine").unwrap().build(&TRIAL).window(), 12_000);
        let error = |text| factory(text).unwrap_err().to_string();
        assert!(error("mine:beta=1").contains("`mine` has no parameter `beta`"));
        assert!(error("mime").contains("did you mean `mine`?"));
    }

    #[test]
    fn a_factory_can_be_shared_between_threads() {
        fn is_shared<T: Clone + Send + Sync>(_: &T) {}
        is_shared(&ControllerFactory::default());
    }
}
