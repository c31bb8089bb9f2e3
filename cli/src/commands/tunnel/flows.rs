//! `anabranch tunnel flows` and `anabranch tunnel why`: what single flows do.

use super::ask::{ask_all, nobody, statuses, unexpected};
use super::show::time;
use crate::args::tunnel::{self as args, Node};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::table::Table;
use crate::output::units;
use anabranch_gateway::control::{Answer, Order};
use anabranch_gateway::status::flow::{Flow, Flows, Phase, StoppedBy};
use anabranch_gateway::status::{Near, Path, Status};
use std::fmt::Write as _;
use tokio::try_join;

/// Flows of one name that are told of.
const MOST: usize = 5;

/// Lists the biggest flows.
pub(super) async fn list(args: &args::Flows) -> Outcome {
    let answers = ask(&args.ask.node, None, args.most as usize).await?;
    if args.ask.json {
        return answers.iter().try_for_each(output::json);
    }
    if answers.iter().all(|flows| flows.flows.is_empty()) {
        output::say("no flow is open");
        return Ok(());
    }
    let shown = answers.iter().flat_map(|flows| &flows.flows);
    output::data(table(shown).within(output::width()))
}

/// Tells what one flow does, or those of one name.
pub(super) async fn why(args: &args::Why) -> Outcome {
    let called = Some(args.flow.clone());
    let (answers, statuses) =
        try_join!(ask(&args.ask.node, called, MOST), statuses(&args.ask.node))?;
    let flows: Vec<&Flow> = answers.iter().flat_map(|flows| &flows.flows).collect();
    if flows.is_empty() {
        let failure = Failure::failed(format!("there is no flow `{}` here", args.flow));
        return Err(failure.hint("`anabranch tunnel flows` lists the biggest"));
    }
    if args.ask.json {
        return flows.iter().try_for_each(output::json);
    }
    let near = statuses.iter().find_map(|status| match status {
        Status::Near(near) => Some(near),
        Status::Far(_) => None,
    });
    let texts: Vec<String> = flows
        .into_iter()
        // The paths of a far end's flow are those of its client.
        .map(|flow| {
            tell(
                flow,
                near.filter(|_| flow.client.is_none()),
                output::width(),
            )
        })
        .collect();
    output::data(texts.join("\n\n"))
}

async fn ask(node: &Node, called: Option<String>, most: usize) -> Outcome<Vec<Flows>> {
    let answers = ask_all(node, &Order::Flows { called, most }).await?;
    if answers.is_empty() {
        return Err(nobody("no end of a tunnel runs here"));
    }
    let flows = answers.into_iter().map(|answer| match answer {
        Answer::Flows(flows) => Ok(*flows),
        other => Err(unexpected(other)),
    });
    flows.collect()
}

/// Who has begun a flow.
fn owner(flow: &Flow) -> &str {
    flow.source
        .as_deref()
        .or(flow.client.as_deref())
        .unwrap_or("-")
}

fn table<'a>(flows: impl Iterator<Item = &'a Flow>) -> Table {
    let head = [
        ">flow",
        "what",
        "of",
        "target",
        "state",
        ">down now",
        ">up now",
        ">down",
        ">up",
        ">age",
    ];
    let mut table = Table::new(&head);
    for flow in flows {
        table.row([
            flow.number.to_string(),
            flow.protocol.clone(),
            owner(flow).to_owned(),
            flow.target.clone(),
            state(flow).to_owned(),
            units::bit_rate(flow.down_bps),
            units::bit_rate(flow.up_bps),
            units::bytes(flow.down_bytes),
            units::bytes(flow.up_bytes),
            time(flow.seconds as u64),
        ]);
    }
    table
}

/// One word for what a flow does.
fn state(flow: &Flow) -> &'static str {
    let waits = flow
        .waits_for_tunnel_seconds
        .or(flow.waits_for_socket_seconds);
    match flow.state {
        Phase::Connection => "no tunnel",
        Phase::Target => "asks",
        Phase::Open if waits.is_some() => "waits",
        Phase::Open => "open",
        Phase::Ended => "ended",
    }
}

