//! Merges the time series of two hosts.
//!
//! Each host samples at equal intervals of its own clock, and once more when it ends. The hosts
//! start at different times, tick late and end apart, so bins are matched by number: how many
//! intervals the host had completed. Two rows of a host with the same number are added up, such as
//! a last sample right after a regular one. Every byte is in exactly one bin.

use super::HostBin;
use crate::results::Bin;
use std::collections::BTreeMap;

/// By path and bin number.
type Rows = BTreeMap<(u32, i64), HostBin>;

/// The rows of a host, and how much later it began than the common time.
pub(super) type Side<'a> = (&'a [HostBin], f64);

/// The series of a run: what was sent at the sender's sampling times, and what arrived. `bin_s` is
/// the interval. Paths are numbered as in the hosts' reports.
pub(super) fn join(bin_s: f64, sender: Side<'_>, receiver: Side<'_>) -> Vec<Bin> {
    let near = numbered(bin_s, sender);
    let later = ((receiver.1 - sender.1) / bin_s).round() as i64;
    let mut bins: BTreeMap<(u32, i64), Bin> = near
        .into_iter()
        .map(|(key, row)| (key, of_sender(&row)))
        .collect();
    for ((path, number), row) in numbered(bin_s, receiver) {
        let number = number.saturating_add(later);
        let key = place(&bins, (path, number), row.t_s, bin_s);
        let last = || bins.range((path, i64::MIN)..key).next_back();
        let bin = match bins.get(&key) {
            Some(bin) => *bin,
            None => after(last().map(|(_, bin)| bin), &row),
        };
        bins.insert(key, with_arrived(&bin, &row));
    }
    let mut bins: Vec<((u32, i64), Bin)> = bins.into_iter().collect();
    // Within a bin, the connection follows its paths.
    bins.sort_by_key(|((path, number), _)| (*number, path.wrapping_sub(1)));
    bins.into_iter().map(|(_, bin)| bin).collect()
}

/// The rows of a host in common time, with those of one number added up.
fn numbered(bin_s: f64, (rows, lag_s): Side<'_>) -> Rows {
    let mut all = Rows::new();
    for row in rows {
        let number = (row.t_s / bin_s).round() as i64;
        let before = all.get(&(row.path, number)).copied().unwrap_or_default();
        let one = HostBin {
            t_s: row.t_s + lag_s,
            sent_bytes: before.sent_bytes + row.sent_bytes,
            received_bytes: before.received_bytes + row.received_bytes,
            goodput_bytes: before.goodput_bytes + row.goodput_bytes,
            reseq_bytes: before.reseq_bytes.max(row.reseq_bytes),
            blocked_s: before.blocked_s + row.blocked_s,
            ..*row
        };
        all.insert((row.path, number), one);
    }
    all
}

/// The bin that takes what arrived in a row of the receiver: the one with its number; the next one,
/// which is longer, if the sender missed a tick; the last one if it ended less than half an
/// interval before; else a new bin.
fn place(bins: &BTreeMap<(u32, i64), Bin>, key: (u32, i64), t_s: f64, bin_s: f64) -> (u32, i64) {
    let (path, _) = key;
    if let Some((next, _)) = bins.range(key..=(path, i64::MAX)).next() {
        return *next;
    }
    match bins.range((path, i64::MIN)..key).next_back() {
        Some((last, bin)) if t_s - bin.t_s < bin_s / 2.0 => *last,
        _ => key,
    }
}

fn of_sender(row: &HostBin) -> Bin {
    Bin {
        t_s: row.t_s,
        path: row.path,
        sent_bytes: row.sent_bytes,
        inflight_bytes: row.inflight_bytes,
        cwnd_bytes: row.cwnd_bytes,
        srtt_s: row.srtt_s,
        flow_credit_bytes: row.flow_credit_bytes,
        blocked_s: row.blocked_s,
        ..Bin::default()
    }
}

/// An empty bin after the sender's last one, with the last known state.
fn after(last: Option<&Bin>, row: &HostBin) -> Bin {
    Bin {
        t_s: row.t_s,
        path: row.path,
        sent_bytes: 0,
        delivered_bytes: 0,
        goodput_bytes: 0,
        reseq_bytes: 0,
        blocked_s: 0.0,
        ..last.copied().unwrap_or_default()
    }
}

fn with_arrived(bin: &Bin, row: &HostBin) -> Bin {
    Bin {
        delivered_bytes: bin.delivered_bytes + row.received_bytes,
        goodput_bytes: bin.goodput_bytes + row.goodput_bytes,
        reseq_bytes: bin.reseq_bytes.max(row.reseq_bytes),
        ..*bin
    }
}
