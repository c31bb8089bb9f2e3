//! Forward delays, measured or assumed.

use crate::toolkit::units::{FOREVER, nanos};
use anabranch_proto::sched::{PathView, SendView};

/// How forward delays are told: as measured, or as half the RTT.
///
/// Measured ones have an offset that is unknown but common to all paths, so they count only if
/// every candidate with an RTT sample has one. They are anchored at half the RTT of the path with
/// the least delay, so that both ways yield times of the same magnitude.
#[derive(Debug, Clone, Copy)]
pub struct Delays {
    /// The least measured delay, in microseconds, and what it stands for, in nanoseconds.
    anchor: Option<(i64, u64)>,
}

impl Delays {
    /// Measured delays if all candidates of `view` with an RTT sample have them, else half the RTT.
    pub fn of(view: &SendView<'_>) -> Self {
        let mut anchor: Option<(i64, u64)> = None;
        for path in view.candidates() {
            match path.forward_delay_us {
                None if path.smoothed_rtt.is_zero() => {}
                None => return Self::HALVES,
                Some(us) if anchor.is_none_or(|(least, _)| us < least) => {
                    anchor = Some((us, nanos(path.smoothed_rtt) / 2));
                }
                Some(_) => {}
            }
        }
        Self { anchor }
    }

    /// Half the RTT of every path, whatever is measured.
    pub const HALVES: Self = Self { anchor: None };

    /// How long a packet takes to the peer; `None` if nothing is known about the path.
    pub fn forward(&self, path: &PathView) -> Option<u64> {
        let Some((least, stands_for)) = self.anchor else {
            return match nanos(path.smoothed_rtt) {
                0 => None,
                rtt => Some(rtt / 2),
            };
        };
        let us = path.forward_delay_us?;
        let more = if us > least { us.abs_diff(least) } else { 0 };
        Some(more.saturating_mul(1000).min(FOREVER) + stands_for)
    }

    /// The order of preference by forward delay: unknown ones come last.
    pub fn rank(&self, path: &PathView) -> (bool, u64) {
        let forward = self.forward(path);
        (forward.is_none(), forward.unwrap_or(FOREVER))
    }

    /// Mean deviation of [`forward`](Self::forward).
    pub fn deviation(&self, path: &PathView) -> u64 {
        match self.anchor {
            Some(_) => path.forward_jitter_us.saturating_mul(1000).min(FOREVER),
            None => nanos(path.rttvar) / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fresh;
    use anabranch_proto::time::Duration;

    fn path(id: u32, rtt_ms: u64, forward_us: Option<i64>) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            forward_delay_us: forward_us,
            ..PathView::new(id)
        }
    }

    #[test]
    fn only_differences_of_measured_delays_count() {
        for offset in [0, 1_000_000, -5_000_000, i64::MIN + 1_000_000] {
            let paths = [
                path(0, 210, Some(10_000 + offset)),
                path(1, 60, Some(50_000 + offset)),
            ];
            let delays = Delays::of(&fresh(&paths));
            let forward = paths.map(|path| delays.forward(&path).unwrap());
            assert_eq!(forward, [105_000_000, 145_000_000]);
        }
    }

    #[test]
    fn one_path_without_a_measurement_makes_all_use_half_their_rtt() {
        let paths = [path(0, 210, Some(10_000)), path(1, 60, None)];
        let delays = Delays::of(&fresh(&paths));
        let forward = paths.map(|path| delays.forward(&path).unwrap());
        assert_eq!(forward, [105_000_000, 30_000_000]);
    }

    #[test]
    fn a_path_that_nothing_is_known_about_comes_last_and_spoils_nothing() {
        let paths = [path(0, 0, None), path(1, 60, Some(7))];
        let delays = Delays::of(&fresh(&paths));
        assert_eq!(delays.forward(&paths[0]), None);
        assert!(delays.rank(&paths[1]) < delays.rank(&paths[0]));
    }
}
