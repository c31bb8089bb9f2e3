//! Observations as qlog events.

use super::json::Object;
use super::{Qlog, frames, write_tuple};
use anabranch_proto::datagram::Tuple;
use anabranch_proto::error::ConnectionError;
use anabranch_proto::event::Level;
use anabranch_proto::event::{DropReason, LossTrigger, Metrics, Observation, PathNotice, Purpose};
use anabranch_proto::sched::{Choice, Decision};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::frame::{Frame, FrameType};
use anabranch_proto::wire::params::TransportParameters;
use anabranch_proto::wire::{ConnectionId, PathId, Side};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// QUIC version 1, as qlog writes versions.
const VERSION: &str = "00000001";

/// A packet as both directions show it.
struct Packet<'a> {
    level: Level,
    path: PathId,
    pn: u64,
    size: usize,
    frames: &'a [(FrameType, Frame<'a>)],
    exponent: u64,
}

impl Qlog {
    pub(super) fn write(&mut self, now: Instant, observation: &Observation<'_>) {
        match *observation {
            Observation::Started {
                side,
                local_cid,
                remote_cid,
                tuple,
                ..
            } => self.on_started(now, side, &tuple, [local_cid, remote_cid]),
            Observation::RouteAssigned { path, tuple } => self.on_route(now, path, &tuple),
            Observation::PacketSent { .. } | Observation::PacketReceived { .. } => {
                self.on_packet(now, observation);
            }
            Observation::PacketLost { .. } => self.on_lost(now, observation),
            Observation::PacketDropped { path, size, why } => {
                self.on_dropped(now, path, size, why);
            }
            Observation::Metrics { path, metrics } => self.on_metrics(now, path, &metrics),
            Observation::Path(notice) => self.on_notice(now, notice),
            Observation::Decision { choice } => {
                let name = "anabranch:scheduler_decision";
                self.writer
                    .event(now, name, None, |o| write_choice(o, now, &choice));
            }
            Observation::EcnFailed { .. }
            | Observation::Reinjected { .. }
            | Observation::Detour { .. }
            | Observation::MtuUpdated { .. } => self.on_path_change(now, observation),
            _ => self.on_handshake(now, observation),
        }
    }

    fn on_started(&mut self, now: Instant, side: Side, tuple: &Tuple, cids: [ConnectionId; 2]) {
        self.writer
            .event(now, "quic:connection_started", None, |o| {
                o.object("local", |o| {
                    write_local(o, tuple);
                    o.list("connection_ids", [cids[0]], quote_cid);
                });
                o.object("remote", |o| {
                    write_remote(o, tuple.remote);
                    o.list("connection_ids", [cids[1]], quote_cid);
                });
            });
        let key = match side {
            Side::Client => "client_versions",
            Side::Server => "server_versions",
        };
        self.writer
            .event(now, "quic:version_information", None, |o| {
                o.list(key, [VERSION], super::json::quote);
                o.text("chosen_version", VERSION);
            });
    }

    fn on_route(&mut self, now: Instant, path: PathId, tuple: &Tuple) {
        let traced = self.paths.entry(path).or_default();
        if std::mem::replace(&mut traced.has_route, true) {
            traced.moves += 1;
        }
        let name = (path, traced.moves);
        self.writer.event(now, "quic:tuple_assigned", None, |o| {
            write_tuple(o, "tuple_id", name);
            o.number("path_id", path.0);
            o.number("socket", tuple.socket.0);
            o.object("tuple_remote", |o| write_remote(o, tuple.remote));
            o.object("tuple_local", |o| write_local(o, tuple));
        });
    }

    fn on_packet(&mut self, now: Instant, observation: &Observation<'_>) {
        let (name, purpose, packet) = match *observation {
            Observation::PacketSent {
                level,
                path,
                pn,
                size,
                purpose,
                frames,
            } => {
                let exponent = self.exponents[0];
                let packet = Packet {
                    level,
                    path,
                    pn,
                    size,
                    frames,
                    exponent,
                };
                ("quic:packet_sent", purpose, packet)
            }
            Observation::PacketReceived {
                level,
                path,
                pn,
                size,
                frames,
            } => {
                let exponent = self.exponents[1];
                let packet = Packet {
                    level,
                    path,
                    pn,
                    size,
                    frames,
                    exponent,
                };
                ("quic:packet_received", Purpose::Frames, packet)
            }
            _ => return,
        };
        let tuple = Some(self.tuple(packet.path));
        self.writer.event(now, name, tuple, |o| {
            write_header(o, packet.level, packet.path, packet.pn);
            o.list("frames", packet.frames, |out, (kind, frame)| {
                Object::write(out, |o| frames::write(o, *kind, frame, packet.exponent));
            });
            o.object("raw", |o| o.number("length", packet.size as u64));
            match purpose {
                Purpose::Frames => {}
                Purpose::MtuProbe => o.flag("is_mtu_probe_packet", true),
                Purpose::Probe => o.text("trigger", "pto_probe"),
                Purpose::Copy => o.flag("is_copy", true),
            }
        });
    }

