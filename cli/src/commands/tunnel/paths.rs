//! `anabranch tunnel paths`: one row for each path of each node.

use super::ask::statuses;
use super::show::{cap, keep_alive};
use crate::args::tunnel::Ask;
use crate::failure::Outcome;
use crate::output;
use crate::output::table::Table;
use crate::output::units;
use anabranch_gateway::status::{Path, Status};
use serde::Serialize;

const HEAD: [&str; 15] = [
    "of",
    ">path",
    "interface",
    "local",
    "remote",
    "state",
    "role",
    ">down",
    ">up",
    ">share",
    ">RTT",
    ">loss",
    ">MTU",
    ">keep-alive",
    ">this month",
];

/// The paths of one connection.
#[derive(Debug, Serialize)]
struct Of<'a> {
    node: &'static str,
    /// The far end at a near end, the client at a far end.
    peer: &'a str,
    paths: &'a [Path],
}

/// Runs the command.
pub(super) async fn run(args: &Ask) -> Outcome {
    let statuses = statuses(&args.node).await?;
    let all: Vec<Of<'_>> = statuses.iter().flat_map(of).collect();
    if args.json {
        return all.iter().try_for_each(output::json);
    }
    if all.iter().all(|of| of.paths.is_empty()) {
        output::say("there is no path now: `anabranch tunnel status` says why");
        return Ok(());
    }
    output::data(table(&all).within(output::width()))
}

fn of(status: &Status) -> Vec<Of<'_>> {
    match status {
        Status::Near(near) => vec![Of {
            node: "near",
            peer: near.far_end.as_deref().unwrap_or_default(),
            paths: &near.paths,
        }],
        Status::Far(far) => {
            let here = far.clients.iter().filter(|client| client.connected);
            let of = here.map(|client| Of {
                node: "far",
                peer: &client.name,
                paths: &client.paths,
            });
            of.collect()
        }
    }
}

fn table(all: &[Of<'_>]) -> Table {
    let mut table = Table::new(&HEAD);
    for of in all {
        for path in of.paths {
            table.row(row(of.peer, path));
        }
    }
    table
}

fn row(peer: &str, path: &Path) -> [String; 15] {
    let unknown = || "-".to_owned();
    let or_unknown = |text: &str| {
        if text.is_empty() {
            unknown()
        } else {
            text.into()
        }
    };
    let loss = path.loss.map(|loss| format!("{:.2} %", loss * 100.0));
    let rtt = path.delay_ms.map(|ms| format!("{ms:.1} ms"));
    let mtu = (path.mtu > 0).then(|| path.mtu.to_string());
    [
        or_unknown(peer),
        path.path.map_or_else(unknown, |number| number.to_string()),
        if path.interface.is_empty() {
            "any".into()
        } else {
            path.interface.clone()
        },
        path.local.clone().unwrap_or_else(unknown),
        path.remote.clone(),
        path.state.clone(),
        path.role.clone(),
        units::bit_rate(path.down_bps),
        units::bit_rate(path.up_bps),
        format!("{:.0} %", path.share * 100.0),
        rtt.unwrap_or_else(unknown),
        loss.unwrap_or_else(unknown),
        mtu.unwrap_or_else(unknown),
        keep_alive(path),
        cap(path),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::show::tests::path;
    use super::*;

    #[test]
    fn a_row_has_everything_that_is_known_of_a_path() {
        let mut unproven = path("", "unproven");
        (unproven.path, unproven.delay_ms, unproven.mtu) = (None, None, 0);
        let paths = [path("wwan0", "open"), unproven];
        let of = Of {
            node: "near",
            peer: "home",
            paths: &paths,
        };
        let text = table(&[of]).to_string();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let words = "home 0 wwan0 192.168.1.2 192.0.2.1:4434 open always \
                     20.0 Mbit/s 1.00 Mbit/s 60 % 12.3 ms 0.10 % 1452 25 s -";
        assert_eq!(lines[1].join(" "), words);
        assert!(lines[2].starts_with(&["home", "-", "any"]) && lines[2].ends_with(&["-"]));
    }
}
