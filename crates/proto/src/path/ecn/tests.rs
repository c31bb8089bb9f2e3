//! Tests: what `ecn` promises, one behaviour each.

use super::*;

fn counts(ect0: u64, ect1: u64, ce: u64) -> EcnCounts {
    EcnCounts { ect0, ect1, ce }
}

fn after_sending(packets: u64) -> EcnState {
    let mut state = EcnState::new(true);
    for _ in 0..packets {
        let marked = state.marking().is_some();
        state.on_sent(marked);
    }
    state
}

#[test]
fn ten_packets_are_marked_until_the_peer_confirms() {
    let mut state = after_sending(9);
    assert_eq!(state.marking(), Some(Ecn::Ect0));
    state.on_sent(true);
    assert_eq!(state.marking(), None);
    assert_eq!(
        state.on_ack(Some(counts(1, 0, 0)), 1, true),
        EcnOutcome::Fine
    );
    assert!(state.is_capable());
    assert_eq!(state.marking(), Some(Ecn::Ect0));
}

#[test]
fn a_route_that_cannot_mark_never_does() {
    assert_eq!(EcnState::new(false).marking(), None);
}

#[test]
fn new_ce_marks_are_congestion_once() {
    let mut state = after_sending(5);
    assert_eq!(
        state.on_ack(Some(counts(1, 0, 1)), 2, true),
        EcnOutcome::Congestion
    );
    assert_eq!(
        state.on_ack(Some(counts(3, 0, 1)), 2, true),
        EcnOutcome::Fine
    );
}

#[test]
fn acknowledging_marked_packets_without_counts_fails() {
    let mut state = after_sending(2);
    assert_eq!(
        state.on_ack(None, 0, true),
        EcnOutcome::Fine,
        "only unmarked ones so far"
    );
    assert_eq!(state.on_ack(None, 1, true), EcnOutcome::Failed);
    assert_eq!(state.marking(), None);
    assert_eq!(
        state.on_ack(None, 1, true),
        EcnOutcome::Fine,
        "reported once"
    );
}

#[test]
fn counts_below_the_acknowledged_packets_fail() {
    assert_eq!(
        after_sending(3).on_ack(Some(counts(1, 0, 0)), 2, true),
        EcnOutcome::Failed
    );
}

#[test]
fn counts_that_shrink_fail() {
    let mut state = after_sending(5);
    state.on_ack(Some(counts(3, 0, 0)), 3, true);
    assert_eq!(
        state.on_ack(Some(counts(2, 0, 0)), 0, true),
        EcnOutcome::Failed
    );
}

#[test]
fn counts_above_what_was_sent_fail() {
    assert_eq!(
        after_sending(3).on_ack(Some(counts(2, 0, 2)), 1, true),
        EcnOutcome::Failed
    );
    let mut state = after_sending(3);
    assert_eq!(
        state.on_ack(Some(counts(u64::MAX, 0, u64::MAX)), 1, true),
        EcnOutcome::Failed
    );
}

#[test]
fn marks_rewritten_to_ect1_fail() {
    assert_eq!(
        after_sending(3).on_ack(Some(counts(1, 1, 0)), 1, true),
        EcnOutcome::Failed
    );
}

#[test]
fn an_acknowledgement_that_arrives_late_is_not_held_against_the_route() {
    let mut state = after_sending(6);
    state.on_ack(Some(counts(4, 0, 0)), 3, true);
    assert_eq!(
        state.on_ack(Some(counts(2, 0, 0)), 1, false),
        EcnOutcome::Fine
    );
    assert!(state.is_capable());
}

#[test]
fn losing_every_test_packet_fails() {
    let mut state = after_sending(10);
    for _ in 0..9 {
        assert_eq!(state.on_lost(), EcnOutcome::Fine);
    }
    assert_eq!(state.on_lost(), EcnOutcome::Failed);
}

#[test]
fn losing_packets_of_a_capable_route_is_ordinary_loss() {
    let mut state = after_sending(10);
    state.on_ack(Some(counts(1, 0, 0)), 1, true);
    for _ in 0..9 {
        assert_eq!(state.on_lost(), EcnOutcome::Fine);
    }
    assert!(state.is_capable());
}

#[test]
fn a_moved_path_is_tested_anew_with_the_counts_it_had() {
    let mut old = after_sending(6);
    old.on_ack(Some(counts(4, 0, 0)), 4, true);
    let mut new = old.after_move(true);
    assert!(!new.is_capable());
    new.on_sent(true);
    // Two late packets of the old route, and the first of the new one.
    assert_eq!(new.on_ack(Some(counts(7, 0, 0)), 1, true), EcnOutcome::Fine);
    assert!(new.is_capable());
}
