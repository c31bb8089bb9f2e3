//! Streams of either direction whose bytes follow a pattern, checked as they arrive.

use super::Pair;
use anabranch_proto::connection::Connection;
use anabranch_proto::streams::{ReadError, StreamEvent, WriteError};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, StreamId};
use bytes::Bytes;
use std::time::Duration;

/// One direction of one stream.
#[derive(Debug)]
pub struct Flow {
    pub to_server: bool,
    pub id: StreamId,
    pub length: u64,
    pub started: Instant,
    pub received: u64,
    pub done_at: Option<Instant>,
    /// Reset or stopped on purpose: it need not arrive.
    pub cut: bool,
    /// In-order bytes after each read.
    pub progress: Vec<(Instant, u64)>,
    left: Bytes,
    finished: bool,
}

fn pattern(id: StreamId, at: u64) -> u8 {
    (at * 31 + at / 251 + id.0) as u8
}

impl Flow {
    /// The longest time without progress, from `since` on.
    pub fn longest_gap(&self, since: Instant) -> Duration {
        let mut before = since;
        let mut longest = Duration::ZERO;
        for (at, _) in self.progress.iter().filter(|(at, _)| *at >= since) {
            longest = longest.max(at.since(before));
            before = *at;
        }
        longest
    }

    pub fn is_done(&self) -> bool {
        self.done_at.is_some() || self.cut
    }
}

fn find(flows: &mut [Flow], to_server: bool, id: StreamId) -> Option<&mut Flow> {
    flows
        .iter_mut()
        .find(|flow| flow.to_server == to_server && flow.id == id)
}

/// Checks bytes that arrived; `false` if they belong to no flow.
pub fn take(flows: &mut [Flow], now: Instant, to_server: bool, id: StreamId, bytes: &[u8]) -> bool {
    let Some(flow) = find(flows, to_server, id) else {
        return false;
    };
    for byte in bytes {
        assert!(flow.received < flow.length, "stream {id} is too long");
        let right = pattern(id, flow.received);
        assert_eq!(*byte, right, "stream {id} differs at {}", flow.received);
        flow.received += 1;
    }
    flow.progress.push((now, flow.received));
    true
}

/// The stream is complete.
pub fn end(flows: &mut [Flow], now: Instant, to_server: bool, id: StreamId) {
    if let Some(flow) = find(flows, to_server, id) {
        assert_eq!(flow.received, flow.length, "stream {id} ends early");
        assert_eq!(flow.done_at, None, "stream {id} ends twice");
        flow.done_at = Some(now);
    }
}

/// The streams an event says there is something to read on.
pub fn to_read(connection: &mut Connection, event: StreamEvent) -> Vec<StreamId> {
    match event {
        StreamEvent::Opened { dir } => std::iter::from_fn(|| connection.accept(dir)).collect(),
        StreamEvent::Readable { id } => vec![id],
        _ => Vec::new(),
    }
}

/// Whether nothing more is to be read: the end was, or the stream was cut short on purpose. An
/// event raised before the end was read may come after it.
pub fn is_over(flows: &[Flow], to_server: bool, id: StreamId) -> bool {
    let mut flows = flows.iter();
    flows.any(|flow| flow.to_server == to_server && flow.id == id && flow.is_done())
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    std::fmt::Write::write_fmt(text, line).expect("a string takes anything");
}

impl Pair {
    /// Starts a stream of `length` bytes; returns its index in `flows`.
    pub fn start(&mut self, to_server: bool, length: u64) -> usize {
        let connection = self.side(!to_server).expect("a sender");
        let id = connection.open(Dir::Uni).expect("a stream can be opened");
        self.add_flow(to_server, id, length)
    }

    /// Sends `length` bytes on a stream that is open.
    pub fn add_flow(&mut self, to_server: bool, id: StreamId, length: u64) -> usize {
        let data: Vec<u8> = (0..length).map(|at| pattern(id, at)).collect();
        self.flows.push(Flow {
            to_server,
            id,
            length,
            started: self.now,
            received: 0,
            done_at: None,
            cut: false,
            progress: Vec::new(),
            left: Bytes::from(data),
            finished: false,
        });
        self.flows.len() - 1
    }

