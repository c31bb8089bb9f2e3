//! Every registered scheduler against the conformance kit:
//! `cargo test --release -p anabranch-sim --test conformance -- --nocapture`.

use anabranch_sim::conformance::Kit;
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
#[cfg_attr(
    debug_assertions,
    ignore = "takes minutes without optimisation, seconds with --release"
)]
fn every_scheduler_conforms_or_is_excused() {
    check_all(&Kit::new());
}
