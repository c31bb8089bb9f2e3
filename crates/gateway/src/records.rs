//! The flows of a node one by one, for those who ask what one of them does.
//!
//! ```text
//! a flow's task ── stores ──> Record <── loads ── who asks
//!       begins and ends ──> Records: those that are open, and the last that have ended
//! ```
//! Each count here has one writer, the flow's own task, that of the request which carries it or
//! that of the connection, and no lock. The list is locked where a flow begins or ends, where its
//! datagrams could not leave in time and where somebody asks, never while bytes are moved.

use crate::payloads::Counts;
use crate::relay::Moved;
use crate::status::flow::{Flow, FlowDatagrams, FlowPath, Flows, Phase};
use crate::status::{Connections, Datagrams as UdpTotals, MEASURED};
use anabranch_masque::Target;
use anabranch_net::Connection;
use anabranch_proto::wire::PathId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

/// Open flows that are listed. One more is carried all the same.
const MAX_OPEN: usize = 16_384;
/// Flows that are remembered after their end.
const MAX_ENDED: usize = 256;
/// Paths of a flow that are told apart. What comes by more of them is counted with the last.
const MAX_PATHS: usize = 8;
/// Flows in one answer.
const MAX_TOLD: usize = 1000;
/// Flows of one port that are told of with one of them.
const MAX_SAME_PORT: usize = 32;
/// Characters of what is told of an end.
const MAX_WORDS: usize = 200;

/// What is known of a flow when it begins.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) is_udp: bool,
    pub(crate) target: Target,
    /// Whose it is, at a near end.
    pub(crate) source: Option<SocketAddr>,
    /// Whose it is, at a far end.
    pub(crate) client: Option<String>,
}

