//! A path whose far end moves, and what proofs and their absence change (RFC 9000, section 9).

use super::liveness::{Verdict, Verdicts};
use super::route::Route;
use super::state::Path;
use crate::datagram::Tuple;
use crate::rng::Rng;
use crate::time::Instant;

/// What a `PATH_RESPONSE` proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Response {
    /// Nothing new, or not enough yet.
    Useless,
    /// The far end of the path's route; `moved` tells that the route before is given up for it.
    Proven { moved: bool },
}

/// What becomes of a path whose far end did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The path is back on the route it came from.
    Returned(Tuple),
    /// No route is left to go back to.
    Lost,
}

impl Path {
    /// Whether `tuple` is where the path came from.
    pub(crate) fn is_return(&self, tuple: Tuple) -> bool {
        let previous = self.previous.as_ref();
        previous.is_some_and(|old| old.tuple == tuple)
    }

    /// Whether the path may follow its peer to `tuple`; counts the move if so.
    pub(crate) fn may_follow(&mut self, now: Instant, tuple: Tuple) -> bool {
        self.is_return(tuple) || self.moves.take(now)
    }

    /// The generation of the next route.
    pub(crate) fn next_generation(&self) -> u32 {
        let kept = self.previous.as_ref().map_or(0, |old| old.generation);
        self.route.generation.max(kept) + 1
    }

    /// Moves the path to `fresh`, or back to the route before it. Returns whether the old route may
    /// come back; `None` if there is no route.
    pub(crate) fn move_to(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        fresh: Option<Route>,
        use_ecn: bool,
    ) -> Option<bool> {
        let previous = self.previous.take().map(|route| *route);
        let (next, kept) = match fresh {
            Some(fresh) => (fresh, previous),
            None => (previous?, None),
        };
        let mut old = self.exchange_route(next, use_ecn);
        if !self.route.validated {
            let pto = old.rtt.pto_base();
            self.route.validate_after(now, rng, pto);
        }
        let may_return = old.validated;
        self.previous = if may_return {
            // The old address is asked too: if it still answers, the move was somebody else's doing
            // (RFC 9000, section 9.3.3).
            old.validate(now, rng);
            Some(Box::new(old))
        } else {
            kept.map(|kept| Box::new(kept.with_measured(old)))
        };
        Some(may_return)
    }

    /// Makes `next` the current route and returns the old one. If only the peer's port differs,
    /// what was measured is kept (RFC 9000, section 9.4).
    fn exchange_route(&mut self, mut next: Route, use_ecn: bool) -> Route {
        self.version += 1;
        if next.tuple.differs_by_port(&self.route.tuple) {
            self.route.swap_far_end(&mut next);
        } else {
            next.ecn = self.route.ecn.after_move(use_ecn);
            std::mem::swap(&mut self.route, &mut next);
        }
        next
    }

    /// A `PATH_RESPONSE` came.
    pub(crate) fn on_response(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        data: [u8; 8],
        is_client: bool,
    ) -> Response {
        let route = &mut self.route;
        let validation = route.validation.as_mut();
        let Some(rtt) = validation.and_then(|it| it.on_response(data, now)) else {
            self.on_response_of_previous(now, data);
            return Response::Useless;
        };
        route.amplification.set_validated();
        let proven = route.validation.take();
        if proven.is_some_and(|validation| validation.needs_size_check()) {
            // The address is proven, but not yet that full-size packets pass.
            route.validate(now, rng);
            return Response::Useless;
        }
        route.set_validated();
        self.version += 1;
        if !route.rtt.has_sample() {
            route.rtt.seed(rtt);
            route.update_pacing(now);
        }
        let moved = self.previous.take().is_some();
        // Proof alone does not move a server (RFC 9000, section 9.3): something else must follow,
        // whether there is data or not.
        if moved && is_client {
            self.liveness.request_ping();
        }
        Response::Proven { moved }
    }

    /// The old address answers; the new one is still being asked.
    fn on_response_of_previous(&mut self, now: Instant, data: [u8; 8]) {
        let Some(route) = &mut self.previous else {
            return;
        };
        let validation = route.validation.as_mut();
        if validation
            .and_then(|it| it.on_response(data, now))
            .is_some()
        {
            route.validation = None;
        }
    }

    /// Gives up on routes that did not answer in time; `others` tells that other paths are open.
    pub(super) fn on_validation_timeout(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        others: bool,
        use_ecn: bool,
    ) -> Option<Failed> {
        let failed = |route: &Route| route.validation.as_ref().is_some_and(|v| v.failed(now));
        if let Some(previous) = self.previous.as_mut().filter(|previous| failed(previous)) {
            // It was valid once, and is the one to return to should the new one fail as well
            // (RFC 9000, section 9.3.2).
            previous.validation = None;
        }
        if !failed(&self.route) {
            return None;
        }
        if self.liveness.is_asked() && self.route.validated {
            // Nothing is acknowledged anywhere: this path may well be the first to come back. Where
            // there is no other any more, nobody needs to know.
            self.route.validation = None;
            if others {
                self.route.validate(now, rng);
            } else {
                self.liveness.end_inquiry();
            }
            return None;
        }
        match self.previous.take() {
            Some(previous) if previous.validated => {
                self.exchange_route(*previous, use_ecn);
                self.route.validation = None;
                Some(Failed::Returned(self.route.tuple))
            }
            _ => Some(Failed::Lost),
        }
    }

    /// All paths are asked whether they answer: challenges the far end for it.
    pub(crate) fn ask(&mut self, now: Instant, rng: &mut Rng) {
        let route = &mut self.route;
        if self
            .liveness
            .ask(route.validated && route.validation.is_none())
        {
            route.validate(now, rng);
        }
    }

    /// Nobody has to be asked any more which path is to blame.
    pub(crate) fn end_inquiry(&mut self) {
        if self.liveness.end_inquiry() && self.route.validated {
            self.route.validation = None;
        }
    }

    /// A challenge was answered, and the far end is proven.
    pub(crate) fn on_proven(&mut self, now: Instant) -> Verdicts {
        let verdicts = self.liveness.on_responded(now);
        for verdict in &verdicts {
            self.obey(now, *verdict);
        }
        verdicts
    }

    /// Another path responded to the inquiry.
    pub(crate) fn on_other_responded(&mut self, now: Instant) -> Option<Verdict> {
        let validated = self.route.validated;
        let verdict = self.liveness.on_other_responded(now, validated)?;
        Some(self.obey(now, verdict))
    }
}
