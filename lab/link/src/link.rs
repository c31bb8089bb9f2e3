//! The link: what happens to a packet, in order.

use crate::config::{Jitter, LinkConfig, LossPlace};
use crate::loss::LossProcess;
use crate::queue::{PacketQueue, Waiting, nanos};
use crate::random::{Purpose, Random};
use crate::serialiser::Serialiser;
use crate::stats::LinkStats;
use std::collections::VecDeque;

/// The number of standard deviations at which [`Jitter::Normal`] is cut off.
const NORMAL_REACH: u64 = 6;

/// A packet that has left the queue and is being transmitted.
#[derive(Debug, Clone)]
struct Outgoing<T> {
    departs: u64,
    size: u32,
    token: T,
}

/// A packet in transit.
#[derive(Debug, Clone)]
struct UnderWay<T> {
    arrives: u64,
    size: u32,
    token: T,
}

/// One direction of a link, for packets identified by `T`. All times are in nanoseconds and must
/// not decrease from one call to the next.
///
/// ```
/// use anabranch_link::{Link, LinkConfig, Rate};
/// use std::time::Duration;
///
/// let rate = Rate::bits_per_second(10_000_000).unwrap();
/// let mut link = Link::new(LinkConfig::new(rate, Duration::from_millis(5)), 1);
/// link.enqueue(0, 1250, "first");
/// link.enqueue(0, 1250, "second");
/// assert_eq!(link.deadline(), Some(6_000_000));
/// assert_eq!(link.poll(6_000_000), Some("first"));
/// assert_eq!(link.poll(6_000_000), None);
/// assert_eq!(link.poll(7_000_000), Some("second"));
/// ```
#[derive(Debug, Clone)]
pub struct Link<T> {
    config: LinkConfig,
    loss: LossProcess,
    queue: PacketQueue<T>,
    serialiser: Serialiser,
    jitter: Random,
    outgoing: Option<Outgoing<T>>,
    /// In order of arrival.
    under_way: VecDeque<UnderWay<T>>,
    /// When the last packet arrives, which no other may overtake.
    last_arrival: u64,
    stats: LinkStats,
}

