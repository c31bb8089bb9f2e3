//! Numbers with units, and arithmetic on them.
//!
//! A quantity without a unit is refused: wrong units are the commonest mistake in scenario files.
//! `Mbit/s` is 10^6 bits per second, `MB` 10^6 bytes, `MiB` 2^20 bytes.

use super::mistake::nearest;
use std::fmt;

/// The dimension of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// None: a factor or a count.
    Bare,
    /// Seconds.
    Time,
    /// Bits per second.
    Rate,
    /// Bytes.
    Size,
    /// Packets.
    Packets,
}

impl Dimension {
    /// What is expected, with an example.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Bare => "a number",
            Self::Time => "a time with its unit such as \"20ms\"",
            Self::Rate => "a rate with its unit such as \"10Mbit/s\"",
            Self::Size => "a size with its unit such as \"64KiB\"",
            Self::Packets => "a number of packets such as \"50packets\"",
        }
    }
}

/// A number with its dimension, in base units: s, bit/s, B.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// The number.
    pub amount: f64,
    /// Its dimension.
    pub dimension: Dimension,
}

/// Every unit, with its value in base units.
const UNITS: &[(&str, Dimension, f64)] = &[
    ("ns", Dimension::Time, 1e-9),
    ("us", Dimension::Time, 1e-6),
    ("ms", Dimension::Time, 1e-3),
    ("s", Dimension::Time, 1.0),
    ("min", Dimension::Time, 60.0),
    ("h", Dimension::Time, 3600.0),
    ("bit/s", Dimension::Rate, 1.0),
    ("kbit/s", Dimension::Rate, 1e3),
    ("Mbit/s", Dimension::Rate, 1e6),
    ("Gbit/s", Dimension::Rate, 1e9),
    ("B/s", Dimension::Rate, 8.0),
    ("kB/s", Dimension::Rate, 8e3),
    ("MB/s", Dimension::Rate, 8e6),
    ("B", Dimension::Size, 1.0),
    ("kB", Dimension::Size, 1e3),
    ("MB", Dimension::Size, 1e6),
    ("GB", Dimension::Size, 1e9),
    ("KiB", Dimension::Size, 1024.0),
    ("MiB", Dimension::Size, 1_048_576.0),
    ("GiB", Dimension::Size, 1_073_741_824.0),
    ("packets", Dimension::Packets, 1.0),
    ("packet", Dimension::Packets, 1.0),
    ("%", Dimension::Bare, 0.01),
];

/// Ambiguous units, which are refused.
const REFUSED: &[(&str, &str)] = &[
    ("mbps", "Mbit/s"),
    ("mb/s", "Mbit/s"),
    ("kbps", "kbit/s"),
    ("gbps", "Gbit/s"),
    ("bps", "bit/s"),
    ("mbit", "Mbit/s"),
    ("kbit", "kbit/s"),
    ("gbit", "Gbit/s"),
    ("mb", "MB"),
    ("kb", "KiB"),
    ("gb", "GB"),
    ("k", "kB"),
    ("m", "MB"),
    ("g", "GB"),
    ("sec", "s"),
    ("msec", "ms"),
    ("pkts", "packets"),
    ("p", "packets"),
];

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantityError {
    /// What is wrong.
    pub what: String,
    /// What was probably meant.
    pub hint: Option<String>,
}

impl QuantityError {
    fn new(what: String) -> Self {
        Self { what, hint: None }
    }
}

impl Quantity {
    /// A bare number.
    pub fn bare(amount: f64) -> Self {
        Self {
            amount,
            dimension: Dimension::Bare,
        }
    }

    /// Reads `10Mbit/s`, `20 ms` or `1.5`; or, after an equals sign, an expression of quantities
    /// and of the names that `parameter` knows, such as `=rtt * scale / 2`.
    ///
    /// # Errors
    /// What is wrong, and what was probably meant.
    pub fn parse(
        text: &str,
        parameter: &dyn Fn(&str) -> Result<Self, QuantityError>,
    ) -> Result<Self, QuantityError> {
        match text.strip_prefix('=') {
            Some(expression) => super::expression::evaluate(expression, parameter),
            None => Self::literal(text),
        }
    }

