//! The command lines of the tunnel.

use super::{Paths, address_with, workers};
use crate::failure::{Failure, Outcome};
use crate::foreign::Foreign;
use crate::join::{FarEnd, PORT};
use crate::tuning::Tuning;
use crate::url::Host;
use anabranch_gateway::entry::capture::Source;
use anabranch_gateway::entry::ip;
use anabranch_gateway::entry::links::Wanted;
use anabranch_gateway::exit::Rule;
use anabranch_gateway::exit::ip::Prefix;
use anabranch_tunnel::{Class, links};
use clap::{Args, Subcommand};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// The TCP port of metrics, unless told otherwise.
const METRICS_PORT: u16 = 9434;

/// The TCP port on which an entry listens unless told otherwise.
const LOCAL_PORT: u16 = 1080;

pub(super) const TUNNEL: &str = "\
Two commands, on two machines, neither of them as root:
  anabranch tunnel serve                  on a server: prints the join URL
  anabranch tunnel join URL               here: SOCKS5 and HTTP CONNECT on 127.0.0.1:1080
Then applications that are told to use this proxy send over all uplinks at once:
  curl --proxy socks5h://127.0.0.1:1080 https://example.org/
  chromium --proxy-server=socks5://127.0.0.1:1080
As root, everything that hosts send goes by the tunnel, and they know nothing of it:
  sudo anabranch tunnel join URL --capture lan=br0    hosts behind br0
  sudo anabranch tunnel join URL --capture host       this machine
By a file instead of options, with classes of traffic:
  anabranch tunnel new tunnel.toml --url URL && sudo anabranch tunnel up tunnel.toml";

const SERVE: &str = "\
The first line on stdout is the join URL: its key is pinned, and it lets one machine in, within a
week. `anabranch tunnel invite` prints another. Clients reach what is on the net; private addresses,
those of this machine and of its links only with --allow.

With --ip, clients that capture send what is neither TCP nor UDP too: ping, IPsec, GRE. Each keeps
its address of the pool. It takes root, the program `nft` and a machine that forwards, and is undone
when this ends, however it ends.

Examples:
  anabranch tunnel serve
  anabranch tunnel serve --listen :443 --advertise tunnel.example.org:443
  anabranch tunnel serve --allow 192.168.1.0/24 --allow 127.0.0.1,8080
  sudo anabranch tunnel serve --ip 10.90.0.0/16 --ip fd90:7c3a:51e2::/64
  anabranch tunnel serve --metrics :9434";

const JOIN: &str = "\
TCP and UDP are carried. Names are resolved at the far end: applications should ask for names
(socks5h). The invitation in the URL is used up by the first machine, which may join again with the
same URL. A URL https://HOST:PORT/ leads to a proxy of others instead: one for HTTP/3 with CONNECT,
and UDP and packets of IP as far as it offers CONNECT-UDP and CONNECT-IP.

With --capture, TCP and UDP of unmodified hosts go by the tunnel, except to the subnets that this
machine is attached to; so does whatever else they send (ping, IPsec, GRE) if the far end runs with
--ip, and is rejected if not. It takes root and the program `nft`, and is undone when this ends,
however it ends. With --tun there is a device with this machine's address at such a far end, and
routes by it in table 716998; which packets look there is said by your own rules.

Examples:
  anabranch tunnel join \"$URL\"
  anabranch tunnel join \"$URL\" --path eth0 --path wwan0,backup
  anabranch tunnel join --url-file join.url
  anabranch tunnel join https://proxy.example/ --credential proxy.secret
  anabranch tunnel join \"$URL\" --listen 127.0.0.1:8118 --listen [::1]:8118
  anabranch tunnel join \"$URL\" --metrics :9434
  sudo anabranch tunnel join \"$URL\" --capture lan=br0 --capture host
  sudo anabranch tunnel join \"$URL\" --capture host --kill-switch
  sudo anabranch tunnel join \"$URL\" --tun; ip rule add to 198.51.100.0/24 lookup 716998";