    /// Runs until the flow has arrived; returns how long it took in all.
    pub fn finish(&mut self, flow: usize, limit: Duration) -> Duration {
        let done = self.run_until(limit, |pair| pair.flows[flow].done_at.is_some());
        let flow = &self.flows[flow];
        assert!(
            done,
            "{} of {} bytes after {limit:?}\n{}",
            flow.received,
            flow.length,
            self.report()
        );
        self.now.since(flow.started)
    }

    /// Transfers `length` bytes and returns how long it took.
    pub fn transfer(&mut self, to_server: bool, length: u64, limit: Duration) -> Duration {
        let flow = self.start(to_server, length);
        self.finish(flow, limit)
    }

    /// What both sides know, for messages of failed tests.
    pub fn report(&self) -> String {
        let mut text = format!("at {}\n", self.now);
        let client = self.client.connection(self.client_handle);
        let server = self.server_handle.and_then(|h| self.server.connection(h));
        for (name, connection) in [("client", client), ("server", server)] {
            let Some(connection) = connection else {
                put(&mut text, format_args!("{name}: gone\n"));
                continue;
            };
            put(
                &mut text,
                format_args!("{name}: next {:?}\n", connection.next_timer()),
            );
            for id in connection.paths() {
                put(
                    &mut text,
                    format_args!("  {:?}\n", connection.path_stats(id)),
                );
            }
            put(&mut text, format_args!("  {:?}\n", connection.stats()));
        }
        for (name, events) in [
            ("client", &self.client_events),
            ("server", &self.server_events),
        ] {
            let paths = events
                .iter()
                .filter(|(_, event)| !matches!(event, super::Event::Stream(_)));
            let all: Vec<_> = paths.collect();
            for (at, event) in &all[all.len().saturating_sub(12)..] {
                put(&mut text, format_args!("  {name} {at} {event:?}\n"));
            }
        }
        text
    }

    /// The applications write what there is room for.
    pub(super) fn pump_flows(&mut self) {
        for at in 0..self.flows.len() {
            let flow = &mut self.flows[at];
            if flow.finished || flow.cut {
                continue;
            }
            let (id, mut left) = (flow.id, std::mem::take(&mut flow.left));
            let from_server = !flow.to_server;
            let Some(connection) = self.side(from_server) else {
                continue;
            };
            let mut stopped = false;
            while !left.is_empty() {
                match connection.write(id, &mut left) {
                    Ok(_) => {}
                    Err(WriteError::Blocked) => break,
                    Err(WriteError::Stopped(_)) => {
                        stopped = true;
                        break;
                    }
                    Err(error) => panic!("writing stream {id}: {error}"),
                }
            }
            let finished = left.is_empty() && !stopped;
            if finished && connection.finish(id).is_err() {
                stopped = true;
            }
            let flow = &mut self.flows[at];
            assert!(!stopped || flow.cut, "stream {id} was stopped");
            flow.finished = finished;
            flow.left = left;
        }
    }

    /// The client reads whatever comes.
    pub(super) fn serve_client(&mut self, event: StreamEvent) {
        let Some(connection) = self.client.connection_mut(self.client_handle) else {
            return;
        };
        for id in to_read(connection, event) {
            loop {
                match connection.read(id, 1 << 16) {
                    Ok(Some(bytes)) => {
                        take(&mut self.flows, self.now, false, id, &bytes);
                    }
                    Ok(None) => {
                        end(&mut self.flows, self.now, false, id);
                        break;
                    }
                    Err(ReadError::Blocked) => break,
                    Err(_) if is_over(&self.flows, false, id) => break,
                    Err(error) => panic!("reading stream {id}: {error}"),
                }
            }
        }
    }
}
