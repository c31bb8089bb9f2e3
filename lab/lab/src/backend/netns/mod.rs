//! Real kernels as a backend: one run is a network of namespaces, with agents at both ends.
//!
//! ```text
//! tools      what this machine has, and what of a scenario it cannot do
//! modules    the modules of its kernel
//! layout     addresses, routes, rules: worked out before anything is built
//! network    namespaces, links and routes, removed when dropped
//! job        the jobs for the agents
//! bond       the kernel's bonding driver between agents
//! tunnel     the product's tunnel between agents
//! proxy      a plain proxy pair for multipath TCP between agents
//! command    third-party programs instead of agents
//! background traffic beside the flows
//! estimate   how much a plan demands of a machine
//! script     events at their times, and samples of the links' counters
//! totals     what links carried, in the terms of results
//! ```
//!
//! One run at a time. Two laboratories may run side by side: their namespaces have different
//! names, and each notes that the other was there.

mod background;
mod bond;
mod command;
mod estimate;
mod job;
mod layout;
mod modules;
mod network;
mod proxy;
mod script;
pub(super) mod tools;
mod totals;
mod tunnel;

#[cfg(test)]
mod tests;

pub use crate::backend::Note;
pub use estimate::{Burden, burden, expected_time};
pub use modules::Modules;
pub use tools::{Part, parts};

use super::agents::Agents;
use super::conduct::Attempts;
use super::notes::{self, Busy};
use super::refusal::Broken;
use super::{Backend, Conduct};
use crate::hosts::{Host, HostError, HostReport, Role, merge};
use crate::plan::Run;
use crate::results::{Outcome, Status};
use crate::scenario::{Flow, Kind, Marks, Scenario, Way};
use anabranch_testbed::emulate::{Error as LinkError, LinkLayer, LinkPlan};
use network::{Net, Refusal};
use script::Log;
use std::fmt::Debug;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// What carries packets between namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Links {
    /// The emulator, whose links are those of the simulator and draw the same losses for every
    /// contender; the kernel's links where there are no TAP devices.
    #[default]
    Auto,
    /// The emulator.
    Emulator,
    /// `tbf` and `netem` in a namespace between the nodes.
    Kernel,
    /// `tbf` as in `Kernel`, but `netem` runs in the sending node: for the fifth paper's finding
    /// that delay there distorts TCP.
    KernelInHosts,
}

impl Links {
    fn build(self, plans: Vec<LinkPlan>) -> Result<Box<dyn LinkLayer>, LinkError> {
        match self {
            Self::Emulator => anabranch_testbed::emulate::emulator(plans),
            Self::Auto => match anabranch_testbed::emulate::emulator(plans.clone()) {
                Err(LinkError::Tap { .. }) => Self::Kernel.build(plans),
                other => other,
            },
            Self::Kernel => anabranch_testbed::emulate::kernel(plans),
            Self::KernelInHosts => anabranch_testbed::emulate::kernel_in_hosts(plans),
        }
    }
}

/// Starts agents.
pub trait Launch: Debug + Send + Sync {
    /// Starts `command`, an agent that reads requests and writes answers, for the host `name`.
    ///
    /// # Errors
    /// It cannot be started.
    fn launch(&self, name: &str, command: Command) -> Result<Box<dyn Host>, HostError>;
}

/// Runs scenarios in network namespaces of this machine.
#[derive(Debug)]
pub struct Netns {
    launch: Box<dyn Launch>,
    /// The command line of an agent.
    agent: Vec<String>,
    /// The program whose command `tunnel` is the product's tunnel.
    tunnel: Option<String>,
    conduct: Conduct,
    links: Links,
    pcap: Option<PathBuf>,
    attempts: Attempts,
}

impl Netns {
    /// A laboratory whose agents have this command line, of a program at least, and are started by
    /// `launch`.
    pub fn new(agent: Vec<String>, launch: Box<dyn Launch>, conduct: Conduct) -> Self {
        Self {
            launch,
            agent,
            tunnel: None,
            conduct,
            links: Links::default(),
            pcap: None,
            attempts: Attempts::default(),
        }
    }

    /// The program whose command `tunnel` is the product's tunnel; without one, contenders of that
    /// kind are refused.
    #[must_use]
    pub fn tunnel(mut self, program: String) -> Self {
        self.tunnel = Some(program);
        self
    }

    /// What carries packets.
    #[must_use]
    pub fn links(mut self, links: Links) -> Self {
        self.links = links;
        self
    }

    /// Captures the packets of every link into `folder`, with a subfolder for each run.
    #[must_use]
    pub fn pcap(mut self, folder: PathBuf) -> Self {
        self.pcap = Some(folder);
        self
    }
}

