//! Classes of traffic: which flows are alike, and how they are carried.
//!
//! ```text
//! Flow ──> Classes::of: the first class that matches ──> Treatment
//!          own classes in their order, then voice, game, shell, names; bulk is the rest
//! ```
//! A class of the name of a built-in one takes its place. The near end decides; the far end is told
//! the treatment with each request, so that what comes back is treated the same.

mod builtin;
mod light;
mod prefix;

pub use light::LightPriority;
pub use prefix::{InvalidPrefix, Prefix};

use crate::order::Grace;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The name of the class that takes what matches no other class.
pub const REST: &str = "bulk";

/// The most classes that a user may define.
pub const MAX_CLASSES: usize = 64;

/// Priorities that a class may have.
pub const PRIORITIES: RangeInclusive<i32> = -7..=7;
/// Deadlines that a class may have.
pub const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
/// The longest that a class may let datagrams wait for those before them.
pub const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// How long a datagram may wait for its turn to leave, unless its class says so. Later it is worth
/// less than the next one.
const WORTH: Duration = Duration::from_millis(200);

/// How long a datagram waits for one that was sent before it, unless its class says how long at
/// most.
const WAIT: Duration = Duration::from_millis(20);

/// The class number of datagrams that have an order and are not steered, by which the schedulers of
/// both ends know them.
pub const ORDERED: u8 = 6;

/// What carries a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// What is known of a flow when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow<'a> {
    /// What carries it.
    pub transport: Transport,
    /// The host that began it.
    pub source: Option<IpAddr>,
    /// The address it goes to, where the host gave one.
    pub target: Option<IpAddr>,
    /// The name it goes to, where the host gave one.
    pub domain: Option<&'a str>,
    /// The port it goes to.
    pub port: u16,
    /// The code point of its first datagram (RFC 2474), where it is known.
    pub dscp: Option<u8>,
    /// The number of the user whose process began it, where that ran on this machine.
    pub owner: Option<u32>,
}

/// Conditions that a flow meets together. One without entries is met by every flow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// The flow's transport.
    pub transport: Option<Transport>,
    /// The target's port is one of these.
    pub ports: Vec<RangeInclusive<u16>>,
    /// The target's address is in one of these, or its name in one of `domains`.
    pub targets: Vec<Prefix>,
    /// The target's name is one of these, or ends in one of them behind a dot.
    pub domains: Vec<String>,
    /// The code point is one of these.
    pub dscp: Vec<u8>,
    /// The host's address is in one of these.
    pub sources: Vec<Prefix>,
    /// The user is one of these.
    pub owners: Vec<u32>,
}

impl Match {
    /// Whether every flow meets it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a flow meets it.
    pub fn is_met(&self, flow: &Flow<'_>) -> bool {
        let any = |prefixes: &[Prefix], address: Option<IpAddr>| {
            address.is_some_and(|it| prefixes.iter().any(|prefix| prefix.contains(it)))
        };
        let is_target = (self.targets.is_empty() && self.domains.is_empty())
            || any(&self.targets, flow.target)
            || flow.domain.is_some_and(|name| self.has_domain(name));
        self.transport.is_none_or(|one| one == flow.transport)
            && (self.ports.is_empty() || self.ports.iter().any(|some| some.contains(&flow.port)))
            && is_target
            && (self.dscp.is_empty() || flow.dscp.is_some_and(|one| self.dscp.contains(&one)))
            && (self.sources.is_empty() || any(&self.sources, flow.source))
            && (self.owners.is_empty() || flow.owner.is_some_and(|one| self.owners.contains(&one)))
    }

    fn has_domain(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.');
        self.domains.iter().any(|domain| {
            let at = name.len().checked_sub(domain.len());
            let tail = at.and_then(|at| Some((name.get(..at)?, name.get(at..)?)));
            tail.is_some_and(|(before, tail)| {
                tail.eq_ignore_ascii_case(domain) && (before.is_empty() || before.ends_with('.'))
            })
        })
    }
}

/// How a class chooses among paths: the modes of ATSSS (TS 24.193).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steering {
    /// One path, and another when that fails.
    ActiveStandby,
    /// The path with the lowest delay.
    SmallestDelay,
    /// All paths, by their weights.
    LoadBalancing,
    /// The path of the highest priority, and the next where that is full.
    PriorityBased,
    /// Everything on every path.
    Redundant,
}

impl Steering {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::ActiveStandby,
        Self::SmallestDelay,
        Self::LoadBalancing,
        Self::PriorityBased,
        Self::Redundant,
    ];

    /// The class number of this mode, by which the schedulers of both ends know it.
    pub const fn class(self) -> u8 {
        self as u8 + 1
    }

    /// The mode's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ActiveStandby => "active-standby",
            Self::SmallestDelay => "smallest-delay",
            Self::LoadBalancing => "load-balancing",
            Self::PriorityBased => "priority-based",
            Self::Redundant => "redundant",
        }
    }
}

impl fmt::Display for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that does not name a steering mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no mode of steering")]
pub struct NoSteering(String);

impl FromStr for Steering {
    type Err = NoSteering;

