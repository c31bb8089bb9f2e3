//! Schedulers by name.

use super::{
    Scheduler, bandwidth_aware, cwnd_aware, daps, delivery_delay, dynamic_weighted, edpf, fdps,
    idd, min_rtt, mlppp, on_demand, osia, otias, priority, redundant, round_robin, weighted,
    window_score,
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

/// The schedulers a program offers.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    entries: Vec<Entry>,
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
        ];
        Self {
            entries: entries.to_vec(),
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

    /// A scheduler as `spec` asks for it.
    ///
    /// # Errors
    ///
    /// [`SpecError`] with a message for a person if there is no such scheduler or parameter, or if
    /// a value cannot be used.
    pub fn build(&self, spec: &Spec) -> Result<Box<dyn Scheduler>, SpecError> {
        let Some(entry) = self.entries.iter().find(|entry| entry.name == spec.name) else {
            let known = self.entries.iter().map(|entry| entry.name);
            return Err(SpecError::unknown_name("scheduler", &spec.name, known));
        };
        spec.params.check(entry.params)?;
        let mut params = spec.params.clone();
        let scheduler = (entry.build)(&mut params)?;
        params.finish()?;
        Ok(scheduler)
    }

    /// What there is, in order of registration.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
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
