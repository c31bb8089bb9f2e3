//! The tables and their columns: the only definition of their content.

use super::datagrams::DATAGRAMS;
use super::outcome::{Bin, Decided, Part, PathOutcome, Shared};
use super::swept::SweptKey;
use std::collections::BTreeMap;

/// Changes whenever a column is renamed, removed or changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Whole numbers, 0 or more.
    Whole,
    /// Numbers.
    Number,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// A number.
    Number(f64),
    /// Not measured.
    Nothing,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, with the unit at the end.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// What it means.
    pub about: &'static str,
}

/// A table of results.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// The description of a table, without results.
#[derive(Debug, Clone, Copy)]
pub struct TableInfo {
    /// Its name.
    pub name: &'static str,
    /// What a row is.
    pub row: &'static str,
    /// Its columns, without those of swept keys.
    pub columns: fn() -> Vec<Column>,
}

/// All tables.
pub const TABLES: &[TableInfo] = &[
    TableInfo {
        name: "runs",
        row: "one run; after `congestion` comes a column `p.KEY` for each swept key with its \
              values as the scenario has them and, if all of them are quantities of one kind, a \
              second one with numbers in base units: `p.KEY_s`, `_bps`, `_bytes`, `_packets`, or \
              `_value` without unit",
        columns: || columns_of(RUNS),
    },
    TableInfo {
        name: "paths",
        row: "one path of a run",
        columns: || with_run(columns_of(PATHS)),
    },
    TableInfo {
        name: "series",
        row: "one bin of time of a path; path 0 is the connection",
        columns: || with_run(columns_of(SERIES)),
    },
    TableInfo {
        name: "reasons",
        row: "one reason for the scheduler's decisions in a run",
        columns: || with_run(columns_of(REASONS)),
    },
    TableInfo {
        name: "units",
        row: "one unit that was completed: a file, a request or a datagram (only if recorded)",
        columns: || with_run(columns_of(UNITS)),
    },
    TableInfo {
        name: "background",
        row: "one piece of background traffic of a run",
        columns: || with_run(columns_of(BACKGROUND)),
    },
    TableInfo {
        name: "datagrams",
        row: "one flow of datagrams through a tunnel in a run",
        columns: || with_run(columns_of(DATAGRAMS)),
    },
    TableInfo {
        name: "decisions",
        row: "one decision of the scheduler (only if recorded)",
        columns: || with_run(columns_of(DECISIONS)),
    },
];

/// A column with how a row gets its cell.
pub(crate) type Field<T> = (&'static str, Kind, &'static str, fn(&T) -> Cell);

pub(crate) fn text(value: &str) -> Cell {
    Cell::Text(value.to_owned())
}

pub(crate) fn whole(value: Option<u64>) -> Cell {
    value.map_or(Cell::Nothing, Cell::Whole)
}

pub(crate) fn number(value: Option<f64>) -> Cell {
    let finite = value.filter(|value| value.is_finite());
    finite.map_or(Cell::Nothing, Cell::Number)
}

/// Columns of swept keys are inserted before this one.
const SWEPT_BEFORE: &str = "repetition";

