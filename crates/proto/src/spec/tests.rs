//! What spec must do.

use super::*;
use proptest::prelude::*;

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

#[test]
fn a_name_alone_has_no_parameters() {
    let spec = spec("min-rtt");
    assert_eq!(spec.name, "min-rtt");
    assert_eq!(spec.params.finish(), Ok(()));
}

#[test]
fn parameters_are_taken_with_their_types() {
    let mut params = spec("x:count=3,rate=1.5,fast,slow=false,weights=1/1/2,mode=hold").params;
    assert_eq!(params.take("count", 0_u32), Ok(3));
    assert_eq!(params.take("rate", 0.0_f64), Ok(1.5));
    assert_eq!(params.flag("fast"), Ok(true));
    assert_eq!(params.flag("slow"), Ok(false));
    assert_eq!(params.flag("absent"), Ok(false));
    assert_eq!(params.list::<u32>("weights"), Ok(vec![1, 1, 2]));
    assert_eq!(params.choice("mode", 1, &[("skip", 1), ("hold", 2)]), Ok(2));
    assert_eq!(params.take("other", 7_u64), Ok(7));
    assert_eq!(params.finish(), Ok(()));
}

#[test]
fn a_program_gives_a_parameter_that_its_user_did_not() {
    let given = |text: &str| {
        let mut spec = spec(text);
        spec.params.give_unless_given("window", 4);
        spec.to_string()
    };
    assert_eq!(given("x"), "x:window=4");
    assert_eq!(given("x:mode=window"), "x:mode=window,window=4");
    assert_eq!(given("x:window=2"), "x:window=2");
}

#[test]
fn text_that_is_no_spec_is_refused() {
    for text in [
        "",
        ":",
        "a b",
        "x:",
        "x:=1",
        "x:k=",
        "x:k=1,k=2",
        "x:k=1,,l=2",
        "Ü",
    ] {
        assert!(
            matches!(text.parse::<Spec>(), Err(SpecError::Syntax { .. })),
            "{text}"
        );
    }
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    let mut params = spec("weighted:wieghts=1/2").params;
    params.list::<u32>("weights").unwrap();
    params.take("mode", 0_u32).unwrap();
    let message = params.finish().unwrap_err().to_string();
    assert_eq!(
        message,
        "`weighted` has no parameter `wieghts`, did you mean `weights`?; it takes weights, mode"
    );
}

#[test]
fn a_bad_value_says_what_was_expected() {
    let mut params = spec("x:count=many,size=9,list=1/z,mode=sideways,rate=NaN").params;
    let message = params.take("count", 0_u32).unwrap_err().to_string();
    assert_eq!(
        message,
        "`x` cannot use `count=many`: expected a whole number from 0 to 4294967295"
    );
    let message = params
        .take_in("size", 1_u32, 1..=8)
        .unwrap_err()
        .to_string();
    assert_eq!(message, "`x` cannot use `size=9`: expected from 1 to 8");
    assert!(
        params
            .list::<u32>("list")
            .unwrap_err()
            .to_string()
            .contains("list=1/z")
    );
    let message = params
        .choice("mode", 0, &[("skip", 0), ("hold", 1)])
        .unwrap_err()
        .to_string();
    assert_eq!(
        message,
        "`x` cannot use `mode=sideways`: expected skip or hold"
    );
    assert!(params.take("rate", 0.0_f64).is_err());
}

#[test]
fn an_unknown_name_suggests_only_what_is_similar() {
    let known = ["round-robin", "min-rtt", "redundant"];
    let error = |name| SpecError::unknown_name("scheduler", name, known.into_iter()).to_string();
    assert_eq!(
        error("minrtt"),
        "there is no scheduler `minrtt`, did you mean `min-rtt`?; \
         known: round-robin, min-rtt, redundant"
    );
    assert!(error("roundrobin").contains("mean `round-robin`"));
    assert!(error("robin").contains("mean `round-robin`"));
    assert!(error("Redundent").contains("mean `redundant`"));
    assert!(!error("zzz").contains("did you mean"));
}

proptest! {
    #[test]
    fn a_spec_reads_back_as_it_was_written(
        name in "[a-z][a-z0-9-]{0,8}",
        given in prop::collection::btree_map("[a-z]{1,6}", "[a-z0-9./=-]{1,6}", 0..4),
    ) {
        let written = Spec {
            params: Params {
                owner: name.clone(),
                given: given.into_iter().collect(),
                asked: Vec::new(),
            },
            name,
        };
        prop_assert_eq!(written.to_string().parse::<Spec>(), Ok(written));
    }

    #[test]
    fn no_text_panics(text in ".{0,40}") {
        let _ = text.parse::<Spec>();
    }
}
