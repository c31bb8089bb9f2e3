//! Names of targets: looked up, and what may not be connected to left out.

use super::allow::Allow;
use crate::refusal::Refusal;
use anabranch_masque::{Host, Target};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long the resolver may take, and whoever asks it before.
const RESOLVE: Duration = Duration::from_secs(8);

/// Names that are looked up for one client at a time. Each takes a thread until the system's
/// resolver answers, and of threads there are some 500 for all.
const AT_A_TIME: usize = 24;

/// The look-ups of one client.
#[derive(Debug)]
pub(crate) struct Names {
    turns: Arc<Semaphore>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }
}

impl Names {
    /// Where a target is, as far as it may be connected to: at least one address.
    pub(super) async fn addresses(
        &self,
        target: &Target,
        allow: &Allow,
    ) -> Result<Vec<SocketAddr>, Refusal> {
        let found = match &target.host {
            Host::V4(ip) => vec![(*ip, target.port).into()],
            Host::V6(ip) => vec![(*ip, target.port).into()],
            Host::Name(name) => {
                let found = timeout(RESOLVE, self.look_up(name.clone(), target.port));
                found.await.map_err(|_| Refusal::ResolverSilent)??
            }
        };
        let allowed = allow.filter(found).await;
        if allowed.is_empty() {
            return Err(Refusal::Prohibited);
        }
        Ok(allowed)
    }

    async fn look_up(&self, name: String, port: u16) -> Result<Vec<SocketAddr>, Refusal> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| Refusal::Internal)?;
        let found = spawn_blocking(move || {
            // The thread is taken for as long as this lasts, whether somebody still waits or not.
            let _turn = turn;
            let found = (name.as_str(), port).to_socket_addrs();
            found.map(Iterator::collect::<Vec<_>>)
        });
        match found.await {
            Ok(Ok(found)) if !found.is_empty() => Ok(found),
            Ok(_) => Err(Refusal::Unresolvable),
            Err(_) => Err(Refusal::Internal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_looks_up_much_makes_only_itself_wait() {
        let allow = Allow::new(vec!["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]);
        let (busy, other) = (Names::default(), Names::default());
        let turns = Arc::clone(&busy.turns);
        let lookups = turns.acquire_many_owned(AT_A_TIME as u32).await.unwrap();
        let target = "localhost:80".parse().unwrap();
        let refused = busy.addresses(&target, &allow).await;
        assert_eq!(refused, Err(Refusal::ResolverSilent));
        assert!(other.addresses(&target, &allow).await.is_ok());
        drop(lookups);
        assert!(busy.addresses(&target, &allow).await.is_ok());
    }

    #[tokio::test]
    async fn an_address_is_no_name_and_needs_no_turn() {
        let allow = Allow::new(vec!["127.0.0.1".parse().unwrap()]);
        let names = Names::default();
        names.turns.close();
        let found = names
            .addresses(&"127.0.0.1:9".parse().unwrap(), &allow)
            .await;
        assert_eq!(found, Ok(vec!["127.0.0.1:9".parse().unwrap()]));
    }
}
