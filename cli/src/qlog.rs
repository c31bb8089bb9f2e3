//! Writes what happens inside connections as qlog: one JSON text sequence (`.sqlog`) for each.
//!
//! Event names are those of draft-ietf-quic-qlog-quic-events-14; it does not cover multipath, so
//! that packets, losses and metrics carry an extra `path_id` and frames have the names that other
//! stacks write. A thread of its own writes to the disk: a slow disk costs events, which are
//! counted, and never time.

use crate::failure::{Failure, Outcome};
use anabranch_net::connection::Connection;
use anabranch_proto::event::{Observation, Observer, PathNotice};
use anabranch_proto::handshake::Level;
use anabranch_proto::recovery::sent::SentFrame;
use anabranch_proto::sched::{Choice, Decision};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::frame::{Form, Frame};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

/// Bytes collected before they are handed to the writing thread.
const BATCH_BYTES: usize = 64 << 10;

/// Batches that may wait for the disk, of all connections together.
const WAITING: usize = 256;

/// Starts each record of a JSON text sequence (RFC 7464).
const RECORD: char = '\u{1e}';

/// The writing thread's mailbox.
static WRITER: OnceLock<SyncSender<Job>> = OnceLock::new();

enum Job {
    Write(Arc<File>, String),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// Records a connection from now on, in a file of its own below `directory`.
///
/// # Errors
///
/// The file cannot be created.
pub(crate) fn attach(connection: &Connection, directory: &Path) -> Outcome {
    let named = connection.with_engine(|engine| (engine.original_dcid(), engine.side()));
    // A connection that has ended has nothing to record.
    let Ok((name, side)) = named else {
        return Ok(());
    };
    let side = if side.is_server() { "server" } else { "client" };
    let mut group = String::new();
    for byte in name.as_slice() {
        let _ = write!(group, "{byte:02x}");
    }
    let path = directory.join(format!("{group}_{side}.sqlog"));
    let created = std::fs::create_dir_all(directory).and_then(|()| File::create(&path));
    let file = created.map_err(|error| {
        Failure::usage(format!("cannot write qlog to {}: {error}", path.display()))
    })?;
    let mut log = Log {
        file: Arc::new(file),
        batch: String::new(),
        dropped: 0,
        last: None,
    };
    log.header(&group, side);
    let _ = connection.with_engine(|engine| engine.set_observer(Some(Box::new(log))));
    Ok(())
}

/// Waits until what was recorded is written.
pub(crate) fn flush() {
    let Some(writer) = WRITER.get() else { return };
    let (done, wait) = sync_channel(1);
    if writer.send(Job::Flush(done)).is_ok() {
        // An error means that the thread is gone, and nothing more will be written.
        let _ = wait.recv();
    }
}

fn writer() -> &'static SyncSender<Job> {
    WRITER.get_or_init(|| {
        let (sender, receiver) = sync_channel(WAITING);
        // Without the thread the first batch is dropped and counted like all others.
        let _ = std::thread::Builder::new()
            .name("qlog".into())
            .spawn(|| write_all(receiver));
        sender
    })
}

fn write_all(jobs: Receiver<Job>) {
    for job in jobs {
        match job {
            Job::Write(file, text) => {
                if let Err(error) = (&*file).write_all(text.as_bytes()) {
                    tracing::warn!("qlog: {error}");
                }
            }
            Job::Flush(done) => {
                let _ = done.send(());
            }
        }
    }
}

/// The observer of one connection.
#[derive(Debug)]
struct Log {
    file: Arc<File>,
    batch: String,
    dropped: u64,
    /// The last metrics written for a path: they are written again only if they differ.
    last: Option<String>,
}

impl Log {
    fn header(&mut self, group: &str, side: &str) {
        let _ = writeln!(
            self.batch,
            "{RECORD}{{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\",\
             \"serialization_format\":\"application/qlog+json-seq\",\"title\":\"anabranch\",\
             \"trace\":{{\"common_fields\":{{\"group_id\":\"{group}\",\"time_format\":\
             \"relative_to_epoch\",\"reference_time\":{{\"clock_type\":\"system\",\"epoch\":\
             \"1970-01-01T00:00:00.000Z\"}}}},\"vantage_point\":{{\"type\":\"{side}\"}},\
             \"event_schemas\":[\"urn:ietf:params:qlog:events:quic-14\"]}}}}"
        );
    }

