//! Paths: their connection IDs, routes, validation, MTU and ECN.

pub mod amplification;
pub mod cids;
pub mod ecn;
pub(crate) mod manager;
pub(crate) mod moves;
pub mod mtu;
pub(crate) mod route;
pub(crate) mod state;
pub mod validation;

pub use state::{PathCounters, PathOptions};
