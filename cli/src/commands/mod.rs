//! The commands, one file each.

pub(crate) mod campaign;
pub(crate) mod demo;
pub(crate) mod doctor;
mod experiments;
pub(crate) mod get;
pub(crate) mod lab;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod ping;
pub(crate) mod put;
pub(crate) mod routes;
pub(crate) mod serve;
pub(crate) mod sim;

use crate::files::digest::Sum;
use crate::output::{self, units};
use crate::paths::{self, Row};
use serde::Serialize;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Waits until the user or the system wants the program to end.
pub(crate) async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        // Without handlers the signals end the program by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// What a transfer did: the result of `get` and `put`.
#[derive(Debug, Serialize)]
pub(crate) struct Transfer {
    /// `get` or `put`.
    pub(crate) command: &'static str,
    /// The local file.
    pub(crate) file: String,
    /// Its length.
    pub(crate) bytes: u64,
    /// Bytes that an earlier attempt had moved.
    pub(crate) resumed_from: u64,
    /// Duration of this attempt, without connecting.
    pub(crate) seconds: f64,
    /// Time until the connection stood.
    pub(crate) connect_seconds: f64,
    /// Bytes of the file moved now, in bits per second.
    pub(crate) goodput_bps: f64,
    /// SHA-256 of the file in hexadecimal digits.
    pub(crate) sha256: String,
    /// What was compared with the other side's digest: `whole`, or `none` if it told none.
    pub(crate) verified: &'static str,
    /// Whether both sides spoke multipath QUIC.
    pub(crate) multipath: bool,
    /// Stream bytes received more than once, here.
    pub(crate) duplicate_bytes: u64,
    /// The most bytes that waited here behind a gap.
    pub(crate) reassembly_peak_bytes: u64,
    /// Stream bytes sent again from here.
    pub(crate) retransmitted_bytes: u64,
    /// The paths.
    pub(crate) paths: Vec<Row>,
}

impl Transfer {
    /// Says what happened in words.
    pub(crate) fn say(&self) {
        let moved = self.bytes - self.resumed_from;
        let duration = Duration::from_secs_f64(self.seconds);
        let table = paths::table(&self.paths, duration);
        if !table.is_empty() {
            output::say(&table);
        }
        let resumed = match self.resumed_from {
            0 => String::new(),
            bytes => format!(" ({} were there already)", units::bytes(bytes)),
        };
        let verified = if self.verified == "none" {
            "NOT compared with the sender's"
        } else {
            "ok"
        };
        output::say(format!(
            "{}: {}{resumed} in {:.2} s, {}; sha-256 {verified}",
            self.file,
            units::bytes(moved),
            self.seconds,
            units::bit_rate(self.goodput_bps),
        ));
    }
}

/// What is compared of a file, given the other side's digest.
pub(crate) fn verified(theirs: Option<Sum>) -> &'static str {
    if theirs.is_some() { "whole" } else { "none" }
}
