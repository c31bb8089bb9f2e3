//! Flows of UDP on one side, QUIC datagrams on the other.
//!
//! ```text
//! host ──> waiting, until the far end has answered ──> numbered ══any path══> Order ──> host
//! ```

use super::head::{Carried, Head};
use super::relay::{Tube, treatment};
use crate::quic::{SessionId, Sessions};
use crate::record::Histogram;
use crate::{Packet, Payload};
use anabranch_proto::Connection;
use anabranch_proto::streams::DatagramOptions;
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::cursor::Reader;
use anabranch_proto::wire::{Dir, StreamId, varint};
use anabranch_tunnel::class::Transport;
use anabranch_tunnel::{
    Classes, Delays, Delivered, NumberSize, Numbered, Numbering, Order, PathDelay, Taken, Treatment,
};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;

/// Flows of one gateway over its lifetime. What more there is goes nowhere.
const MAX_FLOWS: usize = 4096;

/// Datagrams of one flow that wait for the far end's answer, as in the product.
const MAX_WAITING: usize = 256;

/// The size of the numbers of a flow's datagrams, and the context they belong to: the first one
/// that each side may register (RFC 9298, section 4).
const SIZE: NumberSize = NumberSize::Two;
const CONTEXTS: [u64; 2] = [2, 1];

/// What the far end says when a flow's datagrams may come.
const ANSWER: &[u8] = &[0];

/// What a gateway has seen of one flow of UDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpRelayed {
    /// The host's address on this side, and the one it speaks to.
    pub ends: [SocketAddr; 2],
    /// Datagrams that the host sent.
    pub taken: u64,
    /// Datagrams dropped here: too many waited, or they were larger than every path carries.
    pub dropped: u64,
    /// Datagrams that came out of the tunnel, without repetitions.
    pub arrived: u64,
    /// Datagrams that arrived after one of a higher number.
    pub reordered: u64,
    /// Repetitions that were dropped.
    pub repeated: u64,
    /// How long datagrams waited for earlier ones, of those that did.
    pub held: Histogram,
}

impl UdpRelayed {
    fn count(&mut self, how: Taken) {
        match how {
            Taken::InTurn => self.arrived += 1,
            Taken::Reordered => {
                self.arrived += 1;
                self.reordered += 1;
            }
            Taken::Repeated => self.repeated += 1,
            Taken::Implausible => {}
        }
    }
}

#[derive(Debug)]
struct Flow {
    tube: Option<Tube>,
    /// Of the head or the answer, what the stream has not taken yet.
    pending: Bytes,
    /// What comes before the far end has answered; `None` once it has.
    waiting: Option<VecDeque<Bytes>>,
    treatment: Treatment,
    numbering: Numbering,
    order: Order<Bytes>,
    seen: UdpRelayed,
}

impl Flow {
    fn new(ends: [SocketAddr; 2], treatment: Treatment, context: u64) -> Self {
        Self {
            tube: None,
            pending: Bytes::new(),
            waiting: None,
            treatment,
            numbering: Numbering::new(context, SIZE),
            order: Order::default(),
            seen: UdpRelayed {
                ends,
                taken: 0,
                dropped: 0,
                arrived: 0,
                reordered: 0,
                repeated: 0,
                held: Histogram::default(),
            },
        }
    }

