//! What links can carry at best, and what a transfer reported.

use super::Family;
use serde_json::Value;

/// Bytes that Ethernet and UDP add to a datagram on the wire. The kernel's token bucket counts
/// them, but neither preamble nor checksum.
const ETHERNET_AND_UDP: f64 = 14.0 + 8.0;

/// Bytes of a full packet that are not file content: first byte 1, connection ID 8,
/// packet number 2, tag 16; STREAM frame: type 1, stream ID 1, offset 4 (below 1 GiB), length 2.
const QUIC: f64 = 1.0 + 8.0 + 2.0 + 16.0 + 1.0 + 1.0 + 4.0 + 2.0;

/// The content rate of links with this total rate, in bits per second, with packets of `mtu` bytes
/// of UDP payload:
///
/// ```text
/// content = rate * (mtu - QUIC) / (mtu + UDP + IP + Ethernet)
/// ```
///
/// HTTP/3's own frames are less than a thousandth. Acknowledgements go the other way and cost
/// nothing in this direction.
pub fn content_rate(rate: f64, mtu: f64, family: Family) -> f64 {
    let ip = match family {
        Family::V4 => 20.0,
        Family::V6 => 40.0,
    };
    rate * (mtu - QUIC) / (mtu + ETHERNET_AND_UDP + ip)
}

/// A number from a report.
#[track_caller]
pub fn number(report: &Value, name: &str) -> f64 {
    report[name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// The paths of a report.
pub fn paths(report: &Value) -> &[Value] {
    report["paths"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The path over this interface that carried most; `None` if there was none.
pub fn path_over<'a>(report: &'a Value, interface: &str) -> Option<&'a Value> {
    let over = paths(report)
        .iter()
        .filter(|path| path["interface"] == interface);
    over.max_by_key(|path| path["bytes"].as_u64())
}

/// Each interface with its share of the bytes, formatted for people.
pub fn shares(report: &Value) -> String {
    let share = |path: &Value| {
        let interface = path["interface"].as_str().unwrap_or("?");
        let (share, rtt) = (
            number(path, "share") * 100.0,
            path["smoothed_rtt_ms"].as_f64().unwrap_or(f64::NAN),
        );
        format!("{interface} {share:.1} % (rtt {rtt:.1} ms)")
    };
    paths(report)
        .iter()
        .map(share)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Bits per second as Mbit/s.
pub fn mbit(bits_per_second: f64) -> String {
    format!("{:.1} Mbit/s", bits_per_second / 1e6)
}
