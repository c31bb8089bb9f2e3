//! Small scenarios in which the simulator and real kernels must agree: where they do not, one of
//! them is wrong.
//!
//! Links are slow enough for any machine. Each scenario covers one thing in which the two may
//! differ: the link and the controller, path selection, loss recovery, the receive window, short
//! transfers.

/// The files, the simplest first.
pub const SCENARIOS: [(&str, &str); 6] = [
    (
        "calibration-one-path.toml",
        include_str!("../../scenarios/calibration/one-path.toml"),
    ),
    (
        "calibration-equal-paths.toml",
        include_str!("../../scenarios/calibration/equal-paths.toml"),
    ),
    (
        "calibration-unequal-paths.toml",
        include_str!("../../scenarios/calibration/unequal-paths.toml"),
    ),
    (
        "calibration-small-buffer.toml",
        include_str!("../../scenarios/calibration/small-buffer.toml"),
    ),
    (
        "calibration-loss.toml",
        include_str!("../../scenarios/calibration/loss.toml"),
    ),
    (
        "calibration-files.toml",
        include_str!("../../scenarios/calibration/files.toml"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::netns;
    use crate::backend::sim;
    use crate::plan::{Changes, Plan};
    use crate::scenario::Document;
    use std::time::Duration;

    #[test]
    fn both_worlds_can_run_each_in_some_minutes_and_it_is_called_as_its_file() {
        let mut time = Duration::ZERO;
        for (file, text) in SCENARIOS {
            let document = Document::parse(file, text).unwrap();
            let plan = Plan::make(&document, &Changes::default()).unwrap();
            assert_eq!(format!("{}.toml", plan.name), file);
            for run in &plan.runs {
                assert!(sim::refusal(&run.scenario).is_none(), "{file}");
                assert_eq!(netns::refusal(&run.scenario), None, "{file}");
                time += netns::expected_time(&run.scenario);
            }
        }
        assert!(time < Duration::from_secs(900), "{time:?}");
    }
}
