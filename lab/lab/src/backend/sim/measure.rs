//! Turns the state of a finished world into results.

use super::network::Built;
use super::{Progress, apps};
use crate::results::{Bin, Decided, Outcome, PathOutcome, Status};
use crate::scenario::Profile;
use crate::stats::quantile;
use anabranch_proto::sched::Decision;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use anabranch_sim::quic::QuicHost;
use anabranch_sim::record::{DecisionRow, PathTotals, Recorder, SeriesRow, Totals};
use anabranch_sim::{Direction, ProcessId};
use std::collections::BTreeMap;
use std::time::Duration;

/// The outcome of a run.
pub(super) fn outcome(
    built: &mut Built<'_>,
    recorder: &mut Recorder,
    progress: &Progress,
    hosts: [ProcessId; 2],
) -> Outcome {
    // The recorder sees only one of a stripe's connections, which represents nothing.
    let stripe = built.scenario.transport.profile == Profile::Stripe;
    let totals = recorder.totals(&mut built.world);
    let mut paths = recorder.paths(&mut built.world);
    if stripe {
        paths.clear();
    }
    let begin = built.first_start();
    let (first, last) = apps::first_and_last(&built.world, hosts);
    let units = apps::units(&built.world, hosts);
    let bytes = apps::delivered(&built.world, hosts);
    let corrupt = apps::corrupt(&built.world, hosts);
    let completion = last.filter(|_| progress.done && progress.cold.is_none());
    let mut outcome = Outcome {
        status: match (corrupt, progress.done) {
            (0, true) => Status::Ok,
            (0, false) => Status::Timeout,
            _ => Status::Failed,
        },
        reason: match corrupt {
            0 => why(built, hosts, progress),
            bytes => format!("{bytes} bytes are not those that were sent"),
        },
        bytes,
        handshake_s: totals.established.map(|at| seconds(at.since(begin))),
        first_byte_s: first.map(|at| seconds(at.since(begin))),
        completion_s: completion.map(|at| seconds(at.since(begin))),
        goodput_bps: goodput(progress, bytes, last, built.world.now()),
        sent_units: Some(units.sent),
        late_units: units.late,
        reordered_units: apps::reordered(&built.world, hosts),
        events: Some(built.world.events()),
        packets: Some(packets(built)),
        trace_hash: Some(format!("{:016x}", built.world.trace_hash())),
        ..Outcome::default()
    };
    outcome.add_units(units.times, built.scenario.record.units);
    let names = paths_by_id(built, &paths);
    if stripe {
        outcome.paths = flow_outcomes(built);
    } else {
        outcome.paths = path_outcomes(built, &paths, &names, recorder.rows());
        add_totals(&mut outcome, &totals);
    }
    if !stripe {
        outcome.series = series(built, recorder, &names);
    }
    outcome.decisions = recorder
        .probe()
        .decisions()
        .iter()
        .map(|row| decided(row, &names))
        .collect();
    outcome
}

/// The time series, if the scenario asks for it.
fn series(built: &Built<'_>, recorder: &Recorder, names: &BTreeMap<PathId, usize>) -> Vec<Bin> {
    if built.scenario.record.series.is_none() {
        return Vec::new();
    }
    let both = built.flows_both_ways();
    let rows = recorder.rows().iter();
    rows.map(|row| Bin {
        goodput_bytes: row.goodput_bytes + if both { row.returned_bytes } else { 0 },
        ..bin(row, names)
    })
    .collect()
}

/// Bytes after the warm-up over the time they took.
pub(super) fn goodput(
    progress: &Progress,
    bytes: u64,
    last: Option<Instant>,
    now: Instant,
) -> Option<f64> {
    let (before, since) = progress.warm?;
    let (after, until) = progress
        .cold
        .or(Some((bytes, last.filter(|_| progress.done).unwrap_or(now))))?;
    let time = seconds(until.since(since));
    (time > 0.0).then(|| after.saturating_sub(before) as f64 * 8.0 / time)
}

pub(super) fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn why(built: &Built<'_>, hosts: [ProcessId; 2], progress: &Progress) -> String {
    let sessions = hosts
        .iter()
        .flat_map(|host| built.world.process::<QuicHost>(*host).sessions());
    let closed = sessions
        .filter_map(|session| session.closed())
        .min_by_key(|(at, _)| *at);
    match closed {
        Some((at, error)) => format!(
            "closed at {:.3} s: {error}",
            seconds(at.since(Instant::ZERO))
        ),
        None if progress.done => String::new(),
        None => "the limit of virtual time was reached".to_owned(),
    }
}

