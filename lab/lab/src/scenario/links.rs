//! One direction of a link, as a file describes it.

use super::mistake::Mistake;
use super::quantity::Dimension;
use super::reader::{Item, Table};
use anabranch_link::{
    CoDel, GilbertElliott, Jitter, LinkConfig, Loss, LossClock, LossPlace, Probability, Queue,
    Rate, Red, Trace,
};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a full packet with its IP header, by which queues in packets and loss slots are
/// converted.
pub const FULL_PACKET: u64 = 1500;

/// What a queue holds by default: this much time at the link's rate.
const DEFAULT_QUEUE: Duration = Duration::from_millis(100);

/// One direction of a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// The link model's parameters, apart from those that a seed decides.
    pub link: LinkConfig,
    /// A cellular link with a varying rate; each run's seed turns it into a trace.
    pub cellular: Option<Cellular>,
}

/// A link whose rate is drawn for each slot and which stalls now and then. This is how link-layer
/// retransmission on 3G appears to higher layers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cellular {
    /// How long each rate holds.
    pub slot: Duration,
    /// Lowest and highest rate, in bits per second; each slot's rate is drawn uniformly between
    /// them.
    pub rate: (u64, u64),
    /// The share of packets that stall and delay those behind them.
    pub stall: f64,
    /// Shortest and longest stall.
    pub stall_time: (Duration, Duration),
}

impl Direction {
    /// A link without limits.
    pub fn wire() -> Self {
        Self {
            link: LinkConfig::default(),
            cellular: None,
        }
    }

    /// The rate in bits per second; `None` if it is unlimited.
    pub fn rate(&self) -> Option<u64> {
        if let Some(cellular) = &self.cellular {
            return Some(u64::midpoint(cellular.rate.0, cellular.rate.1));
        }
        match &self.link.rate {
            Rate::Unlimited => None,
            Rate::Fixed {
                bits_per_second, ..
            } => Some(bits_per_second.get()),
            Rate::Trace(trace) => Some(trace.mean_rate()),
        }
    }

    /// Whether any of its behaviour is random.
    pub fn is_random(&self) -> bool {
        self.cellular.is_some()
            || self.link.loss != Loss::None
            || self.link.jitter != Jitter::None
            || matches!(self.link.queue, Queue::Red(_))
    }
}

