//! Packet numbers.
