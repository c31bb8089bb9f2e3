//! Packets of a scripted peer, sealed and opened one by one.

use super::{RawPeer, decode_all};
use anabranch_proto::datagram::Tuple;
use anabranch_proto::event::Level;
use anabranch_proto::internals::Handshake;
use anabranch_proto::wire::cursor::Reader;
use anabranch_proto::wire::frame::{Frame, FrameType, decode};
use anabranch_proto::wire::header::{self, Header, LongType};
use anabranch_proto::wire::{ConnectionId, PathId, packet_number};

/// A packet to be sent. What is `None` or 0 gets the value an honest peer would use.
#[derive(Clone)]
pub struct Packet {
    pub level: Level,
    pub path: PathId,
    pub payload: Vec<u8>,
    pub dcid: Option<ConnectionId>,
    pub tuple: Option<Tuple>,
    pub pn: Option<u64>,
    /// Padded to this many bytes.
    pub size: usize,
    /// Bits of the first byte to flip before protection.
    pub flip: u8,
    /// Bytes of the packet number.
    pub pn_len: usize,
}

impl Packet {
    pub fn new(level: Level, payload: Vec<u8>) -> Self {
        Self {
            level,
            path: PathId::ZERO,
            payload,
            dcid: None,
            tuple: None,
            pn: None,
            size: 0,
            flip: 0,
            pn_len: 4,
        }
    }

    pub fn one_rtt(path: PathId, payload: Vec<u8>) -> Self {
        Self {
            path,
            ..Self::new(Level::OneRtt, payload)
        }
    }
}

/// A packet the victim sent.
#[derive(Debug, Clone)]
pub struct Received {
    pub level: Level,
    pub path: PathId,
    pub tuple: Tuple,
    pub pn: u64,
    pub dcid: ConnectionId,
    pub payload: Vec<u8>,
    /// Size of the datagram it came in.
    pub datagram: usize,
}

impl Received {
    pub fn frames(&self) -> Vec<Frame<'_>> {
        decode_all(&self.payload)
    }

    /// The types of the frames, as on the wire.
    pub fn types(&self) -> Vec<FrameType> {
        let mut reader = Reader::new(&self.payload);
        let mut types = Vec::new();
        while !reader.is_empty() {
            types.push(decode(&mut reader).expect("a valid frame").0);
        }
        types
    }

    pub fn has(&self, wanted: impl Fn(&Frame<'_>) -> bool) -> bool {
        self.frames().iter().any(wanted)
    }
}

impl RawPeer {
    /// The next packet number an honest peer would use.
    pub fn next_pn(&self, level: Level, path: PathId) -> u64 {
        let key = (level, path);
        self.next_pn.get(&key).copied().unwrap_or(0)
    }

    /// Seals a packet into a datagram of its own.
    pub fn seal(&mut self, packet: &Packet) -> Vec<u8> {
        let Packet { level, path, .. } = *packet;
        let dcid = packet.dcid.unwrap_or_else(|| {
            let path = if level == Level::OneRtt {
                path
            } else {
                PathId::ZERO
            };
            self.remote_cid(path)
        });
        // 0-RTT packets share their numbers with those of 1-RTT.
        let space = if level.is_data() {
            Level::OneRtt
        } else {
            level
        };
        let next = self.next_pn.entry((space, path)).or_insert(0);
        let pn = packet.pn.unwrap_or(*next);
        *next = (*next).max(pn + 1);
        let pn_len = packet.pn_len;
        let mut bytes = Vec::new();
        let (pn_offset, long) = if level == Level::OneRtt {
            let phase = self.handshake.key_phase();
            let offset = header::put_short(&mut bytes, &dcid, false, phase, pn, pn_len);
            (offset, None)
        } else {
            let (kind, token) = match level {
                Level::Initial => (LongType::Initial, self.setup.token.as_slice()),
                Level::ZeroRtt => (LongType::ZeroRtt, [].as_slice()),
                _ => (LongType::Handshake, [].as_slice()),
            };
            let scid = &self.setup.cid;
            let long = header::put_long(&mut bytes, kind, &dcid, scid, token, pn, pn_len);
            (long.pn_offset, Some(long))
        };
        bytes[0] ^= packet.flip;
        bytes.extend_from_slice(&packet.payload);
        let padded = packet.size.saturating_sub(Handshake::TAG_LEN);
        bytes.resize(bytes.len().max(padded), 0);
        if let Some(long) = long {
            let end = bytes.len() + Handshake::TAG_LEN;
            long.set_length(&mut bytes, end);
        }
        self.handshake
            .seal(level, path, pn, &mut bytes, 0, pn_offset, pn_len)
            .expect("a packet that can be sealed");
        bytes
    }

    /// Opens one packet of the victim; returns whether it could be opened.
    pub(super) fn open_packet(&mut self, tuple: Tuple, bytes: &[u8], datagram: usize) -> bool {
        let parsed = header::parse(bytes, self.setup.cid.len());
        let (level, dcid, scid, pn_offset) = match parsed {
            Ok(Header::Initial {
                dcid,
                scid,
                pn_offset,
                ..
            }) => (Level::Initial, dcid, Some(scid), pn_offset),
            Ok(Header::Long {
                kind: LongType::Handshake,
                dcid,
                scid,
                pn_offset,
                ..
            }) => (Level::Handshake, dcid, Some(scid), pn_offset),
            Ok(Header::Short {
                dcid, pn_offset, ..
            }) => (Level::OneRtt, dcid, None, pn_offset),
            _ => return false,
        };
        let Some(path) = self.local_cids.get(&dcid).copied() else {
            return false;
        };
        let mut packet = bytes.to_vec();
        let Some(header) = self.handshake.unprotect(level, &mut packet, pn_offset) else {
            return false;
        };
        let largest = self.received.get(&(level, path));
        let expected = largest.map_or(0, |largest| largest + 1);
        let pn = packet_number::expand(header.pn, header.pn_len, expected);
        let header_len = pn_offset + header.pn_len;
        let (now, phase) = (self.now, header.key_phase);
        let opened = self
            .handshake
            .open(now, level, path, pn, phase, &mut packet, header_len);
        let Ok(payload) = opened else {
            return false;
        };
        let payload = packet[payload].to_vec();
        let newest = self.received.entry((level, path)).or_insert(pn);
        *newest = pn.max(*newest);
        if level == Level::OneRtt {
            self.seen.entry(path).or_default().insert(pn);
        }
        if let Some(scid) = scid {
            self.remote_cids.insert((PathId::ZERO, 0), (scid, None));
        }
        self.learn(level, &payload);
        self.inbox.push(Received {
            level,
            path,
            tuple,
            pn,
            dcid,
            payload,
            datagram,
        });
        true
    }

    /// What a peer has to know of the frames, even a scripted one.
    fn learn(&mut self, level: Level, payload: &[u8]) {
        for frame in decode_all(payload) {
            match frame {
                Frame::Crypto { offset, data } => {
                    // A victim that is lied to may send what TLS refuses.
                    let _ = self.handshake.on_crypto(level, offset, data);
                }
                Frame::NewConnectionId(new) => {
                    let key = (new.path, new.sequence);
                    let value = (new.cid, Some(new.reset_token));
                    self.remote_cids.insert(key, value);
                }
                _ => {}
            }
        }
    }
}
