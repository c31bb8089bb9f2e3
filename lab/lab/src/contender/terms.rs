//! What a program has to know of a run, whichever machine it is on.

use super::Place;
use crate::scenario::{FlowKind, Scenario, Way};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// The values of all placeholders except the folder, which is local to a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The ends of the paths, in order: the client's address and the server's.
    pub pairs: Vec<(IpAddr, IpAddr)>,
    /// The interfaces of the program's host.
    pub interfaces: Vec<String>,
    /// The server's port.
    pub port: u16,
    /// Bytes to move; 0 if a time is given.
    pub bytes: u64,
    /// How long to send; zero if bytes are given.
    pub time: Duration,
    /// The direction.
    pub way: Way,
    /// The repetition's seed.
    pub seed: u64,
}

impl Terms {
    /// The terms of the first flow of a scenario.
    pub fn of(
        scenario: &Scenario,
        pairs: Vec<(IpAddr, IpAddr)>,
        interfaces: Vec<String>,
        port: u16,
        seed: u64,
    ) -> Self {
        let flow = &scenario.flows[0];
        let (bytes, time) = match flow.kind {
            FlowKind::BulkBytes(bytes) => (bytes, Duration::ZERO),
            FlowKind::BulkTime(time) => (0, time),
            _ => (0, Duration::ZERO),
        };
        Self {
            pairs,
            interfaces,
            port,
            bytes,
            time,
            way: flow.way,
            seed,
        }
    }

    /// The value of a placeholder; `folder` is the one that both programs see.
    pub fn filled(&self, place: Place, folder: &Path) -> String {
        let list = |of: &dyn Fn(&(IpAddr, IpAddr)) -> String| {
            let all: Vec<String> = self.pairs.iter().map(of).collect();
            all.join(",")
        };
        let first = |of: &dyn Fn(&(IpAddr, IpAddr)) -> String| {
            self.pairs.first().map(of).unwrap_or_default()
        };
        let client = |pair: &(IpAddr, IpAddr)| pair.0.to_string();
        let server = |pair: &(IpAddr, IpAddr)| pair.1.to_string();
        match place {
            Place::Server => first(&server),
            Place::Client => first(&client),
            Place::Servers => list(&server),
            Place::Clients => list(&client),
            Place::Pairs => list(&|(client, server)| format!("{client}={server}")),
            Place::Interfaces => self.interfaces.join(","),
            Place::Port => self.port.to_string(),
            Place::Bytes => self.bytes.to_string(),
            Place::Seconds => self.time.as_secs_f64().to_string(),
            Place::Direction => match self.way {
                Way::Forward => "upload".to_owned(),
                Way::Backward => "download".to_owned(),
            },
            Place::Seed => self.seed.to_string(),
            Place::Folder => folder.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        Terms {
            pairs: Vec::new(),
            interfaces: Vec::new(),
            port: 7,
            bytes: 0,
            time: Duration::from_millis(2500),
            way: Way::Forward,
            seed: 1,
        }
    }

    #[test]
    fn seconds_are_filled_in_as_a_number() {
        let filled = |terms: &Terms| terms.filled(Place::Seconds, Path::new("/"));
        assert_eq!(filled(&terms()), "2.5");
        let bytes = Terms {
            time: Duration::ZERO,
            ..terms()
        };
        assert_eq!(filled(&bytes), "0");
    }

    #[test]
    fn a_time_that_is_no_number_does_not_reach_a_command() {
        let told = serde_json::to_value(terms()).unwrap();
        assert!(serde_json::from_value::<Terms>(told.clone()).is_ok());
        for time in ["1; reboot", "--help", "10"] {
            let mut told = told.clone();
            told["time"] = time.into();
            assert!(serde_json::from_value::<Terms>(told).is_err(), "{time}");
        }
    }
}
