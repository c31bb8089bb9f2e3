//! TLS, keys and protection.
