//! Samples the progress of a run, and turns the samples into bins, means and percentiles.

use anabranch_lab::hosts::{HostBin, HostReport, PathReport};
use anabranch_lab::stats::quantile;
use std::time::Duration;

/// The state of one path. Bytes are totals from the start.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct PathNow {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) inflight_bytes: u64,
    pub(crate) cwnd_bytes: u64,
    pub(crate) srtt_s: Option<f64>,
    pub(crate) first_copy_bytes: Option<u64>,
    pub(crate) lost: Option<u64>,
    pub(crate) spurious: Option<u64>,
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Now {
    /// The paths in the order of the job.
    pub(crate) paths: Vec<PathNow>,
    /// The most bytes that waited behind a gap since the last sample, if known.
    pub(crate) reseq_bytes: Option<u64>,
    /// Flow-control credit left.
    pub(crate) credit_bytes: u64,
    /// Total time in which the receive window has stopped this host.
    pub(crate) blocked: Duration,
}

/// The samples so far.
#[derive(Debug, Default)]
pub(crate) struct Series {
    rows: Vec<HostBin>,
    last: Now,
    received: u64,
    srtts: Vec<Vec<f64>>,
    /// Sum and number of congestion windows.
    windows: Vec<(f64, u64)>,
    /// Sum and number of samples of waiting bytes.
    waiting: (f64, u64),
}

impl Series {
    /// Takes a sample; `received` is the number of bytes delivered to the application so far.
    pub(crate) fn note(&mut self, at: Duration, received: u64, now: Now) {
        let t_s = at.as_secs_f64();
        self.srtts.resize(now.paths.len(), Vec::new());
        self.windows.resize(now.paths.len(), (0.0, 0));
        self.last.paths.resize(now.paths.len(), PathNow::default());
        let mut all = HostBin {
            t_s,
            goodput_bytes: received.saturating_sub(self.received),
            reseq_bytes: now.reseq_bytes.unwrap_or(0),
            flow_credit_bytes: now.credit_bytes,
            blocked_s: now.blocked.saturating_sub(self.last.blocked).as_secs_f64(),
            ..HostBin::default()
        };
        for (index, path) in now.paths.iter().enumerate() {
            let before = &self.last.paths[index];
            let row = HostBin {
                t_s,
                path: index as u32 + 1,
                sent_bytes: path.sent_bytes.saturating_sub(before.sent_bytes),
                received_bytes: path.received_bytes.saturating_sub(before.received_bytes),
                inflight_bytes: path.inflight_bytes,
                cwnd_bytes: path.cwnd_bytes,
                srtt_s: path.srtt_s,
                ..HostBin::default()
            };
            all.sent_bytes += row.sent_bytes;
            all.received_bytes += row.received_bytes;
            all.inflight_bytes += row.inflight_bytes;
            all.cwnd_bytes += row.cwnd_bytes;
            self.srtts[index].extend(path.srtt_s);
            if path.cwnd_bytes > 0 {
                let (sum, count) = &mut self.windows[index];
                *sum += path.cwnd_bytes as f64;
                *count += 1;
            }
            self.rows.push(row);
        }
        if let Some(waiting) = now.reseq_bytes {
            self.waiting.0 += waiting as f64;
            self.waiting.1 += 1;
        }
        self.rows.push(all);
        self.received = received;
        self.last = now;
    }

    /// Adds the paths to the report, and the series if wanted.
    pub(crate) fn report(&mut self, wanted: bool, report: &mut HostReport) {
        if wanted {
            report.series = std::mem::take(&mut self.rows);
        }
        let (sum, count) = self.waiting;
        report.reseq_mean_bytes = (count > 0).then(|| sum / count as f64);
        let paths = self.last.paths.iter().enumerate();
        report.paths = paths
            .map(|(index, path)| {
                let srtts = &self.srtts[index];
                let mean = srtts.iter().sum::<f64>() / srtts.len().max(1) as f64;
                let (sum, count) = self.windows[index];
                PathReport {
                    sent_bytes: path.sent_bytes,
                    received_bytes: path.received_bytes,
                    first_copy_bytes: path.first_copy_bytes,
                    lost_declared: path.lost,
                    spurious: path.spurious,
                    srtt_s: quantile(srtts, 0.95).map(|p95| (mean, p95)),
                    cwnd_mean_bytes: (count > 0).then(|| sum / count as f64),
                }
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(sent_bytes: u64, srtt_s: Option<f64>) -> Now {
        Now {
            paths: vec![PathNow {
                sent_bytes,
                cwnd_bytes: 1000,
                srtt_s,
                ..PathNow::default()
            }],
            reseq_bytes: Some(10),
            ..Now::default()
        }
    }

    #[test]
    fn bins_hold_what_moved_between_samples_and_paths_the_totals() {
        let mut series = Series::default();
        series.note(Duration::from_secs(1), 50, now(100, None));
        series.note(Duration::from_secs(2), 80, now(250, Some(0.2)));
        let mut report = HostReport::default();
        series.report(true, &mut report);
        let moved: Vec<(u32, u64, u64)> = report
            .series
            .iter()
            .map(|row| (row.path, row.sent_bytes, row.goodput_bytes))
            .collect();
        assert_eq!(
            moved,
            [(1, 100, 0), (0, 100, 50), (1, 150, 0), (0, 150, 30)]
        );
        assert_eq!(report.paths[0].sent_bytes, 250);
        assert_eq!(report.paths[0].srtt_s, Some((0.2, 0.2)));
        assert_eq!(report.reseq_mean_bytes, Some(10.0));
    }
}
