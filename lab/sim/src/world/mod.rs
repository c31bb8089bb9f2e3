//! The network itself: nodes, links, and one ordered queue of events.
//!
//! ```text
//! process --poll_packet--> emit: the interface that has the packet's source address
//!                            -> link (queue, rate, loss, delay) -> arrive
//! arrive at a host      -> the process bound to that port, or the host's default process
//! arrive at a router    -> shortest route to the address -> link -> ..
//! arrive at a NAT       -> translated, then as at a router
//! ```
//!
//! Simultaneous events happen in the order they were submitted. A process is drained after each
//! input and then sleeps until exactly the time it asked for.

mod change;
mod nat;
mod network;
mod queue;
#[cfg(test)]
mod tests;
mod trace;

pub use change::{Change, Directions, Fade, LinkChange};

use crate::seed::Seed;
use crate::{Buffers, Packet, Payload, Process};
use anabranch_link::{LinkConfig, LinkStats};
use anabranch_proto::time::Instant;
use network::{Network, Traveller};
use queue::{Happening, Queue};
use std::any::Any;
use std::fmt::{self, Display};
use std::net::IpAddr;
use trace::{Ends, Fate, Trace};

/// The most packets one process may send, and the most times it may be woken, without time passing.
/// A process that exceeds this would never stop.
const MAX_AT_ONCE: u32 = 1_000_000;

/// The most events without time passing: over links without rate and delay, processes that answer
/// each other would never stop.
const MAX_EVENTS_AT_ONCE: u32 = 10_000_000;

/// Identifies a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// Identifies a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u32);

/// Identifies a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(u32);

impl Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}

/// What a node does with packets that are not addressed to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Nothing; it only delivers its own packets to its processes. It may have any number of
    /// interfaces.
    Host,
    /// It forwards packets along the shortest route.
    Router,
    /// It forwards packets like a router, and the nodes inside share its address on the outside,
    /// which is the first link made with the NAT as its near end. Only UDP passes.
    Nat,
    /// It hands packets to its process, which may itself send packets with foreign addresses: those
    /// take the shortest route. A packet handed to the process counts as delivered.
    Gateway,
}

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the end named first to the other.
    Forward,
    /// From the other end to the one named first.
    Backward,
}

/// What passed from one address to another, as the sender addressed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowStats {
    /// Packets that processes sent.
    pub packets_sent: u64,
    /// Their bytes, including IP headers.
    pub bytes_sent: u64,
    /// Packets that reached a process.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The sum of their one-way delays, in nanoseconds.
    pub delay_total_ns: u64,
    /// The longest of these delays.
    pub delay_max_ns: u64,
}

#[derive(Debug)]
struct Flow {
    from: IpAddr,
    to: IpAddr,
    stats: FlowStats,
}

#[derive(Debug)]
struct Attached {
    node: NodeId,
    process: Box<dyn Process>,
    /// When it wants to be woken.
    wanted: Option<Instant>,
    /// The time of the earliest event queued for it.
    armed: Option<Instant>,
    /// The flow it used last.
    flow: u32,
    /// The time it was last woken, and how often at that time.
    wakes: (Instant, u32),
    stats: FlowStats,
}

/// A network, what runs in it, and its time.
///
/// Every round trip needs a link with a rate or a delay. Otherwise processes that answer each other
/// would do so forever within one instant; the world panics after ten million events without time
/// passing.
#[derive(Debug)]
pub struct World {
    seed: Seed,
    now: Instant,
    queue: Queue,
    network: Network,
    processes: Vec<Attached>,
    /// Processes that may have been changed from outside.
    touched: Vec<u32>,
    script: Vec<Option<Change>>,
    flows: Vec<Flow>,
    buffers: Buffers,
    /// The boxes of packets that have arrived, for reuse: no more than were in transit at a time.
    #[allow(clippy::vec_box, reason = "the boxes are what is kept")]
    spare: Vec<Box<Traveller>>,
    trace: Trace,
    unroutable: u64,
    events: u64,
    /// How many of these events happened since time last advanced.
    at_once: u32,
}

