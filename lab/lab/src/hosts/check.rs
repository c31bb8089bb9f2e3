//! Checks what a job asks for: agents trust nobody.

use super::{Carrier, Job};
use crate::scenario::FlowKind;
use anabranch_proto::path::MAX_OPEN_PATHS;
use std::time::Duration;

/// The most flows of a run.
const MAX_FLOWS: usize = 1000;

/// The most units of a flow: files, requests, datagrams.
const MAX_UNITS: u64 = 2_000_000;

/// The most rows of a time series.
const MAX_ROWS: u128 = 1_000_000;

/// The longest run.
const MAX_STOP: Duration = Duration::from_secs(7 * 24 * 3600);

/// Header bytes at the start of each datagram: flow, number and creation time.
pub const DATAGRAM_HEADER: u64 = 16;

/// The longest datagram.
const MAX_DATAGRAM: u64 = 65_000;

impl Job {
    /// Checks that the job makes sense.
    ///
    /// # Errors
    /// What does not, and what was expected.
    pub fn check(&self) -> Result<(), String> {
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let id = &self.run_id;
        if id.is_empty() || id.len() > 200 || id.starts_with('.') || !id.chars().all(letter) {
            let wanted = "expected at most 200 letters, digits and `-_.`, no `.` first";
            return Err(format!("run id {id:?}: {wanted}"));
        }
        within("paths", self.paths.len(), 1, MAX_OPEN_PATHS)?;
        within("flows", self.flows.len(), 1, MAX_FLOWS)?;
        if self.stop.is_zero() || self.stop > MAX_STOP {
            return Err(format!("a run of {:?}: expected up to a week", self.stop));
        }
        if let Some(bin) = self.bin {
            let bins = self.stop.as_nanos() / bin.as_nanos().max(1);
            if bin < Duration::from_millis(1) || bins * (self.paths.len() as u128 + 1) > MAX_ROWS {
                let stop = self.stop;
                return Err(format!(
                    "bins of {bin:?} in a run of {stop:?}: expected at least 1 ms and at most \
                     {MAX_ROWS} rows"
                ));
            }
        }
        for path in &self.paths {
            if path.opens > MAX_STOP {
                return Err(format!("path `{}`: opens after the end", path.name));
            }
            if path.local.is_ipv4() != path.remote.is_ipv4() {
                let (local, remote) = (path.local, path.remote);
                return Err(format!(
                    "path `{}`: from {local} to {remote}: expected addresses of one family",
                    path.name
                ));
            }
        }
        for (index, flow) in self.flows.iter().enumerate() {
            let kind = self.check_flow(&flow.kind);
            kind.map_err(|error| format!("flow {}: {error}", index + 1))?;
            if flow.start > MAX_STOP || flow.warm_up > MAX_STOP {
                return Err(format!("flow {}: begins after the end", index + 1));
            }
        }
        Ok(())
    }

    fn check_flow(&self, kind: &FlowKind) -> Result<(), String> {
        match *kind {
            FlowKind::BulkBytes(_) => Ok(()),
            FlowKind::BulkTime(time) => {
                if time.is_zero() || time > MAX_STOP {
                    return Err(format!("lasts {time:?}: expected up to a week"));
                }
                Ok(())
            }
            FlowKind::Files { count, .. } | FlowKind::Requests { count, .. } => {
                within("units", count, 1, MAX_UNITS)
            }
            FlowKind::Datagrams {
                size,
                every,
                duration,
                ..
            } => {
                within("bytes of a datagram", size, DATAGRAM_HEADER, MAX_DATAGRAM)?;
                if every.is_zero() || duration > MAX_STOP {
                    return Err("datagrams all at once or without an end".to_owned());
                }
                within("datagrams", kind.datagrams().unwrap_or(0), 0, MAX_UNITS)?;
                let stripe = |carrier: &Carrier| {
                    matches!(carrier, Carrier::Anabranch { profile, .. }
                    if *profile == crate::scenario::Profile::Stripe)
                };
                if stripe(&self.carrier) {
                    return Err("unsupported: datagrams with the profile `stripe`".to_owned());
                }
                Ok(())
            }
        }
    }
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    what: &str,
    value: T,
    least: T,
    most: T,
) -> Result<(), String> {
    if value < least || value > most {
        return Err(format!("{value} {what}: expected {least} to {most}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::{HostPath, JobFlow, Role};
    use crate::scenario::{Usage, Way};

    fn job() -> Job {
        let address = |host| std::net::IpAddr::from([10, 0, 0, host]);
        Job {
            run_id: "a-1.b_2".to_owned(),
            role: Role::Client,
            carrier: Carrier::Tcp {
                congestion: "cubic".to_owned(),
                buffers: None,
            },
            paths: vec![HostPath {
                name: "a".to_owned(),
                interface: None,
                local: address(1),
                remote: address(2),
                opens: Duration::ZERO,
                usage: Usage::default(),
            }],
            flows: vec![JobFlow {
                kind: FlowKind::BulkBytes(1),
                way: Way::Forward,
                start: Duration::ZERO,
                warm_up: Duration::ZERO,
            }],
            stop: Duration::from_secs(60),
            bin: Some(Duration::from_millis(100)),
            decisions: false,
            qlog: None,
            seed: 0,
        }
    }

    #[test]
    fn a_job_that_makes_sense_passes_and_others_are_told_why_not() {
        assert_eq!(job().check(), Ok(()));
        let refused = |change: &dyn Fn(&mut Job), expected: &str| {
            let mut job = job();
            change(&mut job);
            let why = job.check().unwrap_err();
            assert!(why.contains(expected), "{why}: {expected}");
        };
        for id in ["", "../up", ".hidden", "a/b", "a b"] {
            refused(&|job| job.run_id = id.to_owned(), "run id");
        }
        refused(&|job| job.paths.clear(), "0 paths: expected 1 to");
        refused(&|job| job.paths[0].remote = [0; 16].into(), "one family");
        refused(&|job| job.paths[0].opens = Duration::MAX, "opens after");
        refused(&|job| job.stop = Duration::MAX, "up to a week");
        refused(
            &|job| job.bin = Some(Duration::from_nanos(1)),
            "at least 1 ms",
        );
        refused(&|job| job.flows[0].start = Duration::MAX, "flow 1: begins");
        let datagrams = FlowKind::Datagrams {
            size: 15,
            every: Duration::from_millis(120),
            duration: Duration::from_secs(1),
            deadline: None,
        };
        refused(
            &|job| job.flows[0].kind = datagrams,
            "flow 1: 15 bytes of a",
        );
    }
}