const RUNS: &[Field<Part>] = &[
    (
        "run_id",
        Kind::Text,
        "hash of all that decides the result",
        |p| text(&p.run_id),
    ),
    ("scenario", Kind::Text, "the scenario's name", |p| {
        text(&p.scenario)
    }),
    ("backend", Kind::Text, "what ran it", |p| text(&p.backend)),
    ("contender", Kind::Text, "who carried the flows", |p| {
        text(&p.contender)
    }),
    (
        "single",
        Kind::Whole,
        "1 if it only tells what one path does alone",
        |p| Cell::Whole(p.single.into()),
    ),
    (
        "scheduler",
        Kind::Text,
        "the scheduler with its parameters",
        |p| text(&p.scheduler),
    ),
    (
        "congestion",
        Kind::Text,
        "the congestion control with its parameters",
        |p| text(&p.congestion),
    ),
    ("repetition", Kind::Whole, "which repetition, from 1", |p| {
        Cell::Whole(p.repetition)
    }),
    (
        "seed",
        Kind::Text,
        "where its randomness comes from, in decimal digits",
        |p| text(&p.seed),
    ),
    (
        "status",
        Kind::Text,
        "ok, timeout, failed, invalid or unsupported",
        |p| text(p.outcome.status.name()),
    ),
    ("reason", Kind::Text, "why, if not ok", |p| {
        text(&p.outcome.reason)
    }),
    ("binary_hash", Kind::Text, "hash of the program", |p| {
        text(&p.binary_hash)
    }),
    ("bytes", Kind::Whole, "application bytes delivered", |p| {
        Cell::Whole(p.outcome.bytes)
    }),
    (
        "handshake_s",
        Kind::Number,
        "first packet to end of handshake",
        |p| number(p.outcome.handshake_s),
    ),
    (
        "first_byte_s",
        Kind::Number,
        "start of the flow to its first byte",
        |p| number(p.outcome.first_byte_s),
    ),
    (
        "completion_s",
        Kind::Number,
        "start of the flow to its last byte",
        |p| number(p.outcome.completion_s),
    ),
    (
        "goodput_bps",
        Kind::Number,
        "bytes delivered in order after the warm-up, per time",
        |p| number(p.outcome.goodput_bps),
    ),
    (
        "sum_rate_bps",
        Kind::Whole,
        "sum of the rates of the paths",
        |p| whole(p.sum_rate_bps),
    ),
    (
        "reseq_peak_bytes",
        Kind::Whole,
        "most bytes that waited behind a gap",
        |p| whole(p.outcome.reseq_peak_bytes),
    ),
    (
        "reseq_peak_runs",
        Kind::Whole,
        "most runs of bytes that waited behind gaps",
        |p| whole(p.outcome.reseq_peak_runs),
    ),
    (
        "reseq_mean_bytes",
        Kind::Number,
        "mean bytes that waited behind a gap",
        |p| number(p.outcome.reseq_mean_bytes),
    ),
    (
        "reseq_wait_mean_s",
        Kind::Number,
        "mean time bytes waited for those before them",
        |p| number(p.outcome.reseq_wait_mean_s),
    ),
    (
        "reseq_wait_p50_s",
        Kind::Number,
        "median of that time",
        |p| number(p.outcome.reseq_wait_p50_s),
    ),
    (
        "reseq_wait_p95_s",
        Kind::Number,
        "95th percentile of that time",
        |p| number(p.outcome.reseq_wait_p95_s),
    ),
    (
        "reseq_wait_p99_s",
        Kind::Number,
        "99th percentile of that time",
        |p| number(p.outcome.reseq_wait_p99_s),
    ),
    (
        "retransmitted_bytes",
        Kind::Whole,
        "stream bytes sent again",
        |p| whole(p.outcome.retransmitted_bytes),
    ),
    (
        "reinjected_bytes",
        Kind::Whole,
        "of these, taken from a silent path",
        |p| whole(p.outcome.reinjected_bytes),
    ),
    (
        "duplicate_bytes",
        Kind::Whole,
        "stream bytes that arrived more than once",
        |p| whole(p.outcome.duplicate_bytes),
    ),
    (
        "blocked_receive_s",
        Kind::Number,
        "time stopped by the receive window",
        |p| number(p.outcome.blocked_receive_s),
    ),
    (
        "blocked_send_s",
        Kind::Number,
        "time stopped by the send buffer",
        |p| number(p.outcome.blocked_send_s),
    ),
    (
        "blocked_hold_s",
        Kind::Number,
        "time held by the scheduler",
        |p| number(p.outcome.blocked_hold_s),
    ),
    (
        "units",
        Kind::Whole,
        "files, requests or datagrams completed",
        |p| Cell::Whole(p.outcome.units),
    ),
    ("late_units", Kind::Whole, "datagrams late or lost", |p| {
        Cell::Whole(p.outcome.late_units)
    }),
    (
        "reordered_units",
        Kind::Whole,
        "datagrams their reader got behind later ones",
        |p| whole(p.outcome.reordered_units),
    ),
    ("unit_p50_s", Kind::Number, "median time of a unit", |p| {
        number(p.outcome.unit_p50_s)
    }),
    (
        "unit_p95_s",
        Kind::Number,
        "95th percentile of the time of a unit",
        |p| number(p.outcome.unit_p95_s),
    ),
    (
        "unit_p99_s",
        Kind::Number,
        "99th percentile of the time of a unit",
        |p| number(p.outcome.unit_p99_s),
    ),
    (
        "holds",
        Kind::Whole,
        "times the scheduler left a path with room idle",
        |p| whole(p.outcome.holds),
    ),
    ("events", Kind::Whole, "events of the simulator", |p| {
        whole(p.outcome.events)
    }),
    (
        "packets",
        Kind::Whole,
        "packets over links, each hop counted",
        |p| whole(p.outcome.packets),
    ),
    ("wall_s", Kind::Number, "time it took on the machine", |p| {
        number(Some(p.outcome.wall_s))
    }),
    ("trace_hash", Kind::Text, "hash of all that happened", |p| {
        p.outcome.trace_hash.as_deref().map_or(Cell::Nothing, text)
    }),
];

