//! Paths: their connection IDs, routes, validation, MTU and ECN.

pub mod amplification;
pub mod cids;
pub mod ecn;
pub mod mtu;
pub mod validation;