/// Settings as they stand in the file, before those that depend on others are resolved.
#[derive(Debug, Clone, Default, PartialEq)]
struct Raw {
    rate: Option<u64>,
    burst: Option<u64>,
    trace: Option<Arc<Trace>>,
    cellular: Option<Cellular>,
    delay: Option<Duration>,
    jitter: Option<(Jitter, bool)>,
    loss: Option<RawLoss>,
    place: Option<LossPlace>,
    slot_loss: Option<bool>,
    queue: Option<RawQueue>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RawLoss {
    None,
    Independent(f64),
    Model(GilbertElliott),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RawQueue {
    Time(Duration),
    Bytes(u64),
    Packets(u64),
    CoDel(CoDel),
    Red(Red),
}

/// Reads `forward` and `backward` of a path or link. A direction may be `like` the other one, with
/// differences. A direction that is not described has no limits.
pub(super) fn directions(table: &mut Table<'_>) -> Result<(Direction, Direction), Mistake> {
    let forward = table.item("forward");
    let backward = table.item("backward");
    let read = |item: &Option<Item<'_>>, name: &str, other: &Option<Item<'_>>, its_name: &str| {
        let Some(item) = item else {
            return Ok(Direction::wire());
        };
        let mut fields = item.table()?;
        let like = fields.read("like", |item| item.word(&[(its_name, ())]))?;
        let mut raw = Raw::default();
        if like.is_some() {
            let missing = || item.mistake(format!("there is no `{its_name}` to be like"));
            let mut base = other.as_ref().ok_or_else(missing)?.table()?;
            if base
                .read("like", |item| item.word(&[(name, ())]))?
                .is_some()
            {
                return Err(item.mistake("both directions are like the other"));
            }
            raw.read(&mut base)?;
        }
        raw.read(&mut fields)?;
        fields.finish()?;
        raw.finish(item)
    };
    let first = read(&forward, "forward", &backward, "backward")?;
    let second = read(&backward, "backward", &forward, "forward")?;
    Ok((first, second))
}

/// Reads an event's changes to a direction.
pub(super) fn change(item: &Item<'_>) -> Result<Change, Mistake> {
    let mut fields = item.table()?;
    let mut raw = Raw::default();
    raw.read(&mut fields)?;
    fields.finish()?;
    if raw.cellular.is_some() || raw.trace.is_some() {
        return Err(item.mistake("an event cannot start a trace: give the link one from the start"));
    }
    if raw.burst.is_some() && raw.rate.is_none() {
        return Err(item.mistake("a burst needs a rate"));
    }
    if raw == Raw::default() {
        return Err(item.mistake("expected at least one property of the link, such as rate"));
    }
    Ok(Change(raw))
}

/// An event's change to a direction: only the settings it names, and those that follow from them.
#[derive(Debug, Clone, PartialEq)]
pub struct Change(Raw);

impl Change {
    /// A change of the rate alone, in bits per second.
    pub(super) fn to_rate(rate: u64) -> Self {
        Self(Raw {
            rate: Some(rate),
            ..Raw::default()
        })
    }

    /// The rate it sets, if any.
    pub(super) fn rate(&self) -> Option<u64> {
        self.0.rate
    }

    /// The delay it sets, if any.
    pub(super) fn delay(&self) -> Option<Duration> {
        self.0.delay
    }

    /// Why it makes no sense on a link without a rate; `None` if it does.
    pub(super) fn misses_a_rate(&self) -> Option<&'static str> {
        let raw = &self.0;
        if matches!(raw.queue, Some(RawQueue::Time(_))) {
            Some("a queue given as a time needs a rate to be turned into bytes")
        } else if raw.slot_loss == Some(true) {
            Some("a slot of loss lasts as long as a packet: the link has no rate to tell that by")
        } else {
            None
        }
    }

    /// Applies the change to `direction`. If only the rate changes, the token bucket keeps its
    /// burst, and a loss slot becomes the time of a full packet at the new rate.
    pub fn applied_to(&self, direction: &LinkConfig) -> LinkConfig {
        let mut link = direction.clone();
        let raw = &self.0;
        let (before, kept) = match &link.rate {
            Rate::Fixed {
                bits_per_second,
                burst,
            } => (Some(*bits_per_second), *burst),
            Rate::Trace(trace) => (NonZeroU64::new(trace.mean_rate()), 0),
            Rate::Unlimited => (None, 0),
        };
        let rate = raw.rate.and_then(NonZeroU64::new).or(before);
        if let Some(bits_per_second) = raw.rate.and_then(NonZeroU64::new) {
            link.rate = Rate::Fixed {
                bits_per_second,
                burst: raw.burst.map_or(kept, |burst| burst.min(1 << 30) as u32),
            };
        }
        if let Some(delay) = raw.delay {
            link.delay = delay;
        }
        if let Some((jitter, reorder)) = raw.jitter {
            (link.jitter, link.reorder) = (jitter, reorder);
        }
        if let Some(loss) = raw.loss {
            link.loss = loss.model();
        }
        if let Some(place) = raw.place {
            link.loss_place = place;
        }
        let was_slot = matches!(link.loss_clock, LossClock::Slot(_));
        match (raw.slot_loss, rate) {
            (Some(false), _) => link.loss_clock = LossClock::Packet,
            (None, Some(rate)) if was_slot && raw.rate.is_some() => link.loss_clock = slot_of(rate),
            (Some(true), Some(rate)) => link.loss_clock = slot_of(rate),
            _ => {}
        }
        if let Some(queue) = raw.queue {
            link.queue = queue.sized(rate.map(NonZeroU64::get)).unwrap_or(link.queue);
        }
        link
    }
}

/// Loss slots that last as long as a full packet takes at this rate.
fn slot_of(rate: NonZeroU64) -> LossClock {
    let slot = FULL_PACKET * 8 * 1_000_000_000 / rate;
    NonZeroU64::new(slot).map_or(LossClock::Packet, LossClock::Slot)
}

impl Raw {
    fn read(&mut self, table: &mut Table<'_>) -> Result<(), Mistake> {
        set(&mut self.rate, table.read("rate", Item::rate)?);
        set(&mut self.burst, table.read("burst", Item::size)?);
        set(&mut self.trace, table.read("trace", trace)?);
        set(&mut self.cellular, table.read("cellular", cellular)?);
        set(&mut self.delay, table.read("delay", Item::time)?);
        set(&mut self.jitter, table.read("jitter", jitter)?);
        set(&mut self.loss, table.read("loss", loss)?);
        let places = [
            ("before-queue", LossPlace::BeforeQueue),
            ("after-queue", LossPlace::AfterQueue),
        ];
        set(
            &mut self.place,
            table.read("loss-place", |item| item.word(&places))?,
        );
        let clocks = [("packet", false), ("slot", true)];
        set(
            &mut self.slot_loss,
            table.read("loss-per", |item| item.word(&clocks))?,
        );
        set(&mut self.queue, table.read("queue", queue)?);
        Ok(())
    }

