//! Which links are in quarantine: counts what the paths of each interface do, and asks the rule
//! ([`anabranch_tunnel::links::Quarantine`]).
//!
//! A link here is an interface, whoever chose it: `auto` has several.

use super::uplink::{News, Up};
use anabranch_net::engine::{PathNotice, PathStats};
use anabranch_net::manager::{EntryState, PathEntry};
use anabranch_proto::path::PathState;
use anabranch_proto::wire::PathId;
use anabranch_tunnel::links::{Conduct, Harm, Packets, Quarantine};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Silences of a link closer to each other than this are one: its paths fall silent together.
const AT_ONCE: Duration = Duration::from_millis(200);

/// The links of a near end, trusted or not.
#[derive(Debug, Default)]
pub(super) struct Quarantines {
    /// Of which connection the paths are.
    connection: u64,
    paths: BTreeMap<PathId, Watched>,
    links: BTreeMap<String, Link>,
}

/// A path whose packets are counted.
#[derive(Debug)]
struct Watched {
    interface: String,
    answers: Answers,
    so_far: Conduct,
}

/// Whether a path answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// It is being validated: if it never answers, it does no harm.
    NotYet,
    Yes,
    NoLonger,
}

impl Watched {
    fn new(entry: PathEntry) -> Self {
        Self {
            interface: entry.candidate.interface,
            answers: match entry.state {
                EntryState::Open(_) => Answers::Yes,
                EntryState::Silent(_) | EntryState::Lost(_) => Answers::NoLonger,
                EntryState::Opening(_) | EntryState::Waiting { .. } => Answers::NotYet,
            },
            so_far: Conduct::default(),
        }
    }

    /// Returns whether it answered until now.
    fn turn(&mut self, answers: Answers) -> bool {
        let before = std::mem::replace(&mut self.answers, answers);
        before == Answers::Yes && answers == Answers::NoLonger
    }
}

#[derive(Debug, Default)]
struct Link {
    rule: Quarantine,
    /// What it did since it was last judged.
    conduct: Conduct,
    fell_silent: Option<Instant>,
    works: bool,
}

impl Link {
    /// Whether others can be put aside for it.
    fn is_reliable(&self) -> bool {
        self.works && self.conduct.silences == 0 && self.rule.now().is_none()
    }
}

impl Quarantines {
    /// Something happened to a path of this connection.
    pub(super) fn on_notice(&mut self, up: &Up, notice: PathNotice, now: Instant) {
        // A path may come and go between two looks.
        self.meet(up);
        let (id, answers) = match notice {
            PathNotice::Opened { id, .. } | PathNotice::Recovered { id, .. } => (id, Answers::Yes),
            // One whose interface is gone is abandoned without doubt. So is one that the rules put
            // away: none do that again and again within a minute.
            PathNotice::Doubted { id } | PathNotice::Abandoned { id, .. } => {
                (id, Answers::NoLonger)
            }
            PathNotice::Capacity | PathNotice::Moved { .. } | PathNotice::Discarded { .. } => {
                return;
            }
        };
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        if path.turn(answers)
            && let Some(link) = self.links.get_mut(&path.interface)
        {
            let is_one = |before: Instant| now - before < AT_ONCE;
            if !link.fell_silent.replace(now).is_some_and(is_one) {
                link.conduct.silences += 1;
            }
        }
    }

    /// Counts what the links of a connection did in this time; returns what changed.
    pub(super) fn look(&mut self, up: &Up, time: Duration) -> Vec<News> {
        self.meet(up);
        self.count(&up.session.connection().paths());
        self.judge(time)
    }

    /// The interfaces that are in quarantine.
    pub(super) fn interfaces(&self) -> Vec<String> {
        let links = self.links.iter();
        let kept = links.filter(|(_, link)| link.rule.now().is_some());
        kept.map(|(interface, _)| interface.clone()).collect()
    }

    /// For what an interface is in quarantine, and for how much longer.
    pub(super) fn of(&self, interface: &str) -> Option<(Harm, Duration)> {
        self.links.get(interface)?.rule.now()
    }

    /// Learns which interfaces the paths of a connection use.
    fn meet(&mut self, up: &Up) {
        if self.connection != up.number {
            self.connection = up.number;
            self.paths.clear();
        }
        for entry in up.manager.entries() {
            // Where the kernel routes there is one path, and no name.
            let interface = &entry.candidate.interface;
            if let Some(id) = entry.state.path().filter(|_| !interface.is_empty()) {
                self.links.entry(interface.clone()).or_default();
                self.paths.entry(id).or_insert_with(|| Watched::new(entry));
            }
        }
    }

    /// Adds what each path did since the last time to the conduct of its link.
    fn count(&mut self, paths: &[(PathId, PathStats)]) {
        for link in self.links.values_mut() {
            link.works = false;
        }
        for (id, stats) in paths {
            let Some(watched) = self.paths.get_mut(id) else {
                continue;
            };
            let now = conduct(stats);
            let new = now.since(std::mem::replace(&mut watched.so_far, now));
            if let Some(link) = self.links.get_mut(&watched.interface) {
                link.conduct += new;
                link.works |= stats.is_open() && stats.state == PathState::Active;
            }
        }
        self.paths
            .retain(|id, _| paths.iter().any(|(one, _)| one == id));
    }

    fn judge(&mut self, time: Duration) -> Vec<News> {
        let mut reliable = self
            .links
            .values()
            .filter(|link| link.is_reliable())
            .count();
        let mut news = Vec::new();
        for (interface, link) in &mut self.links {
            let is_one = link.is_reliable();
            let has_other = reliable > usize::from(is_one);
            let mut conduct = std::mem::take(&mut link.conduct);
            if !has_other {
                // What befalls all links is the far end's doing, or that of what is in between.
                conduct.silences = 0;
            }
            if link.rule.look(conduct, time, has_other) {
                let (link, now) = (interface.clone(), link.rule.now());
                reliable -= usize::from(is_one && now.is_some());
                news.push(News::Quarantine { link, now });
            }
        }
        // An interface that is gone is forgotten, but not what it is known for.
        self.links
            .retain(|_, link| link.works || !link.rule.is_clean());
        news
    }
}

/// What a path has sent and received so far. Losses on the way here show in the peer's numbers.
fn conduct(stats: &PathStats) -> Conduct {
    let counters = &stats.counters;
    Conduct {
        silences: 0,
        sent: Packets {
            sent: counters.sent_packets,
            lost: counters
                .lost_packets
                .saturating_sub(counters.spurious_losses),
        },
        received: Packets {
            sent: stats.peer_packets,
            lost: stats.peer_packets.saturating_sub(counters.received_packets),
        },
    }
}