    fn event(&mut self, now: Instant, name: &str, data: &str) {
        let ms = now.as_nanos() as f64 / 1e6;
        let _ = writeln!(
            self.batch,
            "{RECORD}{{\"time\":{ms:.4},\"name\":\"{name}\",\"data\":{{{data}}}}}"
        );
        if self.batch.len() >= BATCH_BYTES {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.batch);
        if writer()
            .try_send(Job::Write(Arc::clone(&self.file), batch))
            .is_err()
        {
            self.dropped += 1;
            tracing::warn!(
                "qlog: the disk is too slow, {} batches are missing",
                self.dropped
            );
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.hand_over();
    }
}

impl Observer for Log {
    fn observe(&mut self, now: Instant, observation: &Observation<'_>) {
        let (name, data) = match observation {
            Observation::PacketSent {
                level,
                path,
                pn,
                size,
                frames,
            } => {
                let frames = list(frames.iter().map(sent_frame));
                (
                    "quic:packet_sent",
                    packet(*level, path.0, *pn, *size) + &frames,
                )
            }
            Observation::PacketReceived {
                level,
                path,
                pn,
                size,
                frames,
            } => {
                let frames = list(frames.iter().map(received_frame));
                (
                    "quic:packet_received",
                    packet(*level, path.0, *pn, *size) + &frames,
                )
            }
            Observation::PacketLost {
                level,
                path,
                pn,
                size,
            } => ("quic:packet_lost", packet(*level, path.0, *pn, *size)),
            Observation::PacketDropped { size, why } => {
                let data = format!("\"raw\":{{\"length\":{size}}},\"details\":{}", text(why));
                ("quic:packet_dropped", data)
            }
            Observation::Metrics { .. } => {
                let data = metrics(observation);
                if self.last.as_ref() == Some(&data) {
                    return;
                }
                self.last = Some(data.clone());
                ("quic:recovery_metrics_updated", data)
            }
            Observation::Decision { choice } => ("anabranch:decision", decision(choice)),
            Observation::Path(notice) => ("anabranch:path", path_notice(notice)),
            Observation::MtuUpdated { path, mtu } => (
                "quic:mtu_updated",
                format!("\"new\":{mtu},\"path_id\":{}", path.0),
            ),
            Observation::KeyUpdated { phase } => (
                "quic:key_updated",
                format!("\"key_type\":\"1rtt\",\"key_phase\":{phase}"),
            ),
            Observation::HandshakeComplete => (
                "quic:connection_state_updated",
                "\"new\":\"handshake_complete\"".into(),
            ),
            Observation::Closed { error } => (
                "quic:connection_closed",
                format!("\"reason\":{}", text(&error.to_string())),
            ),
            _ => return,
        };
        self.event(now, name, &data);
        if matches!(observation, Observation::Closed { .. }) {
            self.hand_over();
        }
    }
}

fn packet(level: Level, path: u32, pn: u64, size: usize) -> String {
    let kind = match level {
        Level::Initial => "initial",
        Level::Handshake => "handshake",
        Level::OneRtt => "1RTT",
    };
    format!(
        "\"header\":{{\"packet_type\":\"{kind}\",\"packet_number\":{pn},\"path_id\":{path}}},\
         \"raw\":{{\"length\":{size}}}"
    )
}

fn list(frames: impl Iterator<Item = String>) -> String {
    let mut list = String::from(",\"frames\":[");
    for (index, frame) in frames.enumerate() {
        list += if index == 0 { "" } else { "," };
        list += &frame;
    }
    list + "]"
}

fn sent_frame(frame: &SentFrame) -> String {
    let kind = |name: &str| format!("{{\"frame_type\":\"{name}\"}}");
    match frame {
        SentFrame::Stream {
            id,
            start,
            length,
            fin,
        } => stream(id.0, *start, *length as usize, *fin),
        SentFrame::Crypto { start, length } => crypto(*start, *length as usize),
        SentFrame::Ack { path, largest } => ack(path.0, *largest),
        SentFrame::Datagram { .. } => kind("datagram"),
        SentFrame::ResetStream { .. } => kind("reset_stream"),
        SentFrame::StopSending { .. } => kind("stop_sending"),
        SentFrame::MaxData => kind("max_data"),
        SentFrame::MaxStreamData { .. } => kind("max_stream_data"),
        SentFrame::MaxStreams { .. } => kind("max_streams"),
        SentFrame::DataBlocked => kind("data_blocked"),
        SentFrame::StreamDataBlocked { .. } => kind("stream_data_blocked"),
        SentFrame::StreamsBlocked { .. } => kind("streams_blocked"),
        SentFrame::HandshakeDone => kind("handshake_done"),
        SentFrame::NewToken => kind("new_token"),
        SentFrame::NewConnectionId { .. } => kind("new_connection_id"),
        SentFrame::RetireConnectionId { .. } => kind("retire_connection_id"),
        SentFrame::PathAbandon { .. } => kind("path_abandon"),
        SentFrame::PathStatus { .. } => kind("path_status"),
        SentFrame::MaxPathId { .. } => kind("max_path_id"),
        SentFrame::PathsBlocked { .. } => kind("paths_blocked"),
        SentFrame::PathCidsBlocked { .. } => kind("path_cids_blocked"),
    }
}

fn received_frame(frame: &Frame<'_>) -> String {
    match frame {
        Frame::Stream(frame) => stream(frame.id.0, frame.offset, frame.data.len(), frame.fin),
        Frame::Crypto { offset, data } => crypto(*offset, data.len()),
        Frame::Ack(frame) => ack(frame.path.0, frame.largest),
        other => format!(
            "{{\"frame_type\":\"{}\"}}",
            other.frame_type(Form::Multipath).name()
        ),
    }
}

fn stream(id: u64, offset: u64, length: usize, fin: bool) -> String {
    format!(
        "{{\"frame_type\":\"stream\",\"stream_id\":{id},\"offset\":{offset},\
         \"raw\":{{\"payload_length\":{length}}},\"fin\":{fin}}}"
    )
}

fn crypto(offset: u64, length: usize) -> String {
    format!(
        "{{\"frame_type\":\"crypto\",\"offset\":{offset},\"raw\":{{\"payload_length\":{length}}}}}"
    )
}

fn ack(path: u32, largest: u64) -> String {
    format!("{{\"frame_type\":\"path_ack\",\"path_id\":{path},\"largest\":{largest}}}")
}

fn metrics(observation: &Observation<'_>) -> String {
    let Observation::Metrics {
        path,
        smoothed_rtt,
        rttvar,
        min_rtt,
        latest_rtt,
        congestion_window,
        ssthresh,
        bytes_in_flight,
        pto_count,
    } = observation
    else {
        return String::new();
    };
    let ms = |time: &std::time::Duration| time.as_secs_f64() * 1e3;
    let mut data = format!(
        "\"path_id\":{},\"smoothed_rtt\":{:.3},\"rtt_variance\":{:.3},\"min_rtt\":{:.3},\
         \"latest_rtt\":{:.3},\"congestion_window\":{congestion_window},\
         \"bytes_in_flight\":{bytes_in_flight},\"pto_count\":{pto_count}",
        path.0,
        ms(smoothed_rtt),
        ms(rttvar),
        ms(min_rtt),
        ms(latest_rtt),
    );
    if *ssthresh < u64::MAX {
        let _ = write!(data, ",\"ssthresh\":{ssthresh}");
    }
    data
}

fn decision(choice: &Choice) -> String {
    let decision = match choice.decision {
        Decision::Send(path) => format!("\"send\",\"path_id\":{}", path.0),
        Decision::SendAt { path, skip } => {
            format!("\"send_at\",\"path_id\":{},\"skip\":{skip}", path.0)
        }
        Decision::Duplicate(_) => "\"duplicate\"".into(),
        Decision::Copy(path) => format!("\"copy\",\"path_id\":{}", path.0),
        Decision::Hold { .. } => "\"hold\"".into(),
        _ => "\"other\"".into(),
    };
    format!(
        "\"decision\":{decision},\"reason\":{}",
        text(&format!("{:?}", choice.reason))
    )
}

fn path_notice(notice: &PathNotice) -> String {
    let (what, id) = match notice {
        PathNotice::Capacity => return "\"what\":\"capacity\"".into(),
        PathNotice::Opened { id, .. } => ("opened", id),
        PathNotice::Doubted { id } => ("doubted", id),
        PathNotice::Recovered { id, .. } => ("recovered", id),
        PathNotice::Moved { id, .. } => ("moved", id),
        PathNotice::Abandoned { id, .. } => ("abandoned", id),
        PathNotice::Discarded { id } => ("discarded", id),
    };
    format!("\"what\":\"{what}\",\"path_id\":{}", id.0)
}

/// A JSON string.
fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::sched::Reason;
    use anabranch_proto::wire::{PathId, StreamId};
    use std::io::Read;

