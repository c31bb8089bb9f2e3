//! What a program has to know of a run, on whichever machine it is.

use super::Place;
use crate::scenario::{FlowKind, Scenario, Way};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::Path;

/// What can be filled in, but for folders, which are those of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The ends of the paths, in their order: the client's address and the server's.
    pub pairs: Vec<(IpAddr, IpAddr)>,
    /// The interfaces of the program's host.
    pub interfaces: Vec<String>,
    /// The server's port.
    pub port: u16,
    /// Bytes to move; 0 if a time is given.
    pub bytes: u64,
    /// Seconds to go on, as text; 0 if bytes are given.
    pub seconds: String,
    /// Which way.
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
        let (bytes, seconds) = match flow.kind {
            FlowKind::BulkBytes(bytes) => (bytes, "0".to_owned()),
            FlowKind::BulkTime(time) => (0, time.as_secs_f64().to_string()),
            _ => (0, "0".to_owned()),
        };
        Self {
            pairs,
            interfaces,
            port,
            bytes,
            seconds,
            way: flow.way,
            seed,
        }
    }

    /// What stands at a place; `folder` is what both programs see.
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
            Place::Seconds => self.seconds.clone(),
            Place::Direction => match self.way {
                Way::Forward => "upload".to_owned(),
                Way::Backward => "download".to_owned(),
            },
            Place::Seed => self.seed.to_string(),
            Place::Folder => folder.display().to_string(),
        }
    }
}
