//! Path specifications as users type them, and the interfaces they select.
//!
//! `auto`, `eth0`, `wlan*` or `192.0.2.7`, followed by options: `wwan0,backup`, `docker0,never`,
//! `eth0,weight=2,priority=1,cost=3,paths=2`, `wwan0,keep-alive=20s`.

use super::{Interface, Kind};
use anabranch_proto::wire::frame::PathStatus;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The most paths one interface may carry.
pub const MAX_PATHS_PER_INTERFACE: u32 = 8;

/// The shortest and the longest time that a path may rest before it is asked: many translators of
/// addresses forget a mapping after 30 seconds.
pub const KEEP_ALIVE: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(25);

/// Which interfaces or addresses to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Every interface that leads to other networks ([`Interface::is_uplink`]) and has a route to
    /// the peer.
    Auto,
    /// The interface that owns this address, and only that address.
    Address(IpAddr),
    /// The interface of this name.
    Name(String),
    /// Every interface whose name matches: `*` stands for any characters, `?` for one.
    Glob(String),
}

/// A path specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSpec {
    /// Which interfaces or addresses the paths use.
    pub selector: Selector,
    /// How they are used.
    pub options: SpecOptions,
}

/// How a path is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpecOptions {
    /// Available, or backup: a backup path carries data only if no available path works.
    pub status: PathStatus,
    /// Share of the traffic relative to other paths, for schedulers that use weights; at least 1.
    pub weight: u32,
    /// Preference, higher first, for schedulers that use ranks.
    pub priority: i32,
    /// Cost per byte, in units the user chooses.
    pub cost: u32,
    /// Paths per interface, up to [`MAX_PATHS_PER_INTERFACE`]; one unless said. With 0 the
    /// interface is left out, also where a later specification would select it.
    pub paths: Option<u32>,
    /// How long a path may rest before it is asked whether it is there, within [`KEEP_ALIVE`];
    /// `None` means as its connection does with all.
    pub keep_alive: Option<Duration>,
}

impl Default for SpecOptions {
    fn default() -> Self {
        Self {
            status: PathStatus::Available,
            weight: 1,
            priority: 0,
            cost: 0,
            paths: None,
            keep_alive: None,
        }
    }
}

/// What is wrong with a path specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The text is empty.
    #[error("empty path: expected `auto`, an interface, a pattern like `wlan*`, or an address")]
    Empty,
    /// Not a valid name of a Linux interface.
    #[error("`{0}` cannot be an interface: names have at most 15 characters, no space and no `/`")]
    BadName(String),
    /// An unknown option.
    #[error(
        "unknown path option `{option}` in `{spec}`: {}",
        nearest_option(option)
    )]
    UnknownOption {
        /// The option.
        option: String,
        /// The specification it is in.
        spec: String,
    },
    /// An option with an invalid value.
    #[error("`{option}={value}` in `{spec}`: expected {expected}")]
    BadValue {
        /// The option.
        option: String,
        /// Its value.
        value: String,
        /// What is expected.
        expected: &'static str,
        /// The specification it is in.
        spec: String,
    },
    /// No interface has this name.
    #[error("no interface `{name}`{}", nearest_name(.nearest.as_deref(), .known))]
    NoInterface {
        /// The name or pattern.
        name: String,
        /// The most similar existing name.
        nearest: Option<String>,
        /// All existing names.
        known: Vec<String>,
    },
    /// No interface has this address.
    #[error("no interface has the address {ip}{}", known_addresses(.known))]
    NoAddress {
        /// The address.
        ip: IpAddr,
        /// The existing addresses.
        known: Vec<IpAddr>,
    },
    /// Interfaces were found, but none can carry a path at the moment.
    #[error("`{spec}`: {reason}")]
    Unusable {
        /// The specification.
        spec: String,
        /// Why not.
        reason: String,
    },
}

const OPTIONS: [&str; 7] = [
    "backup",
    "never",
    "weight=",
    "priority=",
    "cost=",
    "paths=",
    "keep-alive=",
];

fn nearest_option(option: &str) -> String {
    let typed = option.split('=').next().unwrap_or(option);
    match nearest(
        typed,
        OPTIONS.iter().map(|known| known.trim_end_matches('=')),
    ) {
        Some(name) => format!("did you mean `{name}`?"),
        None => {
            "known are backup, never, weight=N, priority=N, cost=N, paths=N, keep-alive=TIME".into()
        }
    }
}

