//! Whether `cheapest` keeps the promises users take for granted, on all networks:
//!
//! ```text
//! cargo test --release -p own-scheduler --test conformance -- --nocapture
//! ```
//!
//! Without optimisation that takes minutes; two networks then stand for all.

use anabranch_sim::conformance::{Kit, networks};
use anabranch_sim::profile::Names;

#[test]
fn cheapest_passes_the_conformance_kit() {
    let names = Names {
        schedulers: own_scheduler::registry(),
        ..Names::default()
    };
    let mut networks = networks();
    if cfg!(debug_assertions) {
        networks.retain(|network| ["equal", "a tenth of the rate"].contains(&network.name));
    }
    let report = Kit::on(networks)
        .check(&names, "cheapest")
        .expect("a scheduler that is registered");
    eprintln!("{report}");
    assert!(report.is_conformant(), "{report}");
}