    fn from_str(text: &str) -> Result<Self, NoSteering> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| NoSteering(text.to_owned()))
    }
}

/// How flows of a class are carried, in both directions. Unset fields leave it to the tunnel's
/// defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Which paths the class uses.
    pub steering: Option<Steering>,
    /// Connections with a higher priority send first; 0 unless set.
    pub priority: i32,
    /// Whether the priority holds only while a connection carries little ([`LightPriority`]).
    pub light: bool,
    /// How long a datagram may wait for its turn to leave before it is dropped.
    pub deadline: Option<Duration>,
    /// How long a datagram may wait for one that was sent before it.
    pub wait: Option<Duration>,
    /// Whether numbered datagrams may be sent twice, where the scheduler makes copies.
    pub copies: bool,
}

impl Treatment {
    /// The class number of the steering; 0 if none is set.
    pub fn class(&self) -> u8 {
        self.steering.map_or(0, Steering::class)
    }

    /// How far behind the fastest path a numbered datagram may arrive: as long as the peer waits
    /// for it. `None` if the peer does not wait, or if arriving early counts more than order
    /// (`light`, or a deadline).
    pub fn max_skew(&self) -> Option<Duration> {
        let wait = self.longest_wait();
        let is_urgent = self.light || self.deadline.is_some();
        (!wait.is_zero() && !is_urgent).then_some(wait)
    }

    /// The class number of numbered datagrams: the one of the steering, else [`ORDERED`] if they
    /// have an order.
    pub fn class_of_numbered(&self) -> u8 {
        let unsteered = if self.max_skew().is_some() {
            ORDERED
        } else {
            0
        };
        self.steering.map_or(unsteered, Steering::class)
    }

    /// How long a datagram may wait for one that was sent before it.
    pub fn longest_wait(&self) -> Duration {
        self.wait.unwrap_or(WAIT)
    }

    /// How long to wait for missing datagrams. `repairs`: the peer sends lost ones again, except
    /// where arriving early counts more than order.
    pub fn grace(&self, repairs: bool) -> Grace {
        Grace {
            longest: self.longest_wait(),
            repaired: repairs && self.max_skew().is_some(),
        }
    }

    /// How long a datagram may wait for its turn to leave.
    pub fn lasts(&self) -> Duration {
        self.deadline.unwrap_or(WORTH)
    }

    /// Whether losing a datagram costs more than its bytes.
    pub fn is_critical(&self) -> bool {
        self.copies || self.steering == Some(Steering::Redundant)
    }
}

/// A class of flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// The class's name.
    pub name: String,
    /// A flow belongs to the class if any of these matches; an empty list matches all.
    pub matches: Vec<Match>,
    /// How flows of the class are carried.
    pub treatment: Treatment,
}

impl Class {
    /// Whether a flow is of this class.
    pub fn has(&self, flow: &Flow<'_>) -> bool {
        self.matches.is_empty() || self.matches.iter().any(|one| one.is_met(flow))
    }
}

/// All classes, in the order in which they are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classes {
    /// The last one has all flows.
    all: Vec<Class>,
    wants_owner: bool,
}

impl Classes {
    /// The user's classes, followed by the built-in ones whose names they do not use. A user's
    /// class with the name of a built-in one but no conditions keeps the conditions and the place
    /// of the built-in one.
    pub fn new(own: Vec<Class>) -> Self {
        let builtin = builtin::classes();
        let is_builtin = |name: &str| builtin.iter().any(|one| one.name == name);
        let (changes, mut all): (Vec<Class>, Vec<Class>) = own
            .into_iter()
            .partition(|one| one.matches.is_empty() && is_builtin(&one.name));
        let replaced: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
        for mut class in builtin {
            if let Some(change) = changes.iter().find(|one| one.name == class.name) {
                class.treatment = change.treatment;
            }
            // What no class wants belongs to one, whatever the others are called.
            if class.name == REST || !replaced.contains(&class.name) {
                all.push(class);
            }
        }
        let wants_owner = all
            .iter()
            .flat_map(|class| &class.matches)
            .any(|one| !one.owners.is_empty());
        Self { all, wants_owner }
    }

    /// The class of a flow.
    ///
    /// # Panics
    ///
    /// Never: the last class has all flows.
    pub fn of(&self, flow: &Flow<'_>) -> &Class {
        let found = self.all.iter().find(|class| class.has(flow));
        found
            .or(self.all.last())
            .expect("there is one for the rest")
    }

    /// Whether any class matches on the owner; looking it up is costly.
    pub fn wants_owner(&self) -> bool {
        self.wants_owner
    }

    /// All classes, in the order in which they are tried.
    pub fn iter(&self) -> std::slice::Iter<'_, Class> {
        self.all.iter()
    }

    /// The names of the built-in ones.
    pub fn builtin_names() -> Vec<String> {
        builtin::classes().into_iter().map(|one| one.name).collect()
    }
}

impl Default for Classes {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl<'a> IntoIterator for &'a Classes {
    type Item = &'a Class;
    type IntoIter = std::slice::Iter<'a, Class>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests;