fn nearest_name(nearest: Option<&str>, known: &[String]) -> String {
    match nearest {
        Some(name) => format!(": did you mean `{name}`?"),
        None if known.is_empty() => String::new(),
        None => format!(": there are {}", known.join(", ")),
    }
}

fn known_addresses(known: &[IpAddr]) -> String {
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    if known.is_empty() {
        String::new()
    } else {
        format!(": there are {}", known.join(", "))
    }
}

/// The most similar of `names`, if any is similar enough.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::damerau_levenshtein(typed, name), name))
        .min()
        .filter(|(distance, name)| *distance * 2 <= name.len().max(2))
        .map(|(_, name)| name)
}

impl FromStr for PathSpec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        let mut parts = spec.split(',').map(str::trim);
        let selector = parse_selector(parts.next().unwrap_or_default())?;
        let mut options = SpecOptions::default();
        for option in parts {
            parse_option(option, spec, &mut options)?;
        }
        Ok(Self { selector, options })
    }
}

fn parse_selector(text: &str) -> Result<Selector, SpecError> {
    if text.is_empty() {
        return Err(SpecError::Empty);
    }
    if text == "auto" {
        return Ok(Selector::Auto);
    }
    if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse() {
        return Ok(Selector::Address(ip));
    }
    // IFNAMSIZ is 16, including the terminating zero.
    if text.len() > 15 || text.contains(|c: char| c == '/' || c == '=' || c.is_whitespace()) {
        return Err(SpecError::BadName(text.into()));
    }
    let is_glob = text.contains(['*', '?']);
    Ok(if is_glob {
        Selector::Glob(text.into())
    } else {
        Selector::Name(text.into())
    })
}

fn parse_option(option: &str, spec: &str, options: &mut SpecOptions) -> Result<(), SpecError> {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    let bad = |expected| SpecError::BadValue {
        option: key.into(),
        value: value.into(),
        expected,
        spec: spec.into(),
    };
    match key {
        "backup" if value.is_empty() => options.status = PathStatus::Backup,
        "never" if value.is_empty() => options.paths = Some(0),
        "weight" => {
            let expected = "a whole number from 1";
            options.weight = value
                .parse()
                .ok()
                .filter(|&weight| weight > 0)
                .ok_or_else(|| bad(expected))?;
        }
        "priority" => {
            options.priority = value
                .parse()
                .map_err(|_| bad("a whole number, higher first"))?;
        }
        "cost" => options.cost = value.parse().map_err(|_| bad("a whole number from 0"))?,
        "paths" => {
            let range = 1..=MAX_PATHS_PER_INTERFACE;
            let paths = value.parse().ok().filter(|paths| range.contains(paths));
            options.paths = Some(paths.ok_or_else(|| bad("a whole number from 1 to 8"))?);
        }
        "keep-alive" => {
            let time = parse_keep_alive(value);
            options.keep_alive = Some(time.ok_or_else(|| bad("seconds from `5s` to `25s`"))?);
        }
        _ => {
            return Err(SpecError::UnknownOption {
                option: option.into(),
                spec: spec.into(),
            });
        }
    }
    Ok(())
}

/// Seconds within [`KEEP_ALIVE`], as `20s`.
fn parse_keep_alive(text: &str) -> Option<Duration> {
    let seconds = text.strip_suffix('s')?.trim_end().parse().ok()?;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    KEEP_ALIVE.contains(&time).then_some(time)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Address(ip) => write!(f, "{ip}"),
            Self::Name(name) | Self::Glob(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.selector)?;
        let (options, default) = (&self.options, SpecOptions::default());
        if options.status == PathStatus::Backup {
            f.write_str(",backup")?;
        }
        if options.weight != default.weight {
            write!(f, ",weight={}", options.weight)?;
        }
        if options.priority != default.priority {
            write!(f, ",priority={}", options.priority)?;
        }
        if options.cost != default.cost {
            write!(f, ",cost={}", options.cost)?;
        }
        if let Some(time) = options.keep_alive {
            write!(f, ",keep-alive={}s", time.as_secs_f64())?;
        }
        match options.paths {
            None => Ok(()),
            Some(0) => f.write_str(",never"),
            Some(paths) => write!(f, ",paths={paths}"),
        }
    }
}