type Numbered<T> = (usize, T);

const PATHS: &[Field<Numbered<PathOutcome>>] = &[
    ("path", Kind::Whole, "the path, from 1", |p| {
        Cell::Whole(p.0 as u64 + 1)
    }),
    ("name", Kind::Text, "its name in the scenario", |p| {
        text(&p.1.name)
    }),
    (
        "sent_bytes",
        Kind::Whole,
        "bytes sent in the flow's direction, with headers",
        |p| Cell::Whole(p.1.sent_bytes),
    ),
    ("delivered_bytes", Kind::Whole, "of these, arrived", |p| {
        Cell::Whole(p.1.delivered_bytes)
    }),
    (
        "first_copy_bytes",
        Kind::Whole,
        "application bytes that arrived here first",
        |p| whole(p.1.first_copy_bytes),
    ),
    ("share", Kind::Number, "share of all bytes sent", |p| {
        number(p.1.share)
    }),
    (
        "utilisation",
        Kind::Number,
        "delivered bytes over what the path could have carried",
        |p| number(p.1.utilisation),
    ),
    (
        "lost_queue",
        Kind::Whole,
        "packets dropped by its queue",
        |p| whole(p.1.lost_queue),
    ),
    ("lost_random", Kind::Whole, "packets lost by chance", |p| {
        whole(p.1.lost_random)
    }),
    (
        "lost_declared",
        Kind::Whole,
        "packets the sender declared lost",
        |p| whole(p.1.lost_declared),
    ),
    (
        "spurious",
        Kind::Whole,
        "of these, arrived after all",
        |p| whole(p.1.spurious),
    ),
    ("srtt_mean_s", Kind::Number, "mean smoothed RTT", |p| {
        number(p.1.srtt_mean_s)
    }),
    (
        "srtt_p95_s",
        Kind::Number,
        "95th percentile of the smoothed RTT",
        |p| number(p.1.srtt_p95_s),
    ),
    (
        "owd_mean_s",
        Kind::Number,
        "mean one-way delay of packets",
        |p| number(p.1.owd_mean_s),
    ),
    (
        "queue_mean_bytes",
        Kind::Number,
        "mean bytes in its queue",
        |p| number(p.1.queue_mean_bytes),
    ),
    (
        "queue_max_bytes",
        Kind::Whole,
        "most bytes in its queue",
        |p| whole(p.1.queue_max_bytes),
    ),
    (
        "cwnd_mean_bytes",
        Kind::Number,
        "mean congestion window",
        |p| number(p.1.cwnd_mean_bytes),
    ),
    (
        "acked_bytes",
        Kind::Whole,
        "bytes of packets acknowledged",
        |p| whole(p.1.acked_bytes),
    ),
    (
        "lost_bytes",
        Kind::Whole,
        "bytes of packets declared lost",
        |p| whole(p.1.lost_bytes),
    ),
    (
        "retransmitted_bytes",
        Kind::Whole,
        "stream bytes sent again over it",
        |p| whole(p.1.retransmitted_bytes),
    ),
    (
        "copied_bytes",
        Kind::Whole,
        "stream bytes sent over it as copies",
        |p| whole(p.1.copied_bytes),
    ),
    (
        "reinjected_bytes",
        Kind::Whole,
        "stream bytes sent over it that a silent path had",
        |p| whole(p.1.reinjected_bytes),
    ),
    (
        "duplicate_bytes",
        Kind::Whole,
        "stream bytes it brought that were there already",
        |p| whole(p.1.duplicate_bytes),
    ),
];

