//! Random worlds: one seed determines topology, faults, workload, scheduler, controller and
//! operations.
//!
//! While faults happen, rules that must always hold are checked every few events and at every
//! packet sent. Then everything is repaired; within a bounded time all data must arrive and the
//! network must become silent. Safety comes first, then liveness.
//!
//! The seed alone reproduces a failure.

mod clock;
mod guard;
mod operations;
mod topology;
mod variety;

#[cfg(test)]
mod tests;

pub use guard::Guard;

use crate::app::{DatagramSink, File, Files, Receiver};
use crate::quic::{Dial, QuicHost, Session, configs};
use crate::scene::FIRST;
use crate::{Dice, ProcessId, Seed, World};
use anabranch_proto::config::{AckReturn, RetransmissionPolicy, TransportConfig};
use anabranch_proto::connection::{Connection, Timer};
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::streams::Limits;
use anabranch_proto::time::Instant;
use clock::Clocked;
use std::fmt::Write as _;
use std::time::Duration;
use topology::Topology;

use anabranch_schedulers::{Names, RECOMMENDED};

/// Virtual time within which a repaired world must have delivered everything.
pub const SETTLING: Duration = Duration::from_secs(180);

/// Virtual time after which everyone must have said all they have to say.
pub const CALMING: Duration = Duration::from_secs(40);

/// The longest wait until an abandoned path is freed: that takes three probe time-outs, which are
/// long after a handshake of seconds.
pub const FREEING: Duration = Duration::from_secs(300);

/// How often a client sends something during that wait. A NAT forgets clients that are silent for
/// two minutes, and freeing a path then goes unnoticed by the other side.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// How long the world must then remain silent.
pub const RESTING: Duration = Duration::from_secs(60);

/// The first seed of worlds that vary more. The worlds of lower seeds must not change,
/// since some are kept because they found defects.
pub const WIDE: u64 = 1_000_000;

/// The first seed whose worlds have wrapped schedulers, and any of them: what campaigns begin with.
pub const WRAPPED: u64 = 2_000_000;

/// How many schedulers there were when the seeds below [`WRAPPED`] were kept.
const FIRST_SCHEDULERS: usize = 30;

/// Events between two checks of the whole world.
const CHECK_EVERY: u64 = 16;

/// How a world ended in which no rule was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything arrived; the hash of all that happened.
    Settled(u64),
    /// No path was left, or no handshake got through. Faults may cause either.
    Lost,
}

/// Why a world failed: what was wrong, and what had been done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The seed that reproduces it.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
    /// Operations with their times, and the final state of both ends.
    pub story: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}: {}\n{}", self.seed, self.what, self.story)
    }
}

/// Runs the world of a seed with the schedulers and controllers of `names`.
///
/// # Errors
/// If a rule was broken.
pub fn run(seed: u64, names: &Names) -> Result<Outcome, Box<Failure>> {
    let mut trial = Trial::new(seed, names);
    let outcome = trial.run();
    outcome.map_err(|what| {
        Box::new(Failure {
            seed,
            what,
            story: trial.story(),
        })
    })
}

/// A world under test.
struct Trial {
    world: World,
    dice: Dice,
    topology: Topology,
    client: ProcessId,
    server: ProcessId,
    guards: [Guard; 2],
    /// What campaign worlds vary in addition.
    wide: Option<Dice>,
    log: Vec<String>,
}

