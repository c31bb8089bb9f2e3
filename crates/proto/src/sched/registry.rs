//! Schedulers by name, alone or inside wrappers: `[WRAPPER+...]NAME[:key=value,...]`.

use super::{Scheduler, SchedulerFactory, min_rtt};
pub use crate::spec::ParamDoc;
use crate::spec::{Params, Spec, SpecError};

/// One scheduler that can be asked for by name.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// What users type: lower case, dashes between words.
    pub name: &'static str,
    /// One line for the list.
    pub summary: &'static str,
    /// Every parameter that `build` takes.
    pub params: &'static [ParamDoc],
    /// Makes one scheduler for one connection.
    pub build: fn(&mut Params) -> Result<Box<dyn Scheduler>, SpecError>,
}

/// Takes its parameters and a scheduler, and returns it wrapped.
pub type Wrap = fn(&mut Params, Box<dyn Scheduler>) -> Result<Box<dyn Scheduler>, SpecError>;

/// A scheduler around another one: it may change what that one sees and what it answers.
///
/// `guard+blest` names the wrapper `guard` around `blest`; the wrapper's parameters carry its name,
/// as in `guard+blest:scale=1.1,guard.margin=0.9`.
#[derive(Debug, Clone, Copy)]
pub struct Wrapper {
    /// What users type: lower case, dashes between words.
    pub name: &'static str,
    /// One line for the list.
    pub summary: &'static str,
    /// Every parameter that `build` takes, without the wrapper's name before it.
    pub params: &'static [ParamDoc],
    /// Wraps one scheduler.
    pub build: Wrap,
}

/// The schedulers and wrappers a program offers.
#[derive(Debug, Clone)]
pub struct Registry {
    entries: Vec<Entry>,
    made: Vec<SchedulerFactory>,
    wrappers: Vec<Wrapper>,
}

