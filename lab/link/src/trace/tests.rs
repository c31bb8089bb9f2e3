//! What traces promise, one behaviour per test.

use super::*;

const MS: u64 = NANOS_PER_MILLI;

#[test]
fn a_trace_is_read_with_its_period_and_rate() {
    let trace = Trace::parse("# comment\n0\n5\n\n5\n10\n").unwrap();
    assert_eq!(trace.period_ns(), 10 * MS);
    assert_eq!(trace.mean_rate(), 4 * 1500 * 8 * 100);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    assert_eq!(
        Trace::parse("1\nx\n"),
        Err(TraceError::NotATime { line: 2 })
    );
    assert_eq!(Trace::parse("-1"), Err(TraceError::NotATime { line: 1 }));
    assert_eq!(
        Trace::parse("5\n\n4"),
        Err(TraceError::Backwards { line: 3 })
    );
    assert_eq!(Trace::parse("0\n0\n"), Err(TraceError::NoTime));
    assert_eq!(Trace::parse(""), Err(TraceError::NoTime));
    let huge = u64::MAX.to_string();
    assert_eq!(Trace::parse(&huge), Err(TraceError::NotATime { line: 1 }));
}

#[test]
fn packets_take_opportunities_in_turn_and_around_the_end() {
    let trace = Trace::parse("2\n3\n10\n").unwrap();
    let mut cursor = TraceCursor::new(0);
    let mut finish = |start: u64, size| cursor.finish(&trace, start * MS, size) / MS;
    assert_eq!(finish(0, 1500), 2);
    assert_eq!(finish(2, 1500), 3);
    assert_eq!(finish(4, 1500), 10);
    assert_eq!(finish(10, 1500), 12);
    assert_eq!(finish(95, 1500), 100, "unused opportunities are lost");
}

#[test]
fn small_packets_share_an_opportunity_and_large_ones_take_several() {
    let trace = Trace::parse("1\n2\n3\n").unwrap();
    let mut cursor = TraceCursor::new(0);
    let mut finish = |start: u64, size| cursor.finish(&trace, start * MS, size) / MS;
    assert_eq!(finish(0, 1000), 1);
    assert_eq!(finish(1, 500), 1);
    assert_eq!(finish(1, 1), 2);
    assert_eq!(finish(2, 3000), 4);
}

#[test]
fn a_trace_starts_when_the_link_is_given_it() {
    let trace = Trace::parse("4\n").unwrap();
    assert_eq!(
        TraceCursor::new(1000 * MS).finish(&trace, 1000 * MS, 100),
        1004 * MS
    );
}
