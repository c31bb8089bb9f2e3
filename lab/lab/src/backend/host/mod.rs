//! Links that exist: this machine is the client, another one is the server, and neither is
//! reconfigured.
//!
//! The rates, delays and losses of a scenario are what its author expects; here links are as they
//! are. What each path carries alone, which every plan measures too, is the base of comparisons.

mod mptcp;
mod programs;
#[cfg(test)]
mod tests;

use super::agents::Agents;
use super::conduct::Attempts;
use super::jobs::{self, End};
use super::notes::Busy;
use super::refusal::{Broken, Refusal};
use super::{Backend, Conduct, Note};
use crate::hosts::{Host, HostError, HostPath, HostReport, Ready, Role, merge};
use crate::plan::Run;
use crate::results::Outcome;
use crate::scenario::{Flow, Kind, Marks, Scenario, Way};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Failed calls in a row after which a campaign ends.
const GIVE_UP: u32 = 2;

/// How long to wait before calling a peer again that could not be reached.
const BREATH: Duration = Duration::from_secs(2);

/// How often a waiting thread checks whether to go on.
const LOOK: Duration = Duration::from_millis(50);

/// The real counterpart of one path of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Road {
    /// The path's name in the scenario.
    pub path: String,
    /// The interface through which it leaves this machine.
    pub interface: String,
    /// This machine's address on it.
    pub local: IpAddr,
    /// The peer's address as seen from here.
    pub remote: IpAddr,
}

/// Reaches both hosts.
pub trait Reach: Debug + Send + Sync {
    /// Starts an agent on this machine.
    ///
    /// # Errors
    /// It cannot be started.
    fn near(&self) -> Result<Box<dyn Host>, HostError>;

    /// Calls the peer's agent.
    ///
    /// # Errors
    /// It does not answer, or the answer is not from this agent.
    fn far(&self) -> Result<Box<dyn Host>, HostError>;
}

/// Runs scenarios over interfaces that exist.
#[derive(Debug)]
pub struct RealHosts {
    reach: Box<dyn Reach>,
    roads: Vec<Road>,
    conduct: Conduct,
    attempts: Attempts,
    stop: Arc<AtomicBool>,
    /// The connection to the peer, kept between runs while nothing goes wrong.
    peer: Mutex<Option<Box<dyn Host>>>,
    calls_in_vain: AtomicU32,
    given_up: Mutex<Option<String>>,
}

impl RealHosts {
    /// A laboratory on real links: `reach` reaches both hosts, `roads` gives the real link of each
    /// path.
    pub fn new(reach: Box<dyn Reach>, roads: Vec<Road>, conduct: Conduct) -> Self {
        Self {
            reach,
            roads,
            conduct,
            attempts: Attempts::default(),
            stop: Arc::default(),
            peer: Mutex::default(),
            calls_in_vain: AtomicU32::new(0),
            given_up: Mutex::default(),
        }
    }

    /// A flag that this backend sets when the peer does not come back and further runs are
    /// pointless.
    #[must_use]
    pub fn stop(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = stop;
        self
    }

    /// Why this backend ended the campaign, if it did: the error of its last call to the peer.
    pub fn why_given_up(&self) -> Option<String> {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.clone()
    }

    fn peer(&self) -> MutexGuard<'_, Option<Box<dyn Host>>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection kept from the run before, or a new call. If the peer does not come back, the
    /// campaign ends; the same command resumes it later.
    fn call(&self) -> Result<Box<dyn Host>, Broken> {
        if let Some(peer) = self.peer().take() {
            return Ok(peer);
        }
        if self.calls_in_vain.load(Ordering::Relaxed) > 0 {
            let until = Instant::now() + BREATH;
            while Instant::now() < until && !self.conduct.is_aborted() {
                thread::sleep(LOOK);
            }
        }
        if self.conduct.is_aborted() {
            return Err(Broken::Off);
        }
        match self.reach.far() {
            Ok(peer) => {
                self.calls_in_vain.store(0, Ordering::Relaxed);
                Ok(peer)
            }
            Err(error) => {
                let calls = self.calls_in_vain.fetch_add(1, Ordering::Relaxed) + 1;
                if calls >= GIVE_UP {
                    let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
                    *given_up = Some(error.to_string());
                    self.stop.store(true, Ordering::Relaxed);
                }
                Err(Refusal::Failed(error.to_string()).into())
            }
        }
    }

    fn carry_out(&self, run: &Run) -> Result<Outcome, Broken> {
        let scenario = &*run.scenario;
        if let Some(what) = refusal(scenario) {
            return Err(Refusal::Unsupported(what).into());
        }
        if scenario.transport.kind == Kind::Command {
            let (before, since) = (Busy::now(), Instant::now());
            let outcome = programs::carry_out(self, run)?;
            let others = Busy::now()
                .zip(before)
                .map(|(now, before)| now.others_since(before, since.elapsed(), 0.0));
            self.note(run, others, |_| {})?;
            return Ok(outcome);
        }
        let jobs = [Role::Client, Role::Server].map(|role| {
            let paths = self.paths(scenario, role)?;
            jobs::job(run, role, paths, self.conduct.qlog.as_deref())
        });
        let [client, server] = jobs;
        let (client, server) = (client?, server?);
        if scenario.transport.kind == Kind::KernelMptcp {
            mptcp::check(&self.used(scenario)?)?;
        }
        let far = self.call()?;
        let near = self
            .reach
            .near()
            .map_err(|error| Refusal::Failed(error.to_string()))?;
        let mut agents = Agents::new(near, far);
        let (before, since) = (Busy::now(), Instant::now());
        let remotes: Vec<IpAddr> = client.paths.iter().map(|path| path.remote).collect();
        let told = match agents.prepare(client, server) {
            Ok(told) => told,
            Err(refusal @ Refusal::Unsupported(_)) => {
                // Nothing is wrong with the peer; it just cannot do this.
                self.keep_peer(agents);
                return Err(refusal.into());
            }
            Err(refusal) => return Err(refusal.into()),
        };
        agents.start(as_seen_from_here(told, &remotes))?;
        let reports = agents.reports(&|| self.conduct.is_aborted(), scenario.stop)?;
        self.keep_peer(agents);
        let [client, server] = &reports;
        let others = Busy::now()
            .zip(before)
            .map(|(now, before)| now.others_since(before, since.elapsed(), used(client)));
        self.note(run, others, |note| note.add_reports([client, server]))?;
        let way = scenario.flows.first().map_or(Way::Forward, |flow| flow.way);
        Ok(merge(scenario, way, client, server, &[]))
    }

