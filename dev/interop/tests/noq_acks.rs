//! Acknowledgement frequency between this engine and noq, which takes requests and makes none
//! unless told to: `cargo test --workspace --test noq_acks`.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]
#![allow(clippy::print_stdout, reason = "figures of a run are worth reading")]

mod ours;
mod theirs;

use anabranch_interop::{Answer, Request};
use anabranch_net::engine::AckFrequency;
use anabranch_proto::wire::frame::PathStatus;
use ours::{Client, LARGE, in_turn, loopback, soon};

/// Moves [`LARGE`] bytes to noq over two paths; returns the acknowledgements it sent, and the
/// frames about them that it got.
async fn acknowledgements(most_packets: Option<u32>) -> (u64, u64, u64) {
    let mut transport = in_turn();
    transport.ack_frequency = AckFrequency {
        most_packets,
        ..AckFrequency::default()
    };
    let listener = theirs::listen();
    let connecting = Client::connect_as(
        listener.addr(),
        listener.fingerprint(),
        loopback(1),
        transport,
    );
    let (client, theirs) = soon(async { tokio::join!(connecting, listener.accept()) }).await;
    let (client, theirs) = (client.unwrap(), theirs.unwrap());
    let second = anabranch_interop::FurtherPath {
        local: loopback(2),
        remote: listener.addr(),
    };
    client.open_path(second, PathStatus::Available).await;
    let request = Request::Put(LARGE);
    assert_eq!(client.ask(request).await, Answer::expected(request));
    let stats = theirs.stats();
    let (sent, got) = (stats.frame_tx, stats.frame_rx);
    client.close().await;
    let acks = sent.acks + sent.path_acks;
    (acks, got.ack_frequency, got.immediate_ack)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noq_obeys_our_requests_and_is_left_alone_without_them() {
    let (usual, requests, questions) = acknowledgements(None).await;
    println!("unasked: {usual} acknowledgements, {questions} questions");
    assert_eq!(requests, 0);
    assert!(questions > 0, "the second path asks for an answer at once");
    let (asked, requests, _) = acknowledgements(Some(16)).await;
    println!("asked: {asked} acknowledgements, {requests} requests");
    assert!(requests > 0);
    assert!(asked < usual, "{asked} of {usual}");
}
