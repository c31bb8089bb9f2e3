//! Two applications, a network that loses and reorders, and perhaps a peer that lies.

#![no_main]

use anabranch_proto::error::TransportError;
use anabranch_proto::internals::{Frames, SentFrame, SentFrames};
use anabranch_proto::sched::ClassSet;
use anabranch_proto::streams::{DatagramOptions, Limits, ReadError, Streams};
use anabranch_proto::time::Duration;
use anabranch_proto::wire::cursor::Reader;
use anabranch_proto::wire::frame::{Frame, decode};
use anabranch_proto::wire::params::TransportParameters;
use anabranch_proto::wire::{Dir, PathId, Side, StreamId};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

const SIDES: [Side; 2] = [Side::Client, Side::Server];

fuzz_target!(|script: &[u8]| {
    let mut play = Play::new(script);
    while play.step().is_some() {}
    play.finish();
});

/// A packet under way or already there.
struct Flight {
    to: usize,
    path: PathId,
    bytes: Vec<u8>,
    sent: SentFrames,
}

struct Play<'a> {
    ends: [Streams; 2],
    flights: Vec<Flight>,
    /// Bytes written to and read from each half of a stream, by its sender.
    written: BTreeMap<(StreamId, usize), u64>,
    read: BTreeMap<(StreamId, usize), u64>,
    /// Whether frames came from nowhere: then nothing can be said of the bytes.
    lied: bool,
    script: &'a [u8],
}

fn limits() -> Limits {
    Limits {
        receive_window: 6000,
        max_receive_window: 20_000,
        stream_receive_window: 3000,
        max_stream_receive_window: 9000,
        send_buffer: 8000,
        max_streams_bidi: 3,
        max_streams_uni: 3,
        datagram_receive_buffer: 1000,
        datagram_send_buffer: 1000,
        max_datagram_frame_size: 500,
        ..Limits::default()
    }
}

/// The byte at this offset of what `sender` writes.
fn pattern(id: StreamId, sender: usize, offset: u64) -> u8 {
    (offset.wrapping_mul(13) ^ (offset >> 8) ^ id.0.wrapping_mul(71) ^ sender as u64) as u8
}

