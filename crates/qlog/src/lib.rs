//! Traces of connections as qlog: JSON text sequences (RFC 7464) for qvis and other readers.
//!
//! [`Qlog`] is an [`Observer`]: it turns what a connection shows into records of
//! draft-ietf-quic-qlog-main-schema and -quic-events, one `write` to its [`Sink`] for each. A
//! [`Folder`] writes them to files, one for each connection. This crate decides how observations
//! are spelled, not what is observed. `docs/qlog.md` lists the events.
//!
//! ```text
//! <RS>{"file_schema":"urn:ietf:params:qlog:file:sequential", ... }<LF>    the header
//! <RS>{"time":12.5,"name":"quic:packet_sent","tuple":"1","data":{...}}<LF>
//! ```

mod events;
mod folder;
mod frames;
mod json;
#[cfg(test)]
mod tests;

pub use folder::{Folder, WhenSlow};

use anabranch_proto::event::{Metrics, Observation, Observer, Subject};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{ConnectionId, PathId, Side};
use json::Object;
use std::collections::BTreeMap;
use std::fmt;

/// The schema of the file (draft-ietf-quic-qlog-main-schema).
pub const FILE_SCHEMA: &str = "urn:ietf:params:qlog:file:sequential";

/// The schemas of the events: QUIC's in the draft's version followed here, and our own.
pub const EVENT_SCHEMAS: [&str; 2] = [
    "urn:ietf:params:qlog:events:quic-14",
    "urn:anabranch:qlog:events:anabranch-1",
];

/// Takes the records of a trace.
///
/// Called once per record, on the thread that drives the engine: a sink that writes to something
/// slow should buffer.
pub trait Sink: Send {
    /// Appends one record, from its record separator to its line feed.
    fn write(&mut self, record: &[u8]);
}

impl<F: FnMut(&[u8]) + Send> Sink for F {
    fn write(&mut self, record: &[u8]) {
        self(record);
    }
}

/// What a trace says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Which side is traced.
    pub side: Side,
    /// What both sides' traces of one connection have in common: the first destination connection
    /// ID.
    pub original_dcid: ConnectionId,
    /// Words for people: the program, the run.
    pub title: String,
    /// Times in the trace count from here.
    pub reference: Instant,
    /// The date and time at `reference`, as RFC 3339 writes it, if known.
    pub wall_clock: Option<String>,
}

impl Header {
    /// The header of a trace that begins with the connection.
    pub fn of(subject: &Subject, title: impl Into<String>) -> Self {
        Self {
            side: subject.side,
            original_dcid: subject.original_dcid,
            title: title.into(),
            reference: subject.began,
            wall_clock: None,
        }
    }

    fn write(&self, o: &mut Object<'_>) {
        o.text("file_schema", FILE_SCHEMA);
        o.text("serialization_format", "application/qlog+json-seq");
        if !self.title.is_empty() {
            o.text("title", &self.title);
        }
        o.object("trace", |o| {
            o.object("common_fields", |o| {
                o.hex("group_id", self.original_dcid.as_slice());
                o.text("time_format", "relative_to_epoch");
                o.object("reference_time", |o| {
                    o.text("clock_type", "monotonic");
                    o.text("epoch", "unknown");
                    if let Some(at) = &self.wall_clock {
                        o.text("wall_clock_time", at);
                    }
                });
            });
            let side = match self.side {
                Side::Client => "client",
                Side::Server => "server",
            };
            o.object("vantage_point", |o| o.text("type", side));
            o.list("event_schemas", EVENT_SCHEMAS, json::quote);
        });
    }
}

/// Writes what happens on one connection as qlog.
pub struct Qlog {
    writer: Writer,
    /// The state last reported, to be named as the old one.
    state: Option<&'static str>,
    /// Exponents of acknowledgement delays: ours and the peer's (RFC 9000, section 18.2).
    exponents: [u64; 2],
    /// As many entries as the connection has open paths.
    paths: BTreeMap<PathId, Traced>,
}

/// What was last said about a path.
#[derive(Debug, Default)]
struct Traced {
    /// Routes it had before the present one.
    moves: u32,
    has_route: bool,
    metrics: Option<Metrics>,
}

/// Where records are put together.
struct Writer {
    sink: Box<dyn Sink>,
    reference: Instant,
    line: String,
}

impl Writer {
    /// RFC 7464, section 2.2: a record separator before the text, a line feed after it.
    fn record(&mut self, fill: impl FnOnce(&mut Object<'_>)) {
        self.line.clear();
        self.line.push('\x1e');
        Object::write(&mut self.line, fill);
        self.line.push('\n');
        self.sink.write(self.line.as_bytes());
    }

    fn event(
        &mut self,
        now: Instant,
        name: &str,
        tuple: Option<(PathId, u32)>,
        data: impl FnOnce(&mut Object<'_>),
    ) {
        let time = now.since(self.reference);
        self.record(|o| {
            o.millis("time", time);
            o.text("name", name);
            if let Some(tuple) = tuple {
                write_tuple(o, "tuple", tuple);
            }
            o.object("data", data);
        });
    }
}

/// A route's name: its path, and how often that moved before if it did.
fn write_tuple(o: &mut Object<'_>, key: &str, (path, moves): (PathId, u32)) {
    match moves {
        0 => o.display(key, &path),
        _ => o.display(key, &format_args!("{path}.{moves}")),
    }
}

impl Qlog {
    /// Starts a trace: the header goes to `sink` at once.
    pub fn new(header: &Header, sink: impl Sink + 'static) -> Self {
        let mut writer = Writer {
            sink: Box::new(sink),
            reference: header.reference,
            line: String::new(),
        };
        writer.record(|o| header.write(o));
        Self {
            writer,
            state: None,
            exponents: [DEFAULT_ACK_DELAY_EXPONENT; 2],
            paths: BTreeMap::new(),
        }
    }

    /// The name of a path's present route.
    fn tuple(&self, path: PathId) -> (PathId, u32) {
        (path, self.paths.get(&path).map_or(0, |traced| traced.moves))
    }
}

/// What an endpoint uses that does not say otherwise (RFC 9000, section 18.2).
const DEFAULT_ACK_DELAY_EXPONENT: u64 = 3;

impl Observer for Qlog {
    fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        self.write(now, observation);
    }
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qlog")
            .field("state", &self.state)
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}