pub(super) fn packets(built: &Built<'_>) -> u64 {
    let both = [Direction::Forward, Direction::Backward];
    let count = |link| {
        both.iter()
            .map(move |way| built.world.link_stats(link, *way).packets_in)
    };
    built.links.iter().flat_map(|link| count(*link)).sum()
}

fn add_totals(outcome: &mut Outcome, totals: &Totals) {
    let (sender, receiver) = (&totals.sender, &totals.receiver);
    let waits = &totals.reseq_waits;
    outcome.reseq_peak_bytes = Some(totals.reseq_peak_bytes);
    outcome.reseq_peak_runs = Some(totals.reseq_peak_runs);
    outcome.reseq_mean_bytes = Some(totals.reseq_mean_bytes);
    outcome.reseq_wait_mean_s = Some(seconds(waits.mean()));
    outcome.reseq_wait_p50_s = Some(seconds(waits.quantile(0.5)));
    outcome.reseq_wait_p95_s = Some(seconds(waits.quantile(0.95)));
    outcome.reseq_wait_p99_s = Some(seconds(waits.quantile(0.99)));
    outcome.retransmitted_bytes = Some(sender.streams.bytes_retransmitted);
    outcome.reinjected_bytes = Some(sender.streams.bytes_reinjected);
    outcome.duplicate_bytes = Some(receiver.streams.duplicate_bytes);
    outcome.blocked_receive_s = Some(seconds(totals.blocked.receive_window));
    outcome.blocked_send_s = Some(seconds(totals.blocked.send_buffer));
    outcome.blocked_hold_s = Some(seconds(totals.blocked.scheduler));
    outcome.holds = Some(sender.scheduler.holds);
    let reasons = sender.scheduler.reasons.iter();
    outcome.reasons = reasons
        .map(|(reason, count)| (reason.name().to_owned(), *count))
        .collect();
}

/// The scenario's path for each path ID, found by its addresses.
fn paths_by_id(built: &Built<'_>, paths: &[PathTotals]) -> BTreeMap<PathId, usize> {
    let used = &built.scenario.transport.paths;
    let backward = built.flows_backward();
    let of = |totals: &PathTotals| {
        let ends = if backward {
            (totals.ends.1, totals.ends.0)
        } else {
            totals.ends
        };
        let shown = |path: &usize| {
            if backward {
                built.ends_shown(*path)
            } else {
                built.ends(*path)
            }
        };
        let same = used.iter().find(|path| shown(path) == ends);
        let remote = used.iter().find(|path| built.ends(**path).1 == ends.1);
        let by_order = used.get(totals.path.0 as usize);
        same.or(remote).or(by_order).copied().unwrap_or(used[0])
    };
    paths
        .iter()
        .map(|totals| (totals.path, of(totals)))
        .collect()
}

/// What each path carried, whoever sent it.
pub(super) fn flow_outcomes(built: &Built<'_>) -> Vec<PathOutcome> {
    let scenario = built.scenario;
    let mut all: Vec<PathOutcome> = scenario
        .network
        .paths
        .iter()
        .map(|path| PathOutcome {
            name: path.name.clone(),
            ..PathOutcome::default()
        })
        .collect();
    let way = built.way();
    let began = built.first_start();
    let elapsed = seconds(built.world.now().since(began));
    for (path, one) in all.iter_mut().enumerate() {
        let flow = built.flow_stats(path, way);
        one.sent_bytes = flow.bytes_sent;
        one.delivered_bytes = flow.bytes;
        one.owd_mean_s =
            (flow.packets > 0).then(|| flow.delay_total_ns as f64 / flow.packets as f64 / 1e9);
        let could = scenario
            .path_rate(path, way)
            .map(|rate| rate as f64 / 8.0 * elapsed);
        one.utilisation = could
            .filter(|could| *could > 0.0)
            .map(|could| flow.bytes as f64 / could);
    }
    let sent: u64 = all.iter().map(|path| path.sent_bytes).sum();
    for one in &mut all {
        one.share = (sent > 0).then(|| one.sent_bytes as f64 / sent as f64);
    }
    all
}

