//! The promises that users take for granted, checked on the simulator's networks.

pub use anabranch_sim::conformance::{EXCUSES, Excuse, Finding, Kit, Report, Rule};
