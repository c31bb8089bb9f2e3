//! The page that Prometheus reads: its text format 0.0.4.
//!
//! Names follow its conventions: base units, `_total` for what only grows, and few labels. None
//! has a flow, a client or an address in it: there is no bound on those. Classes are as many as
//! somebody has named.

use anabranch_gateway::status::{Class, Connections, Datagrams, Far, Near, Path, Status, Traffic};
use nix::sys::resource::{UsageWho, getrusage};
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::fs;
use std::sync::LazyLock;
use std::time::SystemTime;

/// Its media type.
pub(super) const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The states of a path, as `status` has them.
const STATES: [&str; 8] = [
    "open",
    "backup",
    "quarantine",
    "silent",
    "unproven",
    "closing",
    "waiting",
    "capped",
];

/// What is told of each path: name, type, help and value, if there is one.
type OfPath = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Path) -> Option<f64>,
);

const OF_PATHS: [OfPath; 9] = [
    (
        "anabranch_path_sent_bytes_total",
        "counter",
        "UDP payload sent on a path.",
        |path| Some(path.sent_bytes as f64),
    ),
    (
        "anabranch_path_received_bytes_total",
        "counter",
        "UDP payload received on a path.",
        |path| Some(path.received_bytes as f64),
    ),
    (
        "anabranch_path_sent_packets_total",
        "counter",
        "Packets sent on a path.",
        |path| Some(path.sent_packets as f64),
    ),
    (
        "anabranch_path_lost_packets_total",
        "counter",
        "Packets sent on a path and lost.",
        |path| Some(path.lost_packets as f64),
    ),
    (
        "anabranch_path_rtt_seconds",
        "gauge",
        "Smoothed round-trip time of a path.",
        |path| Some(path.delay_ms? / 1e3),
    ),
    (
        "anabranch_path_min_rtt_seconds",
        "gauge",
        "Least round-trip time of a path.",
        |path| Some(path.least_delay_ms? / 1e3),
    ),
    (
        "anabranch_path_mtu_bytes",
        "gauge",
        "Largest UDP payload known to pass on a path.",
        |path| (path.mtu > 0).then_some(f64::from(path.mtu)),
    ),
    (
        "anabranch_path_cap_bytes",
        "gauge",
        "What the link of a path may carry in a month.",
        |path| Some(path.cap.as_ref()?.bytes as f64),
    ),
    (
        "anabranch_path_cap_used_bytes",
        "gauge",
        "What it has carried since that count began, with all headers.",
        |path| Some(path.cap.as_ref()?.used_bytes as f64),
    ),
];

static STARTED: LazyLock<f64> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
});

/// From now on this process counts as started.
pub(super) fn start() {
    LazyLock::force(&STARTED);
}

/// The whole page.
pub(super) fn text(status: &Status) -> String {
    let mut page = Page::default();
    page.gauge(
        "anabranch_build_info",
        "The version that runs, as a label; always 1.",
    )
    .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.gauge("anabranch_healthy", "1 if /healthz answers 200, else 0.")
        .sample(&[], u8::from(status.health().is_ok()));
    match status {
        Status::Near(near) => of_near(&mut page, near),
        Status::Far(far) => of_far(&mut page, far),
    }
    of_process(&mut page);
    page.text
}

fn of_near(page: &mut Page, near: &Near) {
    page.gauge(
        "anabranch_connected_seconds",
        "How long the tunnel has stood; 0 if it does not.",
    )
    .sample(&[], near.connected_seconds.unwrap_or(0));
    of_flows(page, near.connections, &near.traffic, near.datagrams);
    of_classes(page, &near.classes);
    states(page, &near.paths.iter().collect::<Vec<_>>());
    let named = named(&near.paths);
    for (name, kind, help, value) in OF_PATHS {
        page.family(name, kind, help);
        for (path, value) in named
            .iter()
            .filter_map(|(name, path)| Some((name, value(path)?)))
        {
            page.sample(&[("path", path)], value);
        }
    }
    page.gauge(
        "anabranch_path_state",
        "1 for the state that a path is in, else 0.",
    );
    for (name, path) in &named {
        for state in STATES {
            let labels = [("path", &**name), ("state", state)];
            page.sample(&labels, u8::from(path.state == state));
        }
    }
}

fn of_far(page: &mut Page, far: &Far) {
    page.gauge("anabranch_clients", "Clients that were let in.")
        .sample(&[], far.clients.len());
    let here = far.clients.iter().filter(|client| client.connected).count();
    page.gauge("anabranch_clients_connected", "Clients that are connected.")
        .sample(&[], here);
    of_flows(page, far.flows, &far.traffic, far.datagrams);
    let paths: Vec<&Path> = far
        .clients
        .iter()
        .flat_map(|client| &client.paths)
        .collect();
    states(page, &paths);
}