    fn on_lost(&mut self, now: Instant, observation: &Observation<'_>) {
        let Observation::PacketLost {
            level,
            path,
            pn,
            size,
            is_mtu_probe,
            trigger,
        } = *observation
        else {
            return;
        };
        let tuple = Some(self.tuple(path));
        self.writer.event(now, "quic:packet_lost", tuple, |o| {
            write_header(o, level, path, pn);
            o.object("raw", |o| o.number("length", size as u64));
            if is_mtu_probe {
                o.flag("is_mtu_probe_packet", true);
            }
            let trigger = match trigger {
                LossTrigger::Reordering => "reordering_threshold",
                LossTrigger::Time => "time_threshold",
            };
            o.text("trigger", trigger);
        });
    }

    fn on_dropped(&mut self, now: Instant, path: PathId, size: usize, why: DropReason) {
        let tuple = Some(self.tuple(path));
        let trigger = match why {
            DropReason::ServerToken
            | DropReason::SmallInitial
            | DropReason::MalformedHeader
            | DropReason::TooShort => "invalid",
            DropReason::Unsupported => "unsupported",
            DropReason::OutOfState | DropReason::ForeignAddress => "rejected",
            DropReason::Undecryptable => "decryption_failure",
            DropReason::Duplicate => "duplicate",
            DropReason::KeysMissing => "key_unavailable",
            _ => "general",
        };
        self.writer.event(now, "quic:packet_dropped", tuple, |o| {
            o.object("raw", |o| o.number("length", size as u64));
            o.object("details", |o| o.display("why", &why));
            o.text("trigger", trigger);
        });
    }

    /// Writes what changed since the last metrics of the path.
    fn on_metrics(&mut self, now: Instant, path: PathId, new: &Metrics) {
        let tuple = Some(self.tuple(path));
        let Some(traced) = self.paths.get_mut(&path) else {
            return;
        };
        let old = traced.metrics.replace(*new);
        if old.as_ref() == Some(new) {
            return;
        }
        let event = "quic:recovery_metrics_updated";
        self.writer.event(now, event, tuple, |o| {
            o.number("path_id", path.0);
            write_metrics(o, old.as_ref(), new);
        });
        let old = old.map(|old| old.phase);
        if old != Some(new.phase) {
            let event = "quic:congestion_state_updated";
            self.writer.event(now, event, tuple, |o| {
                if let Some(old) = old {
                    o.text("old", old);
                }
                o.text("new", new.phase);
                o.number("path_id", path.0);
            });
        }
    }

    fn on_notice(&mut self, now: Instant, notice: PathNotice) {
        let (path, state) = match notice {
            // Nothing happened on a path.
            PathNotice::Capacity => return,
            PathNotice::Opened { id, .. } => (id, "opened"),
            PathNotice::Doubted { id } => (id, "doubted"),
            PathNotice::Recovered { id, .. } => (id, "recovered"),
            PathNotice::Moved { id, .. } => (id, "moved"),
            PathNotice::Abandoned { id, .. } => (id, "abandoned"),
            PathNotice::Discarded { id } => (id, "discarded"),
        };
        let tuple = Some(self.tuple(path));
        let event = "anabranch:path_state_updated";
        self.writer.event(now, event, tuple, |o| {
            o.number("path_id", path.0);
            o.text("new", state);
            match notice {
                PathNotice::Recovered { after, .. } => o.millis("doubted_for", after),
                PathNotice::Abandoned { code, by_peer, .. } => {
                    o.number("error_code", code);
                    o.text("initiator", initiator(by_peer));
                }
                _ => {}
            }
        });
        if let PathNotice::Discarded { id } = notice {
            self.paths.remove(&id);
        }
    }

    fn on_path_change(&mut self, now: Instant, observation: &Observation<'_>) {
        let (name, path) = match *observation {
            Observation::EcnFailed { path } => ("quic:ecn_state_updated", path),
            Observation::MtuUpdated { path, .. } => ("quic:mtu_updated", path),
            Observation::Reinjected { path, .. } => ("anabranch:data_reinjected", path),
            Observation::Detour { path, .. } => ("anabranch:acknowledgements_rerouted", path),
            _ => return,
        };
        let tuple = Some(self.tuple(path));
        self.writer.event(now, name, tuple, |o| {
            match *observation {
                Observation::MtuUpdated { old, new, .. } => {
                    o.number("old", old);
                    o.number("new", new);
                }
                Observation::Reinjected { bytes, .. } => o.number("length", bytes),
                Observation::Detour { until, .. } => o.millis("for", until.since(now)),
                _ => o.text("new", "failed"),
            }
            o.number("path_id", path.0);
        });
    }

