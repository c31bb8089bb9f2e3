//! What settings may be at most and at least: a caller's slip must not break arithmetic, a frame or
//! a driver.

use super::TransportConfig;
use crate::path::mtu::MtuConfig;
use crate::streams::Limits;
use crate::wire::MIN_DATAGRAM_SIZE;
use std::sync::Arc;
use std::time::Duration;

/// The largest window and send buffer, in bytes: far more than a machine holds, and windows can
/// still be added and multiplied.
const MAX_WINDOW: u64 = 1 << 50;

/// The largest queue of datagrams, in bytes: sizes can still be added.
const MAX_QUEUE: usize = usize::MAX / 4;

/// The most streams a frame can name (RFC 9000, section 4.6).
const MAX_STREAMS: u64 = 1 << 60;

/// The largest UDP payload (RFC 9000, section 18.2).
const MAX_UDP_PAYLOAD: u16 = 65_527;

/// The largest delay of acknowledgements that can be announced (RFC 9000, section 18.2).
const MAX_ACK_DELAY: Duration = Duration::from_millis((1 << 14) - 1);

/// The shortest time between two keep-alives: a driver would do nothing else.
pub(crate) const MIN_KEEP_ALIVE: Duration = Duration::from_millis(10);

/// Between these is what is believed of an RTT before it was measured.
const INITIAL_RTT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(60));

/// The peer must be allowed two connection IDs (RFC 9000, section 18.2); each of more costs memory.
const CONNECTION_IDS: (u64, u64) = (2, 64);

impl TransportConfig {
    /// These settings with every value within its bounds.
    pub(crate) fn bounded(config: &Arc<Self>) -> Arc<Self> {
        let mut bounded = Self::clone(config);
        bound_streams(&mut bounded.streams);
        bounded.max_idle_timeout = bounded.max_idle_timeout.filter(|time| !time.is_zero());
        bounded.keep_alive = bounded.keep_alive.map(|time| time.max(MIN_KEEP_ALIVE));
        bounded.max_ack_delay = bounded.max_ack_delay.min(MAX_ACK_DELAY);
        bounded.ack_threshold = bounded.ack_threshold.max(1);
        bounded.initial_rtt = bounded.initial_rtt.clamp(INITIAL_RTT.0, INITIAL_RTT.1);
        bounded.initial_mtu = payload(bounded.initial_mtu);
        let mtu = bounded.mtu;
        bounded.mtu = MtuConfig {
            min: payload(mtu.min),
            max: payload(mtu.max).max(payload(mtu.min)),
            max_ipv4: payload(mtu.max_ipv4),
            ..mtu
        };
        bounded.chunk = bounded.chunk.filter(|bytes| *bytes > 0);
        let (least, most) = CONNECTION_IDS;
        bounded.active_connection_id_limit = bounded.active_connection_id_limit.clamp(least, most);
        bounded.into()
    }
}

fn payload(size: u16) -> u16 {
    size.clamp(MIN_DATAGRAM_SIZE as u16, MAX_UDP_PAYLOAD)
}

fn bound_streams(limits: &mut Limits) {
    for window in [
        &mut limits.receive_window,
        &mut limits.max_receive_window,
        &mut limits.receive_reserve,
        &mut limits.stream_receive_window,
        &mut limits.max_stream_receive_window,
        &mut limits.send_buffer,
    ] {
        *window = (*window).min(MAX_WINDOW);
    }
    limits.stream_unsent = limits.stream_unsent.max(1);
    for streams in [&mut limits.max_streams_bidi, &mut limits.max_streams_uni] {
        *streams = (*streams).min(MAX_STREAMS);
    }
    for bytes in [
        &mut limits.datagram_receive_buffer,
        &mut limits.datagram_send_buffer,
    ] {
        *bytes = (*bytes).min(MAX_QUEUE);
    }
    let frame = &mut limits.max_datagram_frame_size;
    *frame = (*frame).min(u64::from(u16::MAX));
}