impl Backend for Netns {
    fn name(&self) -> &'static str {
        "netns"
    }

    fn run(&self, run: &Run) -> Outcome {
        self.attempts.outcome(|| self.carry_out(run))
    }

    fn was_broken_off(&self) -> bool {
        self.attempts.was_broken_off()
    }
}

/// Removes what laboratories that were killed left behind: their namespaces, with everything in
/// them. Returns their names. Running laboratories are left alone.
pub fn clean() -> Vec<String> {
    anabranch_testbed::remove_stale()
}

/// The first thing in a scenario that this machine cannot do; `None` if there is none.
pub fn refusal(scenario: &Scenario) -> Option<String> {
    refusal_with(scenario, tools::Has::Here)
}

/// The first thing in a scenario that a virtual machine cannot do either, even if its kernel has
/// all the modules of a distribution's kernel.
pub fn refusal_in_vm(scenario: &Scenario) -> Option<String> {
    refusal_under(scenario, &|_| true)
}

/// The first thing in a scenario that cannot be done in a virtual machine; `has` tells whether its
/// kernel has a module.
pub fn refusal_under(scenario: &Scenario, has: &dyn Fn(&str) -> bool) -> Option<String> {
    refusal_with(scenario, tools::Has::InVm(has))
}

fn refusal_with(scenario: &Scenario, has: tools::Has<'_>) -> Option<String> {
    let marked = |flow: &Flow| flow.marks != Marks::default();
    let marked = scenario.flows.iter().any(marked);
    let marked = marked.then(|| {
        "agents take datagrams as they are: no `flows`, `critical`, `resequence`, `class`"
            .to_owned()
    });
    tools::refusal(scenario, has)
        .or_else(|| command::refusal(scenario))
        .or(marked)
}

impl Netns {
    fn carry_out(&self, run: &Run) -> Result<Outcome, Broken> {
        let scenario = &*run.scenario;
        if self.conduct.is_aborted() {
            return Err(Broken::Off);
        }
        if let Some(what) = refusal(scenario) {
            return Err(Refusal::Unsupported(what).into());
        }
        let pcap = self.pcap.as_ref().map(|folder| folder.join(&run.id));
        if let Some(folder) = &pcap {
            let made = std::fs::create_dir_all(folder);
            made.map_err(|error| Refusal::Failed(format!("{}: {error}", folder.display())))?;
        }
        let mut net = Net::build(scenario, run.seed, self.links, pcap.as_deref())?;
        let mut note = Note {
            run_id: run.id.clone(),
            contender: run.contender.clone(),
            variables: net.variables(),
            other_labs: notes::other_labs(),
            ..Note::default()
        };
        let (before, since) = (Busy::now(), Instant::now());
        let outcome = match scenario.transport.kind {
            Kind::Command => self.by_programs(&mut net, run, &mut note),
            _ => self.by_agents(&mut net, run, &mut note),
        };
        let health = net.layer.health();
        note.add_health(net.layer.name(), &health);
        let agents = note.cpu_s.iter().flatten().sum();
        note.others_cores = Busy::now()
            .zip(before)
            .map(|(now, before)| now.others_since(before, since.elapsed(), agents));
        let mut outcome = outcome?;
        if let (Some(why), Status::Ok | Status::Timeout) = (health.verdict, outcome.status) {
            (outcome.status, outcome.reason) = (Status::Invalid, why);
        }
        self.conduct.keep(&note)?;
        Ok(outcome)
    }

    fn by_agents(&self, net: &mut Net<'_>, run: &Run, note: &mut Note) -> Result<Outcome, Broken> {
        let scenario = &*run.scenario;
        // Its processes end when this is dropped, at the end of the run.
        let (mut nodes, mut relays) = (None, None);
        match scenario.transport.kind {
            Kind::KernelMptcp => job::prepare_mptcp(net)?,
            Kind::MptcpProxy => {
                job::prepare_mptcp(net)?;
                let congestion = tools::kernel_name(scenario).map_err(Refusal::Unsupported)?;
                let (agent, conduct) = (&*self.agent, &self.conduct);
                relays = Some(proxy::prepare(net, agent, &congestion, conduct)?);
            }
            Kind::Bonding => bond::prepare(net)?,
            Kind::Tunnel => {
                let program = self.tunnel.as_deref();
                nodes = Some(tunnel::prepare(net, program, &self.conduct)?);
            }
            _ => {}
        }
        if scenario.transport.settings.sack == Some(false) {
            for node in &net.nodes[..2] {
                node.set_sysctl("ipv4/tcp_sack", "0")
                    .map_err(Refusal::from)?;
            }
        }
        let host = |name: &str, node: usize| -> Result<Box<dyn Host>, Refusal> {
            let [program, arguments @ ..] = &*self.agent else {
                return Err(Refusal::Failed("agents have no command line".to_owned()));
            };
            let mut command = net.nodes[node].command(program);
            // In its own process group: Ctrl-C is meant for the laboratory, which lets the run end
            // first.
            command.args(arguments).process_group(0);
            let started = self.launch.launch(name, command);
            started.map_err(|error| Refusal::Failed(error.to_string()))
        };
        let mut agents = Agents::new(host("client", 0)?, host("server", 1)?);
        let jobs = [Role::Client, Role::Server]
            .map(|role| job::job(net, run, role, self.conduct.qlog.as_deref()));
        let [client, server] = jobs;
        let told = agents.prepare(client?, server?)?;
        let start = |agents: &mut Agents| agents.start(told).map_err(Broken::from);
        let wait =
            |agents: &mut Agents| agents.reports(&|| self.conduct.is_aborted(), scenario.stop);
        let (reports, log) = during(net, run, &mut agents, start, wait)?;
        let [client, server] = &reports;
        note.add_reports([client, server]);
        note.events = events(&log);
        drop((nodes, relays));
        if scenario.transport.kind.is_below_hosts() {
            let [client, server] = &reports.map(without_paths);
            return Ok(told_by(net, [client, server], &log));
        }
        Ok(told_by(net, [client, server], &log))
    }