const SERIES: &[Field<Bin>] = &[
    ("t_s", Kind::Number, "end of the bin", |b| {
        Cell::Number(b.t_s)
    }),
    (
        "path",
        Kind::Whole,
        "the path, from 1; 0 is the connection",
        |b| Cell::Whole(b.path.into()),
    ),
    ("sent_bytes", Kind::Whole, "bytes sent in the bin", |b| {
        Cell::Whole(b.sent_bytes)
    }),
    (
        "delivered_bytes",
        Kind::Whole,
        "bytes that arrived in the bin",
        |b| Cell::Whole(b.delivered_bytes),
    ),
    (
        "goodput_bytes",
        Kind::Whole,
        "application bytes delivered in order in the bin (path 0)",
        |b| Cell::Whole(b.goodput_bytes),
    ),
    (
        "inflight_bytes",
        Kind::Whole,
        "bytes in flight at its end",
        |b| Cell::Whole(b.inflight_bytes),
    ),
    (
        "cwnd_bytes",
        Kind::Whole,
        "congestion window at its end",
        |b| Cell::Whole(b.cwnd_bytes),
    ),
    ("srtt_s", Kind::Number, "smoothed RTT at its end", |b| {
        number(b.srtt_s)
    }),
    (
        "owd_s",
        Kind::Number,
        "mean one-way delay of packets that arrived in it",
        |b| number(b.owd_s),
    ),
    (
        "queue_bytes",
        Kind::Whole,
        "bytes in the queue at its end",
        |b| Cell::Whole(b.queue_bytes),
    ),
    (
        "reseq_bytes",
        Kind::Whole,
        "most bytes behind a gap in it (path 0)",
        |b| Cell::Whole(b.reseq_bytes),
    ),
    (
        "flow_credit_bytes",
        Kind::Whole,
        "flow-control credit at its end (path 0)",
        |b| Cell::Whole(b.flow_credit_bytes),
    ),
    (
        "blocked_s",
        Kind::Number,
        "time in it stopped by the receive window (path 0)",
        |b| Cell::Number(b.blocked_s),
    ),
    (
        "acked_bytes",
        Kind::Whole,
        "bytes of packets acknowledged in the bin",
        |b| whole(b.acked_bytes),
    ),
    (
        "lost_bytes",
        Kind::Whole,
        "bytes of packets declared lost in the bin",
        |b| whole(b.lost_bytes),
    ),
    (
        "retransmitted_bytes",
        Kind::Whole,
        "stream bytes sent again in the bin",
        |b| whole(b.retransmitted_bytes),
    ),
    (
        "copied_bytes",
        Kind::Whole,
        "stream bytes sent as copies in the bin",
        |b| whole(b.copied_bytes),
    ),
    (
        "reinjected_bytes",
        Kind::Whole,
        "stream bytes taken from a silent path in the bin",
        |b| whole(b.reinjected_bytes),
    ),
    (
        "duplicate_bytes",
        Kind::Whole,
        "stream bytes that came in it and were there already",
        |b| whole(b.duplicate_bytes),
    ),
    (
        "reseq_runs",
        Kind::Whole,
        "most runs of bytes behind gaps in it (path 0)",
        |b| whole(b.reseq_runs),
    ),
    (
        "receive_buffer_bytes",
        Kind::Whole,
        "bytes in the receive buffer at its end (path 0)",
        |b| whole(b.receive_buffer_bytes),
    ),
    (
        "send_buffer_bytes",
        Kind::Whole,
        "bytes written and unacknowledged at its end (path 0)",
        |b| whole(b.send_buffer_bytes),
    ),
    (
        "blocked_send_s",
        Kind::Number,
        "time in it stopped by the send buffer (path 0)",
        |b| number(b.blocked_send_s),
    ),
    (
        "blocked_hold_s",
        Kind::Number,
        "time in it held by the scheduler (path 0)",
        |b| number(b.blocked_hold_s),
    ),
];

const REASONS: &[Field<(String, u64)>] = &[
    ("reason", Kind::Text, "why", |r| text(&r.0)),
    ("count", Kind::Whole, "how many decisions", |r| {
        Cell::Whole(r.1)
    }),
];

const UNITS: &[Field<Numbered<f64>>] = &[
    (
        "index",
        Kind::Whole,
        "order within the run, flow by flow, from 0",
        |u| Cell::Whole(u.0 as u64),
    ),
    ("time_s", Kind::Number, "how long it took", |u| {
        number(Some(u.1))
    }),
];

const BACKGROUND: &[Field<Numbered<Shared>>] = &[
    ("background", Kind::Whole, "the piece, from 1", |b| {
        Cell::Whole(b.0 as u64 + 1)
    }),
    ("kind", Kind::Text, "tcp, udp or web", |b| text(&b.1.kind)),
    (
        "bytes",
        Kind::Whole,
        "application bytes that reached the end it sends to",
        |b| Cell::Whole(b.1.bytes),
    ),
    (
        "goodput_bps",
        Kind::Number,
        "these over the time from its start to its end, or to that of the run",
        |b| number(b.1.goodput_bps),
    ),
];

