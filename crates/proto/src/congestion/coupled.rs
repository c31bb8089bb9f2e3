//! What coupled controllers have in common: which paths count, and growth that depends on them.
//!
//! A coupled controller is a [`Policy`] in a [`Linked`] window. Alone it is plain NewReno, whatever
//! the policy; slow start, recovery periods and undone reductions are NewReno's in any case. The
//! formulas of the literature count in packets per acknowledged packet; in bytes they keep their
//! form if growth is multiplied by the datagram size.

use super::new_reno::LOSS_REDUCTION_FACTOR;
use super::window::{InitialWindow, LossBased, Window, minimum_window};
use super::{AckEvent, CongestionEvent, ControllerInit, Member};
use crate::spec::{ParamDoc, Params, SpecError};
use smallvec::SmallVec;
use std::fmt::Debug;

/// The parameters of every coupled controller that has none of its own.
pub(super) const PARAMS: &[ParamDoc] = &[Scope::DOC, InitialWindow::DOC];

/// Which paths are coupled, by the operator's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Scope {
    /// Paths known or assumed to share a bottleneck (RFC 8382).
    #[default]
    Auto,
    All,
    None,
}

impl Scope {
    pub(super) const DOC: ParamDoc = ParamDoc {
        key: "coupling",
        default: "auto",
        summary: "which paths are coupled: those that share a bottleneck (auto), all, or none",
    };

    pub(super) fn take(params: &mut Params) -> Result<Self, SpecError> {
        let words = [
            ("auto", Self::Auto),
            ("all", Self::All),
            ("none", Self::None),
        ];
        params.choice(Self::DOC.key, Self::default(), &words)
    }

    /// The paths that count: coupled, with an RTT, and with data to send or the one in question.
    /// `None` if there is nothing to couple with.
    pub(super) fn of(self, group: &[Member]) -> Option<Coupled> {
        let counts = |member: &&Member| {
            let coupled = match self {
                Self::Auto => member.shares_bottleneck,
                Self::All => true,
                Self::None => false,
            };
            let in_use = member.window > 0 && !member.smoothed_rtt.is_zero();
            in_use && (member.is_self || coupled && member.active)
        };
        let shares = group.iter().filter(counts).map(Share::of);
        let shares: SmallVec<[Share; 8]> = shares.collect();
        let own = shares.iter().position(|share| share.is_self)?;
        (shares.len() > 1).then_some(Coupled { shares, own })
    }
}

/// One coupled path, in the units of the formulas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    is_self: bool,
    /// Bytes.
    pub(super) window: f64,
    /// Seconds.
    pub(super) rtt: f64,
    /// Bytes; `None` before the first reduction.
    pub(super) ssthresh: Option<f64>,
    /// Bytes.
    pub(super) between_losses: f64,
}

impl Share {
    fn of(member: &Member) -> Self {
        Self {
            is_self: member.is_self,
            window: member.window as f64,
            rtt: member.smoothed_rtt.as_secs_f64(),
            ssthresh: (member.ssthresh < u64::MAX).then_some(member.ssthresh as f64),
            between_losses: member.bytes_between_losses as f64,
        }
    }

    /// Bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.window / self.rtt
    }
}

/// Two or more paths that are coupled, the one in question among them.
#[derive(Debug, Clone)]
pub(super) struct Coupled {
    pub(super) shares: SmallVec<[Share; 8]>,
    own: usize,
}

impl Coupled {
    /// The path in question.
    pub(super) fn own(&self) -> &Share {
        &self.shares[self.own]
    }

    /// The sum of something over all paths.
    pub(super) fn sum(&self, of: impl Fn(&Share) -> f64) -> f64 {
        self.shares.iter().map(of).sum()
    }

    /// The largest of something over all paths.
    pub(super) fn largest(&self, of: impl Fn(&Share) -> f64) -> f64 {
        self.shares.iter().map(of).fold(0.0, f64::max)
    }
}

/// How the windows of coupled paths depend on each other.
pub(super) trait Policy: Debug + Send {
    /// What an acknowledged byte adds to the window in congestion avoidance, in bytes; negative if
    /// it takes away. Alone it is `mds` over the window.
    fn growth(&self, paths: &Coupled, mds: f64) -> f64;

    /// What an acknowledged byte adds in slow start, in bytes.
    fn slow_start(&self, _paths: &Coupled) -> f64 {
        1.0
    }

    /// The window after a loss, in bytes.
    fn after_loss(&self, _paths: &Coupled, window: f64, _mds: f64) -> f64 {
        window * LOSS_REDUCTION_FACTOR
    }
}

/// A window that grows and shrinks as its policy says.
#[derive(Debug)]
pub(super) struct Linked<P> {
    pub(super) window: Window,
    scope: Scope,
    policy: P,
    /// Bytes of growth below one.
    pub(super) fraction: f64,
}

impl<P: Policy> Linked<P> {
    /// A controller in slow start, with the parameters of [`PARAMS`].
    pub(super) fn build(
        policy: P,
        params: &mut Params,
        init: &ControllerInit,
    ) -> Result<Self, SpecError> {
        Ok(Self {
            scope: Scope::take(params)?,
            window: Window::build(params, init)?,
            policy,
            fraction: 0.0,
        })
    }

    /// Adds to the window, but takes away no more than a datagram.
    fn add(&mut self, bytes: f64) {
        let mds = self.window.mds as f64;
        let sum = self.fraction + bytes.max(-mds);
        let whole = sum.floor();
        self.fraction = sum - whole;
        let size = self.window.size.saturating_add_signed(whole as i64);
        self.window.size = size.max(minimum_window(self.window.mds).min(self.window.size));
    }

    /// Grows in slow start and returns the bytes left for congestion avoidance.
    fn slow_start(&mut self, acked: u64, paths: Option<&Coupled>) -> u64 {
        let share = paths.map_or(1.0, |paths| self.policy.slow_start(paths));
        if !self.window.in_slow_start() || share >= 1.0 {
            return self.window.slow_start(acked);
        }
        let offered = acked as f64 * share + self.fraction;
        self.fraction = offered.fract();
        let rest = self.window.slow_start(offered as u64);
        (rest as f64 / share.max(f64::EPSILON)) as u64
    }
}

impl<P: Policy> LossBased for Linked<P> {
    fn base(&self) -> &Window {
        &self.window
    }

    fn base_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, event: &AckEvent, group: &[Member]) {
        let counted = self.window.on_ack(event);
        if counted == 0 {
            return;
        }
        let paths = self.scope.of(group);
        let rest = self.slow_start(counted, paths.as_ref()).min(counted);
        match paths {
            _ if rest == 0 => {}
            None => self.window.avoid_congestion(rest),
            Some(paths) => {
                let growth = self.policy.growth(&paths, self.window.mds as f64);
                self.add(growth * rest as f64);
            }
        }
    }

    fn shrink(&mut self, event: &CongestionEvent, group: &[Member]) {
        let (window, mds) = (self.window.size as f64, self.window.mds as f64);
        let target = match self.scope.of(group) {
            Some(paths) => self.policy.after_loss(&paths, window, mds),
            None => window * LOSS_REDUCTION_FACTOR,
        };
        if self.window.reduce_to(event, target.min(window)).is_some() {
            self.fraction = 0.0;
        }
    }

    fn start_over(&mut self) {
        self.fraction = 0.0;
    }
}
