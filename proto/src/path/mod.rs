//! Paths: their connection IDs, routes, validation, MTU and ECN.