fn of_flows(page: &mut Page, flows: Connections, traffic: &Traffic, datagrams: Datagrams) {
    page.gauge(
        "anabranch_flows_open",
        "TCP connections and UDP flows that are open.",
    )
    .sample(&[], flows.open);
    page.counter("anabranch_flows_made_total", "Flows that were made.")
        .sample(&[], flows.made);
    page.counter(
        "anabranch_flows_failed_total",
        "Flows that could not be made.",
    )
    .sample(&[], flows.failed);
    page.counter(
        "anabranch_payload_bytes_total",
        "Payload of flows; up is away from the near end.",
    )
    .sample(&[("direction", "up")], traffic.up_bytes)
    .sample(&[("direction", "down")], traffic.down_bytes);
    page.counter(
        "anabranch_datagrams_total",
        "UDP datagrams of flows; up is away from the near end.",
    )
    .sample(&[("direction", "up")], datagrams.up)
    .sample(&[("direction", "down")], datagrams.down);
    page.counter(
        "anabranch_datagrams_dropped_total",
        "UDP datagrams of flows that were dropped here.",
    )
    .sample(&[], datagrams.dropped);
    page.counter(
        "anabranch_datagrams_expired_total",
        "UDP datagrams that could not leave here in time; they count as sent, too.",
    )
    .sample(&[], datagrams.expired);
    let help = "How long UDP datagrams waited here for those before them, of those that did.";
    page.family("anabranch_reorder_wait_seconds", "summary", help);
    page.part("_sum", datagrams.held_us as f64 / 1e6);
    page.part("_count", datagrams.held);
}

fn of_classes(page: &mut Page, classes: &[Class]) {
    page.gauge(
        "anabranch_class_flows_open",
        "Flows of a class that are open.",
    );
    for class in classes {
        page.sample(&[("class", &class.name)], class.open);
    }
    page.counter(
        "anabranch_class_flows_made_total",
        "Flows of a class that have begun.",
    );
    for class in classes {
        page.sample(&[("class", &class.name)], class.made);
    }
    page.counter(
        "anabranch_class_payload_bytes_total",
        "Payload of flows of a class; up is away from the near end.",
    );
    for class in classes {
        for (direction, bytes) in [("up", class.up_bytes), ("down", class.down_bytes)] {
            page.sample(&[("class", &class.name), ("direction", direction)], bytes);
        }
    }
    page.counter(
        "anabranch_class_datagrams_expired_total",
        "UDP datagrams of a class that could not leave here in time.",
    );
    for class in classes {
        page.sample(&[("class", &class.name)], class.expired);
    }
}

fn states(page: &mut Page, paths: &[&Path]) {
    page.gauge("anabranch_paths", "Paths by what they do.");
    for state in STATES {
        let count = paths.iter().filter(|path| path.state == state).count();
        page.sample(&[("state", state)], count);
    }
}

/// Paths by the names of their interfaces, which stay while numbers of paths grow. Further paths of
/// one interface are numbered.
fn named(paths: &[Path]) -> Vec<(String, &Path)> {
    let mut seen = BTreeMap::<&str, u32>::new();
    let name = |path: &'_ Path, number: u32| {
        let interface = if path.interface.is_empty() {
            "any"
        } else {
            &path.interface
        };
        match number {
            1 => interface.to_owned(),
            number => format!("{interface}/{number}"),
        }
    };
    let named = paths.iter().map(|path| {
        let number = seen.entry(&path.interface).or_default();
        *number += 1;
        (name(path, *number), path)
    });
    named.collect()
}

/// What any program tells of itself, by the names that everybody uses for it.
fn of_process(page: &mut Page) {
    page.gauge(
        "process_start_time_seconds",
        "Start of the process, in seconds since 1970.",
    )
    .sample(&[], *STARTED);
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let both = seconds(usage.user_time()) + seconds(usage.system_time());
        page.counter(
            "process_cpu_seconds_total",
            "Processor time, of users and the system.",
        )
        .sample(&[], both);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    if let Some(kibibytes) = kibibytes {
        page.gauge("process_resident_memory_bytes", "Resident memory.")
            .sample(&[], kibibytes << 10);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        page.gauge("process_open_fds", "Open file descriptors.")
            .sample(&[], open.count());
    }
}

/// The text as it grows.
#[derive(Debug, Default)]
struct Page {
    text: String,
    /// The family that samples belong to.
    name: &'static str,
}

impl Page {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Self {
        self.name = name;
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self
    }

    fn counter(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.family(name, "counter", help)
    }

    fn gauge(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.family(name, "gauge", help)
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.text.push_str(self.name);
        for (at, (label, of)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{}\"", escaped(of));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
        self
    }

