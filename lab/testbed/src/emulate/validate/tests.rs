//! The probes measure what they should; how good links are can only be judged on an idle machine.

use super::probe::Arrivals;
use super::*;

fn row(layer: Layer, name: &str, case: &Case) -> Option<Row> {
    let mut place = Place::within(Testbed::require(name)?).unwrap();
    let mut rows = measure(layer, &mut place, case).unwrap();
    assert_eq!(rows.len(), 1);
    rows.pop()
}

#[test]
fn a_delay_is_measured() {
    let Some(row) = row(Layer::Emulator, "vdelay", &cases::delay(50)) else {
        return;
    };
    let measured = row.measured.unwrap();
    assert!((50.0..100.0).contains(&measured), "{row:?}");
}

#[test]
fn a_rate_is_measured_in_ip_bytes_by_either_layer() {
    for layer in [Layer::Emulator, Layer::Kernel] {
        let Some(row) = row(layer, "vrate", &cases::rate(10)) else {
            return;
        };
        // Counting Ethernet headers would add 0.9 %. A busy machine may make the link slower and
        // hide that, but never faster.
        let measured = row.measured.unwrap();
        assert!((7.0..10.05).contains(&measured), "{row:?}");
    }
}

#[test]
fn lost_packets_are_counted() {
    let Some(row) = row(Layer::Emulator, "vloss", &cases::loss(0.1)) else {
        return;
    };
    let measured = row.measured.unwrap();
    assert!((9.0..11.0).contains(&measured), "{row:?}");
}

#[test]
fn what_a_layer_cannot_do_is_a_row_that_was_skipped() {
    let trace = cases::all().pop().unwrap();
    let Some(bed) = Testbed::require("vskip") else {
        return;
    };
    let mut place = Place::within(bed).unwrap();
    let rows = measure(Layer::Kernel, &mut place, &trace).unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert!(matches!(&row.verdict, Verdict::Skipped(what) if what.contains("trace")));
    }
}

/// Packets of 1500 bytes that arrive at these times in milliseconds.
fn arrivals(times_ms: impl Iterator<Item = u64>) -> Arrivals {
    let packets: Vec<_> = times_ms.map(|ms| (0, ms * 1_000_000)).collect();
    Arrivals {
        sent: packets.len() as u32,
        sending: Duration::ZERO,
        packet_bytes: 1500,
        packets,
    }
}

#[test]
fn figures_are_those_of_the_arrivals_and_verdicts_follow_from_them() {
    // A packet every 12 ms is 1 Mbit/s; one every 12.5 ms is not.
    let exact = cases::rate(1).rows(&arrivals((0..100).map(|n| n * 12)));
    assert_eq!(exact[0].verdict, Verdict::Passed, "{exact:?}");
    let slow = cases::rate(1).rows(&arrivals((0..100).map(|n| n * 25 / 2)));
    assert!(matches!(&slow[0].verdict, Verdict::Failed(why) if why.contains("off by")));
    let mut starved = arrivals((0..100).map(|n| n * 25 / 2));
    starved.sending = Duration::from_secs(3600);
    let starved = cases::rate(1).rows(&starved);
    assert!(matches!(&starved[0].verdict, Verdict::Failed(why) if why.contains("too busy")));
    let delayed = cases::delay(5).rows(&arrivals([4, 5, 90].into_iter()));
    assert_eq!(delayed[0].measured, Some(5.0));
    let silent = cases::delay(5).rows(&arrivals(std::iter::empty()));
    assert!(matches!(&silent[0].verdict, Verdict::Failed(why) if why.contains("too few")));
    let trace = cases::all().pop().unwrap();
    let turns = (0..2000).flat_map(|ms| {
        let count = if ms % 200 < 100 { 1 } else { 4 };
        std::iter::repeat_n(ms, count)
    });
    let rows = trace.rows(&arrivals(turns));
    assert!(
        rows.iter().all(|row| row.verdict == Verdict::Passed),
        "{rows:?}"
    );
}

#[test]
fn a_validation_passes_if_something_did_and_nothing_failed() {
    let skipped = cases::delay(5).skipped("it has no netem");
    let mut validation = Validation {
        layer: Layer::Kernel,
        rows: skipped,
    };
    assert!(!validation.passed());
    validation
        .rows
        .extend(cases::rate(1).rows(&arrivals((0..100).map(|n| n * 12))));
    assert!(validation.passed());
    validation
        .rows
        .extend(cases::rate(1).rows(&arrivals((0..100).map(|n| n * 13))));
    assert!(!validation.passed());
}