fn path_outcomes(
    built: &Built<'_>,
    totals: &[PathTotals],
    names: &BTreeMap<PathId, usize>,
    rows: &[SeriesRow],
) -> Vec<PathOutcome> {
    let mut all = flow_outcomes(built);
    for total in totals {
        let one = &mut all[names[&total.path]];
        add(&mut one.lost_declared, total.sent.lost_packets);
        add(&mut one.spurious, total.sent.spurious_losses);
        one.lost_queue = Some(total.lost_queue);
        one.lost_random = Some(total.lost_random);
        add(&mut one.acked_bytes, total.sent.acked_bytes);
        add(&mut one.lost_bytes, total.sent.lost_bytes);
        add(&mut one.retransmitted_bytes, total.sent.retransmitted_bytes);
        add(&mut one.copied_bytes, total.sent.copied_bytes);
        add(&mut one.reinjected_bytes, total.sent.reinjected_bytes);
        add(&mut one.first_copy_bytes, total.bytes.first_copy);
        add(&mut one.duplicate_bytes, total.bytes.duplicate);
    }
    for (index, one) in all.iter_mut().enumerate() {
        // A path that was abandoned and opened again has several path IDs; all of them count.
        let own = |row: &&SeriesRow| {
            let path = row.path.and_then(|path| names.get(&path));
            path == Some(&index)
        };
        let rows: Vec<&SeriesRow> = rows.iter().filter(own).collect();
        let rtts = rows.iter().filter_map(|row| row.srtt.map(seconds));
        let rtts: Vec<f64> = rtts.collect();
        one.srtt_mean_s = mean(rtts.iter().copied());
        one.srtt_p95_s = quantile(&rtts, 0.95);
        one.queue_mean_bytes = mean(rows.iter().map(|row| row.queue_bytes as f64));
        one.queue_max_bytes = rows.iter().map(|row| row.queue_bytes).max();
        one.cwnd_mean_bytes = mean(rows.iter().map(|row| row.cwnd_bytes as f64));
    }
    all
}

fn mean(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let count = values.clone().count();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}

fn add(slot: &mut Option<u64>, more: u64) {
    *slot = Some(slot.unwrap_or(0) + more);
}

fn number(names: &BTreeMap<PathId, usize>, path: PathId) -> u32 {
    names.get(&path).map_or(path.0, |index| *index as u32) + 1
}

fn bin(row: &SeriesRow, names: &BTreeMap<PathId, usize>) -> Bin {
    let whole = row.path.is_none();
    Bin {
        t_s: seconds(row.at.since(Instant::ZERO)),
        path: row.path.map_or(0, |path| number(names, path)),
        sent_bytes: row.sent_bytes,
        delivered_bytes: row.delivered_bytes,
        goodput_bytes: row.goodput_bytes,
        inflight_bytes: row.inflight_bytes,
        cwnd_bytes: row.cwnd_bytes,
        srtt_s: row.srtt.map(seconds),
        owd_s: row.owd.map(seconds),
        queue_bytes: row.queue_bytes,
        reseq_bytes: row.reseq_bytes,
        flow_credit_bytes: row.flow_credit_bytes,
        blocked_s: seconds(row.blocked.receive_window),
        acked_bytes: Some(row.acked_bytes),
        lost_bytes: Some(row.lost_bytes),
        retransmitted_bytes: Some(row.retransmitted_bytes),
        copied_bytes: Some(row.copied_bytes),
        reinjected_bytes: Some(row.reinjected_bytes),
        duplicate_bytes: Some(row.duplicate_bytes),
        reseq_runs: whole.then_some(row.reseq_runs),
        receive_buffer_bytes: whole.then_some(row.receive_buffer_bytes),
        send_buffer_bytes: whole.then_some(row.send_buffer_bytes),
        blocked_send_s: whole.then(|| seconds(row.blocked.send_buffer)),
        blocked_hold_s: whole.then(|| seconds(row.blocked.scheduler)),
    }
}

fn decided(row: &DecisionRow, names: &BTreeMap<PathId, usize>) -> Decided {
    let (decision, path) = match row.choice.decision {
        Decision::Send(path) => ("send", Some(path)),
        Decision::SendAt { path, .. } => ("send-at", Some(path)),
        Decision::SendStream { path, .. } => ("send-stream", Some(path)),
        Decision::Duplicate(_) => ("duplicate", None),
        Decision::Copy(path) => ("copy", Some(path)),
        Decision::Hold { .. } => ("hold", None),
        _ => ("other", None),
    };
    let paths = match row.choice.decision {
        Decision::Duplicate(paths) => paths.iter().map(|path| number(names, path)).collect(),
        _ => path.iter().map(|path| number(names, *path)).collect(),
    };
    let skip = match row.choice.decision {
        Decision::SendAt { skip, .. } => Some(skip),
        _ => None,
    };
    Decided {
        t_ns: row.at.since(Instant::ZERO).as_nanos() as u64,
        decision: decision.to_owned(),
        path: path.map(|path| number(names, path)),
        paths,
        skip,
        reason: row.choice.reason.name().to_owned(),
    }
}
