//! What is remembered of paths from one connection to the next (RFC 9959): between which ends each
//! ran, and what it carried. A client keeps that with what it resumes from, a server has its
//! clients bring it back in tokens.

use crate::congestion::PathMemory;
use crate::time::Instant;
use anabranch_wire::PathId;
use anabranch_wire::cursor::Reader;
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Paths of one connection that are remembered: that of the handshake and four more. Tokens have to
/// be short, as they fill a client's first packets.
pub(crate) const MAX_KNOWN_PATHS: usize = 5;

/// Bytes of an encoded address.
const ADDRESS: usize = 16;

/// Where a path runs, as far as this end can tell in a later connection. Ports are of no use: those
/// of clients differ each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    remote: IpAddr,
    /// The near end, where it is known and tells networks apart: at a client.
    local: Option<IpAddr>,
}

impl Ends {
    pub(crate) fn new(remote: IpAddr, local: Option<IpAddr>) -> Self {
        // IPv4 addresses look the same from sockets of either family.
        Self {
            remote: remote.to_canonical(),
            local: local.map(|local| local.to_canonical()),
        }
    }

    pub(crate) fn remote(&self) -> IpAddr {
        self.remote
    }
}

/// A path and what it carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownPath {
    pub(crate) ends: Ends,
    pub(crate) memory: PathMemory,
}

impl KnownPath {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.memory.encode().to_vec();
        out.extend(address_bytes(self.ends.remote));
        out.extend(self.ends.local.into_iter().flat_map(address_bytes));
        out
    }

    /// Reads what [`encode`](Self::encode) wrote; none if it is something else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let memory = PathMemory::decode(reader.array().ok()?)?;
        let remote = reader.array().ok()?;
        let local = match reader.rest() {
            [] => None,
            local => Some(<[u8; ADDRESS]>::try_from(local).ok()?),
        };
        let ends = Ends::new(address(remote), local.map(address));
        Some(Self { ends, memory })
    }
}

/// An address as 16 bytes: IPv4 addresses look the same from sockets of either family.
pub(crate) fn address_bytes(address: IpAddr) -> [u8; ADDRESS] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The address of which these are the [bytes](address_bytes).
pub(crate) fn address(bytes: [u8; ADDRESS]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

/// Those that are remembered of the paths of a connection, which come in the order of their IDs.
/// Between the same ends only one: a later connection could not tell which of them it has. The
/// first one stays in any case, as most connections have no other; then who carried most.
pub(crate) fn worth_keeping(
    paths: impl Iterator<Item = (PathId, KnownPath)>,
) -> Vec<(PathId, KnownPath)> {
    let mut kept: Vec<(PathId, KnownPath)> = Vec::new();
    for (id, path) in paths {
        if kept.iter().all(|(_, other)| other.ends != path.ends) {
            kept.push((id, path));
        }
    }
    if let Some((_, further)) = kept.split_first_mut() {
        further.sort_by_key(|(_, path)| Reverse(path.memory.bytes()));
    }
    kept.truncate(MAX_KNOWN_PATHS);
    kept
}

/// When a path to some network last began with what an earlier connection saw of it. Clones are
/// one.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastResumed(Arc<AtomicU64>);

impl LastResumed {
    /// Whose turn it is: a path may begin with what was issued then, and none began since.
    pub(crate) fn turn(&self, issued: Instant) -> Option<Turn> {
        let turn = Turn {
            last: self.clone(),
            issued,
        };
        turn.is_there().then_some(turn)
    }
}

/// May begin a path to some network with a memory, unless somebody else does first.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    last: LastResumed,
    issued: Instant,
}

impl Turn {
    fn is_there(&self) -> bool {
        // Nothing is issued at time zero: a handshake comes before.
        self.issued.as_nanos() > self.last.0.load(Ordering::Relaxed)
    }

    /// Whether it still is there; if so, it is over for all that was issued until now.
    pub(crate) fn take(&self, now: Instant) -> bool {
        let is_there = self.is_there();
        if is_there {
            self.last.0.store(now.as_nanos(), Ordering::Relaxed);
        }
        is_there
    }
}

/// What an earlier connection saw of its paths, each for one path of this connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recollection {
    /// Those of a server each wait for their turn.
    paths: Vec<(KnownPath, Option<Turn>)>,
    /// How long it counts.
    until: Instant,
}

impl Recollection {
    pub(crate) fn new(paths: Vec<KnownPath>, until: Instant) -> Self {
        let paths = paths.into_iter().map(|path| (path, None)).collect();
        Self { paths, until }
    }

