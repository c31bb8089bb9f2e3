//! Whether `cheapest` keeps the promises users take for granted:
//!
//! ```text
//! cargo test -p own-scheduler --test conformance -- --nocapture
//! ```

use anabranch_sim::conformance::Kit;
use anabranch_sim::profile::Names;

#[test]
fn cheapest_passes_the_conformance_kit() {
    let names = Names {
        schedulers: own_scheduler::registry(),
        ..Names::default()
    };
    let report = Kit::new()
        .check(&names, "cheapest")
        .expect("a scheduler that is registered");
    eprintln!("{report}");
    assert!(report.is_conformant(), "{report}");
}