    fn on_handshake(&mut self, now: Instant, observation: &Observation<'_>) {
        match *observation {
            Observation::Parameters { by_peer, params } => {
                self.exponents[usize::from(by_peer)] = params.ack_delay_exponent;
                let event = "quic:parameters_set";
                self.writer
                    .event(now, event, None, |o| write_parameters(o, by_peer, params));
            }
            Observation::KeyUpdated {
                generation,
                by_peer,
            } => self.on_key_updated(now, generation, by_peer),
            Observation::KeysDiscarded { level } => self.on_keys_discarded(now, level),
            Observation::HandshakeComplete { alpn } => {
                let alpn = alpn.unwrap_or_default();
                self.writer.event(now, "quic:alpn_information", None, |o| {
                    o.object("chosen_alpn", |o| {
                        o.hex("byte_value", alpn);
                        o.text("string_value", &String::from_utf8_lossy(alpn));
                    });
                });
                self.enter(now, "handshake_complete");
            }
            Observation::HandshakeConfirmed => self.enter(now, "handshake_confirmed"),
            Observation::Closed { error } => {
                let event = "quic:connection_closed";
                self.writer.event(now, event, None, |o| write_end(o, error));
                self.enter(now, "closed");
            }
            _ => {}
        }
    }

    fn on_key_updated(&mut self, now: Instant, generation: u64, by_peer: bool) {
        let trigger = if by_peer {
            "remote_update"
        } else {
            "local_update"
        };
        for side in ["client", "server"] {
            self.writer.event(now, "quic:key_updated", None, |o| {
                o.display("key_type", &format_args!("{side}_1rtt_secret"));
                o.number("key_phase", generation);
                o.text("trigger", trigger);
            });
        }
    }

    fn on_keys_discarded(&mut self, now: Instant, level: Level) {
        let level = match level {
            Level::Initial => "initial",
            Level::Handshake => "handshake",
            Level::OneRtt => "1rtt",
            Level::ZeroRtt => "0rtt",
        };
        for side in ["client", "server"] {
            self.writer.event(now, "quic:key_discarded", None, |o| {
                o.display("key_type", &format_args!("{side}_{level}_secret"));
                o.text("trigger", "tls");
            });
        }
    }

    fn enter(&mut self, now: Instant, new: &'static str) {
        let old = self.state.replace(new);
        let event = "quic:connection_state_updated";
        self.writer.event(now, event, None, |o| {
            if let Some(old) = old {
                o.text("old", old);
            }
            o.text("new", new);
        });
    }
}

fn initiator(by_peer: bool) -> &'static str {
    if by_peer { "remote" } else { "local" }
}

fn quote_cid(out: &mut String, cid: ConnectionId) {
    // Writing to a string cannot fail.
    let _ = write!(out, "\"{cid}\"");
}

fn write_remote(o: &mut Object<'_>, address: SocketAddr) {
    let (ip, port) = match address {
        SocketAddr::V4(_) => ("ip_v4", "port_v4"),
        SocketAddr::V6(_) => ("ip_v6", "port_v6"),
    };
    o.display(ip, &address.ip());
    o.number(port, address.port());
}

/// The near end as far as the engine knows it: it names sockets, not their ports.
fn write_local(o: &mut Object<'_>, tuple: &Tuple) {
    match tuple.local {
        Some(IpAddr::V4(ip)) => o.display("ip_v4", &ip),
        Some(IpAddr::V6(ip)) => o.display("ip_v6", &ip),
        None => {}
    }
}

fn write_header(o: &mut Object<'_>, level: Level, path: PathId, pn: u64) {
    o.object("header", |o| {
        let kind = match level {
            Level::Initial => "initial",
            Level::Handshake => "handshake",
            Level::OneRtt => "1RTT",
            Level::ZeroRtt => "0RTT",
        };
        o.text("packet_type", kind);
        o.number("packet_number", pn);
        if level == Level::OneRtt {
            o.number("path_id", path.0);
        }
    });
}

fn write_metrics(o: &mut Object<'_>, old: Option<&Metrics>, new: &Metrics) {
    macro_rules! changed {
        ($($method:ident $key:literal $field:ident),* $(,)?) => {
            $(if old.is_none_or(|old| old.$field != new.$field) {
                o.$method($key, new.$field);
            })*
        };
    }
    changed! {
        millis "min_rtt" min_rtt,
        millis "smoothed_rtt" smoothed_rtt,
        millis "latest_rtt" latest_rtt,
        millis "rtt_variance" rttvar,
        number "pto_count" pto_count,
        number "congestion_window" congestion_window,
        number "bytes_in_flight" bytes_in_flight,
    }
    // Before the first loss there is no threshold.
    if new.ssthresh < u64::MAX {
        changed! { number "ssthresh" ssthresh }
    }
    changed! {
        number "delivery_rate" delivery_rate,
        flag "app_limited" app_limited,
    }
}