fn tell(flow: &Flow, near: Option<&Near>, width: usize) -> String {
    let remote = flow
        .remote
        .as_deref()
        .filter(|remote| *remote != flow.target);
    let remote = remote.map_or_else(String::new, |remote| format!(" ({remote})"));
    let mut text = format!(
        "flow {}: {}, {} to {}{remote}\n",
        flow.number,
        flow.protocol.to_uppercase(),
        owner(flow),
        flow.target,
    );
    let lasted = time(flow.seconds as u64);
    let _ = match &flow.end {
        Some(end) => writeln!(text, "  ended after {lasted}: {end}"),
        None => writeln!(text, "  began {lasted} ago"),
    };
    if let Some(class) = &flow.class {
        let _ = writeln!(text, "  class {class}");
    }
    let _ = writeln!(
        text,
        "  down {}, {} now; up {}, {} now",
        units::bytes(flow.down_bytes),
        units::bit_rate(flow.down_bps),
        units::bytes(flow.up_bytes),
        units::bit_rate(flow.up_bps),
    );
    if let Some(of) = &flow.datagrams {
        let _ = writeln!(
            text,
            "  datagrams: {} down, {} up, {} dropped, {} expired, {} copies",
            of.down, of.up, of.dropped, of.expired, of.copies
        );
        if let (Some(mean), Some(longest)) = (of.mean_wait_ms, of.longest_wait_ms) {
            let _ = writeln!(
                text,
                "  {} of them waited here for those before them: {mean:.1} ms in the mean, \
                 {longest:.1} ms at most",
                of.held
            );
        }
    }
    if flow.state != Phase::Ended {
        let _ = writeln!(text, "  waits for {}", waits(flow, near));
    }
    text += &paths(flow, near);
    if let Some(port) = &flow.same_port {
        let _ = write!(text, "\n{}", same_port(port, near, width));
    }
    text
}

/// The remote ends of one port.
fn same_port(port: &Flows, near: Option<&Near>, width: usize) -> String {
    let mut table = Table::new(&[
        ">flow",
        "target",
        "class",
        "state",
        ">used",
        ">down",
        ">up",
        ">dropped",
        ">expired",
        ">waited",
        ">at most",
        "came here by",
    ]);
    for flow in &port.flows {
        let of = flow.datagrams.as_ref();
        let ms = |time: Option<f64>| time.map_or_else(|| "-".into(), |ms| format!("{ms:.1} ms"));
        let came = came_by(flow, near);
        let came: Vec<String> = came
            .iter()
            .map(|(name, _, share)| format!("{name} {share:.0} %"))
            .collect();
        let came = came.join(", ");
        table.row([
            flow.number.to_string(),
            flow.target.clone(),
            flow.class.clone().unwrap_or_else(|| "-".into()),
            state(flow).to_owned(),
            format!("{} ago", time(flow.idle_seconds.unwrap_or(0.0) as u64)),
            units::bytes(flow.down_bytes),
            units::bytes(flow.up_bytes),
            of.map_or(0, |of| of.dropped).to_string(),
            of.map_or(0, |of| of.expired).to_string(),
            ms(of.and_then(|of| of.mean_wait_ms)),
            ms(of.and_then(|of| of.longest_wait_ms)),
            if came.is_empty() { "-".into() } else { came },
        ]);
    }
    let is_open = |flow: &&Flow| flow.state != Phase::Ended;
    let more = port
        .open
        .saturating_sub(port.flows.iter().filter(is_open).count());
    let more = match more {
        0 => String::new(),
        more => format!("\n    and {more} more"),
    };
    let mut text = format!(
        "  remote ends of its port at the far end, {} open:",
        port.open
    );
    for line in table.within(width.saturating_sub(4)).to_string().lines() {
        let _ = write!(text, "\n    {line}");
    }
    text + &more
}

