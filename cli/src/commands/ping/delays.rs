//! Forward and backward delays of paths, relative to the first one.
//!
//! Compares the smallest delays of the last seconds, so that neither queues nor a busy machine
//! count.

use anabranch_net::connection::Connection;
use anabranch_net::engine::{DelayDifference, DelayMethod};
use anabranch_proto::wire::PathId;
use serde::Serialize;

/// What is known of delays in one direction.
#[derive(Debug, Serialize)]
pub(super) struct Delays {
    /// How much longer each further path takes than the first; `null` if that is unknown.
    #[serde(rename = "one_way_delay_difference_ms")]
    differences: Option<Vec<Difference>>,
    /// Why it is unknown.
    #[serde(rename = "one_way_delay_reason")]
    reason: Option<&'static str>,
}

/// One path relative to another, in milliseconds; negative if it is faster.
#[derive(Debug, Serialize)]
struct Difference {
    path: u32,
    against: u32,
    forward: Option<f64>,
    backward: Option<f64>,
    /// The error, either way, due to the resolution of the clocks and the age of the samples.
    uncertainty: f64,
    method: &'static str,
}

const TIMESTAMPS: &str = "timestamps";
const COMMON_RETURN: &str = "common_return_path";

impl Delays {
    /// Compares paths by what the connection has measured.
    pub(super) fn measured(
        connection: &Connection,
        paths: impl IntoIterator<Item = PathId>,
    ) -> Self {
        let mut paths = paths.into_iter();
        let (Some(first), others) = (paths.next(), paths.collect::<Vec<_>>()) else {
            return Self::unknown("no path answered");
        };
        if others.is_empty() {
            return Self::unknown("one path alone has none to be compared with");
        }
        let measured = connection.with_engine(|engine| {
            let one = |&path: &PathId| {
                let forward = engine.forward_difference(path, first);
                let backward = engine.backward_difference(path, first);
                Difference::new(path, first, forward, backward)
            };
            let found: Vec<Difference> = others.iter().filter_map(one).collect();
            (found, engine.receives_timestamps())
        });
        match measured {
            Err(_) => Self::unknown("the connection is over"),
            Ok((found, _)) if !found.is_empty() => Self {
                differences: Some(found),
                reason: None,
            },
            Ok((_, true)) => Self::unknown("fewer than two paths answered lately"),
            Ok((_, false)) => Self::unknown(
                "the server sends no timestamps, and acknowledges each path by the path itself",
            ),
        }
    }

    /// The result is unknown, for this reason.
    pub(super) fn unknown(reason: &'static str) -> Self {
        Self {
            differences: None,
            reason: Some(reason),
        }
    }

    /// Forward and backward delay of a path, formatted for people.
    pub(super) fn shown(&self, path: u32) -> (String, String) {
        let found = self.differences.iter().flatten();
        if found.clone().any(|one| one.against == path) {
            return ("0".into(), "0".into());
        }
        let found = found.clone().find(|one| one.path == path);
        let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |ms| format!("{ms:+.3} ms"));
        (
            ms(found.and_then(|one| one.forward)),
            ms(found.and_then(|one| one.backward)),
        )
    }

    /// Explains the columns, or why they are empty.
    pub(super) fn remark(&self) -> String {
        let found = self.differences.as_deref().unwrap_or_default();
        let Some(one) = found.first() else {
            let reason = self.reason.unwrap_or_default();
            return format!("forward and backward delay cannot be told apart: {reason}");
        };
        let how = if one.method == TIMESTAMPS {
            "by the server's timestamps"
        } else {
            "by a common way back of the server's acknowledgements"
        };
        let widest = found.iter().map(|one| one.uncertainty).fold(0.0, f64::max);
        format!(
            "forward and backward: least delay against that of path {}, {how}, ±{widest:.3} ms",
            one.against
        )
    }
}

impl Difference {
    fn new(
        path: PathId,
        first: PathId,
        forward: Option<DelayDifference>,
        backward: Option<DelayDifference>,
    ) -> Option<Self> {
        let ms = |found: DelayDifference| found.base_us as f64 / 1000.0;
        let known = || forward.iter().chain(&backward);
        let stamped = known().next()?.method == DelayMethod::Timestamps;
        let widest = known().map(|one| one.uncertainty_us).max()?;
        Some(Self {
            path: path.0,
            against: first.0,
            forward: forward.map(ms),
            backward: backward.map(ms),
            uncertainty: widest as f64 / 1000.0,
            method: if stamped { TIMESTAMPS } else { COMMON_RETURN },
        })
    }
}
