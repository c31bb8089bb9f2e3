//! Striping above the transport, as in the first paper: one transfer in chunks over several
//! connections for each path, which the receiver puts back in order.
//!
//! Turns are strict: the next chunk waits for the connection whose turn it is, even if others have
//! room.

use super::Failure;
use crate::ledger::Ledger;
use crate::payload::piece;
use anabranch_lab::engine::turns;
use anabranch_lab::hosts::{Carrier, HostReport, Job};
use anabranch_lab::scenario::{FlowKind, Profile};
use anabranch_net::{Connection, RecvStream, SendStream};
use anabranch_sim::app::Processing;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

/// Bytes of a chunk, unless the scenario sets them.
const CHUNK: u64 = 10_000;

/// Header bytes of each chunk: its number and its length.
const HEADER: usize = 16;

/// The most bytes of one read.
const READ: usize = 256 << 10;

/// The flow that is striped.
const FLOW: u32 = 0;

/// A transfer in chunks.
#[derive(Debug)]
pub(super) struct Stripe {
    chunk: u64,
    bytes: u64,
    connections: usize,
    processing: Option<Processing>,
    /// The turns of each path in a round.
    turns: Vec<u32>,
    order: Arc<Mutex<Order>>,
}

/// Chunks that arrived ahead of earlier ones.
#[derive(Debug, Default)]
struct Order {
    waiting: BTreeMap<u64, u64>,
    waiting_bytes: u64,
    peak_bytes: u64,
    next: u64,
}

/// A chunk given to a connection, which is busy with it until the permit is dropped.
type Given = (u64, u64, OwnedSemaphorePermit);

/// Checks whether a job can be striped.
///
/// # Errors
/// Why it cannot.
pub(super) fn check(job: &Job) -> Result<(), String> {
    match job.flows[..] {
        [ref flow] if matches!(flow.kind, FlowKind::BulkBytes(_)) => Ok(()),
        _ => Err(
            "unsupported: the profile `stripe` but for one bulk flow of a given size: expected \
             one [[flow]] with kind = \"bulk\" and bytes"
                .to_owned(),
        ),
    }
}

impl Stripe {
    /// The stripe of a job, if the job has one.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let Carrier::Anabranch {
            profile: Profile::Stripe,
            scheduler,
            settings,
            ..
        } = &job.carrier
        else {
            return None;
        };
        let paths: Vec<(usize, u32)> = job
            .paths
            .iter()
            .enumerate()
            .map(|(index, path)| (index, path.usage.weight))
            .collect();
        let processing = settings.processing.unwrap_or(false);
        Some(Self {
            chunk: settings.chunk.unwrap_or(CHUNK).max(1),
            bytes: job.flows.iter().filter_map(|flow| flow.kind.bytes()).sum(),
            connections: settings.connections.unwrap_or(1).max(1) as usize,
            processing: processing.then_some(Processing::BTH),
            turns: turns(scheduler.as_ref(), &paths),
            order: Arc::default(),
        })
    }

    /// The path of each connection, in the order in which connections are opened.
    pub(super) fn lanes(&self, paths: usize) -> Vec<usize> {
        let lanes = (0..paths).flat_map(|path| std::iter::repeat_n(path, self.connections));
        lanes.collect()
    }

    /// Carries this host's part. Connections are in the order in which they were opened.
    pub(super) fn carry(
        &self,
        connections: &[Connection],
        ledger: &Arc<Ledger>,
        work: &mut JoinSet<Result<(), Failure>>,
        helpers: &mut JoinSet<()>,
    ) {
        let Some(flow) = ledger.flow(FLOW).cloned() else {
            return;
        };
        if !ledger.is_source(&flow) {
            for connection in connections {
                helpers.spawn(collect(
                    connection.clone(),
                    Arc::clone(&self.order),
                    Arc::clone(ledger),
                    self.bytes,
                ));
            }
            return;
        }
        let mut lanes = Vec::new();
        for (number, connection) in connections.iter().enumerate() {
            let path = number / self.connections;
            let weight = self.turns.get(path).copied().unwrap_or(1);
            let (sender, receiver) = mpsc::channel(1);
            let idle = Arc::new(Semaphore::new(1));
            work.spawn(write_chunks(connection.clone(), receiver));
            lanes.extend(std::iter::repeat_n((sender, idle), weight as usize));
        }
        let (ledger, chunk, bytes) = (Arc::clone(ledger), self.chunk, self.bytes);
        let processing = self.processing;
        work.spawn(async move {
            ledger.wait_until(flow.start).await;
            let began = ledger.elapsed();
            for number in 0..bytes.div_ceil(chunk) {
                if let Some(processing) = processing {
                    ledger.wait_until(began + processing.ready(number)).await;
                }
                let (sender, idle) = &lanes[(number % lanes.len() as u64) as usize];
                let permit = Arc::clone(idle).acquire_owned().await;
                let permit = permit.map_err(|error| Failure::other(&error))?;
                let length = chunk.min(bytes - number * chunk);
                // A connection that ended reports that itself.
                if sender.send((number, length, permit)).await.is_err() {
                    return Err(Failure::Connection);
                }
            }
            ledger.sent(FLOW);
            Ok(())
        });
    }

    /// Adds to the report how far out of order chunks arrived.
    pub(super) fn report(&self, report: &mut HostReport) {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        report.reseq_peak_bytes = Some(order.peak_bytes);
        report.reseq_mean_bytes = None;
        report.reseq_wait_s = None;
    }
}

