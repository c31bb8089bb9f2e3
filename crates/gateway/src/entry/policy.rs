//! Which class a flow is of, and what each class carries.

use super::owner;
use crate::records::Record;
use crate::relay::Moved;
use crate::status::Class as Shown;
use anabranch_masque::{Host, Target};
use anabranch_tunnel::class::{Class, Classes, Flow, Transport, Treatment};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts of the flows of a class.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    open: AtomicUsize,
    made: AtomicU64,
    moved: Arc<Moved>,
    /// Datagrams that could not leave in time.
    expired: Arc<AtomicU64>,
}

/// A flow of a class, counted while it lasts.
#[derive(Debug)]
pub(crate) struct Classed {
    pub(crate) name: String,
    pub(crate) treatment: Treatment,
    tally: Arc<Tally>,
}

impl Classed {
    fn new(class: &Class, tally: Arc<Tally>) -> Self {
        tally.open.fetch_add(1, Ordering::Relaxed);
        tally.made.fetch_add(1, Ordering::Relaxed);
        Self {
            name: class.name.clone(),
            treatment: class.treatment,
            tally,
        }
    }

    pub(crate) fn moved(&self) -> &Arc<Moved> {
        &self.tally.moved
    }

    /// Notes in the record of the flow what class it is of.
    pub(crate) fn mark(&self, record: &Record) {
        record.is_of(&self.name, &self.tally.expired);
    }
}

impl Drop for Classed {
    fn drop(&mut self) {
        self.tally.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who begins a flow, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning {
    pub(crate) transport: Transport,
    /// The host's address and port.
    pub(crate) host: SocketAddr,
    /// What the host's process has, if it is one of this machine.
    pub(crate) socket: owner::Socket,
    /// The code point of the first datagram.
    pub(crate) dscp: Option<u8>,
}

/// The classes there are, and what they carry.
#[derive(Debug, Default)]
pub(crate) struct Policy(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    classes: Arc<Classes>,
    /// By their names: also of classes that were there before.
    tallies: BTreeMap<String, Arc<Tally>>,
}

impl Policy {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the classes for flows that begin from now on; returns whether they changed.
    pub(crate) fn set(&self, classes: Classes) -> bool {
        let mut state = self.lock();
        let differ = *state.classes != classes;
        state.classes = Arc::new(classes);
        differ
    }

    /// What a flow gets.
    pub(crate) async fn classify(&self, beginning: Beginning, target: &Target) -> Classed {
        let classes = Arc::clone(&self.lock().classes);
        let owner = if classes.wants_owner() {
            owner::of(beginning.socket).await
        } else {
            None
        };
        let (address, domain) = match &target.host {
            Host::V4(ip) => (Some((*ip).into()), None),
            Host::V6(ip) => (Some((*ip).into()), None),
            Host::Name(name) => (None, Some(name.as_str())),
        };
        let class = classes.of(&Flow {
            transport: beginning.transport,
            source: Some(beginning.host.ip().to_canonical()),
            target: address,
            domain,
            port: target.port,
            dscp: beginning.dscp,
            owner,
        });
        let mut state = self.lock();
        let known = state.tallies.get(&class.name).map(Arc::clone);
        let tally = known.unwrap_or_default();
        state
            .tallies
            .entry(class.name.clone())
            .or_insert_with(|| Arc::clone(&tally));
        Classed::new(class, tally)
    }

    /// What all of them moved: into the tunnel and out of it.
    pub(crate) fn moved(&self) -> (u64, u64) {
        let state = self.lock();
        let each = state.tallies.values().map(|tally| tally.moved.so_far());
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The classes in the order in which they are asked, and those before them whose flows last.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let state = self.lock();
        let show = |name: &str| {
            let tally = state.tallies.get(name).cloned().unwrap_or_default();
            let (up_bytes, down_bytes) = tally.moved.so_far();
            Shown {
                name: name.to_owned(),
                open: tally.open.load(Ordering::Relaxed),
                made: tally.made.load(Ordering::Relaxed),
                up_bytes,
                down_bytes,
                expired: tally.expired.load(Ordering::Relaxed),
            }
        };
        let mut all: Vec<Shown> = state.classes.iter().map(|it| show(&it.name)).collect();
        for name in state.tallies.keys() {
            if !all.iter().any(|one| one.name == *name) {
                all.extend(Some(show(name)).filter(|one| one.open > 0));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_tunnel::class::Match;

    fn begin(port: u16) -> Beginning {
        let host = ([192, 0, 2, 7], port).into();
        Beginning {
            transport: Transport::Tcp,
            host,
            socket: owner::Socket::tcp(host, host),
            dscp: None,
        }
    }

    #[tokio::test]
    async fn flows_are_counted_by_class_also_when_the_classes_change() {
        let policy = Policy::default();
        let target: Target = "ssh.example.org:22".parse().unwrap();
        let first = policy.classify(begin(1), &target).await;
        assert_eq!(first.treatment.priority, 2);
        first.moved().into_stream.fetch_add(7, Ordering::Relaxed);
        let own = Class {
            name: "own".into(),
            matches: vec![Match {
                domains: vec!["example.org".into()],
                ..Match::default()
            }],
            treatment: Treatment::default(),
        };
        let classes = Classes::new(vec![own]);
        assert!(policy.set(classes.clone()) && !policy.set(classes));
        let second = policy.classify(begin(2), &target).await;
        second.moved().into_stream.fetch_add(1, Ordering::Relaxed);
        let count = |name: &str| {
            let all = policy.shown();
            let one = all.iter().find(|one| one.name == name);
            one.map(|one| (one.open, one.made, one.up_bytes))
        };
        assert_eq!(count("shell"), Some((1, 1, 7)));
        assert_eq!(count("own"), Some((1, 1, 1)));
        assert_eq!(policy.moved(), (8, 0));
        drop(second);
        assert!(policy.set(Classes::default()));
        assert_eq!(count("own"), None, "it is gone, with all of its flows");
        assert_eq!(policy.moved(), (8, 0));
    }
}
