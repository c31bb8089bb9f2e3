//! Every registered scheduler against the conformance kit.

use anabranch_sim::conformance::{Kit, networks};
use anabranch_sim::profile::Names;

/// All schedulers by name, with their defaults.
fn check_all(kit: &Kit) {
    let names = Names::default();
    let mut failed = Vec::new();
    for entry in names.schedulers.entries() {
        let report = kit.check(&names, entry.name).expect("a registered name");
        eprintln!("{report}");
        if !report.is_conformant() {
            failed.push(entry.name);
        }
    }
    assert!(failed.is_empty(), "{failed:?} do not conform");
}

#[test]
fn every_scheduler_conforms_or_is_excused_on_the_extreme_networks() {
    let wanted = ["equal", "100 ms apart", "a tenth of the rate"];
    let extremes = networks()
        .into_iter()
        .filter(|network| wanted.contains(&network.name));
    check_all(&Kit::on(extremes.collect()));
}

#[test]
#[ignore = "takes minutes without optimisation; CI runs it with --release"]
fn every_scheduler_conforms_or_is_excused_on_all_networks() {
    check_all(&Kit::new());
}
