//! Tests: what `cids` promises, one behaviour each.

use super::*;
use crate::datagram::{SocketId, Tuple};
use anabranch_wire::frame::NewConnectionId;
use anabranch_wire::{ConnectionId, PathId, ResetToken, TransportErrorCode};
use proptest::prelude::*;

const PATH: PathId = PathId(3);

fn cid(number: u64) -> ConnectionId {
    ConnectionId::new(&number.to_be_bytes()).unwrap()
}

fn token(number: u64) -> ResetToken {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    ResetToken(bytes)
}

fn address(n: u16) -> Tuple {
    Tuple {
        socket: SocketId(0),
        local: None,
        remote: ([10, 0, 0, 1], 1000 + n).into(),
    }
}

fn frame(sequence: u64, retire_prior_to: u64) -> NewConnectionId {
    NewConnectionId {
        path: PATH,
        sequence,
        retire_prior_to,
        cid: cid(sequence),
        reset_token: token(sequence),
    }
}

fn local(count: u64) -> LocalCids {
    let mut cids = LocalCids::new();
    for number in 0..count {
        assert_eq!(cids.issue(cid(number), token(number)), number);
    }
    cids
}

fn remote(sequences: impl IntoIterator<Item = u64>) -> RemoteCids {
    let mut cids = RemoteCids::new();
    for sequence in sequences {
        cids.on_new(&frame(sequence, 0), 8).unwrap();
    }
    cids
}

fn active(cids: &RemoteCids) -> Option<u64> {
    cids.active().map(|(sequence, _, _)| sequence)
}

fn code(cids: &mut RemoteCids, frame: &NewConnectionId, limit: u64) -> TransportErrorCode {
    cids.on_new(frame, limit).unwrap_err().code
}

#[test]
fn issued_connection_ids_are_announced_in_order_and_again_after_loss() {
    let mut cids = local(2);
    let first = *cids.next_to_send().unwrap();
    assert_eq!(first.frame(PATH), frame(0, 0));
    cids.on_sent(0);
    assert_eq!(cids.next_to_send().unwrap().sequence, 1);
    cids.on_sent(1);
    assert!(cids.next_to_send().is_none());
    cids.on_lost(0);
    assert_eq!(cids.next_to_send().unwrap().sequence, 0);
    cids.on_sent(0);
    cids.on_acked(0);
    cids.on_lost(0);
    assert!(cids.next_to_send().is_none(), "a copy reached the peer");
}

#[test]
fn an_adopted_connection_id_is_not_announced() {
    let mut cids = LocalCids::new();
    assert_eq!(cids.adopt(cid(9), token(9)), 0);
    assert!(cids.next_to_send().is_none());
    assert_eq!(cids.live().len(), 1);
}

#[test]
fn retiring_forgets_a_connection_id_once_and_stops_announcing_it() {
    let mut cids = local(2);
    cids.on_sent(0);
    assert_eq!(cids.on_retire(0).unwrap(), Some(cid(0)));
    assert_eq!(cids.on_retire(0).unwrap(), None);
    assert_eq!(cids.next_to_send().unwrap().sequence, 1);
    assert_eq!(cids.live().len(), 1);
    assert_eq!(cids.next_sequence(), 2);
}

#[test]
fn retiring_what_was_never_sent_is_a_violation() {
    let mut cids = local(2);
    cids.on_sent(0);
    // Issued, but still to be announced; and not even issued.
    for sequence in [1, 2] {
        let error = cids.on_retire(sequence).unwrap_err();
        assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
    }
    // The peer knows what was sent once, although the frame may have to be sent again.
    cids.on_sent(1);
    cids.on_lost(1);
    assert_eq!(cids.on_retire(1).unwrap(), Some(cid(1)));
}

#[test]
fn the_first_connection_id_becomes_the_active_one() {
    let cids = remote([1, 0]);
    assert_eq!(cids.active(), Some((1, cid(1), Some(token(1)))));
    assert!(cids.has_spare());
    assert_eq!(RemoteCids::new().active(), None);
}

