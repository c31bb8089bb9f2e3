//! A caller passes any settings and commands to both sides of a connection, in any order.

#![no_main]

#[path = "../../proto/tests/engine/caller.rs"]
mod caller;
#[path = "../../proto/tests/engine/pair/mod.rs"]
mod pair;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| caller::play(script));