impl World {
    /// An empty world at time 0. All its randomness follows from the seed.
    pub fn new(seed: u64) -> Self {
        Self {
            seed: Seed(seed),
            now: Instant::ZERO,
            queue: Queue::default(),
            network: Network::default(),
            processes: Vec::new(),
            touched: Vec::new(),
            script: Vec::new(),
            flows: Vec::new(),
            buffers: Buffers::default(),
            spare: Vec::new(),
            trace: Trace::default(),
            unroutable: 0,
            events: 0,
            at_once: 0,
        }
    }

    /// The seed, to derive others from.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Adds a node.
    pub fn add_node(&mut self, kind: NodeKind) -> NodeId {
        self.network.add_node(kind)
    }

    /// Connects two nodes. Each gets an interface with an address of its own. Loss, jitter and
    /// early drops of the link depend on the world's seed and on how many links there were before.
    pub fn connect(
        &mut self,
        near: NodeId,
        far: NodeId,
        forward: LinkConfig,
        backward: LinkConfig,
    ) -> LinkId {
        self.network
            .connect(self.seed, [near, far], [forward, backward])
    }

    /// The address of a node on a link.
    ///
    /// # Panics
    /// If the node is not an end of the link.
    pub fn address(&self, node: NodeId, link: LinkId) -> IpAddr {
        self.network.interface(node, link).address
    }

