//! The simulator as a backend: one run is one world.

mod apps;
mod background;
mod calls;
mod measure;
mod network;
mod ordered;
mod race;
mod tcp;
mod tunnel;

#[cfg(test)]
mod tests;

use super::refusal::from_behind_the_far_end;
use super::{Backend, ended, panic_message};
use crate::engine::{self, Setup};
use crate::plan::Run;
use crate::results::{Outcome, Status};
use crate::scenario::{
    Background, BackgroundKind, Flow, FlowKind, Kind, NodeKind, Profile, Scenario,
};
use anabranch_proto::config::TransportConfig;
use anabranch_proto::time::Instant;
use anabranch_qlog::{Folder, WhenSlow};
use anabranch_schedulers::Names;
use anabranch_sim::quic::{QuicHost, configs};
use anabranch_sim::record::{End, Probe, Recorder, STEP, Watch};
use anabranch_sim::{ProcessId, World};
use network::Built;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs scenarios in virtual time.
#[derive(Debug, Clone, Default)]
pub struct Sim {
    names: Arc<Names>,
    qlog: Option<PathBuf>,
    /// Set by the user to end runs before they are over.
    halt: Arc<AtomicBool>,
}

impl Sim {
    /// A simulator with these schedulers and congestion controllers.
    pub fn new(names: impl Into<Arc<Names>>) -> Self {
        Self {
            names: names.into(),
            qlog: None,
            halt: Arc::default(),
        }
    }

    /// Once `halt` is set, runs under way end at once and count as broken off.
    #[must_use]
    pub fn halt(mut self, halt: Arc<AtomicBool>) -> Self {
        self.halt = halt;
        self
    }

    /// Where qlog files go, in a folder for each run that records them.
    #[must_use]
    pub fn qlog(mut self, folder: PathBuf) -> Self {
        self.qlog = Some(folder);
        self
    }
}

impl Backend for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn run(&self, run: &Run) -> Outcome {
        let started = std::time::Instant::now();
        // A run that panics must not end the campaign: it becomes a row with its reason.
        let caught = catch_unwind(AssertUnwindSafe(|| self.carry_out(run)));
        let mut outcome = match caught {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(outcome)) => *outcome,
            Err(panic) => ended(Status::Failed, &panic_message(panic.as_ref())),
        };
        outcome.wall_s = started.elapsed().as_secs_f64();
        outcome
    }

    fn was_broken_off(&self) -> bool {
        self.halt.load(Ordering::Relaxed)
    }
}

impl Sim {
    fn carry_out(&self, run: &Run) -> Result<Outcome, Box<Outcome>> {
        if let Some(refused) = refusal(&run.scenario) {
            return Err(Box::new(refused));
        }
        let race = self.race(run)?;
        let scenario = race.as_ref().unwrap_or(&run.scenario);
        let mut built = Built::of(scenario, run.seed);
        built.halt = Arc::clone(&self.halt);
        let failed = |error: String| Box::new(ended(Status::Failed, &error));
        if scenario.transport.kind != Kind::Anabranch {
            let mut contest = tcp::install(&mut built, &self.names).map_err(failed)?;
            background::install(&mut built, &self.names).map_err(failed)?;
            let progress = drive(&mut built, &mut contest);
            let outcome = contest.outcome(&mut built, &progress);
            return Ok(Outcome {
                background: background::outcomes(&built),
                ..outcome
            });
        }
        let qlog = match (scenario.record.qlog, &self.qlog) {
            (false, _) => None,
            (true, None) => {
                let what = "qlog without a folder for results";
                return Err(Box::new(ended(Status::Unsupported, what)));
            }
            (true, Some(folder)) => {
                let made = Folder::create(&folder.join(&run.id), "anabranch", WhenSlow::Wait);
                Some(made.map_err(|error| failed(error.to_string()))?)
            }
        };
        let mut contest = self.contest(&mut built, qlog.as_ref())?;
        background::install(&mut built, &self.names).map_err(failed)?;
        let progress = drive(&mut built, &mut contest);
        let Engine { recorder, hosts } = &mut contest;
        let mut outcome = measure::outcome(&mut built, recorder, &progress, *hosts);
        outcome.background = background::outcomes(&built);
        // The connections write what they still hold when they are dropped.
        drop((built, contest));
        if let Some(error) = qlog.and_then(|folder| folder.error()) {
            (outcome.status, outcome.reason) = (Status::Failed, format!("qlog: {error}"));
        }
        Ok(outcome)
    }

