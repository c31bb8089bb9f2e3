//! The command line of `anabranch lab`.

use crate::args::report::{Compare, Report};
use crate::args::road::{Peer, RoadSpec};
use crate::args::sim::Change;
use crate::args::{Listing, listen_address};
use anabranch_lab::hosts::Relay;
use anabranch_proto::tls::Fingerprint;
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// What to do with the laboratory.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// List the experiments of the five papers and of this project, and what can run them
    List(Listing),
    /// Run scenarios in real kernels, with rivals, and compare
    #[command(after_help = "\
A target is a scenario file, an experiment of `lab list` (or a pattern such as 'bremen-*'),
`papers` for all of them, or `calibration` for the small scenarios in which this backend and the
simulator must agree (docs/report.md). The network is built of namespaces (needs root) and
removed again, also after Ctrl-C. Experiments get rivals: the kernel's TCP and multipath TCP, the
tunnel, and the engine with its defaults. Runs go one at a time, contenders in random order
within each repetition. The same command goes on where it stopped.
Ctrl-C ends after the run under way, a second one at once. Exit code 1 if a run failed or a [check]
does not hold, 2 if nothing could be run.

Examples:
  anabranch lab run nitk-table1
  anabranch lab run scenario.toml --out results --runs 10
  anabranch lab run papers --quick --out papers
  anabranch lab run 'bremen-router-*' --set transport.congestion=cubic --links kernel
  anabranch lab run aveiro-lbd --in-vm
  anabranch lab run scenario.toml --backend host --peer KEY@192.0.2.7:4433 \\
      --path dsl=eth0 --path lte=wwan0     over links that exist: docs/lab.md, \"On real links\"")]
    Run(Run),
    /// List the runs of a target without running them
    Expand(Expand),
    /// Tell how far the runs in a folder of results are
    Status {
        /// The folder
        folder: PathBuf,
        /// Write JSON to stdout
        #[arg(long)]
        json: bool,
    },
    /// Show results as one page with tables and plots
    #[command(after_help = "\
Writes report.html, which needs nothing else and asks nobody for anything, report.md, and plots/
with SVG, PNG and CSV of each figure, for one and two columns of a paper. docs/report.md says more.

Examples:
  anabranch sim run scenario.toml --out results
  anabranch lab report results
  anabranch lab report simulated emulated --out page
  anabranch lab report results --only nitk-time")]
    Report(Report),
    /// Compare two results: simulator and emulator, or two versions
    #[command(after_help = "\
Ratios with their 95 % intervals for each scenario, point and contender. Exit code 1 if one lies
beyond its tolerance or is missing; `unclear` means within, but with an interval that reaches out.

Examples:
  anabranch lab run calibration --backend sim --out simulated
  anabranch lab run calibration --out emulated
  anabranch lab compare simulated emulated
  anabranch lab compare before after --goodput 2 --all")]
    Compare(Compare),
    /// Remove what laboratories left that were killed
    Clean,
    /// Measure whether emulated links are as configured
    #[command(after_help = "\
Each link alone under probes: delay, rate, loss, jitter, a trace. Takes about half a
minute on an idle machine. Exit code 1 if a row fails. `--links both` sets the emulator and the
kernel's netem and tbf side by side; where this kernel lacks them, `--in-vm` has them.")]
    Validate(Validate),
    /// Prepare what `--in-vm` runs in
    #[command(subcommand)]
    Vm(Vm),
    /// Carry the flows of one host: one end of each run
    #[command(after_help = "\
Without --listen it reads jobs as lines of JSON on stdin and writes reports to stdout, and ends when
stdin ends: `lab run` starts it like this by itself.

With --listen it works for laboratories on other machines, one at a time, until Ctrl-C. It carries
flows with those who call it, calls nobody, and starts no programs for them but those of
--contender. What it prints on stdout is what `--peer` of `lab run --backend host` takes. Flows
arrive at ports of their own, UDP and TCP, one for each path: open those of --ports in a firewall,
and the UDP port of --listen.

Example, on the machine that is to be the server:
  anabranch lab agent --listen :4433 --trust KEY --ports 4434-4441
where KEY is what `anabranch lab key` prints on the other machine.")]
    Agent(Agent),
    /// Print the key by which agents elsewhere know this machine
    #[command(after_help = "\
It is made if there is none yet. Give it to `lab agent --trust` on the other machine.")]
    Key {
        /// Directory of the key [default: the user's state directory, such as
        /// ~/.local/state/anabranch]
        #[arg(long, value_name = "DIR")]
        identity: Option<PathBuf>,
    },
}

/// How an agent serves.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Work for laboratories on other machines, and listen here
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = listen_address, requires = "trust")]
    pub(crate) listen: Option<SocketAddr>,
    /// Work for the machine with this key; may be repeated
    #[arg(long, value_name = "KEY", requires = "listen")]
    pub(crate) trust: Vec<Fingerprint>,
    /// Receive flows at these ports [default: any that are free]
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports, requires = "listen")]
    pub(crate) ports: Option<Ports>,
    /// Start the server of this contender when a laboratory asks for it by name; may be repeated
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub(crate) contender: Vec<PathBuf>,
    /// Write qlog files of runs that record them into this directory
    #[arg(long, value_name = "DIR", requires = "listen")]
    pub(crate) qlog: Option<PathBuf>,
    /// Directory of this machine's key; made there if there is none [default: the user's state
    /// directory, such as ~/.local/state/anabranch]
    #[arg(long, value_name = "DIR", requires = "listen")]
    pub(crate) identity: Option<PathBuf>,
    /// Be one end of a plain proxy pair of multipath TCP instead: `lab run` starts it like this
    #[arg(long, value_name = "ENDS", hide = true, conflicts_with = "listen")]
    pub(crate) relay: Option<Relay>,
}