/// What a name stands for.
enum Found<'a> {
    Entry(&'a Entry),
    Made(&'a SchedulerFactory),
}

/// The plain policy, `min-rtt`, alone.
impl Default for Registry {
    fn default() -> Self {
        Self {
            entries: vec![min_rtt::ENTRY],
            made: Vec::new(),
            wrappers: Vec::new(),
        }
    }
}

impl Registry {
    /// Adds a scheduler. One that has the same name already is replaced.
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

    /// Adds a scheduler under its factory's name, for programs that learn of it while they run: one
    /// written in another language, for example. It takes no parameters, and wrappers go around it
    /// as around any other. It comes before an [`Entry`] of the same name.
    pub fn register_factory(&mut self, factory: SchedulerFactory) {
        let same = |known: &&mut SchedulerFactory| known.name() == factory.name();
        match self.made.iter_mut().find(same) {
            Some(known) => *known = factory,
            None => self.made.push(factory),
        }
    }

    /// Adds a wrapper. One that has the same name already is replaced.
    pub fn register_wrapper(&mut self, wrapper: Wrapper) {
        let mut known = self.wrappers.iter_mut();
        match known.find(|known| known.name == wrapper.name) {
            Some(known) => *known = wrapper,
            None => self.wrappers.push(wrapper),
        }
    }

    /// A scheduler as `spec` asks for it, inside the wrappers named before it.
    ///
    /// # Errors
    ///
    /// [`SpecError`] with a message for a person if there is no such scheduler, wrapper or
    /// parameter, or if a value cannot be used.
    pub fn build(&self, spec: &Spec) -> Result<Box<dyn Scheduler>, SpecError> {
        let (around, name) = match spec.name.rsplit_once('+') {
            Some((around, name)) => (around.split('+').collect(), name),
            None => (Vec::new(), spec.name.as_str()),
        };
        let found = self.find(spec, name)?;
        let mut params = spec.params.clone();
        let mut wrappers = Vec::with_capacity(around.len());
        for (at, name) in around.iter().enumerate() {
            if around[..at].contains(name) {
                return Err(SpecError::syntax(spec, "each wrapper comes once"));
            }
            let Some(wrapper) = self.wrappers.iter().find(|wrapper| wrapper.name == *name) else {
                let known = self.wrappers.iter().map(|wrapper| wrapper.name);
                return Err(SpecError::unknown_name("wrapper", name, known));
            };
            let own = params.split_off(wrapper.name);
            own.check(wrapper.params)?;
            wrappers.push((wrapper, own));
        }
        let mut params = params.owned_by(name);
        let mut scheduler = match found {
            Found::Entry(entry) => {
                params.check(entry.params)?;
                (entry.build)(&mut params)?
            }
            Found::Made(factory) => {
                params.check(&[])?;
                factory.build()
            }
        };
        params.finish()?;
        for (wrapper, mut own) in wrappers.into_iter().rev() {
            scheduler = (wrapper.build)(&mut own, scheduler)?;
            own.finish()?;
        }
        Ok(scheduler)
    }

    fn find(&self, spec: &Spec, name: &str) -> Result<Found<'_>, SpecError> {
        if let Some(factory) = self.made.iter().find(|made| made.name() == name) {
            return Ok(Found::Made(factory));
        }
        if let Some(entry) = self.entries.iter().find(|entry| entry.name == name) {
            return Ok(Found::Entry(entry));
        }
        if self.wrappers.iter().any(|wrapper| wrapper.name == name) {
            let expected = "a wrapper needs a scheduler inside, as in guard+min-rtt";
            return Err(SpecError::syntax(spec, expected));
        }
        let made = self.made.iter().map(SchedulerFactory::name);
        let known = self.entries.iter().map(|entry| entry.name).chain(made);
        Err(SpecError::unknown_name("scheduler", name, known))
    }

    /// What there is, in order of registration.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The wrappers, in order of registration.
    pub fn wrappers(&self) -> &[Wrapper] {
        &self.wrappers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::MinRtt;

    const OWN: Entry = Entry {
        name: "own",
        summary: "mine",
        params: &[],
        build: |_| Ok(Box::new(MinRtt)),
    };

    const AROUND: Wrapper = Wrapper {
        name: "around",
        summary: "nothing",
        params: &[ParamDoc {
            key: "margin",
            default: "1",
            summary: "ignored",
        }],
        build: |params, inner| {
            params.take_in("margin", 1.0, 0.0..=1.0)?;
            Ok(inner)
        },
    };

    fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.register(OWN);
        registry.register_wrapper(AROUND);
        registry.register_wrapper(Wrapper {
            name: "beside",
            params: &[],
            build: |_, inner| Ok(inner),
            ..AROUND
        });
        registry
    }

    fn build(text: &str) -> Result<Box<dyn Scheduler>, String> {
        registry()
            .build(&text.parse().unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn parameters_go_to_the_wrapper_that_they_name() {
        assert!(build("around+own:around.margin=0.9").is_ok());
        assert!(build("beside+around+own:around.margin=0.9").is_ok());
        for (text, expected) in [
            ("around+own:margin=0.9", "`own` has no parameter `margin`"),
            ("around+own:around.margn=0.9", "did you mean `margin`?"),
            ("own:around.margin=0.9", "no parameter `around.margin`"),
            (
                "around+own:around.margin=2",
                "`around` cannot use `margin=2`",
            ),
        ] {
            let message = build(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn what_a_factory_makes_is_a_scheduler_without_parameters_like_any_other() {
        let mut registry = registry();
        registry.register_factory(SchedulerFactory::from_fn("mine", || Box::new(MinRtt)));
        let build = |text: &str| registry.build(&text.parse().unwrap()).map(|_| ());
        assert!(build("mine").is_ok() && build("around+mine:around.margin=0.9").is_ok());
        let error = |text| build(text).unwrap_err().to_string();
        assert!(error("mine:margin=1").contains("`mine` has no parameter `margin`"));
        assert!(error("mime").contains("did you mean `mine`?"));
    }

    #[test]
    fn a_chain_that_makes_no_sense_is_refused() {
        for (text, expected) in [
            ("around", "a wrapper needs a scheduler inside"),
            ("own+around", "a wrapper needs a scheduler inside"),
            ("arund+own", "did you mean `around`?"),
            ("around+around+own", "each wrapper comes once"),
            ("own+min-rtt", "there is no wrapper `own`"),
            ("around+min-rrt", "did you mean `min-rtt`?"),
        ] {
            let message = build(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
        assert!("around+".parse::<Spec>().is_err() && "+own".parse::<Spec>().is_err());
    }

    #[test]
    fn a_program_can_add_and_replace_wrappers() {
        let mut registry = registry();
        let count = registry.wrappers().len();
        registry.register_wrapper(AROUND);
        assert_eq!(registry.wrappers().len(), count);
    }

    #[test]
    fn a_program_can_add_and_replace_schedulers() {
        let mut registry = Registry::default();
        let before = registry.entries().len();
        registry.register(OWN);
        assert!(registry.build(&"own".parse().unwrap()).is_ok());
        assert!(registry.build(&"own:x=1".parse().unwrap()).is_err());
        registry.register(Entry {
            summary: "mine, again",
            ..OWN
        });
        assert_eq!(registry.entries().len(), before + 1);
        let last = registry.entries().last().map(|entry| entry.summary);
        assert_eq!(last, Some("mine, again"));
    }
}
