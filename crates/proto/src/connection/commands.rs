//! What the application may ask of a connection.

use super::Connection;
use crate::config::AckReturn;
use crate::congestion::ControllerFactory;
use crate::datagram::Tuple;
use crate::event::Observer;
use crate::handshake::{ExportError, KeyUpdateRefused};
use crate::path::ack_routes::AckRoutes;
use crate::path::manager::{Missing, Slot};
use crate::path::state::PathOptions;
use crate::path::{AbandonPathError, OpenPathError, PathUnknown};
use crate::sched::{Backlog, PathEvent, Scheduler};
use crate::stats::{ConnectionStats, PathStats};
use crate::streams::{
    Account, ClosedStream, DatagramOptions, ReadError, ReceivedDatagram, SendDatagramError,
    WriteError,
};
use crate::time::Instant;
use crate::wire::frame::PathStatus;
use crate::wire::{Dir, ErrorCode, PathId, Side, StreamId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

impl Connection {
    /// Opens a stream; `None` until the peer allows one more (then `Available` is raised).
    pub fn open(&mut self, dir: Dir) -> Option<StreamId> {
        self.streams.open(dir)
    }

    /// The next stream the peer opened.
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.streams.accept(dir)
    }

    /// Takes bytes to send off the front of `data`; returns how many.
    pub fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        let taken = self.streams.write(id, data)?;
        self.placement.on_written();
        Ok(taken)
    }

    /// What of a server's memory holds what was written here.
    pub(crate) fn account(&self) -> &Account {
        self.streams.account()
    }

    /// Whether its application cannot write because the server's memory is in use.
    pub(crate) fn waits_for_budget(&self) -> bool {
        !self.life.is_over() && self.streams.waits_for_budget()
    }

    /// The server's memory has room again.
    pub(crate) fn on_budget(&mut self) {
        self.streams.on_budget();
    }

    /// Says that no more will be written.
    pub fn finish(&mut self, id: StreamId) -> Result<(), ClosedStream> {
        self.streams.finish(id)?;
        self.placement.on_written();
        Ok(())
    }

    /// Gives up on sending a stream.
    pub fn reset(&mut self, id: StreamId, code: impl Into<ErrorCode>) -> Result<(), ClosedStream> {
        self.streams.reset(id, code.into())
    }

    /// Streams of higher priority are sent first; 0 unless set.
    pub fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), ClosedStream> {
        self.streams.set_priority(id, priority)
    }

    /// Tells schedulers what kind of traffic a stream carries: a number below
    /// [`MAX_CLASSES`](crate::sched::MAX_CLASSES), 0 unless set; higher ones count as the highest.
    /// Holds for what was written before too, sent or not.
    pub fn set_class(&mut self, id: StreamId, class: u8) -> Result<(), ClosedStream> {
        self.streams.set_class(id, class)?;
        self.placement.on_requeued();
        Ok(())
    }

    /// At most `max` received bytes in order; `None` at the end of the stream.
    pub fn read(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        self.streams.read(id, max)
    }

    /// Asks the peer to send no more.
    pub fn stop(&mut self, id: StreamId, code: impl Into<ErrorCode>) -> Result<(), ClosedStream> {
        self.streams.stop(id, code.into())
    }

    /// Queues an unreliable datagram.
    pub fn send_datagram(&mut self, data: Bytes) -> Result<(), SendDatagramError> {
        self.send_datagram_with(data, DatagramOptions::default())
    }

    /// Queues an unreliable datagram of which the scheduler is told more. It is dropped and
    /// [counted](crate::streams::StreamStats::datagrams_expired) if its deadline passes before it
    /// is sent.
    pub fn send_datagram_with(
        &mut self,
        data: Bytes,
        options: DatagramOptions,
    ) -> Result<(), SendDatagramError> {
        self.streams.send_datagram_with(data, options)?;
        self.placement.on_written();
        Ok(())
    }

    /// How many datagrams of each tag were dropped as their deadline passed before they were sent,
    /// since this was asked last ([more](crate::streams::Streams::take_expired)).
    pub fn take_expired_datagrams(&mut self) -> BTreeMap<u64, u64> {
        self.streams.take_expired()
    }

    /// The next datagram received.
    pub fn recv_datagram(&mut self) -> Option<ReceivedDatagram> {
        self.streams.recv_datagram()
    }

    /// The largest datagram that the peer takes, and every path that is in use and whose MTU is not
    /// still searched; in bytes. `None` if the peer takes none.
    pub fn max_datagram_payload(&self) -> Option<usize> {
        self.streams.max_datagram_payload()
    }

    /// Opens a path along `tuple`. [`PathNotice::Opened`](crate::event::PathNotice) tells when it
    /// carries data, `Abandoned` if it never will.
    pub fn open_path(
        &mut self,
        now: Instant,
        tuple: Tuple,
        options: PathOptions,
    ) -> Result<PathId, OpenPathError> {
        self.open_path_from(now, tuple, None, options)
    }

    /// As [`open_path`](Self::open_path), for a driver that knows which address packets along
    /// `tuple` leave from: by that, what an earlier connection saw of a path is found again. It has
    /// no part in where they go.
    pub fn open_path_from(
        &mut self,
        now: Instant,
        tuple: Tuple,
        local_address: Option<IpAddr>,
        options: PathOptions,
    ) -> Result<PathId, OpenPathError> {
        if self.life.is_over() {
            return Err(OpenPathError::Closed);
        }
        if self.identity.side().is_server() {
            return Err(OpenPathError::NotClient);
        }
        if !self.handshake.is_complete() {
            return Err(OpenPathError::NotYet);
        }
        if !self.paths.is_multipath() {
            return Err(OpenPathError::NoMultipath);
        }
        // RFC 10069 leaves the server's other addresses open, such as a preferred one.
        if self.identity.peer().disable_active_migration
            && tuple.remote == self.identity.handshake_remote()
        {
            return Err(OpenPathError::Forbidden);
        }
        if self.paths.open_count() >= self.path_cap() {
            self.paths.on_turned_away();
            return Err(OpenPathError::LimitReached);
        }
        let id = self.paths.next_unused().map_err(|missing| {
            self.paths.on_turned_away();
            match missing {
                Missing::Id => OpenPathError::LimitReached,
                Missing::Cid => OpenPathError::NoCid,
            }
        })?;
        self.create_path(now, id, tuple, options);
        self.resume_path(now, id, local_address);
        Ok(id)
    }

    /// Gives a path up; its ID is spent. The last path that is known to work cannot be given up:
    /// close instead.
    ///
    /// # Errors
    /// See [`AbandonPathError`].
    pub fn abandon_path(
        &mut self,
        now: Instant,
        id: PathId,
        code: impl Into<ErrorCode>,
    ) -> Result<(), AbandonPathError> {
        let open = self.paths.open().filter_map(|slot| slot.open());
        let others = open.filter(|path| path.id() != id && path.route().is_validated());
        if self.paths.open_path(id).is_none() {
            return Err(AbandonPathError::Unknown);
        }
        if others.count() == 0 || !self.multipath_active() {
            return Err(AbandonPathError::LastPath);
        }
        self.abandon(now, id, code.into().value(), false);
        Ok(())
    }

    /// Tells the peer what to send on a path.
    pub fn set_path_status(&mut self, id: PathId, status: PathStatus) -> Result<(), PathUnknown> {
        if self.paths.open_path(id).is_none() {
            return Err(PathUnknown);
        }
        if let Some(status) = self.paths.set_status(id, status) {
            self.on_path_event(PathEvent::Status { path: id, status });
        }
        Ok(())
    }

    /// Changes how schedulers weigh a path.
    pub fn set_path_options(
        &mut self,
        id: PathId,
        options: PathOptions,
    ) -> Result<(), PathUnknown> {
        let path = self.paths.open_path_mut(id).ok_or(PathUnknown)?;
        path.set_options(options, self.clock);
        let slot = self.paths.slot(id).ok_or(PathUnknown)?;
        if slot.own_status() == options.status {
            Ok(())
        } else {
            self.set_path_status(id, options.status)
        }
    }

    /// Sends a PING on a path: its RTT is measured anew.
    pub fn ping(&mut self, id: PathId) -> Result<(), PathUnknown> {
        let path = self.paths.open_path_mut(id).ok_or(PathUnknown)?;
        path.request_ping();
        Ok(())
    }

    /// What waits to be sent, and the credit it has.
    pub fn backlog(&self) -> Backlog {
        self.streams.backlog()
    }

    /// The open paths, ascending.
    pub fn paths(&self) -> impl Iterator<Item = PathId> + '_ {
        self.paths.open().map(Slot::id)
    }

    /// What is known of a path that is open or closing.
    pub fn path_stats(&self, id: PathId) -> Option<PathStats> {
        let slot = self.paths.slot(id)?;
        let path = slot.path()?;
        let rest = path.rest(&self.common());
        let mut stats = PathStats::of(slot, path, rest, &self.one_way, self.clock);
        stats.bottleneck = self.bottlenecks.group(id);
        Some(stats)
    }

    /// What is known of the connection.
    pub fn stats(&self) -> ConnectionStats {
        let mut stats = self.outbox.stats();
        stats.streams = self.streams.stats();
        stats.scheduler = self.placement.stats();
        stats.delay_outliers = self.one_way.outliers();
        stats.clock_steps = self.one_way.clock_steps();
        stats.blocked = self.placement.blocked_stats(self.clock);
        stats.keys_updated = self.handshake.keys_updated();
        stats.failed_opens = self.handshake.failed_opens();
        stats
    }

    /// Replaces the scheduler; the next packet is placed by the new one.
    pub fn set_scheduler(&mut self, scheduler: Box<dyn Scheduler>) {
        self.placement.set_scheduler(scheduler);
    }

    /// Replaces the congestion controllers of all paths by new ones, for these and later paths.
    pub fn set_congestion(&mut self, now: Instant, factory: ControllerFactory) {
        for (_, path) in self.paths.open_mut() {
            let seed = self.rng.below(u64::MAX);
            path.replace_controller(now, &factory, seed);
        }
        // Copied at most once: from then on the configuration is this connection's own.
        Arc::make_mut(&mut self.config).congestion = factory;
    }

    /// Sends acknowledgements back another way from now on.
    pub fn set_ack_return(&mut self, ack_return: AckReturn) {
        self.ack_routes = AckRoutes::new(ack_return);
    }

    /// Bytes each decision of the scheduler covers from now on; `None` means one packet.
    pub fn set_chunk(&mut self, chunk: Option<u64>) {
        self.placement.set_chunk(chunk);
    }

    /// Starts using new keys (RFC 9001, section 6).
    pub fn update_keys(&mut self, now: Instant) -> Result<(), KeyUpdateRefused> {
        let delay = self.three_pto();
        self.handshake.update_keys(now, delay)?;
        self.observe_keys(now, false);
        Ok(())
    }

    /// Shows what happens inside to `observer` from now on. To see the first packets too, name a
    /// [factory](crate::config::TransportConfig::observer) in the configuration.
    pub fn set_observer(&mut self, observer: Option<Box<dyn Observer>>) {
        let keys = self.handshake.keys_updated();
        self.outbox.set_observer(observer, keys);
        self.introduce();
    }

    /// Whether this is the client or the server.
    pub fn side(&self) -> Side {
        self.identity.side()
    }

    /// The name the client asked for.
    pub fn server_name(&self) -> &str {
        self.handshake
            .server_name()
            .unwrap_or(self.identity.server_name())
    }

    /// The application protocol agreed on.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.handshake.alpn()
    }

    /// The peer's raw public key (SPKI) or leaf certificate, DER.
    pub fn peer_identity(&self) -> Option<Vec<u8>> {
        self.handshake.peer_identity()
    }

    /// Keys for the application from the TLS session (RFC 8446, section 7.5).
    pub fn export_keying_material(
        &self,
        out: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportError> {
        self.handshake.export_keying_material(out, label, context)
    }

    /// Whether the handshake is complete and the connection not over.
    pub fn is_established(&self) -> bool {
        self.handshake.is_complete() && !self.life.is_over()
    }

    /// Whether the handshake is confirmed (RFC 9001, section 4.1.2).
    pub fn is_confirmed(&self) -> bool {
        self.handshake.is_confirmed()
    }

    /// Whether the connection is over, for whatever reason.
    pub fn is_closed(&self) -> bool {
        self.life.is_over()
    }

    /// Whether both sides speak the multipath extension.
    pub fn has_multipath(&self) -> bool {
        self.paths.is_multipath()
    }

    /// The original destination connection ID: the name of the connection in qlog.
    pub fn original_dcid(&self) -> crate::wire::ConnectionId {
        self.identity.original_dcid()
    }

    /// The token for the next connection to this server, once it sent one. The next
    /// [resumption](Self::take_resumption) takes it.
    pub fn next_token(&self) -> &[u8] {
        self.identity.next_token().unwrap_or_default()
    }
}
