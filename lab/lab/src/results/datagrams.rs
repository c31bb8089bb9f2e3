//! What became of the datagrams of one flow through a tunnel.

use super::schema::{Cell, Field, Kind, number, whole};
use serde::{Deserialize, Serialize};

/// A flow of datagrams through a tunnel.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DatagramFlow {
    /// The flow, in the order of the scenario, from 1.
    pub flow: u32,
    /// Datagrams that its host sent.
    pub sent: u64,
    /// Datagrams that reached the other host.
    pub delivered: u64,
    /// Datagrams that took longer than the flow's deadline.
    pub late: u64,
    /// Datagrams that the node on the host's side did not send: too large, or too many waited.
    pub dropped: u64,
    /// Datagrams that the other node got behind later ones.
    pub reordered_before: u64,
    /// Datagrams that the other host got behind later ones.
    pub reordered: u64,
    /// Copies that came behind what they are copies of, and were dropped.
    pub copies: u64,
    /// Datagrams that waited at the other node for earlier ones.
    pub held: u64,
    /// The mean time that these waited.
    pub held_mean_s: Option<f64>,
    /// 99th percentile of that time.
    pub held_p99_s: Option<f64>,
    /// The longest of these times.
    pub held_max_s: Option<f64>,
    /// Median time from host to host.
    pub delay_p50_s: Option<f64>,
    /// 95th percentile of that time.
    pub delay_p95_s: Option<f64>,
    /// 99th percentile of that time.
    pub delay_p99_s: Option<f64>,
    /// The longest of these times.
    pub delay_max_s: Option<f64>,
    /// The mean difference between the times of successive datagrams.
    pub jitter_s: Option<f64>,
}

pub(super) const DATAGRAMS: &[Field<DatagramFlow>] = &[
    ("flow", Kind::Whole, "the flow, from 1", |d| {
        Cell::Whole(d.flow.into())
    }),
    ("sent", Kind::Whole, "datagrams that its host sent", |d| {
        whole(Some(d.sent))
    }),
    (
        "delivered",
        Kind::Whole,
        "of these, reached the other host",
        |d| whole(Some(d.delivered)),
    ),
    ("lost", Kind::Whole, "of those sent, did not", |d| {
        whole(Some(d.sent.saturating_sub(d.delivered)))
    }),
    (
        "late",
        Kind::Whole,
        "of those delivered, later than the flow's deadline",
        |d| whole(Some(d.late)),
    ),
    (
        "dropped",
        Kind::Whole,
        "of those lost, not sent by the node on the sender's side: too large, or too many waited",
        |d| whole(Some(d.dropped)),
    ),
    (
        "reordered_before",
        Kind::Whole,
        "datagrams that the node on the receiver's side got behind later ones",
        |d| whole(Some(d.reordered_before)),
    ),
    (
        "reordered",
        Kind::Whole,
        "datagrams that the other host got behind later ones",
        |d| whole(Some(d.reordered)),
    ),
    (
        "copies",
        Kind::Whole,
        "copies that came second and were dropped",
        |d| whole(Some(d.copies)),
    ),
    (
        "held",
        Kind::Whole,
        "datagrams that waited for earlier ones",
        |d| whole(Some(d.held)),
    ),
    (
        "held_mean_s",
        Kind::Number,
        "mean time that these waited",
        |d| number(d.held_mean_s),
    ),
    (
        "held_p99_s",
        Kind::Number,
        "99th percentile of that time",
        |d| number(d.held_p99_s),
    ),
    (
        "held_max_s",
        Kind::Number,
        "the longest of these times",
        |d| number(d.held_max_s),
    ),
    (
        "delay_p50_s",
        Kind::Number,
        "median time from host to host",
        |d| number(d.delay_p50_s),
    ),
    (
        "delay_p95_s",
        Kind::Number,
        "95th percentile of that time",
        |d| number(d.delay_p95_s),
    ),
    (
        "delay_p99_s",
        Kind::Number,
        "99th percentile of that time",
        |d| number(d.delay_p99_s),
    ),
    (
        "delay_max_s",
        Kind::Number,
        "the longest of these times",
        |d| number(d.delay_max_s),
    ),
    (
        "jitter_s",
        Kind::Number,
        "mean difference between the times of successive datagrams",
        |d| number(d.jitter_s),
    ),
];
