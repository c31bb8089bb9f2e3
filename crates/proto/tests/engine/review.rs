//! Faults that a review found by scripted peers, each with the test that fails if it returns:
//! [`PROOFS`] is the table. Tests stand where their subject is, those without such a place here.

use crate::raw::{Packet, RawPeer, assert_closed, encode};
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::{PathId, TransportErrorCode as Code};
use std::time::Duration;

/// What was wrong, and the file and name of a test that proves it mended.
const PROOFS: &[[&str; 3]] = &[
    [
        "a packet from elsewhere on a closing path left a reset token that outlived the connection",
        "attacks/closing.rs",
        "a_path_that_is_closing_moves_nowhere_and_leaves_nothing_behind",
    ],
    [
        "an acknowledgement of nothing but a packet declared lost was ignored",
        "spurious.rs",
        "a_late_packet_alone_in_an_acknowledgement_takes_the_reduction_back",
    ],
    [
        "of two late packets in one acknowledgement one was taken back",
        "spurious.rs",
        "late_packets_are_taken_back_all_together_or_one_by_one",
    ],
    [
        "data went to another port before that was validated",
        "attacks/migration.rs",
        "no_data_goes_to_another_port_before_it_is_proven",
    ],
    [
        "a server gave no spare connection ID for a path that its client had opened",
        "attacks/paths.rs",
        "a_server_gives_a_spare_connection_id_for_each_path_its_client_opened",
    ],
    [
        "a client read packets from addresses it did not know",
        "attacks/paths.rs",
        "a_client_reads_nothing_from_addresses_it_does_not_know",
    ],
    [
        "noise used up the rate of Retry packets",
        "attacks/admission.rs",
        "noise_does_not_keep_a_retry_from_a_client",
    ],
    [
        "CRYPTO frames of one byte behind one far ahead had 64 KiB copied each",
        "src/handshake/crypto_stream/tests.rs",
        "one_byte_at_a_time_before_one_far_ahead_takes_no_room_but_its_own",
    ],
    [
        "such frames, as packets of a peer",
        "attacks/admission.rs",
        "a_trickle_of_crypto_data_is_taken_and_ends_at_the_limits",
    ],
    [
        "connection IDs were retired that had never been sent, many in a packet",
        "attacks/floods.rs",
        "a_connection_id_is_not_retired_before_it_was_sent",
    ],
    [
        "the same for a path that nobody opened, packet after packet",
        "review.rs",
        "connection_ids_of_a_path_nobody_opened_are_not_retired_before_they_were_sent",
    ],
    [
        "the application was told that a path had opened after it was told of its end",
        "attacks/closing.rs",
        "a_path_whose_proof_comes_after_its_end_is_not_opened",
    ],
    [
        "the count of packets before their keys that the test read was never touched",
        "attacks/floods.rs",
        "packets_before_their_keys_are_kept_in_small_numbers",
    ],
];

/// The files that the table names.
const FILES: &[(&str, &str)] = &[
    ("attacks/admission.rs", include_str!("attacks/admission.rs")),
    ("attacks/closing.rs", include_str!("attacks/closing.rs")),
    ("attacks/floods.rs", include_str!("attacks/floods.rs")),
    ("attacks/migration.rs", include_str!("attacks/migration.rs")),
    ("attacks/paths.rs", include_str!("attacks/paths.rs")),
    ("review.rs", include_str!("review.rs")),
    ("spurious.rs", include_str!("spurious.rs")),
    (
        "src/handshake/crypto_stream/tests.rs",
        include_str!("../../src/handshake/crypto_stream/tests.rs"),
    ),
];

#[test]
fn every_fault_has_the_test_that_the_table_names() {
    for [fault, file, test] in PROOFS {
        let text = FILES.iter().find(|(name, _)| name == file);
        let (_, text) = text.expect("a file of the list");
        let test = format!("#[test]\nfn {test}() {{");
        assert!(text.contains(&test), "{fault}: {file} lost its test {test}");
    }
}

/// The retirements come in many packets, and each makes the victim issue what the next one names.
#[test]
fn connection_ids_of_a_path_nobody_opened_are_not_retired_before_they_were_sent() {
    let mut peer = RawPeer::connected_client();
    peer.wait(Duration::from_secs(1));
    peer.ack_all();
    peer.inbox.clear();
    let path = PathId(7);
    let mut sequences = 0..;
    for _ in 0..50 {
        let frames: Vec<_> = sequences
            .by_ref()
            .take(150)
            .map(|sequence| Frame::RetireConnectionId { path, sequence })
            .collect();
        peer.send(Packet::one_rtt(PathId::ZERO, encode(&frames)));
        if peer.ended().is_some() {
            break;
        }
    }
    assert_closed(&peer, Code::PROTOCOL_VIOLATION);
    let sent = peer.remote_cids.keys().filter(|(of, _)| *of == path);
    assert!(sent.count() <= 10, "few were issued");
}
