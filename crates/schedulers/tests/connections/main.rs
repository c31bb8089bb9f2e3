//! The catalogue in the engine: whole connections between two endpoints on a virtual clock, and
//! random worlds of faults in which every policy must come to an end.

mod catalogue;
mod classes;
#[path = "../../../proto/tests/engine/pair/mod.rs"]
mod pair;
mod random;
#[path = "../../src/tests/specs.rs"]
mod specs;
