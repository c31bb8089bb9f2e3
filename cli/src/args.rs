//! The command line, parsed into types that can only hold valid values.

use crate::output::units::ByteSize;
use crate::trust::ServerTrust;
use crate::tuning::Tuning;
use crate::url::Host;
use anabranch_net::engine::RetryPolicy;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[cfg(not(feature = "lab"))]
pub(crate) mod absent;
#[cfg(feature = "lab")]
pub(crate) mod lab;
#[cfg(feature = "lab")]
pub(crate) mod report;
#[cfg(feature = "lab")]
pub(crate) mod road;
#[cfg(feature = "lab")]
pub(crate) mod sim;
#[cfg(test)]
mod tests;
mod transfer;
pub(crate) mod tunnel;
pub(crate) mod uploads;

pub(crate) use transfer::{Get, Key, Moving, Paths, Ping, Put, Speed, rate};

/// The examples, with those of the laboratory where it is built in.
macro_rules! examples {
    ($first:literal, $last:literal) => {
        concat!(
            "Examples:\n",
            $first,
            "  \
  anabranch serve --root /srv/files                offer files; prints the URL to use
  anabranch get \"$URL/big.iso\"                     fetch one, over all uplinks
  anabranch put photo.tar \"$URL/\" --path eth0 --path wwan0,backup
  anabranch speed \"$URL\"                           how fast would it be?
  anabranch doctor                                 what this machine can do
",
            $last,
            "
Exit codes: 0 done, 1 a transfer or check failed, 2 wrong usage or nothing could be done.
Data goes to stdout, everything else to stderr. SSLKEYLOGFILE is honoured."
        )
    };
}

#[cfg(feature = "lab")]
const EXAMPLES: &str = examples!(
    "  anabranch demo                                   see it work, without network or root\n",
    "  \
  anabranch sim run s.toml                         try schedulers on simulated networks
  anabranch lab run nitk-table1                    the same in real kernels, with rivals (root)
"
);

#[cfg(not(feature = "lab"))]
const EXAMPLES: &str = examples!("", "");