    #[test]
    fn every_record_is_json() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let own = Arc::new(file.reopen().unwrap());
        let mut log = Log {
            file: own,
            batch: String::new(),
            dropped: 0,
            last: None,
        };
        log.header("00", "client");
        let (now, path, level) = (Instant::from_nanos(5_000_000), PathId(1), Level::OneRtt);
        let sent = SentFrame::Stream {
            id: StreamId(4),
            start: 7,
            length: 9,
            fin: true,
        };
        let frames = [sent, SentFrame::MaxData];
        log.observe(
            now,
            &Observation::PacketSent {
                level,
                path,
                pn: 3,
                size: 99,
                frames: &frames,
            },
        );
        let why = "a \"quoted\" reason";
        log.observe(now, &Observation::PacketDropped { size: 9, why });
        let choice = Choice::send(path, Reason::Turn);
        log.observe(now, &Observation::Decision { choice });
        drop(log);
        flush();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let records: Vec<serde_json::Value> = text
            .split(RECORD)
            .skip(1)
            .map(|record| serde_json::from_str(record).unwrap())
            .collect();
        assert_eq!(records.len(), 4);
        assert_eq!(records[1]["time"], 5.0);
        assert_eq!(records[1]["data"]["header"]["path_id"], 1);
        assert_eq!(records[1]["data"]["frames"][0]["offset"], 7);
        assert_eq!(records[2]["data"]["details"], why);
        assert_eq!(records[3]["data"]["reason"], "Turn");
    }
}
