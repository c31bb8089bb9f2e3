//! What else is known of a run: how well the links kept time, what else the machine did, what the
//! kernel reported about its choices. One line of JSON for each run, beside the tables of results.

use crate::hosts::HostReport;
use anabranch_testbed::emulate::Health;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Ticks of `/proc` in a second: the same on every machine (`USER_HZ`).
const TICKS: f64 = 100.0;

/// If others take more processor time than this, in cores, figures may suffer.
const BUSY: f64 = 0.25;

/// What is kept of a run beyond its outcome.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// The run's id.
    pub run_id: String,
    /// The contender.
    pub contender: String,
    /// The link layer that carried it; `real` if the links existed before.
    pub links: String,
    /// How late packets left the links, in seconds: median, 99th percentile, maximum.
    pub late_s: Option<[f64; 3]>,
    /// Packets that the link layer itself lost.
    pub own_drops: Option<u64>,
    /// Processor seconds of the link layer.
    pub links_cpu_s: Option<f64>,
    /// The largest share of a core that the link layer used in any second.
    pub links_busiest: Option<f64>,
    /// How far the server's clock was ahead of the laboratory's, and the error of that estimate, in
    /// seconds; `None` if both have the same clock.
    pub clock_ahead_s: Option<[f64; 2]>,
    /// Processor seconds of the agents, the client's first.
    pub cpu_s: [Option<f64>; 2],
    /// Peak memory of the agents, the client's first.
    pub peak_rss_bytes: [Option<u64>; 2],
    /// What the kernels reported about their choices, the client's first.
    pub kernel: [String; 2],
    /// Cores that other processes kept busy during the run, on average.
    pub others_cores: Option<f64>,
    /// Number of other laboratories on the machine, found by their namespaces.
    pub other_labs: usize,
    /// Kernel variables that decide how its TCP behaves.
    pub variables: Vec<(String, String)>,
    /// Events of the script, with their times in seconds.
    pub events: Vec<(f64, String)>,
}

impl Note {
    pub(in crate::backend) fn add_health(&mut self, name: &str, health: &Health) {
        name.clone_into(&mut self.links);
        let late = [health.late_p50, health.late_p99, health.late_max];
        self.late_s = Some(late.map(|late| late.as_secs_f64()));
        self.own_drops = Some(health.own_drops);
        self.links_cpu_s = Some(health.cpu.as_secs_f64());
        self.links_busiest = Some(health.busiest_second);
    }

    pub(in crate::backend) fn add_reports(&mut self, reports: [&HostReport; 2]) {
        self.cpu_s = reports.map(|report| report.cpu_s);
        self.peak_rss_bytes = reports.map(|report| report.peak_rss_bytes);
        self.kernel = reports.map(|report| report.kernel.clone());
        let [_, server] = reports;
        let seconds = |nanos: f64| nanos / 1e9;
        self.clock_ahead_s = server
            .clock_ahead_ns
            .zip(server.clock_error_ns)
            .map(|(ahead, error)| [seconds(ahead as f64), seconds(error as f64)]);
    }

    /// A warning for the user about this run; `None` if there is nothing to warn of.
    pub fn warning(&self) -> Option<String> {
        let busy = self
            .busy_cores()
            .map(|cores| format!("others kept {cores:.1} cores busy"));
        let labs = (self.other_labs > 0).then(|| "another laboratory was running".to_owned());
        let all: Vec<String> = busy.into_iter().chain(labs).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Whether other work went on beside the run, so that its figures may suffer.
    pub fn is_disturbed(&self) -> bool {
        self.busy_cores().is_some() || self.other_labs > 0
    }

    fn busy_cores(&self) -> Option<f64> {
        self.others_cores.filter(|cores| *cores > BUSY)
    }

    /// Reads the notes of a file, keyed by run id. The last note of an id counts: earlier ones
    /// belong to attempts whose results were replaced. Lines that are not notes are skipped;
    /// without a file the map is empty.
    pub fn read_all(file: &Path) -> BTreeMap<String, Self> {
        let text = fs::read_to_string(file).unwrap_or_default();
        let notes = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Self>(line).ok());
        notes.map(|note| (note.run_id.clone(), note)).collect()
    }