/// A range of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ports(pub(crate) RangeInclusive<u16>);

fn ports(text: &str) -> Result<Ports, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first > 0 && first <= last => Ok(Ports(first..=last)),
        _ => Err("expected two ports in order, as 4434-4441".into()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Scenario files, experiments, `papers` or `calibration`
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) grid: Grid,
    /// Keep results in this directory, in a folder for each scenario if there are several
    /// [default: lab-results/NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// What runs it
    #[arg(long, value_enum, default_value_t = Backend::Netns)]
    pub(crate) backend: Backend,
    /// The other machine, with --backend host: what `lab agent --listen` printed there
    #[arg(long, value_name = "KEY@HOST[:PORT]")]
    pub(crate) peer: Option<Peer>,
    /// Where a path of the scenario leads, with --backend host: by which interface, from which of
    /// its addresses, to which address of the peer (that of --peer unless given); once for each
    #[arg(long = "path", value_name = "NAME=IFACE[:LOCAL][=REMOTE]")]
    pub(crate) roads: Vec<RoadSpec>,
    /// Directory of the key to show to the peer [default: that of `lab key`]
    #[arg(long, value_name = "DIR")]
    pub(crate) identity: Option<PathBuf>,
    /// What carries packets between namespaces
    #[arg(long, value_enum, default_value_t = LinkLayer::Auto)]
    pub(crate) links: LinkLayer,
    #[command(flatten)]
    pub(crate) inside: Inside,
    /// Run the first repetition once beforehand and discard it
    #[arg(long)]
    pub(crate) warm_up: bool,
    /// Write a capture of each link into the folder of results
    #[arg(long)]
    pub(crate) pcap: bool,
    /// Write the tables as Parquet too
    #[arg(long)]
    pub(crate) parquet: bool,
    /// Write a JSON object per run to stdout, as in the table `runs`
    #[arg(long)]
    pub(crate) json: bool,
}

/// Under which kernel.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Inside {
    /// Run it in a virtual machine, whose kernel has what this one may lack. It keeps results in
    /// lab-results/in-vm/NAME unless told. See `lab vm prepare`
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "auto")]
    pub(crate) in_vm: Option<InVm>,
}

/// Who executes a virtual machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InVm {
    /// The processor where `lab vm prepare` found that to work, else software
    Auto,
    /// The processor; other programs disturb what is measured, as they do outside
    Kvm,
    /// Software, whose clock counts instructions: nothing outside disturbs what is measured
    Tcg,
}

/// What to do with the virtual machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Vm {
    /// Fetch a kernel that has what this one may lack, and start it once
    #[command(after_help = "\
Fetches the distribution's kernel for virtual machines with apt, unpacks it into the user's cache
(nothing is installed), and starts it once to find out whether the processor helps. Needs qemu, a
static busybox and kmod; what is missing is told with its package.")]
    Prepare(Prepare),
}

#[derive(Debug, Args)]
pub(crate) struct Prepare {
    /// Fetch the kernel again if there is one
    #[arg(long)]
    pub(crate) again: bool,
    #[command(flatten)]
    pub(crate) listing: Listing,
}

/// How much of an experiment is run.
#[derive(Debug, Clone, Args)]
pub(crate) struct Grid {
    /// The small grid with at most three repetitions; this is the default
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// The whole grid with all repetitions
    #[arg(long)]
    pub(crate) full: bool,
    /// Without rivals: the kernel's TCP and multipath TCP, the tunnel, the engine with its defaults
    #[arg(long)]
    pub(crate) no_rivals: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Expand {
    /// Scenario files, experiments, `papers` or `calibration`
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) change: Change,
    #[command(flatten)]
    pub(crate) grid: Grid,
    #[command(flatten)]
    pub(crate) listing: Listing,
}

#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// Which links; `auto` means the emulator's
    #[arg(long, value_enum, default_value_t = Layers::Auto)]
    pub(crate) links: Layers,
    #[command(flatten)]
    pub(crate) inside: Inside,
    #[command(flatten)]
    pub(crate) listing: Listing,
}

/// What can run a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Network namespaces of this machine
    Netns,
    /// The simulator
    Sim,
    /// Interfaces of this machine, and a peer that runs `lab agent --listen`
    Host,
}

/// Which links are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layers {
    /// The emulator's
    Auto,
    /// The emulator's
    Emulator,
    /// tbf and netem of the kernel
    Kernel,
    /// Both, side by side
    Both,
}

/// What can carry packets between namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkLayer {
    /// The emulator, or the kernel where there are no TAP devices
    Auto,
    /// The emulator: the simulator's links in real time
    Emulator,
    /// tbf and netem of the kernel
    Kernel,
    /// The same, but netem delays in the queue of the node that sends, where it distorts TCP
    KernelInHosts,
}
