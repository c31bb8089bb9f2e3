//! Files: what is served, what is stored, and how a part of one is found again.
//!
//! | module | does |
//! |---|---|
//! | [`root`] | finds a file below the served directory, and nothing beside it |
//! | [`service`] | answers requests: what is sent, with which status and headers |
//! | [`reader`], [`writer`] | move bytes between disk and network, and hash them on the way |
//! | [`partial`] | the client's unfinished download |
//! | [`upload`] | the server's unfinished upload |
//! | [`digest`], [`range`] | the HTTP fields of RFC 9530, and RFC 9110, section 14 |

pub(crate) mod digest;
pub(crate) mod listing;
pub(crate) mod partial;
pub(crate) mod range;
pub(crate) mod reader;
pub(crate) mod root;
pub(crate) mod service;
pub(crate) mod upload;
pub(crate) mod writer;

/// Request header: tells one upload from another, so that a broken one is found again.
pub(crate) const UPLOAD_HEADER: &str = "anabranch-upload";

/// Response header: bytes the server has of an upload.
pub(crate) const OFFSET_HEADER: &str = "anabranch-offset";

/// Request header: the scheduler the server is to use on this connection.
pub(crate) const SCHEDULER_HEADER: &str = "anabranch-scheduler";

/// Request header: the congestion control the server is to use on this connection.
pub(crate) const CONGESTION_HEADER: &str = "anabranch-congestion";

/// Request header: bytes per scheduling decision.
pub(crate) const CHUNK_HEADER: &str = "anabranch-chunk";

/// Bytes per scheduling decision that can be asked for.
pub(crate) const CHUNK_RANGE: std::ops::RangeInclusive<u64> = 500..=65_536;
