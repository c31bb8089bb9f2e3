//! Paths: their connection IDs, routes, validation, MTU and ECN.

pub mod amplification;
pub(crate) mod caps;
pub mod cids;
pub(crate) mod copies;
pub mod ecn;
pub(crate) mod liveness;
pub(crate) mod manager;
pub(crate) mod migration;
pub(crate) mod moves;
pub mod mtu;
pub(crate) mod packets;
pub(crate) mod route;
mod set;
pub mod shaper;
pub(crate) mod state;
pub mod validation;

pub use set::{MAX_OPEN_PATHS, PathSet, PathState};
pub use shaper::Shape;
pub use state::{PathCounters, PathOptions};
