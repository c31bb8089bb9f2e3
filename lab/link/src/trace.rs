//! Recordings of when a link could deliver, in mahimahi's format.

#[cfg(test)]
mod tests;

use std::fmt;

/// Bytes that one delivery opportunity carries.
pub(crate) const OPPORTUNITY_BYTES: u32 = 1500;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// The latest time in a trace, in milliseconds: a year.
const MAX_MILLIS: u64 = 366 * 24 * 3_600_000;

/// The times at which a link could deliver 1500 bytes, repeated without end.
///
/// Packets share an opportunity if they fit, and take several if they do not; unused opportunities
/// are lost. The recording starts when the link starts or is given the trace, and repeats after its
/// last opportunity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// In ascending order, in nanoseconds since the start.
    opportunities: Vec<u64>,
}

impl Trace {
    /// Reads one time in milliseconds per line, in ascending order; several lines with the same
    /// time are several opportunities. Empty lines and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut opportunities = Vec::new();
        let mut latest = 0;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let millis = line
                .parse::<u64>()
                .ok()
                .filter(|millis| *millis <= MAX_MILLIS);
            let millis = millis.ok_or(TraceError::NotATime { line: index + 1 })?;
            if millis < latest {
                return Err(TraceError::Backwards { line: index + 1 });
            }
            latest = millis;
            opportunities.push(millis * NANOS_PER_MILLI);
        }
        if latest == 0 {
            Err(TraceError::NoTime)
        } else {
            Ok(Self { opportunities })
        }
    }

    /// The time in nanoseconds after which the recording repeats.
    pub fn period_ns(&self) -> u64 {
        self.opportunities
            .last()
            .copied()
            .expect("a trace has an opportunity")
    }

    /// Mean rate in bits per second.
    pub fn mean_rate(&self) -> u64 {
        let bits = self.opportunities.len() as u128 * u128::from(OPPORTUNITY_BYTES) * 8;
        (bits * 1_000_000_000 / u128::from(self.period_ns())) as u64
    }
}

/// What is wrong with a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceError {
    /// The line is not a whole number of milliseconds, or more than a year.
    NotATime {
        /// Counted from 1.
        line: usize,
    },
    /// The time is before that of the previous line.
    Backwards {
        /// Counted from 1.
        line: usize,
    },
    /// There is no time after 0, so the trace would repeat forever without time passing.
    NoTime,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATime { line } => {
                write!(
                    f,
                    "line {line}: expected a whole number of milliseconds, at most a year"
                )
            }
            Self::Backwards { line } => write!(f, "line {line}: times must not decrease"),
            Self::NoTime => f.write_str("expected at least one time after 0, in milliseconds"),
        }
    }
}

impl std::error::Error for TraceError {}

/// A position in a repeating trace.
#[derive(Debug, Clone)]
pub(crate) struct TraceCursor {
    /// When the recording started, in the link's time.
    origin: u64,
    cycle: u64,
    index: usize,
    /// Bytes left of the current opportunity.
    left: u32,
}

impl TraceCursor {
    pub(crate) fn new(origin: u64) -> Self {
        Self {
            origin,
            cycle: 0,
            index: 0,
            left: OPPORTUNITY_BYTES,
        }
    }

    /// When a packet of `size` bytes has left, if its transmission can start at `start`.
    pub(crate) fn finish(&mut self, trace: &Trace, start: u64, size: u32) -> u64 {
        self.seek(trace, start);
        let mut wanted = size;
        loop {
            let taken = wanted.min(self.left);
            self.left -= taken;
            wanted -= taken;
            if wanted == 0 {
                return self.time(trace);
            }
            self.step(trace);
        }
    }

    /// Moves to the first opportunity at or after `start`.
    fn seek(&mut self, trace: &Trace, start: u64) {
        if self.time(trace) >= start {
            return;
        }
        let since = start.saturating_sub(self.origin);
        let period = trace.period_ns();
        // A period ends with its last opportunity, hence the subtraction.
        let cycle = (since - 1) / period;
        let within = since - cycle * period;
        self.cycle = cycle;
        self.index = trace.opportunities.partition_point(|time| *time < within);
        self.left = OPPORTUNITY_BYTES;
    }

    fn step(&mut self, trace: &Trace) {
        self.index += 1;
        if self.index == trace.opportunities.len() {
            self.index = 0;
            self.cycle += 1;
        }
        self.left = OPPORTUNITY_BYTES;
    }

    fn time(&self, trace: &Trace) -> u64 {
        let base = self.cycle.saturating_mul(trace.period_ns());
        self.origin
            .saturating_add(base)
            .saturating_add(trace.opportunities[self.index])
    }
}
