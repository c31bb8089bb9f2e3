//! Connection IDs that tell which of several endpoints behind the same addresses issued them.
//!
//! ```text
//! datagram ──Handshake or 1-RTT: AES of its connection ID, modulo the number of endpoints──> owner
//!          ──Initial, 0-RTT, anything else──> nobody: whoever received it
//! ```
//! A client invents the connection ID of its first packets, and sends all that carry it from one
//! address: the kernel leads them to one socket, whose endpoint begins the connection. Each
//! endpoint draws connection IDs until one is its own. Without the key nobody sees which endpoint
//! that is, so that those of one connection look no more alike than others (RFC 9000, section
//! 5.1).

use super::{BLOCK, CidFormat, encrypt_block};
use crate::rng::Rng;
use aes_gcm::KeyInit;
use aes_gcm::aes::Aes128;
use anabranch_wire::ConnectionId;
use anabranch_wire::header::{self, Header, LongType};
use std::fmt;

/// The share of one of several endpoints in all connection IDs.
#[derive(Clone)]
pub struct Share {
    format: Box<CidFormat>,
    key: Aes128,
    index: usize,
    count: usize,
}

impl Share {
    /// The shares of `count` endpoints, one at least. The key has to be random and secret.
    pub fn split(format: &CidFormat, count: usize, key: [u8; 16]) -> Vec<Self> {
        let count = count.max(1);
        let of = |index| Self {
            format: Box::new(format.clone()),
            key: Aes128::new(&key.into()),
            index,
            count,
        };
        (0..count).map(of).collect()
    }

    /// Which endpoint a datagram is for, counted from 0; `None` if that is whichever receives it.
    pub fn owner(&self, datagram: &[u8]) -> Option<usize> {
        if self.count == 1 {
            return None;
        }
        match header::parse(datagram, self.format.length()) {
            Ok(
                Header::Short { dcid, .. }
                | Header::Long {
                    kind: LongType::Handshake,
                    dcid,
                    ..
                },
            ) => Some(self.owner_of(&dcid)),
            _ => None,
        }
    }

    fn owner_of(&self, cid: &ConnectionId) -> usize {
        let mut block = [0; BLOCK];
        for piece in cid.as_slice().chunks(BLOCK) {
            for (octet, added) in block.iter_mut().zip(piece) {
                *octet ^= added;
            }
            block = encrypt_block(&self.key, block);
        }
        let [number, ..] = block.as_chunks::<8>().0 else {
            unreachable!("a block has 16 octets")
        };
        (u64::from_le_bytes(*number) % self.count as u64) as usize
    }

    pub(super) fn length(&self) -> usize {
        self.format.length()
    }

    /// A new one of this endpoint: on average it takes as many attempts as there are endpoints.
    pub(super) fn draw(&self, rng: &mut Rng) -> ConnectionId {
        loop {
            let cid = self.format.draw(rng);
            if self.owner_of(&cid) == self.index {
                return cid;
            }
        }
    }

    pub(super) fn draw_for_retry(&self, rng: &mut Rng) -> ConnectionId {
        // Initial packets are for whoever receives them.
        self.format.draw_for_retry(rng)
    }
}

/// Who reads a log learns no key.
impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share")
            .field("format", &self.format)
            .field("index", &self.index)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Routable;
    use super::*;
    use std::sync::Arc;

    const COUNT: usize = 5;

    fn formats() -> [CidFormat; 3] {
        let routable = Routable::new(1, &[7; 9], 10, Some([3; 16])).unwrap();
        [
            CidFormat::Random(8),
            CidFormat::Random(20),
            CidFormat::Routable(Arc::new(routable)),
        ]
    }

    /// A datagram of a packet with a short header.
    fn short(cid: &ConnectionId) -> Vec<u8> {
        [&[0x40], cid.as_slice(), &[0; 30]].concat()
    }

    fn long(kind: LongType, cid: &ConnectionId) -> Vec<u8> {
        let mut out = Vec::new();
        let none = ConnectionId::new(&[]).unwrap();
        header::put_long(&mut out, kind, cid, &none, &[], 0, 4);
        out.resize(1200, 0);
        out
    }

    #[test]
    fn each_endpoint_issues_connection_ids_that_all_know_for_its_own() {
        for format in formats() {
            let shares = Share::split(&format, COUNT, [9; 16]);
            let mut rng = Rng::from_seed([1; 32]);
            for (index, share) in shares.iter().enumerate() {
                let cid = share.draw(&mut rng);
                assert_eq!(cid.len(), format.length());
                for other in &shares {
                    assert_eq!(other.owner(&short(&cid)), Some(index));
                    let handshake = long(LongType::Handshake, &cid);
                    assert_eq!(other.owner(&handshake), Some(index));
                }
            }
        }
    }

    #[test]
    fn what_begins_a_connection_is_for_whoever_receives_it() {
        let shares = Share::split(&CidFormat::default(), COUNT, [9; 16]);
        let cid = shares[1].draw(&mut Rng::from_seed([1; 32]));
        for kind in [LongType::Initial, LongType::ZeroRtt] {
            assert_eq!(shares[0].owner(&long(kind, &cid)), None);
        }
        for noise in [&[][..], &[0x40], &[0xc0, 0, 0, 0, 1, 255]] {
            assert_eq!(shares[0].owner(noise), None);
        }
    }

    #[test]
    fn connection_ids_of_one_endpoint_differ_in_all_that_can_be_seen_without_the_key() {
        let format = CidFormat::default();
        let [ours, theirs] = [[9; 16], [8; 16]].map(|key| Share::split(&format, COUNT, key));
        let mut rng = Rng::from_seed([1; 32]);
        let mut seen = [0; COUNT];
        for _ in 0..1000 {
            let cid = ours[2].draw(&mut rng);
            seen[theirs[0].owner(&short(&cid)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&count| count > 140), "{seen:?}");
    }
}