impl Trial {
    fn new(seed: u64, names: &Names) -> Self {
        let mut dice = Dice::new(Seed(seed).derive("random", 0));
        let mut world = World::new(seed);
        let topology = Topology::random(&mut dice, &mut world);
        let guards = [Guard::new("the client"), Guard::new("the server")];
        let mut near = random_config(&mut dice, names, seed >= WRAPPED);
        let mut far = random_config(&mut dice, names, seed >= WRAPPED);
        if seed % 10 == 2 {
            let mut dice = Dice::new(Seed(seed).derive("profile", 0));
            for config in [&mut near, &mut far] {
                variety::take_profile(config, &mut dice, names);
            }
        }
        if seed.is_multiple_of(3) {
            let mut dice = Dice::new(Seed(seed).derive("variety", 0));
            for config in [&mut near, &mut far] {
                variety::vary(config, &mut dice, names);
            }
        }
        let mut wide = (seed >= WIDE).then(|| Dice::new(Seed(seed).derive("wide", 0)));
        if let Some(dice) = &mut wide {
            for (config, guard) in [(&mut near, &guards[0]), (&mut far, &guards[1])] {
                variety::widen(config, dice);
                if config.mechanisms.retransmission != RetransmissionPolicy::Scheduler {
                    guard.allow_urgent();
                }
            }
        }
        far.max_paths = near.max_paths.max(far.max_paths);
        let log = vec![format!(
            "{topology:?}\nclient {} {}, server {} {}",
            near.scheduler.name(),
            near.congestion.name(),
            far.scheduler.name(),
            far.congestion.name(),
        )];
        near.observer = Some(guards[0].observer());
        far.observer = Some(guards[1].observer());
        let (near, far) = configs(near, far);
        let apps = |host: QuicHost| {
            host.app(Files::new(FIRST, Vec::new(), 64))
                .app(Receiver::new(0).verify())
                .app(DatagramSink::new(FIRST, Duration::from_secs(1)))
        };
        let seeds = world.seed();
        let mut client = apps(QuicHost::new(
            seeds.derive("client", 0),
            topology.client_sockets.clone(),
        ));
        let server = apps(QuicHost::new(
            seeds.derive("server", 0),
            topology.server_sockets.clone(),
        ));
        client.dial(Dial {
            config: near,
            at: Instant::ZERO,
            paths: topology.plans(&mut dice),
        });
        let (client_node, server_node) = (topology.client, topology.server);
        Self {
            client: world.attach(client_node, Box::new(Clocked::new(client))),
            server: world.attach(server_node, Box::new(Clocked::new(server.serve(far)))),
            world,
            dice,
            topology,
            guards,
            wide,
            log,
        }
    }

    fn run(&mut self) -> Result<Outcome, String> {
        let end = Instant::ZERO + Duration::from_secs(60);
        let connected = self.go(end, |trial| {
            trial
                .connection(false)
                .is_some_and(Connection::is_established)
        })?;
        if self.is_lost() {
            return Ok(Outcome::Lost);
        }
        if !connected {
            return if self.is_backing_off(end) {
                Ok(Outcome::Lost)
            } else {
                Err("no handshake".into())
            };
        }
        let steps = 10 + self.dice.below(40);
        for _ in 0..steps {
            let pause = self.dice.pick(&[0, 3, 20, 100, 400]);
            let end = self.world.now() + Duration::from_millis(pause);
            self.go(end, |_| false)?;
            if self.is_lost() {
                return Ok(Outcome::Lost);
            }
            self.disturb();
        }
        self.settle()
    }

    /// Runs until a condition holds, at most until `end`; returns whether it did.
    fn go(&mut self, end: Instant, done: impl Fn(&Self) -> bool) -> Result<bool, String> {
        loop {
            if done(self) {
                return Ok(true);
            }
            for _ in 0..CHECK_EVERY {
                if !self.world.step_before(end) {
                    self.world.run_until(end);
                    self.check()?;
                    return Ok(done(self));
                }
            }
            self.check()?;
        }
    }

    /// Whether a handshake still goes on that has lost everything so often that both sides wait
    /// until after `end` before they probe again. A burst of losses that lasts for packets, not for
    /// a time, is longer the fewer are sent.
    fn is_backing_off(&self, end: Instant) -> bool {
        [false, true].into_iter().all(|server| {
            let next = self.connection(server).and_then(Connection::next_timer);
            matches!(next, Some((at, Timer::Handshake | Timer::Pto)) if at > end)
        })
    }

    fn side(&self, server: bool) -> &Clocked {
        let id = if server { self.server } else { self.client };
        self.world.process(id)
    }

    fn side_mut(&mut self, server: bool) -> &mut Clocked {
        let id = if server { self.server } else { self.client };
        self.world.process_mut(id)
    }

    fn host(&self, server: bool) -> &QuicHost {
        &self.side(server).host
    }

    fn host_mut(&mut self, server: bool) -> &mut QuicHost {
        &mut self.side_mut(server).host
    }

    /// What a side's clock shows.
    fn time_of(&self, server: bool) -> Instant {
        self.side(server).time(self.world.now())
    }

    fn connection(&self, server: bool) -> Option<&Connection> {
        self.host(server).connection(FIRST)
    }

    /// Checks the rules that must hold at any time.
    fn check(&self) -> Result<(), String> {
        for guard in &self.guards {
            if guard.is_breached() {
                return Err(guard.breaches().join("\n"));
            }
        }
        for server in [false, true] {
            let corrupt = self.host(server).get::<Receiver>().total().corrupt;
            if corrupt > 0 {
                return Err(format!("{corrupt} bytes arrived changed"));
            }
            if self.host(server).sessions().len() > 1 {
                return Err("a second connection began".into());
            }
            self.check_side(server)?;
        }
        let ends = self.ends();
        if ends.is_empty() || self.is_lost() {
            return Ok(());
        }
        Err(format!("the connection ended: {}", ends.join(", ")))
    }

