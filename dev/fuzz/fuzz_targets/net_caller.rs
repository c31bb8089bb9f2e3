//! A program does anything with connections, streams, datagrams and paths of `anabranch-net`, over
//! real sockets of the loopback interface.

#![no_main]

#[path = "../../../crates/net/src/tests/caller.rs"]
mod caller;

use anabranch_net;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| caller::play(script));