/// Where a path can start and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The interface's index.
    pub index: u32,
    /// The interface's name.
    pub interface: String,
    /// The local address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Numbers the paths of one interface, from 0.
    pub number: u32,
    /// How the path should be used.
    pub options: SpecOptions,
    /// Whether to bind to the interface rather than only to the address.
    pub bind_device: bool,
}

impl Candidate {
    /// Whether `other` starts and ends at the same place, regardless of its options.
    pub fn same_place(&self, other: &Self) -> bool {
        self.same_start(other) && self.remote == other.remote
    }

    /// Whether `other` starts at the same place, regardless of its destination and options.
    pub fn same_start(&self, other: &Self) -> bool {
        (self.index, self.local, self.number) == (other.index, other.local, other.number)
    }
}

/// Where paths to `remotes` can start now, according to these specifications. A specification that
/// matches nothing now is skipped, since it may match later; if several match the same interface,
/// the first one wins. The result is in the order of the specifications, with backups last.
///
/// An interface uses the address family of the first remote address it can reach. Among the peer's
/// addresses of that family, a path leads to one in the interface's own subnet if there is one,
/// otherwise to each address in turn: several addresses mean several links at the peer's end too,
/// and paths that all led to one address would share its link.
pub fn resolve(
    specs: &[PathSpec],
    interfaces: &[Interface],
    remotes: &[SocketAddr],
) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut decided: Vec<(u32, IpAddr)> = Vec::new();
    for spec in specs {
        for interface in interfaces
            .iter()
            .filter(|interface| interface.up && interface.running)
        {
            let places: Vec<(IpAddr, SocketAddr)> = remotes
                .iter()
                .filter_map(|remote| Some((local_for(spec, interface, *remote)?, *remote)))
                .collect();
            // One address family per interface: two paths over one link would share its bottleneck.
            let Some(&(local, first)) = places.first() else {
                continue;
            };
            let ends = ends(interface, local, &places, first);
            if decided.contains(&(interface.index, local)) {
                continue;
            }
            decided.push((interface.index, local));
            let spread = found.iter().filter(|other| other.number == 0).count();
            for number in 0..spec.options.paths.unwrap_or(1) {
                found.push(Candidate {
                    index: interface.index,
                    interface: interface.name.clone(),
                    local,
                    remote: ends[(spread + number as usize) % ends.len()],
                    number,
                    options: spec.options,
                    // The loopback interface is not an uplink: binding to it gains nothing.
                    bind_device: interface.kind != Kind::Loopback,
                });
            }
        }
    }
    found.sort_by_key(|candidate| candidate.options.status == PathStatus::Backup);
    found
}

/// Where paths from `local` may lead: to the peer's addresses in the same subnet, or if there are
/// none, to all of that family.
fn ends(
    interface: &Interface,
    local: IpAddr,
    places: &[(IpAddr, SocketAddr)],
    first: SocketAddr,
) -> Vec<SocketAddr> {
    let from_here = |(from, remote): &&(IpAddr, SocketAddr)| {
        *from == local && remote.is_ipv4() == first.is_ipv4()
    };
    let all: Vec<SocketAddr> = places
        .iter()
        .filter(from_here)
        .map(|(_, end)| *end)
        .collect();
    let subnets = interface
        .addresses
        .iter()
        .filter(|address| address.ip == local);
    let subnets: Vec<_> = subnets.collect();
    let is_near = |end: &&SocketAddr| subnets.iter().any(|subnet| subnet.covers(end.ip()));
    let near: Vec<SocketAddr> = all.iter().filter(is_near).copied().collect();
    if near.is_empty() { all } else { near }
}

fn local_for(spec: &PathSpec, interface: &Interface, remote: SocketAddr) -> Option<IpAddr> {
    match &spec.selector {
        Selector::Address(ip) => {
            (owns(interface, *ip) && ip.is_ipv4() == remote.is_ipv4()).then_some(*ip)
        }
        Selector::Auto if !interface.is_uplink() || !interface.reaches(remote.ip()) => None,
        Selector::Name(name) if *name != interface.name => None,
        Selector::Glob(pattern) if !glob_matches(pattern, &interface.name) => None,
        _ => interface.address_towards(remote.ip()),
    }
}

/// Loopback interfaces own their whole subnet: every 127.x.y.z can be bound.
fn owns(interface: &Interface, ip: IpAddr) -> bool {
    interface
        .addresses
        .iter()
        .any(|address| address.ip == ip || (interface.kind == Kind::Loopback && address.covers(ip)))
}