    /// The amounts of these texts, if there are any and all are quantities of one dimension.
    pub fn amounts<'t>(texts: impl Iterator<Item = &'t str>) -> Option<(Dimension, Vec<f64>)> {
        let quantities: Option<Vec<Self>> = texts.map(|text| Self::literal(text).ok()).collect();
        let quantities = quantities?;
        let dimension = quantities.first()?.dimension;
        let is_alike = |quantity: &Self| quantity.dimension == dimension;
        let amounts = quantities.iter().map(|quantity| quantity.amount).collect();
        quantities
            .iter()
            .all(is_alike)
            .then_some((dimension, amounts))
    }

    /// Reads a number with its unit.
    pub(super) fn literal(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        let numeric = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
        let end = text.find(|c| !numeric(c)).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let number = digits.replace('_', "").parse::<f64>().ok();
        let Some(number) = number.filter(|number| number.is_finite()) else {
            return Err(QuantityError::new(format!("\"{text}\" is no quantity")));
        };
        let unit = unit.trim();
        if unit.is_empty() {
            return Ok(Self::bare(number));
        }
        if let Some((_, dimension, factor)) = UNITS.iter().find(|(name, ..)| *name == unit) {
            return Ok(Self {
                amount: number * factor,
                dimension: *dimension,
            });
        }
        let lower = unit.to_ascii_lowercase();
        let refused = REFUSED.iter().find(|(name, _)| *name == lower);
        let hint = match refused {
            Some((_, meant)) => Some((*meant).to_owned()),
            None => nearest(unit, UNITS.iter().map(|(name, ..)| *name)),
        };
        Err(QuantityError {
            what: format!("\"{text}\": there is no unit `{unit}`"),
            hint,
        })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.dimension {
            Dimension::Bare => "",
            Dimension::Time => "s",
            Dimension::Rate => "bit/s",
            Dimension::Size => "B",
            Dimension::Packets => "packets",
        };
        write!(f, "{}{unit}", self.amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Quantity, QuantityError> {
        Quantity::parse(text, &|name| match name {
            "rtt" => Quantity::literal("50ms"),
            "rtt-scale" => Ok(Quantity::bare(2.0)),
            "rate" => Quantity::literal("10Mbit/s"),
            _ => Err(QuantityError::new(format!("no parameter `{name}`"))),
        })
    }

    fn value(text: &str) -> (f64, Dimension) {
        let quantity = parse(text).unwrap();
        let rounded = (quantity.amount * 1e9).round() / 1e9;
        (rounded, quantity.dimension)
    }

    #[test]
    fn units_mean_what_the_page_says() {
        assert_eq!(value("10Mbit/s"), (1e7, Dimension::Rate));
        assert_eq!(value("1.5 kB/s"), (12_000.0, Dimension::Rate));
        assert_eq!(value("64KiB"), (65_536.0, Dimension::Size));
        assert_eq!(value("100MB"), (1e8, Dimension::Size));
        assert_eq!(value("250us"), (0.000_25, Dimension::Time));
        assert_eq!(value("0.1%"), (0.001, Dimension::Bare));
        assert_eq!(value("50packets"), (50.0, Dimension::Packets));
    }

    #[test]
    fn units_that_mean_two_things_are_refused_with_what_was_meant() {
        for (text, hint) in [
            ("10Mb", "MB"),
            ("10mbps", "Mbit/s"),
            ("64K", "kB"),
            ("64KB", "KiB"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.hint.as_deref(), Some(hint), "{text}");
        }
        assert_eq!(parse("5Mbits").unwrap_err().hint.as_deref(), Some("Mbit/s"));
        assert!(parse("fast").is_err());
        assert!(parse("").is_err());
        assert!(parse("-5ms").is_err());
    }

    #[test]
    fn expressions_keep_their_dimension() {
        assert_eq!(value("=rtt * rtt-scale / 2"), (0.05, Dimension::Time));
        assert_eq!(value("=(100ms - rtt) * 2"), (0.1, Dimension::Time));
        assert_eq!(value("=rate * rtt"), (62_500.0, Dimension::Size));
        assert_eq!(value("=64KiB / rtt"), (10_485_760.0, Dimension::Rate));
        assert_eq!(value("=rtt / 25ms"), (2.0, Dimension::Bare));
    }

    #[test]
    fn expressions_that_make_no_sense_are_refused() {
        for text in [
            "=rtt + rate",
            "=rtt * rtt",
            "=rtt /",
            "=(rtt",
            "=rtt rtt",
            "=nothing",
            "=rtt / 0",
            "=",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
