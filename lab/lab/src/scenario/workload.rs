//! What is sent: the flows that are measured, and the background traffic.

use super::links::pair;
use super::mistake::Mistake;
use super::reader::{Item, Table};
use super::topology::{CLIENT, Interface, Network, SERVER};
use anabranch_tunnel::Treatment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The direction of a flow's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Way {
    /// From the client to the server, over the forward directions.
    #[default]
    Forward,
    /// From the server to the client.
    Backward,
}

/// When something begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Start {
    /// The earliest time.
    pub from: Duration,
    /// The latest time; each repetition draws a time in between, the same for every contender.
    pub to: Duration,
}

/// A flow that is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// What it sends.
    pub kind: FlowKind,
    /// Its direction.
    pub way: Way,
    /// When it begins.
    pub start: Start,
    /// How long after its start it is not counted.
    pub warm_up: Duration,
    /// What is special about it, or about its datagrams.
    pub marks: Marks,
}

/// Properties of a flow for a tunnel, and of its datagrams besides their deadline, for the engine
/// and for their reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The number of flows to which the datagrams belong in turn, and which a scheduler may keep
    /// apart; 0 means none.
    pub flows: u64,
    /// Whether losing one costs more than its bytes; only such datagrams are copied.
    pub critical: bool,
    /// How long a datagram waits at the receiver for earlier ones; `None` disables reordering.
    pub resequence: Option<Duration>,
    /// How a tunnel treats the flow; `None` means as what no class of it wants.
    pub class: Option<Treatment>,
}

impl Marks {
    /// How a tunnel treats the flow.
    pub fn treatment(&self) -> Treatment {
        self.class.unwrap_or_else(super::class::usual)
    }
}

/// What a flow sends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum FlowKind {
    /// One stream of this many bytes.
    BulkBytes(u64),
    /// One stream that sends for this long.
    BulkTime(Duration),
    /// Files, one after another, each on a stream of its own.
    Files {
        /// How many.
        count: u64,
        /// Bytes of each.
        size: u64,
        /// Time between the starts of two files; a file also waits for the end of the one before.
        gap: Duration,
    },
    /// Requests at regular intervals, answered by the other side.
    Requests {
        /// How many.
        count: u64,
        /// Bytes of a request.
        size: u64,
        /// Bytes of an answer.
        answer: u64,
        /// Interval between requests.
        every: Duration,
    },
    /// Datagrams at regular intervals, which are worthless after a deadline.
    Datagrams {
        /// Bytes of each.
        size: u64,
        /// The time from one to the next, above zero.
        every: Duration,
        /// For how long.
        duration: Duration,
        /// The deadline after creation; `None` means never.
        deadline: Option<Duration>,
    },
}

/// Background traffic, which is not measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Background {
    /// Its kind.
    pub kind: BackgroundKind,
    /// Its ends. Forward is from the first, which acts as the client, to the second.
    pub ends: [Interface; 2],
    /// Its direction.
    pub way: Way,
    /// When it begins.
    pub start: Start,
    /// When it ends; `None` means never.
    pub stop: Option<Duration>,
}

/// Kinds of background traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackgroundKind {
    /// A TCP connection that always has data.
    Tcp {
        /// What decides how much it sends.
        congestion: TcpCongestion,
    },
    /// Datagrams at a constant rate.
    Udp {
        /// Bits per second.
        rate: u64,
        /// Bytes of each.
        size: u64,
    },
    /// Downloads with pauses, like those of a person reading: heavy-tailed sizes, random pauses.
    Web {
        /// Mean bytes of a download.
        size: u64,
        /// Mean pause.
        pause: Duration,
    },
}

/// The congestion control of background traffic by TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpCongestion {
    /// NewReno, as kernels have it.
    Reno,
    /// CUBIC.
    Cubic,
    /// BBR, which only kernels have for TCP.
    Bbr,
}

impl TcpCongestion {
    /// All of them, by their names in scenarios, which are those of the kernel.
    const ALL: [(&'static str, Self); 3] = [
        ("reno", Self::Reno),
        ("cubic", Self::Cubic),
        ("bbr", Self::Bbr),
    ];

    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, one)| *one == self);
        found.map_or("", |(name, _)| name)
    }
}

impl BackgroundKind {
    /// Its name in scenarios.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp { .. } => "tcp",
            Self::Udp { .. } => "udp",
            Self::Web { .. } => "web",
        }
    }
}

impl Start {
    /// The time that a draw from 0 to 1 stands for.
    pub fn at(&self, draw: f64) -> Duration {
        self.from
            + self
                .to
                .saturating_sub(self.from)
                .mul_f64(draw.clamp(0.0, 1.0))
    }

    /// Whether the time is drawn.
    pub fn is_random(&self) -> bool {
        self.from != self.to
    }
}

