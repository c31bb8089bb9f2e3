//! The command lines that move files and measure: `get`, `put`, `ping`, `speed`, `key`.

use super::Report;
use crate::output::units::ByteSize;
use crate::trust::ClientTrust;
use crate::tuning::Tuning;
use crate::url::ServerUrl;
use anabranch_net::PathsConfig;
use anabranch_net::interfaces::spec::{MAX_PATHS_PER_INTERFACE, PathSpec};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const GET: &str = "\
Bytes go to FILE.part, which becomes FILE once its SHA-256 is that of the server's file. A broken
transfer goes on where it stopped when the same command is given again. A file that is here already
is left alone: if it is the same there is nothing to do, if not it takes --force to replace it.
The server is the sender: it is asked to use --scheduler, --congestion and --chunk. Of a congestion
control's parameters it grants coupling, fast-convergence and hystart; others are given to serve.

Examples:
  anabranch get \"$URL/\"                            list what there is
  anabranch get \"$URL/big.iso\" --path eth0 --path wwan0,backup
  anabranch get \"$URL/big.iso\" --path 'wlan*' --scheduler redundant -o /tmp/big.iso
  anabranch get \"$URL/a\" \"$URL/b\" -o incoming/      several files, into a directory
  anabranch get -r \"$URL/photos\" --limit-rate 10M   a directory with all that is in it
  anabranch get \"$URL/photos.tar\" -o - | tar x      to stdout; exit code 1 if it was not right";

pub(super) const PUT: &str = "\
The server keeps what it got under a hidden name until the file is whole and its SHA-256 right. A
broken transfer goes on where it stopped when the same command is given again.

With -r a directory keeps its name where the URL ends in a slash, and has that of the URL where not.
Symbolic links in it are not followed. What the server has already is compared, and not sent again.

Examples:
  anabranch put big.iso \"$URL/big.iso\" --path eth0 --path wwan0
  anabranch put a.jpg b.jpg \"$URL/photos/\"           several files, into a directory
  anabranch put -r photos \"$URL/backup/\"             becomes backup/photos
  anabranch put -r . \"$URL/backup/photos/\"           all that is in this directory";

pub(super) const SPEED: &str = "\
Nothing is read from or written to a disk. The server must have been started with --speed; it sends
and takes data for a minute at most, for one client at a time.

Examples:
  anabranch speed \"$URL\"                           ten seconds down, then ten seconds up
  anabranch speed \"$URL\" --down --time 30 --path eth0";

pub(super) const KEY: &str = "\
A server started with `--client-pin FINGERPRINT` lets in only clients that show this key:
  anabranch get \"$URL/file\" --identity DIR
where DIR is the directory that is named here on stderr.";

/// Where transfers leave this machine.
#[derive(Debug, Clone, Args)]
pub(crate) struct Paths {
    /// An interface, pattern (`wlan*`) or address to use, or `auto` for every uplink that has a
    /// route to the server; may be repeated. Options follow commas: backup, never, weight=N,
    /// priority=N, cost=N, paths=N, keep-alive=20s (for a tunnel) [default: auto; the kernel's one
    /// choice where that is no uplink, such as a VPN or this machine itself]
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

/// How files are moved, in whichever direction.
#[derive(Debug, Args)]
pub(crate) struct Moving {
    /// Bytes a second at most, all paths together: 500k, 10M
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    pub(crate) limit_rate: Option<ByteSize>,
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
pub(crate) struct Get {
    /// Files on the server: what `serve` printed, a slash and a name
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<ServerUrl>,
    /// Where to put it: a file, a directory, or `-` for stdout [default: the URL's last part, here]
    #[arg(short, long, value_name = "FILE|DIR|-")]
    pub(crate) output: Option<PathBuf>,
    /// Fetch directories with all that is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Replace files that are here already and differ
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) moving: Moving,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// Files to send
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The name on the server; the same names if the URL ends in a slash
    pub(crate) url: ServerUrl,
    /// Send directories with all that is in them, and make the directories that are missing
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Do not replace files that exist
    #[arg(long)]
    pub(crate) no_clobber: bool,
    #[command(flatten)]
    pub(crate) moving: Moving,
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
pub(crate) struct Speed {
    /// The server
    pub(crate) url: ServerUrl,
    /// From the server to here only
    #[arg(long, conflicts_with = "up")]
    pub(crate) down: bool,
    /// From here to the server only
    #[arg(long)]
    pub(crate) up: bool,
    /// Seconds each way, 1 to 60
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) time: u32,
    #[command(flatten)]
    pub(crate) paths: Paths,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    #[command(flatten)]
    pub(crate) trust: ClientTrust,
    #[command(flatten)]
    pub(crate) report: Report,
}

#[derive(Debug, Args)]
pub(crate) struct Key {
    /// Directory of the key; made there if there is none [default: the user's state directory,
    /// such as ~/.local/state/anabranch]
    #[arg(long, value_name = "DIR")]
    pub(crate) identity: Option<PathBuf>,
    /// Write JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

impl Paths {
    /// The path specifications, each with its number of paths; `auto` if none was given.
    pub(crate) fn specs(&self) -> Vec<PathSpec> {
        let with_default = |spec: &PathSpec| {
            let mut spec = spec.clone();
            spec.options.paths.get_or_insert(self.per_interface);
            spec
        };
        let mut specs: Vec<PathSpec> = self.specs.iter().map(with_default).collect();
        // Whoever only leaves interfaces out wants all others.
        if specs.iter().all(|spec| spec.options.paths == Some(0)) {
            specs.extend("auto".parse().ok().as_ref().map(with_default));
        }
        specs
    }

    /// How a client is to use them.
    pub(crate) fn config(&self) -> PathsConfig {
        PathsConfig {
            specs: self.specs(),
            or_as_routed: self.are_default(),
            timeout: self.connect_timeout,
            ..PathsConfig::default()
        }
    }

    /// Whether the user named no paths.
    pub(crate) fn are_default(&self) -> bool {
        self.specs.is_empty()
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

/// Parses bytes a second. Below the minimum, one packet would take so long that connections time
/// out.
pub(crate) fn rate(text: &str) -> Result<ByteSize, String> {
    let rate: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if rate.0 >= 1000 {
        Ok(rate)
    } else {
        Err("expected at least 1k bytes a second".into())
    }
}
