//! The engine's names, gathered.

mod stub;
pub use stub::*;
