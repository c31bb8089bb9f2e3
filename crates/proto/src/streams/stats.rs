//! Counters.

/// What streams and datagrams did so far. Bytes unless named otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamStats {
    /// Stream bytes sent for the first time.
    pub bytes_sent: u64,
    /// Stream bytes sent again after a loss or after their path became doubtful.
    pub bytes_retransmitted: u64,
    /// Stream bytes sent as copies on further paths.
    pub bytes_copied: u64,
    /// Stream bytes taken from doubtful paths.
    pub bytes_reinjected: u64,
    /// Stream bytes received for the first time.
    pub bytes_received: u64,
    /// Stream bytes read by the application.
    pub bytes_delivered: u64,
    /// Stream bytes received again.
    pub duplicate_bytes: u64,
    /// Stream bytes received that wait behind a gap now.
    pub buffered_out_of_order: u64,
    /// The most bytes that ever waited behind gaps.
    pub reassembly_peak: u64,
    /// How often the connection's limit was found to stop fresh data.
    pub blocked_by_connection: u64,
    /// How often a stream's limit was found to stop the application.
    pub blocked_by_stream: u64,
    /// How often a full send buffer stopped the application.
    pub blocked_by_send_buffer: u64,
    /// How often the peer said that our limits stop it.
    pub peer_blocked: u64,
    /// Streams not forgotten yet.
    pub open_streams: u64,
    /// The connection's receive window at present.
    pub receive_window: u64,
    /// Datagrams sent, those sent again included.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Datagrams whose packet was lost, without those sent again.
    pub datagrams_lost: u64,
    /// Datagrams sent again because their packet was lost or its path went silent.
    pub datagrams_repaired: u64,
    /// Received datagrams dropped because the application did not read them in time.
    pub datagrams_overflowed: u64,
    /// Datagrams dropped before sending because packets became smaller.
    pub datagrams_outgrown: u64,
    /// Datagrams dropped because their deadline passed before they were sent.
    pub datagrams_expired: u64,
    /// Datagrams sent as copies on further paths.
    pub datagrams_copied: u64,
}