impl<'a> Play<'a> {
    fn new(script: &'a [u8]) -> Self {
        let ends = SIDES.map(|side| {
            let mut streams = Streams::new(side, &limits());
            let mut params = TransportParameters::default();
            limits().announce(&mut params);
            streams.on_peer_params(&params);
            streams
        });
        Self {
            ends,
            flights: Vec::new(),
            written: BTreeMap::new(),
            read: BTreeMap::new(),
            lied: false,
            script,
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.script.split_first()?;
        self.script = rest;
        Some(*first)
    }

    fn step(&mut self) -> Option<()> {
        let (what, how) = (self.byte()?, self.byte()?);
        let at = usize::from(what >> 7);
        let dir = if how & 1 == 0 { Dir::Bi } else { Dir::Uni };
        let id = StreamId(u64::from(how & 0x0f));
        let path = PathId(u32::from(how >> 6));
        match what % 16 {
            0 => drop(self.ends[at].open(dir)),
            1..=3 => self.write(at, id, usize::from(how) * 12),
            4 => drop(self.ends[at].finish(id)),
            5 if how > 200 => drop(self.ends[at].reset(id, 1.into())),
            6 if how > 200 => drop(self.ends[at].stop(id, 2.into())),
            7 | 8 => self.read(at, id, usize::from(how) * 20 + 1),
            9 | 10 => self.transmit(at, path, 40 + usize::from(how) * 5)?,
            11 => self.arrive(usize::from(how)),
            12 => self.lose(usize::from(how)),
            13 => self.reinject(usize::from(how)),
            14 => {
                while self.ends[at].accept(dir).is_some() {}
                while self.ends[at].poll_event().is_some() {}
                let _ = self.ends[at].set_priority(id, i32::from(how) - 100);
                let _ = self.ends[at].set_class(id, how % 8);
            }
            15 if how == 0xff => self.lie(at)?,
            _ => {
                let data = Bytes::from(vec![how; usize::from(how)]);
                let options = DatagramOptions {
                    class: how % 8,
                    max_skew: (how % 3 == 0).then_some(Duration::from_millis(20)),
                    repair: true,
                    ..DatagramOptions::default()
                };
                let _ = self.ends[at].send_datagram_with(data, options);
            }
        }
        Some(())
    }

    fn write(&mut self, at: usize, id: StreamId, length: usize) {
        let start = self.written.get(&(id, at)).copied().unwrap_or(0);
        let end = start + length as u64;
        let mut data: Bytes = (start..end).map(|n| pattern(id, at, n)).collect();
        if let Ok(count) = self.ends[at].write(id, &mut data) {
            assert!(count > 0 || length == 0);
            *self.written.entry((id, at)).or_default() += count as u64;
        }
    }

    fn read(&mut self, at: usize, id: StreamId, max: usize) {
        let sender = 1 - at;
        match self.ends[at].read(id, max) {
            Ok(Some(bytes)) => {
                assert!(bytes.len() <= max);
                let offset = self.read.entry((id, sender)).or_default();
                for byte in &bytes {
                    assert!(self.lied || *byte == pattern(id, sender, *offset));
                    *offset += 1;
                }
            }
            Ok(None) => {
                let read = self.read.get(&(id, sender)).copied().unwrap_or(0);
                let written = self.written.get(&(id, sender)).copied().unwrap_or(0);
                assert!(self.lied || read == written, "the end comes after all");
            }
            Err(ReadError::Blocked | ReadError::Reset(_) | ReadError::Closed) => {}
        }
    }

    fn transmit(&mut self, at: usize, path: PathId, limit: usize) -> Option<()> {
        let mut bytes = Vec::new();
        let mut frames = Frames::new(&mut bytes, limit);
        let end = &mut self.ends[at];
        end.write_control(&mut frames);
        end.write_datagrams(&mut frames, ClassSet::ALL, u64::MAX, None);
        end.write_data(&mut frames, path, 0, u64::MAX);
        let sent = frames.into_sent();
        assert!(bytes.len() <= limit);
        if !bytes.is_empty() {
            let to = 1 - at;
            self.flights.push(Flight {
                to,
                path,
                bytes,
                sent,
            });
        }
        Some(())
    }

    fn pick(&mut self, how: usize) -> Option<Flight> {
        let count = self.flights.len();
        (count > 0).then(|| self.flights.remove(how % count))
    }

    fn arrive(&mut self, how: usize) {
        let Some(flight) = self.pick(how) else { return };
        let result = feed(&mut self.ends[flight.to], &flight.bytes);
        assert!(self.lied || result.is_ok(), "{result:?}");
        let sender = &mut self.ends[1 - flight.to];
        for frame in &flight.sent {
            sender.on_acked(frame);
        }
    }

    fn lose(&mut self, how: usize) {
        let Some(flight) = self.pick(how) else { return };
        let sender = &mut self.ends[1 - flight.to];
        for frame in &flight.sent {
            sender.on_lost(frame, flight.path);
        }
    }

    fn reinject(&mut self, how: usize) {
        let Some(flight) = self
            .flights
            .get(how.checked_rem(self.flights.len()).unwrap_or(0))
        else {
            return;
        };
        let sender = &mut self.ends[1 - flight.to];
        for frame in &flight.sent {
            if matches!(frame, SentFrame::Stream { .. }) {
                sender.reinject(frame, flight.path);
            }
        }
    }

    /// Frames nobody sent.
    fn lie(&mut self, at: usize) -> Option<()> {
        self.lied = true;
        let length = usize::from(self.byte()?).min(self.script.len());
        let (frames, rest) = self.script.split_at(length);
        self.script = rest;
        let _ = feed(&mut self.ends[at], frames);
        Some(())
    }

    /// An honest pair comes to an end once the network carries everything.
    fn finish(&mut self) {
        if self.lied {
            return;
        }
        for round in 0.. {
            assert!(round < 2000, "bytes are left over");
            let before = self.flights.len();
            for at in 0..2 {
                self.transmit(at, PathId(0), 1200);
            }
            let quiet = before == 0 && self.flights.is_empty();
            while !self.flights.is_empty() {
                self.arrive(0);
            }
            let mut moved = false;
            for at in 0..2 {
                for id in (0..16).map(StreamId) {
                    let total = |play: &Self| play.read.values().sum::<u64>();
                    let had = total(self);
                    self.read(at, id, 1 << 16);
                    moved |= total(self) > had;
                }
                while self.ends[at].recv_datagram().is_some() {}
            }
            if quiet && !moved {
                break;
            }
        }
    }
}

fn feed(streams: &mut Streams, bytes: &[u8]) -> Result<(), TransportError> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let Ok((_, frame)) = decode(&mut reader) else {
            return Ok(());
        };
        match frame {
            Frame::Stream(stream) => {
                streams.on_stream(&stream)?;
            }
            Frame::ResetStream {
                id,
                code,
                final_size,
            } => streams.on_reset_stream(id, code, final_size)?,
            Frame::StopSending { id, code } => streams.on_stop_sending(id, code)?,
            Frame::MaxData { limit } => streams.on_max_data(limit),
            Frame::MaxStreamData { id, limit } => streams.on_max_stream_data(id, limit)?,
            Frame::MaxStreams { dir, limit } => streams.on_max_streams(dir, limit),
            Frame::DataBlocked { limit } => streams.on_data_blocked(limit),
            Frame::StreamDataBlocked { id, limit } => {
                streams.on_stream_data_blocked(id, limit)?;
            }
            Frame::StreamsBlocked { dir, limit } => streams.on_streams_blocked(dir, limit),
            Frame::Datagram { data } => streams.on_datagram(PathId::ZERO, data)?,
            _ => {}
        }
    }
    Ok(())
}
