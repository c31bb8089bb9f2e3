//! What transfers report: about each file, and about the connection that carried them.

use crate::failure::Outcome;
use crate::files::digest::Sum;
use crate::output::{self, units};
use crate::paths::{self, Row};
use crate::session::Session;
use serde::Serialize;
use std::time::Duration;

/// Requests at a time over one connection, so that small files share round trips. Our servers
/// handle more than this at a time.
pub(crate) const AT_ONCE: usize = 4;

/// What became of one file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FileReport {
    /// `get` or `put`.
    pub(crate) command: &'static str,
    /// The local file.
    pub(crate) file: String,
    /// Its length.
    pub(crate) bytes: u64,
    /// Bytes that were there already.
    pub(crate) resumed_from: u64,
    /// Whether the whole file was there already, so that nothing had to be done.
    pub(crate) unchanged: bool,
    /// Duration of this attempt, without connecting.
    pub(crate) seconds: f64,
    /// Bytes of the file moved in this attempt, in bits per second.
    pub(crate) goodput_bps: f64,
    /// SHA-256 of the file in hexadecimal digits; `None` if it was not computed.
    pub(crate) sha256: Option<String>,
    /// What was compared with the other side's digest: `whole`, or `none` if it sent none.
    pub(crate) verified: &'static str,
}

/// What the connection did that carried one or more files.
#[derive(Debug, Serialize)]
pub(crate) struct ConnectionReport {
    /// Time until the connection was established.
    pub(crate) connect_seconds: f64,
    /// Whether both sides spoke multipath QUIC.
    pub(crate) multipath: bool,
    /// Stream bytes received here more than once.
    pub(crate) duplicate_bytes: u64,
    /// The most bytes that waited here behind a gap in a stream.
    pub(crate) reassembly_peak_bytes: u64,
    /// Stream bytes retransmitted from here.
    pub(crate) retransmitted_bytes: u64,
    /// The paths.
    pub(crate) paths: Vec<Row>,
}

/// The result of a command that moves one file.
#[derive(Debug, Serialize)]
pub(crate) struct Transfer {
    #[serde(flatten)]
    pub(crate) file: FileReport,
    #[serde(flatten)]
    pub(crate) connection: ConnectionReport,
}

/// The result of a command that moves several files, printed after those of the files.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// `get` or `put`.
    pub(crate) command: &'static str,
    /// Files that are there now, complete and correct.
    pub(crate) files: u64,
    /// How many of them were there already.
    pub(crate) unchanged: u64,
    /// Files that are not there.
    pub(crate) failed: u64,
    /// Directories that could not be made.
    pub(crate) failed_directories: u64,
    /// Bytes moved in this attempt.
    pub(crate) bytes: u64,
    /// Duration of this attempt, without connecting.
    pub(crate) seconds: f64,
    /// Bytes moved in this attempt, in bits per second.
    pub(crate) goodput_bps: f64,
    #[serde(flatten)]
    pub(crate) connection: ConnectionReport,
}

/// Whoever hears what became of a file.
pub(crate) type Tell<'a> = &'a (dyn Fn(&Transfer) -> Outcome + Sync);

impl ConnectionReport {
    /// What a session has done so far.
    pub(crate) fn of(session: &Session, connected: Duration, paths: Vec<Row>) -> Self {
        let stats = session.connection.stats();
        Self {
            connect_seconds: units::json_seconds(connected),
            multipath: session.connection.has_multipath(),
            duplicate_bytes: stats.streams.duplicate_bytes,
            reassembly_peak_bytes: stats.streams.reassembly_peak,
            retransmitted_bytes: stats.streams.bytes_retransmitted,
            paths,
        }
    }

    fn say_paths(&self, seconds: f64) {
        let table = paths::table(&self.paths, Duration::from_secs_f64(seconds));
        if !table.is_empty() {
            output::say(&table);
        }
    }
}

