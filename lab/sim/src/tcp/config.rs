//! How a TCP stack behaves.

use crate::profile::hosts_controller;
use anabranch_proto::congestion::ControllerFactory;
use anabranch_schedulers::Names;
use std::time::Duration;

/// Settings of one connection. The defaults are those of a current Linux.
#[derive(Debug, Clone)]
pub struct TcpConfig {
    /// The most bytes of content per segment; raised to at least 64.
    pub mss: u16,
    /// Makes the congestion control. Delivery rates are not sampled, so only controls based on
    /// losses and delays work.
    pub congestion: ControllerFactory,
    /// Whether selective acknowledgements are offered (RFC 2018).
    pub sack: bool,
    /// How long an acknowledgement waits for a second segment; with `None` it does not wait.
    pub delayed_ack: Option<Duration>,
    /// Bytes the receiver may hold out of order; limited to 1 GiB.
    pub receive_buffer: u64,
    /// Unacknowledged bytes the sender may have.
    pub send_buffer: u64,
    /// The shortest retransmission time-out. RFC 6298 has 1 s.
    pub min_timeout: Duration,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            mss: 1460,
            congestion: hosts_controller(&Names::default(), None, "cubic", None)
                .expect("a known name"),
            sack: true,
            delayed_ack: Some(Duration::from_millis(40)),
            receive_buffer: 6 << 20,
            send_buffer: 6 << 20,
            min_timeout: Duration::from_millis(200),
        }
    }
}

impl TcpConfig {
    /// Sets both buffers to twice the product of this rate and round-trip time.
    pub fn for_path(self, bits_per_second: u64, rtt: Duration) -> Self {
        let product = u128::from(bits_per_second) * rtt.as_nanos() / 8_000_000_000;
        let buffer = (2 * product).clamp(64 * 1024, 1 << 30) as u64;
        Self {
            receive_buffer: buffer,
            send_buffer: buffer,
            ..self
        }
    }
}
