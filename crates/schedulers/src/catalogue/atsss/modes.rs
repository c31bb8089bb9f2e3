//! The modes by number and name, and a scheduler that has one of them for each class.

use crate::{Classes, builtin};
use anabranch_proto::sched::SchedulerFactory;
use std::fmt;
use std::str::FromStr;

/// A steering mode of ATSSS. Its number is the class of what it steers in [`steered`] schedulers;
/// the numbers never change, so both ends of a connection can agree on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SteeringMode {
    /// One path of the highest priority; others only if it does not answer.
    ActiveStandby = 1,
    /// The lowest forward delay where it is measured, else the lowest RTT.
    SmallestDelay = 2,
    /// All paths, in proportion to their weights.
    LoadBalancing = 3,
    /// The highest priority first; the rest takes the overflow.
    PriorityBased = 4,
    /// Every path, each with everything. Of datagrams only critical ones, which the receiving
    /// application must know from their copies.
    Redundant = 5,
}

/// The modes by name.
pub(super) const MODES: [(&str, SteeringMode); 5] = [
    ("active-standby", SteeringMode::ActiveStandby),
    ("smallest-delay", SteeringMode::SmallestDelay),
    ("load-balancing", SteeringMode::LoadBalancing),
    ("priority-based", SteeringMode::PriorityBased),
    ("redundant", SteeringMode::Redundant),
];

impl SteeringMode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::ActiveStandby,
        Self::SmallestDelay,
        Self::LoadBalancing,
        Self::PriorityBased,
        Self::Redundant,
    ];

    /// The class of what it steers.
    pub const fn class(self) -> u8 {
        self as u8
    }

    /// The mode that steers a class, if one does.
    pub fn of_class(class: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.class() == class)
    }

    /// The mode's name, here and in `atsss:mode=`.
    pub fn name(self) -> &'static str {
        MODES[usize::from(self.class()) - 1].0
    }

    /// The scheduler that steers so.
    pub fn scheduler(self) -> SchedulerFactory {
        let copies = match self {
            Self::Redundant => ",datagrams=copy",
            _ => "",
        };
        let spec = format!("atsss:mode={}{copies}", self.name());
        let spec = spec.parse().expect("a specification of ours");
        SchedulerFactory::new(&builtin(), &spec).expect("a scheduler of ours")
    }
}

impl fmt::Display for SteeringMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no steering mode of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no steering mode `{0}`: known are active-standby, smallest-delay, load-balancing, \
    priority-based and redundant"
)]
pub struct UnknownMode(String);

impl FromStr for SteeringMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let found = MODES.into_iter().find(|(name, _)| *name == text);
        found
            .map(|(_, mode)| mode)
            .ok_or_else(|| UnknownMode(text.into()))
    }
}

/// The class of datagrams that have an order and no [mode](SteeringMode) in [`steered`] schedulers.
pub const ORDERED: u8 = 6;

/// The scheduler `first`, and one of ATSSS for each class that is the number of a
/// [mode](SteeringMode): both ends of a tunnel use it, so that each can have every flow steered in
/// its own way. The [recommended](crate::RECOMMENDED) scheduler, which lets [`ORDERED`] datagrams
/// wait for their path, is there a second time for them, so that they keep nothing else waiting.
pub fn steered(first: SchedulerFactory) -> SchedulerFactory {
    let name = format!("{}, steered by class", first.name());
    let ordered = (first.name() == crate::RECOMMENDED).then(|| (ORDERED, first.clone()));
    let modes = SteeringMode::ALL.map(|mode| (mode.class(), mode.scheduler()));
    let others = modes.into_iter().chain(ordered);
    let classes = Classes::factory(first, others.collect());
    SchedulerFactory::from_fn(name, move || classes.build())
}
