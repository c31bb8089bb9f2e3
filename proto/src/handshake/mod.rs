//! TLS, keys and protection.

pub mod token;
