//! Quantities as people read and type them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A count with the right form of the noun: `1 file`, `2 files`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {what}{end}")
}

/// Bytes with a decimal unit: `1.50 GB`.
pub(crate) fn bytes(count: u64) -> String {
    scaled(count as f64, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// Bits per second with a decimal unit: `93.4 Mbit/s`.
pub(crate) fn bit_rate(bits_per_second: f64) -> String {
    scaled(
        bits_per_second,
        &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
    )
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

/// How many runs an interruption left out: `1 run was not started`.
#[cfg(feature = "lab")]
pub(crate) fn runs_not(count: usize, what: &str) -> String {
    let verb = if count == 1 { "was" } else { "were" };
    format!("{} {verb} not {what}", counted(count, "run"))
}

/// The rate of `bytes` in `time`, in bits per second; 0 if no time has passed.
pub(crate) fn rate(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

/// Milliseconds for JSON, rounded to microseconds.
pub(crate) fn json_millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Seconds for JSON, rounded to milliseconds.
pub(crate) fn json_seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

/// A number of bytes as typed: `500`, `64k`, `32M`, `1GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) u64);

/// A text that is not a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no number of bytes: expected digits and perhaps k, M, G (or Ki, Mi, Gi)")]
pub(crate) struct ByteSizeError(String);

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let error = || ByteSizeError(text.into());
        let split = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let number: u64 = digits.parse().map_err(|_| error())?;
        let unit = unit.trim().to_ascii_lowercase();
        let factor = match unit.trim_end_matches('b') {
            "" => 1,
            "k" => 1000,
            "m" => 1_000_000,
            "g" => 1_000_000_000,
            "ki" => 1 << 10,
            "mi" => 1 << 20,
            "gi" => 1 << 30,
            _ => return Err(error()),
        };
        number.checked_mul(factor).map(Self).ok_or_else(error)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_keep_three_digits() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500_000_000), "1.50 GB");
        assert_eq!(bit_rate(93_440_000.0), "93.4 Mbit/s");
        assert_eq!(bit_rate(0.0), "0 bit/s");
    }

    #[cfg(feature = "lab")]
    #[test]
    fn one_run_that_is_left_is_told_as_one() {
        assert_eq!(runs_not(1, "started"), "1 run was not started");
        assert_eq!(runs_not(2, "done"), "2 runs were not done");
    }

    #[test]
    fn a_rate_without_time_is_zero() {
        assert!(rate(10, Duration::ZERO).abs() < f64::EPSILON);
        assert!((rate(125, Duration::from_secs(1)) - 1000.0).abs() < f64::EPSILON);
    }

    #[test]
    fn sizes_take_decimal_and_binary_units() {
        assert_eq!("500".parse(), Ok(ByteSize(500)));
        assert_eq!("64k".parse(), Ok(ByteSize(64_000)));
        assert_eq!("32MiB".parse(), Ok(ByteSize(32 << 20)));
        assert_eq!("1 GB".parse(), Ok(ByteSize(1_000_000_000)));
    }

    #[test]
    fn sizes_refuse_what_is_none() {
        for text in [
            "",
            "k",
            "-1",
            "1.5M",
            "12q",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