const DOWN: &str = "\
Ends the `tunnel join` that captures on this machine, and removes the firewall's table `inet
anabranch`, the routing rules of priority 7169 and its routes in tables 716999 and 716998. Where
there is nothing of that, nothing happens.

Examples:
  sudo anabranch tunnel down";

const PATHS: &str = "\
Everything is measured for one second, by each end that runs here.

Examples:
  anabranch tunnel paths
  anabranch tunnel paths --json";

const FLOWS: &str = "\
Those that move most within a second come first, then those that have moved most.

Examples:
  anabranch tunnel flows
  anabranch tunnel flows --most 5";

const WHY: &str = "\
Flows that have ended are known for a while, too, with what ended them.

Examples:
  anabranch tunnel why 17
  anabranch tunnel why example.org:443
  anabranch tunnel why 192.168.1.20";

const CLIENTS: &str = "\
Examples:
  anabranch tunnel clients
  anabranch tunnel clients revoke van
  anabranch tunnel clients add phone";

const ADD: &str = "\
For HTTP/3 clients that are no `tunnel join`: whatever speaks CONNECT, CONNECT-UDP or CONNECT-IP.
The credential stands alone on stdout, and is shown this once: the far end keeps its hash. It lets
in until `anabranch tunnel clients revoke NAME`. The client sends with each request `authorization:
Bearer CREDENTIAL`, or `proxy-authorization`. Most need a far end with --cert and --key.

Examples:
  anabranch tunnel clients add phone
  (umask 077; anabranch tunnel clients add phone > phone.credential)";

const NEW: &str = "\
Once it has the URL it runs as it stands. It is readable by its owner alone. Keys are the options of
`tunnel join` or `tunnel serve`, and [[path]] and [[class]]: see docs/tunnel.md.

Examples:
  anabranch tunnel new tunnel.toml --url \"$URL\"
  anabranch tunnel new tunnel.toml --far        on the server
  anabranch tunnel check tunnel.toml && sudo anabranch tunnel up tunnel.toml";

const UP: &str = "\
As root where it captures. The same as `tunnel join` or `tunnel serve` with its settings; besides,
`anabranch tunnel reload` or SIGHUP makes it read the file again.

Examples:
  sudo anabranch tunnel up /etc/anabranch/tunnel.toml
  anabranch tunnel up far.toml";

const RELOAD: &str = "\
Paths and classes change while a near end runs; what else differs is named, and holds from the next
start. If anything is wrong with the file, nothing is changed.

Examples:
  sudo anabranch tunnel reload";

const DRAIN: &str = "\
Clients are told that it leaves. They connect anew for all flows to come, and what is open goes on
where it is. What balances the load has to lead new connections elsewhere first
(docs/tunnel-operation.md).

Examples:
  anabranch tunnel drain
  anabranch tunnel drain --for 600        for downloads that take ten minutes";

#[derive(Debug, Subcommand)]
pub(crate) enum Tunnel {
    /// Be the far end: let clients in, and connect where they want to (no root)
    #[command(after_help = SERVE)]
    Serve(Box<Serve>),
    /// Be the near end: offer SOCKS5 and HTTP CONNECT, and carry over all uplinks (no root)
    #[command(after_help = JOIN)]
    Join(Box<Join>),
    /// Write a commented configuration that runs
    #[command(after_help = NEW)]
    New(New),
    /// Tell all that is wrong with a configuration
    Check {
        /// The configuration
        file: PathBuf,
    },
    /// Be the end that a configuration describes
    #[command(after_help = UP)]
    Up {
        /// The configuration
        file: PathBuf,
    },
    /// Make the ends that run by a configuration read it again
    #[command(after_help = RELOAD)]
    Reload(Node),
    /// Stop capturing, and remove whatever a capture has left on this machine (root)
    #[command(after_help = DOWN)]
    Down,
    /// Show what the ends that run here do: paths, connections, clients
    Status(Status),
    /// Show each path: its ends, state and role, rates, delay, loss and packet size
    #[command(after_help = PATHS)]
    Paths(Ask),
    /// List the biggest flows: who talks to whom, and how much
    #[command(after_help = FLOWS)]
    Flows(Flows),
    /// Tell what one flow does: what it moved and by which paths, and what it waits for
    #[command(after_help = WHY)]
    Why(Why),
    /// List the clients that the far end here let in, add one, or revoke one
    #[command(after_help = CLIENTS)]
    Clients(Clients),
    /// Print a URL that lets one more machine in
    Invite(Node),
    /// Let the far end here leave: its clients connect anew, and it ends with the last of its flows
    #[command(after_help = DRAIN)]
    Drain(Drain),
    /// Undo capture when the process at the other end of stdin has ended
    #[command(hide = true)]
    Guard {
        /// Leave the table, which blocks
        #[arg(long)]
        keep: bool,
        /// That of a far end
        #[arg(long, conflicts_with = "keep")]
        exit: bool,
        /// Undo nothing as long as this one is there, and another process may take over
        #[arg(long)]
        device: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Where to write it; stdout if not given
    pub(crate) file: Option<PathBuf>,
    /// For a far end
    #[arg(long, conflicts_with = "url")]
    pub(crate) far: bool,
    /// The far end that it leads to: what `tunnel serve` printed there, or https://HOST:PORT/ of
    /// a proxy of others
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<FarEnd>,
}

/// Which node is asked.
#[derive(Debug, Args)]
pub(crate) struct Node {
    /// Its control socket [default: all in `anabranch` below `XDG_RUNTIME_DIR`]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) node: Node,
    /// Go on showing, until interrupted
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// Write a line of JSON for each node (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Ask {
    #[command(flatten)]
    pub(crate) node: Node,
    /// Write a line of JSON for each node (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Flows {
    #[command(flatten)]
    pub(crate) ask: Ask,
    /// How many of each node
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) most: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Its number, or the address or name of its target or source, with the port or without
    #[arg(value_name = "FLOW")]
    pub(crate) flow: String,
    #[command(flatten)]
    pub(crate) ask: Ask,
}

#[derive(Debug, Args)]
pub(crate) struct Clients {
    #[command(subcommand)]
    pub(crate) what: Option<ClientsDo>,
    #[command(flatten)]
    pub(crate) node: Node,
    /// Write the list, or what was added, as JSON (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientsDo {
    /// List them
    List,
    /// Print a credential for a client of others, which cannot use an invitation
    #[command(after_help = ADD)]
    Add {
        /// How it is to be called
        name: String,
    },
    /// Close everything of a client at once, and let it in no more
    Revoke {
        /// Its name or number
        client: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen; may be repeated [default: port 4434 on all addresses]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = |text: &str| address_with(text, PORT))]
    pub(crate) listen: Vec<SocketAddr>,
    /// Hosts to put into the URL, for servers behind NAT; may be repeated
    #[arg(long, value_name = "HOST[:PORT]", value_parser = |text: &str| Host::parse(text, PORT))]
    pub(crate) advertise: Vec<Host>,
    /// What clients are told this is called [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Lead to these private addresses too, if ports are named to these alone; may be repeated
    #[arg(long, value_name = "ADDR[/PREFIX][,PORT[-PORT]...]")]
    pub(crate) allow: Vec<Rule>,
    /// Carry packets of any protocol too, and give clients addresses of this pool, for IPv4 and for
    /// IPv6 (root)
    #[arg(long, value_name = "PREFIX")]
    pub(crate) ip: Vec<Prefix>,
    /// Tasks that the connections are shared among, each on a processor core of its own [default:
    /// as many as there are cores]
    #[arg(long, value_name = "N", value_parser = workers)]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Connections that one client may have open at a time
    #[arg(long, value_name = "N", default_value_t = 2048)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) max_flows: u32,
    /// Certificates (PEM, the server's first) instead of a key of its own, for HTTP/3 clients of
    /// others: many accept no Ed25519
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the first certificate (PEM, PKCS#8)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Offer metrics for Prometheus at /metrics, and /healthz; the address is 127.0.0.1 unless told
    /// otherwise
    #[arg(long, value_name = "[ADDR]:PORT", value_parser = metrics_address)]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) fleet: Fleet,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    /// Write a qlog file for each connection into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}

/// Which of several far ends behind one address this is.
#[derive(Debug, Args)]
pub(crate) struct Fleet {
    /// The number of this far end among those behind one address, 1 to 11 octets: it is put into
    /// connection IDs, where what balances the load reads it
    #[arg(long, value_name = "HEX", value_parser = server_id)]
    pub(crate) server_id: Option<ServerId>,
    /// Encrypt the number with this key: 32 hexadecimal digits, which the balancer knows too
    #[arg(long, value_name = "FILE", requires = "server_id")]
    pub(crate) lb_key: Option<PathBuf>,
    /// Which configuration of the balancer this is, 0 to 6 [default: 0]
    #[arg(long, value_name = "N", requires = "server_id")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=6))]
    pub(crate) lb_rotation: Option<u8>,
}

/// The number of a far end, as connection IDs have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerId(pub(crate) Vec<u8>);

/// Octets of a server ID at most: with the nonce they fit a connection ID.
const MAX_SERVER_ID: usize = 11;

fn server_id(text: &str) -> Result<ServerId, String> {
    let octets = hexadecimal(text)
        .filter(|octets| (1..=MAX_SERVER_ID).contains(&octets.len()))
        .ok_or_else(|| {
            format!(
                "expected 1 to {MAX_SERVER_ID} octets of two hexadecimal digits each, such as 01"
            )
        })?;
    Ok(ServerId(octets))
}

/// The octets that pairs of hexadecimal digits mean.
pub(crate) fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    let octet = |pair: &[u32]| u8::try_from(pair[0] << 4 | pair[1]).ok();
    digits.chunks_exact(2).map(octet).collect()
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// How long flows may go on, in seconds
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub(crate) seconds: u32,
    #[command(flatten)]
    pub(crate) node: Node,
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The far end: what `tunnel serve` or `tunnel invite` printed there, or https://HOST:PORT/ of
    /// a proxy of others for HTTP/3
    #[arg(
        value_name = "URL",
        required_unless_present = "url_file",
        conflicts_with = "url_file"
    )]
    pub(crate) url: Option<FarEnd>,
    /// Take the URL from this file, so that no list of processes shows it
    #[arg(long, value_name = "FILE")]
    pub(crate) url_file: Option<PathBuf>,
    /// Where to offer SOCKS5 and HTTP CONNECT; may be repeated. Who reaches it may use the tunnel
    /// [default: 127.0.0.1:1080]
    #[arg(
        long,
        value_name = "ADDR[:PORT]",
        value_parser = |text: &str| address_with(text, LOCAL_PORT)
    )]
    pub(crate) listen: Vec<SocketAddr>,
    /// Carry what these send, unmodified: this machine, or hosts behind an interface; may be
    /// repeated (root)
    #[arg(long, value_name = "host|lan=IFACE")]
    pub(crate) capture: Vec<Source>,
    /// Make a TUN device with the address that the far end gives: for who wants to route by himself
    /// (root) [default name: anabranch]
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = ip::DEVICE)]
    pub(crate) tun: Option<String>,
    /// Rules of paths, in their order: of a file alone.
    #[arg(skip)]
    pub(crate) rules: Vec<links::Rule>,
    /// Classes of traffic: of a file alone.
    #[arg(skip)]
    pub(crate) classes: Vec<Class>,
    /// When this ends, block what was captured until `anabranch tunnel down`
    #[arg(long, requires = "capture")]
    pub(crate) kill_switch: bool,
    /// Use links that lose much, or fall silent again and again, like all others
    #[arg(long)]
    pub(crate) no_quarantine: bool,
    /// What the far end is told this machine is called [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Offer metrics for Prometheus at /metrics, and /healthz; the address is 127.0.0.1 unless told
    /// otherwise
    #[arg(long, value_name = "[ADDR]:PORT", value_parser = metrics_address)]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) foreign: Foreign,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) paths: Paths,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    /// Write a qlog file for each connection into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) qlog: Option<PathBuf>,
}

/// Where a node keeps what it has to remember.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Directory of keys and credentials [default: the user's state directory, such as
    /// ~/.local/state/anabranch]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// Where metrics are offered: to this machine alone where no address is named.
fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    match text.strip_prefix(':').map(str::parse) {
        Some(Ok(port)) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        _ => address_with(text, METRICS_PORT),
    }
}

impl Join {
    /// The links, each with its rule: that of the file, or what the word behind it says.
    pub(crate) fn links(&self) -> Vec<Wanted> {
        let specs = self.paths.specs().into_iter().enumerate();
        let wanted = specs.map(|(at, spec)| match self.rules.get(at) {
            Some(rule) => Wanted { spec, rule: *rule },
            None => Wanted::from(spec),
        });
        wanted.collect()
    }

    /// The far end's URL, wherever it is.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has none; or an option is for another kind of far end.
    pub(crate) fn far_end(&self) -> Outcome<FarEnd> {
        let far_end = match (&self.url, &self.url_file) {
            (Some(url), _) => url.clone(),
            (None, Some(file)) => {
                let wrong = |why: String| {
                    let failure = Failure::usage(format!("{}: {why}", file.display()));
                    failure.hint("expected what `anabranch tunnel serve` printed, and no more")
                };
                let text = std::fs::read_to_string(file);
                let text = text.map_err(|error| wrong(error.to_string()))?;
                let url = text.trim().parse::<FarEnd>();
                url.map_err(|error| wrong(error.to_string()))?
            }
            (None, None) => return Err(Failure::usage("there is no URL of a far end")),
        };
        match (&far_end, self.foreign.given()) {
            (FarEnd::Exit(_), Some(option)) => {
                let what =
                    format!("`{option}` is for proxies of others, and the URL leads to ours");
                Err(Failure::usage(what).hint("leave it out, or take the URL https://HOST:PORT/"))
            }
            _ => Ok(far_end),
        }
    }

    /// Where to listen.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        if self.listen.is_empty() {
            vec![([127, 0, 0, 1], LOCAL_PORT).into()]
        } else {
            self.listen.clone()
        }
    }
}