/// A count with one writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    fn add(&self, more: u64) {
        self.0.store(self.get() + more, Ordering::Relaxed);
    }

    fn raise(&self, to: u64) {
        if to > self.get() {
            self.0.store(to, Ordering::Relaxed);
        }
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a flow moved in one direction, and since when it can move nothing more.
#[derive(Debug, Default)]
struct Way {
    bytes: Count,
    /// In microseconds since the flow began, plus one; 0 if it is not blocked.
    since: AtomicU64,
}

/// What datagrams of a flow came by one path.
#[derive(Debug, Default)]
struct ByPath {
    /// The path's number plus one; 0 while this entry is free.
    path: AtomicU64,
    bytes: Count,
}

/// What only UDP has.
#[derive(Debug, Default)]
struct Datagrams {
    sent: Count,
    received: Count,
    dropped: Count,
    expired: Count,
    copies: Count,
    held: Count,
    held_us: Count,
    longest_us: Count,
    paths: [ByPath; MAX_PATHS],
}

/// A flow.
#[derive(Debug)]
pub(crate) struct Record {
    number: u64,
    about: About,
    began: Instant,
    began_at: SystemTime,
    phase: AtomicU8,
    /// The address that the target's name has led to.
    remote: OnceLock<SocketAddr>,
    /// The class, at a near end, and what of it expired.
    class: OnceLock<(String, Arc<AtomicU64>)>,
    /// The number of the first flow on its port at the far end, if flows share that port.
    port: OnceLock<u64>,
    inward: Way,
    outward: Way,
    /// When a datagram was last carried, in nanoseconds since the flow began.
    last: AtomicU64,
    datagrams: Option<Box<Datagrams>>,
    /// How long it lasted, and what ended it.
    end: OnceLock<(Duration, String)>,
}

impl Record {
    fn new(number: u64, about: About) -> Self {
        Self {
            number,
            began: Instant::now(),
            began_at: SystemTime::now(),
            phase: AtomicU8::new(Phase::Connection as u8),
            remote: OnceLock::new(),
            class: OnceLock::new(),
            port: OnceLock::new(),
            inward: Way::default(),
            outward: Way::default(),
            last: AtomicU64::new(0),
            datagrams: about.is_udp.then(Box::default),
            end: OnceLock::new(),
            about,
        }
    }

    /// What it does from now on.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// The address that the target's name has led to.
    pub(crate) fn led_to(&self, remote: SocketAddr) {
        let _ = self.remote.set(remote);
    }

    /// By which it can be called.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The name of its class, and where its datagrams that expire are counted.
    pub(crate) fn is_of(&self, class: &str, expired: &Arc<AtomicU64>) {
        let _ = self.class.set((class.to_owned(), Arc::clone(expired)));
    }

    /// Notes that it shares a port at the far end with all other flows of this number.
    pub(crate) fn shares(&self, port: u64) {
        let _ = self.port.set(port);
    }

    /// Why it ends. The first reason counts.
    pub(crate) fn ends(&self, why: &dyn Display) {
        let words: String = why.to_string().chars().take(MAX_WORDS).collect();
        let _ = self.end.set((self.began.elapsed(), words));
    }

    /// Does something that may have to wait for room in the tunnel.
    pub(crate) async fn wait_inward<T>(&self, work: impl Future<Output = T>) -> T {
        self.waiting(&self.inward, work).await
    }

    /// Does something that may have to wait for room in the socket here.
    pub(crate) async fn wait_outward<T>(&self, work: impl Future<Output = T>) -> T {
        self.waiting(&self.outward, work).await
    }

    async fn waiting<T>(&self, way: &Way, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        // Only what is not done at once is waited for: no clock is read for the rest.
        let at_once = poll_fn(|context| Poll::Ready(work.as_mut().poll(context)));
        if let Poll::Ready(done) = at_once.await {
            return done;
        }
        way.since.store(self.age() + 1, Ordering::Relaxed);
        let done = work.await;
        way.since.store(0, Ordering::Relaxed);
        done
    }

    fn age(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    /// Bytes have come in for the tunnel.
    pub(crate) fn carried_in(&self, bytes: usize) {
        self.inward.bytes.add(bytes as u64);
    }

    /// Bytes have come out of the tunnel.
    pub(crate) fn carried_out(&self, bytes: usize) {
        self.outward.bytes.add(bytes as u64);
    }

    /// A datagram has left for the tunnel.
    pub(crate) fn sent(&self) {
        self.note();
        self.count(|datagrams| datagrams.sent.add(1));
    }

    /// Datagrams have left the tunnel.
    pub(crate) fn received(&self, count: u64) {
        self.note();
        self.count(|datagrams| datagrams.received.add(count));
    }

    /// Datagrams were dropped.
    pub(crate) fn lost(&self, count: u64) {
        self.count(|datagrams| datagrams.dropped.add(count));
    }

    /// Datagrams could not leave in time, although they count as sent.
    fn expired(&self, count: u64) {
        self.count(|datagrams| datagrams.expired.add(count));
        if let Some((_, expired)) = self.class.get() {
            expired.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Datagrams have come that had come already.
    pub(crate) fn repeated(&self, count: u64) {
        self.count(|datagrams| datagrams.copies.add(count));
    }

    /// A datagram had to wait for those before it.
    pub(crate) fn held(&self, time: Duration) {
        let time = time.as_micros() as u64;
        self.count(|datagrams| {
            datagrams.held.add(1);
            datagrams.held_us.add(time);
            datagrams.longest_us.raise(time);
        });
    }

    /// A datagram has come by a path.
    pub(crate) fn came_by(&self, path: PathId, length: usize) {
        let name = u64::from(path.0) + 1;
        self.count(|datagrams| {
            let place = datagrams.paths.iter().find(|place| {
                let taken = place.path.load(Ordering::Relaxed);
                taken == 0 || taken == name
            });
            let place = place.unwrap_or(&datagrams.paths[MAX_PATHS - 1]);
            place.path.store(name, Ordering::Relaxed);
            place.bytes.add(length as u64);
        });
    }

    fn note(&self) {
        let since = self.began.elapsed().as_nanos() as u64;
        self.last.store(since, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.began + Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    fn count(&self, count: impl FnOnce(&Datagrams)) {
        if let Some(datagrams) = &self.datagrams {
            count(datagrams);
        }
    }

    /// Bytes into the tunnel and out of it.
    fn bytes(&self) -> (u64, u64) {
        (self.inward.bytes.get(), self.outward.bytes.get())
    }

    /// Whether `called` is its number, its target, or one of its addresses.
    fn is_called(&self, called: &str) -> bool {
        let target = self.about.target.to_string();
        let addresses = [self.about.source, self.remote.get().copied()];
        let is_address = |address: SocketAddr| {
            address.to_string() == called || address.ip().to_string() == called
        };
        self.number.to_string() == called
            || target == called
            || host(&target) == called
            || addresses.into_iter().flatten().any(is_address)
    }

    /// What is shown of it, with the rates since it had moved `before`. `is_near`: at a near end.
    fn show(&self, before: (u64, u64), is_near: bool) -> Flow {
        let now = self.bytes();
        let rate = |before: u64, now: u64| {
            now.saturating_sub(before) as f64 * 8.0 / MEASURED.as_secs_f64()
        };
        let rates = (rate(before.0, now.0), rate(before.1, now.1));
        let end = self.end.get();
        let age = end.map_or_else(|| self.began.elapsed(), |(lasted, _)| *lasted);
        let phase = match end {
            Some(_) => Phase::Ended,
            None => Phase::of(self.phase.load(Ordering::Relaxed)),
        };
        let waits = |way: &Way| {
            let since = way.since.load(Ordering::Relaxed).checked_sub(1)?;
            let waited = Duration::from_micros(self.age().saturating_sub(since));
            (phase == Phase::Open).then_some(waited.as_secs_f64())
        };
        let up_is_in = |in_out: (u64, u64)| {
            if is_near {
                in_out
            } else {
                (in_out.1, in_out.0)
            }
        };
        let (up_bytes, down_bytes) = up_is_in(now);
        let (up_bps, down_bps) = if is_near { rates } else { (rates.1, rates.0) };
        let began = self.began_at.duration_since(SystemTime::UNIX_EPOCH);
        Flow {
            number: self.number,
            protocol: if self.about.is_udp { "udp" } else { "tcp" }.into(),
            client: self.about.client.clone(),
            source: self.about.source.map(|source| source.to_string()),
            class: self.class.get().map(|(name, _)| name.clone()),
            target: self.about.target.to_string(),
            remote: self.remote.get().map(ToString::to_string),
            began: began.map_or(0, |since| since.as_secs()),
            seconds: age.as_secs_f64(),
            state: phase,
            end: end.map(|(_, words)| words.clone()),
            up_bytes,
            down_bytes,
            up_bps,
            down_bps,
            waits_for_tunnel_seconds: waits(&self.inward),
            stopped_by: None,
            waits_for_socket_seconds: waits(&self.outward),
            datagrams: self.datagrams.as_deref().map(|all| all.show(is_near)),
            paths: self
                .datagrams
                .as_deref()
                .map_or_else(Vec::new, Datagrams::paths),
            idle_seconds: self
                .datagrams
                .is_some()
                .then(|| self.last().elapsed().as_secs_f64()),
            same_port: None,
        }
    }
}

impl Datagrams {
    fn show(&self, is_near: bool) -> FlowDatagrams {
        let (sent, received) = (self.sent.get(), self.received.get());
        let (up, down) = if is_near {
            (sent, received)
        } else {
            (received, sent)
        };
        let held = self.held.get();
        let ms = |micros: u64| micros as f64 / 1e3;
        FlowDatagrams {
            up,
            down,
            dropped: self.dropped.get(),
            expired: self.expired.get(),
            copies: self.copies.get(),
            held,
            mean_wait_ms: (held > 0).then(|| ms(self.held_us.get()) / held as f64),
            longest_wait_ms: (held > 0).then(|| ms(self.longest_us.get())),
        }
    }

    fn paths(&self) -> Vec<FlowPath> {
        let places = self.paths.iter();
        let shown = places.filter_map(|place| {
            let path = place.path.load(Ordering::Relaxed).checked_sub(1)?;
            let received_bytes = place.bytes.get();
            Some(FlowPath {
                path,
                received_bytes,
            })
        });
        shown.collect()
    }
}

/// The host of `host:port`, without brackets.
fn host(target: &str) -> &str {
    let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

#[derive(Debug, Default)]
struct List {
    open: BTreeMap<u64, Arc<Record>>,
    ended: VecDeque<Arc<Record>>,
    last: u64,
    /// Of all that have ended.
    past: Totals,
}

/// Counts of all flows together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Open now, made so far, and those that could not be made.
    pub(crate) flows: Connections,
    /// Bytes into the tunnel and out of it.
    pub(crate) moved: (u64, u64),
    /// Into the tunnel is up.
    pub(crate) datagrams: UdpTotals,
}

impl Totals {
    fn add(&mut self, record: &Record) {
        match Phase::of(record.phase.load(Ordering::Relaxed)) {
            Phase::Open => self.flows.made += 1,
            _ => self.flows.failed += 1,
        }
        self.add_moved(record);
    }

    fn add_moved(&mut self, record: &Record) {
        let (inward, outward) = record.bytes();
        self.moved = (self.moved.0 + inward, self.moved.1 + outward);
        record.count(|of| {
            let all = &mut self.datagrams;
            all.up += of.sent.get();
            all.down += of.received.get();
            all.dropped += of.dropped.get() + of.copies.get();
            all.expired += of.expired.get();
            all.held += of.held.get();
            all.held_us += of.held_us.get();
        });
    }
}

/// The flows of a node.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<List>);

impl Records {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A flow begins.
    pub(crate) fn begin(self: &Arc<Self>, about: About) -> Listed {
        let mut list = self.lock();
        list.last += 1;
        let record = Arc::new(Record::new(list.last, about));
        if list.open.len() < MAX_OPEN {
            list.open.insert(record.number, Arc::clone(&record));
        }
        let records = Arc::clone(self);
        Listed { record, records }
    }

    /// Counts the datagrams of a connection that could not leave in time, until it ends. `all` are
    /// the counts of its node or client.
    pub(crate) async fn count_expired(
        &self,
        connection: Connection,
        all: impl Fn() -> Option<Arc<Counts>>,
    ) {
        while let Ok(expired) = connection.expired_datagrams().await {
            for (number, count) in expired {
                if let Some(all) = all() {
                    all.expired.fetch_add(count, Ordering::Relaxed);
                }
                self.expire(number, count);
            }
        }
    }

    /// Datagrams of the flow of this number could not leave in time.
    fn expire(&self, number: u64, count: u64) {
        let mut list = self.lock();
        let List {
            open, ended, past, ..
        } = &mut *list;
        let record = match open.get(&number) {
            Some(record) => Some(record),
            // Packets of many flows, which are in no list.
            None if number == 0 => None,
            // What a flow had moved was added up when it ended.
            None => {
                past.datagrams.expired += count;
                ended.iter().rev().find(|record| record.number == number)
            }
        };
        if let Some(record) = record {
            record.expired(count);
        }
    }

    /// Counts of all flows so far.
    pub(crate) fn totals(&self) -> Totals {
        let list = self.lock();
        let mut totals = list.past;
        for record in list.open.values() {
            totals.add_moved(record);
            let phase = Phase::of(record.phase.load(Ordering::Relaxed));
            totals.flows.made += u64::from(phase == Phase::Open);
        }
        totals.flows.open = list.open.len();
        totals
    }

    /// Those that are open, and those that have ended, the newest first.
    fn all(&self) -> (Vec<Arc<Record>>, Vec<Arc<Record>>) {
        let list = self.lock();
        let open = list.open.values().cloned().collect();
        (open, list.ended.iter().rev().cloned().collect())
    }

    /// The flows that `called` names, or the `most` biggest open ones, measured for a second. Of
    /// flows that share a port only the one used last is shown, and the others with it.
    pub(crate) async fn show(&self, called: Option<&str>, most: usize, is_near: bool) -> Flows {
        let (open, ended) = self.all();
        let (count, most) = (open.len(), most.min(MAX_TOLD));
        let wanted: Vec<Wanted> = match called {
            None => open.into_iter().map(Wanted::from).collect(),
            Some(called) => wanted(&open, &ended, called, most),
        };
        sleep(MEASURED).await;
        let flows = wanted.iter().map(|one| one.show(is_near));
        let mut flows: Vec<Flow> = flows.collect();
        if called.is_none() {
            let size = |flow: &Flow| (flow.up_bps + flow.down_bps, flow.up_bytes + flow.down_bytes);
            flows.sort_by(|a, b| {
                size(b)
                    .partial_cmp(&size(a))
                    .unwrap_or(std::cmp::Ordering::Equal)
            });
        }
        flows.truncate(most);
        Flows { open: count, flows }
    }
}

/// A flow that is to be shown, what it had moved when that was decided, and those of its port.
#[derive(Debug)]
struct Wanted {
    record: Arc<Record>,
    before: (u64, u64),
    same_port: Vec<Wanted>,
    /// How many of the port are open.
    open: usize,
}

impl From<Arc<Record>> for Wanted {
    fn from(record: Arc<Record>) -> Self {
        Self {
            before: record.bytes(),
            record,
            same_port: Vec::new(),
            open: 0,
        }
    }
}

impl Wanted {
    fn show(&self, is_near: bool) -> Flow {
        let flows = self.same_port.iter().map(|one| one.show(is_near));
        Flow {
            same_port: (!self.same_port.is_empty()).then(|| Flows {
                open: self.open,
                flows: flows.collect(),
            }),
            ..self.record.show(self.before, is_near)
        }
    }
}

/// Flows that are called so.
fn wanted(open: &[Arc<Record>], ended: &[Arc<Record>], called: &str, most: usize) -> Vec<Wanted> {
    let (mut chosen, mut places) = (Vec::<&Arc<Record>>::new(), BTreeMap::new());
    for record in open.iter().chain(ended).filter(|it| it.is_called(called)) {
        if let Some(port) = record.port.get() {
            let place = *places.entry(port).or_insert(chosen.len());
            if let Some(other) = chosen.get_mut(place) {
                if record.last() > other.last() {
                    *other = record;
                }
                continue;
            }
        }
        chosen.push(record);
    }
    chosen.truncate(most);
    let mut ports = BTreeMap::<u64, Vec<(bool, &Arc<Record>)>>::new();
    let open = open.iter().map(|record| (true, record));
    for (is_open, record) in open.chain(ended.iter().map(|record| (false, record))) {
        if let Some(port) = record.port.get() {
            ports.entry(*port).or_default().push((is_open, record));
        }
    }
    let shown = chosen.into_iter().map(|record| {
        let mut shown = Wanted::from(Arc::clone(record));
        let of_port = record.port.get().and_then(|port| ports.remove(port));
        if let Some(mut all) = of_port {
            shown.open = all.iter().filter(|(is_open, _)| *is_open).count();
            // Flows go on meanwhile: each is asked once.
            all.sort_by_cached_key(|(_, record)| Reverse(record.last()));
            if all.len() > 1 {
                let told = all.into_iter().take(MAX_SAME_PORT);
                let told = told.map(|(_, record)| Wanted::from(Arc::clone(record)));
                shown.same_port = told.collect();
            }
        }
        shown
    });
    shown.collect()
}

/// A flow that is listed while this lasts.
#[derive(Debug)]
pub(crate) struct Listed {
    record: Arc<Record>,
    records: Arc<Records>,
}

impl std::ops::Deref for Listed {
    type Target = Arc<Record>;

    fn deref(&self) -> &Arc<Record> {
        &self.record
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.record.ends(&"it is over");
        let mut list = self.records.lock();
        list.open.remove(&self.record.number);
        list.past.add(&self.record);
        if list.ended.len() >= MAX_ENDED {
            list.ended.pop_front();
        }
        list.ended.push_back(Arc::clone(&self.record));
    }
}

/// Counts what a flow moves: for all flows of a node or a client, and for itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter<'a> {
    pub(crate) all: &'a Moved,
    pub(crate) record: &'a Record,
}

impl Meter<'_> {
    /// Bytes have come in.
    pub(crate) fn inward(&self, bytes: usize) {
        self.all.add_inward(bytes);
        self.record.carried_in(bytes);
    }

    /// Bytes go out.
    pub(crate) fn outward(&self, bytes: usize) {
        self.all.add_outward(bytes);
        self.record.carried_out(bytes);
    }
}

/// Where a flow's datagrams are counted.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    /// The counts of all flows of a node or a client.
    pub(crate) all: Arc<Counts>,
    pub(crate) record: Arc<Record>,
}

impl Tally {
    /// Counts a datagram that was sent into the tunnel.
    pub(crate) fn sent(&self) {
        self.all.sent.fetch_add(1, Ordering::Relaxed);
        self.record.sent();
    }
}

impl Record {
    /// A record that is in no list: it stands for packets of many flows.
    pub(crate) fn unlisted() -> Arc<Self> {
        let about = About {
            is_udp: true,
            target: "packets:1".parse().expect("a target"),
            source: None,
            client: None,
        };
        Arc::new(Self::new(0, about))
    }
}

#[cfg(test)]
mod tests;
