//! What can be typed, as types that cannot be wrong.

use crate::output::units::ByteSize;
use crate::trust::{ClientTrust, ServerTrust};
use crate::tuning::Tuning;
use crate::url::{Host, ServerUrl};
use anabranch_net::engine::RetryPolicy;
use anabranch_net::interfaces::spec::{MAX_PATHS_PER_INTERFACE, PathSpec};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) mod lab;
pub(crate) mod report;
pub(crate) mod road;
pub(crate) mod sim;
#[cfg(test)]
mod tests;

const EXAMPLES: &str = "\
Examples:
  anabranch demo                                   see it work, without network or root
  anabranch serve --root /srv/files                offer files; prints the URL to use
  anabranch get \"$URL/big.iso\" --path eth0 --path wwan0
  anabranch put photo.tar \"$URL/photo.tar\" --path auto --scheduler round-robin
  anabranch doctor                                 what this machine can do
  anabranch sim run s.toml                         try schedulers on simulated networks
  anabranch lab run nitk-table1                    the same in real kernels, with rivals (root)

Exit codes: 0 done, 1 a transfer or check failed, 2 wrong usage or nothing could be done.
Data goes to stdout, everything else to stderr. SSLKEYLOGFILE is honoured.";

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
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show each scheduler at work over three shaped loopback paths
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
    /// Fetch a file, or list a directory if the URL ends in a slash
    #[command(after_help = "\
Bytes go to FILE.part, which becomes FILE once its SHA-256 is that of the server's file. A broken
transfer goes on where it stopped when the same command is given again.
The server is the sender: it is asked to use --scheduler, --congestion and --chunk.

Examples:
  anabranch get \"$URL/big.iso\" --path eth0 --path wwan0,backup
  anabranch get \"$URL/big.iso\" --path 'wlan*' --scheduler redundant -o /tmp/big.iso")]
    Get(Get),
    /// Send a file
    #[command(after_help = "\
The server keeps what it got under a hidden name until the file is whole and its SHA-256 right. A
broken transfer goes on where it stopped when the same command is given again.

Example:
  anabranch put big.iso \"$URL/big.iso\" --path auto --scheduler min-rtt")]
    Put(Put),
    /// Measure each path to a server: round trip, variation, loss, delay each way
    #[command(after_help = "\
Delays each way are against the first path: by the server's timestamps (ours sends them), else by
a common way back of its acknowledgements.")]
    Ping(Ping),
    /// List the schedulers
    Schedulers(Listing),
    /// List the congestion controls
    Congestion(Listing),
    /// Tell what this machine can do, what is missing and how to get it
    Doctor(Listing),
    /// Make packets leave by the interface whose address they have (needs root to change anything)
    #[command(
        subcommand,
        after_help = "\
For each interface one routing table and a rule for its addresses. Without them a socket bound to
an address still leaves by the default route. What is applied is marked, and reverting removes
exactly that."
    )]
    Routes(Routes),
    /// Run scenarios in simulated networks, exactly repeatable
    #[command(subcommand)]
    Sim(sim::Sim),
    /// Run scenarios in real kernels, against real rivals, and show results
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Write the completion script of a shell to stdout
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page to stdout
    Man,
}

/// Where transfers leave this machine.
#[derive(Debug, Clone, Args)]
pub(crate) struct Paths {
    /// An interface, pattern or address to use, or `auto` for all uplinks; may be repeated.
    /// Options follow commas: backup, weight=N, priority=N, cost=N, paths=N
    #[arg(long = "path", value_name = "IFACE|ADDR|auto[,OPTION...]")]
    pub(crate) specs: Vec<PathSpec>,
    /// Paths per interface, where --path does not say
    #[arg(long = "paths-per-interface", value_name = "K", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PATHS_PER_INTERFACE)))]
    pub(crate) per_interface: u32,
    /// Seconds to wait for the server's first answer
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) connect_timeout: Duration,
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

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Length of the file
    #[arg(long, value_name = "BYTES", default_value = "32M", value_parser = demo_size)]
    pub(crate) size: ByteSize,
    /// Decides about the file's content and which packets get lost
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Congestion control of all runs: see `anabranch congestion`
    #[arg(long, value_name = "NAME[:KEY=VALUE,...]", value_parser = crate::tuning::congestion)]
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
    /// Take uploads too
    #[arg(long)]
    pub(crate) writable: bool,
    #[command(flatten)]
    pub(crate) trust: ServerTrust,
    /// When clients must prove their address before anything is kept for them
    #[arg(long, value_enum, default_value_t = Retry::Busy)]
    pub(crate) retry: Retry,
    /// Connections at a time
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_connections: u32,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    #[command(flatten)]
    pub(crate) report: Report,
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
pub(crate) struct Get {
    /// The file on the server: what `serve` printed, a slash and a name
    pub(crate) url: ServerUrl,
    /// Where to put it [default: the URL's last part, here]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) paths: Paths,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    /// Exchange timestamps, so that schedulers know forward delays and not round trips alone
    #[arg(long)]
    pub(crate) timestamps: bool,
    #[command(flatten)]
    pub(crate) trust: ClientTrust,
    #[command(flatten)]
    pub(crate) report: Report,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The file to send
    pub(crate) file: PathBuf,
    /// Its name on the server; the same name if the URL ends in a slash
    pub(crate) url: ServerUrl,
    /// Do not replace a file that exists
    #[arg(long)]
    pub(crate) no_clobber: bool,
    #[command(flatten)]
    pub(crate) paths: Paths,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    /// Exchange timestamps, so that schedulers know forward delays and not round trips alone
    #[arg(long)]
    pub(crate) timestamps: bool,
    #[command(flatten)]
    pub(crate) trust: ClientTrust,
    #[command(flatten)]
    pub(crate) report: Report,
}

#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// The server
    pub(crate) url: ServerUrl,
    /// Probes per path
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// Seconds between probes
    #[arg(short, long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) paths: Paths,
    #[command(flatten)]
    pub(crate) trust: ClientTrust,
    #[command(flatten)]
    pub(crate) report: Report,
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

impl Paths {
    /// The path specifications, each with a number of paths.
    pub(crate) fn specs(&self) -> Vec<PathSpec> {
        let with_default = |spec: &PathSpec| {
            let mut spec = spec.clone();
            if spec.options.paths == 1 {
                spec.options.paths = self.per_interface;
            }
            spec
        };
        let mut specs: Vec<PathSpec> = self.specs.iter().map(with_default).collect();
        if specs.is_empty() && self.per_interface > 1 {
            specs.extend("auto".parse().ok().as_ref().map(with_default));
        }
        specs
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|number| (0.01..=3600.0).contains(number));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected seconds, 0.01 to 3600".into())
}

fn demo_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    let range = 1_000_000..=1_000_000_000;
    if range.contains(&size.0) {
        Ok(size)
    } else {
        Err("expected 1M to 1G".into())
    }
}

/// An address with or without port, or a port alone as `:PORT`.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = crate::url::DEFAULT_PORT;
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
    let expected = "an address of this machine, as 192.0.2.1:4433, [2001:db8::1]:4433 or :4433";
    Err(format!("expected {expected}"))
}
