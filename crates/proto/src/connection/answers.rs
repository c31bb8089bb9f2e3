//! Answers to challenges that come from an address the path is not at.
//!
//! A client without the multipath extension asks whether another way works before it moves there
//! (RFC 9000, section 9.1): it must hear from us there, and nothing else may change. Only servers
//! answer: a client sends to no address it did not choose.

use super::Connection;
use super::receive::Arrival;
use crate::datagram::Transmit;
use crate::handshake::Level;
use crate::packet::{Packet, SizeRule, Via};
use crate::path::manager::Slot;
use crate::path::state::Path;
use crate::path::validation::ElsewhereAnswers;
use crate::time::Instant;
use crate::wire::frame::Frame;
use crate::wire::{MIN_DATAGRAM_SIZE, PathId};

impl Connection {
    pub(super) fn on_path_challenge(&mut self, arrival: &Arrival, data: [u8; 8]) {
        let may_answer_elsewhere =
            self.identity.side().is_server() && self.handshake.is_confirmed();
        let Some(path) = self.paths.open_path_mut(arrival.path) else {
            return;
        };
        if arrival.level == Level::ZeroRtt {
            path.on_early_challenge(arrival.tuple, data);
            return;
        }
        let elsewhere = may_answer_elsewhere.then_some((arrival.pn, arrival.size));
        path.on_challenge(arrival.tuple, data, elsewhere);
    }

    /// The next datagram to an address that asked without being a path's.
    pub(super) fn transmit_answer(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let waits = |path: &&Path| path.has_answers();
            let id = self.paths.open().filter_map(Slot::open).find(waits)?.id();
            if let Some(transmit) = self.write_answer(now, id, buf) {
                return Some(transmit);
            }
        }
    }

    /// Answers all that one address asked; nothing if what came from there earned too little.
    fn write_answer(&mut self, now: Instant, id: PathId, buf: &mut Vec<u8>) -> Option<Transmit> {
        let path = self.paths.open_path_mut(id)?;
        let ElsewhereAnswers {
            tuple,
            data,
            budget,
        } = path.take_answers()?;
        let size = usize::try_from(budget).map_or(MIN_DATAGRAM_SIZE, |b| b.min(MIN_DATAGRAM_SIZE));
        let dcid = self.paths.slot_mut(id)?.cid_for_answer(tuple)?;
        let start = buf.len();
        let space = self.paths.open_path(id)?.space();
        let heading = self.heading(Level::OneRtt, id, Via::Elsewhere, dcid, space);
        let mut packet = Packet::begin(&heading, buf, start + size)?;
        for data in data {
            packet.frames().put(&Frame::PathResponse { data });
        }
        let full = size == MIN_DATAGRAM_SIZE;
        let rule = if full {
            SizeRule::AtLeast(start + size)
        } else {
            SizeRule::AsIs
        };
        let length = self.finish_packet(now, packet, rule);
        (length > 0).then_some(Transmit::single(tuple, length))
    }
}