/// What a flow waits for now.
fn waits(flow: &Flow, near: Option<&Near>) -> String {
    let trouble = near.and_then(|near| near.trouble.as_deref());
    let is_near = flow.client.is_none();
    match flow.state {
        Phase::Connection => {
            let trouble = trouble.map_or_else(String::new, |trouble| format!(": {trouble}"));
            return format!("a connection to the far end{trouble}");
        }
        Phase::Target if is_near => return "the far end, which is asking the target".into(),
        Phase::Target => return "the target".into(),
        Phase::Open | Phase::Ended => {}
    }
    let mut parts = Vec::new();
    if let Some(seconds) = flow.waits_for_tunnel_seconds {
        let by = match flow.stopped_by {
            Some(StoppedBy::FlowControl) => ": flow control, as the other end takes no more",
            Some(StoppedBy::Paths) => ": the paths carry no more",
            None => "",
        };
        parts.push(format!("room in the tunnel ({seconds:.1} s){by}"));
    }
    if let Some(seconds) = flow.waits_for_socket_seconds {
        let who = if is_near {
            "the application here"
        } else {
            "the target"
        };
        parts.push(format!("{who}, which does not read ({seconds:.1} s)"));
    }
    if parts.is_empty() {
        return "nothing: what comes is carried".into();
    }
    parts.join("; and for ")
}

/// By which paths it went.
fn paths(flow: &Flow, near: Option<&Near>) -> String {
    let known: &[Path] = near.map_or(&[], |near| &near.paths);
    if flow.datagrams.is_none() {
        let shares: Vec<String> = known
            .iter()
            .filter(|path| path.path.is_some())
            .map(|path| format!("{} {:.0} %", interface(path), path.share * 100.0))
            .collect();
        let all = if shares.is_empty() {
            String::new()
        } else {
            format!(" (now: {})", shares.join(", "))
        };
        return format!("  paths: packet by packet, as those of all streams{all}");
    }
    let came = came_by(flow, near);
    if came.is_empty() {
        "  paths: nothing has come here by any so far".into()
    } else {
        let came = came.into_iter().map(|(name, bytes, share)| {
            let bytes = units::bytes(bytes);
            format!("{name} {bytes} ({share:.0} %)")
        });
        let came: Vec<String> = came.collect();
        format!("  came here by: {}", came.join(", "))
    }
}

/// What came here by each path, of UDP: bytes, and their share in percent.
fn came_by(flow: &Flow, near: Option<&Near>) -> Vec<(String, u64, f64)> {
    let known: &[Path] = near.map_or(&[], |near| &near.paths);
    let total: u64 = flow.paths.iter().map(|path| path.received_bytes).sum();
    let came = flow.paths.iter().map(|one| {
        let path = known.iter().find(|path| path.path == Some(one.path));
        let name = path.map_or_else(|| format!("path {}", one.path), interface);
        let share = one.received_bytes as f64 / total.max(1) as f64 * 100.0;
        (name, one.received_bytes, share)
    });
    came.collect()
}

