//! The simulator's TCP against smoltcp, with which it shares no code. The rates of both are in
//! docs/dependencies.md: `cargo bench -p anabranch-sim --bench tcp_peers` prints them.

mod net;
mod peer;

use anabranch_sim::ProcessId;
use anabranch_sim::tcp::{Exchange, TcpHost, TcpState};
use net::{LARGE, Net, Stack, access, at};
use smoltcp::socket::tcp::{CongestionControl, State};

const MEGABYTE: u64 = 1_000_000;

const REQUEST: u64 = 16;

/// A megabyte in both directions, one after the other in one exchange, and a megabyte in each
/// direction alone.
fn exchanges() -> [Exchange; 3] {
    let exchange = |request, response| Exchange { request, response };
    [
        exchange(MEGABYTE, 0),
        exchange(REQUEST, MEGABYTE),
        exchange(MEGABYTE, MEGABYTE),
    ]
}

/// Checks that both ends received all bytes unchanged and agree that the connection is over.
fn check(net: &Net, (ours, peer): (ProcessId, ProcessId), [sent, received]: [u64; 2]) {
    let (report, peer) = (net.ours(ours), net.peer(peer));
    let what = format!("{report:?}, {peer:?}");
    assert_eq!(report.state, TcpState::Done, "{what}");
    assert_eq!(report.received_bytes, received, "{what}");
    assert_eq!(report.sent.acknowledged_bytes, sent, "{what}");
    assert!(report.intact, "{what}");
    assert_eq!(peer.received(), sent, "{what}");
    assert!(peer.is_finished() && peer.is_intact(), "{what}");
    assert!(
        matches!(peer.state(), State::Closed | State::TimeWait),
        "{what}"
    );
    assert_eq!(net.world.process::<TcpHost>(ours).strays(), 0, "{what}");
}

fn our_client_and_its_server(loss: f64) {
    let ours = Stack::ours("cubic");
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic] {
        let peer = Stack::smoltcp(congestion, LARGE);
        for what in exchanges() {
            let mut net = Net::new(1, access(loss), [&ours, &peer], what);
            net.world.run_until(at(120));
            check(
                &net,
                (net.client, net.server),
                [what.request, what.response],
            );
        }
    }
}

fn its_client_and_our_server(loss: f64) {
    let ours = Stack::ours("cubic");
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic] {
        let peer = Stack::smoltcp(congestion, LARGE);
        for what in exchanges() {
            let mut net = Net::new(1, access(loss), [&peer, &ours], what);
            net.world.run_until(at(120));
            check(
                &net,
                (net.server, net.client),
                [what.response, what.request],
            );
        }
    }
}

#[test]
fn a_megabyte_each_way_is_exchanged_with_a_server_of_smoltcp() {
    our_client_and_its_server(0.0);
}

#[test]
fn a_megabyte_each_way_is_exchanged_with_a_server_of_smoltcp_under_loss() {
    our_client_and_its_server(0.01);
}

#[test]
fn a_megabyte_each_way_is_exchanged_with_a_client_of_smoltcp() {
    its_client_and_our_server(0.0);
}

#[test]
fn a_megabyte_each_way_is_exchanged_with_a_client_of_smoltcp_under_loss() {
    its_client_and_our_server(0.01);
}
