//! Which subflow the fifth paper's schedulers prefer, from the configured delays alone. A run
//! cannot tell: with full windows there is no choice.

use super::Statement;
use anabranch_proto::sched::{Backlog, Decision, PathView, SendView, Unit};
use anabranch_proto::wire::PathId;
use std::time::Duration;

/// Forward and backward delays of two subflows in milliseconds.
pub(super) type Delays = [u64; 4];

/// The subflow that a scheduler takes for the next packet if both have room; `None` if it has no
/// preference and takes whichever is listed first.
fn preferred(spec: &str, delays: Delays) -> Option<u32> {
    let [forward1, backward1, forward2, backward2] = delays;
    let (first, second) = ((forward1, backward1), (forward2, backward2));
    match (
        takes_first(spec, [first, second])?,
        takes_first(spec, [second, first])?,
    ) {
        (true, false) => Some(1),
        (false, true) => Some(2),
        _ => None,
    }
}

fn takes_first(spec: &str, delays: [(u64, u64); 2]) -> Option<bool> {
    let path = |at: usize| {
        let (forward, backward) = delays[at];
        PathView {
            smoothed_rtt: Duration::from_millis(forward + backward),
            forward_delay_us: Some(forward as i64 * 1000),
            congestion_window: 120_000,
            ..PathView::new(at as u32)
        }
    };
    let paths = [path(0), path(1)];
    let view = SendView {
        paths: &paths,
        backlog: Backlog {
            unsent: 1_000_000,
            ..Backlog::default()
        },
        unit: Unit {
            bytes: 1200,
            ..Unit::default()
        },
        ..SendView::default()
    };
    let spec = spec.parse().ok()?;
    let mut scheduler = anabranch_schedulers::builtin().build(&spec).ok()?;
    match scheduler.select(&view).decision {
        Decision::Send(PathId(id)) => Some(id == 0),
        _ => None,
    }
}

/// The statement that delivery delay and the lowest RTT prefer the expected subflows. `rows` has a
/// name, the delays and both preferences. At best it is reported, not judged, since no run supports
/// it; if the preferences differ from the published ones, it fails.
pub(super) fn statement(
    number: (&str, &str),
    rows: &[(String, Delays, [Option<u32>; 2])],
) -> Statement {
    let text = |name: &str, found: [Option<u32>; 2]| {
        let [dd, srtt] = found.map(|path| path.map_or("-".to_owned(), |path| path.to_string()));
        format!("{name} {dd}/{srtt}")
    };
    let ours = rows.iter().map(|(name, delays, _)| {
        let of = |spec| preferred(spec, *delays);
        text(name, [of("delivery-delay"), of("min-rtt")])
    });
    let ours: Vec<String> = ours.collect();
    let published: Vec<String> = rows
        .iter()
        .map(|(name, _, want)| text(name, *want))
        .collect();
    let same = ours == published && !rows.is_empty();
    let statement = Statement::new(
        number,
        "with room on both, DD/sRTT prefer subflow (- none)",
        &published.join(", "),
        ours.join(", "),
        same,
    );
    if same { statement.told() } else { statement }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn equal_subflows_are_preferred_by_nobody_and_others_whatever_their_order() {
        for spec in ["delivery-delay", "min-rtt"] {
            assert_eq!(preferred(spec, [10, 10, 10, 10]), None, "{spec}");
            assert_eq!(preferred(spec, [10, 10, 20, 20]), Some(1), "{spec}");
            assert_eq!(preferred(spec, [20, 20, 10, 10]), Some(2), "{spec}");
        }
        assert_eq!(preferred("delivery-delay", [10, 40, 20, 20]), Some(1));
        assert_eq!(preferred("min-rtt", [10, 40, 20, 20]), Some(2));
    }

    #[test]
    fn preferences_are_told_and_do_not_hold_if_others_were_published() {
        let verdict = |want| {
            let rows = [("C".to_owned(), [10, 40, 20, 20], want)];
            statement(("bremen-simple", "T2"), &rows).verdict
        };
        assert_eq!(verdict([Some(1), Some(2)]), Verdict::Told);
        assert_eq!(verdict([Some(1), Some(1)]), Verdict::Fails);
        let none = statement(("bremen-simple", "T2"), &[]);
        assert_eq!(none.verdict, Verdict::Fails);
    }
}
