//! The flows of a node one by one, for those who ask what one of them does.
//!
//! ```text
//! a flow's task ── stores ──> Record <── loads ── who asks
//!       begins and ends ──> Records: those that are open, and the last that have ended
//! ```
//! What is counted here has one writer, the flow's own task, and no lock. The list is locked where
//! a flow begins or ends and where somebody asks, never while bytes are moved.

use crate::payloads::Counts;
use crate::relay::Moved;
use crate::status::flow::{Flow, FlowDatagrams, FlowPath, Flows, Phase};
use crate::status::{Connections, Datagrams as UdpTotals, MEASURED};
use anabranch_masque::Target;
use anabranch_proto::wire::PathId;
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
    /// In microseconds since the flow began, and one more; 0 if it waits for nobody.
    since: AtomicU64,
}

/// What datagrams of a flow came by one path.
#[derive(Debug, Default)]
struct ByPath {
    /// One more than its number; 0 while this place is free.
    path: AtomicU64,
    bytes: Count,
}

/// What only UDP has.
#[derive(Debug, Default)]
struct Datagrams {
    sent: Count,
    received: Count,
    dropped: Count,
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
    inward: Way,
    outward: Way,
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
            inward: Way::default(),
            outward: Way::default(),
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
        self.count(|datagrams| datagrams.sent.add(1));
    }

    /// Datagrams have left the tunnel.
    pub(crate) fn received(&self, count: u64) {
        self.count(|datagrams| datagrams.received.add(count));
    }

    /// Datagrams were dropped.
    pub(crate) fn lost(&self, count: u64) {
        self.count(|datagrams| datagrams.dropped.add(count));
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

    fn count(&self, count: impl FnOnce(&Datagrams)) {
        if let Some(datagrams) = &self.datagrams {
            count(datagrams);
        }
    }

    /// Bytes into the tunnel and out of it.
    fn bytes(&self) -> (u64, u64) {
        (self.inward.bytes.get(), self.outward.bytes.get())
    }

    /// Whether somebody who says this means it.
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

    /// What is shown of it, with the rates since it had moved so much. `is_near` says which end
    /// this is.
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

/// What flows come to, all together.
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

    /// What all flows come to so far.
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

    /// Flows that are called so, or the `most` biggest of the open ones, measured for a second.
    pub(crate) async fn show(&self, called: Option<&str>, most: usize, is_near: bool) -> Flows {
        let (open, mut ended) = self.all();
        let count = open.len();
        let mut wanted = open;
        if let Some(called) = called {
            wanted.retain(|record| record.is_called(called));
            ended.retain(|record| record.is_called(called));
            wanted.extend(ended);
        }
        let before: Vec<(u64, u64)> = wanted.iter().map(|record| record.bytes()).collect();
        sleep(MEASURED).await;
        let flows = wanted.iter().zip(before);
        let mut flows: Vec<Flow> = flows
            .map(|(record, before)| record.show(before, is_near))
            .collect();
        if called.is_none() {
            let size = |flow: &Flow| (flow.up_bps + flow.down_bps, flow.up_bytes + flow.down_bytes);
            flows.sort_by(|a, b| {
                size(b)
                    .partial_cmp(&size(a))
                    .unwrap_or(std::cmp::Ordering::Equal)
            });
        }
        flows.truncate(most.min(MAX_TOLD));
        Flows { open: count, flows }
    }
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
    /// Bytes have come in; `is_own` says whether they are the flow's, or those of another remote
    /// end of its socket, which has a record of its own.
    pub(crate) fn inward(&self, bytes: usize, is_own: bool) {
        self.all
            .into_stream
            .fetch_add(bytes as u64, Ordering::Relaxed);
        if is_own {
            self.record.carried_in(bytes);
        }
    }

    /// The same for those that go out.
    pub(crate) fn outward(&self, bytes: usize, is_own: bool) {
        self.all
            .from_stream
            .fetch_add(bytes as u64, Ordering::Relaxed);
        if is_own {
            self.record.carried_out(bytes);
        }
    }
}

/// Counts a flow's datagrams in the same two places, those of its other remote ends in the first
/// alone.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    pub(crate) all: Arc<Counts>,
    pub(crate) record: Arc<Record>,
}

impl Tally {
    pub(crate) fn sent(&self, is_own: bool) {
        self.all.sent.fetch_add(1, Ordering::Relaxed);
        if is_own {
            self.record.sent();
        }
    }

    pub(crate) fn received(&self, is_own: bool) {
        self.all.received.fetch_add(1, Ordering::Relaxed);
        if is_own {
            self.record.received(1);
        }
    }

    pub(crate) fn lose(&self, count: u64, is_own: bool) {
        if count > 0 {
            self.all.lose(count);
            if is_own {
                self.record.lost(count);
            }
        }
    }

    /// Some that had come already are dropped.
    pub(crate) fn repeated(&self, count: u64) {
        if count > 0 {
            self.all.lose(count);
            self.record.repeated(count);
        }
    }

    pub(crate) fn held(&self, time: Duration) {
        self.all.hold(time);
        self.record.held(time);
    }
}

