//! Two hosts joined by two links: where something has to happen in the middle of a transfer.
//!
//! A link with a rate makes a transfer last however quick the machine is, so that what is ordered
//! after a quarter of it has taken effect long before its end. It also bounds what is under way, by
//! the rate and the queue, and with it what a path that falls into doubt costs.

use super::case::NOT_RUN;
use anabranch_testbed::{Direction, Error, LinkId, LinkSpec, Node, Rate, Relay, Testbed};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where the server listens: one address, to which every link leads.
pub(crate) const SERVER: SocketAddr = SocketAddr::new(SERVER_HOST, 4433);
const SERVER_HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9));
/// The client's address on each link.
pub(crate) const CLIENT: [&str; 2] = ["10.1.0.1", "10.2.0.1"];
/// The server's end of each link.
const FAR: [&str; 2] = ["10.1.0.2", "10.2.0.2"];

/// Of each link: 20 MB over both take 1.6 s. What is ordered after a quarter of that has a second
/// and more to take effect; picoquic says 750 ms later that it has forgotten an abandoned path.
pub(crate) const RATE: Rate = Rate::mbit(50);
/// How long a packet may wait for a link. Short: its bytes are sent again when a path is doubted.
const QUEUE: Duration = Duration::from_millis(20);

/// Both hosts; gone when dropped.
#[derive(Debug)]
pub(crate) struct Links {
    bed: Testbed,
    client: Node,
    server: Node,
    ids: Vec<LinkId>,
}

impl Links {
    /// Makes them, with a rate for each link or as quick as the machine. Where no namespaces can be
    /// made, nothing is found out about the peer.
    pub(crate) fn new(rate: Option<Rate>) -> Result<Self, String> {
        let bed = Testbed::new("interop").map_err(|e| format!("{NOT_RUN}{e}"))?;
        Self::join(bed, rate).map_err(|e| e.to_string())
    }

    fn join(mut bed: Testbed, rate: Option<Rate>) -> Result<Self, Error> {
        let (client, server) = (bed.node("client")?, bed.node("server")?);
        let mut ids = Vec::new();
        for (near, far) in CLIENT.iter().zip(FAR) {
            let [near, far] = [near, far].map(|host| format!("{host}/24"));
            let mut spec = LinkSpec::new(near.parse()?, far.parse()?).latency(QUEUE);
            if let Some(rate) = rate {
                spec = spec.rate(rate);
            }
            ids.push(bed.link(&client, &server, &spec)?);
        }
        server.ip(&[format!("address add {SERVER_HOST}/32 dev lo")])?;
        let joined = Self {
            bed,
            client,
            server,
            ids,
        };
        for (at, near) in CLIENT.iter().enumerate() {
            // What has an address of this link goes over this link.
            let table = table(at);
            let rule = format!("rule add from {near} lookup {table}");
            joined.client.ip(&[rule])?;
            joined.add_routes(at)?;
        }
        Ok(joined)
    }

    /// A link's routes to the server, which go with its carrier.
    fn add_routes(&self, at: usize) -> Result<(), Error> {
        let way = format!("{SERVER_HOST}/32 via {} dev path{at}", FAR[at]);
        let table = table(at);
        self.client.ip(&[
            format!("route replace {way} metric {table}"),
            format!("route replace {way} table {table}"),
        ])?;
        Ok(())
    }

    /// A program on the client's host.
    pub(crate) fn on_client(&self, program: &Path) -> Command {
        self.client.command(&program.display().to_string())
    }

    /// A program on the server's host.
    pub(crate) fn on_server(&self, program: &Path) -> Command {
        self.server.command(&program.display().to_string())
    }

    /// A relay before the server, on its host.
    pub(crate) fn relay(&self) -> Result<Relay, String> {
        let listen = SocketAddr::new(SERVER_HOST, 0);
        let started = self.server.enter(|| Relay::start(listen, SERVER));
        started
            .map_err(|e| e.to_string())?
            .map_err(|e| e.to_string())
    }

    /// Takes a link's interfaces down, or up again with its routes.
    pub(crate) fn set_up(&mut self, at: usize, up: bool) -> Result<(), String> {
        let mut set = || {
            self.bed.set_up(self.ids[at], up)?;
            if up { self.add_routes(at) } else { Ok(()) }
        };
        set().map_err(|e: Error| e.to_string())
    }

    /// Changes the rate of both links.
    pub(crate) fn set_rate(&mut self, rate: Option<Rate>) -> Result<(), String> {
        let set = |&link| self.bed.set_rate(link, Direction::Both, rate);
        self.ids.iter().try_for_each(set).map_err(|e| e.to_string())
    }
}

/// A link's table of routes; also how late its route comes among those of all.
fn table(at: usize) -> usize {
    101 + at
}
