//! The emulator's thread: reads frames, asks the models when they leave, and writes them at that
//! time.
//!
//! ```text
//! TAP a -> read -> Link a to b -> write -> TAP b
//! TAP a <- write <- Link b to a <- read <- TAP b
//! ```
//!
//! It sleeps until a frame arrives, a frame is due, or a command comes. Port `p` is the device of
//! end `p % 2` of link `p / 2`; direction `p` begins there and ends at port `p ^ 1`.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use anabranch_link::{Link, LinkConfig};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use tun_rs::SyncDevice;

use super::frame::is_carried;
use crate::emulate::capture::{Capture, Did};
use crate::emulate::lateness::Lateness;
use crate::emulate::{Counters, ETHERNET_BYTES, Health, LinkPlan, Way};

/// The shortest time between two wake-ups. Frames that come more densely are processed together:
/// going to sleep costs more than carrying a frame.
const REST: u64 = 50_000;
/// How many frames are read from one device before others get their turn: some 50 µs of work.
const BATCH: usize = 16;
/// The most bytes that a direction holds, queued or in flight: a second at 2 Gbit/s.
const HELD_BYTES_MAX: usize = 256 << 20;
/// The interval at which the thread measures its processor time.
const SECOND: u64 = 1_000_000_000;
/// Real-time priority, from 1 to 99: above everything that is not real-time, below the kernel's own
/// real-time threads.
const PRIORITY: u8 = 10;
/// A larger share of a core leaves no reserve.
const BUSY_MAX: f64 = 0.8;
/// The largest 99th percentile of lateness of a valid run, as a time and as a share of the delay;
/// the larger one applies.
const LATE_MAX: Duration = Duration::from_millis(1);
const LATE_SHARE_MAX: f64 = 0.02;
/// With fewer packets, a single late one means nothing.
const LATE_PACKETS_MIN: u64 = 100;

/// Nanoseconds since the emulator was built.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// A command to the thread; every command is answered.
#[derive(Debug)]
pub(super) enum Command {
    Change {
        direction: usize,
        config: LinkConfig,
        done: SyncSender<()>,
    },
    Silence {
        direction: usize,
        silent: bool,
        done: SyncSender<()>,
    },
    Admin {
        link: usize,
        up: bool,
        done: SyncSender<()>,
    },
    Counters {
        direction: usize,
        reply: SyncSender<Counters>,
    },
    Health {
        reply: SyncSender<Health>,
    },
    Stop {
        done: SyncSender<()>,
    },
}

/// One direction of a link, and what happened to its frames outside the model.
#[derive(Debug)]
pub(super) struct Direction {
    /// Its name in messages.
    label: String,
    link: Link<Box<[u8]>>,
    /// The configuration; the model itself may be down for another reason.
    config: LinkConfig,
    silent: bool,
    admin_up: bool,
    frames_max: usize,
    ignored: u64,
    /// Frames dropped because the direction held too many.
    no_room: u64,
    /// Frames that left the model while the far end was down.
    far_end_down: u64,
    /// Bytes of these frames, which the model counts as delivered.
    far_end_down_bytes: u64,
    lateness: Lateness,
    late_packets: u64,
    capture: Option<Arc<Capture>>,
}