    /// The links of a node, in the order they were created.
    pub fn links_of(&self, node: NodeId) -> impl Iterator<Item = LinkId> + '_ {
        let interfaces = self.network.nodes[node.0 as usize].interfaces.iter();
        interfaces.map(|interface| interface.link)
    }

    /// Puts a process on a node. It receives all packets to the node for which no other process is
    /// [bound](Self::bind), and starts with the next step.
    pub fn attach(&mut self, node: NodeId, process: Box<dyn Process>) -> ProcessId {
        let id = self.add_process(node, process);
        self.network.nodes[node.0 as usize].process = Some(id.0);
        id
    }

    /// Puts a process on a node. It receives the packets to this port.
    pub fn attach_at(&mut self, node: NodeId, port: u16, process: Box<dyn Process>) -> ProcessId {
        let id = self.add_process(node, process);
        self.bind(id, port);
        id
    }

    /// Also gives a process the packets to another port of its node.
    pub fn bind(&mut self, process: ProcessId, port: u16) {
        let node = self.processes[process.0 as usize].node;
        self.network.nodes[node.0 as usize]
            .bound
            .push((port, process.0));
    }

    fn add_process(&mut self, node: NodeId, process: Box<dyn Process>) -> ProcessId {
        let id = self.processes.len() as u32;
        self.processes.push(Attached {
            node,
            process,
            wanted: None,
            armed: None,
            flow: 0,
            wakes: (Instant::ZERO, 0),
            stats: FlowStats::default(),
        });
        self.touched.push(id);
        ProcessId(id)
    }

    /// A process, read-only.
    ///
    /// # Panics
    /// If it is of another type.
    pub fn process<T: Process>(&self, id: ProcessId) -> &T {
        let process: &dyn Any = &*self.processes[id.0 as usize].process;
        process.downcast_ref().expect("a process of this type")
    }

    /// A process, mutable. What it has to send is sent in the next step.
    ///
    /// # Panics
    /// If it is of another type.
    pub fn process_mut<T: Process>(&mut self, id: ProcessId) -> &mut T {
        if !self.touched.contains(&id.0) {
            self.touched.push(id.0);
        }
        let process: &mut dyn Any = &mut *self.processes[id.0 as usize].process;
        process.downcast_mut().expect("a process of this type")
    }

    /// Schedules a change, or applies it in the next step if the time is past.
    pub fn at(&mut self, time: Instant, change: Change) {
        self.queue.push(
            time.max(self.now),
            Happening::Change(self.script.len() as u32),
        );
        self.script.push(Some(change));
    }

    /// Schedules several changes.
    pub fn script(&mut self, changes: impl IntoIterator<Item = (Instant, Change)>) {
        for (time, change) in changes {
            self.at(time, change);
        }
    }

    /// The current time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Handles the next event; `false` if there is none.
    pub fn step(&mut self) -> bool {
        self.step_before(Instant::FAR_FUTURE)
    }

    /// Handles all events until `end`, which is then the current time.
    pub fn run_until(&mut self, end: Instant) {
        while self.step_before(end) {}
        self.now = self.now.max(end);
    }

    /// Handles events while the condition holds and there are any. Returns whether the condition
    /// ceased to hold.
    pub fn run_while(&mut self, mut condition: impl FnMut(&Self) -> bool) -> bool {
        while condition(self) {
            if !self.step() {
                return !condition(self);
            }
        }
        true
    }

    /// Like [`Self::run_while`], but not beyond `end`.
    pub fn run_while_until(
        &mut self,
        end: Instant,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> bool {
        while condition(self) {
            if !self.step_before(end) {
                self.now = self.now.max(end);
                return !condition(self);
            }
        }
        true
    }

    /// Handles the next event if it is not after `end`.
    pub fn step_before(&mut self, end: Instant) -> bool {
        if !self.touched.is_empty() {
            for process in std::mem::take(&mut self.touched) {
                self.drain(process);
            }
        }
        if self.queue.next_time().is_none_or(|at| at > end) {
            return false;
        }
        let Some((at, happening)) = self.queue.pop() else {
            return false;
        };
        debug_assert!(at >= self.now, "time goes forward");
        self.at_once = if at == self.now { self.at_once + 1 } else { 0 };
        assert!(
            self.at_once < MAX_EVENTS_AT_ONCE,
            "at {at} packets go to and fro without time passing: a way there and back needs a rate \
             or a delay"
        );
        self.now = at;
        self.events += 1;
        match happening {
            Happening::Line(index) => self.poll_line(index),
            Happening::Wake(process) => self.wake(process),
            Happening::Change(entry) => {
                if let Some(change) = self.script[entry as usize].take() {
                    self.apply(change);
                }
            }
        }
        true
    }

    /// What one direction of a link has done so far.
    pub fn link_stats(&self, link: LinkId, direction: Direction) -> LinkStats {
        self.network.line(link, direction).link.stats()
    }

    /// The current configuration of one direction of a link.
    pub fn link_config(&self, link: LinkId, direction: Direction) -> &LinkConfig {
        self.network.line(link, direction).link.config()
    }

    /// Bytes queued in one direction of a link.
    pub fn queued_bytes(&self, link: LinkId, direction: Direction) -> u64 {
        self.network.line(link, direction).link.queued_bytes()
    }

    /// The links between two addresses of hosts, in order, with the direction in which each is
    /// crossed. If `to` is the outer address of a NAT, the route continues to the host behind it
    /// that last spoke to `from`. Empty if there is no route.
    pub fn way(&mut self, from: IpAddr, to: IpAddr) -> Vec<(LinkId, Direction)> {
        let count = self.network.nodes.len() as u32;
        let owner = (0..count).find(|node| self.network.nodes[*node as usize].owns(from));
        let Some(start) = owner.map(NodeId) else {
            return Vec::new();
        };
        let mut way = Vec::new();
        let mut to = to;
        let mut line = self.network.first_line(start, from);
        while let Some(index) = line {
            let direction = match index % 2 {
                0 => Direction::Forward,
                _ => Direction::Backward,
            };
            way.push((LinkId(index / 2), direction));
            let node = self.network.lines[index as usize].to;
            let here = &self.network.nodes[node.0 as usize];
            if here.owns(to) {
                let inside = match here.kind {
                    NodeKind::Nat => here.nat.inside_of(from),
                    _ => None,
                };
                // A NAT without a matching host inside is where packets end.
                let Some(inside) = inside.filter(|inside| !here.owns(*inside)) else {
                    return way;
                };
                to = inside;
            }
            if self.network.nodes[node.0 as usize].kind == NodeKind::Host {
                return Vec::new();
            }
            line = self.network.next_line(node, to);
        }
        Vec::new()
    }

    /// What passed between two addresses, as the sender addressed it.
    pub fn flow_stats(&self, from: IpAddr, to: IpAddr) -> FlowStats {
        let flow = self.flows.iter().find(|f| f.from == from && f.to == to);
        flow.map(|flow| flow.stats).unwrap_or_default()
    }

    /// What a process sent and what reached it, summed over all its peers.
    pub fn process_stats(&self, id: ProcessId) -> FlowStats {
        self.processes[id.0 as usize].stats
    }

    /// Packets that had no receiver or no route.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// A hash of everything that was sent, carried, delivered and dropped, and when. Equal worlds
    /// have equal hashes.
    pub fn trace_hash(&self) -> u64 {
        let mut trace = self.trace;
        for line in &self.network.lines {
            let stats = line.link.stats();
            for count in [stats.packets_in, stats.packets_out, stats.dropped()] {
                trace.mix(count);
            }
        }
        trace.value()
    }

    fn wake(&mut self, id: u32) {
        let now = self.now;
        let attached = &mut self.processes[id as usize];
        if attached.armed != Some(now) {
            return;
        }
        attached.armed = None;
        if attached.wanted.is_some_and(|wanted| wanted <= now) {
            let count = &mut attached.wakes;
            *count = (now, if count.0 == now { count.1 + 1 } else { 0 });
            assert!(
                count.1 < MAX_AT_ONCE,
                "at {now} a process wants to be woken again and again: {:?}",
                attached.process
            );
            attached.process.handle_timeout(now);
            self.drain(id);
        } else {
            self.arm_process(id);
        }
    }

    /// Sends what a process has to send, and records when it wants to be woken.
    fn drain(&mut self, id: u32) {
        self.exchange_buffers(id);
        self.collect(id);
        self.exchange_buffers(id);
        self.arm_process(id);
    }

    /// Lends a process the buffers, or takes them back.
    fn exchange_buffers(&mut self, id: u32) {
        let process = &mut self.processes[id as usize].process;
        process.exchange_buffers(&mut self.buffers);
    }

    fn collect(&mut self, id: u32) {
        let now = self.now;
        let mut sent = 0;
        loop {
            let attached = &mut self.processes[id as usize];
            let Some(packet) = attached.process.poll_packet(now) else {
                attached.wanted = attached.process.next_timeout();
                return;
            };
            sent += 1;
            assert!(
                sent < MAX_AT_ONCE,
                "at {now} a process sends without end: {:?}",
                attached.process
            );
            self.emit(id, packet);
        }
    }

    fn arm_process(&mut self, id: u32) {
        let attached = &mut self.processes[id as usize];
        let Some(wanted) = attached.wanted else {
            return;
        };
        let wanted = wanted.max(self.now);
        if attached.armed.is_none_or(|armed| wanted < armed) {
            attached.armed = Some(wanted);
            self.queue.push(wanted, Happening::Wake(id));
        }
    }

    /// Sends a packet on behalf of a process.
    fn emit(&mut self, id: u32, packet: Packet) {
        let node = self.processes[id as usize].node;
        let ends = Ends::of(&packet);
        self.trace.note(self.now, Fate::Sent, id, &packet, ends);
        let flow = self.flow(id, &packet);
        let own = &mut self.processes[id as usize].stats;
        for stats in [&mut self.flows[flow as usize].stats, own] {
            stats.packets_sent += 1;
            stats.bytes_sent += u64::from(packet.size());
        }
        let mut line = self.network.first_line(node, packet.from.ip());
        if line.is_none() && self.network.nodes[node.0 as usize].kind == NodeKind::Gateway {
            line = self.network.next_line(node, packet.to.ip());
        }
        match line {
            Some(line) => {
                let sent = self.now;
                let new = Traveller {
                    packet,
                    ends,
                    sent,
                    flow,
                };
                let traveller = match self.spare.pop() {
                    Some(mut spare) => {
                        *spare = new;
                        spare
                    }
                    None => Box::new(new),
                };
                self.enqueue(line, traveller);
            }
            None => self.lose(node, &packet),
        }
    }

    fn flow(&mut self, id: u32, packet: &Packet) -> u32 {
        let (from, to) = (packet.from.ip(), packet.to.ip());
        let is_it = |flow: &Flow| flow.to == to && flow.from == from;
        let recent = self.processes[id as usize].flow;
        if self.flows.get(recent as usize).is_some_and(is_it) {
            return recent;
        }
        let found = self.flows.iter().position(is_it).unwrap_or_else(|| {
            let stats = FlowStats::default();
            self.flows.push(Flow { from, to, stats });
            self.flows.len() - 1
        }) as u32;
        self.processes[id as usize].flow = found;
        found
    }

    fn enqueue(&mut self, index: u32, traveller: Box<Traveller>) {
        let line = &mut self.network.lines[index as usize];
        let size = traveller.packet.size();
        line.link.enqueue(self.now.as_nanos(), size, traveller);
        self.arm_line(index);
    }

    fn arm_line(&mut self, index: u32) {
        let line = &mut self.network.lines[index as usize];
        let Some(deadline) = line.link.deadline() else {
            return;
        };
        let deadline = Instant::from_nanos(deadline).max(self.now);
        if line.armed.is_none_or(|armed| deadline < armed) {
            line.armed = Some(deadline);
            self.queue.push(deadline, Happening::Line(index));
        }
    }

    fn poll_line(&mut self, index: u32) {
        let now = self.now;
        if self.network.lines[index as usize].armed != Some(now) {
            return;
        }
        self.network.lines[index as usize].armed = None;
        loop {
            let line = &mut self.network.lines[index as usize];
            let Some(traveller) = line.link.poll(now.as_nanos()) else {
                break;
            };
            let node = line.to;
            let (packet, ends) = (&traveller.packet, traveller.ends);
            self.trace.note(now, Fate::Carried, index, packet, ends);
            self.arrive(node, index, traveller);
        }
        self.arm_line(index);
    }

    /// Handles a packet that came out of a link.
    fn arrive(&mut self, node: NodeId, line: u32, mut traveller: Box<Traveller>) {
        let kind = self.network.nodes[node.0 as usize].kind;
        if kind == NodeKind::Nat {
            if !self.translate(node, line, &mut traveller.packet) {
                return self.lose(node, &traveller.packet);
            }
            traveller.ends = Ends::of(&traveller.packet);
        }
        let here = &self.network.nodes[node.0 as usize];
        let to = traveller.packet.to;
        if here.owns(to.ip()) {
            return match here.receiver(to.port()) {
                Some(process) => self.deliver(process, traveller),
                None => self.lose(node, &traveller.packet),
            };
        }
        let next = match kind {
            NodeKind::Host => None,
            NodeKind::Gateway => {
                return match self.network.nodes[node.0 as usize].process {
                    Some(process) => self.deliver(process, traveller),
                    None => self.lose(node, &traveller.packet),
                };
            }
            NodeKind::Router | NodeKind::Nat => self.network.next_line(node, to.ip()),
        };
        match next {
            Some(line) => self.enqueue(line, traveller),
            None => self.lose(node, &traveller.packet),
        }
    }

    fn translate(&mut self, node: NodeId, line: u32, packet: &mut Packet) -> bool {
        let Some(outside) = self.network.outside(node) else {
            return true;
        };
        let (outer, out) = (outside.address, outside.out);
        let from_outside = out ^ 1 == line;
        let leaves = self.network.next_line(node, packet.to.ip()) == Some(out);
        let nat = &mut self.network.nodes[node.0 as usize].nat;
        match (from_outside, packet.to.ip() == outer, leaves) {
            (true, true, _) => nat.translate_in(self.now, packet),
            (true, false, _) => false,
            (false, _, true) => nat.translate_out(self.now, outer, packet),
            (false, _, false) => true,
        }
    }

    fn deliver(&mut self, id: u32, mut traveller: Box<Traveller>) {
        let Traveller {
            ends, sent, flow, ..
        } = *traveller;
        let nothing = Payload::Filler(0);
        let payload = std::mem::replace(&mut traveller.packet.payload, nothing);
        let packet = Packet {
            payload,
            ..traveller.packet
        };
        self.spare.push(traveller);
        self.trace
            .note(self.now, Fate::Delivered, id, &packet, ends);
        let delay = self.now.since(sent).as_nanos() as u64;
        let own = &mut self.processes[id as usize].stats;
        for stats in [&mut self.flows[flow as usize].stats, own] {
            stats.packets += 1;
            stats.bytes += u64::from(packet.size());
            stats.delay_total_ns += delay;
            stats.delay_max_ns = stats.delay_max_ns.max(delay);
        }
        let now = self.now;
        let process = &mut self.processes[id as usize].process;
        process.exchange_buffers(&mut self.buffers);
        process.handle_packet(now, packet);
        self.collect(id);
        self.exchange_buffers(id);
        self.arm_process(id);
    }

    #[cold]
    fn lose(&mut self, node: NodeId, packet: &Packet) {
        let ends = Ends::of(packet);
        self.trace
            .note(self.now, Fate::Dropped, node.0, packet, ends);
        self.unroutable += 1;
    }
}