impl Record {
    /// One that is in no list: of what carries packets of many flows.
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
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    fn about(target: &str, is_udp: bool) -> About {
        About {
            is_udp,
            target: target.parse().unwrap(),
            source: Some(([192, 168, 1, 2], 4000).into()),
            client: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_is_found_by_its_number_its_target_and_its_source() {
        let records = Arc::<Records>::default();
        let flow = records.begin(about("[2001:db8::1]:443", false));
        let _other = records.begin(about("example.org:80", false));
        flow.led_to(([192, 0, 2, 1], 443).into());
        for called in [
            "1",
            "[2001:db8::1]:443",
            "2001:db8::1",
            "192.0.2.1:443",
            "192.0.2.1",
        ] {
            let found = records.show(Some(called), 9, true).await;
            let numbers: Vec<u64> = found.flows.iter().map(|flow| flow.number).collect();
            assert_eq!((numbers, found.open), (vec![1], 2), "{called}");
        }
        assert_eq!(
            records
                .show(Some("192.168.1.2:4000"), 9, true)
                .await
                .flows
                .len(),
            2
        );
        assert!(records.show(Some("3"), 9, true).await.flows.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_biggest_come_first_and_no_more_than_asked_for() {
        let records = Arc::<Records>::default();
        let moved = Moved::default();
        let flows: Vec<Listed> = (1..=9)
            .map(|port| records.begin(about(&format!("a:{port}"), false)))
            .collect();
        for (flow, bytes) in flows.iter().zip([1, 9, 3, 4, 5, 6, 7, 8, 2]) {
            let all = &moved;
            Meter { all, record: flow }.outward(bytes, true);
        }
        let shown = records.show(None, 3, true).await;
        let targets: Vec<&str> = shown.flows.iter().map(|flow| &*flow.target).collect();
        assert_eq!(targets, ["a:2", "a:8", "a:7"]);
        assert_eq!((shown.open, shown.flows[0].down_bytes), (9, 9));
        let far = records.show(None, 1, false).await;
        assert_eq!(
            far.flows[0].up_bytes, 9,
            "what leaves the tunnel there goes up"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_ended_is_known_for_a_while_with_its_reason_and_bounded() {
        let records = Arc::<Records>::default();
        let flow = records.begin(about("a:1", false));
        flow.ends(&"x".repeat(1000));
        drop(flow);
        let shown = records.show(Some("a:1"), 9, true).await;
        assert_eq!(shown.flows[0].state, Phase::Ended);
        assert_eq!(shown.flows[0].end.as_ref().unwrap().len(), MAX_WORDS);
        for _ in 0..=MAX_ENDED {
            drop(records.begin(about("b:1", false)));
        }
        assert!(records.show(Some("a:1"), 9, true).await.flows.is_empty());
        assert_eq!(records.lock().ended.len(), MAX_ENDED);
    }

    #[tokio::test(start_paused = true)]
    async fn open_flows_beyond_the_bound_are_not_listed_and_leave_nothing() {
        let records = Arc::<Records>::default();
        let flows: Vec<Listed> = (0..=MAX_OPEN)
            .map(|_| records.begin(about("a:1", false)))
            .collect();
        assert_eq!(records.lock().open.len(), MAX_OPEN);
        drop(flows);
        assert!(records.lock().open.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_flow_waits_for_is_told_only_while_it_waits() {
        let records = Arc::<Records>::default();
        let flow = records.begin(about("a:1", false));
        flow.enter(Phase::Open);
        flow.wait_inward(async {}).await;
        assert_eq!(flow.show((0, 0), true).waits_for_tunnel_seconds, None);
        let (room, no_room) = oneshot::channel::<()>();
        let waiting = flow.wait_inward(no_room);
        let look = async {
            tokio::task::yield_now().await;
            let shown = flow.show((0, 0), true);
            assert!(shown.waits_for_tunnel_seconds.is_some());
            assert_eq!(shown.waits_for_socket_seconds, None);
            room.send(()).unwrap();
        };
        let (done, ()) = tokio::join!(waiting, look);
        done.unwrap();
        assert_eq!(flow.show((0, 0), true).waits_for_tunnel_seconds, None);
    }

    #[test]
    fn totals_only_grow_and_tell_flows_that_failed() {
        let records = Arc::<Records>::default();
        let moved = Moved::default();
        let flow = records.begin(about("a:1", true));
        let failed = records.begin(about("b:1", false));
        flow.enter(Phase::Open);
        let all = &moved;
        Meter { all, record: &flow }.inward(5, true);
        flow.sent();
        let before = records.totals();
        assert_eq!(
            (before.flows.open, before.flows.made, before.flows.failed),
            (2, 1, 0)
        );
        drop((flow, failed));
        let after = records.totals();
        assert_eq!(
            (after.flows.open, after.flows.made, after.flows.failed),
            (0, 1, 1)
        );
        assert_eq!((before.moved, after.moved), ((5, 0), (5, 0)));
        assert_eq!((before.datagrams.up, after.datagrams.up), (1, 1));
    }

    #[test]
    fn waits_copies_and_paths_of_datagrams_are_counted() {
        let record = Record::new(1, about("a:1", true));
        record.held(Duration::from_millis(2));
        record.held(Duration::from_millis(4));
        record.repeated(3);
        for path in 0..20 {
            record.came_by(PathId(path), 10);
        }
        record.came_by(PathId(0), 10);
        let shown = record.show((0, 0), true);
        let datagrams = shown.datagrams.unwrap();
        assert_eq!((datagrams.held, datagrams.copies), (2, 3));
        assert_eq!(datagrams.mean_wait_ms, Some(3.0));
        assert_eq!(datagrams.longest_wait_ms, Some(4.0));
        let bytes: Vec<u64> = shown.paths.iter().map(|path| path.received_bytes).collect();
        assert_eq!(bytes, [20, 10, 10, 10, 10, 10, 10, 130]);
    }
}
