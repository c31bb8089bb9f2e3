//! Congestion-window-aware: traffic by free window, without regard to delay.
//!
//! A reconstruction of a rule that the BTH thesis names without a formula. `max` sends where the
//! most window is free. `random` draws a path with its free window as the weight, which also probes
//! weak paths; its generator is seeded, so runs repeat.

use crate::toolkit::carried;
use anabranch_proto::rng::Rng;
use anabranch_proto::sched::{Choice, Entry, ParamDoc, PathView, Reason, Scheduler, SendView};
use anabranch_proto::spec::{Params, SpecError};
use std::cmp::Reverse;

pub(crate) const ENTRY: Entry = Entry {
    name: "cwnd-aware-like",
    summary: "the most free congestion window, or at random in proportion to it",
    params: &[
        ParamDoc {
            key: "mode",
            default: "max",
            summary: "max: the most free window; random: in proportion to it",
        },
        ParamDoc {
            key: "seed",
            default: "0",
            summary: "of the generator (random)",
        },
    ],
    build: |params| Ok(Box::new(WindowAware::from_params(params)?)),
};

/// Shares traffic by free window.
#[derive(Debug, Default)]
pub(crate) struct WindowAware {
    random: Option<Rng>,
}

impl WindowAware {
    fn from_params(params: &mut Params) -> Result<Self, SpecError> {
        let random = params.choice("mode", false, &[("max", false), ("random", true)])?;
        let seed = params.take("seed", 0_u64)?;
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Ok(Self {
            random: random.then(|| Rng::from_seed(bytes)),
        })
    }
}

/// A share of the lottery, small enough that those of all paths can be added up.
fn tickets(path: &PathView) -> u64 {
    path.room().min(1 << 48)
}

impl Scheduler for WindowAware {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        // For lost data only those are in the draw that have not carried it, if there are any.
        let new = view.ready().any(|path| !carried(view, path));
        let open = || view.ready().filter(|path| !(new && carried(view, path)));
        let most = || open().min_by_key(|path| (Reverse(path.room()), path.id));
        let chosen = match &mut self.random {
            None => most(),
            Some(random) => {
                let mut number = random.below(open().map(tickets).sum());
                let drawn = open().find(|path| {
                    let wins = number < tickets(path);
                    number = number.saturating_sub(tickets(path));
                    wins
                });
                drawn.or_else(most)
            }
        };
        match chosen {
            Some(path) => Choice::send(path.id, Reason::MostRoom),
            None => view.no_room(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{built, fresh, full, hold, send};
    use anabranch_proto::sched::Decision;

    fn path(id: u32, room: u64) -> PathView {
        PathView {
            bytes_in_flight: 12_000 - room * 1000,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    #[test]
    fn the_most_room_wins() {
        let mut aware = built("cwnd-aware-like");
        let mut ask = |a, b| aware.select(&fresh(&[path(0, a), path(1, b)]));
        assert_eq!(ask(8, 3), send(0, Reason::MostRoom));
        assert_eq!(ask(3, 8), send(1, Reason::MostRoom));
        assert_eq!(ask(3, 3), send(0, Reason::MostRoom));
        assert_eq!(ask(0, 0), hold(Reason::NoRoom));
    }

    #[test]
    fn draws_are_in_proportion_to_the_room_and_repeat() {
        let draw = |seed: u64| -> Vec<u32> {
            let mut aware = built(&format!("cwnd-aware-like:mode=random,seed={seed}"));
            let paths = [path(0, 8), full(1), path(2, 4)];
            let next = |_| match aware.select(&fresh(&paths)).decision {
                Decision::Send(path) => path.0,
                other => panic!("a path is open: {other:?}"),
            };
            (0..3000).map(next).collect()
        };
        let drawn = draw(1);
        let of = |path| drawn.iter().filter(|drawn| **drawn == path).count();
        assert_eq!(of(1), 0);
        assert!((1850..2150).contains(&of(0)), "{} of 3000", of(0));
        assert_eq!(drawn, draw(1));
        assert_ne!(drawn, draw(2));
    }
}
