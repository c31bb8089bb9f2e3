//! HTTP datagrams of one connection (RFC 9297, section 2): each to the request that it is for.
//!
//! One task reads what the connection received. A request that does not read as fast as its
//! datagrams come loses the oldest; no other request waits for it.

use super::close;
use anabranch_masque::datagram::{put_stream, split_stream, stream_size};
use anabranch_masque::{Code, Error};
use anabranch_net::engine::ReceivedDatagram;
use anabranch_net::error::SendDatagramError;
use anabranch_net::{Connection, DatagramOptions};
use anabranch_proto::time::Instant as EngineInstant;
use anabranch_proto::wire::PathId;
use anabranch_tunnel::{Delays, PathDelay, Treatment};
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Datagrams that wait for one request, and bytes of them.
const MAX_WAITING: usize = 1024;
const MAX_WAITING_BYTES: usize = 512 << 10;
/// Bytes that wait for all requests of a connection.
const MAX_CONNECTION_BYTES: usize = 4 << 20;
/// Datagrams that are read at a time.
const BATCH: usize = 64;

/// A datagram that arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// By which path; `None` if it came on a stream.
    pub(crate) path: Option<PathId>,
    pub(crate) bytes: Bytes,
}

/// The delays as they were last looked at, by this machine's clock.
#[derive(Debug)]
struct Looked {
    since: Instant,
    delays: Delays,
}

impl Default for Looked {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            delays: Delays::default(),
        }
    }
}

/// What waits for one request.
#[derive(Debug, Default)]
struct Waiting {
    datagrams: VecDeque<Arrived>,
    bytes: usize,
    dropped: u64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    more: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of datagrams for a request.
#[derive(Debug)]
enum Taker {
    /// They wait here until they are read.
    Queue(Arc<Queue>),
    /// The request has none: it is told that one came.
    Nobody(Arc<Notify>),
}

/// The requests of a connection, by the number of their streams.
#[derive(Debug, Default)]
pub(super) struct Hub {
    takers: Mutex<HashMap<u64, Taker>>,
    /// Bytes that wait in all queues.
    bytes: AtomicUsize,
    delays: Mutex<Looked>,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Taker>> {
        self.takers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a datagram behind those that wait already, and drops the oldest of them if there are
    /// too many.
    fn push(&self, queue: &Queue, arrived: Arrived) {
        let mut waiting = queue.lock();
        let length = arrived.bytes.len();
        waiting.bytes += length;
        waiting.datagrams.push_back(arrived);
        let mut all = self.bytes.fetch_add(length, Ordering::Relaxed) + length;
        while waiting.datagrams.len() > MAX_WAITING
            || waiting.bytes > MAX_WAITING_BYTES
            || all > MAX_CONNECTION_BYTES
        {
            let Some(oldest) = waiting.datagrams.pop_front() else {
                break;
            };
            let length = oldest.bytes.len();
            waiting.bytes -= length;
            waiting.dropped += 1;
            all = self.bytes.fetch_sub(length, Ordering::Relaxed) - length;
        }
        drop(waiting);
        queue.more.notify_one();
    }

    /// The datagrams for and from a request on this stream, until they are dropped.
    pub(super) fn open(self: &Arc<Self>, connection: &Connection, stream: u64) -> Datagrams {
        let queue = Arc::<Queue>::default();
        let taker = Taker::Queue(Arc::clone(&queue));
        self.lock().insert(stream, taker);
        Datagrams {
            stream,
            connection: connection.clone(),
            hub: Arc::clone(self),
            queue,
        }
    }

    /// From now on a datagram for the request on this stream is against the rules.
    pub(super) fn refuse(self: &Arc<Self>, stream: u64) -> NoDatagrams {
        let came = Arc::<Notify>::default();
        let taker = Taker::Nobody(Arc::clone(&came));
        self.lock().insert(stream, taker);
        NoDatagrams {
            stream,
            hub: Arc::clone(self),
            came,
        }
    }
}

/// A request that has no datagrams, until it is dropped.
#[derive(Debug)]
pub(super) struct NoDatagrams {
    stream: u64,
    hub: Arc<Hub>,
    came: Arc<Notify>,
}

impl NoDatagrams {
    /// Waits until a datagram comes all the same. RFC 9297, section 2: the request is ended.
    pub(super) async fn broken(&self) -> Error {
        self.came.notified().await;
        Error::Stream {
            code: Code::DATAGRAM_ERROR,
            reason: "a datagram for a request that has none",
        }
    }
}

impl Drop for NoDatagrams {
    fn drop(&mut self) {
        self.hub.lock().remove(&self.stream);
    }
}

/// Hands out what the connection receives, until it ends.
pub(super) async fn deliver(connection: Connection, hub: Arc<Hub>) {
    let mut batch: Vec<ReceivedDatagram> = Vec::with_capacity(BATCH);
    while connection.read_datagrams(BATCH, &mut batch).await.is_ok() {
        let takers = hub.lock();
        for ReceivedDatagram { path, data } in batch.drain(..) {
            match split_stream(data) {
                Ok((stream, bytes)) => match takers.get(&stream) {
                    Some(Taker::Queue(queue)) => {
                        let path = Some(path);
                        hub.push(queue, Arrived { path, bytes });
                    }
                    Some(Taker::Nobody(came)) => came.notify_one(),
                    // Those for requests that have ended, or not begun, are dropped.
                    None => {}
                },
                Err(error) => return close(&connection, error.code(), error.reason()),
            }
        }
    }
}

/// What a datagram has that puts it in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sequence {
    /// Nothing.
    None,
    /// A number.
    Numbered,
    /// A number, and if it is lost it is sent again: the peer waits for it.
    Repaired,
}

/// The datagrams for and from one request.
#[derive(Debug)]
pub(crate) struct Datagrams {
    stream: u64,
    connection: Connection,
    hub: Arc<Hub>,
    queue: Arc<Queue>,
}

impl Datagrams {
    /// Waits for datagrams and appends all there are; returns how many were dropped because nobody
    /// read them in time. Can be cancelled without a loss.
    pub(crate) async fn arrive(&self, into: &mut Vec<Arrived>) -> u64 {
        loop {
            {
                let mut waiting = self.queue.lock();
                if !waiting.datagrams.is_empty() {
                    let bytes = std::mem::take(&mut waiting.bytes);
                    self.hub.bytes.fetch_sub(bytes, Ordering::Relaxed);
                    into.extend(waiting.datagrams.drain(..));
                    return std::mem::take(&mut waiting.dropped);
                }
            }
            self.queue.more.notified().await;
        }
    }

