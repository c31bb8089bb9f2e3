//! Names, parameters and wrappers of the catalogue.

use crate::builtin;
use anabranch_proto::sched::Scheduler;
use anabranch_proto::spec::Spec;

fn build(text: &str) -> Result<Box<dyn Scheduler>, String> {
    builtin()
        .build(&text.parse().unwrap())
        .map_err(|error| error.to_string())
}

#[test]
fn every_builtin_can_be_built_by_name_alone() {
    for entry in builtin().entries() {
        assert!(build(entry.name).is_ok(), "{}", entry.name);
        assert!(!entry.summary.is_empty());
    }
}

#[test]
fn every_documented_parameter_is_taken() {
    for entry in builtin().entries() {
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
    let registry = builtin();
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
fn wrappers_compose_in_any_order() {
    for text in [
        "tail+ecf",
        "guard+tail+min-rtt",
        "tail+guard+min-rtt:guard.margin=0.9",
        "probe+copies+guard+tail+blest:copies.mode=idle,probe.rtts=7,scale=1.1",
    ] {
        assert!(build(text).is_ok(), "{text}");
    }
    for (text, expected) in [
        (
            "tial+ecf",
            "there is no wrapper `tial`, did you mean `tail`?",
        ),
        ("tail+tail+ecf", "each wrapper comes once"),
        ("ecf+tail", "a wrapper needs a scheduler inside"),
        ("ecf+min-rtt", "there is no wrapper `ecf`"),
        ("tail+ecff", "did you mean `ecf`?"),
        (
            "copies+ecf:copies.mode=idel",
            "expected opportunistic or idle",
        ),
    ] {
        let message = build(text).unwrap_err();
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn what_is_recommended_is_one_of_ours() {
    assert_eq!(crate::recommended().name(), crate::RECOMMENDED);
}
