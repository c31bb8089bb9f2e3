//! Paths: their connection IDs, routes, validation, MTU and ECN.

pub mod amplification;
pub mod cids;
pub mod ecn;
pub mod mtu;
pub mod validation;
pub(crate) mod manager;
pub(crate) mod route;
pub(crate) mod state;

pub use state::{PathCounters, PathOptions};
