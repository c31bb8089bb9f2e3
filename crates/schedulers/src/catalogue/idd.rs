//! Intelligent delivery delay: sends out of order so that data arrives in order.
//!
//! A reconstruction from the outlook of Alam (Bremen 2016), whose table it reproduces: the unsent
//! data goes, in order, to the coming chances of all paths to send, in order of the predicted
//! arrival ([`arrival`](super::arrival)). Of the paths that can send now, the one that delivers
//! first is served first. No path is ever held back.
//!
//! Where delays scatter by more than half their difference the data is sent in order. (The plan of
//! the reference, to decide by completion time there, would make waits of a policy that has none.)

use crate::catalogue::arrival::{Forecast, skip};
use crate::catalogue::delivery_delay::least_delay;
use crate::toolkit::{Delays, send_behind};
use anabranch_proto::sched::{
    Choice, Decision, Entry, PathEvent, Reason, Scheduler, SendView, UnitKind,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "idd-like",
    summary: "intelligent delivery delay: data for each chance to send by predicted arrival",
    params: &[],
    build: |_| Ok(Box::new(IntelligentDelay::default())),
};

/// Assigns data to future chances to send by predicted arrival.
#[derive(Debug, Default)]
pub(crate) struct IntelligentDelay {
    forecast: Forecast,
}

impl Scheduler for IntelligentDelay {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        self.forecast.note_time(view.now);
        let delays = Delays::of(view);
        let choice = least_delay(view, &delays);
        let Decision::Send(id) = choice.decision else {
            return choice;
        };
        match view.path(id) {
            Some(path) if view.unit.kind == UnitKind::Fresh => {
                match skip(view, &delays, &self.forecast, path) {
                    0 => choice,
                    ahead => send_behind(path.id, ahead, Reason::EarliestArrival),
                }
            }
            _ => choice,
        }
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.forecast.on_event(event);
    }
}

#[cfg(test)]
mod tests;