    /// Installs the engine and its flows on the hosts.
    fn contest(
        &self,
        built: &mut Built<'_>,
        qlog: Option<&Folder>,
    ) -> Result<Engine, Box<Outcome>> {
        let scenario = built.scenario;
        let (mut sender, mut receiver, probe) = self.transports(scenario)?;
        if let Some(folder) = qlog {
            for side in [&mut sender, &mut receiver] {
                side.observer = side.observer.take().map(|probe| folder.beside(probe));
            }
        }
        let begin = built.first_start();
        let (near, far) = if built.flows_backward() {
            (receiver, sender)
        } else {
            (sender, receiver)
        };
        let (client_config, server_config) = configs(near, far);
        let (mut client, mut server) = built.hosts(server_config);
        let lanes = built.dial(&mut client, &client_config, begin);
        (client, server) = apps::install(built, &lanes, client, server);
        let hosts = built.start(client, server);
        let (from, to) = if built.flows_backward() {
            (hosts.server, hosts.client)
        } else {
            (hosts.client, hosts.server)
        };
        let end = |host| End {
            host,
            session: anabranch_sim::scene::FIRST,
        };
        let step = scenario.record.series.unwrap_or(STEP);
        Ok(Engine {
            recorder: Recorder::new(end(from), end(to), probe, step),
            hosts: [from, to],
        })
    }