#[test]
fn the_handshake_connection_id_is_number_zero_and_may_be_replaced() {
    let mut cids = RemoteCids::with_initial(cid(70));
    assert_eq!(cids.tokens().count(), 0);
    cids.replace_initial(cid(71));
    cids.set_initial_token(token(5));
    assert_eq!(cids.active(), Some((0, cid(71), Some(token(5)))));
    assert_eq!(cids.next_expected(), 1);
}

#[test]
fn a_move_takes_a_fresh_connection_id_and_gives_the_old_one_back() {
    let mut cids = remote([0, 1, 2]);
    cids.move_to(address(1), false);
    assert_eq!((active(&cids), cids.next_retirement()), (Some(1), Some(0)));
    cids.move_to(address(2), false);
    assert_eq!(active(&cids), Some(2));
    assert!(!cids.has_spare());
    cids.move_to(address(3), false);
    assert_eq!(active(&cids), Some(2), "the last one is kept");
}

#[test]
fn a_route_that_may_be_returned_to_keeps_its_connection_id() {
    let mut cids = remote([0, 1, 2]);
    cids.move_to(address(1), true);
    assert_eq!((active(&cids), cids.kept()), (Some(1), Some(cid(0))));
    assert_eq!(cids.next_retirement(), None);
    // Further on, before it was settled where it is.
    cids.move_to(address(2), false);
    assert_eq!((active(&cids), cids.kept()), (Some(2), Some(cid(0))));
    assert!(!cids.has_spare(), "what an address has seen is no spare");
    let mut stays = cids.clone();
    cids.move_back();
    assert_eq!((active(&cids), cids.kept()), (Some(0), None));
    assert_eq!(cids.live_len(), 1);
    stays.forget_kept();
    assert_eq!((active(&stays), stays.kept()), (Some(2), None));
    assert_eq!(stays.live_len(), 1);
}

#[test]
fn without_a_spare_both_routes_share_the_connection_id_until_there_is_one() {
    let mut cids = remote([0]);
    cids.move_to(address(1), true);
    assert_eq!((active(&cids), cids.kept()), (Some(0), Some(cid(0))));
    cids.on_new(&frame(1, 0), 4).unwrap();
    cids.move_back();
    assert_eq!((active(&cids), cids.next_retirement()), (Some(1), Some(0)));
}

#[test]
fn a_connection_id_that_the_peer_takes_back_is_used_at_no_address() {
    let mut cids = remote([0, 1]);
    cids.move_to(address(1), true);
    cids.on_new(&frame(2, 1), 4).unwrap();
    assert_eq!((active(&cids), cids.kept()), (Some(1), None));
    cids.move_back();
    assert_eq!(active(&cids), Some(2), "a fresh one for the route before");
    // The active one is replaced by one that no other address has seen.
    let mut cids = remote([0, 1]);
    cids.show_to(address(1));
    cids.on_new(&frame(2, 1), 4).unwrap();
    assert_eq!(active(&cids), Some(2));
    let mut cids = remote([5, 3]);
    cids.move_to(address(1), true);
    assert_eq!((active(&cids), cids.kept()), (Some(3), Some(cid(5))));
    cids.on_new(&frame(5, 5), 4).unwrap();
    // There is none: the path shares one, and does not fall silent.
    assert_eq!((active(&cids), cids.kept()), (Some(5), Some(cid(5))));
    cids.on_new(&frame(6, 6), 4).unwrap();
    assert_eq!((active(&cids), cids.kept()), (Some(6), Some(cid(6))));
}

#[test]
fn a_path_whose_connection_id_is_taken_back_uses_the_one_that_was_shown_elsewhere() {
    let mut cids = remote([0, 1]);
    assert_eq!(cids.show_to(address(1)), Some(cid(1)));
    cids.on_new(&frame(1, 1), 4).unwrap();
    assert_eq!(active(&cids), Some(1));
    assert_eq!(cids.show_to(address(2)), Some(cid(1)));
}