    /// What was seen of the path between these ends, and how long that counts. It is handed out
    /// once: paths between the same ends may share a bottleneck, and one that is opened again and
    /// again is not to begin so each time. The path begins now, and takes its turn.
    pub(crate) fn take(&mut self, now: Instant, ends: &Ends) -> Option<(PathMemory, Instant)> {
        let at = self.paths.iter().position(|(path, _)| path.ends == *ends)?;
        let (path, turn) = self.paths.swap_remove(at);
        let may_begin = turn.is_none_or(|turn| turn.take(now));
        may_begin.then_some((path.memory, self.until))
    }

    /// Has each path wait for its turn, and forgets those that get none.
    pub(crate) fn line_up(&mut self, mut turn: impl FnMut(&Ends) -> Option<Turn>) {
        self.paths.retain_mut(|(path, waits_for)| {
            *waits_for = turn(&path.ends);
            waits_for.is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;
    use proptest::prelude::*;

    const RTT: Duration = Duration::from_millis(200);
    const NOW: Instant = Instant::from_nanos(7);

    fn ends(remote: &str, local: Option<&str>) -> Ends {
        let address = |text: &str| text.parse().unwrap();
        Ends::new(address(remote), local.map(address))
    }

    fn known(ends: Ends, bytes: u64) -> KnownPath {
        let memory = PathMemory::new(bytes, RTT).unwrap();
        KnownPath { ends, memory }
    }

    #[test]
    fn a_memory_is_for_one_path_between_its_own_ends() {
        let there = ends("192.0.2.7", Some("10.0.0.2"));
        let until = Instant::from_nanos(9);
        let path = known(there, 1 << 20);
        let mut earlier = Recollection::new(vec![path], until);
        for other in [
            ends("192.0.2.8", Some("10.0.0.2")),
            ends("192.0.2.7", Some("10.0.0.3")),
            ends("192.0.2.7", None),
        ] {
            assert_eq!(earlier.take(NOW, &other), None, "{other:?}");
        }
        let same = ends("::ffff:192.0.2.7", Some("::ffff:10.0.0.2"));
        assert_eq!(earlier.take(NOW, &same), Some((path.memory, until)));
        assert_eq!(earlier.take(NOW, &same), None, "another path has it");
    }

    #[test]
    fn a_memory_waits_for_its_turn_until_a_path_begins_with_it() {
        let there = ends("192.0.2.7", None);
        let path = known(there, 1 << 20);
        let last = LastResumed::default();
        let issued = Instant::from_nanos(5);
        let waiting = || {
            let mut earlier = Recollection::new(vec![path], NOW);
            earlier.line_up(|_| last.turn(issued));
            earlier
        };
        let (mut one, mut two) = (waiting(), waiting());
        assert_eq!(one.take(NOW, &ends("192.0.2.8", None)), None);
        assert_eq!(two.take(NOW, &there), Some((path.memory, NOW)));
        assert_eq!(one.take(NOW, &there), None, "another one has begun");
        assert!(waiting().paths.is_empty());
    }

    #[test]
    fn of_paths_that_cannot_be_told_apart_the_first_is_kept() {
        let there = ends("192.0.2.7", None);
        let paths =
            [(0, 1 << 20), (1, 1 << 22)].map(|(id, bytes)| (PathId(id), known(there, bytes)));
        assert_eq!(worth_keeping(paths.into_iter()), paths[..1]);
    }

    #[test]
    fn the_first_path_is_kept_and_of_the_others_those_that_carried_most() {
        let path = |n: u32| {
            let there = ends(&format!("192.0.2.{n}"), None);
            (PathId(n), known(there, u64::from(n) << 20))
        };
        let kept = worth_keeping((1..=8).map(path));
        assert_eq!(kept, [1, 8, 7, 6, 5].map(path));
    }

    proptest! {
        #[test]
        fn a_known_path_survives_being_written_and_read(
            remote: [u8; 16],
            local: Option<[u8; 16]>,
            kib in 1_u64..1 << 32,
            rtt_us in 1_u64..1 << 32,
        ) {
            let memory = PathMemory::new(kib * 1024, Duration::from_micros(rtt_us)).unwrap();
            let ends = Ends::new(address(remote), local.map(address));
            let path = KnownPath { ends, memory };
            prop_assert_eq!(KnownPath::decode(&path.encode()), Some(path));
        }

        #[test]
        fn arbitrary_bytes_are_a_known_path_or_none(bytes: Vec<u8>) {
            if let Some(path) = KnownPath::decode(&bytes) {
                prop_assert_eq!(KnownPath::decode(&path.encode()), Some(path));
            }
        }
    }
}