impl FileReport {
    /// Says what happened in words.
    pub(crate) fn say(&self) {
        if self.unchanged {
            let how = match self.sha256 {
                Some(_) => "the same SHA-256",
                None => "the same length and time",
            };
            let what = format!("{}: nothing to do: {how} on both sides", self.file);
            return output::say(what);
        }
        let moved = self.bytes - self.resumed_from;
        let resumed = match self.resumed_from {
            0 => String::new(),
            bytes => format!(" ({} were there already)", units::bytes(bytes)),
        };
        let verified = if self.verified == "none" {
            "NOT compared with the sender's"
        } else {
            "ok"
        };
        output::say(format!(
            "{}: {}{resumed} in {:.2} s, {}; sha-256 {verified}",
            self.file,
            units::bytes(moved),
            self.seconds,
            units::bit_rate(self.goodput_bps),
        ));
    }
}

impl Transfer {
    /// Says what happened, unless `quiet`, and prints it as JSON if that is wanted.
    pub(crate) fn tell(&self, quiet: bool, json: bool) -> Outcome {
        if !quiet {
            if !self.file.unchanged {
                self.connection.say_paths(self.file.seconds);
            }
            self.file.say();
        }
        if json { output::json(self) } else { Ok(()) }
    }
}

impl Summary {
    /// Says what happened in words.
    pub(crate) fn say(&self) {
        if self.bytes > 0 {
            self.connection.say_paths(self.seconds);
        }
        let unchanged = match self.unchanged {
            0 => String::new(),
            count => format!(", {count} of them there already"),
        };
        let failed = match self.failed {
            0 => String::new(),
            count => format!("; {} FAILED", units::counted(count as usize, "file")),
        };
        output::say(format!(
            "{}{unchanged}: {} in {:.2} s, {}{failed}",
            units::counted(self.files as usize, "file"),
            units::bytes(self.bytes),
            self.seconds,
            units::bit_rate(self.goodput_bps),
        ));
    }
}

/// What a command that moves several files has done so far.
#[derive(Debug)]
pub(crate) struct Tally {
    command: &'static str,
    files: u64,
    unchanged: u64,
    failed_directories: u64,
    bytes: u64,
}

/// How much to report about several files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Talk {
    /// Whether JSON goes to stdout.
    pub(crate) json: bool,
    /// Whether nothing else is said.
    pub(crate) quiet: bool,
    /// Whether each file is reported, and not only the sum at the end.
    pub(crate) each: bool,
}

impl Tally {
    /// A tally for `get` or `put` before anything was done.
    pub(crate) fn of(command: &'static str) -> Self {
        Self {
            command,
            files: 0,
            unchanged: 0,
            failed_directories: 0,
            bytes: 0,
        }
    }

    /// How many files are there now.
    pub(crate) fn files(&self) -> u64 {
        self.files
    }

    /// Records how many directories could not be made.
    pub(crate) fn lost_directories(&mut self, count: u64) {
        self.failed_directories = count;
    }

    /// Adds one more file that is there.
    pub(crate) fn add(&mut self, report: &FileReport, talk: Talk) -> Outcome {
        self.files += 1;
        self.unchanged += u64::from(report.unchanged);
        self.bytes += report.bytes - report.resumed_from;
        if talk.json {
            output::json(report)?;
        } else if !talk.quiet && talk.each {
            report.say();
        }
        Ok(())
    }

    /// Reports what was done in `duration`, after connecting took `connected`.
    pub(crate) fn summary(
        &self,
        session: &Session,
        talk: Talk,
        (duration, connected): (Duration, Duration),
        failed: u64,
        paths: Vec<Row>,
    ) -> Outcome {
        let summary = Summary {
            command: self.command,
            files: self.files,
            unchanged: self.unchanged,
            failed,
            failed_directories: self.failed_directories,
            bytes: self.bytes,
            seconds: units::json_seconds(duration),
            goodput_bps: units::rate(self.bytes, duration).round(),
            connection: ConnectionReport::of(session, connected, paths),
        };
        if !talk.quiet {
            summary.say();
        }
        if talk.json {
            output::json(&summary)?;
        }
        Ok(())
    }
}

/// How much of a file is compared, given the other side's digest.
pub(crate) fn verified(theirs: Option<Sum>) -> &'static str {
    if theirs.is_some() { "whole" } else { "none" }
}
