//! `anabranch ping`: measures each path on its own.
//!
//! A probe is a PING frame on one path; its acknowledgement yields an RTT sample of that path.
//! An RTT is the sum of both directions. How the forward and backward delays of two paths differ
//! follows from the server's timestamps, or from its acknowledgements if they return over a common
//! path: see `delays`.

mod delays;

use self::delays::Delays;
use super::interrupted;
use crate::args::Ping;
use crate::failure::{Failure, Outcome};
use crate::output::table::Table;
use crate::output::{self, units};
use crate::session::{Options, Session};
use crate::tuning::Sending;
use anabranch_net::connection::Connection;
use anabranch_net::engine::PathStats;
use anabranch_proto::wire::PathId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long to wait for paths to open before the first probe.
const OPENING: Duration = Duration::from_millis(1500);

/// How often to check whether a probe was answered.
const LOOK: Duration = Duration::from_millis(1);

/// A probe without an answer for this long, and for three round trips, is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is known of one path.
#[derive(Debug, Default)]
struct Series {
    sent: u32,
    samples: Vec<Sample>,
}

/// One answer.
#[derive(Debug, Clone, Copy)]
struct Sample {
    rtt: Duration,
    /// Whether it came back over the path itself.
    is_direct: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    paths: Vec<PathReport>,
    #[serde(flatten)]
    delays: Delays,
}

#[derive(Debug, Serialize)]
struct PathReport {
    path: u32,
    interface: String,
    remote: String,
    sent: u32,
    lost: u32,
    loss: f64,
    rtt_min_ms: Option<f64>,
    rtt_avg_ms: Option<f64>,
    rtt_max_ms: Option<f64>,
    /// Mean absolute difference of successive RTTs.
    jitter_ms: Option<f64>,
}

/// Runs the command. Fails if no path answered, or if the connection broke before the last probe.
pub(crate) async fn run(args: &Ping, quiet: bool) -> Outcome {
    let sending = Sending::default();
    let options = Options {
        paths: &args.paths,
        sending: &sending,
        quiet,
        trust: &args.trust,
        qlog: args.report.qlog.as_deref(),
        timestamps: true,
        early: None,
    };
    let session = tokio::select! {
        session = Session::open(&args.url, &options) => session?,
        () = interrupted() => return Err(Failure::failed("interrupted while connecting")),
    };
    let mut series = BTreeMap::new();
    tokio::select! {
        () = async {
            session.opened(OPENING).await;
            probe(args, &session.connection, &mut series).await;
        } => {}
        () = interrupted() => {}
    }
    let mut samples = crate::paths::Samples::default();
    samples.take(&session.connection, &session.labels);
    let remotes: BTreeMap<PathId, String> = session
        .connection
        .paths()
        .into_iter()
        .map(|(id, stats)| (id, stats.tuple.remote.to_string()))
        .collect();
    let paths = series.iter().map(|(id, series)| {
        let remote = remotes.get(id).cloned().unwrap_or_else(|| "gone".into());
        series.report(*id, session.labels.interface(*id), remote)
    });
    let report = Report {
        paths: paths.collect(),
        delays: Delays::measured(&session.connection, series.keys().copied()),
    };
    let reason = session.connection.close_reason();
    session.close().await;
    if args.report.json {
        output::json(&report)?;
    } else {
        output::data(table(&report))?;
        if !quiet {
            output::say(report.delays.remark());
        }
    }
    if let Some(reason) = reason {
        return Err(Failure::failed(format!("the connection broke: {reason}")));
    }
    if report.paths.iter().all(|path| path.lost == path.sent) {
        return Err(Failure::failed("no path answered"));
    }
    Ok(())
}

async fn probe(args: &Ping, connection: &Connection, series: &mut BTreeMap<PathId, Series>) {
    for round in 0..args.count {
        let next = Instant::now() + args.interval;
        probe_once(connection, series).await;
        if connection.close_reason().is_some() {
            return;
        }
        if round + 1 < args.count {
            tokio::time::sleep_until(next.into()).await;
        }
    }
}

/// Probes all open paths at the same time and waits for the answers.
async fn probe_once(connection: &Connection, series: &mut BTreeMap<PathId, Series>) {
    let started = Instant::now();
    let mut waiting: Vec<PathStats> = Vec::new();
    for (id, stats) in connection.paths() {
        let usable = stats.validated && !stats.closing;
        // An error means that the path has just been abandoned.
        if usable && matches!(connection.with_engine(|engine| engine.ping(id)), Ok(Ok(()))) {
            series.entry(id).or_default().sent += 1;
            waiting.push(stats);
        }
    }
    while !waiting.is_empty() && connection.close_reason().is_none() {
        tokio::time::sleep(LOOK).await;
        waiting.retain(|before| {
            let Some(now) = connection.path_stats(before.id) else {
                return false;
            };
            if now.counters.acked_bytes > before.counters.acked_bytes {
                series.entry(before.id).or_default().samples.push(Sample {
                    rtt: now.latest_rtt,
                    is_direct: now.acks_came_by == Some(now.id),
                });
                return false;
            }
            started.elapsed() < PATIENCE.max(3 * before.smoothed_rtt)
        });
    }
}

impl Series {
    /// RTTs of the path itself, or, if there are none, those with an answer over another path.
    fn rtts(&self) -> Vec<Duration> {
        let direct = self.samples.iter().any(|sample| sample.is_direct);
        let comparable = self.samples.iter().filter(|s| s.is_direct || !direct);
        comparable.map(|sample| sample.rtt).collect()
    }

    fn report(&self, id: PathId, interface: String, remote: String) -> PathReport {
        let count = self.samples.len() as u32;
        let lost = self.sent - count.min(self.sent);
        let rtts = self.rtts();
        let total: Duration = rtts.iter().sum();
        let steps = rtts.windows(2).map(|pair| pair[0].abs_diff(pair[1]));
        let jitter: Duration = steps.sum();
        let timed = rtts.len() as u32;
        PathReport {
            path: id.0,
            interface,
            remote,
            sent: self.sent,
            lost,
            loss: f64::from(lost) / f64::from(self.sent.max(1)),
            rtt_min_ms: rtts.iter().min().copied().map(units::json_millis),
            rtt_avg_ms: (timed > 0).then(|| units::json_millis(total / timed)),
            rtt_max_ms: rtts.iter().max().copied().map(units::json_millis),
            jitter_ms: (timed > 1).then(|| units::json_millis(jitter / (timed - 1))),
        }
    }
}

fn table(report: &Report) -> Table {
    let head = [
        "path",
        "interface",
        "remote",
        ">sent",
        ">lost",
        ">min",
        ">avg",
        ">max",
        ">jitter",
        ">forward",
        ">backward",
    ];
    let mut table = Table::new(&head);
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |ms| format!("{ms:.3} ms"));
    for path in &report.paths {
        let (forward, backward) = report.delays.shown(path.path);
        table.row([
            path.path.to_string(),
            path.interface.clone(),
            path.remote.clone(),
            path.sent.to_string(),
            format!("{} ({:.0} %)", path.lost, path.loss * 100.0),
            ms(path.rtt_min_ms),
            ms(path.rtt_avg_ms),
            ms(path.rtt_max_ms),
            ms(path.jitter_ms),
            forward,
            backward,
        ]);
    }
    table
}

// The tests' links are those of `demo`.
#[cfg(test)]
#[cfg(feature = "lab")]
mod tests;
