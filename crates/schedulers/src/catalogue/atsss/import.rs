//! Steering rules as a 3GPP network encodes them (TS 29.244), made into our terms.

use anabranch_proto::spec::Spec;

/// A rule for two accesses: the 3GPP one and the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SteeringRule {
    /// Steering mode: 0 active-standby, 1 smallest delay, 2 load balancing, 3 priority-based.
    pub mode: u8,
    /// The 3GPP access, then the other one.
    pub accesses: [SteeringAccess; 2],
    /// Whether the sender may choose the shares of load balancing.
    pub autonomous: bool,
    /// Whether the shares of load balancing follow the terminal's internal state.
    pub assistance: bool,
}

/// What a rule says of one access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SteeringAccess {
    /// Share of load balancing, in percent.
    pub weight: u8,
    /// The access's priority: 0 active, 1 standby, 2 no standby, 3 high, 4 low.
    pub priority: u8,
}

/// A rule in our terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// The scheduler.
    pub scheduler: Spec,
    /// The priority of the path over each access; `None` where none may be opened, not even if the
    /// other access fails.
    pub priorities: [Option<i32>; 2],
    /// The weight of the path over each access.
    pub weights: [u32; 2],
}

/// Why a rule cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SteeringError {
    /// The mode is not one of TS 29.244.
    #[error("there is no steering mode {0}")]
    UnknownMode(u8),
    /// The priority is not one of TS 29.244, or does not fit the mode.
    #[error("priority {0} does not fit the steering mode")]
    UnknownPriority(u8),
    /// Both flags are set.
    #[error("shares cannot be both autonomous and assisted by the terminal")]
    BothFlags,
    /// The shares are not parts of a hundred.
    #[error("the shares add up to {0} and not to 100")]
    BadShares(u16),
}

impl SteeringRule {
    /// The rule in our terms.
    ///
    /// # Errors
    /// [`SteeringError`] if the rule contradicts TS 29.244.
    pub fn import(self) -> Result<Steering, SteeringError> {
        if self.autonomous && self.assistance {
            return Err(SteeringError::BothFlags);
        }
        let (mode, priorities) = match self.mode {
            0 => ("active-standby", self.roles([0, 1, 2])?),
            1 => ("smallest-delay", [Some(0); 2]),
            2 => return self.load_balancing(),
            3 => ("priority-based", self.roles([3, 4, 4])?),
            mode => return Err(SteeringError::UnknownMode(mode)),
        };
        Ok(steering(mode, priorities, [1, 1]))
    }

    /// Priorities of the accesses, whose codes are (first, second, shut).
    fn roles(self, codes: [u8; 3]) -> Result<[Option<i32>; 2], SteeringError> {
        let [first, second, shut] = codes;
        let role = |access: SteeringAccess| match access.priority {
            code if code == first => Ok(Some(1)),
            code if code == second => Ok(Some(0)),
            code if code == shut => Ok(None),
            code => Err(SteeringError::UnknownPriority(code)),
        };
        Ok([role(self.accesses[0])?, role(self.accesses[1])?])
    }

    fn load_balancing(self) -> Result<Steering, SteeringError> {
        let equal = [Some(0); 2];
        if self.autonomous || self.assistance {
            return Ok(steering("load-balancing,autonomous=true", equal, [1, 1]));
        }
        let weights = self.accesses.map(|access| u16::from(access.weight));
        match weights {
            [100, 0] => Ok(steering("active-standby", [Some(1), Some(0)], [1, 1])),
            [0, 100] => Ok(steering("active-standby", [Some(0), Some(1)], [1, 1])),
            [a, b] if a + b == 100 => Ok(steering("load-balancing", equal, weights.map(u32::from))),
            [a, b] => Err(SteeringError::BadShares(a + b)),
        }
    }
}

fn steering(mode: &str, priorities: [Option<i32>; 2], weights: [u32; 2]) -> Steering {
    let text = format!("atsss:mode={mode}");
    Steering {
        scheduler: text.parse().expect("a specification of ours"),
        priorities,
        weights,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::built;

    fn rule(mode: u8, priorities: [u8; 2], weights: [u8; 2]) -> SteeringRule {
        let access = |at: usize| SteeringAccess {
            weight: weights[at],
            priority: priorities[at],
        };
        SteeringRule {
            mode,
            accesses: [access(0), access(1)],
            ..SteeringRule::default()
        }
    }

    #[test]
    fn every_mode_of_the_network_becomes_a_scheduler() {
        let modes = [
            (
                rule(0, [1, 0], [0, 0]),
                "active-standby",
                [Some(0), Some(1)],
                [1, 1],
            ),
            (
                rule(1, [0, 0], [0, 0]),
                "smallest-delay",
                [Some(0), Some(0)],
                [1, 1],
            ),
            (
                rule(2, [0, 0], [80, 20]),
                "load-balancing",
                [Some(0), Some(0)],
                [80, 20],
            ),
            (
                rule(2, [0, 0], [100, 0]),
                "active-standby",
                [Some(1), Some(0)],
                [1, 1],
            ),
            (
                rule(3, [3, 4], [0, 0]),
                "priority-based",
                [Some(1), Some(0)],
                [1, 1],
            ),
        ];
        for (rule, mode, priorities, weights) in modes {
            let steering = rule.import().unwrap();
            assert_eq!(steering.scheduler.to_string(), format!("atsss:mode={mode}"));
            assert_eq!(
                (steering.priorities, steering.weights),
                (priorities, weights)
            );
            built(&steering.scheduler.to_string());
        }
        let autonomous = SteeringRule {
            autonomous: true,
            ..rule(2, [0, 0], [0, 0])
        };
        let text = autonomous.import().unwrap().scheduler.to_string();
        assert_eq!(text, "atsss:mode=load-balancing,autonomous=true");
        built(&text);
    }

    #[test]
    fn no_standby_means_never() {
        let steering = rule(0, [0, 2], [0, 0]).import().unwrap();
        assert_eq!(steering.priorities, [Some(1), None]);
    }

    #[test]
    fn contradictions_are_refused() {
        assert_eq!(
            rule(7, [0, 0], [0, 0]).import(),
            Err(SteeringError::UnknownMode(7))
        );
        assert_eq!(
            rule(0, [0, 4], [0, 0]).import(),
            Err(SteeringError::UnknownPriority(4))
        );
        assert_eq!(
            rule(3, [3, 1], [0, 0]).import(),
            Err(SteeringError::UnknownPriority(1))
        );
        assert_eq!(
            rule(2, [0, 0], [80, 30]).import(),
            Err(SteeringError::BadShares(110))
        );
        let both = SteeringRule {
            autonomous: true,
            assistance: true,
            ..rule(2, [0, 0], [50, 50])
        };
        assert_eq!(both.import(), Err(SteeringError::BothFlags));
    }
}
