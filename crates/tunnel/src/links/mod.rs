//! What each link is for, what it may carry, and what that comes to now.
//!
//! [`Links`] is told what the links carry and what day it is, and says how each is to be used. It
//! neither opens paths nor knows what an interface is.

mod cap;
mod quarantine;
mod spill;

pub use cap::{Cap, Day, LAST_DAY, Level, Then, Used};
pub use quarantine::{Conduct, Harm, Packets, Quarantine};

use spill::Spill;
use std::time::Duration;

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// The link carries data whenever it works.
    #[default]
    Always,
    /// The link carries data while all links together carry more than this many bits a second, or
    /// while no other link works.
    Secondary {
        /// Bits a second.
        above: u64,
    },
    /// The link carries data only while no other link works.
    Backup,
    /// The link carries nothing.
    Never,
}

/// The rule for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rule {
    /// What the link is for.
    pub role: Role,
    /// What the link may carry in a month.
    pub cap: Option<Cap>,
}

/// How a link is to be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Carry data with all other links.
    Carry,
    /// Carry data while no other link works.
    StandBy,
    /// Carry nothing.
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    rule: Rule,
    used: Used,
    spill: Spill,
}

/// The links of a node, in an order that its owner knows.
#[derive(Debug, Clone, Default)]
pub struct Links(Vec<Link>);

impl Links {
    /// Links with these rules, and with what they have carried before.
    pub fn new(links: impl IntoIterator<Item = (Rule, Used)>) -> Self {
        let link = |(rule, used)| Link {
            rule,
            used,
            spill: Spill::default(),
        };
        Self(links.into_iter().map(link).collect())
    }

    /// Whether what the links carry makes a difference to how they are used.
    pub fn depend_on_traffic(&self) -> bool {
        let depends =
            |rule: Rule| rule.cap.is_some() || matches!(rule.role, Role::Secondary { .. });
        self.0.iter().any(|link| depends(link.rule))
    }

    /// Adds what each link carried in `time`, in both directions; missing entries count as 0.
    pub fn carry(&mut self, bytes: &[u64], time: Duration, today: Day) {
        let all = bytes.iter().sum();
        let bytes = bytes.iter().copied().chain(std::iter::repeat(0));
        for (link, bytes) in self.0.iter_mut().zip(bytes) {
            if let Role::Secondary { above } = link.rule.role {
                link.spill.carry(above, all, time);
            }
            if let Some(cap) = link.rule.cap {
                link.used.count(cap, today, bytes);
            }
        }
    }

    /// How each is to be used.
    pub fn uses(&self) -> impl Iterator<Item = Use> + '_ {
        self.0.iter().map(Link::used_as)
    }

    /// The rule of each, and what it has carried.
    pub fn rules(&self) -> impl Iterator<Item = (Rule, Used)> + '_ {
        self.0.iter().map(|link| (link.rule, link.used))
    }
}

impl Link {
    fn used_as(&self) -> Use {
        let by_role = match self.rule.role {
            Role::Always => Use::Carry,
            Role::Secondary { .. } if self.spill.helps() => Use::Carry,
            Role::Secondary { .. } | Role::Backup => Use::StandBy,
            Role::Never => Use::Nothing,
        };
        let cap = self
            .rule
            .cap
            .filter(|cap| cap.level(self.used) == Level::UsedUp);
        match cap.map(|cap| cap.then) {
            Some(Then::Never) => Use::Nothing,
            Some(Then::Backup) if by_role == Use::Carry => Use::StandBy,
            None | Some(Then::Backup) => by_role,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(250);
    const TODAY: Day = Day {
        year: 2026,
        month: 11,
        day: 27,
    };

    fn links(rules: &[Rule]) -> Links {
        Links::new(rules.iter().map(|rule| (*rule, Used::default())))
    }

    fn uses(links: &Links) -> Vec<Use> {
        links.uses().collect()
    }

    fn rule(role: Role) -> Rule {
        Rule { role, cap: None }
    }

    fn capped(then: Then) -> Rule {
        let (bytes, day) = (1000, 1);
        Rule {
            role: Role::Always,
            cap: Some(Cap { bytes, day, then }),
        }
    }

    #[test]
    fn roles_say_how_a_link_is_used_and_only_some_need_to_look_at_traffic() {
        let plain = [Role::Always, Role::Backup, Role::Never].map(rule);
        let links = links(&plain);
        assert_eq!(uses(&links), [Use::Carry, Use::StandBy, Use::Nothing]);
        assert!(!links.depend_on_traffic());
    }

    #[test]
    fn a_secondary_link_helps_while_the_others_carry_more_than_they_shall() {
        let above = 8_000_000;
        let mut links = links(&[rule(Role::Always), rule(Role::Secondary { above })]);
        assert!(links.depend_on_traffic());
        assert_eq!(uses(&links), [Use::Carry, Use::StandBy]);
        for _ in 0..2 {
            links.carry(&[300_000, 0], TICK, TODAY);
        }
        assert_eq!(uses(&links), [Use::Carry, Use::Carry]);
        for _ in 0..100 {
            links.carry(&[150_000, 150_000], TICK, TODAY);
        }
        assert_eq!(
            uses(&links),
            [Use::Carry, Use::Carry],
            "both carry that much"
        );
        for _ in 0..20 {
            links.carry(&[1000], TICK, TODAY);
        }
        assert_eq!(uses(&links), [Use::Carry, Use::StandBy]);
    }

    #[test]
    fn a_link_whose_cap_is_used_up_carries_no_more_or_stands_by() {
        let mut links = links(&[
            capped(Then::Never),
            capped(Then::Backup),
            rule(Role::Always),
        ]);
        links.carry(&[999, 999, 5000], TICK, TODAY);
        assert_eq!(uses(&links), [Use::Carry; 3]);
        links.carry(&[1, 1], TICK, TODAY);
        assert_eq!(uses(&links), [Use::Nothing, Use::StandBy, Use::Carry]);
        let kept: Vec<_> = links.rules().collect();
        let again = Links::new(kept);
        assert_eq!(uses(&again), [Use::Nothing, Use::StandBy, Use::Carry]);
        let december = Day {
            month: 12,
            day: 1,
            ..TODAY
        };
        links.carry(&[0, 0], TICK, december);
        assert_eq!(uses(&links), [Use::Carry; 3]);
    }
}
