//! What both sides of a speed test share.

use serde::{Deserialize, Serialize};

/// Request header: measure for this many seconds. `GET` moves data to the client, `PUT` from it.
pub(crate) const HEADER: &str = "anabranch-speed";

/// The most seconds that one test takes.
pub(crate) const MAX_SECONDS: u64 = 60;

/// What a server received.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Received {
    /// Bytes.
    pub(crate) bytes: u64,
    /// From the first of them to the last, in seconds.
    pub(crate) seconds: f64,
}
