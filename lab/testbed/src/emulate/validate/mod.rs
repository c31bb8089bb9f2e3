//! Measures whether links behave as configured: each kind alone, under probes, in a table.
//!
//! Two namespaces, one link of a [`LinkLayer`] between them, and UDP packets that are timed with
//! one clock at both ends. Arrivals are the kernel's own timestamps, so the result does not depend
//! on when the prober gets to run.

mod cases;
mod probe;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use crate::{Node, Testbed};
use anabranch_link::LinkConfig;

use crate::emulate::{End, Error, LinkLayer, LinkPlan, emulator, kernel};
use cases::Case;

/// The seed of loss and jitter of the measured links.
const SEED: u64 = 20;

/// The layer that carries the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// [`crate::emulate::emulator()`].
    Emulator,
    /// [`crate::emulate::kernel()`].
    Kernel,
}

impl Layer {
    /// Builds links in this layer.
    ///
    /// # Errors
    /// Those of [`crate::emulate::emulator()`] and [`crate::emulate::kernel()`].
    pub fn build(self, links: Vec<LinkPlan>) -> Result<Box<dyn LinkLayer>, Error> {
        match self {
            Self::Emulator => emulator(links),
            Self::Kernel => kernel(links),
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Emulator => "emulator",
            Self::Kernel => "kernel",
        })
    }
}

/// The progress of a validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Links measured.
    pub done: usize,
    /// Links to measure.
    pub total: usize,
    /// The link being measured.
    pub link: &'a str,
}

/// The result of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The measured value is acceptable.
    Passed,
    /// It is not, or the layer reports that it was too slow; with the reason.
    Failed(String),
    /// The layer cannot do this on this machine; with what is missing.
    Skipped(String),
}

/// One property of one link.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The link, such as `rate 10 Mbit/s`.
    pub link: String,
    /// The property, such as `median delay`.
    pub property: &'static str,
    /// The unit of all figures of the row, such as `ms`.
    pub unit: &'static str,
    /// The configured value.
    pub configured: f64,
    /// The measured value; `None` if it was skipped.
    pub measured: Option<f64>,
    /// The lowest and the highest acceptable value.
    pub accepted: [f64; 2],
    /// 99th percentile of the packets' lateness; zero if the layer does not know it.
    pub late_p99: Duration,
    /// Its result.
    pub verdict: Verdict,
}

/// The table.
#[derive(Debug, Clone, PartialEq)]
pub struct Validation {
    /// The layer that carried the links.
    pub layer: Layer,
    /// In the order of measurement.
    pub rows: Vec<Row>,
}

impl Validation {
    /// Whether no row failed, and not all were skipped.
    pub fn passed(&self) -> bool {
        let failed = |row: &Row| matches!(row.verdict, Verdict::Failed(_));
        let passed = |row: &Row| row.verdict == Verdict::Passed;
        !self.rows.iter().any(failed) && self.rows.iter().any(passed)
    }
}

/// Measures links of a layer against their configurations: delays, rates, loss, jitter and a
/// delivery trace. It takes about half a minute, and reports its progress before each link.
///
/// # Errors
/// [`Error::Testbed`] where there are no namespaces, and whatever stops a link from being built or
/// a probe from being sent. What a layer cannot do is a row, not an error.
pub fn validate(layer: Layer, mut progress: impl FnMut(Progress<'_>)) -> Result<Validation, Error> {
    let cases = cases::all();
    let mut place = Place::new("validate")?;
    let mut rows = Vec::new();
    for (done, case) in cases.iter().enumerate() {
        progress(Progress {
            done,
            total: cases.len(),
            link: &case.link,
        });
        rows.extend(measure(layer, &mut place, case)?);
    }
    Ok(Validation { layer, rows })
}

/// Two hosts, joined by one link at a time.
#[derive(Debug)]
struct Place {
    nodes: [Node; 2],
    _bed: Testbed,
}

impl Place {
    fn new(name: &str) -> Result<Self, Error> {
        Self::within(Testbed::new(name)?)
    }

    fn within(mut bed: Testbed) -> Result<Self, Error> {
        let nodes = [bed.node("sender")?, bed.node("receiver")?];
        Ok(Self { nodes, _bed: bed })
    }

    fn plan(&self, case: &Case) -> Result<LinkPlan, Error> {
        let end = |index: usize| {
            Ok::<_, Error>(End {
                node: self.nodes[index].clone(),
                interface: "path0".to_owned(),
                addresses: vec![probe::ADDRESSES[index].parse()?],
                mtu: 1500,
            })
        };
        Ok(LinkPlan {
            name: case.link.clone(),
            ends: [end(0)?, end(1)?],
            configs: [case.config.clone(), LinkConfig::default()],
            seed: SEED,
            pcap: None,
        })
    }
}

fn measure(layer: Layer, place: &mut Place, case: &Case) -> Result<Vec<Row>, Error> {
    let mut links = match layer.build(vec![place.plan(case)?]) {
        Ok(links) => links,
        Err(Error::Unsupported { what, .. }) => return Ok(case.skipped(&what)),
        Err(error) => return Err(error),
    };
    let arrivals = probe::run(&place.nodes, &case.link, &case.load)?;
    let health = links.health();
    let mut rows = case.rows(&arrivals);
    for row in &mut rows {
        row.late_p99 = health.late_p99;
        if let (Verdict::Passed, Some(reason)) = (&row.verdict, &health.verdict) {
            row.verdict = Verdict::Failed(reason.clone());
        }
    }
    Ok(rows)
}
