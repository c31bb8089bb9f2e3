//! What hostile peers and networks try, and what must hold: one test at least for each row of the
//! checklist in `docs/security.md`, whose number its name or comment carries.

#[path = "../pair/mod.rs"]
mod pair;
#[path = "../raw/mod.rs"]
mod raw;

mod acks;
mod floods;
mod migration;
mod paths;
mod privacy;
mod probing;
mod protection;
mod wakeups;

use anabranch_proto::error::ConnectionError;
use anabranch_proto::wire::{PathId, Side, TransportErrorCode as Code};
use raw::RawPeer;

const BOTH: [Side; 2] = [Side::Client, Side::Server];
const ZERO: PathId = PathId::ZERO;
const ONE: PathId = PathId(1);

/// Asserts that the victim closed with this code.
#[track_caller]
fn assert_closed(peer: &RawPeer, code: Code) {
    match peer.ended() {
        Some(ConnectionError::Transport(error)) => assert_eq!(error.code, code, "{error}"),
        other => panic!("the victim should have closed with {code}: {other:?}"),
    }
    let (sent, _) = peer.close().expect("CONNECTION_CLOSE reaches the peer");
    assert_eq!(Code(sent), code);
}
