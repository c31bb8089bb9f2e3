//! Makes one outcome of two hosts' reports and the links' counters.
//!
//! The sender of the first flow's data reports what was sent and how, the receiver what arrived.
//! Their clocks may differ: each report gives its start by its own clock and, if the laboratory
//! estimated it, how far that clock is ahead.

use super::{HostBin, HostReport, PathReport};
use crate::results::{Bin, Outcome, PathOutcome, Status};
use crate::scenario::{FlowKind, Kind, Scenario, Way};
use std::time::Duration;

mod series;
#[cfg(test)]
mod tests;

/// What one direction of a path carried, as counted by the link layer. What it cannot tell is
/// `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Carried {
    /// Bytes of packets that entered it, IP headers included.
    pub sent_bytes: u64,
    /// Bytes of packets that came out.
    pub delivered_bytes: u64,
    /// Packets its queue dropped.
    pub lost_queue: Option<u64>,
    /// Packets lost by chance.
    pub lost_random: Option<u64>,
    /// All packets that entered it.
    pub packets: Option<u64>,
    /// Mean bytes in its queue.
    pub queue_mean_bytes: Option<f64>,
    /// Most bytes in its queue.
    pub queue_max_bytes: Option<u64>,
    /// Mean delay of its packets.
    pub owd_mean_s: Option<f64>,
}

/// What a path carried both ways.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LinkTotals {
    /// From the client to the server.
    pub forward: Carried,
    /// From the server to the client.
    pub backward: Carried,
}

impl LinkTotals {
    fn along(&self, way: Way) -> &Carried {
        match way {
            Way::Forward => &self.forward,
            Way::Backward => &self.backward,
        }
    }
}

/// How long after its start a run of multipath TCP must have all its subflows, in seconds.
const SUBFLOWS_BY: f64 = 2.0;

/// Makes one outcome. `way` is the direction of the first flow; `links` has an entry for each path
/// of the scenario, in order, or is empty if nothing was counted.
///
/// The caller fills in the wall-clock time of the run.
pub fn merge(
    scenario: &Scenario,
    way: Way,
    client: &HostReport,
    server: &HostReport,
    links: &[LinkTotals],
) -> Outcome {
    let (sender, receiver) = match way {
        Way::Forward => (client, server),
        Way::Backward => (server, client),
    };
    let view = View {
        scenario,
        way,
        sender,
        receiver,
        // The client begins the run, so times are counted from its start.
        lag_s: began_s(receiver) - began_s(client),
        sender_lag_s: began_s(sender) - began_s(client),
        links,
    };
    let mut outcome = view.totals(client, server);
    (outcome.status, outcome.reason) = status(scenario, client, server, &outcome);
    if outcome.status != Status::Ok || view.over().is_some() {
        outcome.completion_s = None;
    }
    outcome.paths = view.paths();
    if let Some(bin) = scenario.record.series {
        outcome.series = view.series(bin);
    }
    outcome.decisions.clone_from(&sender.decisions);
    for one in &mut outcome.decisions {
        one.path = one.path.map(|path| view.number(path));
    }
    outcome
}

/// When a host's run began, in seconds on the laboratory's clock.
fn began_s(report: &HostReport) -> f64 {
    let ahead = report.clock_ahead_ns.unwrap_or(0);
    (i128::from(report.started_ns) - i128::from(ahead)) as f64 / 1e9
}

fn status(
    scenario: &Scenario,
    client: &HostReport,
    server: &HostReport,
    outcome: &Outcome,
) -> (Status, String) {
    let told = [("client", client), ("server", server)];
    let errors: Vec<String> = told
        .iter()
        .filter(|(_, report)| !report.error.is_empty())
        .map(|(name, report)| format!("{name}: {}", report.error))
        .collect();
    if !errors.is_empty() {
        return (Status::Failed, errors.join("; "));
    }
    if scenario.transport.kind == Kind::KernelMptcp {
        let wanted = scenario.transport.paths.len() as u64;
        let long = outcome.completion_s.is_none_or(|time| time > SUBFLOWS_BY);
        match (
            word(&client.kernel, "subflows"),
            word(&client.kernel, "fallback"),
        ) {
            (_, Some("yes")) => {
                let what = "multipath TCP fell back to TCP";
                return (Status::Invalid, what.to_owned());
            }
            (Some(count), _) if long && count.parse().is_ok_and(|count: u64| count < wanted) => {
                let what = format!("multipath TCP had {count} subflows, not one for each path");
                return (Status::Invalid, what);
            }
            _ => {}
        }
    }
    if client.timed_out || server.timed_out {
        let who: Vec<&str> = told
            .iter()
            .filter(|(_, report)| report.timed_out)
            .map(|(name, _)| *name)
            .collect();
        return (
            Status::Timeout,
            format!("cut off at the limit of time: {}", who.join(" and ")),
        );
    }
    (Status::Ok, String::new())
}

