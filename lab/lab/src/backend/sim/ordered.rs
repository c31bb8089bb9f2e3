//! Reads datagrams, and restores the order of each flow if the scenario asks for it.
//!
//! At the end of a flow this does what the tunnel does with forwarded packets: a datagram that
//! overtakes an earlier one waits for it, at most for the time that the scenario sets. The receiver
//! does not learn over which path a datagram came, so only the arrival of earlier ones or the
//! timeout ends a wait.

use anabranch_proto::streams::StreamEvent;
use anabranch_proto::time::{Duration, Instant};
use anabranch_proto::wire::PathId;
use anabranch_proto::{Connection, Event};
use anabranch_sim::app::{DatagramSink, DatagramStats};
use anabranch_sim::quic::{App, SessionId, Sessions};
use anabranch_tunnel::{Delivered, Resequencer, ResequencerConfig, Wait};
use std::collections::BTreeMap;

/// The receiver of all datagram flows of one direction.
#[derive(Debug)]
pub(super) struct Ordered {
    session: SessionId,
    sink: DatagramSink,
    lines: BTreeMap<u16, Resequencer<Vec<u8>>>,
}

impl Ordered {
    /// Reads flow number 0, as [`DatagramSink::new`] does; a datagram waits this long for those
    /// before it.
    pub(super) fn new(session: SessionId, deadline: Duration, wait: Option<Duration>) -> Self {
        Self {
            session,
            sink: DatagramSink::new(session, deadline),
            lines: BTreeMap::new(),
        }
        .line(0, wait)
    }

    /// Reads one more flow.
    pub(super) fn and(mut self, flow: u16, deadline: Duration, wait: Option<Duration>) -> Self {
        self.sink = self.sink.and(flow, deadline);
        self.line(flow, wait)
    }

    fn line(mut self, flow: u16, wait: Option<Duration>) -> Self {
        if let Some(wait) = wait {
            let config = ResequencerConfig {
                wait: Wait::Fixed(wait),
                ordered_paths: false,
                ..ResequencerConfig::default()
            };
            self.lines.insert(flow, Resequencer::new(config));
        }
        self
    }

    /// The statistics of each flow, with its number; delays include the wait.
    pub(super) fn all(&self) -> impl Iterator<Item = (u16, &DatagramStats)> {
        self.sink.all()
    }

    fn take(&mut self, now: Instant, bytes: &[u8]) {
        let Some((flow, number)) = DatagramSink::flow_and_number(bytes) else {
            return;
        };
        let Some(line) = self.lines.get_mut(&flow) else {
            self.sink.take(now, bytes);
            return;
        };
        let mut out = Vec::new();
        line.on_item(now, Some(PathId(0)), number, bytes.to_vec(), &mut out);
        self.pass_on(now, &out);
    }

    fn pass_on(&mut self, now: Instant, out: &[Delivered<Vec<u8>>]) {
        for one in out {
            self.sink.take(now, &one.item);
        }
    }
}

impl App for Ordered {
    fn on_event(&mut self, host: &mut Sessions<'_>, session: SessionId, event: &Event) {
        if session != self.session || *event != Event::Stream(StreamEvent::DatagramReceived) {
            return;
        }
        let now = host.now;
        while let Some(datagram) = host.connection(session).and_then(Connection::recv_datagram) {
            self.take(now, &datagram.data);
        }
    }

    fn on_timeout(&mut self, host: &mut Sessions<'_>) {
        let now = host.now;
        let mut out = Vec::new();
        for line in self.lines.values_mut() {
            line.handle_timeout(now, &mut out);
        }
        self.pass_on(now, &out);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.lines.values().filter_map(Resequencer::deadline).min()
    }

    fn is_done(&self) -> bool {
        self.lines.values().all(|line| line.held() == 0)
    }
}
