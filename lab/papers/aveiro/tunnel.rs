//! The fourth paper's networks with this project's tunnel between unmodified hosts. The statements
//! are ours: what a user of the tunnel would expect of them. The paper's own are beside this file.

use super::data::{At, Data, Worst, amount, figure};
use super::{Check, Experiment, Statement};
use anabranch_lab::results::Part;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    experiment(
        &["aveiro-tunnel-lbd"],
        "fourth paper, IV-B",
        "the tunnel without shaping",
        include_str!("aveiro-tunnel-lbd.toml"),
        (QUICK_TIME, Some(2)),
        unshaped,
    ),
    experiment(
        &["aveiro-tunnel-shaped"],
        "fourth paper, IV-B",
        "the tunnel with shaping",
        include_str!("aveiro-tunnel-shaped.toml"),
        (QUICK_TIME, Some(2)),
        shaped,
    ),
    experiment(
        &["aveiro-tunnel-mptcp"],
        "fourth paper, IV-C",
        "the tunnel over two uplinks",
        include_str!("aveiro-tunnel-mptcp.toml"),
        (&[], Some(5)),
        uplinks,
    ),
    experiment(
        &["aveiro-tunnel-mptcp-sim"],
        "fourth paper, IV-C",
        "the tunnel in the paper's simulation",
        include_str!("aveiro-tunnel-mptcp-sim.toml"),
        (&[], Some(5)),
        simulated,
    ),
    experiment(
        &["aveiro-tunnel-files"],
        "fourth paper, IV-C",
        "the tunnel, by file size",
        include_str!("aveiro-tunnel-files.toml"),
        (&[], None),
        files,
    ),
];

/// Bulk flows of the quick runs where nothing is random but the channels' slots.
const QUICK_TIME: &[(&str, &str)] = &[("flow.1.duration", "30s")];

