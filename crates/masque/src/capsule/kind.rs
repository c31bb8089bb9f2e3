//! Capsule types. Whoever wants another number for one changes it here.

/// RFC 9297, section 3.5.
pub(super) const DATAGRAM: u64 = 0x00;
/// RFC 9484, section 4.7.1.
pub(super) const ADDRESS_ASSIGN: u64 = 0x01;
/// RFC 9484, section 4.7.2.
pub(super) const ADDRESS_REQUEST: u64 = 0x02;
/// RFC 9484, section 4.7.3.
pub(super) const ROUTE_ADVERTISEMENT: u64 = 0x03;
/// draft-ietf-masque-connect-udp-listen.
pub(super) const COMPRESSION_ASSIGN: u64 = 0x11;
/// draft-ietf-masque-connect-udp-listen.
pub(super) const COMPRESSION_ACK: u64 = 0x12;
/// draft-ietf-masque-connect-udp-listen.
pub(super) const COMPRESSION_CLOSE: u64 = 0x13;
/// draft-ietf-masque-connect-ip-dns, provisional.
pub(super) const DNS_ASSIGN: u64 = 0x1ace_79ec;
/// draft-ietf-masque-connect-ip-dns, provisional.
pub(super) const PREF64: u64 = 0x274c_0fbc;
/// DATA of draft-ietf-httpbis-connect-tcp-12.
pub(super) const TCP_DATA: u64 = 0x2028_d7f2;
/// `FINAL_DATA` of draft-ietf-httpbis-connect-tcp-12.
pub(super) const TCP_FINAL_DATA: u64 = 0x2028_d7f3;
/// draft-ihlar-masque-datagram-numbers, which was assigned no number: this one is our own choice.
pub(super) const REGISTER_SEQUENCE_CONTEXT: u64 = 0x1f8c_62a5;
/// Our own choice, for what no draft has: who does not know it skips it (RFC 9297, section 3.2).
pub(super) const CONTEXT_CLASS: u64 = 0x1f8c_62a6;
