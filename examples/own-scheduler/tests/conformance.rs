//! Whether `cheapest` keeps the promises users take for granted, on all networks:
//!
//! ```text
//! cargo test --release -p own-scheduler --test conformance -- --nocapture
//! ```
//!
//! Without optimisation that takes minutes; two networks then stand for all.

use anabranch_schedulers::Names;
use anabranch_sim::conformance::{Kit, networks};

#[test]
fn cheapest_passes_the_conformance_kit() {
    let names = Names::from(own_scheduler::registry());
    let mut networks = networks();
    if cfg!(debug_assertions) {
        networks.retain(|network| ["equal", "a tenth of the rate"].contains(&network.name));
        assert_eq!(networks.len(), 2, "both have these names");
    }
    let report = Kit::on(networks)
        .check(&names, "cheapest")
        .expect("a scheduler that is registered");
    eprintln!("{report}");
    assert!(report.is_conformant(), "{report}");
}
