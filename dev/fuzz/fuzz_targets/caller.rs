//! A caller passes any settings and commands to both sides of a connection, in any order.

#![no_main]

#[path = "../../../crates/proto/tests/engine/caller.rs"]
mod caller;
#[path = "../../../crates/proto/tests/engine/pair/mod.rs"]
mod pair;
#[allow(dead_code, reason = "the tests of the engine use the rest")]
#[path = "../../../crates/proto/tests/engine/policies.rs"]
mod policies;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| caller::play(script));