const fn experiment(
    ids: &'static [&'static str],
    source: &'static str,
    about: &'static str,
    scenario: &'static str,
    (quick_set, quick_runs): (&'static [(&'static str, &'static str)], Option<u64>),
    judge: fn(&Data<'_>) -> Vec<Statement>,
) -> Experiment {
    Experiment {
        ids,
        source,
        about,
        check: Check::Measured {
            scenario,
            quick: &[],
            quick_set,
            quick_runs,
            judge,
        },
    }
}

/// What is published of these: nothing.
const OURS: &str = "(ours)";

/// Two links alike through the tunnel carry this many times what one carries, at least.
const GAIN: f64 = 1.8;

/// The least that the tunnel over one channel may carry of what TCP without it does. Headers of 3 %
/// and what encryption adds to packets are the cost.
const COST: f64 = 0.95;

/// The most of their bytes that hosts may send again. Between a host and its node nothing is lost,
/// and reordering is the tunnel's affair.
const AGAIN: f64 = 0.001;

/// A figure counts as less if it is below this part of the other's, the margin that reports use.
const NOT_LESS: f64 = 0.98;

/// The most that may be sent for a byte of a file: headers, encryption, and what is repeated.
const MOST_SENT: f64 = 1.25;

/// What one channel and both carry, in Mbit/s.
struct Channels {
    /// Both, by the tunnel.
    both: f64,
    /// One, by the tunnel.
    one: f64,
    /// One, by TCP without a tunnel.
    tcp: f64,
}

impl Channels {
    /// Of a file in which contenders use these channels alone.
    fn of(data: &Data<'_>, alone: &[&str]) -> Self {
        let mean = |contender: &str| {
            let each = alone.iter().map(|channel| {
                let name = format!("{contender}{channel}");
                data.goodput(&name, &[])
            });
            each.sum::<f64>() / alone.len() as f64
        };
        Self {
            both: data.goodput("tunnel", &[]),
            one: mean("tunnel-one"),
            tcp: mean("tcp"),
        }
    }

    /// What is expected everywhere. By the paper's own system both channels carried `published` of
    /// one.
    fn statements(&self, id: &str, published: &str) -> Vec<Statement> {
        let (gain, over) = (self.both / self.one, self.both / self.tcp);
        let cost = self.one / self.tcp;
        vec![
            Statement::new(
                (id, "P1"),
                "the tunnel over both channels: at least 1.8 of the tunnel over one",
                published,
                figure(gain),
                gain >= GAIN,
            ),
            Statement::new(
                (id, "P2"),
                "the tunnel over both channels: at least 1.8 of TCP over one",
                published,
                figure(over),
                over >= GAIN,
            ),
            Statement::new(
                (id, "P3"),
                "the tunnel over one channel: at least 0.95 of TCP over it",
                OURS,
                figure(cost),
                cost >= COST,
            ),
        ]
    }
}

/// The share of their bytes that hosts sent again, needlessly: nothing was lost between them and
/// the tunnel. In the simulator what arrived twice at the server, in kernels what the client
/// repeated.
fn again(data: &Data<'_>) -> f64 {
    data.mean("tunnel", &[], |part: &Part| {
        let outcome = &part.outcome;
        let again = outcome.retransmitted_bytes.or(outcome.duplicate_bytes)?;
        (outcome.bytes > 0).then(|| again as f64 / outcome.bytes as f64)
    })
}

fn not_again(id: &str, data: &Data<'_>) -> Statement {
    let again = again(data);
    let shown = if again.is_nan() {
        "-".to_owned()
    } else {
        format!("{:.3} %", again * 100.0)
    };
    let text = "both channels: hosts send less than 0.1 % again";
    Statement::new((id, "P4"), text, OURS, shown, again < AGAIN).if_measured(!again.is_nan())
}

/// The statements on two channels. By the paper's own system both carried `published` of one, and
/// of their rate in Mbit/s `above` says in words what is expected, what was published, and the
/// least.
fn judged(
    data: &Data<'_>,
    id: &str,
    alone: &[&str],
    published: &str,
    above: (&str, &str, f64),
) -> Vec<Statement> {
    let channels = Channels::of(data, alone);
    let mut all = channels.statements(id, published);
    all.push(not_again(id, data));
    let (both, (text, rate, least)) = (channels.both, above);
    all.push(Statement::new(
        (id, "P5"),
        text,
        rate,
        figure(both),
        both > least,
    ));
    all
}

fn unshaped(data: &Data<'_>) -> Vec<Statement> {
    let text = "both channels carry more than 3.6 Mbit/s, the paper's better figure";
    let above = (text, "2.62, one 3.6 (bond)", 3.6);
    judged(data, "aveiro-tunnel-lbd", &[""], "0.73 (bond)", above)
}

fn shaped(data: &Data<'_>) -> Vec<Statement> {
    let text = "both channels carry more than 1.53 Mbit/s";
    let above = (text, "1.53 (bond)", 1.53);
    judged(data, "aveiro-tunnel-shaped", &[""], "1.96 (bond)", above)
}

fn uplinks(data: &Data<'_>) -> Vec<Statement> {
    let text = "both channels carry more than 1.68 Mbit/s";
    let above = (text, "1.68 (MPTCP)", 1.68);
    let alone = [" channel1", " channel2"];
    judged(data, "aveiro-tunnel-mptcp", &alone, "1.42 (MPTCP)", above)
}

fn simulated(data: &Data<'_>) -> Vec<Statement> {
    let text = "both channels carry more than 1.8 Mbit/s";
    let above = (text, "1.8 (MPTCP)", 1.8);
    judged(
        data,
        "aveiro-tunnel-mptcp-sim",
        &[""],
        "1.43 (MPTCP)",
        above,
    )
}

fn files(data: &Data<'_>) -> Vec<Statement> {
    let id = "aveiro-tunnel-files";
    let (mut one, mut tcp) = (Worst::default(), Worst::default());
    let (mut gain, mut sent, mut long) = (Worst::default(), Worst::default(), f64::NAN);
    for size in data.values("size") {
        let at: At<'_> = &[("size", &size)];
        let both = data.goodput("tunnel", at);
        let over_tcp = both / data.goodput("tcp", at);
        let over_one = both / data.goodput("tunnel-one", at);
        one.add(over_one, size.as_str(), over_one >= NOT_LESS);
        tcp.add(over_tcp, size.as_str(), over_tcp >= NOT_LESS);
        if kibibytes(&size) >= 256.0 {
            gain.add(over_tcp, size.as_str(), over_tcp >= 1.2);
            let share = sent_for(data, at);
            sent.most(share, size.as_str(), share <= MOST_SENT);
        }
        long = over_tcp;
    }
    vec![
        one.statement(
            (id, "P1"),
            "no file takes longer over both channels than over one by the tunnel (2 %)",
            "equal (MPTCP)",
        ),
        tcp.statement(
            (id, "P2"),
            "no file takes longer over both channels than by TCP over one (2 %)",
            "equal (MPTCP)",
        ),
        gain.statement(
            (id, "P3"),
            "from 256 KiB on both channels are at least 1.2 times TCP over one",
            "long streams only (MPTCP)",
        ),
        Statement::new(
            (id, "P4"),
            "the longest file: at least 1.8 times TCP over one",
            "1.42 (MPTCP)",
            figure(long),
            long >= GAIN,
        ),
        sent.statement(
            (id, "P5"),
            "from 256 KiB on the two links are sent at most 1.25 times the file",
            OURS,
        ),
    ]
}

/// What the tunnel sends over both links for a byte of the file, until that is there.
fn sent_for(data: &Data<'_>, at: At<'_>) -> f64 {
    data.mean("tunnel", at, |part: &Part| {
        let outcome = &part.outcome;
        let sent: u64 = outcome.paths.iter().map(|path| path.sent_bytes).sum();
        (outcome.bytes > 0).then(|| sent as f64 / outcome.bytes as f64)
    })
}

/// A size in KiB.
fn kibibytes(size: &str) -> f64 {
    amount(size) * if size.ends_with("MiB") { 1024.0 } else { 1.0 }
}