#[test]
fn retirements_are_repeated_until_acknowledged() {
    let mut cids = remote([0, 1]);
    cids.move_to(address(1), false);
    cids.on_retirement_sent(0);
    assert_eq!(cids.next_retirement(), None);
    cids.on_retirement_lost(0);
    assert_eq!(cids.next_retirement(), Some(0));
    cids.on_retirement_sent(0);
    cids.on_retirement_acked(0);
    cids.on_retirement_lost(0);
    assert_eq!(cids.next_retirement(), None);
}

#[test]
fn retire_prior_to_replaces_the_active_connection_id() {
    let mut cids = remote([0, 1]);
    assert_eq!(cids.on_new(&frame(2, 2), 2).unwrap().as_slice(), [0, 1]);
    assert_eq!(active(&cids), Some(2));
    assert!(!cids.contains(&cid(0)));
    assert_eq!(cids.next_retirement(), Some(0));
}

#[test]
fn a_connection_id_overtaken_by_its_retirement_is_given_back_unused() {
    let mut cids = remote([0]);
    cids.on_new(&frame(5, 5), 2).unwrap();
    assert_eq!(cids.on_new(&frame(3, 0), 2).unwrap().as_slice(), [3]);
    assert_eq!(active(&cids), Some(5));
    assert!(
        cids.on_new(&frame(3, 0), 2).unwrap().is_empty(),
        "given back once"
    );
}

#[test]
fn a_repeated_frame_changes_nothing_even_after_rotation() {
    let mut cids = remote([0, 1]);
    cids.move_to(address(1), false);
    assert!(cids.on_new(&frame(0, 0), 2).unwrap().is_empty());
    assert!(cids.on_new(&frame(1, 0), 2).unwrap().is_empty());
    assert!(!cids.contains(&cid(0)));
    assert!(!cids.has_spare());
}

#[test]
fn every_address_is_shown_a_connection_id_of_its_own_while_there_are_enough() {
    let mut cids = remote([0, 1, 2]);
    assert_eq!(cids.show_to(address(1)), Some(cid(1)));
    assert_eq!(cids.show_to(address(1)), Some(cid(1)));
    assert_eq!(cids.show_to(address(2)), Some(cid(2)));
    assert_eq!(cids.next_retirement(), Some(1));
    assert_eq!(cids.show_to(address(3)), Some(cid(0)), "none is left");
    // It moves to where it was shown, under what was shown there.
    let mut there = cids.clone();
    there.move_to(address(2), true);
    assert_eq!((active(&there), there.kept()), (Some(2), Some(cid(0))));
    // Anywhere else it does not take that along.
    cids.move_to(address(3), true);
    assert_eq!(active(&cids), Some(0));
    assert!(!cids.contains(&cid(2)));
}

#[test]
fn only_the_token_in_use_is_matched() {
    let mut cids = remote([0, 1]);
    assert_eq!(cids.tokens().collect::<Vec<_>>(), [token(0)]);
    cids.move_to(address(1), false);
    assert_eq!(cids.tokens().collect::<Vec<_>>(), [token(1)]);
}

#[test]
fn more_connection_ids_than_announced_close_the_connection() {
    let mut cids = remote([0, 1]);
    assert_eq!(
        code(&mut cids, &frame(2, 0), 2),
        TransportErrorCode::CONNECTION_ID_LIMIT_ERROR
    );
}

#[test]
fn impossible_fields_are_an_encoding_error() {
    let mut cids = remote([]);
    assert_eq!(
        code(&mut cids, &frame(1, 2), 2),
        TransportErrorCode::FRAME_ENCODING_ERROR
    );
    let empty = NewConnectionId {
        cid: ConnectionId::default(),
        ..frame(1, 0)
    };
    assert_eq!(
        code(&mut cids, &empty, 2),
        TransportErrorCode::FRAME_ENCODING_ERROR
    );
}