    fn check_side(&self, server: bool) -> Result<(), String> {
        let Some(connection) = self.connection(server) else {
            return Ok(());
        };
        let mut before = None;
        for id in connection.paths() {
            if before >= Some(id) {
                return Err(format!("path {id} is out of order"));
            }
            before = Some(id);
            let Some(stats) = connection.path_stats(id) else {
                return Err(format!("path {id} is open and has no values"));
            };
            let counters = stats.counters;
            let right = counters.acked_bytes + stats.bytes_in_flight
                <= counters.sent_bytes + 20_000
                && stats.congestion_window >= 1200
                && (1200..=1500).contains(&stats.mtu)
                && stats.min_rtt <= stats.smoothed_rtt.max(stats.latest_rtt);
            if !right {
                return Err(format!("values of a path make no sense: {stats:?}"));
            }
        }
        let backlog = connection.backlog();
        if backlog.unsent > 0 && backlog.credit > 1 << 40 {
            return Err(format!("credit without end: {backlog:?}"));
        }
        Ok(())
    }

    /// How the connection ended, on each side that saw it end.
    fn ends(&self) -> Vec<String> {
        let end = |server| {
            let (at, error) = self.host(server).sessions().first()?.closed()?;
            let name = side_name(server);
            Some(format!("{name} {at} {error:?}"))
        };
        [false, true].into_iter().filter_map(end).collect()
    }

    /// Whether the connection ended as the faults allow.
    fn is_lost(&self) -> bool {
        let is_untouched = self.log.len() == 1;
        is_loss(&self.ends(), is_untouched)
    }

    fn is_delivered(&self) -> bool {
        [false, true].into_iter().all(|server| {
            let files = self.host(server).get::<Files>();
            let receiver = self.host(!server).get::<Receiver>();
            let arrived = |sent: &crate::app::Sent| {
                let record = receiver.stream(FIRST, sent.stream);
                sent.cut || record.is_some_and(|record| record.finished.is_some())
            };
            files.is_empty() && files.sent().iter().all(arrived)
        })
    }

    /// Repairs the network; then everything must arrive and nothing more may happen.
    fn settle(&mut self) -> Result<Outcome, String> {
        self.heal();
        let end = self.world.now() + SETTLING;
        let mut done = false;
        while !done && self.world.now() < end {
            self.ping_all();
            let until = self.world.now() + Duration::from_secs(2);
            done = self.go(until, Self::is_delivered)?;
            if self.is_lost() {
                return Ok(Outcome::Lost);
            }
        }
        if !done {
            return Err("it does not finish".into());
        }
        self.check_lengths()?;
        // Packets a server sends to an address that no longer exists are answered only once the
        // client speaks, perhaps again after the server has returned to the previous address.
        for _ in 0..5 {
            self.ping_all();
            let until = self.world.now() + Duration::from_secs(2);
            self.go(until, |_| false)?;
        }
        self.calm()?;
        let end = self.world.now() + FREEING;
        while self.is_busy() && self.world.now() < end {
            self.ping_all();
            let until = self.world.now() + KEEP_ALIVE;
            self.go(until, |trial| !trial.is_busy())?;
            self.calm()?;
        }
        if self.is_lost() {
            return Ok(Outcome::Lost);
        }
        let before = self.topology.packets(&self.world);
        let rested = self.world.now() + RESTING;
        self.go(rested, |_| false)?;
        let packets = self.topology.packets(&self.world) - before;
        if packets > 0 {
            return Err(format!("it never rests: {packets} packets"));
        }
        for server in [false, true] {
            let connection = self.connection(server).ok_or("a connection is gone")?;
            let mut stats = connection
                .paths()
                .filter_map(|id| connection.path_stats(id));
            if let Some(path) = stats.find(|path| path.bytes_in_flight > 0) {
                return Err(format!("bytes stay in flight: {path:?}"));
            }
        }
        Ok(Outcome::Settled(self.world.trace_hash()))
    }

    /// Gives both sides time to answer what was just sent.
    fn calm(&mut self) -> Result<(), String> {
        let calm = self.world.now() + CALMING;
        self.go(calm, |_| false).map(drop)
    }

    /// Whether a side has a path to free, keys to forget before that, or still probes for what it
    /// has sent: after a handshake that took long, a minute later.
    fn is_busy(&self) -> bool {
        let next = |server| self.connection(server)?.next_timer();
        [false, true]
            .into_iter()
            .filter_map(next)
            .any(|(_, timer)| matches!(timer, Timer::Discard | Timer::OldKeys | Timer::Pto))
    }