    fn keep_peer(&self, agents: Agents) {
        let [_, far] = agents.into_hosts();
        self.keep(far);
    }

    fn keep(&self, far: Box<dyn Host>) {
        *self.peer() = Some(far);
    }

    /// Keeps what is known of a run beyond its outcome.
    fn note(
        &self,
        run: &Run,
        others_cores: Option<f64>,
        add: impl FnOnce(&mut Note),
    ) -> Result<(), Refusal> {
        let mut note = Note {
            run_id: run.id.clone(),
            contender: run.contender.clone(),
            links: "real".to_owned(),
            other_labs: super::notes::other_labs(),
            others_cores,
            ..Note::default()
        };
        add(&mut note);
        self.conduct.keep(&note)
    }

    /// The paths as one end sees them. The server's agent binds to the address it is called at, if
    /// that is one of its own.
    fn paths(&self, scenario: &Scenario, role: Role) -> Result<Vec<HostPath>, Refusal> {
        let roads = self.used(scenario)?;
        let multipath_tcp = scenario.transport.kind == Kind::KernelMptcp;
        let path = |(index, road): (&usize, &Road)| {
            let end = match role {
                Role::Client => End {
                    // A subflow must not inherit another one's interface.
                    interface: (!multipath_tcp).then(|| road.interface.clone()),
                    local: road.local,
                    remote: road.remote,
                },
                Role::Server => End {
                    interface: None,
                    local: road.remote,
                    remote: road.local,
                },
            };
            jobs::path(scenario, *index, end)
        };
        let indices = scenario.transport.paths.iter();
        Ok(indices.zip(roads).map(path).collect())
    }

    /// The real counterparts of the paths in use, in the order of the transport's.
    fn used(&self, scenario: &Scenario) -> Result<Vec<&Road>, Refusal> {
        let road = |index: &usize| {
            let name = &scenario.network.paths[*index].name;
            let road = self.roads.iter().find(|road| road.path == *name);
            road.ok_or_else(|| {
                Refusal::Failed(format!("path `{name}`: nobody said where it leads"))
            })
        };
        scenario.transport.paths.iter().map(road).collect()
    }
}

/// Processor time of this machine's agent, which does not count as a disturbance.
fn used(client: &HostReport) -> f64 {
    client.cpu_s.unwrap_or(0.0)
}

/// Replaces the addresses that the server is bound to, and reported, with those at which it is
/// reached. Behind address translation they differ.
fn as_seen_from_here(mut told: Ready, remotes: &[IpAddr]) -> Ready {
    for (listens, remote) in told.listens.iter_mut().zip(remotes) {
        listens.set_ip(*remote);
    }
    told
}

impl Backend for RealHosts {
    fn name(&self) -> &'static str {
        "host"
    }

    fn run(&self, run: &Run) -> Outcome {
        self.attempts.outcome(|| self.carry_out(run))
    }

    fn shapes_links(&self) -> bool {
        false
    }

    fn was_broken_off(&self) -> bool {
        self.attempts.was_broken_off()
    }
}

/// The first thing in a scenario that cannot be done over existing links; `None` if there is none.
pub fn refusal(scenario: &Scenario) -> Option<String> {
    let transport = &scenario.transport;
    match transport.kind {
        Kind::Anabranch | Kind::Tcp => {}
        Kind::KernelMptcp => {
            if let Err(missing) = super::netns::tools::mptcp() {
                return Some(format!("kernel MPTCP: {missing}"));
            }
        }
        Kind::Bonding | Kind::Mlppp => {
            let what = "a bond of links: it would have to be set up on both machines";
            return Some(what.to_owned());
        }
        Kind::MptcpProxy => {
            let what = "a proxy pair: it would have to be set up on both machines";
            return Some(what.to_owned());
        }
        Kind::Tunnel => {
            let what = "a tunnel: start `anabranch tunnel` on both machines, and measure TCP with \
                        kind = \"tcp\"";
            return Some(what.to_owned());
        }
        Kind::Command => {
            if let Some(what) = programs::refusal(scenario) {
                return Some(what);
            }
        }
    }
    if matches!(transport.kind, Kind::Tcp | Kind::KernelMptcp)
        && let Err(missing) = super::netns::tools::kernel_name(scenario)
    {
        return Some(missing);
    }
    if let Some(what) = super::refusal::only_simulated(transport) {
        return Some(what);
    }
    let what = if !scenario.events.is_empty() {
        "events: links that exist are not cut or changed"
    } else if !scenario.background.is_empty() {
        "background traffic: links that exist have their own"
    } else if transport.settings.sack == Some(false) && transport.kind != Kind::Anabranch {
        "sack = false: it would have to be switched off on both machines"
    } else if scenario
        .flows
        .iter()
        .any(|flow: &Flow| flow.marks != Marks::default())
    {
        "agents take datagrams as they are: no `flows`, `critical`, `resequence`, `class`"
    } else {
        return None;
    };
    Some(what.to_owned())
}
