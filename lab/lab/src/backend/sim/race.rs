//! Which path a client begins on, if its paths race.
//!
//! Clients on real links try all paths at the same time and keep the connection whose handshake is
//! over first. Each attempt is run here in a world of its own, with the run's seed, up to the end
//! of its handshake; the run then begins with the winner. What the losers would have sent is left
//! out.

use super::Sim;
use super::network::Built;
use crate::plan::Run;
use crate::results::Outcome;
use crate::scenario::{Kind, Profile, Scenario};
use anabranch_proto::time::Instant;
use anabranch_sim::World;
use anabranch_sim::quic::{QuicHost, Session};

impl Sim {
    /// The scenario with the winner as the first of the client's paths, if it has a race.
    pub(super) fn race(&self, run: &Run) -> Result<Option<Scenario>, Box<Outcome>> {
        let transport = &run.scenario.transport;
        let races = transport.kind == Kind::Anabranch
            && transport.profile != Profile::Stripe
            && transport.settings.race == Some(true);
        if !races || transport.paths.len() < 2 {
            return Ok(None);
        }
        let mut best: Option<(Instant, Scenario)> = None;
        for first in &transport.paths {
            let mut scenario = (*run.scenario).clone();
            scenario.transport.paths.retain(|path| path != first);
            scenario.transport.paths.insert(0, *first);
            let before = best.as_ref().map(|(over, _)| *over);
            if let Some(over) = self.attempt(&scenario, run.seed, before)? {
                best = Some((over, scenario));
            }
        }
        // If no handshake ends, the run times out on the first path.
        Ok(best.map(|(_, scenario)| scenario))
    }

    /// When the handshake on the first path is over, if it is before `limit`.
    fn attempt(
        &self,
        scenario: &Scenario,
        seed: u64,
        limit: Option<Instant>,
    ) -> Result<Option<Instant>, Box<Outcome>> {
        let stop = Instant::ZERO + scenario.stop;
        let limit = limit.map_or(stop, |limit| limit.min(stop));
        let mut built = Built::of(scenario, seed);
        let mut engine = self.contest(&mut built, None)?;
        let client = engine.client(&built);
        let established = |world: &World| {
            let host = world.process::<QuicHost>(client);
            host.sessions().first().and_then(Session::established)
        };
        let going = |world: &World| world.now() < limit && established(world).is_none();
        engine.recorder.run_while(&mut built.world, limit, going);
        Ok(established(&built.world).filter(|over| *over < limit))
    }
}
