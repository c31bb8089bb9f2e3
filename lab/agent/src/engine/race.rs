//! On which path a client begins if its paths race: on the one whose handshake is over first, as
//! clients on real links do.

use super::Host;
use anabranch_lab::hosts::Carrier;
use anabranch_net::engine::ClientConfig;
use anabranch_net::manager::race;
use anabranch_net::{Connection, PathsConfig};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

/// How long after its handshake a server waits for an attempt to be given up: the client does that
/// at once when another one was faster.
const GIVEN_UP: Duration = Duration::from_millis(2);

impl Host {
    /// Whether the scenario asks for it. A stripe has a connection for each path anyway.
    fn races(&self) -> bool {
        let asked = match &self.job.carrier {
            Carrier::Anabranch { settings, .. } => settings.race == Some(true),
            _ => false,
        };
        asked && self.stripe.is_none()
    }

    /// Connects on the first path, or in a race on all that are there from the beginning, staggered
    /// as the product's clients do it; returns the index of the path whose handshake is over.
    pub(super) async fn begin(
        &self,
        remotes: &[SocketAddr],
        config: &ClientConfig,
    ) -> Result<(usize, Connection), String> {
        let paths = &self.job.paths;
        let is_spare = |index: &usize| paths[*index].usage.backup;
        let mut order: Vec<usize> = (0..paths.len())
            .filter(|index| *index == 0 || self.races() && paths[*index].opens.is_zero())
            .collect();
        order.sort_by_key(is_spare);
        let times = PathsConfig::default();
        let pause = |position: usize| match order.get(position) {
            Some(index) if !is_spare(index) => times.spread,
            _ => times.stagger,
        };
        let attempts = race(&order, pause, |index| {
            self.connect(index, remotes[index], config)
        });
        let won = attempts.await;
        let (position, connection) = won.map_err(|failed| {
            let named = failed.into_iter().map(|(_, error)| error);
            named.collect::<Vec<_>>().join("; ")
        })?;
        Ok((order[position], connection))
    }

    /// The next connection of the client that it does not give up at once.
    pub(super) async fn next_kept(&self) -> Option<Connection> {
        loop {
            let connection = self.endpoint.accept().await?;
            let is_given_up = self.races() && timeout(GIVEN_UP, connection.closed()).await.is_ok();
            if !is_given_up {
                return Some(connection);
            }
        }
    }
}