/// Writes the chunks given to a connection, then waits until they have arrived.
async fn write_chunks(
    connection: Connection,
    mut given: mpsc::Receiver<Given>,
) -> Result<(), Failure> {
    let mut stream: Option<SendStream> = None;
    while let Some((number, length, permit)) = given.recv().await {
        let stream = match &mut stream {
            Some(stream) => stream,
            none => none.insert(connection.open_uni().await?),
        };
        let mut header = BytesMut::with_capacity(HEADER);
        header.put_u64(number);
        header.put_u64(length);
        stream.write_bytes(header.freeze()).await?;
        let mut left = length;
        while left > 0 {
            let next: Bytes = piece(left);
            left -= next.len() as u64;
            stream.write_bytes(next).await?;
        }
        drop(permit);
    }
    if let Some(mut stream) = stream {
        stream.finish()?;
        stream.stopped().await?;
    }
    Ok(())
}

/// Receives the chunks of one connection.
async fn collect(
    connection: Connection,
    order: Arc<Mutex<Order>>,
    ledger: Arc<Ledger>,
    expected: u64,
) {
    while let Ok(stream) = connection.accept_uni().await {
        // A stream fails only with its connection, which is reported elsewhere.
        let _ = read_chunks(stream, &order, &ledger, expected).await;
    }
}

async fn read_chunks(
    mut stream: RecvStream,
    order: &Mutex<Order>,
    ledger: &Ledger,
    expected: u64,
) -> Option<()> {
    loop {
        let mut header = [0; HEADER];
        stream.read_exact(&mut header).await.ok()?;
        let (number, length) = header.split_at(8);
        let number = u64::from_be_bytes(number.try_into().ok()?);
        let length = u64::from_be_bytes(length.try_into().ok()?);
        if number >= expected || length > expected {
            return None;
        }
        let mut missing = length;
        while missing > 0 {
            let most = missing.min(READ as u64) as usize;
            missing -= stream.read_chunk(most).await.ok()??.len() as u64;
        }
        let delivered = order
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(number, length);
        if delivered > 0 {
            ledger.arrived(FLOW, delivered);
        }
        if ledger.received() >= expected {
            ledger.completed(FLOW, 0, 0);
        }
    }
}

impl Order {
    /// Takes a chunk that arrived; returns how many more bytes are in order now.
    fn take(&mut self, number: u64, length: u64) -> u64 {
        if number >= self.next && self.waiting.insert(number, length).is_none() {
            self.waiting_bytes += length;
        }
        let mut delivered = 0;
        while let Some(length) = self.waiting.remove(&self.next) {
            self.next += 1;
            self.waiting_bytes -= length;
            delivered += length;
        }
        self.peak_bytes = self.peak_bytes.max(self.waiting_bytes);
        delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_wait_for_those_before_them_and_copies_count_once() {
        let mut order = Order::default();
        assert_eq!(order.take(1, 10), 0);
        assert_eq!(order.take(2, 10), 0);
        assert_eq!(order.take(2, 10), 0);
        assert_eq!(order.take(0, 10), 30);
        assert_eq!(order.take(0, 10), 0);
        assert_eq!(order.peak_bytes, 20);
    }
}