    fn finish(self, item: &Item<'_>) -> Result<Direction, Mistake> {
        let ways = [
            self.rate.is_some(),
            self.trace.is_some(),
            self.cellular.is_some(),
        ];
        if ways.iter().filter(|way| **way).count() > 1 {
            return Err(item.mistake("expected one of rate, trace and cellular"));
        }
        if self.burst.is_some() && self.rate.is_none() {
            return Err(item.mistake("a burst needs a rate"));
        }
        let stalls = self.cellular.as_ref();
        if stalls.is_some_and(|cellular| cellular.stall > 0.0) && self.jitter.is_some() {
            return Err(item.mistake("expected one of jitter and stall"));
        }
        let mut direction = Direction::wire();
        direction.cellular = self.cellular;
        let link = &mut direction.link;
        if let Some(bits_per_second) = self.rate.and_then(NonZeroU64::new) {
            let burst = self.burst.unwrap_or(0).min(1 << 30) as u32;
            link.rate = Rate::Fixed {
                bits_per_second,
                burst,
            };
        }
        if let Some(trace) = self.trace {
            link.rate = Rate::Trace(trace);
        }
        link.delay = self.delay.unwrap_or_default();
        (link.jitter, link.reorder) = self.jitter.unwrap_or((Jitter::None, false));
        link.loss = self.loss.map_or(Loss::None, RawLoss::model);
        link.loss_place = self.place.unwrap_or(LossPlace::AfterQueue);
        let rate = direction.rate();
        let link = &mut direction.link;
        match (self.queue, rate) {
            (Some(queue), rate) => {
                let sized = queue.sized(rate);
                let missing = "a queue given as a time needs a rate to be turned into bytes";
                link.queue = sized.ok_or_else(|| item.mistake(missing))?;
            }
            (None, Some(_)) => {
                link.queue = RawQueue::Time(DEFAULT_QUEUE)
                    .sized(rate)
                    .unwrap_or(link.queue);
            }
            (None, None) => {}
        }
        // Losses drawn per time slot are the same for every contender, however many packets it
        // sends.
        if let (true, Some(rate)) = (
            self.slot_loss.unwrap_or(true),
            rate.and_then(NonZeroU64::new),
        ) {
            link.loss_clock = slot_of(rate);
        }
        Ok(direction)
    }
}

fn set<T>(slot: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *slot = value;
    }
}

impl RawLoss {
    fn model(self) -> Loss {
        match self {
            Self::None => Loss::None,
            Self::Independent(share) => {
                Probability::new(share).map_or(Loss::None, Loss::Independent)
            }
            Self::Model(model) => Loss::GilbertElliott(model),
        }
    }
}

impl RawQueue {
    fn sized(self, rate: Option<u64>) -> Option<Queue> {
        Some(match self {
            Self::Time(time) => {
                let bytes = u128::from(rate?) * time.as_nanos() / 8_000_000_000;
                // With less than a packet nothing could wait, which nobody intends.
                Queue::TailDropBytes((bytes as u64).max(FULL_PACKET))
            }
            Self::Bytes(bytes) => Queue::TailDropBytes(bytes),
            Self::Packets(packets) => Queue::TailDropPackets(packets),
            Self::CoDel(codel) => Queue::CoDel(codel),
            Self::Red(red) => Queue::Red(red),
        })
    }
}

fn trace(item: &Item<'_>) -> Result<Arc<Trace>, Mistake> {
    let (path, text) = super::beside::read(item, "trace")?;
    let trace = Trace::parse(&text);
    let trace = trace.map_err(|error| item.mistake(format!("{}: {error}", path.display())))?;
    Ok(Arc::new(trace))
}

fn cellular(item: &Item<'_>) -> Result<Cellular, Mistake> {
    let mut table = item.table()?;
    let slot = table.required("slot", "how long a rate holds")?.time()?;
    let rate = pair(
        &table.required("rate", "the lowest and the highest rate")?,
        Item::rate,
    )?;
    let stall = table.read("stall", Item::share)?.unwrap_or(0.0);
    let stall_time = table.read("stall-time", |item| pair(item, Item::time))?;
    table.finish()?;
    if slot < Duration::from_millis(1) {
        return Err(item.mistake("a slot lasts at least 1ms"));
    }
    Ok(Cellular {
        slot,
        rate,
        stall,
        stall_time: stall_time.unwrap_or_default(),
    })
}

/// Two values, the smaller one first.
pub(super) fn pair<'a, T: PartialOrd>(
    item: &Item<'a>,
    read: impl Fn(&Item<'a>) -> Result<T, Mistake>,
) -> Result<(T, T), Mistake> {
    let items = item.list();
    let [first, second] = items.as_slice() else {
        return Err(item.expected("two values, the smaller one first"));
    };
    let (low, high) = (read(first)?, read(second)?);
    if low > high {
        return Err(item.expected("two values, the smaller one first"));
    }
    Ok((low, high))
}

