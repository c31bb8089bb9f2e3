//! How jobs write values of crates without serde: as the words that scenarios use for them.

use anabranch_proto::config::{RetransmissionPolicy, Split};
use anabranch_proto::spec::{Spec, SpecError};
use anabranch_sim::profile::Profile;
use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::str::FromStr;

/// The profiles.
pub(super) const PROFILES: [(&str, Profile); 4] = {
    let [a, b, c, d] = Profile::ALL;
    [(a.name(), a), (b.name(), b), (c.name(), c), (d.name(), d)]
};

/// Which path carries a retransmission.
pub(super) const POLICIES: [(&str, RetransmissionPolicy); 6] = [
    ("scheduler", RetransmissionPolicy::Scheduler),
    ("same", RetransmissionPolicy::Same),
    ("asap", RetransmissionPolicy::Asap),
    ("cwnd", RetransmissionPolicy::LargestWindow),
    ("ssthresh", RetransmissionPolicy::LargestThreshold),
    ("loss-rate", RetransmissionPolicy::LowestLoss),
];

/// How buffers are shared between paths.
pub(super) const SPLITS: [(&str, Split); 3] = [
    ("shared", Split::Off),
    ("equal", Split::Equal),
    ("proportional", Split::Proportional),
];

/// A value with a word for it.
pub(crate) trait Worded: Sized {
    /// The word.
    fn word(&self) -> String;

    /// What the word stands for, or what is wrong with it.
    fn named(word: &str) -> Result<Self, String>;
}

impl Worded for Spec {
    fn word(&self) -> String {
        self.to_string()
    }

    fn named(word: &str) -> Result<Self, String> {
        parsed(word)
    }
}

impl Worded for Profile {
    fn word(&self) -> String {
        self.to_string()
    }

    fn named(word: &str) -> Result<Self, String> {
        parsed(word)
    }
}

impl Worded for RetransmissionPolicy {
    fn word(&self) -> String {
        word_in(&POLICIES, self).to_owned()
    }

    fn named(word: &str) -> Result<Self, String> {
        named_in(&POLICIES, word)
    }
}

impl Worded for Split {
    fn word(&self) -> String {
        word_in(&SPLITS, self).to_owned()
    }

    fn named(word: &str) -> Result<Self, String> {
        named_in(&SPLITS, word)
    }
}

fn parsed<T: FromStr<Err = SpecError>>(word: &str) -> Result<T, String> {
    word.parse().map_err(|error: SpecError| error.to_string())
}

/// The word that a list has for a value.
pub(super) fn word_in<T: PartialEq>(known: &[(&'static str, T)], value: &T) -> &'static str {
    let found = known.iter().find(|(_, one)| one == value);
    found.expect("tests find a word for every value").0
}

fn named_in<T: Copy>(known: &[(&str, T)], word: &str) -> Result<T, String> {
    let found = known.iter().find(|(one, _)| *one == word);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("no such word: `{word}`"))
}

/// Writes the word.
pub(crate) fn serialize<T: Worded, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&value.word())
}

/// Reads the word.
pub(crate) fn deserialize<'de, T: Worded, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::named(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// The same for values that may be left out.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Error, Serializer, Worded};

    /// Writes the word, if there is a value.
    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(crate) fn serialize<T: Worded, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(&value.word()),
            None => to.serialize_none(),
        }
    }

    /// Reads the word, if there is one.
    pub(crate) fn deserialize<'de, T: Worded, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        let word = Option::<String>::deserialize(from)?;
        let value = word.map(|word| T::named(&word)).transpose();
        value.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;

    fn comes_back<T: Worded + PartialEq + Debug>(value: &T) {
        assert_eq!(T::named(&value.word()).as_ref(), Ok(value));
    }

    #[test]
    fn every_value_is_what_its_word_stands_for() {
        Profile::ALL.iter().for_each(comes_back);
        RetransmissionPolicy::ALL.iter().for_each(comes_back);
        [Split::Off, Split::Equal, Split::Proportional]
            .iter()
            .for_each(comes_back);
        let spec = "tail+weighted:weights=1/2,weighted.mode=hold";
        comes_back(&spec.parse::<Spec>().unwrap());
    }

    #[test]
    fn every_kind_of_transport_has_a_word() {
        use crate::scenario::{KINDS, Kind};
        for kind in [
            Kind::Anabranch,
            Kind::Tcp,
            Kind::Bonding,
            Kind::Mlppp,
            Kind::Tunnel,
            Kind::KernelMptcp,
            Kind::MptcpProxy,
            Kind::Command,
        ] {
            assert_ne!(word_in(&KINDS, &kind), "");
        }
    }

    #[test]
    fn a_word_that_stands_for_nothing_is_told() {
        assert!(Split::named("off").unwrap_err().contains("`off`"));
        let told = Profile::named("cmt-stcp").unwrap_err();
        assert!(told.contains("did you mean `cmt-sctp`?"), "{told}");
    }
}
