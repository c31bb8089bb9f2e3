//! How much a peer can make this crate keep or read. All of it is per stream or per request.

/// Bytes of a header section, as the peer is told in SETTINGS: names, values and 32 for each field
/// (RFC 9114, section 4.2.2). A HEADERS frame that is longer is not read at all.
pub const FIELD_SECTION_BYTES: usize = 16 * 1024;

/// Bytes of a SETTINGS frame: some hundred settings, where a dozen exist.
pub const SETTINGS_BYTES: usize = 4 * 1024;

/// Bytes of a capsule that is read as a whole. Lists of addresses and routes are shorter.
pub const CAPSULE_BYTES: usize = 64 * 1024;

/// Bytes of an HTTP datagram in a capsule: an IP packet of any length, a context ID and a number.
/// A longer one is dropped unread.
pub const DATAGRAM_BYTES: usize = 65_535 + 8 + 8;

/// Bytes of a UDP payload (RFC 9298, section 5).
pub const UDP_PAYLOAD_BYTES: usize = 65_527;

/// Addresses in one list that asks for or assigns some.
pub const ADDRESSES: usize = 64;

/// Address ranges in one list of routes.
pub const ROUTES: usize = 1024;

/// Contexts of one request that are open at the same time.
pub const CONTEXTS: usize = 256;

/// DNS configurations in a capsule, nameservers in one of them and addresses of one of those.
pub const DNS_SERVERS: usize = 16;

/// Domains in each list of a DNS configuration.
pub const DNS_DOMAINS: usize = 256;