fn jitter(item: &Item<'_>) -> Result<(Jitter, bool), Mistake> {
    if item.table().is_err() {
        return Ok((Jitter::Uniform(item.time()?), false));
    }
    let mut table = item.table()?;
    let uniform = table.read("uniform", Item::time)?;
    let normal = table.read("sd", Item::time)?;
    let reorder = table.read("reorder", Item::flag)?.unwrap_or(false);
    table.finish()?;
    match (uniform, normal) {
        (Some(half), None) => Ok((Jitter::Uniform(half), reorder)),
        (None, Some(sd)) => Ok((Jitter::Normal(sd), reorder)),
        _ => Err(item.mistake("expected one of uniform and sd, each a time")),
    }
}

fn loss(item: &Item<'_>) -> Result<RawLoss, Mistake> {
    if item.table().is_err() {
        let share = item.share()?;
        return Ok(if share == 0.0 {
            RawLoss::None
        } else {
            RawLoss::Independent(share)
        });
    }
    let mut table = item.table()?;
    let mean = table.read("mean", Item::share)?;
    let burst = table.read("burst", Item::number)?;
    let to_bad = table.read("to-bad", Item::share)?;
    let to_good = table.read("to-good", Item::share)?;
    let good = table.read("loss-good", Item::share)?.unwrap_or(0.0);
    let bad = table.read("loss-bad", Item::share)?.unwrap_or(1.0);
    table.finish()?;
    let model = match (mean, burst, to_bad, to_good) {
        (Some(mean), Some(burst), None, None) => GilbertElliott::from_mean(mean, burst),
        (None, None, Some(to_bad), Some(to_good)) => model_of([to_bad, to_good, good, bad]),
        _ => None,
    };
    let expected = "expected mean (below 1) and burst (packets, at least 1), or to-bad and to-good";
    model
        .map(RawLoss::Model)
        .ok_or_else(|| item.mistake(expected))
}

fn model_of([to_bad, to_good, good, bad]: [f64; 4]) -> Option<GilbertElliott> {
    Some(GilbertElliott {
        to_bad: Probability::new(to_bad)?,
        to_good: Probability::new(to_good)?,
        loss_good: Probability::new(good)?,
        loss_bad: Probability::new(bad)?,
    })
}

fn queue(item: &Item<'_>) -> Result<RawQueue, Mistake> {
    if let Ok(mut table) = item.table() {
        let codel = table.read("codel", codel)?;
        let red = table.read("red", red)?;
        table.finish()?;
        return match (codel, red) {
            (Some(codel), None) => Ok(RawQueue::CoDel(codel)),
            (None, Some(red)) => Ok(RawQueue::Red(red)),
            _ => Err(item.mistake("expected one of codel and red")),
        };
    }
    let quantity = item.quantity()?;
    match quantity.dimension {
        Dimension::Time => item.time().map(RawQueue::Time),
        Dimension::Size => item.size().map(RawQueue::Bytes),
        Dimension::Packets if quantity.amount >= 1.0 => {
            Ok(RawQueue::Packets(quantity.amount as u64))
        }
        _ => Err(item.expected("a queue such as \"50ms\", \"64KiB\" or \"50packets\"")),
    }
}

fn codel(item: &Item<'_>) -> Result<CoDel, Mistake> {
    let mut table = item.table()?;
    let default = CoDel::default();
    let codel = CoDel {
        target: table.read("target", Item::time)?.unwrap_or(default.target),
        interval: table
            .read("interval", Item::time)?
            .unwrap_or(default.interval),
        limit_bytes: table
            .read("limit", Item::size)?
            .unwrap_or(default.limit_bytes),
    };
    table.finish()?;
    Ok(codel)
}

fn red(item: &Item<'_>) -> Result<Red, Mistake> {
    let mut table = item.table()?;
    let min_bytes = table
        .required("min", "average queue where drops begin")?
        .size()?;
    let max_bytes = table
        .required("max", "average queue where they reach `probability`")?
        .size()?;
    let probability = table.read("probability", Item::share)?.unwrap_or(0.1);
    let weight = table.read("weight", Item::share)?.unwrap_or(0.002);
    let limit = table.read("limit", Item::size)?;
    table.finish()?;
    if min_bytes >= max_bytes {
        return Err(item.mistake("min must be below max"));
    }
    let share = |value| Probability::new(value).unwrap_or(Probability::NEVER);
    Ok(Red {
        min_bytes,
        max_bytes,
        max_probability: share(probability),
        weight: share(weight),
        limit_bytes: limit.unwrap_or(max_bytes * 4),
    })
}
