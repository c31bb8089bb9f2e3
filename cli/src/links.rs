//! Messages about links: those that lead nowhere, and those that change during a connection.

use crate::output;
use anabranch_net::interfaces;
use anabranch_net::interfaces::spec::{PathSpec, without_route};
use anabranch_net::manager::{EntryState, PathEntry, PathManager};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Reports which of the interfaces that the user named have no route to the server.
pub(crate) async fn tell_dead_ends(specs: &[PathSpec], remotes: &[SocketAddr]) {
    // Without a list there is nothing to say here; connecting reports what is wrong.
    let Ok(interfaces) = interfaces::list().await else {
        return;
    };
    for name in without_route(specs, &interfaces, remotes) {
        output::say(dead_end(name));
    }
}

fn dead_end(name: &str) -> String {
    format!(
        "note: {name} has no route to the server, as it has no gateway: it reaches what is on its \
         own link alone\n  hint: ip route add default via GATEWAY dev {name} metric 1000"
    )
}

/// Logs each change of a connection's links, while it lasts.
pub(crate) fn tell_changes(manager: &PathManager) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let mut manager = manager.clone();
    let started = Instant::now();
    tokio::spawn(async move {
        let mut known = Known::default();
        loop {
            for line in known.changes(&manager.entries(), started.elapsed()) {
                tracing::info!("{line}");
            }
            if !manager.changed().await {
                return;
            }
        }
    });
}

/// A link: interface index, local address, and number of the path over it.
type Link = (u32, IpAddr, u32);

/// The links as last reported.
#[derive(Debug, Default)]
struct Known(BTreeMap<Link, (String, EntryState)>);

impl Known {
    /// What has changed, in words.
    fn changes(&mut self, entries: &[PathEntry], after: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        let mut gone = std::mem::take(&mut self.0);
        for entry in entries {
            let place = &entry.candidate;
            let link = (place.index, place.local, place.number);
            let name = match place.interface.as_str() {
                "" => "the kernel's route".to_owned(),
                name => format!("{name} ({})", place.local),
            };
            let before = gone.remove(&link).map(|(_, state)| state);
            let what = match before {
                None => Some(first_news(entry.state)),
                Some(before) => news(before, entry.state),
            };
            if let Some(what) = what {
                lines.push(line(after, &name, what));
            }
            self.0.insert(link, (name, entry.state));
        }
        for (name, state) in gone.into_values() {
            if !matches!(state, EntryState::Lost(_)) {
                lines.push(line(
                    after,
                    &name,
                    "down: the interface or its address is gone",
                ));
            }
        }
        lines
    }
}

fn line(after: Duration, name: &str, what: &str) -> String {
    format!("after {:.2} s: {name}: {what}", after.as_secs_f64())
}

fn news(before: EntryState, now: EntryState) -> Option<&'static str> {
    use EntryState::{Lost, Open, Opening, Silent, Waiting};
    Some(match (before, now) {
        (Open(_), Open(_)) | (Silent(_), Silent(_)) | (Lost(_), Lost(_)) => return None,
        (Silent(_), Open(_)) => "answers again",
        (Lost(_), Open(_) | Silent(_)) => "back",
        (_, Open(_)) => "up",
        (_, Silent(_)) => "doubted: nothing is heard over it",
        (_, Lost(_)) => "down: the interface or its address is gone",
        (Open(_) | Silent(_), Waiting { .. } | Opening(_)) => "given up; it is tried again",
        (Opening(_), Waiting { .. }) => "no answer; it is tried again",
        (_, Waiting { .. } | Opening(_)) => return None,
    })
}

/// What is reported about a new link.
fn first_news(now: EntryState) -> &'static str {
    match now {
        EntryState::Open(_) => "up",
        EntryState::Silent(_) => "there, and silent",
        EntryState::Lost(_) => "down",
        EntryState::Waiting { .. } | EntryState::Opening(_) => "is being opened",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_net::interfaces::spec::{Candidate, SpecOptions};
    use anabranch_proto::wire::PathId;

    fn entry(name: &str, state: EntryState) -> PathEntry {
        let candidate = Candidate {
            index: name.len() as u32,
            interface: name.into(),
            local: [10, 0, 0, name.len() as u8].into(),
            remote: ([192, 0, 2, 1], 443).into(),
            number: 0,
            options: SpecOptions::default(),
            bind_device: true,
        };
        PathEntry { candidate, state }
    }

    #[test]
    fn each_change_of_a_link_is_told_once() {
        use EntryState::{Lost, Open, Opening, Silent, Waiting};
        let mut known = Known::default();
        let first = entry("dsl", Open(PathId(0)));
        let mut told = |states: &[EntryState]| {
            let mut entries = vec![first.clone()];
            entries.extend(states.iter().map(|state| entry("lte1", *state)));
            let lines = known.changes(&entries, Duration::from_millis(1500));
            lines.join("|")
        };
        assert_eq!(told(&[]), "after 1.50 s: dsl (10.0.0.3): up");
        assert!(told(&[Opening(PathId(1))]).contains("lte1 (10.0.0.4): is being opened"));
        assert!(told(&[Open(PathId(1))]).ends_with("lte1 (10.0.0.4): up"));
        assert_eq!(told(&[Open(PathId(1))]), "");
        assert!(told(&[Silent(PathId(1))]).contains("doubted"));
        assert!(told(&[Open(PathId(1))]).contains("answers again"));
        assert!(told(&[Lost(PathId(1))]).contains("down"));
        assert_eq!(told(&[]), "", "told already");
        assert!(told(&[Waiting { failures: 0 }]).contains("being opened"));
        assert!(told(&[Open(PathId(2))]).contains("up"));
        assert!(told(&[]).contains("down"));
    }

    #[test]
    fn a_dead_end_is_told_with_a_way_out() {
        let text = dead_end("eth1");
        assert!(
            text.contains("eth1 has no route") && text.contains("dev eth1"),
            "{text}"
        );
    }
}