impl Direction {
    pub(super) fn new(plan: &LinkPlan, way: Way, capture: Option<Arc<Capture>>) -> Self {
        let config = plan.configs[way.index()].clone();
        // Both directions of a link, and links with the same seed, must not draw the same random
        // numbers.
        let seed = plan.seed ^ (way.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let frame_bytes = plan.ends[0].mtu + ETHERNET_BYTES;
        Self {
            label: format!("link `{}`, {way}", plan.name),
            link: Link::new(config.clone(), seed),
            config,
            silent: false,
            admin_up: true,
            frames_max: HELD_BYTES_MAX / frame_bytes as usize,
            ignored: 0,
            no_room: 0,
            far_end_down: 0,
            far_end_down_bytes: 0,
            lateness: Lateness::default(),
            late_packets: 0,
            capture,
        }
    }

    /// Applies the configuration, silence and administrative state to the model.
    fn apply(&mut self, now: u64) {
        let up = self.config.up && !self.silent && self.admin_up;
        let config = LinkConfig {
            up,
            ..self.config.clone()
        };
        self.link.reconfigure(now, config);
    }

    fn accept(&mut self, now: u64, end: usize, frame: &[u8]) {
        if !is_carried(frame) {
            self.ignored += 1;
            return;
        }
        if let Some(capture) = &self.capture {
            capture.record(end, Did::Send, now, frame);
        }
        if self.link.len() >= self.frames_max {
            self.no_room += 1;
            return;
        }
        let packet_bytes = frame.len() as u32 - ETHERNET_BYTES;
        self.link.enqueue(now, packet_bytes, frame.into());
    }

    fn counters(&self) -> Counters {
        let stats = self.link.stats();
        Counters {
            packets_in: stats.packets_in + self.no_room,
            bytes_in: stats.bytes_in,
            packets_delivered: stats.packets_out - self.far_end_down,
            bytes_delivered: stats.bytes_out - self.far_end_down_bytes,
            dropped_queue: stats.dropped_full + stats.dropped_early,
            dropped_chance: stats.lost,
            dropped_silent: stats.dropped_down + self.far_end_down,
            ignored: self.ignored,
            queue_bytes: self.link.queued_bytes(),
            queue_max_bytes: stats.queue_peak_bytes,
            mean_sojourn: Some(stats.mean_sojourn()),
        }
    }

    /// Why measurements on this direction are invalid; `None` if they are valid.
    fn verdict(&self) -> Option<String> {
        let label = &self.label;
        if self.no_room > 0 {
            let room = HELD_BYTES_MAX >> 20;
            return Some(format!(
                "{label}: the emulator lost {} packets because {room} MiB were under way",
                self.no_room
            ));
        }
        let late = self.lateness.quantile(0.99);
        let limit = LATE_MAX.max(self.config.delay.mul_f64(LATE_SHARE_MAX));
        (late > limit && self.late_packets >= LATE_PACKETS_MIN).then(|| {
            format!(
                "{label}: 1 of 100 packets left more than {:.1} ms late, and {:.1} ms is the limit",
                late.as_secs_f64() * 1e3,
                limit.as_secs_f64() * 1e3
            )
        })
    }
}

/// The device at one end.
struct Port {
    device: SyncDevice,
    /// False once its namespace has been removed.
    alive: bool,
}

/// Processor time, measured every second.
#[derive(Debug)]
struct Load {
    since: u64,
    cpu_then: Duration,
    busiest: f64,
}

impl Load {
    fn measure(&mut self, now: u64) {
        let cpu = thread_cpu();
        let wall = Duration::from_nanos(now - self.since).as_secs_f64();
        let share = cpu.saturating_sub(self.cpu_then).as_secs_f64() / wall;
        self.busiest = self.busiest.max(share);
        (self.since, self.cpu_then) = (now, cpu);
    }
}

/// Everything that the thread owns.
pub(super) struct Engine {
    clock: Clock,
    ports: Vec<Port>,
    directions: Vec<Direction>,
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
    buffer: Vec<u8>,
    /// Frames read or written since the last wake-up.
    carried: usize,
    load: Load,
    stopping: bool,
}

impl Engine {
    pub(super) fn new(
        clock: Clock,
        devices: Vec<SyncDevice>,
        directions: Vec<Direction>,
        commands: Receiver<Command>,
        wake: Arc<EventFd>,
    ) -> Self {
        let ports = devices.into_iter().map(|device| Port {
            device,
            alive: true,
        });
        Self {
            clock,
            ports: ports.collect(),
            directions,
            commands,
            wake,
            // Large enough for a frame of any MTU.
            buffer: vec![0; 1 << 16],
            carried: 0,
            load: Load {
                since: clock.now(),
                cpu_then: Duration::ZERO,
                busiest: 0.0,
            },
            stopping: false,
        }
    }

    /// Carries frames until told to stop.
    pub(super) fn run(mut self) {
        prefer_this_thread();
        self.load.cpu_then = thread_cpu();
        let mut ready = Vec::with_capacity(self.ports.len());
        let (mut woken, mut pressed) = (0, false);
        while !self.stopping {
            for direction in 0..self.directions.len() {
                self.release(direction);
            }
            let now = self.clock.now();
            if now >= self.load.since + SECOND {
                self.load.measure(now);
            }
            ready.clear();
            let rest_ends = woken + REST;
            let asked = if pressed && now < rest_ends {
                self.rest(rest_ends - now, &mut ready);
                true
            } else {
                self.wait(now, &mut ready)
            };
            let before = std::mem::replace(&mut woken, self.clock.now());
            let carried = std::mem::take(&mut self.carried);
            pressed = carried > 1 || (carried > 0 && woken - before < REST);
            for port in &ready {
                self.read(*port);
            }
            if asked {
                // One wake-up may stand for several commands.
                let _ = self.wake.read();
                while let Ok(command) = self.commands.try_recv() {
                    self.obey(command);
                }
            }
        }
    }

    /// Sleeps until there is something to do. Adds the ports that have frames to `ready`; returns
    /// whether there are commands.
    fn wait(&mut self, now: u64, ready: &mut Vec<usize>) -> bool {
        let deadlines = self.directions.iter().filter_map(|d| d.link.deadline());
        let timeout = deadlines.min().map(|deadline| {
            let left = Duration::from_nanos(deadline.saturating_sub(now));
            TimeSpec::from_duration(left)
        });
        let mut polled = Vec::with_capacity(self.ports.len() + 1);
        polled.push(PollFd::new(self.wake.as_fd(), PollFlags::POLLIN));
        let alive = || (0..self.ports.len()).filter(|port| self.ports[*port].alive);
        for port in alive() {
            let fd = self.ports[port].device.as_fd();
            polled.push(PollFd::new(fd, PollFlags::POLLIN));
        }
        // An interrupted call counts as a wake-up without events.
        if ppoll(&mut polled, timeout, None).unwrap_or(0) == 0 {
            return false;
        }
        let has_come = |fd: &PollFd| fd.any().unwrap_or(true);
        let ports = alive().zip(&polled[1..]);
        ready.extend(ports.filter(|(_, fd)| has_come(fd)).map(|(port, _)| port));
        has_come(&polled[0])
    }

