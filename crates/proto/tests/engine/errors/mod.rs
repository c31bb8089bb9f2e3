//! Every breach of the protocol ends the connection with the right code, on the wire.

mod acknowledgements;
mod frames;
mod handshake;
mod keys;
mod multipath;
mod negotiation;
mod streams;
mod timestamps;
mod zero_rtt;

use crate::raw::{RawPeer, assert_closed};
use anabranch_proto::wire::frame::Frame;
use anabranch_proto::wire::{PathId, Side, TransportErrorCode as Code};

const BOTH: [Side; 2] = [Side::Client, Side::Server];
const ZERO: PathId = PathId::ZERO;

/// Asserts that a victim of this side closes with `code` after these frames in a 1-RTT packet.
#[track_caller]
fn assert_breach(victim: Side, frames: &[Frame<'_>], code: Code) {
    let mut peer = RawPeer::against(victim);
    peer.frames(ZERO, frames);
    assert_closed(&peer, code);
}

/// Asserts that a victim of this side closes with `code` after these bytes in a 1-RTT packet.
#[track_caller]
fn assert_bytes(victim: Side, payload: &[u8], code: Code) {
    let mut peer = RawPeer::against(victim);
    peer.bytes(ZERO, payload);
    assert_closed(&peer, code);
}

/// Asserts that a victim of this side shrugs these frames off.
#[track_caller]
fn assert_harmless(victim: Side, frames: &[Frame<'_>]) {
    let mut peer = RawPeer::against(victim);
    peer.frames(ZERO, frames);
    peer.assert_alive();
}