    fn connection<'a>(&self, host: &'a mut Sessions<'_>) -> Option<(&'a mut Connection, StreamId)> {
        let (session, stream) = self.tube?;
        Some((host.connection(session)?, stream))
    }

    /// Writes what is left of the head or the answer.
    fn write(&mut self, host: &mut Sessions<'_>) {
        if let Some((connection, stream)) = self.connection(host)
            && !self.pending.is_empty()
        {
            let mut pending = std::mem::take(&mut self.pending);
            // A stream that takes nothing more says so by an event.
            let _ = connection.write(stream, &mut pending);
            self.pending = pending;
        }
    }

    /// Sends a datagram, or drops it.
    fn send(&mut self, host: &mut Sessions<'_>, payload: &[u8]) {
        let deadline = host.now + self.treatment.lasts();
        let options = DatagramOptions {
            flow: 0,
            deadline: Some(deadline),
            critical: self.treatment.is_critical(),
            max_skew: self.treatment.max_skew(),
            repair: true,
            class: self.treatment.class_of_numbered(),
            tag: 0,
        };
        // A number that is not sent would be waited for.
        let mut numbering = self.numbering.clone();
        let Some((connection, stream)) = self.connection(host) else {
            self.seen.dropped += 1;
            return;
        };
        let mut datagram = Vec::with_capacity(16 + payload.len());
        varint::put(&mut datagram, stream.0 / 4);
        numbering.put_header(&mut datagram);
        datagram.extend_from_slice(payload);
        match connection.send_datagram_with(datagram.into(), options) {
            Ok(()) => self.numbering = numbering,
            Err(_) => self.seen.dropped += 1,
        }
    }

    fn pass_on(&mut self, out: &mut Vec<Delivered<Bytes>>, packets: &mut VecDeque<Packet>) {
        let [to, from] = self.seen.ends;
        for Delivered { item, held, .. } in out.drain(..) {
            if held > Duration::ZERO {
                self.seen.held.add(held, 1);
            }
            packets.push_back(Packet {
                from,
                to,
                ecn: None,
                payload: Payload::Udp(item.into()),
            });
        }
    }
}

/// The flows of UDP of a gateway.
#[derive(Debug)]
pub(super) struct Udp {
    flows: Vec<Flow>,
    /// By the host on this side and what it speaks to.
    by_ends: BTreeMap<[SocketAddr; 2], usize>,
    by_tube: BTreeMap<Tube, usize>,
    /// For the hosts on this side.
    packets: VecDeque<Packet>,
    /// What the paths take, as it was last looked at.
    delays: Delays,
}

impl Udp {
    pub(super) fn new() -> Self {
        Self {
            flows: Vec::new(),
            by_ends: BTreeMap::new(),
            by_tube: BTreeMap::new(),
            packets: VecDeque::new(),
            delays: Delays::default(),
        }
    }

    /// What was seen of each flow.
    pub(super) fn seen(&self) -> impl Iterator<Item = &UdpRelayed> {
        self.flows.iter().map(|flow| &flow.seen)
    }

    /// A datagram for the hosts on this side.
    pub(super) fn poll_packet(&mut self) -> Option<Packet> {
        self.packets.pop_front()
    }

    /// A datagram of a host on this side. The near end begins a flow with the first one, of one of
    /// its classes.
    pub(super) fn handle_packet(
        &mut self,
        host: &mut Sessions<'_>,
        ends: [SocketAddr; 2],
        payload: Bytes,
        classes: Option<&Classes>,
    ) {
        let at = match (self.by_ends.get(&ends), classes) {
            (Some(at), _) => *at,
            (None, Some(classes)) if self.flows.len() < MAX_FLOWS => self.begin(ends, classes),
            (None, _) => return,
        };
        let flow = &mut self.flows[at];
        flow.seen.taken += 1;
        match &mut flow.waiting {
            None => flow.send(host, &payload),
            Some(waiting) if waiting.len() < MAX_WAITING => waiting.push_back(payload),
            Some(_) => flow.seen.dropped += 1,
        }
    }

    fn begin(&mut self, ends: [SocketAddr; 2], classes: &Classes) -> usize {
        let treatment = treatment(classes, Transport::Udp, ends);
        let mut flow = Flow::new(ends, treatment, CONTEXTS[0]);
        flow.waiting = Some(VecDeque::new());
        self.add(flow)
    }

    fn add(&mut self, flow: Flow) -> usize {
        let at = self.flows.len();
        self.by_ends.insert(flow.seen.ends, at);
        if let Some(tube) = flow.tube {
            self.by_tube.insert(tube, at);
        }
        self.flows.push(flow);
        at
    }

    /// Opens a stream for each flow that has none yet, as far as the peer allows.
    pub(super) fn open(&mut self, host: &mut Sessions<'_>, session: SessionId) {
        if !host.is_open(session) {
            return;
        }
        for (at, flow) in self.flows.iter_mut().enumerate() {
            let SocketAddr::V4(target) = flow.seen.ends[1] else {
                continue;
            };
            // What has a stream, or has had one, needs none.
            if flow.tube.is_some() || flow.waiting.is_none() {
                continue;
            }
            let connection = host.connection(session);
            let Some(stream) = connection.and_then(|connection| connection.open(Dir::Bi)) else {
                return;
            };
            let head = Head {
                carried: Carried::Udp,
                treatment: flow.treatment,
                target,
            };
            flow.tube = Some((session, stream));
            flow.pending = head.encode().into();
            flow.write(host);
            self.by_tube.insert((session, stream), at);
        }
    }