    fn by_programs(
        &self,
        net: &mut Net<'_>,
        run: &Run,
        note: &mut Note,
    ) -> Result<Outcome, Broken> {
        let scenario = &*run.scenario;
        let mut programs = command::Programs::prepare(net, &self.conduct, run.seed)?;
        programs.start(net, run.seed)?;
        let wait = |programs: &mut command::Programs| programs.outcome(scenario, &self.conduct);
        let (outcome, log) = during(net, run, &mut programs, |_| Ok(()), wait)?;
        note.events = events(&log);
        let (client, server) = (HostReport::default(), HostReport::default());
        let links = totals::totals(net, &log.samples);
        let way = scenario.flows[0].way;
        let mut counted = merge(scenario, way, &client, &server, &links);
        totals::add_to_series(net, &log.samples, way, &mut counted);
        let mut outcome = Outcome {
            paths: counted.paths,
            series: counted.series,
            packets: counted.packets,
            ..outcome
        };
        judge(&mut outcome, &log);
        Ok(outcome)
    }
}

/// Starts a run and waits for its end, while the background traffic and the script go on beside it.
fn during<W, T: Send>(
    net: &mut Net<'_>,
    run: &Run,
    who: &mut W,
    start: impl FnOnce(&mut W) -> Result<(), Broken>,
    wait: impl FnOnce(&mut W) -> Result<T, Broken>,
) -> Result<(T, Log), Broken> {
    let pieces = background::pieces(net, &run.scenario, run.seed);
    let begin = Instant::now();
    let clock = background::Clock {
        begin,
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        /// Tells the threads to stop, whichever way this scope is left.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let over = Over(&clock.over);
        for piece in &pieces {
            let started = piece.start(scope, &clock);
            started.map_err(Refusal::Failed)?;
        }
        start(who)?;
        let (end, ended) = mpsc::channel();
        let script = scope.spawn(move || net.follow(begin, &ended));
        let result = wait(who);
        drop((end, over));
        let mut log = script
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let over = begin.elapsed();
        log.background = pieces.iter().map(|piece| piece.outcome(over)).collect();
        Ok((result?, log))
    })
}

/// Drops the per-path figures: what a host reports of its only path applies to all paths below it
/// together and to none alone.
fn without_paths(mut report: HostReport) -> HostReport {
    report.paths.clear();
    report.series.retain(|row| row.path == 0);
    report
}

fn told_by(net: &Net<'_>, reports: [&HostReport; 2], log: &Log) -> Outcome {
    let scenario = net.scenario;
    let way = scenario.flows.first().map_or(Way::Forward, |flow| flow.way);
    let mut links = totals::totals(net, &log.samples);
    totals::tell_apart(net, &mut links, reports);
    let mut outcome = merge(scenario, way, reports[0], reports[1], &links);
    totals::add_to_series(net, &log.samples, way, &mut outcome);
    judge(&mut outcome, log);
    outcome
}

/// Adds what the background traffic got, and marks a run as invalid if its script was not carried
/// out as written.
fn judge(outcome: &mut Outcome, log: &Log) {
    outcome.background.clone_from(&log.background);
    if let (Some(fault), Status::Ok | Status::Timeout) = (&log.fault, outcome.status) {
        (outcome.status, outcome.reason) = (Status::Invalid, fault.clone());
    }
}

fn events(log: &Log) -> Vec<(f64, String)> {
    let done = log.done.iter();
    done.map(|(at, what)| (at.as_secs_f64(), what.clone()))
        .collect()
}
