//! Transfers over one, two and three links make use of their total rate.
//!
//! Each link carries 10 Mbit/s. Three of them stay below what a debug build manages on two shared
//! processors with other work beside it (70 Mbit/s with three busy loops, 46 with ten builds), so
//! that the network is the limit and not the machine. `ANABRANCH_LONG=1` moves 100 MB each time.

mod common;

use anabranch_testbed::Rate;
use common::figures::{content_rate, mbit, number, paths, shares};
use common::{Family, Lab, is_long, judge, measured};
use serde_json::Value;
use std::time::Duration;

/// Mbit/s of a link.
const LINK: u64 = 10;

/// Mbit/s of the server's own links.
const OWN: [u64; 2] = [LINK; 2];

/// The share of the content rate that must be reached, from the first byte to the last.
const ENOUGH: f64 = 0.95;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Get,
    Put,
}

/// How the server is named in the URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hosts {
    /// By one address that all links lead to.
    One,
    /// By its address on each link.
    OnEachLink,
    /// By the addresses of two links of the server's own, behind a router.
    OfItsOwn,
}

/// A transfer and its links.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    command: Command,
    hosts: Hosts,
    family: Family,
    /// Mbit/s of each link.
    links: &'static [u64],
    /// How long it takes if all is well.
    seconds: f64,
}

impl Case {
    /// What all links carry together, in bits per second.
    fn sum(self) -> f64 {
        let theirs = self.links.iter().sum();
        let own: u64 = OWN.iter().sum();
        let is_shared = self.hosts == Hosts::OfItsOwn;
        let least: u64 = if is_shared { own.min(theirs) } else { theirs };
        least as f64 * 1e6
    }
}

/// Moves a file and compares the report with what the links can carry.
fn transfer(case: Case) {
    measured(case.name, || {
        let Outcome {
            goodput,
            least,
            paths,
        } = measure(case)?;
        let shortfall = format!("{} is less than the links can carry", mbit(goodput));
        let links = case.links.len();
        Some(judge(&[
            (goodput >= least, shortfall),
            (paths == links, format!("{paths} paths over {links} links")),
        ]))
    });
}

/// What a transfer reached and what it must reach, in bits per second, and its number of paths.
struct Outcome {
    goodput: f64,
    least: f64,
    paths: usize,
}

fn measure(case: Case) -> Option<Outcome> {
    let Case {
        name,
        command,
        hosts,
        family,
        links,
        seconds,
    } = case;
    let rates: Vec<Rate> = links.iter().map(|&mbit| Rate::mbit(mbit)).collect();
    let mut lab = match hosts {
        Hosts::OfItsOwn => Lab::through_router(name, &rates, &OWN.map(Rate::mbit))?,
        _ => Lab::with_family(name, family, &rates)?,
    };
    let sum = case.sum();
    let length = if is_long() {
        100_000_000
    } else {
        (sum / 8.0 * seconds) as usize
    };
    let addresses = match hosts {
        Hosts::One => vec![family.server()],
        Hosts::OfItsOwn => [101, 102].map(|subnet| [10, subnet, 0, 2].into()).to_vec(),
        Hosts::OnEachLink => (0..links.len()).map(|at| family.address(at, 2)).collect(),
    };
    let server = lab.serve(&addresses, &["--writable"]);
    let (from, to) = match command {
        Command::Get => ("files/data", "got/data"),
        Command::Put => ("got/data", "files/data"),
    };
    lab.make_file(from, length);
    let process = match command {
        Command::Get => lab.start_get(&server, "data", &[]),
        Command::Put => lab.start_put(&server, "data", &[]),
    };
    let report = process.wait(Duration::from_secs(300)).report();
    lab.assert_same(from, to);
    assert_eq!(report["verified"], "whole");
    Some(assess(case, &report))
}

fn assess(case: Case, report: &Value) -> Outcome {
    let mtu = paths(report)
        .iter()
        .map(|path| number(path, "mtu"))
        .fold(0.0, f64::max);
    let best = case.links.iter().copied().max().unwrap_or(0) as f64 * 1e6;
    let [sum, best] = [case.sum(), best].map(|rate| content_rate(rate, mtu, case.family));
    let goodput = number(report, "goodput_bps");
    eprintln!(
        "{}: {} of {} = {:.3}, best link {}; {}",
        case.name,
        mbit(goodput),
        mbit(sum),
        goodput / sum,
        mbit(best),
        shares(report),
    );
    // The transfer must also be no slower than over the best link alone.
    Outcome {
        goodput,
        least: ENOUGH * sum.max(best),
        paths: paths(report).len(),
    }
}

const GET: Case = Case {
    name: "get",
    command: Command::Get,
    hosts: Hosts::One,
    family: Family::V4,
    links: &[LINK; 2],
    seconds: 4.0,
};

const PUT: Case = Case {
    name: "put",
    command: Command::Put,
    ..GET
};

#[test]
fn one_link_is_filled() {
    transfer(Case {
        name: "get-1",
        links: &[LINK],
        ..GET
    });
    transfer(Case {
        name: "put-1",
        links: &[LINK],
        ..PUT
    });
}

#[test]
fn two_links_are_filled() {
    transfer(Case {
        name: "get-2",
        ..GET
    });
    transfer(Case {
        name: "put-2",
        ..PUT
    });
}

#[test]
fn three_links_are_filled() {
    transfer(Case {
        name: "get-3",
        links: &[LINK; 3],
        ..GET
    });
    transfer(Case {
        name: "put-3",
        links: &[LINK; 3],
        ..PUT
    });
}

#[test]
fn a_server_with_an_address_on_each_link_is_reached_over_all_of_them() {
    let hosts = Hosts::OnEachLink;
    transfer(Case {
        name: "get-2x2",
        hosts,
        ..GET
    });
    transfer(Case {
        name: "put-2x2",
        hosts,
        ..PUT
    });
}

#[test]
fn ipv6_does_as_well() {
    let family = Family::V6;
    transfer(Case {
        name: "get-2-ipv6",
        family,
        ..GET
    });
    transfer(Case {
        name: "put-2x2-ipv6",
        hosts: Hosts::OnEachLink,
        family,
        ..PUT
    });
}

#[test]
fn a_slow_link_beside_a_fast_one_adds_its_share() {
    transfer(Case {
        name: "get-20-5",
        links: &[20, 5],
        ..GET
    });
    transfer(Case {
        name: "put-20-5",
        links: &[20, 5],
        ..PUT
    });
}

/// At first the slow link's queue overflows, and the transfer waits for what was lost there. That
/// costs a moment once, whatever the file's length.
#[test]
fn a_very_slow_link_does_no_harm() {
    transfer(Case {
        name: "get-20-1",
        links: &[20, 1],
        seconds: 8.0,
        ..GET
    });
    transfer(Case {
        name: "put-1-20",
        links: &[1, 20],
        seconds: 8.0,
        ..PUT
    });
}

#[test]
fn both_links_of_a_server_are_used_by_one_two_and_three_of_a_client() {
    let hosts = Hosts::OfItsOwn;
    transfer(Case {
        name: "get-1-via-2",
        hosts,
        links: &[LINK],
        ..GET
    });
    transfer(Case {
        name: "get-2-via-2",
        hosts,
        ..GET
    });
    transfer(Case {
        name: "get-3-via-2",
        hosts,
        links: &[LINK; 3],
        ..GET
    });
    transfer(Case {
        name: "put-3-via-2",
        hosts,
        links: &[LINK; 3],
        ..PUT
    });
}
