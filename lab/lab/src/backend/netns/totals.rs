//! What links carried, in the terms of results.

use super::layout::Hop;
use super::network::Net;
use super::script::Sample;
use crate::hosts::{Carried, HostReport, LinkTotals};
use crate::results::{Bin, Outcome};
use crate::scenario::{Kind, Way};
use anabranch_testbed::emulate::Counters;
use std::time::Duration;

/// What each path carried, by the counters of its links.
pub(super) fn totals(net: &Net<'_>, samples: &[Sample]) -> Vec<LinkTotals> {
    let paths = 0..net.scenario.network.paths.len();
    let along = |path: usize, way: Way| carried(net, &net.hops(path, way), samples);
    paths
        .map(|path| LinkTotals {
            forward: along(path, Way::Forward),
            backward: along(path, Way::Backward),
        })
        .collect()
}

fn at(sample: &Sample, hop: Hop) -> &Counters {
    &sample.links[hop.link][usize::from(!hop.forward)]
}

fn carried(net: &Net<'_>, hops: &[Hop], samples: &[Sample]) -> Carried {
    let (Some(last), Some(first_hop), Some(last_hop)) = (samples.last(), hops.first(), hops.last())
    else {
        return Carried::default();
    };
    let sum = |count: fn(&Counters) -> u64| hops.iter().map(|hop| count(at(last, *hop))).sum();
    let entered = at(last, *first_hop);
    let queue = |sample: &Sample| -> u64 {
        let bytes = hops.iter().map(|hop| at(sample, *hop).queue_bytes);
        bytes.sum()
    };
    let queued: u64 = samples.iter().map(queue).sum();
    let mean_packet = entered.bytes_in as f64 / entered.packets_in.max(1) as f64;
    let waits: Option<Duration> = hops.iter().map(|hop| at(last, *hop).mean_sojourn).sum();
    let base = net.base_delay(hops, mean_packet);
    let delay = waits.zip(base).map(|(waits, base)| waits + base);
    Carried {
        sent_bytes: entered.bytes_in,
        delivered_bytes: at(last, *last_hop).bytes_delivered,
        lost_queue: Some(sum(|count| count.dropped_queue)),
        lost_random: Some(sum(|count| count.dropped_chance)),
        packets: Some(sum(|count| count.packets_in)),
        queue_mean_bytes: Some(queued as f64 / samples.len() as f64),
        queue_max_bytes: hops.iter().map(|hop| at(last, *hop).queue_max_bytes).max(),
        owd_mean_s: delay
            .filter(|_| entered.packets_in > 0)
            .map(|delay| delay.as_secs_f64()),
    }
}

/// Replaces the links' byte counts with the hosts' own. Links count all packets, so their counts do
/// not stand for a path that shares its first or last link with other traffic.
pub(super) fn tell_apart(
    net: &Net<'_>,
    totals: &mut [LinkTotals],
    [client, server]: [&HostReport; 2],
) {
    let scenario = net.scenario;
    if scenario.transport.kind == Kind::KernelMptcp {
        // Its server has one address for all subflows and cannot tell their paths apart.
        return;
    }
    for (path, total) in totals.iter_mut().enumerate() {
        let Some(position) = scenario
            .transport
            .paths
            .iter()
            .position(|used| *used == path)
        else {
            continue;
        };
        if !is_shared(net, path) {
            continue;
        }
        let bytes = |report: &HostReport| {
            let path = report.paths.get(position);
            path.map(|path| (path.sent_bytes, path.received_bytes))
        };
        if let (Some(near), Some(far)) = (bytes(client), bytes(server)) {
            (total.forward.sent_bytes, total.forward.delivered_bytes) = (near.0, far.1);
            (total.backward.sent_bytes, total.backward.delivered_bytes) = (far.0, near.1);
        }
    }
}

/// Whether the first or the last link of a path also carries packets of others.
fn is_shared(net: &Net<'_>, path: usize) -> bool {
    let scenario = net.scenario;
    let ends = |path: usize| scenario.network.path_ends(path).map(|end| end.link);
    let touches = |other: [usize; 2]| other.iter().any(|link| ends(path).contains(link));
    let others = scenario
        .transport
        .paths
        .iter()
        .filter(|other| **other != path);
    // The client and the server forward nothing, so whatever shares these links begins or ends
    // there.
    let beside = scenario.background.iter();
    let beside = beside.map(|one| one.ends.map(|end| end.link));
    others.map(|other| ends(*other)).chain(beside).any(touches)
}

/// Adds the sampled queues to a time series, or builds a series from the samples for a contender
/// that reports none.
pub(super) fn add_to_series(net: &Net<'_>, samples: &[Sample], way: Way, outcome: &mut Outcome) {
    let Some(step) = net.scenario.record.series else {
        return;
    };
    let bin = |t_s: f64| (t_s / step.as_secs_f64()).round() as i64;
    let hops: Vec<Vec<Hop>> = (0..net.scenario.network.paths.len())
        .map(|path| net.hops(path, way))
        .collect();
    let queue = |sample: &Sample, path: usize| -> u64 {
        let bytes = hops[path].iter().map(|hop| at(sample, *hop).queue_bytes);
        bytes.sum()
    };
    let counted = rows(samples, &hops);
    if outcome.series.iter().all(|row| row.path == 0) {
        outcome.series.extend(counted);
    } else if net.scenario.transport.kind == Kind::KernelMptcp {
        // A server with one address for all subflows cannot tell over which path bytes came.
        let key = |row: &Bin| (row.path, bin(row.t_s));
        let known: std::collections::BTreeMap<(u32, i64), u64> = counted
            .iter()
            .map(|row| (key(row), row.delivered_bytes))
            .collect();
        for row in outcome.series.iter_mut().filter(|row| row.path > 0) {
            row.delivered_bytes = known.get(&key(row)).copied().unwrap_or(0);
        }
    }
    let known: std::collections::BTreeMap<i64, &Sample> = samples
        .iter()
        .map(|sample| (bin(sample.at.as_secs_f64()), sample))
        .collect();
    for row in &mut outcome.series {
        let path = (row.path as usize).checked_sub(1);
        if let (Some(path), Some(sample)) = (path, known.get(&bin(row.t_s)))
            && path < hops.len()
        {
            row.queue_bytes = queue(sample, path);
        }
    }
}

/// What each path carried between samples.
fn rows(samples: &[Sample], hops: &[Vec<Hop>]) -> Vec<Bin> {
    let mut rows = Vec::new();
    let mut before = vec![(0, 0); hops.len()];
    for sample in samples {
        for (path, hops) in hops.iter().enumerate() {
            let (Some(first), Some(last)) = (hops.first(), hops.last()) else {
                continue;
            };
            let now = (
                at(sample, *first).bytes_in,
                at(sample, *last).bytes_delivered,
            );
            let was = std::mem::replace(&mut before[path], now);
            rows.push(Bin {
                t_s: sample.at.as_secs_f64(),
                path: path as u32 + 1,
                sent_bytes: now.0.saturating_sub(was.0),
                delivered_bytes: now.1.saturating_sub(was.1),
                ..Bin::default()
            });
        }
    }
    rows
}