impl<T> Link<T> {
    /// An empty link at time 0. The seed determines loss, jitter and early drops.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            loss: LossProcess::new(config.loss, config.loss_clock, seed),
            queue: PacketQueue::new(config.queue, seed),
            serialiser: Serialiser::new(config.rate.clone()),
            jitter: Random::new(seed, Purpose::Jitter),
            outgoing: None,
            under_way: VecDeque::new(),
            last_arrival: 0,
            stats: LinkStats::default(),
            config,
        }
    }

    /// The current configuration of the link.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Changes the link from `now` on. Packets in the queue and in transit stay; the one being
    /// transmitted continues at the new rate.
    pub fn reconfigure(&mut self, now: u64, config: LinkConfig) {
        self.advance(now);
        self.loss.change(config.loss, config.loss_clock);
        self.queue.change(config.queue);
        let (departs, size) = match &self.outgoing {
            Some(outgoing) => (outgoing.departs, Some(outgoing.size)),
            None => (now, None),
        };
        let departs = self
            .serialiser
            .change(now, config.rate.clone(), departs, size);
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.departs = departs;
        }
        self.config = config;
        self.advance(now);
    }

    /// Hands a packet of `size` bytes to the link. If the link drops the packet, now or later, it
    /// drops the token too.
    pub fn enqueue(&mut self, now: u64, size: u32, token: T) {
        self.advance(now);
        self.stats.packets_in += 1;
        self.stats.bytes_in += u64::from(size);
        if !self.config.up {
            self.stats.dropped_down += 1;
            return;
        }
        if self.config.loss_place == LossPlace::BeforeQueue && self.loss.takes(now) {
            self.stats.lost += 1;
            return;
        }
        let packet = Waiting {
            size,
            enqueued: now,
            token,
        };
        self.queue
            .push(packet, || self.serialiser.packet_time(), &mut self.stats);
        if self.outgoing.is_none() {
            self.start_next(now);
            self.advance(now);
        }
        self.stats.queue_peak_bytes = self.stats.queue_peak_bytes.max(self.queue.bytes());
    }

    /// The next packet that had arrived by `now`.
    pub fn poll(&mut self, now: u64) -> Option<T> {
        self.poll_due(now).map(|(_, token)| token)
    }

    /// The next packet that had arrived by `now`, with its time of arrival: a caller in real time
    /// learns how late it is.
    pub fn poll_due(&mut self, now: u64) -> Option<(u64, T)> {
        self.advance(now);
        if self.under_way.front()?.arrives > now {
            return None;
        }
        let packet = self.under_way.pop_front()?;
        self.stats.packets_out += 1;
        self.stats.bytes_out += u64::from(packet.size);
        Some((packet.arrives, packet.token))
    }

    /// When to poll next: no later than the next arrival. `None` if the link is empty.
    ///
    /// If the fate of a packet is not known yet, this is the earliest time at which it may arrive;
    /// polling at that time may only yield a later deadline.
    pub fn deadline(&self) -> Option<u64> {
        let front = self.under_way.front().map(|packet| packet.arrives);
        let earliest = || {
            let outgoing = self.outgoing.as_ref()?;
            Some(outgoing.departs.saturating_add(self.least_delay()))
        };
        match front {
            // Nothing can overtake it, so departures can be computed later.
            Some(front) if !self.config.reorder => Some(front),
            Some(front) => Some(earliest().map_or(front, |earliest| front.min(earliest))),
            None => earliest(),
        }
    }

    /// Totals so far. Packets that have left the queue are counted when the link is next called.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Bytes waiting in the queue, excluding the packet being transmitted.
    pub fn queued_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Packets anywhere in the link.
    pub fn len(&self) -> usize {
        self.queue.len() + usize::from(self.outgoing.is_some()) + self.under_way.len()
    }

    /// Whether the link holds no packet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets every packet leave the queue that does so by `now`.
    fn advance(&mut self, now: u64) {
        while let Some(outgoing) = self.outgoing.take_if(|outgoing| outgoing.departs <= now) {
            let at = outgoing.departs;
            self.depart(outgoing);
            self.start_next(at);
        }
    }

    fn start_next(&mut self, at: u64) {
        if let Some(packet) = self.queue.pop(at, &mut self.stats) {
            let departs = self.serialiser.finish(at, packet.size);
            self.outgoing = Some(Outgoing {
                departs,
                size: packet.size,
                token: packet.token,
            });
        }
    }

    fn depart(&mut self, outgoing: Outgoing<T>) {
        let Outgoing {
            departs,
            size,
            token,
        } = outgoing;
        if !self.config.up {
            self.stats.dropped_down += 1;
            return;
        }
        if self.config.loss_place == LossPlace::AfterQueue && self.loss.takes(departs) {
            self.stats.lost += 1;
            return;
        }
        let mut arrives = departs.saturating_add(self.draw_delay());
        if !self.config.reorder {
            arrives = arrives.max(self.last_arrival);
        }
        self.last_arrival = self.last_arrival.max(arrives);
        let packet = UnderWay {
            arrives,
            size,
            token,
        };
        if self
            .under_way
            .back()
            .is_none_or(|last| last.arrives <= arrives)
        {
            self.under_way.push_back(packet);
        } else {
            let position = self
                .under_way
                .partition_point(|other| other.arrives <= arrives);
            self.under_way.insert(position, packet);
        }
    }

    fn draw_delay(&mut self) -> u64 {
        let delay = nanos(self.config.delay);
        match self.config.jitter {
            Jitter::None => delay,
            Jitter::Uniform(spread) => {
                delay.saturating_add_signed(self.jitter.uniform(nanos(spread)))
            }
            Jitter::Normal(deviation) => {
                delay.saturating_add_signed(self.jitter.normal(nanos(deviation)))
            }
            Jitter::Stall {
                probability,
                min,
                max,
            } => {
                if !probability.happens(self.jitter.bits()) {
                    return delay;
                }
                let half = nanos(max.saturating_sub(min)) / 2;
                let middle = delay.saturating_add(nanos(min)).saturating_add(half);
                middle.saturating_add_signed(self.jitter.uniform(half))
            }
        }
    }

    /// The smallest value [`draw_delay`](Self::draw_delay) can return.
    fn least_delay(&self) -> u64 {
        let reach = match self.config.jitter {
            Jitter::None | Jitter::Stall { .. } => 0,
            Jitter::Uniform(spread) => nanos(spread),
            Jitter::Normal(deviation) => nanos(deviation).saturating_mul(NORMAL_REACH),
        };
        nanos(self.config.delay).saturating_sub(reach)
    }
}