/// Checks that every specification selects something on this machine, to report mistakes before
/// anything is tried.
///
/// # Errors
///
/// The first specification that selects no existing interface or address, or only unusable ones.
pub fn check(
    specs: &[PathSpec],
    interfaces: &[Interface],
    remotes: &[SocketAddr],
) -> Result<(), SpecError> {
    let wanted = specs.iter().filter(|spec| spec.options.paths != Some(0));
    for spec in wanted {
        let known = || {
            interfaces
                .iter()
                .map(|interface| interface.name.clone())
                .collect()
        };
        let matching: Vec<&Interface> = interfaces
            .iter()
            .filter(|interface| match &spec.selector {
                Selector::Auto => interface.is_uplink(),
                Selector::Address(ip) => owns(interface, *ip),
                Selector::Name(name) => *name == interface.name,
                Selector::Glob(pattern) => glob_matches(pattern, &interface.name),
            })
            .collect();
        if matching.is_empty() {
            return Err(match &spec.selector {
                Selector::Auto => SpecError::Unusable {
                    spec: spec.to_string(),
                    reason: "no interface leads to other networks; name one to use it anyway"
                        .into(),
                },
                Selector::Address(ip) => SpecError::NoAddress {
                    ip: *ip,
                    known: addresses(interfaces),
                },
                Selector::Name(name) | Selector::Glob(name) => {
                    let typed = name.trim_end_matches(['*', '?']);
                    let names = interfaces.iter().map(|interface| interface.name.as_str());
                    let nearest = nearest(typed, names).map(Into::into);
                    SpecError::NoInterface {
                        name: name.clone(),
                        nearest,
                        known: known(),
                    }
                }
            });
        }
        if resolve(std::slice::from_ref(spec), interfaces, remotes).is_empty() {
            let reason = unusable_reason(&matching, remotes);
            return Err(SpecError::Unusable {
                spec: spec.to_string(),
                reason,
            });
        }
    }
    Ok(())
}

/// Names of the interfaces that `specs` select and that could carry a path, except that they have
/// no route to the peer.
pub fn without_route<'a>(
    specs: &[PathSpec],
    interfaces: &'a [Interface],
    remotes: &[SocketAddr],
) -> Vec<&'a str> {
    let lacks = |interface: &&Interface| {
        let starts = |remote: &SocketAddr| {
            let local = |spec: &PathSpec| local_for(spec, interface, *remote).is_some();
            specs.iter().any(local)
        };
        let mut ends = remotes.iter().filter(|remote| starts(remote)).peekable();
        interface.is_usable()
            && interface.kind != Kind::Loopback
            && ends.peek().is_some()
            && ends.all(|remote| !interface.reaches(remote.ip()))
    };
    let lacking = interfaces.iter().filter(lacks);
    lacking.map(|interface| interface.name.as_str()).collect()
}

fn addresses(interfaces: &[Interface]) -> Vec<IpAddr> {
    let usable = interfaces.iter().filter(|interface| interface.up);
    usable
        .flat_map(|interface| interface.addresses.iter().map(|address| address.ip))
        .collect()
}

fn unusable_reason(matching: &[&Interface], remotes: &[SocketAddr]) -> String {
    let names: Vec<&str> = matching
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    let names = names.join(", ");
    if matching.iter().all(|interface| !interface.up) {
        return format!("{names} is down (ip link set {names} up)");
    }
    if matching.iter().all(|interface| !interface.running) {
        return format!("{names} has no carrier");
    }
    let starts = |one: &&Interface| {
        let mut ends = remotes.iter();
        ends.any(|remote| one.address_towards(remote.ip()).is_some())
    };
    if matching.iter().any(starts) {
        return format!("{names} has no route to the server: it has no gateway");
    }
    let v4 = remotes.iter().any(SocketAddr::is_ipv4);
    let v6 = remotes.iter().any(SocketAddr::is_ipv6);
    let family = match (v4, v6) {
        (true, false) => "IPv4 ",
        (false, true) => "IPv6 ",
        _ => "",
    };
    format!("{names} has no {family}address to reach the server from")
}

/// Whether `name` matches `pattern`. Linear in both, except for the last `*`, which is tried at
/// each position.
pub(super) fn glob_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((star_p, star_n)) = star else {
                    return false;
                };
                star = Some((star_p, star_n + 1));
                p = star_p + 1;
                n = star_n + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}