    /// A sample of a summary.
    fn part(&mut self, suffix: &str, value: impl Display) {
        let _ = writeln!(self.text, "{}{suffix} {value}", self.name);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::super::show::tests::{far, near, path};
    use super::*;
    use anabranch_gateway::status::Cap;
    use std::collections::BTreeSet;

    /// Reads a page as strictly as its format allows: families in one piece, each with help and
    /// type before its samples, no sample twice, numbers that are ones. Returns the names of all
    /// samples.
    fn read(text: &str) -> BTreeSet<String> {
        let is_name = |name: &str| {
            let mut letters = name.chars();
            letters
                .next()
                .is_some_and(|first| first.is_ascii_lowercase())
                && letters.all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_')
        };
        let (mut names, mut families, mut seen) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut family, mut kind) = (String::new(), String::new());
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').unwrap();
                assert!(is_name(name) && !words.is_empty(), "{line}");
                assert!(families.insert(name.to_owned()), "{name} comes twice");
                family = name.to_owned();
                kind.clear();
                continue;
            }
            if let Some(typed) = line.strip_prefix("# TYPE ") {
                let (name, of) = typed.split_once(' ').unwrap();
                assert_eq!((name, &*kind), (&*family, ""), "{line}");
                assert!(["counter", "gauge", "summary"].contains(&of), "{line}");
                assert_eq!(of == "counter", name.ends_with("_total"), "{line}");
                kind = of.to_owned();
                continue;
            }
            assert!(!kind.is_empty(), "no type before: {line}");
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            assert!(seen.insert(series.to_owned()), "{series} comes twice");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let base = match &*kind {
                "summary" => name
                    .strip_suffix("_sum")
                    .or_else(|| name.strip_suffix("_count")),
                _ => Some(name),
            };
            assert_eq!(base, Some(&*family), "{line}");
            if !labels.is_empty() {
                for label in labels.strip_suffix('}').unwrap().split("\",") {
                    let (name, value) = label.split_once("=\"").unwrap();
                    let value = value.trim_end_matches('"');
                    assert!(is_name(name) && !value.contains(['"', '\n']), "{line}");
                }
            }
            names.insert(name.to_owned());
        }
        names
    }

    fn all_names() -> BTreeSet<String> {
        let mut near = near();
        near.paths[0].least_delay_ms = Some(1.0);
        near.paths[0].cap = Some(Cap {
            bytes: 2_000_000_000,
            used_bytes: 1,
            renews: "2026-12-01".into(),
        });
        let mut names = read(&text(&Status::Near(near)));
        names.extend(read(&text(&Status::Far(far()))));
        names
    }

    #[test]
    fn pages_of_both_ends_follow_the_format() {
        let names = all_names();
        for name in [
            "anabranch_path_sent_bytes_total",
            "anabranch_clients",
            "anabranch_healthy",
        ] {
            assert!(names.contains(name), "{name}: {names:?}");
        }
    }

    #[test]
    fn several_paths_of_an_interface_have_names_of_their_own() {
        let paths = [path("eth0", "open"), path("", "open"), path("eth0", "open")];
        let names: Vec<String> = named(&paths).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["eth0", "any", "eth0/2"]);
    }

    #[test]
    fn what_is_not_known_is_left_out_and_values_have_base_units() {
        let mut near = near();
        let mut waiting = path("wwan0", "waiting");
        (waiting.delay_ms, waiting.mtu) = (None, 0);
        near.paths = vec![path("eth0", "open"), waiting];
        near.datagrams.held = 2;
        near.datagrams.held_us = 1500;
        let text = text(&Status::Near(near));
        read(&text);
        for line in [
            "anabranch_path_rtt_seconds{path=\"eth0\"} 0.01234",
            "anabranch_path_state{path=\"wwan0\",state=\"waiting\"} 1",
            "anabranch_paths{state=\"open\"} 1",
            "anabranch_reorder_wait_seconds_sum 0.0015",
            "anabranch_reorder_wait_seconds_count 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(!text.contains("rtt_seconds{path=\"wwan0\"}"), "{text}");
    }

    #[test]
    fn each_class_is_counted_by_its_name_also_one_that_nothing_was_of() {
        let mut near = near();
        let shell = &mut near.classes[0];
        (shell.open, shell.made) = (1, 3);
        (shell.up_bytes, shell.down_bytes, shell.expired) = (40, 500, 6);
        let text = text(&Status::Near(near));
        read(&text);
        for line in [
            "anabranch_class_flows_open{class=\"shell\"} 1",
            "anabranch_class_flows_made_total{class=\"shell\"} 3",
            "anabranch_class_payload_bytes_total{class=\"shell\",direction=\"up\"} 40",
            "anabranch_class_payload_bytes_total{class=\"shell\",direction=\"down\"} 500",
            "anabranch_class_flows_made_total{class=\"bulk\"} 0",
            "anabranch_class_datagrams_expired_total{class=\"shell\"} 6",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }

    #[test]
    fn the_dashboard_shows_what_there_is_and_nothing_else() {
        let place = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../dist/grafana/anabranch-tunnel.json"
        );
        let dashboard = fs::read_to_string(place).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
        assert!(parsed["panels"].as_array().unwrap().len() > 5);
        let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
        let mut shown = BTreeSet::new();
        for panel in parsed["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let words = target["expr"]
                    .as_str()
                    .unwrap()
                    .split(|letter| !is_part(letter));
                let names = words.filter(|word| word.starts_with("anabranch_"));
                shown.extend(names.map(str::to_owned));
            }
        }
        let mut there = all_names();
        there.retain(|name| name.starts_with("anabranch_"));
        assert_eq!(shown, there);
    }
}
