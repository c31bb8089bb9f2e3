//! What outsiders can tell (rows 19, 20 and 24).

use super::{BOTH, ONE, ZERO};
use crate::raw::{RawPeer, Received, Setup, new_cid, route};
use anabranch_proto::config::RetryPolicy;
use anabranch_proto::event::Level;
use anabranch_proto::wire::Side;
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::header::{self, Header};
use std::collections::BTreeSet;
use std::time::Duration;

/// Row 19.
#[test]
fn connection_ids_of_different_paths_have_nothing_in_common() {
    for victim in BOTH {
        let peer = RawPeer::against(victim);
        let cids: Vec<_> = peer.remote_cids.values().map(|(cid, _)| cid).collect();
        assert!(cids.len() >= 9);
        let heads: BTreeSet<_> = cids.iter().map(|cid| &cid.as_slice()[..4]).collect();
        let tails: BTreeSet<_> = cids.iter().map(|cid| &cid.as_slice()[4..]).collect();
        assert_eq!((heads.len(), tails.len()), (cids.len(), cids.len()));
        let tokens: BTreeSet<_> = peer
            .remote_cids
            .values()
            .map(|(_, token)| token.map(|token| token.0))
            .collect();
        assert_eq!(tokens.len(), cids.len());
    }
}

/// Row 19.
#[test]
fn a_path_that_moves_takes_another_connection_id() {
    let mut peer = RawPeer::connected_client();
    peer.adopt(ZERO, 1);
    peer.frames(ZERO, &[new_cid(ZERO, 1, 0)]);
    let (home, there) = (peer.tuple, route(Side::Server, 5));
    let before: BTreeSet<_> = peer.inbox.iter().map(|packet| packet.dcid).collect();
    peer.inbox.clear();
    peer.tuple = there;
    peer.frames(ZERO, &[Frame::Ping]);
    peer.answer_challenges();
    let after = peer.inbox.iter().filter(|packet| packet.tuple == there);
    let after: BTreeSet<_> = after.map(|packet| packet.dcid).collect();
    assert!(!after.is_empty());
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
    assert_ne!(home, there);
}

/// Row 20. Times and sizes are not hidden: see `docs/security.md`. All else is.
#[test]
fn the_clear_bits_of_a_packet_are_the_same_on_all_paths() {
    for victim in BOTH {
        let mut peer = RawPeer::against(victim);
        if victim.is_server() {
            peer.open_path(ONE, 1);
        }
        peer.provoke(20_000);
        peer.ack_all();
        assert!(peer.first_bytes.len() > 10);
        // Short header, fixed bit, no spinning; the other five bits are protected.
        assert!(peer.first_bytes.iter().all(|first| first & 0xe0 == 0x40));
        let protected: BTreeSet<_> = peer.first_bytes.iter().map(|first| first & 0x1f).collect();
        assert!(protected.len() > 4);
    }
}

fn token_of_a_connection() -> Vec<u8> {
    let mut peer = RawPeer::client(Setup::default());
    peer.shake();
    let frames = peer.inbox.iter().flat_map(Received::frames);
    let token = frames.into_iter().find_map(|frame| match frame {
        Frame::NewToken { token } => Some(token.to_vec()),
        _ => None,
    });
    token.expect("a server gives a token")
}

/// Whether a client with this token, from the `n`-th address and after a while, is served at once.
fn is_served(token: &[u8], n: u16, later: Duration) -> bool {
    let mut peer = RawPeer::client(Setup {
        server: |config| config.retry = RetryPolicy::Always,
        token: token.to_vec(),
        ..Setup::default()
    });
    peer.tuple = route(Side::Server, n);
    peer.now += later;
    peer.send_crypto_at(Level::Initial);
    let retried = peer
        .unopened
        .iter()
        .any(|bytes| matches!(header::parse(bytes, 8), Ok(Header::Retry { .. })));
    assert_ne!(retried, peer.handle.is_some());
    peer.handle.is_some()
}

/// Row 24.
#[test]
fn a_token_is_sealed_and_bound_to_its_address_and_lifetime() {
    let token = token_of_a_connection();
    assert!(!token.windows(4).any(|bytes| bytes == [10, 0, 0, 1]));
    let soon = Duration::from_secs(60);
    assert!(is_served(&token, 0, soon));
    assert!(!is_served(&token, 1, soon));
    assert!(!is_served(&token, 0, Duration::from_secs(400 * 86_400)));
    let mut damaged = token.clone();
    *damaged.last_mut().expect("a token") ^= 1;
    assert!(!is_served(&damaged, 0, soon));
}