    /// Appends it to a file.
    ///
    /// # Errors
    /// The system's error.
    pub fn append(&self, file: &Path) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut out = OpenOptions::new().create(true).append(true).open(file)?;
        out.write_all(&line)
    }
}

/// Processor time used so far, in ticks: by everything, and by this process.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::backend) struct Busy {
    all: u64,
    own: u64,
}

impl Busy {
    pub(in crate::backend) fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let mut fields = stat.lines().next()?.split_whitespace().skip(1);
        let mut next = || fields.next()?.parse::<u64>().ok();
        // User, nice and system; idle and I/O wait follow.
        let all = next()? + next()? + next()?;
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        let own = own.rsplit_once(')')?.1;
        // Fields 14 and 15 of proc_pid_stat(5); the first here is field 3.
        let own: u64 = own
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Some(Self { all, own })
    }

    /// Cores that other processes kept busy since then, given the agents' own processor time.
    pub(in crate::backend) fn others_since(
        self,
        before: Self,
        time: Duration,
        agents_s: f64,
    ) -> f64 {
        let all = self.all.saturating_sub(before.all) as f64 / TICKS;
        let own = self.own.saturating_sub(before.own) as f64 / TICKS;
        ((all - own - agents_s) / time.as_secs_f64().max(1e-3)).max(0.0)
    }
}

/// The number of namespaces of other running laboratories.
pub(in crate::backend) fn other_labs() -> usize {
    let own = format!("-{}-", std::process::id());
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut makers: Vec<String> = names
        .filter(|name| name.contains("-lab-") && name.starts_with("ab-") && !name.contains(&own))
        .filter_map(|name| name.split('-').nth(1).map(ToOwned::to_owned))
        .collect();
    makers.sort_unstable();
    makers.dedup();
    makers.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_told_from_its_own_work() {
        let before = Busy {
            all: 1000,
            own: 100,
        };
        let after = Busy {
            all: 1700,
            own: 300,
        };
        let others = after.others_since(before, Duration::from_secs(2), 1.0);
        assert!((others - 2.0).abs() < 1e-9, "{others}");
        assert!(Busy::now().is_some());
    }

    #[test]
    fn notes_are_lines_and_warn_of_what_disturbs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes.jsonl");
        let mut note = Note::default();
        assert_eq!(note.warning(), None);
        note.append(&file).unwrap();
        note.others_cores = Some(1.2);
        note.append(&file).unwrap();
        assert!(note.warning().unwrap().contains("1.2 cores"));
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
    }

    #[test]
    fn the_last_note_of_a_run_counts_and_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes.jsonl");
        assert!(Note::read_all(&file).is_empty());
        let mut note = Note {
            run_id: "a".to_owned(),
            links: "netem".to_owned(),
            late_s: Some([0.0, 0.001, 0.002]),
            clock_ahead_s: Some([0.1, 0.001]),
            cpu_s: [Some(1.0), None],
            others_cores: Some(1.2),
            variables: vec![("tcp_rmem".to_owned(), "4096".to_owned())],
            events: vec![(1.5, "down".to_owned())],
            ..Note::default()
        };
        note.append(&file).unwrap();
        let other = Note {
            run_id: "b".to_owned(),
            other_labs: 1,
            ..Note::default()
        };
        other.append(&file).unwrap();
        note.others_cores = Some(0.1);
        note.append(&file).unwrap();
        let notes = Note::read_all(&file);
        assert_eq!(notes.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(!notes["a"].is_disturbed() && notes["b"].is_disturbed());
        let text = fs::read_to_string(&file).unwrap();
        let again = serde_json::to_string(&notes["a"]).unwrap();
        assert_eq!(text.lines().last(), Some(again.as_str()));
    }
}
