//! Carries out events during a run, and samples what the links carry.

use super::network::Net;
use crate::results::Shared;
use crate::scenario::{Action, NodeKind, Sides};
use anabranch_testbed::emulate::{Counters, Way as Line};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often links are sampled if no series is wanted: for the mean of their queues.
const SAMPLE: Duration = Duration::from_millis(100);

/// A run in which an event comes later than this is invalid.
const LATE: Duration = Duration::from_millis(50);

/// The totals of all links at one time: by link, then forward and backward.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) links: Vec<[Counters; 2]>,
}

/// The record of a script.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) samples: Vec<Sample>,
    /// The events carried out, in words, with their times.
    pub(super) done: Vec<(Duration, String)>,
    /// What the background traffic got.
    pub(super) background: Vec<Shared>,
    /// Why the run is invalid, if it is.
    pub(super) fault: Option<String>,
}

impl Net<'_> {
    /// Carries out the script, counting from `begin`, and samples the links until told that the run
    /// is over.
    pub(super) fn follow(&mut self, begin: Instant, over: &Receiver<()>) -> Log {
        let step = self.scenario.record.series.unwrap_or(SAMPLE);
        let step = step.max(Duration::from_millis(10));
        let mut log = Log::default();
        let (mut next_event, mut next_sample) = (0, step);
        loop {
            let event = self.scenario.events.get(next_event).map(|event| event.at);
            let next = event.map_or(next_sample, |at| at.min(next_sample));
            let wait = (begin + next).saturating_duration_since(Instant::now());
            match over.recv_timeout(wait) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if event.is_some_and(|at| at <= next) {
                self.act(next_event, begin, &mut log);
                next_event += 1;
                continue;
            }
            self.sample(begin.elapsed(), &mut log);
            next_sample += step;
        }
        self.sample(begin.elapsed(), &mut log);
        log
    }

    fn sample(&mut self, at: Duration, log: &mut Log) {
        let mut links = Vec::with_capacity(self.configs.len());
        for link in 0..self.configs.len() {
            let both = [Line::Forward, Line::Backward].map(|way| self.layer.counters(link, way));
            match both {
                [Ok(forward), Ok(backward)] => links.push([forward, backward]),
                [Err(error), _] | [_, Err(error)] => {
                    log.fault.get_or_insert(error.to_string());
                    return;
                }
            }
        }
        log.samples.push(Sample { at, links });
    }

    fn act(&mut self, index: usize, begin: Instant, log: &mut Log) {
        let event = self.scenario.events[index].clone();
        let name = self.scenario.network.links[event.link].name.clone();
        let lateness = begin.elapsed().saturating_sub(event.at);
        let outcome = self.carry_out(event.link, &event.action);
        log.done.push((
            begin.elapsed(),
            format!("{name}: {}", in_words(&event.action)),
        ));
        if let Err(error) = outcome {
            log.fault
                .get_or_insert(format!("event on `{name}` at {:?}: {error}", event.at));
        } else if lateness > LATE {
            let late = lateness.as_millis();
            log.fault
                .get_or_insert(format!("an event on `{name}` came {late} ms late"));
        }
    }

    fn carry_out(&mut self, link: usize, action: &Action) -> Result<(), String> {
        match action {
            Action::Down(sides) => self.silence(link, *sides, true),
            Action::Up(sides) => self.silence(link, *sides, false),
            Action::AdminDown => self.layer.set_admin(link, false).map_err(text),
            Action::AdminUp => self.layer.set_admin(link, true).map_err(text),
            Action::Set(sides, change) => {
                for line in lines(*sides) {
                    let at = usize::from(*line == Line::Backward);
                    let config = change.applied_to(&self.configs[link][at]);
                    self.layer
                        .change(link, *line, config.clone())
                        .map_err(text)?;
                    self.configs[link][at] = config;
                }
                Ok(())
            }
            Action::Handover => self.readdress(link).map_err(text),
            Action::Rebind => {
                let ends = self.scenario.network.links[link].ends;
                let nodes = &self.scenario.network.nodes;
                let nat = [ends.0, ends.1]
                    .into_iter()
                    .find(|node| nodes[*node].kind == NodeKind::Nat);
                match nat {
                    Some(node) => self.forget_mappings(node),
                    None => Err("there is no NAT at the link".to_owned()),
                }
            }
        }
    }

    fn silence(&mut self, link: usize, sides: Sides, silent: bool) -> Result<(), String> {
        for line in lines(sides) {
            self.layer.set_silent(link, *line, silent).map_err(text)?;
        }
        Ok(())
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn lines(sides: Sides) -> &'static [Line] {
    match sides {
        Sides::Both => &[Line::Forward, Line::Backward],
        Sides::Forward => &[Line::Forward],
        Sides::Backward => &[Line::Backward],
    }
}

fn in_words(action: &Action) -> String {
    let side = |sides: &Sides| match sides {
        Sides::Both => "both ways",
        Sides::Forward => "forward",
        Sides::Backward => "backward",
    };
    match action {
        Action::Down(sides) => format!("silent {}", side(sides)),
        Action::Up(sides) => format!("carries again {}", side(sides)),
        Action::AdminDown => "interfaces down".to_owned(),
        Action::AdminUp => "interfaces up".to_owned(),
        Action::Set(sides, _) => format!("changed {}", side(sides)),
        Action::Handover => "the client has another address".to_owned(),
        Action::Rebind => "the NAT forgot its mappings".to_owned(),
    }
}