const DECISIONS: &[Field<Numbered<Decided>>] = &[
    ("t_ns", Kind::Whole, "virtual time", |d| {
        Cell::Whole(d.1.t_ns)
    }),
    ("index", Kind::Whole, "order within the run, from 0", |d| {
        Cell::Whole(d.0 as u64)
    }),
    (
        "decision",
        Kind::Text,
        "send, duplicate, copy, hold and so on",
        |d| text(&d.1.decision),
    ),
    ("path", Kind::Whole, "the path, from 1", |d| {
        whole(d.1.path.map(u64::from))
    }),
    (
        "paths",
        Kind::Text,
        "all paths it names, from 1, as 1/2",
        |d| {
            let paths: Vec<String> = d.1.paths.iter().map(u32::to_string).collect();
            text(&paths.join("/"))
        },
    ),
    (
        "skip_bytes",
        Kind::Whole,
        "how far behind the first unsent byte data is taken (send-at)",
        |d| whole(d.1.skip),
    ),
    ("reason", Kind::Text, "why", |d| text(&d.1.reason)),
];

pub(crate) fn columns_of<T>(fields: &[Field<T>]) -> Vec<Column> {
    let column = |(name, kind, about, _): &Field<T>| Column {
        name: (*name).to_owned(),
        kind: *kind,
        about,
    };
    fields.iter().map(column).collect()
}

fn with_run(mut columns: Vec<Column>) -> Vec<Column> {
    let run_id = Column {
        name: "run_id".to_owned(),
        kind: Kind::Text,
        about: "the run",
    };
    columns.insert(0, run_id);
    columns
}

pub(crate) fn row<T>(fields: &[Field<T>], value: &T) -> Vec<Cell> {
    fields.iter().map(|(.., get)| get(value)).collect()
}

fn row_of_run<T>(part: &Part, fields: &[Field<T>], value: &T) -> Vec<Cell> {
    let mut cells = vec![text(&part.run_id)];
    cells.extend(row(fields, value));
    cells
}

/// The tables of these runs, sorted by run within the order given.
pub fn tables<'a>(parts: impl Iterator<Item = &'a Part> + Clone) -> Vec<Table> {
    let keys = SweptKey::of(&parts);
    let mut rows: BTreeMap<&'static str, Vec<Vec<Cell>>> = BTreeMap::new();
    for part in parts {
        rows.entry("runs")
            .or_default()
            .push(row_of_part(part, &keys));
        let outcome = &part.outcome;
        let paths = outcome.paths.iter().cloned().enumerate();
        let paths = paths.map(|path| row_of_run(part, PATHS, &path));
        rows.entry("paths").or_default().extend(paths);
        let series = outcome
            .series
            .iter()
            .map(|bin| row_of_run(part, SERIES, bin));
        rows.entry("series").or_default().extend(series);
        let reasons = outcome
            .reasons
            .iter()
            .map(|reason| row_of_run(part, REASONS, reason));
        rows.entry("reasons").or_default().extend(reasons);
        let units = outcome.unit_times.iter().copied().enumerate();
        let units = units.map(|unit| row_of_run(part, UNITS, &unit));
        rows.entry("units").or_default().extend(units);
        let background = outcome.background.iter().cloned().enumerate();
        let background = background.map(|piece| row_of_run(part, BACKGROUND, &piece));
        rows.entry("background").or_default().extend(background);
        let datagrams = outcome.datagrams.iter();
        let datagrams = datagrams.map(|flow| row_of_run(part, DATAGRAMS, flow));
        rows.entry("datagrams").or_default().extend(datagrams);
        let decisions = outcome.decisions.iter().cloned().enumerate();
        let decisions = decisions.map(|decided| row_of_run(part, DECISIONS, &decided));
        rows.entry("decisions").or_default().extend(decisions);
    }
    let table = |info: &TableInfo| {
        let mut columns = (info.columns)();
        if info.name == "runs" {
            let at = columns
                .iter()
                .position(|column| column.name == SWEPT_BEFORE);
            let at = at.unwrap_or(columns.len());
            columns.splice(at..at, keys.iter().flat_map(SweptKey::columns));
        }
        Table {
            name: info.name,
            columns,
            rows: rows.remove(info.name).unwrap_or_default(),
        }
    };
    TABLES.iter().map(table).collect()
}

fn row_of_part(part: &Part, keys: &[SweptKey]) -> Vec<Cell> {
    let mut cells = row(RUNS, part);
    let at = RUNS.iter().position(|(name, ..)| *name == SWEPT_BEFORE);
    let at = at.unwrap_or(cells.len());
    cells.splice(at..at, keys.iter().flat_map(|key| key.cells(part)));
    cells
}