    /// Begins a flow as the near end asks, from this address to the target, and answers.
    pub(super) fn accept(
        &mut self,
        host: &mut Sessions<'_>,
        tube: Tube,
        [target, from]: [SocketAddrV4; 2],
        treatment: Treatment,
    ) {
        if self.flows.len() >= MAX_FLOWS {
            return;
        }
        let mut flow = Flow::new([target.into(), from.into()], treatment, CONTEXTS[1]);
        flow.tube = Some(tube);
        flow.pending = Bytes::from_static(ANSWER);
        flow.write(host);
        self.add(flow);
    }

    /// Something can be read of this stream, or written to it; returns whether it is of a flow.
    pub(super) fn on_stream(&mut self, host: &mut Sessions<'_>, tube: Tube) -> bool {
        let Some(at) = self.by_tube.get(&tube) else {
            return false;
        };
        let flow = &mut self.flows[*at];
        flow.write(host);
        if flow.waiting.is_some()
            && let Ok(Some(_)) = host.read(tube.0, tube.1, ANSWER.len())
        {
            for payload in flow.waiting.take().into_iter().flatten() {
                flow.send(host, &payload);
            }
        }
        true
    }

    /// Reads the datagrams that a session has received.
    pub(super) fn receive(&mut self, host: &mut Sessions<'_>, session: SessionId) {
        let now = host.now;
        let (mut touched, mut out) = (Vec::new(), Vec::new());
        while let Some(received) = host.connection(session).and_then(Connection::recv_datagram) {
            let mut reader = Reader::new(&received.data);
            let Ok(quarter) = reader.varint() else {
                continue;
            };
            let rest = reader.rest();
            // Those for flows that have ended, or not begun, are dropped.
            let tube = (session, StreamId(quarter.saturating_mul(4)));
            let Some(at) = self.by_tube.get(&tube).copied() else {
                continue;
            };
            let Ok(numbered) = Numbered::decode(rest, SIZE) else {
                continue;
            };
            let flow = &mut self.flows[at];
            let payload = received.data.slice_ref(numbered.payload);
            let from = (numbered.context, Some(received.path));
            let truncated = (numbered.truncated, SIZE);
            let how = flow.order.take(
                now,
                flow.treatment.grace(true),
                from,
                truncated,
                payload,
                &mut out,
            );
            flow.seen.count(how);
            flow.pass_on(&mut out, &mut self.packets);
            if !touched.contains(&at) {
                touched.push(at);
            }
        }
        if touched.is_empty() {
            return;
        }
        let delays = self.delays(host, session);
        for at in touched {
            let flow = &mut self.flows[at];
            flow.order.set_delays(now, Arc::clone(&delays), &mut out);
            flow.pass_on(&mut out, &mut self.packets);
        }
    }

    /// The delays of the paths in use, measured now or a moment ago.
    fn delays(&mut self, host: &mut Sessions<'_>, session: SessionId) -> Arc<[PathDelay]> {
        self.delays.at(host.now, || {
            let Some(connection) = host.connection(session) else {
                return Vec::new();
            };
            let ids = connection.paths();
            let stats = ids.filter_map(|id| Some((id, connection.path_stats(id)?)));
            stats.collect()
        })
    }

    /// Passes on what has waited long enough.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let mut out = Vec::new();
        for flow in &mut self.flows {
            flow.order.give_up(now, &mut out);
            flow.pass_on(&mut out, &mut self.packets);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.flows
            .iter()
            .filter_map(|flow| flow.order.deadline())
            .min()
    }

    /// A session is over: so are the flows that it carried.
    pub(super) fn give_up(&mut self, session: SessionId) {
        for flow in &mut self.flows {
            if flow.tube.is_some_and(|(own, _)| own == session) {
                self.by_ends.remove(&flow.seen.ends);
                flow.tube = None;
                flow.waiting = None;
            }
        }
        self.by_tube.retain(|(own, _), _| *own != session);
    }
}