fn write_choice(o: &mut Object<'_>, now: Instant, choice: &Choice) {
    let (decision, path) = match choice.decision {
        Decision::Send(path) => ("send", Some(path)),
        Decision::SendAt { path, .. } => ("send_at", Some(path)),
        Decision::SendStream { path, .. } => ("send_stream", Some(path)),
        Decision::Duplicate(_) => ("duplicate", None),
        Decision::Copy(path) => ("copy", Some(path)),
        Decision::Hold { .. } => ("hold", None),
        _ => ("other", None),
    };
    o.text("decision", decision);
    if let Some(path) = path {
        o.number("path_id", path.0);
    }
    match choice.decision {
        Decision::SendAt { skip, .. } => o.number("skip", skip),
        Decision::SendStream { stream, .. } => o.number("stream_id", stream.0),
        Decision::Duplicate(set) => o.list("path_ids", set.iter(), |out, path| {
            // Writing to a string cannot fail.
            let _ = write!(out, "{path}");
        }),
        Decision::Hold { until: Some(until) } => o.millis("for", until.since(now)),
        _ => {}
    }
    o.text("reason", choice.reason.name());
}

/// All parameters but secrets: reset tokens, and the preferred address, which comes with one.
fn write_parameters(o: &mut Object<'_>, by_peer: bool, params: &TransportParameters) {
    o.text("initiator", initiator(by_peer));
    let cids = [
        ("original_destination_connection_id", params.original_dcid),
        ("initial_source_connection_id", params.initial_source_cid),
        ("retry_source_connection_id", params.retry_source_cid),
    ];
    for (key, cid) in cids {
        if let Some(cid) = cid {
            o.hex(key, cid.as_slice());
        }
    }
    o.flag("disable_active_migration", params.disable_active_migration);
    let numbers = [
        ("max_idle_timeout", params.max_idle_timeout_ms),
        ("max_udp_payload_size", params.max_udp_payload_size),
        ("ack_delay_exponent", params.ack_delay_exponent),
        ("max_ack_delay", params.max_ack_delay_ms),
        (
            "active_connection_id_limit",
            params.active_connection_id_limit,
        ),
        ("initial_max_data", params.initial_max_data),
        (
            "initial_max_stream_data_bidi_local",
            params.initial_max_stream_data_bidi_local,
        ),
        (
            "initial_max_stream_data_bidi_remote",
            params.initial_max_stream_data_bidi_remote,
        ),
        (
            "initial_max_stream_data_uni",
            params.initial_max_stream_data_uni,
        ),
        ("initial_max_streams_bidi", params.initial_max_streams_bidi),
        ("initial_max_streams_uni", params.initial_max_streams_uni),
        ("max_datagram_frame_size", params.max_datagram_frame_size),
    ];
    for (key, value) in numbers {
        o.number(key, value);
    }
    o.flag("grease_quic_bit", params.grease_quic_bit);
    if let Some(limit) = params.initial_max_path_id {
        o.number("initial_max_path_id", limit.0);
    }
    if let Some(delay) = params.min_ack_delay_us {
        o.number("min_ack_delay", delay);
    }
    if params.handshake_by_any_path {
        o.flag("handshake_by_any_path", true);
    }
}

fn write_end(o: &mut Object<'_>, error: &ConnectionError) {
    let (by_peer, trigger) = match error {
        ConnectionError::LocallyClosed => (false, "application"),
        ConnectionError::ApplicationClosed { .. } => (true, "application"),
        ConnectionError::PeerClosed(_) => (true, "error"),
        ConnectionError::Transport(_) => (false, "error"),
        ConnectionError::TimedOut => (false, "idle_timeout"),
        ConnectionError::Reset => (true, "stateless_reset"),
        ConnectionError::VersionMismatch => (false, "version_mismatch"),
    };
    o.text("initiator", initiator(by_peer));
    match error {
        ConnectionError::ApplicationClosed { code, reason } => {
            o.text("application_error", "unknown");
            o.number("error_code", *code);
            o.text("reason", reason);
        }
        ConnectionError::PeerClosed(error) | ConnectionError::Transport(error) => {
            frames::write_error(o, "connection_error", error.code);
            o.text("reason", &error.reason);
        }
        _ => {}
    }
    o.text("trigger", trigger);
}
