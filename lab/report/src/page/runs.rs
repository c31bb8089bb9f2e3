//! The table of all runs, to which every figure can be traced.

use super::anchor;
use crate::study::Study;
use crate::sweep::point;
use anabranch_lab::results::{Part, Status};

/// The runs of a folder.
pub(crate) struct RunTable {
    pub(crate) title: String,
    pub(crate) rows: Vec<RunRow>,
    pub(crate) swept: bool,
}

/// One run.
pub(crate) struct RunRow {
    pub(crate) anchor: String,
    /// An anchor for figures, if this is the first run of its contender at its point.
    pub(crate) group: Option<String>,
    pub(crate) id: String,
    pub(crate) point: String,
    pub(crate) contender: String,
    pub(crate) repetition: u64,
    pub(crate) seed: String,
    pub(crate) goodput: String,
    pub(crate) completion: String,
    pub(crate) status: String,
    pub(crate) ok: bool,
}

impl RunTable {
    pub(crate) fn of(study: &Study, at: usize) -> Self {
        let folder = &study.folders[at];
        let mut parts: Vec<&Part> = folder.parts.iter().collect();
        // By contender within a point, so that the runs behind a mean are adjacent. The sort is
        // stable.
        let mut order: Vec<(&[(String, String)], &str)> = Vec::new();
        for row in &folder.report.rows {
            order.push((&row.swept, &row.contender));
        }
        parts.sort_by_cached_key(|part| {
            let key = (part.swept.as_slice(), part.contender.as_str());
            order.iter().position(|known| *known == key)
        });
        let mut last: Option<(&[(String, String)], &str)> = None;
        let rows = parts.into_iter().map(|part| {
            let key = (part.swept.as_slice(), part.contender.as_str());
            let first = last != Some(key);
            last = Some(key);
            let group = order
                .iter()
                .position(|known| *known == key)
                .filter(|_| first);
            row(
                study,
                at,
                part,
                group.map(|nth| group_anchor(study, at, nth)),
            )
        });
        Self {
            rows: rows.collect(),
            title: study.label(at),
            swept: folder.parts.iter().any(|part| !part.swept.is_empty()),
        }
    }
}

fn row(study: &Study, at: usize, part: &Part, group: Option<String>) -> RunRow {
    let outcome = &part.outcome;
    let ok = outcome.status == Status::Ok;
    let status = if ok {
        "ok".to_owned()
    } else {
        format!("{}: {}", outcome.status.name(), outcome.reason)
    };
    RunRow {
        anchor: row_anchor(study, at, &part.run_id),
        group,
        id: part.run_id.clone(),
        point: point(&part.swept),
        contender: part.contender.clone(),
        repetition: part.repetition,
        seed: part.seed.clone(),
        goodput: outcome
            .goodput_bps
            .map_or_else(|| "–".to_owned(), crate::verdict::rate),
        completion: seconds(outcome.completion_s),
        status,
        ok,
    }
}

/// The anchor of a run.
pub(crate) fn row_anchor(study: &Study, at: usize, run_id: &str) -> String {
    format!("run-{}-{at}-{run_id}", anchor(&study.name))
}

/// The anchor of the runs behind the n-th row of results.
pub(crate) fn group_anchor(study: &Study, at: usize, nth: usize) -> String {
    format!("runs-{}-{at}-{nth}", anchor(&study.name))
}

/// A time in readable form.
pub(crate) fn seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3} s"))
}