    fn check_lengths(&self) -> Result<(), String> {
        for server in [false, true] {
            let receiver = self.host(!server).get::<Receiver>();
            for sent in self.host(server).get::<Files>().sent() {
                let record = receiver.stream(FIRST, sent.stream);
                let length = record.map_or(0, |record| record.bytes);
                if !sent.cut && length != sent.file.bytes {
                    return Err(format!("{sent:?} arrived with {length} bytes"));
                }
            }
        }
        Ok(())
    }

    fn story(&self) -> String {
        let mut text = self.log.join("\n");
        for server in [false, true] {
            let name = side_name(server);
            if let Some(connection) = self.connection(server) {
                let _ = writeln!(text, "\n{name}: next {:?}", connection.next_timer());
                for id in connection.paths() {
                    let _ = writeln!(text, "  {:?}", connection.path_stats(id));
                }
                let _ = writeln!(text, "  {:?}", connection.backlog());
            } else {
                let _ = writeln!(text, "\n{name}: gone");
            }
            let session = self.host(server).sessions().first();
            for (at, notice) in session.into_iter().flat_map(Session::notices) {
                let _ = writeln!(text, "  {at} {notice:?}");
            }
        }
        text
    }

    fn say(&mut self, what: impl AsRef<str>) {
        let line = format!("{} {}", self.world.now(), what.as_ref());
        self.log.push(line);
    }

    fn add_file(&mut self, server: bool, bytes: u64, priority: i32) {
        let file = File {
            at: self.time_of(server) + Duration::from_nanos(1),
            bytes,
            priority,
        };
        self.host_mut(server).get_mut::<Files>().add(file);
    }
}

/// Whether ends of a connection mean that a side ran out of paths, which the operations may bring
/// about, or that they never completed a handshake: a burst of loss that lasts for a number of
/// packets may outlast a handshake, which sends few. If the side that ran out of paths is not heard
/// any more, the other one learns of it by a stateless reset, or only by its time-out.
fn is_loss(ends: &[String], is_untouched: bool) -> bool {
    let any = |words: &str| ends.iter().any(|end| end.contains(words));
    let began = any("NO_VIABLE_PATH") || is_untouched && any("TimedOut");
    let follows = |end: &String| {
        let allowed = ["NO_VIABLE_PATH", "Reset", "TimedOut"];
        allowed.iter().any(|words| end.contains(words))
    };
    began && ends.iter().all(follows)
}

fn side_name(server: bool) -> &'static str {
    if server { "the server" } else { "the client" }
}

fn random_config(dice: &mut Dice, names: &Names, wrapped: bool) -> TransportConfig {
    // What is recommended is another's name: it takes the place of the plain policy below.
    let entries = names.schedulers.entries().iter().map(|entry| entry.name);
    let mut schedulers: Vec<&str> = entries.filter(|name| *name != RECOMMENDED).collect();
    if !wrapped {
        schedulers.truncate(FIRST_SCHEDULERS);
    }
    let scheduler = schedulers[dice.below(schedulers.len() as u64) as usize];
    let around = if wrapped {
        dice.pick(&["", "", "tail+", "copies+", "probe+"])
    } else {
        ""
    };
    let spec = match scheduler {
        "min-rtt" if around.is_empty() => RECOMMENDED.to_owned(),
        name => format!("{around}{name}"),
    };
    let controllers = names.controllers.entries();
    let controller = controllers[dice.below(controllers.len() as u64) as usize];
    let spec = spec.parse().expect("a registered name");
    let mut config = TransportConfig {
        scheduler: SchedulerFactory::new(&names.schedulers, &spec).expect("defaults are valid"),
        congestion: names
            .controller(controller.name)
            .expect("defaults are valid"),
        chunk: dice.pick(&[None, None, Some(500), Some(5_000), Some(64_000)]),
        max_paths: dice.pick(&[2, 3, 4, 8]),
        path_idle_timeout: Duration::from_secs(dice.pick(&[2, 5, 30])),
        max_idle_timeout: Some(Duration::from_secs(400)),
        ack_threshold: dice.pick(&[1, 2, 2, 10]),
        ack_return: dice.pick(&[
            AckReturn::SamePath,
            AckReturn::SamePath,
            AckReturn::LowestRtt,
        ]),
        ..anabranch_schedulers::transport()
    };
    if dice.below(4) == 0 {
        config.streams = Limits {
            receive_window: 60_000,
            max_receive_window: dice.pick(&[60_000, 1_000_000]),
            stream_receive_window: 20_000,
            max_stream_receive_window: dice.pick(&[20_000, 1_000_000]),
            send_buffer: 50_000,
            max_streams_uni: 4,
            ..Limits::default()
        };
    }
    config
}