/// The value of `key=value` in a text of such pairs.
fn word<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut words = text.split_whitespace();
    words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

struct View<'a> {
    scenario: &'a Scenario,
    way: Way,
    sender: &'a HostReport,
    receiver: &'a HostReport,
    /// How much later than the client the receiver began.
    lag_s: f64,
    /// How much later than the client the sender began.
    sender_lag_s: f64,
    links: &'a [LinkTotals],
}

impl View<'_> {
    fn totals(&self, client: &HostReport, server: &HostReport) -> Outcome {
        let (sender, receiver) = (self.sender, self.receiver);
        let waits = receiver.reseq_wait_s;
        let (sent_units, late_units) = self.datagrams();
        let last = receiver.last_byte_s.map(|time| time + self.lag_s);
        let packets = self.links.iter().map(|link| {
            let both = [link.forward.packets, link.backward.packets];
            both.into_iter().flatten().sum::<u64>()
        });
        let mut outcome = Outcome {
            bytes: receiver.received_bytes,
            handshake_s: client.handshake_s.or(server.handshake_s),
            first_byte_s: receiver.first_byte_s.map(|time| time + self.lag_s),
            completion_s: last,
            goodput_bps: self.goodput(),
            reseq_peak_bytes: receiver.reseq_peak_bytes,
            reseq_mean_bytes: receiver.reseq_mean_bytes,
            reseq_wait_p50_s: waits.map(|waits| waits[0]),
            reseq_wait_p95_s: waits.map(|waits| waits[1]),
            reseq_wait_p99_s: waits.map(|waits| waits[2]),
            reseq_wait_mean_s: waits.map(|waits| waits[3]),
            retransmitted_bytes: sender.retransmitted_bytes,
            reinjected_bytes: sender.reinjected_bytes,
            duplicate_bytes: receiver.duplicate_bytes,
            blocked_receive_s: sender.blocked_receive_s,
            blocked_send_s: sender.blocked_send_s,
            blocked_hold_s: sender.blocked_hold_s,
            sent_units: Some(sent_units),
            late_units,
            holds: sender.holds,
            packets: (!self.links.is_empty()).then(|| packets.sum()),
            reasons: sender.reasons.clone(),
            ..Outcome::default()
        };
        outcome.add_units(self.unit_times(), self.scenario.record.units);
        outcome
    }

    /// How much too long a time is that began on the sender's clock and ended on the receiver's.
    fn skew_s(&self) -> f64 {
        let ahead = |report: &HostReport| report.clock_ahead_ns.unwrap_or(0) as f64 / 1e9;
        ahead(self.receiver) - ahead(self.sender)
    }

    /// How long each unit took, corrected if it was measured with both hosts' clocks.
    fn unit_times(&self) -> Vec<f64> {
        let units = self.receiver.units.iter();
        units
            .map(|unit| self.corrected(unit.flow, unit.took_s))
            .collect()
    }

    fn corrected(&self, flow: u32, took_s: f64) -> f64 {
        match self.scenario.flows.get(flow as usize).map(|flow| flow.kind) {
            // The requesting host measures a request from start to end.
            Some(FlowKind::Requests { .. }) | None => took_s,
            Some(_) => (took_s - self.skew_s()).max(0.0),
        }
    }

    /// Datagrams that were sent by flows in this direction, and how many did not arrive in time.
    fn datagrams(&self) -> (u64, u64) {
        let (mut all, mut late) = (0, 0);
        for (index, flow) in self.scenario.flows.iter().enumerate() {
            let FlowKind::Datagrams { deadline, .. } = flow.kind else {
                continue;
            };
            if flow.way != self.way {
                continue;
            }
            let limit = deadline.unwrap_or(Duration::MAX).as_secs_f64();
            let of_flow = |unit: &&super::UnitTime| unit.flow as usize == index;
            let units = self.receiver.units.iter().filter(of_flow);
            let in_time = units.filter(|unit| self.corrected(unit.flow, unit.took_s) <= limit);
            let sent = self.sender.sent_units.iter();
            let sent = sent.filter(|(flow, _)| *flow as usize == index);
            let sent: u64 = sent.map(|(_, count)| count).sum();
            all += sent;
            late += sent.saturating_sub(in_time.count() as u64);
        }
        (all, late)
    }

    /// When the last flow of a given duration is over; `None` if there is none.
    fn over(&self) -> Option<Duration> {
        let flows = self.scenario.flows.iter();
        let timed = flows.filter_map(|flow| match flow.kind {
            FlowKind::BulkTime(time) => Some(flow.start.to + time),
            _ => None,
        });
        timed.max()
    }

    fn goodput(&self) -> Option<f64> {
        let [from, to] = self.receiver.counted_s?;
        (to > from).then(|| self.receiver.counted_bytes as f64 * 8.0 / (to - from))
    }

    /// The number in results of a path that has this number in the job; both count from 1.
    fn number(&self, path: u32) -> u32 {
        let used = &self.scenario.transport.paths;
        let index = (path as usize).checked_sub(1);
        let found = index.and_then(|index| used.get(index));
        found.map_or(path, |index| *index as u32 + 1)
    }

    fn paths(&self) -> Vec<PathOutcome> {
        let names = self.scenario.network.paths.iter();
        let mut all: Vec<PathOutcome> = names
            .map(|path| PathOutcome {
                name: path.name.clone(),
                ..PathOutcome::default()
            })
            .collect();
        for (position, index) in self.scenario.transport.paths.iter().enumerate() {
            if let Some(one) = all.get_mut(*index) {
                let near = self.sender.paths.get(position);
                let far = self.receiver.paths.get(position);
                add_reports(one, near, far);
            }
        }
        for (index, one) in all.iter_mut().enumerate() {
            if let Some(link) = self.links.get(index) {
                self.add_link(one, index, link.along(self.way));
            }
        }
        let sent: u64 = all.iter().map(|path| path.sent_bytes).sum();
        for one in &mut all {
            one.share = (sent > 0).then(|| one.sent_bytes as f64 / sent as f64);
        }
        all
    }

    /// The link layer's counts replace the hosts': it also sees what was lost.
    fn add_link(&self, one: &mut PathOutcome, index: usize, carried: &Carried) {
        one.sent_bytes = carried.sent_bytes;
        one.delivered_bytes = carried.delivered_bytes;
        one.lost_queue = carried.lost_queue;
        one.lost_random = carried.lost_random;
        one.queue_mean_bytes = carried.queue_mean_bytes;
        one.queue_max_bytes = carried.queue_max_bytes;
        one.owd_mean_s = carried.owd_mean_s;
        let starts = self.scenario.flows.iter().map(|flow| flow.start.from);
        let start = starts.min().unwrap_or_default().as_secs_f64();
        let elapsed = self.receiver.ended_s.map(|end| end - start);
        let could = self
            .scenario
            .path_rate(index, self.way)
            .zip(elapsed)
            .map(|(rate, elapsed)| rate as f64 / 8.0 * elapsed);
        one.utilisation = could
            .filter(|could| *could > 0.0)
            .map(|could| carried.delivered_bytes as f64 / could);
    }

    fn series(&self, bin: Duration) -> Vec<Bin> {
        let sender = (self.sender.series.as_slice(), self.sender_lag_s);
        let receiver = (self.receiver.series.as_slice(), self.lag_s);
        let mut bins = series::join(bin.as_secs_f64(), sender, receiver);
        for bin in bins.iter_mut().filter(|bin| bin.path > 0) {
            bin.path = self.number(bin.path);
        }
        bins
    }
}

fn add_reports(one: &mut PathOutcome, near: Option<&PathReport>, far: Option<&PathReport>) {
    if let Some(near) = near {
        one.sent_bytes = near.sent_bytes;
        one.lost_declared = near.lost_declared;
        one.spurious = near.spurious;
        (one.srtt_mean_s, one.srtt_p95_s) = near.srtt_s.unzip();
        one.cwnd_mean_bytes = near.cwnd_mean_bytes;
    }
    if let Some(far) = far {
        one.delivered_bytes = far.received_bytes;
        one.first_copy_bytes = far.first_copy_bytes;
    }
}
