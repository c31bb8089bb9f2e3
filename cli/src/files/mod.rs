//! Files: what is served, what is stored, and how an unfinished transfer is continued.
//!
//! | module | does |
//! |---|---|
//! | [`root`] | finds a file below the served directory, and nothing outside it |
//! | [`service`] | answers requests: what is sent, with which status and headers |
//! | [`reader`], [`writer`] | move bytes between disk and network, and hash them on the way |
//! | [`partial`] | the client's unfinished download |
//! | [`naming`] | gives a file its name unless the name is taken |
//! | [`upload`] | the server's unfinished upload |
//! | [`uploads`] | limits the number and the size of uploads |
//! | [`expiry`] | removes uploads that nobody continues |
//! | [`digests`] | digests of whole files, made once |
//! | [`digest`] | the HTTP fields of RFC 9530 |
//! | [`range`], [`dates`] | the HTTP fields of RFC 9110, sections 14 and 8.8 |
//! | [`media`] | what kind of content a file has |

pub(crate) mod dates;
pub(crate) mod digest;
pub(crate) mod digests;
pub(crate) mod expiry;
pub(crate) mod listing;
mod media;
pub(crate) mod naming;
pub(crate) mod partial;
pub(crate) mod range;
pub(crate) mod reader;
pub(crate) mod root;
pub(crate) mod service;
pub(crate) mod upload;
pub(crate) mod uploads;
pub(crate) mod writer;

/// The deepest nesting of directories, the served one included.
pub(crate) const MAX_DEPTH: usize = 64;

/// Request header: identifies an upload, so that a broken one can be continued.
pub(crate) const UPLOAD_HEADER: &str = "anabranch-upload";

/// Response header: bytes the server has of an upload.
pub(crate) const OFFSET_HEADER: &str = "anabranch-offset";

/// Response header of an upload's `HEAD`: length of the file that has the name now.
pub(crate) const LENGTH_HEADER: &str = "anabranch-length";

/// Response header of a refused `HEAD`, which has no content: the reason.
pub(crate) const REASON_HEADER: &str = "anabranch-reason";

/// Request header: asks for the digest of the whole file (RFC 9530, section 4).
pub(crate) const WANT_DIGEST: &str = "want-repr-digest";

/// Request header: the scheduler the server is to use on this connection.
pub(crate) const SCHEDULER_HEADER: &str = "anabranch-scheduler";

/// Request header: the congestion control the server is to use on this connection.
pub(crate) const CONGESTION_HEADER: &str = "anabranch-congestion";

/// Request header: bytes per scheduling decision.
pub(crate) const CHUNK_HEADER: &str = "anabranch-chunk";

/// Bytes per scheduling decision that a client may ask for.
pub(crate) const CHUNK_RANGE: std::ops::RangeInclusive<u64> = 500..=65_536;
