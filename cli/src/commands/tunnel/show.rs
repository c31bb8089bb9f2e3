//! What nodes tell of themselves, for people.

use crate::output;
use crate::output::table::Table;
use crate::output::units;
use anabranch_gateway::status::{
    Cap, Captured, Class, Client, Datagrams, Far, Near, Path, Quarantine, Status, Traffic,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

/// The role of a link that nothing was said of.
const ALWAYS: &str = "always";

/// One screen about a node.
pub(super) fn screen(status: &Status) -> String {
    match status {
        Status::Near(near) => of_near(near),
        Status::Far(far) => of_far(far),
    }
}

fn of_near(near: &Near) -> String {
    let listening: Vec<String> = near.listening.iter().map(ToString::to_string).collect();
    let head = match (&near.far_end, near.connected_seconds) {
        (Some(name), Some(seconds)) => {
            format!("near end, connected to {name} for {}", time(seconds))
        }
        _ => format!(
            "near end, not connected: {}",
            near.trouble.as_deref().unwrap_or("it is being tried")
        ),
    };
    let counts = near.connections;
    let mut text = format!(
        "{head}\nSOCKS5 and HTTP CONNECT on {}\n{}{} open, {} made, {} failed\n{}{}",
        listening.join(", "),
        captured(near.captured.as_ref()),
        units::counted(counts.open, "flow"),
        counts.made,
        counts.failed,
        moved(&near.traffic),
        datagrams(near.datagrams),
    );
    if !near.paths.is_empty() {
        let _ = write!(text, "\n\n{}", paths(&near.paths));
    }
    let intervals: Vec<String> = intervals(&near.paths).into_iter().collect();
    if let [interval] = &intervals[..] {
        let _ = write!(
            text,
            "\neach path is asked after {interval} without traffic"
        );
    }
    for (link, why) in put_aside(&near.paths) {
        let (reason, left) = (&why.reason, why.seconds_left);
        let _ = write!(text, "\n{link} {reason}: a backup for {left} s more");
    }
    if near.classes.iter().any(|class| class.made > 0) {
        let _ = write!(text, "\n\n{}", classes(&near.classes));
    }
    text
}

fn of_far(far: &Far) -> String {
    let here = far.clients.iter().filter(|client| client.connected).count();
    let mut text = format!(
        "far end `{}`, running for {}\n{} let in, {here} connected\n{} open\n{}{}",
        far.name,
        time(far.running_seconds),
        units::counted(far.clients.len(), "client"),
        units::counted(far.flows.open, "flow"),
        moved(&far.traffic),
        datagrams(far.datagrams),
    );
    if !far.clients.is_empty() {
        let _ = write!(text, "\n\n{}", clients(&far.clients));
    }
    for client in far.clients.iter().filter(|client| !client.paths.is_empty()) {
        let _ = write!(
            text,
            "\n\npaths of {} ({}){}\n{}",
            client.name,
            client.id,
            datagrams(client.datagrams),
            paths(&client.paths)
        );
    }
    text
}

/// A line about what is captured, if something is.
fn captured(captured: Option<&Captured>) -> String {
    let Some(captured) = captured else {
        return String::new();
    };
    let switch = if captured.kill_switch { "on" } else { "off" };
    format!(
        "captures {}; kill switch {switch}\n",
        captured.sources.join(", ")
    )
}

fn moved(traffic: &Traffic) -> String {
    format!(
        "down {} now, {} in all; up {} now, {} in all",
        units::bit_rate(traffic.down_bps),
        units::bytes(traffic.down_bytes),
        units::bit_rate(traffic.up_bps),
        units::bytes(traffic.up_bytes),
    )
}

/// A line about UDP, if there was any.
fn datagrams(datagrams: Datagrams) -> String {
    if datagrams == Datagrams::default() {
        return String::new();
    }
    let Datagrams {
        up,
        down,
        dropped,
        expired,
        ..
    } = datagrams;
    format!("\nUDP datagrams: {down} down, {up} up, {dropped} dropped, {expired} expired")
}

pub(super) fn paths(paths: &[Path]) -> Table {
    let mut head = vec!["interface", "local", "remote", "state"];
    // Where all links are for the same, a column that says so would only take room.
    let has_roles = paths.iter().any(|path| path.role != ALWAYS);
    head.extend(has_roles.then_some("role"));
    head.extend([">down", ">up", ">share", ">delay", ">loss"]);
    let differ = intervals(paths).len() > 1;
    head.extend(differ.then_some(">keep-alive"));
    let has_caps = paths.iter().any(|path| path.cap.is_some());
    head.extend(has_caps.then_some(">this month"));
    let mut table = Table::new(&head);
    let ms = |value: Option<f64>| value.map_or_else(|| "-".into(), |ms| format!("{ms:.1} ms"));
    for path in paths {
        let interface = if path.interface.is_empty() {
            "any"
        } else {
            &path.interface
        };
        let mut row = vec![
            interface.to_owned(),
            path.local.clone().unwrap_or_else(|| "-".into()),
            path.remote.clone(),
            path.state.clone(),
        ];
        row.extend(has_roles.then(|| path.role.clone()));
        row.extend([
            units::bit_rate(path.down_bps),
            units::bit_rate(path.up_bps),
            format!("{:.0} %", path.share * 100.0),
            ms(path.delay_ms),
            path.loss
                .map_or_else(|| "-".into(), |loss| format!("{:.2} %", loss * 100.0)),
        ]);
        row.extend(differ.then(|| keep_alive(path)));
        row.extend(has_caps.then(|| cap(path)));
        table.row(row);
    }
    table.within(output::width())
}

/// The links that stand by for what they did.
fn put_aside(paths: &[Path]) -> BTreeMap<&str, &Quarantine> {
    let mut links = BTreeMap::new();
    for path in paths {
        if let Some(why) = &path.quarantine {
            links.insert(&*path.interface, why);
        }
    }
    links
}

/// After which rests paths are asked whether they are there. A far end follows its clients, and
/// tells none.
fn intervals(paths: &[Path]) -> BTreeSet<String> {
    let asked = paths
        .iter()
        .filter(|path| path.keep_alive_seconds.is_some());
    asked.map(keep_alive).collect()
}

/// After which rest a path is asked whether it is there.
pub(super) fn keep_alive(path: &Path) -> String {
    let words = |seconds| format!("{seconds:.0} s");
    path.keep_alive_seconds.map_or_else(|| "-".into(), words)
}

/// What of a link's cap is used up.
pub(super) fn cap(path: &Path) -> String {
    let words = |cap: &Cap| {
        format!(
            "{} of {}",
            units::bytes(cap.used_bytes),
            units::bytes(cap.bytes)
        )
    };
    path.cap.as_ref().map_or_else(|| "-".into(), words)
}

/// The classes of traffic that were of use.
fn classes(classes: &[Class]) -> Table {
    let mut head = vec!["class", ">open", ">so far", ">down", ">up"];
    let has_expired = classes.iter().any(|class| class.expired > 0);
    head.extend(has_expired.then_some(">expired"));
    let mut table = Table::new(&head);
    for class in classes.iter().filter(|class| class.made > 0) {
        let mut row = vec![
            class.name.clone(),
            class.open.to_string(),
            class.made.to_string(),
            units::bytes(class.down_bytes),
            units::bytes(class.up_bytes),
        ];
        row.extend(has_expired.then(|| class.expired.to_string()));
        table.row(row);
    }
    table.within(output::width())
}

/// The clients of a far end.
pub(super) fn clients(clients: &[Client]) -> Table {
    let head = [
        "client",
        "id",
        "state",
        ">open",
        ">down now",
        ">up now",
        ">down",
        ">up",
        "first seen",
        "last seen",
    ];
    let mut table = Table::new(&head);
    for client in clients {
        let state = if client.connected {
            "connected"
        } else {
            "away"
        };
        table.row([
            client.name.clone(),
            client.id.clone(),
            state.to_owned(),
            client.open.to_string(),
            units::bit_rate(client.traffic.down_bps),
            units::bit_rate(client.traffic.up_bps),
            units::bytes(client.traffic.down_bytes),
            units::bytes(client.traffic.up_bytes),
            ago(client.first_seen),
            ago(client.last_seen),
        ]);
    }
    table.within(output::width())
}

/// How long something lasts, as people say it.
pub(super) fn time(seconds: u64) -> String {
    // Two units say enough: nobody counts the seconds of a week.
    let text = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    let parts: Vec<&str> = text.split(' ').take(2).collect();
    parts.join(" ")
}

fn ago(since_1970: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    format!("{} ago", time(now.saturating_sub(since_1970)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use anabranch_gateway::status::Connections;

    pub(crate) fn path(interface: &str, state: &str) -> Path {
        Path {
            interface: interface.into(),
            path: Some(0),
            role: "always".into(),
            keep_alive_seconds: Some(25.0),
            cap: None,
            quarantine: None,
            local: Some("192.168.1.2".into()),
            remote: "192.0.2.1:4434".into(),
            state: state.into(),
            up_bps: 1e6,
            down_bps: 20e6,
            share: 0.6,
            delay_ms: Some(12.34),
            least_delay_ms: None,
            loss: Some(0.001),
            mtu: 1452,
            sent_bytes: 0,
            received_bytes: 0,
            sent_packets: 0,
            lost_packets: 0,
        }
    }

    fn class(name: &str, made: u64) -> Class {
        Class {
            name: name.into(),
            open: 0,
            made,
            up_bytes: 0,
            down_bytes: 0,
            expired: 0,
        }
    }

    pub(crate) fn near() -> Near {
        Near {
            far_end: Some("home".into()),
            connected_seconds: Some(7384),
            trouble: None,
            listening: vec![([127, 0, 0, 1], 1080).into()],
            connections: Connections {
                open: 1,
                made: 9,
                failed: 2,
            },
            traffic: Traffic::default(),
            datagrams: Datagrams {
                up: 7,
                down: 8,
                dropped: 1,
                expired: 2,
                ..Datagrams::default()
            },
            captured: Some(Captured {
                sources: vec!["host".into(), "lan=br0".into()],
                kill_switch: true,
            }),
            classes: vec![class("shell", 1), class("bulk", 0)],
            paths: vec![path("eth0", "open"), path("", "waiting")],
        }
    }

    #[test]
    fn a_near_end_says_where_it_leads_and_what_each_path_does() {
        let mut near = near();
        let text = screen(&Status::Near(near.clone()));
        for part in [
            "connected to home for 2h 3m",
            "1 flow open, 9 made, 2 failed",
            "captures host, lan=br0; kill switch on",
            "127.0.0.1:1080",
            "UDP datagrams: 8 down, 7 up, 1 dropped, 2 expired",
            "eth0",
            "20.0 Mbit/s",
            "60 %",
            "12.3 ms",
            "0.10 %",
            "each path is asked after 25 s without traffic",
            "any",
            "waiting",
            "shell",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("bulk"), "nothing was of it: {text}");
        assert!(!text.contains("a backup for"), "{text}");
        assert!(!text.contains("role"), "all are for the same: {text}");
        near.paths[0].quarantine = Some(Quarantine {
            reason: "lost 31 % of its packets for ten seconds".into(),
            seconds_left: 29,
        });
        let text = screen(&Status::Near(near.clone()));
        let why = "eth0 lost 31 % of its packets for ten seconds: a backup for 29 s more";
        assert!(text.contains(why), "{text}");
        (near.far_end, near.trouble) = (None, Some("no answer".into()));
        assert!(screen(&Status::Near(near)).starts_with("near end, not connected: no answer\n"));
    }

    #[test]
    fn what_each_path_is_for_is_told_once_one_is_for_something_else() {
        let mut near = near();
        near.paths[1].role = "secondary".into();
        near.paths[0].keep_alive_seconds = Some(5.0);
        let text = screen(&Status::Near(near));
        assert!(!text.contains("is asked after"), "{text}");
        for end in ["keep-alive", "  5 s", "  25 s"] {
            assert!(
                text.lines().any(|line| line.ends_with(end)),
                "{end}: {text}"
            );
        }
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        for row in [
            &["interface", "local", "remote", "state", "role"][..],
            &["eth0", "192.168.1.2", "192.0.2.1:4434", "open", "always"],
            &[
                "any",
                "192.168.1.2",
                "192.0.2.1:4434",
                "waiting",
                "secondary",
            ],
        ] {
            assert!(lines.iter().any(|line| line.starts_with(row)), "{text}");
        }
    }

    #[test]
    fn a_class_tells_what_expired_once_something_did() {
        let mut near = near();
        let text = screen(&Status::Near(near.clone()));
        assert!(!text.contains("  expired"), "{text}");
        near.classes[0].expired = 7;
        let text = screen(&Status::Near(near));
        let row = text.lines().find(|line| line.starts_with("shell"));
        let words: Vec<&str> = row.unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            ["shell", "0", "1", "0", "B", "0", "B", "7"],
            "{text}"
        );
    }

    pub(crate) fn far() -> Far {
        let client = Client {
            id: "0123abcd".into(),
            name: "van".into(),
            first_seen: 0,
            last_seen: 0,
            connected: true,
            open: 3,
            traffic: Traffic::default(),
            datagrams: Datagrams::default(),
            paths: vec![path("", "open")],
        };
        Far {
            name: "home".into(),
            running_seconds: 61,
            flows: Connections::default(),
            traffic: Traffic::default(),
            datagrams: Datagrams::default(),
            clients: vec![client],
        }
    }

    #[test]
    fn a_far_end_lists_its_clients() {
        let text = screen(&Status::Far(far()));
        for part in [
            "far end `home`, running for 1m 1s",
            "1 client let in, 1 connected",
            "0123abcd",
            "paths of van (0123abcd)",
            "12.3 ms",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