/// Move files over several network paths at once
#[derive(Debug, Parser)]
#[command(name = "anabranch", version, after_help = EXAMPLES, arg_required_else_help = true)]
#[command(max_term_width = 100)]
pub(crate) struct Cli {
    /// Say more about what happens; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// How messages on stderr are written: for people, or a line of JSON for each
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    #[arg(default_value = "text", value_enum, display_order = 1000)]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// A line of JSON for each
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show each scheduler at work over three shaped loopback paths
    #[cfg(feature = "lab")]
    #[command(after_help = "\
Server, client and three paths of different rate, delay and loss run in this process over
127.0.0.1, .2 and .3. No root, no set-up. Takes less than a minute.")]
    Demo(Demo),
    /// Offer the files of a directory
    #[command(after_help = "\
The first line on stdout is the base URL, with the server's pinned key. Append a file's name:
  anabranch get \"$URL/name\"
Also answers the ALPN hq-interop (GET as in the QUIC interop runner).")]
    Serve(Serve),
    /// Fetch files and directories, or list a directory
    #[command(after_help = transfer::GET)]
    Get(Get),
    /// Send files and directories
    #[command(after_help = transfer::PUT)]
    Put(Put),
    /// Measure each path to a server: round trip, variation, loss, delay each way
    #[command(after_help = "\
Delays each way are against the first path: by the server's timestamps (ours sends them), else by
a common way back of its acknowledgements.")]
    Ping(Ping),
    /// Measure how fast data moves to and from a server, from memory to memory
    #[command(after_help = transfer::SPEED)]
    Speed(Speed),
    /// Print the fingerprint of this machine's key; a new key is made if there is none
    #[command(after_help = transfer::KEY)]
    Key(Key),
    /// List the schedulers
    Schedulers(Listing),
    /// List the congestion controls
    Congestion(Listing),
    /// Report what this machine supports, what is missing and how to install it
    Doctor(Listing),
    /// Make packets leave by the interface whose address they have (needs root to change anything)
    #[command(
        subcommand,
        after_help = "\
Paths are bound to their interface, so that two uplinks with a gateway each need no rules. Rules are
needed where that is not enough:
  - two interfaces are in one subnet,
  - a server has several uplinks and is to answer by the one it was asked over,
  - binding is not permitted: `anabranch doctor` tells (sockets bound to interfaces).
For each interface one routing table and a rule for its addresses. What is applied is marked, and
reverting removes exactly that."
    )]
    Routes(Routes),
    /// Send whole hosts' traffic over all uplinks at once, joined again at a far end
    #[command(subcommand, after_help = tunnel::TUNNEL)]
    Tunnel(tunnel::Tunnel),
    /// Run scenarios in simulated networks, exactly repeatable
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Sim(sim::Sim),
    /// Run scenarios in real kernels, against real rivals, and show results
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(lab::Lab),
    #[cfg(not(feature = "lab"))]
    #[command(flatten)]
    Absent(absent::Absent),
    /// Write the completion script of a shell to stdout
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual to stdout as one page, or a page for each command
    Man {
        /// Write a page for each command into this directory, such as /usr/local/share/man/man1
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// What is told about a transfer.
#[derive(Debug, Clone, Args)]
pub(crate) struct Report {
    /// Write the result as JSON to stdout (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a qlog file for each connection into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}

#[cfg(feature = "lab")]
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Length of the file
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = demo_size)]
    pub(crate) size: ByteSize,
    /// Decides about the file's content and which packets get lost
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Congestion control of all runs: see `anabranch congestion`
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]")]
    pub(crate) congestion: Option<anabranch_proto::spec::Spec>,
    /// Run every scheduler there is, not only one of each kind; takes some minutes
    #[arg(long)]
    pub(crate) all: bool,
    /// Write the results as JSON to stdout (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The directory whose files are offered
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
    /// Where to listen; may be repeated [default: port 4433 on all addresses]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = listen_address)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Hosts to put into the URL, for servers behind NAT; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) advertise: Vec<Host>,
    #[command(flatten)]
    pub(crate) uploads: uploads::Uploads,
    /// Let clients measure how fast data moves (`anabranch speed`): one at a time, a minute at most
    #[arg(long)]
    pub(crate) speed: bool,
    #[command(flatten)]
    pub(crate) trust: ServerTrust,
    /// Tasks that the connections are shared among, each on a processor core of its own [default:
    /// as many as there are cores]
    #[arg(long, value_name = "N", value_parser = workers)]
    pub(crate) workers: Option<NonZeroUsize>,
    /// When clients must prove their address before anything is kept for them
    #[arg(long, value_enum, default_value_t = Retry::Busy)]
    pub(crate) retry: Retry,
    /// Connections at a time
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_connections: u32,
    /// Of those, from one IPv4 address or one /64 of IPv6: customers of some networks share one
    #[arg(long, value_name = "N", default_value_t = 250)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_connections_per_address: u32,
    /// Memory for what clients have not acknowledged yet, all connections together, at least 1M
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = send_budget)]
    pub(crate) send_budget: ByteSize,
    /// Memory for receive windows that have grown, all connections together; 0: none grows
    #[arg(long, value_name = "BYTES", default_value = "1G")]
    pub(crate) receive_budget: ByteSize,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    /// Send as --scheduler, --congestion and --chunk say, whatever clients ask for
    #[arg(long)]
    pub(crate) fixed_tuning: bool,
    #[command(flatten)]
    pub(crate) report: Report,
}

/// Parses a number of workers.
pub(crate) fn workers(text: &str) -> Result<NonZeroUsize, String> {
    const MOST: usize = 256;
    let count = text.parse().ok();
    let count = count.filter(|count: &NonZeroUsize| count.get() <= MOST);
    count.ok_or_else(|| format!("expected a number from 1 to {MOST}"))
}

/// Parses a send budget. With less than one connection's congestion window, nothing would move.
fn send_budget(text: &str) -> Result<ByteSize, String> {
    let budget: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if budget.0 >= 1_000_000 {
        Ok(budget)
    } else {
        Err("expected at least 1M".into())
    }
}

/// When a server sends Retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Retry {
    /// Never
    Never,
    /// While many handshakes are under way
    Busy,
    /// Always
    Always,
}

impl From<Retry> for RetryPolicy {
    fn from(retry: Retry) -> Self {
        match retry {
            Retry::Never => Self::Never,
            Retry::Busy => Self::WhenBusy,
            Retry::Always => Self::Always,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// Write JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Routes {
    /// Show what would be changed
    Plan,
    /// Change it
    Apply,
    /// Remove what was applied, and nothing else
    Revert,
}

#[cfg(feature = "lab")]
fn demo_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    let range = 1_000_000..=1_000_000_000;
    if range.contains(&size.0) {
        Ok(size)
    } else {
        Err("expected 1M to 1G".into())
    }
}

/// An address with or without a port, or a port alone as `:PORT`.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    address_with(text, crate::url::DEFAULT_PORT)
}

/// An address with or without a port, which is `port` where none is named.
fn address_with(text: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>()
    {
        return Ok((ip, port).into());
    }
    if let Some(Ok(port)) = text.strip_prefix(':').map(str::parse) {
        return Ok((Ipv6Addr::UNSPECIFIED, port).into());
    }
    Err(format!(
        "expected an address of this machine, as 192.0.2.1:{port}, [2001:db8::1]:{port} or :{port}"
    ))
}
