//! Maps values to positions, and chooses the numbers on axes.

/// A unit for display: base units times `factor`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unit {
    /// What a base unit is multiplied by.
    pub(crate) factor: f64,
    /// Its name.
    pub(crate) name: String,
}

impl Unit {
    /// A unit without conversion.
    pub(crate) fn bare(name: &str) -> Self {
        Self {
            factor: 1.0,
            name: name.to_owned(),
        }
    }

    /// For bits per second up to `most`.
    pub(crate) fn rate(most: f64) -> Self {
        Self::fitting(
            most,
            &[
                (1.0, "bit/s"),
                (1e3, "kbit/s"),
                (1e6, "Mbit/s"),
                (1e9, "Gbit/s"),
            ],
        )
    }

    /// For bytes up to `most`.
    pub(crate) fn size(most: f64) -> Self {
        Self::fitting(most, &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")])
    }

    /// For seconds up to `most`.
    pub(crate) fn time(most: f64) -> Self {
        Self::fitting(most, &[(1e-6, "µs"), (1e-3, "ms"), (1.0, "s")])
    }

    fn fitting(most: f64, units: &[(f64, &str)]) -> Self {
        let fits = |unit: &&(f64, &str)| unit.0 <= most.max(units[0].0) * 1.0001;
        let (size, name) = units.iter().rev().find(fits).copied().unwrap_or(units[0]);
        Self {
            factor: 1.0 / size,
            name: name.to_owned(),
        }
    }

    /// A title followed by the unit.
    pub(crate) fn title(&self, what: &str) -> String {
        if self.name.is_empty() {
            what.to_owned()
        } else {
            format!("{what} [{}]", self.name)
        }
    }
}

/// Maps values to positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// Values from `low` to `high`, linear or logarithmic. [`between`](Self::between) sets the
    /// positions.
    pub(crate) fn new(low: f64, high: f64, log: bool) -> Self {
        let log = log && low > 0.0;
        let high = if high > low {
            high
        } else if log {
            low * 2.0
        } else {
            low + 1.0
        };
        Self {
            low,
            high,
            log,
            from: 0.0,
            to: 1.0,
        }
    }

    /// From zero, or the smallest value if it is negative, to a little above the largest.
    pub(crate) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (0.0f64, 0.0f64);
        for value in values.filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        let room = (high - low) * 0.06;
        Self::new(if low < 0.0 { low - room } else { 0.0 }, high + room, false)
    }

    /// The scale with these positions at its ends.
    pub(crate) fn between(mut self, from: f64, to: f64) -> Self {
        (self.from, self.to) = (from, to);
        self
    }

    /// The range of its values.
    pub(crate) fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The position of a value.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// About `count` round values with their texts.
    pub(crate) fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        if self.log {
            return self.log_ticks(count);
        }
        let rough = (self.high - self.low) / count.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= rough * 0.999)
            .unwrap_or(power * 10.0);
        let digits = decimals(step);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last)
            .map(|n| {
                let value = n as f64 * step;
                (value, format!("{value:.digits$}"))
            })
            .collect()
    }

    fn log_ticks(&self, count: usize) -> Vec<(f64, String)> {
        let decades = (self.high / self.low).log10();
        let factors: &[f64] = if decades * 3.0 <= count as f64 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let every = ((decades / count.max(1) as f64).ceil() as i32).max(1);
        let mut ticks = Vec::new();
        for power in (first..=last).filter(|power| (power - first) % every == 0) {
            for factor in factors {
                let value = factor * 10f64.powi(power);
                if value >= self.low * 0.999 && value <= self.high * 1.001 {
                    let digits = usize::try_from(-power).unwrap_or(0);
                    ticks.push((value, format!("{value:.digits$}")));
                }
            }
        }
        if ticks.len() < 3 {
            // Too narrow for steps of 1, 2 and 5, so equal steps are used.
            return Self {
                log: false,
                ..*self
            }
            .ticks(count);
        }
        ticks
    }
}

/// The decimals needed to distinguish multiples of `step`.
pub(crate) fn decimals(step: f64) -> usize {
    if step <= 0.0 || !step.is_finite() {
        return 0;
    }
    (-(step.log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize
}
