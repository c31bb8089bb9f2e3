//! Packet headers.