impl FlowKind {
    /// The bytes of application data that the flow sends, if known before it runs.
    pub fn bytes(&self) -> Option<u64> {
        match *self {
            Self::BulkBytes(bytes) => Some(bytes),
            Self::BulkTime(_) => None,
            Self::Files { count, size, .. } => Some(count.saturating_mul(size)),
            Self::Requests { count, answer, .. } => Some(count.saturating_mul(answer)),
            Self::Datagrams { size, .. } => Some(size.saturating_mul(self.datagrams()?)),
        }
    }

    /// How many datagrams it sends, the first as it begins; `None` if it is of another kind.
    pub fn datagrams(&self) -> Option<u64> {
        let Self::Datagrams {
            every, duration, ..
        } = self
        else {
            return None;
        };
        let count = duration.as_nanos().div_ceil(every.as_nanos().max(1));
        Some(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

/// The most flows, and the most background traffic: each has ports of its own.
const MOST: usize = 1000;

/// The most flows that one flow's datagrams may belong to.
const MOST_MARKS: u64 = 1_000_000;

const WAYS: [(&str, Way); 2] = [("forward", Way::Forward), ("backward", Way::Backward)];

fn start(table: &mut Table<'_>) -> Result<Start, Mistake> {
    let read = |item: &Item<'_>| {
        if item.table().is_err() {
            let at = item.time()?;
            return Ok(Start { from: at, to: at });
        }
        let mut table = item.table()?;
        let range = table.required("uniform", "the earliest and the latest start")?;
        let (from, to) = pair(&range, Item::time)?;
        table.finish()?;
        Ok(Start { from, to })
    };
    Ok(table.read("start", read)?.unwrap_or_default())
}

/// Reads the flows.
pub(super) fn flows(items: Option<&Item<'_>>, root: &Item<'_>) -> Result<Vec<Flow>, Mistake> {
    let items = items.map(Item::list).unwrap_or_default();
    if items.is_empty() {
        return Err(root.mistake("no [[flow]]: expected what is sent, at least once"));
    }
    at_most(MOST, &items, "[[flow]]")?;
    items.iter().map(flow).collect()
}

/// A reader of the settings of one kind of flow.
type ReadKind = fn(&mut Table<'_>) -> Result<FlowKind, Mistake>;

fn flow(item: &Item<'_>) -> Result<Flow, Mistake> {
    let kinds: [(&str, ReadKind); 4] = [
        ("bulk", bulk),
        ("files", files),
        ("requests", requests),
        ("datagrams", datagrams),
    ];
    let mut table = item.table()?;
    let kind = table.required("kind", "bulk, files, requests or datagrams")?;
    let read = kind.word(&kinds)?;
    let way = table.read("direction", |item| item.word(&WAYS))?;
    let start = start(&mut table)?;
    let warm_up = table.read("warm-up", Item::time)?.unwrap_or_default();
    let kind = read(&mut table)?;
    let marks = match kind {
        FlowKind::Datagrams { .. } => Marks {
            flows: table
                .read("flows", |item| item.count(1..=MOST_MARKS))?
                .unwrap_or(0),
            critical: table.read("critical", Item::flag)?.unwrap_or(false),
            resequence: table.read("resequence", Item::time)?,
            class: table.read("class", super::class::of_datagrams)?,
        },
        _ => Marks {
            class: table.read("class", super::class::of_connections)?,
            ..Marks::default()
        },
    };
    table.finish()?;
    Ok(Flow {
        kind,
        way: way.unwrap_or_default(),
        start,
        warm_up,
        marks,
    })
}

fn bulk(table: &mut Table<'_>) -> Result<FlowKind, Mistake> {
    let bytes = table.read("bytes", Item::size)?;
    let time = table.read("duration", Item::time)?;
    match (bytes, time) {
        (Some(bytes), None) if bytes > 0 => Ok(FlowKind::BulkBytes(bytes)),
        (None, Some(time)) if !time.is_zero() => Ok(FlowKind::BulkTime(time)),
        _ => Err(table.mistake("expected one of bytes and duration, above 0")),
    }
}

fn size(table: &mut Table<'_>, key: &'static str, most: u64, what: &str) -> Result<u64, Mistake> {
    let item = table.required(key, what)?;
    let bytes = item.size()?;
    if (1..=most).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(item.expected(&format!("from 1B to {most}B")))
    }
}

const MOST_BYTES: u64 = 1 << 40;

fn files(table: &mut Table<'_>) -> Result<FlowKind, Mistake> {
    let count = table
        .required("count", "how many files")?
        .count(1..=1_000_000)?;
    let size = size(table, "size", MOST_BYTES, "the size of each file")?;
    let gap = table.read("gap", Item::time)?.unwrap_or_default();
    Ok(FlowKind::Files { count, size, gap })
}

fn requests(table: &mut Table<'_>) -> Result<FlowKind, Mistake> {
    let count = table
        .required("count", "how many requests")?
        .count(1..=1_000_000)?;
    let request = size(table, "size", MOST_BYTES, "the size of each request")?;
    let answer = size(table, "answer", MOST_BYTES, "the size of each answer")?;
    let every = table
        .required("every", "the time from one to the next")?
        .time()?;
    Ok(FlowKind::Requests {
        count,
        size: request,
        answer,
        every,
    })
}

fn datagrams(table: &mut Table<'_>) -> Result<FlowKind, Mistake> {
    let size = size(table, "size", 1200, "the size of each datagram")?;
    let rate = table.read("rate", |item| interval(item, size))?;
    let every = table.read("every", longer_than_none)?;
    let every = match (rate, every) {
        (Some(_), Some(_)) => return Err(table.mistake("expected one of rate and every")),
        (Some(every), None) | (None, Some(every)) => every,
        (None, None) => {
            let what = "how fast they are sent; or `every`, the time from one to the next";
            interval(&table.required("rate", what)?, size)?
        }
    };
    let duration = table.required("duration", "for how long")?.time()?;
    let deadline = table.read("deadline", Item::time)?;
    Ok(FlowKind::Datagrams {
        size,
        every,
        duration,
        deadline,
    })
}

/// The time in which something of this size is sent once at the given rate.
fn interval(item: &Item<'_>, size: u64) -> Result<Duration, Mistake> {
    let every = Duration::from_secs_f64(size as f64 * 8.0 / item.rate()? as f64);
    Ok(every.max(Duration::from_nanos(1)))
}

fn longer_than_none(item: &Item<'_>) -> Result<Duration, Mistake> {
    match item.time()? {
        Duration::ZERO => Err(item.expected("a time above 0")),
        time => Ok(time),
    }
}

/// Reads the background traffic.
pub(super) fn background(
    items: Option<&Item<'_>>,
    network: &Network,
) -> Result<Vec<Background>, Mistake> {
    let one = |item: &Item<'_>| {
        let mut table = item.table()?;
        let kind = table.required("kind", "tcp, udp or web")?;
        let kind = match kind.word(&[("tcp", 0), ("udp", 1), ("web", 2)])? {
            0 => {
                let congestion = table.read("congestion", |item| item.word(&TcpCongestion::ALL))?;
                BackgroundKind::Tcp {
                    congestion: congestion.unwrap_or(TcpCongestion::Cubic),
                }
            }
            1 => BackgroundKind::Udp {
                rate: table.required("rate", "how fast it sends")?.rate()?,
                size: size(&mut table, "size", 1472, "the size of each datagram")?,
            },
            _ => BackgroundKind::Web {
                size: size(
                    &mut table,
                    "size",
                    MOST_BYTES,
                    "the mean size of a download",
                )?,
                pause: table.required("pause", "the mean pause")?.time()?,
            },
        };
        let ends = ends(&mut table, network)?;
        let way = table
            .read("direction", |item| item.word(&WAYS))?
            .unwrap_or_default();
        let start = start(&mut table)?;
        let stop = table.read("stop", Item::time)?;
        table.finish()?;
        Ok(Background {
            kind,
            ends,
            way,
            start,
            stop,
        })
    };
    let items = items.map(Item::list).unwrap_or_default();
    at_most(MOST, &items, "[[background]]")?;
    items.iter().map(one).collect()
}

/// Reads the ends of background traffic: those of a path, or two hosts.
fn ends(table: &mut Table<'_>, network: &Network) -> Result<[Interface; 2], Mistake> {
    let path = table.item("path");
    let Some(item) = table.item("ends") else {
        let missing = "`path` is missing: whose ends it uses; or `ends`, two hosts";
        let path = path.ok_or_else(|| table.mistake(missing))?;
        return Ok(network.path_ends(network.path_item(&path)?));
    };
    if path.is_some() {
        return Err(item.mistake("expected one of path and ends"));
    }
    let hosts = item.list();
    let [first, second] = hosts.as_slice() else {
        return Err(item.expected("the two hosts it goes between"));
    };
    let hosts = [network.host_item(first)?, network.host_item(second)?];
    if hosts[0] == hosts[1] {
        return Err(item.expected("two different hosts"));
    }
    if hosts.iter().all(|host| *host < 2) {
        let what = format!("between {CLIENT} and {SERVER} several paths may lead: expected `path`");
        return Err(item.mistake(what));
    }
    network.nearest_ends(hosts).ok_or_else(|| {
        let [from, to] = hosts.map(|host| &network.nodes[host].name);
        let what = format!("no way leads from `{from}` to `{to}`: hosts pass nothing on");
        item.mistake(what)
    })
}

fn at_most(most: usize, items: &[Item<'_>], what: &str) -> Result<(), Mistake> {
    match items.get(most) {
        None => Ok(()),
        Some(item) => Err(item.mistake(format!("{} of {what}: at most {most}", items.len()))),
    }
}