    /// The settings of the sender and of the receiver, with a probe that observes both.
    fn transports(
        &self,
        scenario: &Scenario,
    ) -> Result<(TransportConfig, TransportConfig, Probe), Box<Outcome>> {
        let transport = &scenario.transport;
        let made = engine::ends(&Setup::of(transport), &self.names);
        let ends = made.map_err(|error| Box::new(ended(Status::Failed, &error.to_string())))?;
        let (mut sender, mut receiver) = (ends.sender, ends.receiver);
        let probe = Probe::new(Watch {
            order: true,
            decisions: scenario.record.decisions,
            packets: false,
        });
        sender.observer = Some(probe.sender());
        receiver.observer = Some(probe.receiver());
        Ok((sender, receiver, probe))
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Whether everything was delivered.
    done: bool,
    /// Application bytes at the end of the warm-up, and its time.
    warm: Option<(u64, Instant)>,
    /// Application bytes at the end of flows with a given duration, and its time.
    cold: Option<(u64, Instant)>,
}

/// Carries the flows and observes them.
trait Contest {
    /// Runs until `end`.
    fn run_until(&mut self, built: &mut Built<'_>, end: Instant);

    /// Runs until everything is delivered, at most until `end`; returns whether it was.
    fn run_until_done(&mut self, built: &mut Built<'_>, end: Instant) -> bool;

    /// Application bytes delivered so far.
    fn delivered(&self, built: &Built<'_>) -> u64;
}

/// The engine, observed by a recorder.
#[derive(Debug)]
struct Engine {
    recorder: Recorder,
    /// The sender and the receiver of the first flow's data.
    hosts: [ProcessId; 2],
}

impl Engine {
    /// The host that dials.
    fn client(&self, built: &Built<'_>) -> ProcessId {
        self.hosts[usize::from(built.flows_backward())]
    }
}

impl Contest for Engine {
    fn run_until(&mut self, built: &mut Built<'_>, end: Instant) {
        let halt = Arc::clone(&built.halt);
        let wanted = |world: &World| world.now() < end && !halt.load(Ordering::Relaxed);
        self.recorder.run_while(&mut built.world, end, wanted);
    }

    fn run_until_done(&mut self, built: &mut Built<'_>, end: Instant) -> bool {
        let (hosts, halt) = (self.hosts, Arc::clone(&built.halt));
        let unfinished = |world: &World| {
            let done = |host: &ProcessId| world.process::<QuicHost>(*host).is_done();
            !hosts.iter().all(done) && !halt.load(Ordering::Relaxed)
        };
        self.recorder.run_while(&mut built.world, end, unfinished)
    }

    fn delivered(&self, built: &Built<'_>) -> u64 {
        apps::delivered(&built.world, self.hosts)
    }
}

/// Runs the world until all flows are over or the time limit is reached.
fn drive(built: &mut Built<'_>, contest: &mut dyn Contest) -> Progress {
    let stop = Instant::ZERO + built.scenario.stop;
    let mut progress = Progress::default();
    contest.run_until(built, built.warm_at().min(stop));
    progress.warm = Some((contest.delivered(built), built.world.now()));
    if let Some(over) = built.over_at() {
        contest.run_until(built, over.min(stop));
        progress.cold = Some((contest.delivered(built), built.world.now()));
        progress.done = built.only_timed() || contest.run_until_done(built, stop);
        return progress;
    }
    progress.done = contest.run_until_done(built, stop);
    progress
}

/// What the simulator cannot do, as a row of results; `None` if it can do everything.
pub fn refusal(scenario: &Scenario) -> Option<Outcome> {
    let kind = scenario.transport.kind;
    let nodes = &scenario.network.nodes;
    let nat = nodes.iter().any(|node| node.kind == NodeKind::Nat);
    let passes = |one: &Background| background::passes_nats(&scenario.network, one);
    let datagrams = |flow: &Flow| matches!(flow.kind, FlowKind::Datagrams { .. });
    let is_foreign = |one: &Background| match one.kind {
        BackgroundKind::Tcp { congestion } => background::controller(congestion).is_none(),
        _ => false,
    };
    let one_file = matches!(
        scenario.flows.as_slice(),
        [Flow {
            kind: FlowKind::BulkBytes(_),
            ..
        }]
    );
    let cannot = if matches!(kind, Kind::KernelMptcp | Kind::MptcpProxy) {
        "the kernel's multipath TCP does not run in a simulator"
    } else if kind == Kind::Command {
        "a program does not run in a simulator"
    } else if nat && !matches!(kind, Kind::Anabranch | Kind::Tunnel) {
        "TCP through a NAT: those of the simulator pass UDP only"
    } else if !scenario.background.iter().all(passes) {
        "background traffic through a NAT, but for UDP from inside"
    } else if scenario.background.iter().any(is_foreign) {
        "background traffic by TCP with BBR: that of the simulator measures no delivery rates"
    } else if is_endless(scenario) {
        "as much as goes over links with neither rate nor delay: it would never end its first \
         instant; give one of them a `rate`"
    } else if !matches!(kind, Kind::Anabranch | Kind::Tunnel)
        && scenario.flows.iter().any(datagrams)
    {
        "datagrams over TCP"
    } else if scenario.transport.profile == Profile::Stripe && !one_file {
        "a stripe of anything but one bulk flow of a given number of bytes"
    } else if kind != Kind::Anabranch && scenario.record.qlog {
        "qlog of TCP"
    } else {
        from_behind_the_far_end(scenario)?
    };
    Some(ended(Status::Unsupported, cannot))
}

/// Whether something sends as fast as it can, until a given time, over links on which nothing takes
/// time.
fn is_endless(scenario: &Scenario) -> bool {
    let paths = &scenario.transport.paths;
    let used = if scenario.transport.kind == Kind::Tcp {
        &paths[..1]
    } else {
        paths
    };
    let lasts = |flow: &Flow| matches!(flow.kind, FlowKind::BulkTime(_));
    let greedy = |one: &&Background| match one.kind {
        BackgroundKind::Tcp { .. } => true,
        BackgroundKind::Web { pause, .. } => pause.is_zero(),
        BackgroundKind::Udp { .. } => false,
    };
    let flows = scenario.flows.iter().any(lasts);
    let flows = used.iter().filter(|_| flows);
    let beside = scenario.background.iter().filter(greedy);
    flows
        .map(|path| scenario.network.path_ends(*path))
        .chain(beside.map(|one| one.ends))
        .any(|ends| !scenario.takes_time(ends))
}