#[test]
fn reuse_of_a_number_a_connection_id_or_another_token_is_a_violation() {
    let other_cid = NewConnectionId {
        cid: cid(9),
        ..frame(0, 0)
    };
    let other_number = NewConnectionId {
        sequence: 4,
        ..frame(0, 0)
    };
    let other_token = NewConnectionId {
        reset_token: token(9),
        ..frame(0, 0)
    };
    for reuse in [other_cid, other_number, other_token] {
        assert_eq!(
            code(&mut remote([0]), &reuse, 8),
            TransportErrorCode::PROTOCOL_VIOLATION
        );
    }
}

#[test]
fn a_peer_without_connection_ids_cannot_issue_any() {
    let mut cids = RemoteCids::with_initial(ConnectionId::default());
    assert_eq!(
        code(&mut cids, &frame(1, 0), 2),
        TransportErrorCode::PROTOCOL_VIOLATION
    );
}

#[test]
fn a_storm_of_retirements_closes_the_connection() {
    let mut cids = remote([0]);
    let storm = (1..1000).find_map(|sequence| cids.on_new(&frame(sequence, sequence), 2).err());
    assert_eq!(
        storm.unwrap().code,
        TransportErrorCode::CONNECTION_ID_LIMIT_ERROR
    );
    assert!(cids.retiring_len() <= 16);
}

#[test]
fn acknowledged_retirements_are_no_storm() {
    let mut cids = remote([0]);
    for sequence in 1..1000 {
        cids.on_new(&frame(sequence, sequence), 2).unwrap();
        let retired = cids.next_retirement().unwrap();
        cids.on_retirement_sent(retired);
        cids.on_retirement_acked(retired);
    }
    assert_eq!(cids.next_expected(), 1000);
}

#[test]
fn gaps_between_numbers_are_bounded() {
    let mut cids = remote([0]);
    let error = (1..1000).find_map(|step| {
        let result = cids.on_new(&frame(step * 2, step * 2), 2).err();
        if let Some(retired) = cids.next_retirement() {
            cids.on_retirement_acked(retired);
        }
        result
    });
    assert_eq!(
        error.unwrap().code,
        TransportErrorCode::CONNECTION_ID_LIMIT_ERROR
    );
}

proptest! {
    #[test]
    fn frames_in_any_order_and_number_yield_the_same_connection_ids(
        order in Just((0u64..12).collect::<Vec<_>>()).prop_shuffle(),
        repeats in prop::collection::vec(0u64..12, 0..20),
        boundary in 0u64..12,
    ) {
        let mut cids = RemoteCids::new();
        for sequence in order.iter().chain(&repeats) {
            let prior = if *sequence >= boundary { boundary } else { 0 };
            cids.on_new(&frame(*sequence, prior), 12).unwrap();
        }
        for sequence in 0..12 {
            prop_assert_eq!(cids.contains(&cid(sequence)), sequence >= boundary);
        }
        let mut retired = Vec::new();
        while let Some(sequence) = cids.next_retirement() {
            cids.on_retirement_sent(sequence);
            retired.push(sequence);
        }
        retired.sort_unstable();
        prop_assert_eq!(retired, (0..boundary).collect::<Vec<_>>());
        prop_assert!(active(&cids).is_some_and(|sequence| sequence >= boundary));
        prop_assert_eq!(cids.next_expected(), 12);
    }

    #[test]
    fn no_sequence_of_frames_grows_state_or_loses_count(
        frames in prop::collection::vec((0u64..40, 0u64..40, 0u16..9), 0..200),
    ) {
        let mut cids = RemoteCids::new();
        for (sequence, prior, then) in frames {
            if cids.on_new(&frame(sequence, prior.min(sequence)), 4).is_err() {
                break;
            }
            match then {
                0 | 1 => cids.move_to(address(sequence as u16), then == 0),
                2 => cids.move_back(),
                3 => cids.forget_kept(),
                4 => prop_assert_eq!(cids.show_to(address(1)).is_some(), cids.has_active()),
                _ => {}
            }
            prop_assert!(cids.live_len() <= 4);
            prop_assert!(cids.active().is_some() || !cids.has_spare());
        }
        prop_assert!(cids.retiring_len() <= 16 + 4);
    }
}
