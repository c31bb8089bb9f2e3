//! What paths have to know of each other.

use super::{Manager, Slot};
use crate::congestion::{Bottlenecks, Member};
use crate::path::liveness::{Rest, Surroundings};
use crate::path::state::{Path, TimedOut};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use anabranch_wire::PathId;

/// The open paths, counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Census {
    /// Those that neither side gave up.
    pub(crate) open: usize,
    /// Those of them that answer.
    pub(crate) healthy: usize,
}

/// What of the connection concerns each path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Common {
    pub(crate) census: Census,
    /// When stream data came last, if several paths are open and what came waits behind a gap.
    pub(crate) last_data: Option<Instant>,
    /// The handshake is confirmed.
    pub(crate) confirmed: bool,
    /// How long a path may rest before it is asked, unless its options say otherwise.
    pub(crate) keep_alive: Rest,
    /// How long any path may: longer, and the connection might end meanwhile.
    pub(crate) longest_rest: Option<Duration>,
    /// How long a path may be doubted before it is given up.
    pub(crate) idle_timeout: Duration,
}

impl Manager {
    /// Counts the open paths.
    pub(crate) fn census(&self) -> Census {
        let mut census = Census::default();
        for path in self.open().filter_map(Slot::open) {
            census.open += 1;
            census.healthy += usize::from(path.is_healthy());
        }
        census
    }

    /// Whether another path than `id` answers.
    pub(crate) fn has_other_healthy(&self, id: PathId) -> bool {
        self.healthy().any(|path| path.id() != id)
    }

    fn healthy(&self) -> impl Iterator<Item = &Path> {
        let open = self.open().filter_map(Slot::open);
        open.filter(|path| path.is_healthy())
    }

    /// What an open path has to know about the rest of the connection.
    pub(crate) fn surroundings(&self, path: &Path, common: &Common) -> Surroundings {
        let liveness = path.liveness();
        // Data waits in vain for what should have come before it, and may come elsewhere.
        let starves = common.last_data.is_some();
        let doubted = liveness.doubted_since().filter(|_| starves);
        let answering = |doubt| {
            let healthy = self.healthy();
            let since = healthy.filter_map(|path| path.liveness().answers_since(doubt));
            since.min()
        };
        let responses = || self.healthy().filter_map(|it| it.liveness().responded_at());
        Surroundings {
            others_answer: common.census.healthy > usize::from(path.is_healthy()),
            several: common.census.open > 1,
            last_data: common.last_data,
            answering_since: doubted.and_then(answering),
            first_response: liveness.is_asked().then(|| responses().min()).flatten(),
            confirmed: common.confirmed,
            keep_alive: path.rest(common),
            idle_timeout: common.idle_timeout,
        }
    }

    /// Time has passed for an open path, which is looked up once for all that may come of it.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        id: PathId,
        common: &Common,
        max_ack_delay: Duration,
        use_ecn: bool,
    ) -> Option<TimedOut> {
        let at = self.index(id)?;
        let around = self.surroundings(self.slots[at].open()?, common);
        let path = self.slots[at].open_mut()?;
        Some(path.on_timeout(now, rng, max_ack_delay, &around, use_ecn))
    }

    /// Fills `members` with what a coupled controller of the path `target` may look at: nothing if
    /// its controller looks at none.
    pub(crate) fn members(
        &self,
        target: PathId,
        bottlenecks: &Bottlenecks,
        members: &mut Vec<Member>,
    ) {
        members.clear();
        let asks = |path: &Path| path.route().controller.is_coupled();
        if !self.path(target).is_some_and(asks) {
            return;
        }
        let own = self.open_path(target);
        let open = self.open().filter_map(Slot::open);
        members.extend(open.map(|path| Member {
            is_self: path.id() == target,
            shares_bottleneck: own.is_some_and(|own| share(own, path, bottlenecks)),
            ..path.member()
        }));
    }
}

/// Whether two paths share a bottleneck: as measured, or else assumed if they have an end in
/// common.
fn share(path: &Path, other: &Path, bottlenecks: &Bottlenecks) -> bool {
    let (one, two) = (path.route().tuple(), other.route().tuple());
    let has_common_end = || one.socket == two.socket || one.remote.ip() == two.remote.ip();
    let measured = bottlenecks.shares(path.id(), other.id());
    measured.unwrap_or_else(has_common_end)
}
