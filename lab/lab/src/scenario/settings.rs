//! The settings of a transport, whatever its kind. What they mean to the engine is decided in
//! `engine`.

use super::mistake::Mistake;
use super::named::{POLICIES, SPLITS, optional};
use super::reader::{Item, Table};
use anabranch_proto::config::{RetransmissionPolicy, Split};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Settings in which the papers' systems differ.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Settings {
    /// Receive buffer of the connection, in bytes.
    pub receive_buffer: Option<u64>,
    /// Send buffer of the connection, in bytes.
    pub send_buffer: Option<u64>,
    /// Bytes of each packet's UDP payload; disables the search for a larger size.
    pub packet_size: Option<u64>,
    /// Bytes of each scheduling decision.
    pub chunk: Option<u64>,
    /// Initial window in packets.
    pub initial_window: Option<u64>,
    /// Packets per acknowledgement.
    pub ack_every: Option<u64>,
    /// The longest an acknowledgement is held back.
    pub ack_delay: Option<Duration>,
    /// Whether packets are paced.
    pub pacing: Option<bool>,
    /// Whether TCP acknowledges selectively (RFC 2018).
    pub sack: Option<bool>,
    /// Which path carries a retransmission.
    #[serde(with = "optional", default)]
    pub retransmit: Option<RetransmissionPolicy>,
    /// How the buffers are shared between paths.
    #[serde(with = "optional", default)]
    pub split: Option<Split>,
    /// Whether the send buffer keeps acknowledged bytes until all before them are acknowledged.
    pub renegable: Option<bool>,
    /// Whether data that blocks the window is sent again on a faster path.
    pub opportunistic: Option<bool>,
    /// Whether the window of the blocking path is halved.
    pub penalise: Option<bool>,
    /// A path's window is capped once its RTT exceeds this many times its minimum.
    pub bufferbloat_cap: Option<f64>,
    /// Connections per path (profile `stripe`).
    pub connections: Option<u64>,
    /// Whether chunks cost processing time as in the first paper (profile `stripe`).
    pub processing: Option<bool>,
    /// Whether packets are encrypted; without encryption, runs are faster but otherwise identical.
    pub protection: Option<bool>,
    /// Whether packets carry timestamps, so that one-way delays can be compared.
    pub timestamps: Option<bool>,
    /// Whether a simulated client begins on the path whose handshake is over first, as clients on
    /// real links do, instead of on the first of its paths.
    pub race: Option<bool>,
}

/// Reads the settings.
pub(super) fn settings(table: &mut Table<'_>) -> Result<Settings, Mistake> {
    Ok(Settings {
        receive_buffer: bytes(table, "receive-buffer", 4096)?,
        send_buffer: bytes(table, "send-buffer", 4096)?,
        packet_size: within(table, "packet-size", 1200, 65_527)?,
        chunk: within(table, "chunk", 500, 65_536)?,
        initial_window: table.read("initial-window", |item| item.count(1..=10_000))?,
        ack_every: table.read("ack-every", |item| item.count(1..=1000))?,
        ack_delay: table.read("ack-delay", Item::time)?,
        pacing: table.read("pacing", Item::flag)?,
        sack: table.read("sack", Item::flag)?,
        retransmit: table.read("retransmit", |item| item.word(&POLICIES))?,
        split: table.read("buffer-split", |item| item.word(&SPLITS))?,
        renegable: table.read("renegable", Item::flag)?,
        opportunistic: table.read("opportunistic-retransmission", Item::flag)?,
        penalise: table.read("penalise", Item::flag)?,
        bufferbloat_cap: table.read("bufferbloat-cap", cap)?,
        connections: table.read("connections", |item| item.count(1..=64))?,
        processing: table.read("processing", Item::flag)?,
        protection: table.read("protection", Item::flag)?,
        timestamps: table.read("timestamps", Item::flag)?,
        race: table.read("race", Item::flag)?,
    })
}

fn cap(item: &Item<'_>) -> Result<f64, Mistake> {
    let factor = item.number()?;
    if factor >= 1.0 {
        Ok(factor)
    } else {
        Err(item.expected("a factor of at least 1"))
    }
}

fn bytes(table: &mut Table<'_>, key: &'static str, least: u64) -> Result<Option<u64>, Mistake> {
    within(table, key, least, 1 << 40)
}

fn within(
    table: &mut Table<'_>,
    key: &'static str,
    least: u64,
    most: u64,
) -> Result<Option<u64>, Mistake> {
    table.read(key, |item| {
        let bytes = item.size()?;
        if (least..=most).contains(&bytes) {
            Ok(bytes)
        } else {
            Err(item.expected(&format!("from {least}B to {most}B")))
        }
    })
}