    /// The beginning of a datagram, with room for `length` bytes behind it.
    pub(crate) fn begin(&self, length: usize) -> Vec<u8> {
        let mut datagram = Vec::with_capacity(stream_size(self.stream) + length);
        put_stream(&mut datagram, self.stream);
        datagram
    }

    /// Sends what [`begin`](Self::begin) began, of the flow whose record has this number. One that
    /// has a number of its own may go by any path; others stay together where the scheduler keeps
    /// flows on paths.
    ///
    /// # Errors
    ///
    /// It was dropped: it is larger than every path carries, too much waits, or the connection has
    /// ended.
    pub(crate) fn send(
        &self,
        datagram: Vec<u8>,
        of: u64,
        sequence: Sequence,
        treatment: &Treatment,
    ) -> Result<(), SendDatagramError> {
        let is_numbered = sequence != Sequence::None;
        let flow = if is_numbered { 0 } else { self.stream / 4 + 1 };
        let options = DatagramOptions {
            flow,
            within: Some(treatment.lasts()),
            // Copies are known apart by their numbers.
            critical: treatment.is_critical() && is_numbered,
            // Those without numbers are put in order by nobody.
            max_skew: treatment.max_skew().filter(|_| is_numbered),
            repair: sequence == Sequence::Repaired,
            class: if is_numbered {
                treatment.class_of_numbered()
            } else {
                treatment.class()
            },
            tag: of,
        };
        self.connection.send_datagram_with(datagram.into(), options)
    }

    /// The delays of the paths in use.
    pub(crate) fn delays(&self) -> Arc<[PathDelay]> {
        let mut looked = self
            .hub
            .delays
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = EngineInstant::ZERO + looked.since.elapsed();
        looked.delays.at(now, || self.connection.paths())
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.hub.lock().remove(&self.stream);
        let bytes = std::mem::take(&mut self.queue.lock().bytes);
        self.hub.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