/// What a person calls a path.
fn interface(path: &Path) -> String {
    match path.path {
        Some(number) if path.interface.is_empty() => format!("path {number}"),
        _ => path.interface.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::show::tests::path;
    use super::*;
    use anabranch_gateway::status::flow::{FlowDatagrams, FlowPath};

    fn flow() -> Flow {
        Flow {
            number: 17,
            protocol: "tcp".into(),
            client: None,
            source: Some("127.0.0.1:40000".into()),
            class: None,
            target: "example.org:443".into(),
            remote: None,
            began: 0,
            seconds: 61.0,
            state: Phase::Open,
            end: None,
            up_bytes: 1000,
            down_bytes: 20_000_000,
            up_bps: 0.0,
            down_bps: 8e6,
            waits_for_tunnel_seconds: None,
            stopped_by: None,
            waits_for_socket_seconds: None,
            datagrams: None,
            paths: Vec::new(),
            idle_seconds: None,
            same_port: None,
        }
    }

    fn near() -> Near {
        Near {
            trouble: Some("no answer within 10 s".into()),
            paths: vec![path("eth0", "open")],
            ..super::super::show::tests::near()
        }
    }

    #[test]
    fn a_tcp_flow_tells_what_it_moved_and_that_streams_use_all_paths() {
        let text = tell(&flow(), Some(&near()), 200);
        for part in [
            "flow 17: TCP, 127.0.0.1:40000 to example.org:443\n",
            "began 1m 1s ago",
            "down 20.0 MB, 8.00 Mbit/s now; up 1.00 kB, 0 bit/s now",
            "waits for nothing",
            "(now: eth0 60 %)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_a_flow_waits_for_is_named() {
        let near = near();
        let mut flow = flow();
        flow.state = Phase::Connection;
        let told = waits(&flow, Some(&near));
        assert_eq!(told, "a connection to the far end: no answer within 10 s");
        flow.state = Phase::Target;
        assert_eq!(
            waits(&flow, None),
            "the far end, which is asking the target"
        );
        flow.state = Phase::Open;
        flow.waits_for_socket_seconds = Some(2.0);
        assert_eq!(
            waits(&flow, None),
            "the application here, which does not read (2.0 s)"
        );
        flow.client = Some("0123".into());
        flow.waits_for_tunnel_seconds = Some(1.0);
        flow.stopped_by = Some(StoppedBy::FlowControl);
        let told = waits(&flow, None);
        assert!(
            told.starts_with("room in the tunnel (1.0 s): flow control"),
            "{told}"
        );
        assert!(
            told.ends_with("and for the target, which does not read (2.0 s)"),
            "{told}"
        );
    }

    #[test]
    fn a_udp_flow_tells_waits_copies_and_the_paths_it_came_by() {
        let mut flow = flow();
        flow.protocol = "udp".into();
        flow.remote = Some("192.0.2.1:443".into());
        flow.datagrams = Some(FlowDatagrams {
            up: 9,
            down: 8,
            dropped: 1,
            expired: 4,
            copies: 3,
            held: 2,
            mean_wait_ms: Some(1.5),
            longest_wait_ms: Some(2.0),
        });
        let came = |(path, received_bytes)| FlowPath {
            path,
            received_bytes,
        };
        flow.paths = [(0, 3000), (4, 1000)].map(came).to_vec();
        (flow.state, flow.end) = (Phase::Ended, Some("it is over".into()));
        let text = tell(&flow, Some(&near()), 200);
        for part in [
            "to example.org:443 (192.0.2.1:443)\n",
            "ended after 1m 1s: it is over",
            "datagrams: 8 down, 9 up, 1 dropped, 4 expired, 3 copies",
            "2 of them waited here for those before them: 1.5 ms in the mean, 2.0 ms at most",
            "came here by: eth0 3.00 kB (75 %), path 4 1.00 kB (25 %)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("waits for"), "{text}");
    }

    #[test]
    fn a_flow_tells_every_remote_end_of_its_port_with_its_class_waits_and_paths() {
        let of = |number: u64, class: &str, path| Flow {
            number,
            protocol: "udp".into(),
            class: Some(class.into()),
            target: format!("192.0.2.{number}:443"),
            datagrams: Some(FlowDatagrams {
                up: 9,
                down: 8,
                dropped: number,
                expired: 2,
                copies: 0,
                held: 1,
                mean_wait_ms: Some(1.5),
                longest_wait_ms: Some(2.0),
            }),
            paths: vec![FlowPath {
                path,
                received_bytes: 3000,
            }],
            idle_seconds: Some(2.9),
            ..flow()
        };
        let ended = Flow {
            state: Phase::Ended,
            ..of(5, "game", 4)
        };
        let told = Flow {
            same_port: Some(Flows {
                open: 40,
                flows: vec![of(7, "voice", 0), of(6, "bulk", 4), ended],
            }),
            ..of(6, "bulk", 4)
        };
        let text = tell(&told, Some(&near()), 200);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for line in [
            "class bulk",
            "came here by: path 4 3.00 kB (100 %)",
            "remote ends of its port at the far end, 40 open:",
            "flow target class state used down up dropped expired waited at most came here by",
            "7 192.0.2.7:443 voice open 2s ago 20.0 MB 1.00 kB 7 2 1.5 ms 2.0 ms \
             eth0 100 %",
            "5 192.0.2.5:443 game ended 2s ago 20.0 MB 1.00 kB 5 2 1.5 ms 2.0 ms \
             path 4 100 %",
            "and 38 more",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line}: {text}");
        }
    }

    #[test]
    fn the_list_has_a_row_for_each_flow() {
        let text = table([flow()].iter()).to_string();
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        let words =
            "17 tcp 127.0.0.1:40000 example.org:443 open 8.00 Mbit/s 0 bit/s 20.0 MB 1.00 kB 1m 1s";
        assert_eq!(row.join(" "), words);
    }
}