    /// Sleeps for a fixed time, whatever arrives, then lists all ports.
    fn rest(&self, nanos: u64, ready: &mut Vec<usize>) {
        let time = TimeSpec::from_duration(Duration::from_nanos(nanos));
        // If interrupted, it rests for a shorter time.
        let _ = ppoll(&mut [], Some(time), None);
        ready.extend((0..self.ports.len()).filter(|port| self.ports[*port].alive));
    }

    fn read(&mut self, index: usize) {
        let (port, direction) = (&mut self.ports[index], &mut self.directions[index]);
        for _ in 0..BATCH {
            match nix::unistd::read(port.device.as_fd(), &mut self.buffer) {
                Ok(length) => {
                    let frame = &self.buffer[..length];
                    direction.accept(self.clock.now(), index % 2, frame);
                    self.carried += 1;
                }
                Err(Errno::EAGAIN | Errno::EINTR) => return,
                // The device vanished with its namespace.
                Err(_) => {
                    port.alive = false;
                    return;
                }
            }
        }
    }

    /// Writes the frames that are due.
    fn release(&mut self, index: usize) {
        let far_end = index ^ 1;
        let direction = &mut self.directions[index];
        loop {
            let now = self.clock.now();
            let Some((due, frame)) = direction.link.poll_due(now) else {
                return;
            };
            self.carried += 1;
            if nix::unistd::write(self.ports[far_end].device.as_fd(), &frame).is_err() {
                // EIO: the interface is down. Other errors: it is gone.
                direction.far_end_down += 1;
                direction.far_end_down_bytes += frame.len() as u64 - u64::from(ETHERNET_BYTES);
                continue;
            }
            direction.lateness.record(now - due);
            direction.late_packets += 1;
            if let Some(capture) = &direction.capture {
                capture.record(far_end % 2, Did::Receive, now, &frame);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        // The caller may have stopped waiting for its answer.
        match command {
            Command::Change {
                direction,
                config,
                done,
            } => {
                self.directions[direction].config = config;
                self.directions[direction].apply(now);
                let _ = done.send(());
            }
            Command::Silence {
                direction,
                silent,
                done,
            } => {
                self.directions[direction].silent = silent;
                self.directions[direction].apply(now);
                let _ = done.send(());
            }
            Command::Admin { link, up, done } => {
                for direction in &mut self.directions[2 * link..2 * link + 2] {
                    direction.admin_up = up;
                    direction.apply(now);
                }
                let _ = done.send(());
            }
            Command::Counters { direction, reply } => {
                self.release(direction);
                let _ = reply.send(self.directions[direction].counters());
            }
            Command::Health { reply } => {
                let _ = reply.send(self.health(now));
            }
            Command::Stop { done } => {
                self.stopping = true;
                let _ = done.send(());
            }
        }
    }

    fn health(&mut self, now: u64) -> Health {
        if now >= self.load.since + SECOND / 2 {
            self.load.measure(now);
        }
        let mut lateness = Lateness::default();
        let directions = self.directions.iter();
        directions.clone().for_each(|d| lateness.add(&d.lateness));
        let captures = directions.clone().step_by(2);
        let captures = captures.filter_map(|d| d.capture.as_ref());
        let busy = self.load.busiest;
        let too_busy = || {
            let limit = BUSY_MAX * 100.0;
            (busy > BUSY_MAX).then(|| {
                let busy = busy * 100.0;
                format!("the emulator used {busy:.0} % of a core, and {limit:.0} % is the limit")
            })
        };
        Health {
            late_p50: lateness.quantile(0.5),
            late_p99: lateness.quantile(0.99),
            late_max: lateness.max(),
            own_drops: directions.clone().map(|d| d.no_room).sum(),
            capture_lost: captures.map(|capture| capture.lost()).sum(),
            cpu: thread_cpu(),
            wall: Duration::from_nanos(now),
            busiest_second: busy,
            verdict: directions
                .clone()
                .find_map(Direction::verdict)
                .or_else(too_busy),
        }
    }
}

/// Lets the thread run promptly even while all cores are busy, and wakes it on time rather than at
/// the kernel's convenience. Neither is essential: without them, the thread is late more often, and
/// reports it.
fn prefer_this_thread() {
    use thread_priority::{
        RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
        set_thread_priority_and_policy, thread_native_id,
    };

    let _ = nix::sys::prctl::set_timerslack(1);
    if let Ok(priority) = ThreadPriorityValue::try_from(PRIORITY) {
        let _ = set_thread_priority_and_policy(
            thread_native_id(),
            ThreadPriority::Crossplatform(priority),
            ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo),
        );
    }
}

fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
