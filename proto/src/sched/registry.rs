//! Schedulers by name, alone or inside wrappers: `[WRAPPER+...]NAME[:key=value,...]`.

use super::{
    Scheduler, adaptive_redundant, affinity, atsss, bandwidth_aware, blest, critical_redundant,
    cwnd_aware, daps, deadline_redundant, delivery_delay, dynamic_weighted, ecf, edpf, fdps, guard,
    idd, linger, min_rtt, mlppp, on_demand, osia, otias, priority, redundant, round_robin, sa_ecf,
    sttf, target_rate, weighted, window_score, wlb,
};
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
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    wrappers: Vec<Wrapper>,
}

impl Registry {
    /// The schedulers of this crate, the usual default first.
    pub fn builtin() -> Self {
        let entries = [
            min_rtt::ENTRY,
            round_robin::ENTRY,
            weighted::ENTRY,
            priority::ENTRY,
            redundant::ENTRY,
            dynamic_weighted::ENTRY,
            mlppp::ENTRY,
            delivery_delay::ENTRY,
            idd::ENTRY,
            osia::ENTRY,
            fdps::ENTRY,
            daps::ENTRY,
            otias::ENTRY,
            bandwidth_aware::ENTRY,
            on_demand::ENTRY,
            edpf::ENTRY,
            window_score::ENTRY,
            cwnd_aware::ENTRY,
            blest::ENTRY,
            ecf::ENTRY,
            sa_ecf::ENTRY,
            sttf::ENTRY,
            linger::ENTRY,
            adaptive_redundant::ENTRY,
            critical_redundant::ENTRY,
            deadline_redundant::ENTRY,
            target_rate::ENTRY,
            affinity::ENTRY,
            wlb::ENTRY,
            atsss::ENTRY,
        ];
        Self {
            entries: entries.to_vec(),
            wrappers: vec![guard::ENTRY],
        }
    }

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
        let entry = self.find(spec, name)?;
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
        let mut params = params.owned_by(entry.name);
        params.check(entry.params)?;
        let mut scheduler = (entry.build)(&mut params)?;
        params.finish()?;
        for (wrapper, mut own) in wrappers.into_iter().rev() {
            scheduler = (wrapper.build)(&mut own, scheduler)?;
            own.finish()?;
        }
        Ok(scheduler)
    }

    fn find(&self, spec: &Spec, name: &str) -> Result<&Entry, SpecError> {
        if let Some(entry) = self.entries.iter().find(|entry| entry.name == name) {
            return Ok(entry);
        }
        if self.wrappers.iter().any(|wrapper| wrapper.name == name) {
            let expected = "a wrapper needs a scheduler inside, as in guard+min-rtt";
            return Err(SpecError::syntax(spec, expected));
        }
        let known = self.entries.iter().map(|entry| entry.name);
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

    fn build(text: &str) -> Result<Box<dyn Scheduler>, String> {
        Registry::builtin()
            .build(&text.parse().unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_builtin_can_be_built_by_name_alone() {
        for entry in Registry::builtin().entries() {
            assert!(build(entry.name).is_ok(), "{}", entry.name);
            assert!(!entry.summary.is_empty());
        }
    }

    #[test]
    fn every_documented_parameter_is_taken() {
        for entry in Registry::builtin().entries() {
            for doc in entry.params {
                // A value no parameter can have is refused by its value, not by its key.
                let message = build(&format!("{}:{}=?", entry.name, doc.key)).unwrap_err();
                assert!(message.contains("cannot use"), "{message}");
            }
        }
    }

    #[test]
    fn mistakes_name_what_is_nearest() {
        let message = build("round-robbin").unwrap_err();
        assert!(message.contains("did you mean `round-robin`?"), "{message}");
        let message = build("weighted:wight=1/2").unwrap_err();
        assert!(message.contains("did you mean `weights`?"), "{message}");
        let message = build("priority:mode=strickt").unwrap_err();
        assert!(message.contains("expected backup or strict"), "{message}");
    }

    #[test]
    fn every_wrapper_goes_around_every_scheduler() {
        let registry = Registry::builtin();
        for wrapper in registry.wrappers() {
            assert!(!wrapper.summary.is_empty());
            for entry in registry.entries() {
                assert!(build(&format!("{}+{}", wrapper.name, entry.name)).is_ok());
            }
            for doc in wrapper.params {
                let text = format!("{0}+min-rtt:{0}.{1}=?", wrapper.name, doc.key);
                let message = build(&text).unwrap_err();
                assert!(message.contains("cannot use"), "{message}");
            }
        }
    }

    #[test]
    fn parameters_belong_to_the_one_they_name() {
        assert!(build("guard+blest:scale=1.1,guard.margin=0.9").is_ok());
        let message = build("guard+blest:margin=0.9").unwrap_err();
        assert!(
            message.starts_with("`blest` has no parameter `margin`"),
            "{message}"
        );
        let message = build("guard+blest:guard.margn=0.9").unwrap_err();
        assert!(
            message.starts_with("`guard` has no parameter `margn`"),
            "{message}"
        );
        assert!(message.contains("did you mean `margin`?"), "{message}");
        let message = build("blest:guard.margin=0.9").unwrap_err();
        assert!(message.contains("no parameter `guard.margin`"), "{message}");
        let message = build("guard+blest:guard.margin=2").unwrap_err();
        assert!(
            message.starts_with("`guard` cannot use `margin=2`"),
            "{message}"
        );
    }

    #[test]
    fn a_chain_that_makes_no_sense_is_refused() {
        for (text, expected) in [
            ("guard", "a wrapper needs a scheduler inside"),
            ("min-rtt+guard", "a wrapper needs a scheduler inside"),
            (
                "gard+min-rtt",
                "there is no wrapper `gard`, did you mean `guard`?",
            ),
            ("guard+guard+min-rtt", "each wrapper comes once"),
            ("min-rtt+blest", "there is no wrapper `min-rtt`"),
            (
                "guard+blesst",
                "there is no scheduler `blesst`, did you mean `blest`?",
            ),
        ] {
            let message = build(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
        assert!("guard+".parse::<Spec>().is_err() && "+blest".parse::<Spec>().is_err());
    }

    #[test]
    fn a_program_can_add_and_replace_wrappers() {
        let own = Wrapper {
            name: "own",
            summary: "nothing",
            params: &[],
            build: |_, inner| Ok(inner),
        };
        let mut registry = Registry::builtin();
        registry.register_wrapper(own);
        let chain = "own+guard+min-rtt:guard.margin=0.5,idle=hold";
        assert!(registry.build(&chain.parse().unwrap()).is_ok());
        let count = registry.wrappers().len();
        registry.register_wrapper(own);
        assert_eq!(registry.wrappers().len(), count);
    }

    #[test]
    fn a_program_can_add_and_replace_schedulers() {
        let own = Entry {
            name: "own",
            summary: "mine",
            params: &[],
            build: |_| Ok(Box::new(MinRtt::default())),
        };
        let mut registry = Registry::builtin();
        let before = registry.entries().len();
        registry.register(own);
        assert!(registry.build(&"own".parse().unwrap()).is_ok());
        assert!(registry.build(&"own:x=1".parse().unwrap()).is_err());
        registry.register(Entry {
            summary: "mine, again",
            ..own
        });
        assert_eq!(registry.entries().len(), before + 1);
        assert_eq!(
            registry.entries().last().map(|entry| entry.summary),
            Some("mine, again")
        );
    }
}
