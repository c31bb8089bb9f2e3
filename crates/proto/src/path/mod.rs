//! Paths: their connection IDs, routes, validation, MTU and ECN.

pub(crate) mod ack_routes;
mod amplification;
pub(crate) mod cids;
pub(crate) mod ecn;
mod errors;
pub(crate) mod liveness;
pub(crate) mod manager;
pub(crate) mod migration;
pub(crate) mod moves;
pub(crate) mod mtu;
pub(crate) mod packets;
pub(crate) mod route;
mod set;
pub(crate) mod shaper;
pub(crate) mod state;
pub(crate) mod validation;

pub use errors::{AbandonPathError, MigrateError, OpenPathError, PathUnknown};
pub use mtu::MtuConfig;
pub use set::{MAX_OPEN_PATHS, PathSet, PathState};
pub use shaper::Shape;
pub use state::{PathCounters, PathOptions};
