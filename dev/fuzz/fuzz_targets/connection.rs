//! A script plays against a real endpoint: it may do what it likes with the keys it has.
//!
//! The first byte chooses the victim's side, how far the handshake is and whether there are
//! timestamps; each step after it is a
//! byte for what to do and a few for how.

#![no_main]

#[path = "../../../crates/proto/tests/engine/pair/mod.rs"]
mod pair;
#[path = "../../../crates/proto/tests/engine/raw/mod.rs"]
mod raw;

use anabranch_proto::datagram::Tuple;
use anabranch_proto::event::Level;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_proto::wire::params::Timestamps;
use anabranch_proto::wire::{Dir, PathId, Side, StreamId};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use raw::{Packet, RawPeer, Setup, route};
use std::collections::BTreeSet;
use std::time::Duration;

/// Steps of one script: what a longer one finds, a shorter one found before.
const MAX_STEPS: usize = 64;

fuzz_target!(|script: &[u8]| {
    let Some((first, rest)) = script.split_first() else {
        return;
    };
    let victim = if first & 1 == 0 {
        Side::Server
    } else {
        Side::Client
    };
    let peer = if victim.is_server() {
        RawPeer::client(setup(first & 4 != 0))
    } else {
        RawPeer::server(setup(first & 4 != 0))
    };
    let peer = if first & 2 == 0 {
        peer.establish()
    } else {
        peer.half_way()
    };
    let mut play = Play {
        peer,
        victim,
        answered: BTreeSet::from([route(victim, 0)]),
        script: rest,
    };
    for _ in 0..MAX_STEPS {
        if !play.step() {
            break;
        }
    }
    play.check();
});

fn setup(timestamps: bool) -> Setup {
    let mut setup = Setup::default();
    if timestamps {
        setup.transport.timestamps = true;
        setup.params = |params| params.enable_timestamp = Some(Timestamps::Both);
    }
    setup
}

struct Play<'a> {
    peer: RawPeer,
    victim: Side,
    /// Routes whose challenges were answered.
    answered: BTreeSet<Tuple>,
    script: &'a [u8],
}

impl Play<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.script.split_first()?;
        self.script = rest;
        Some(*first)
    }

    /// A length and that many bytes, or what is left.
    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = usize::from(self.byte()?) * 4;
        let (bytes, rest) = self.script.split_at(length.min(self.script.len()));
        self.script = rest;
        Some(bytes.to_vec())
    }

    fn step(&mut self) -> bool {
        self.try_step().is_some()
    }

    fn try_step(&mut self) -> Option<()> {
        let (what, how) = (self.byte()?, self.byte()?);
        match what % 10 {
            0..=3 => self.packet(what, how)?,
            4 => {
                let bytes = self.bytes()?;
                let tuple = self.route(how);
                self.peer.deliver(tuple, &bytes);
            }
            5 => self
                .peer
                .wait(Duration::from_millis(1 << (u64::from(how) % 14))),
            6 if self.peer.handshake.is_complete() => self.peer.ack_all(),
            7 => {
                let tuple = self.route(how);
                self.answered.insert(tuple);
                self.peer.answer_challenges_where(|to| to == tuple);
                self.peer.inbox.clear();
            }
            8 => self.command(how)?,
            9 => {
                self.peer
                    .handshake
                    .on_acked(PathId::ZERO, u64::from(how) << 20);
                let now = self.peer.now;
                let _ = self.peer.handshake.update_keys(now, Duration::ZERO);
            }
            _ => {}
        }
        Some(())
    }

    fn route(&self, how: u8) -> Tuple {
        route(self.victim, u16::from(how % 4))
    }

    /// A packet of any level and path, from anywhere, with any frames.
    fn packet(&mut self, what: u8, how: u8) -> Option<()> {
        let payload = self.bytes()?;
        let level = match what >> 6 {
            0 if self.peer.handshake.has_keys(Level::Initial) => Level::Initial,
            1 if self.peer.handshake.has_keys(Level::Handshake) => Level::Handshake,
            _ => Level::OneRtt,
        };
        let path = PathId(u32::from(how >> 5));
        let known = self.peer.remote_cids.contains_key(&(path, 0));
        if !self.peer.handshake.has_keys(level) || !known {
            return Some(());
        }
        let mut packet = Packet::new(level, payload);
        packet.path = path;
        packet.tuple = Some(self.route(how));
        packet.size = if how & 4 == 0 { 0 } else { 1200 };
        packet.flip = if how & 0x18 == 0x18 { 0x18 } else { 0 };
        for sequence in 0..4 {
            self.peer.adopt(path, sequence);
        }
        self.peer.send(packet);
        Some(())
    }

    /// Something the victim's application wants.
    fn command(&mut self, how: u8) -> Option<()> {
        let extra = self.byte()?;
        let now = self.peer.now;
        let side = self.victim;
        let Some(victim) = self.peer.connection() else {
            return Some(());
        };
        let path = PathId(u32::from(how >> 5));
        let dir = if extra & 1 == 0 { Dir::Bi } else { Dir::Uni };
        let any = StreamId::new(
            if extra & 2 == 0 { side } else { side.peer() },
            dir,
            u64::from(extra >> 4),
        );
        // What cannot be done now is refused.
        match how % 16 {
            0..=2 => {
                if let Some(id) = victim.open(dir) {
                    let _ = victim.write(id, &mut Bytes::from(vec![extra; 3000]));
                }
            }
            3 => drop(victim.write(any, &mut Bytes::from(vec![extra; 40_000]))),
            4 => drop(victim.finish(any)),
            5 => drop(victim.reset(any, 1)),
            6 => drop(victim.stop(any, 1)),
            7 => while victim.read(any, 1 << 14).is_ok_and(|bytes| bytes.is_some()) {},
            8 => drop(victim.accept(dir)),
            9 => drop(victim.send_datagram(Bytes::from(vec![extra; 100]))),
            10 => drop(victim.ping(path)),
            11 => drop(victim.abandon_path(now, path, 1)),
            12 => drop(victim.set_path_status(path, PathStatus::Backup)),
            13 => drop(victim.update_keys(now)),
            14 => {
                let tuple = route(side, u16::from(extra % 4));
                let _ = victim.open_path(now, tuple, Default::default());
            }
            _ if extra == 0xff => victim.close(now, 7, b"bye"),
            _ => {}
        }
        self.peer.receive();
        Some(())
    }

    fn check(&mut self) {
        self.peer.wait(Duration::from_secs(40));
        if self.victim.is_client() {
            return;
        }
        for n in 0..4 {
            let tuple = route(self.victim, n);
            let (sent, received) = (self.peer.bytes_to(tuple), self.peer.bytes_from(tuple));
            assert!(
                self.answered.contains(&tuple) || sent <= 3 * received,
                "{sent} bytes to an address that sent {received} and never answered"
            );
        }
    }
}
