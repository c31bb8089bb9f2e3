//! A client, a server and the links between them in network namespaces, with the real program.
//!
//! ```text
//!             path0: 10.1.0.1 ---- 10.1.0.2
//!   client    path1: 10.2.0.1 ---- 10.2.0.2    server, also 10.99.0.1 on its loopback interface
//!             path2: ...
//! ```
//!
//! IPv6 addresses are similar: `fd00:1::1`, `fd00:1::2`, and `fd00:99::1`.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

pub mod beyond;
pub mod capture;
pub mod captured;
pub mod ending;
pub mod figures;
pub mod files;
pub mod manager;
pub mod observer;
pub mod packets;
pub mod pinger;
pub mod process;
pub mod stage;
pub mod translator;

use anabranch_testbed::{LinkId, LinkSpec, Node, Rate, Testbed};
use files::{names, noise, state_home};
use nix::fcntl::{Flock, FlockArg};
use observer::Meter;
use process::Process;
use serde_json::Value;
use std::cell::Cell;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

/// Where the server listens.
pub const PORT: u16 = 4433;

/// Whether the long variants were asked for.
pub fn is_long() -> bool {
    std::env::var_os("ANABRANCH_LONG").is_some_and(|value| value == "1")
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The address of a host on a link: 1 is the client, 2 the server.
    pub fn address(self, link: usize, host: usize) -> IpAddr {
        let network = link + 1;
        let text = match self {
            Self::V4 => format!("10.{network}.0.{host}"),
            Self::V6 => format!("fd00:{network}::{host}"),
        };
        text.parse().expect("an address")
    }

    /// The server's address, which every link leads to.
    pub fn server(self) -> IpAddr {
        match self {
            Self::V4 => [10, 99, 0, 1].into(),
            Self::V6 => [0xfd00, 0x99, 0, 0, 0, 0, 0, 1].into(),
        }
    }

    fn prefix_len(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }
}

/// The network of one test.
pub struct Lab {
    pub bed: Testbed,
    pub client: Node,
    pub server: Node,
    pub family: Family,
    pub links: Vec<LinkId>,
    /// What is between the client and each link, if there is something.
    pub gateways: Vec<Node>,
    pub directory: TempDir,
    /// Keeps measurements away that have to be alone.
    _turn: Turn,
}

/// A server and its URL.
pub struct Server {
    pub process: Process,
    /// The URL that it printed; callers append a slash and a name.
    pub url: String,
}

impl Server {
    /// The URL of a file.
    pub fn url_of(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }
}

impl Lab {
    /// A network of IPv4 links. Returns `None`, and says why, where namespaces cannot be made.
    pub fn new(name: &str, rates: &[Rate]) -> Option<Self> {
        Self::with_family(name, Family::V4, rates)
    }

    pub fn with_family(name: &str, family: Family, rates: &[Rate]) -> Option<Self> {
        let mut lab = Self::without_links(name, family)?;
        for &rate in rates {
            lab.add_link(rate);
        }
        Some(lab)
    }

    /// A gateway between the client and each link: the client's interfaces then show the order in
    /// which it sends, before the links' queues.
    ///
    /// ```text
    /// client, path0: 10.1.0.1 ---- gateway ----(rate)---- server
    /// ```
    pub fn behind_gateways(name: &str, rates: &[Rate]) -> Option<Self> {
        let mut lab = Self::without_links(name, Family::V4)?;
        let gateways: Vec<Node> = (0..rates.len())
            .map(|at| lab.bed.node(&format!("gateway{at}")).unwrap())
            .collect();
        for (at, gateway) in gateways.iter().enumerate() {
            let [a, b] = [1, 2].map(|host| format!("{}/24", Family::V4.address(at, host)));
            let spec = LinkSpec::new(a.parse().unwrap(), b.parse().unwrap());
            lab.bed.link(&lab.client, gateway, &spec).unwrap();
            lab.add_route(at);
        }
        let server = lab.family.server().to_string();
        for (at, (gateway, &rate)) in gateways.iter().zip(rates).enumerate() {
            let [a, b] = [1, 2].map(|host| format!("10.{}.0.{host}", 101 + at));
            let [near, far] = [&a, &b].map(|end| format!("{end}/24").parse().unwrap());
            let spec = LinkSpec::new(near, far).rate(rate);
            lab.links
                .push(lab.bed.link(gateway, &lab.server, &spec).unwrap());
            forward(gateway);
            gateway
                .run("ip", &["route", "add", &server, "via", &b])
                .unwrap();
            let clients = format!("10.{}.0.0/24", at + 1);
            lab.server
                .run("ip", &["route", "add", &clients, "via", &a])
                .unwrap();
        }
        lab.gateways = gateways;
        Some(lab)
    }

    /// The client's links and the server's links meet in a router. The program itself makes the
    /// server answer over the link whose address was asked.
    ///
    /// ```text
    /// client, path0: 10.1.0.1 ----+        +---- 10.101.0.2
    ///         path1: 10.2.0.1 ----- router ----- 10.102.0.2    server
    /// ```
    pub fn through_router(name: &str, client: &[Rate], server: &[Rate]) -> Option<Self> {
        let mut lab = Self::without_links(name, Family::V4)?;
        let router = lab.bed.node("router").unwrap();
        forward(&router);
        let subnets = (1..).take(client.len()).chain((101..).take(server.len()));
        for (at, (subnet, &rate)) in subnets.zip(client.iter().chain(server)).enumerate() {
            let end = |host: usize| format!("10.{subnet}.0.{host}/24").parse().unwrap();
            let spec = LinkSpec::new(end(1), end(2)).rate(rate);
            let of_client = at < client.len();
            let (a, b) = if of_client {
                (&lab.client, &router)
            } else {
                (&router, &lab.server)
            };
            let link = lab.bed.link(a, b, &spec).unwrap();
            let (host, gateway) = if of_client {
                (&lab.client, 2)
            } else {
                (&lab.server, 1)
            };
            let via = format!("10.{subnet}.0.{gateway}");
            let (interface, metric) = (format!("path{at}"), (at + 10).to_string());
            let route = ["route", "add", "default", "via", &via, "dev", &interface];
            host.run("ip", &[&route[..], &["metric", &metric]].concat())
                .unwrap();
            if of_client {
                lab.links.push(link);
            }
        }
        lab.server.run(PROGRAM, &["routes", "apply"]).unwrap();
        Some(lab)
    }

    fn without_links(name: &str, family: Family) -> Option<Self> {
        let mut bed = Testbed::require(name)?;
        let turn = Turn::beside_others();
        let (client, server) = (bed.node("client").unwrap(), bed.node("server").unwrap());
        let single = format!(
            "{}/{}",
            family.server(),
            if family == Family::V4 { 32 } else { 128 }
        );
        server
            .run("ip", &["address", "add", &single, "dev", "lo"])
            .unwrap();
        let directory = tempfile::tempdir().expect("a directory");
        for part in ["files", "got"] {
            fs::create_dir(directory.path().join(part)).expect("a directory in it");
        }
        let links = Vec::new();
        Some(Self {
            bed,
            client,
            server,
            family,
            links,
            gateways: Vec::new(),
            directory,
            _turn: turn,
        })
    }

    /// Plugs in one more link.
    pub fn add_link(&mut self, rate: Rate) -> LinkId {
        let at = self.links.len();
        let [a, b] = [1, 2].map(|host| {
            let address = self.family.address(at, host);
            format!("{address}/{}", self.family.prefix_len())
                .parse()
                .unwrap()
        });
        let spec = LinkSpec::new(a, b).rate(rate);
        self.links
            .push(self.bed.link(&self.client, &self.server, &spec).unwrap());
        self.add_route(at);
        self.links[at]
    }

    /// Adds the link's route to the server's single address.
    pub fn add_route(&self, at: usize) {
        let gateway = self.family.address(at, 2).to_string();
        let (interface, metric) = (format!("path{at}"), (at + 10).to_string());
        let server = self.family.server().to_string();
        let route = ["via", &gateway, "dev", &interface, "metric", &metric];
        let add = ["route", "replace", &server];
        self.client.run("ip", &[&add[..], &route].concat()).unwrap();
    }

    /// Pulls the cable of a link, or plugs it in again and restores its route, as a network manager
    /// would.
    pub fn set_up(&mut self, at: usize, up: bool) {
        self.bed.set_up(self.links[at], up).unwrap();
        if up {
            self.add_route(at);
        }
    }

    /// A `--path` option for each link.
    pub fn all_paths(&self) -> Vec<String> {
        (0..self.links.len())
            .flat_map(|at| ["--path".into(), format!("path{at}")])
            .collect()
    }

    /// Starts a server of `files` that is reached at these addresses.
    pub fn serve(&mut self, hosts: &[IpAddr], more: &[&str]) -> Server {
        self.serve_with(hosts, more, program)
    }

    /// Starts a server with a command that the caller makes; the arguments are appended to it.
    pub fn serve_with(
        &mut self,
        hosts: &[IpAddr],
        more: &[&str],
        command: impl FnOnce(&Node) -> Command,
    ) -> Server {
        let mut command = command(&self.server);
        command.arg("serve").arg("--root").arg(self.path("files"));
        command.arg("--identity").arg(self.path("identity"));
        for host in hosts {
            let host = if host.is_ipv6() {
                format!("[{host}]")
            } else {
                host.to_string()
            };
            command.args(["--advertise", &host]);
        }
        let mut process = Process::start(command.args(more), &self.directory);
        let line = process.first_line();
        let listening: Option<Value> = serde_json::from_str(&line).ok();
        let url = listening.and_then(|event| Some(event["url"].as_str()?.to_owned()));
        Server {
            process,
            url: url.unwrap_or(line),
        }
    }

    /// The whole command line of the client.
    pub fn client_command(&self, arguments: &[&str]) -> Command {
        let mut command = program(&self.client);
        command.args(arguments).current_dir(self.path("got"));
        command
    }

    /// Starts the client with these arguments, in the directory `got`.
    pub fn start(&self, arguments: &[&str]) -> Process {
        Process::start(&mut self.client_command(arguments), &self.directory)
    }

    /// Starts fetching a file over all links.
    pub fn start_get(&self, server: &Server, name: &str, more: &[&str]) -> Process {
        let (url, paths) = (server.url_of(name), self.all_paths());
        let mut arguments = vec!["get", &url, "--json"];
        arguments.extend(paths.iter().map(String::as_str));
        self.start(&[&arguments, more].concat())
    }

    /// Starts sending a file of `got` over all links.
    pub fn start_put(&self, server: &Server, name: &str, more: &[&str]) -> Process {
        let (url, paths) = (server.url_of(name), self.all_paths());
        let mut arguments = vec!["put", name, &url, "--json"];
        arguments.extend(paths.iter().map(String::as_str));
        self.start(&[&arguments, more].concat())
    }

    /// A path in the test's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a file whose bytes never repeat, so that misplaced ones are noticed.
    pub fn make_file(&self, name: &str, length: usize) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, noise(length)).expect("room on the disk");
        path
    }

    /// Fails unless both files have the same content.
    #[track_caller]
    pub fn assert_same(&self, one: &str, other: &str) {
        let read = |name| fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(read(one) == read(other), "{one} and {other} differ");
    }

    /// Names in the directory `got`.
    pub fn got(&self) -> Vec<String> {
        names(&self.path("got"))
    }

    /// Bytes that a link has carried to the client and to the server, including Ethernet headers.
    pub fn carried(&mut self, at: usize) -> (u64, u64) {
        let counters = self.bed.counters(self.links[at]).unwrap();
        (counters.b_to_a.bytes, counters.a_to_b.bytes)
    }
}

/// Makes a host forward packets.
fn forward(node: &Node) {
    let setting = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    node.enter(setting).unwrap().expect("a host of ours");
}

/// The program on a host, with real-time priority if that is allowed. Otherwise a queue of 50 ms
/// runs empty while a program waits for a processor, and the test measures the machine instead of
/// the program. The kernel leaves others a twentieth of the time.
pub fn program(node: &Node) -> Command {
    const AHEAD: [&str; 2] = ["--rr", "1"];
    static IS_ALLOWED: OnceLock<bool> = OnceLock::new();
    let is_allowed = *IS_ALLOWED.get_or_init(|| {
        let probe = Command::new("chrt").args(AHEAD).arg("true").output();
        let is_allowed = probe.is_ok_and(|probe| probe.status.success());
        if !is_allowed {
            eprintln!("programs under test run at the usual priority: `chrt` cannot change it");
        }
        is_allowed
    });
    let mut command = node.command(if is_allowed { "chrt" } else { PROGRAM });
    if is_allowed {
        command.args(AHEAD).arg(PROGRAM);
    }
    command.env("XDG_STATE_HOME", state_home());
    command
}

thread_local! {
    /// Whether this thread has its turn.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// A share of this machine: beside other laboratories, or alone, even among several test programs
/// of one user.
struct Turn(Option<Flock<File>>);

impl Turn {
    /// Waits until nobody wants to be alone.
    fn beside_others() -> Self {
        Self::wait(FlockArg::LockShared)
    }

    /// Waits until nobody else measures anything.
    fn alone() -> Self {
        Self::wait(FlockArg::LockExclusive)
    }

    /// Waits for this thread's turn, unless it has it already.
    fn wait(how: FlockArg) -> Self {
        if HAS_TURN.get() {
            return Self(None);
        }
        let name = format!("anabranch-lab-{}.lock", nix::unistd::getuid());
        let path = std::env::temp_dir().join(name);
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .expect("a lock file");
        let lock = Flock::lock(file, how);
        let lock = lock.map_err(|(_, error)| error).expect("the lock");
        HAS_TURN.set(true);
        Self(Some(lock))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.0.is_some() {
            HAS_TURN.set(false);
        }
    }
}

/// How often a measurement may fall short on a machine that had time for it.
const FAIR_TRIES: usize = 3;

/// How often, and for how long, a measurement is tried at most if the machine was too busy.
const TRIES: usize = 10;
const BUDGET: Duration = Duration::from_secs(240);

/// Measures until the result is good enough. `measure` returns what fell short, or `None` where it
/// cannot be done.
///
/// A machine that is busy with something else makes results worse, never better. So the first try
/// shares the machine with other tests, and what falls short then is measured alone. The best of
/// three tries says more about the program than any one of them, and a try during which the
/// machine was late (see [`Meter`]) is not one of the three. What must hold however long it takes
/// is asserted inside `measure` and not tried again.
#[track_caller]
pub fn measured(name: &str, mut measure: impl FnMut() -> Option<Result<(), String>>) {
    let beside_others = Turn::beside_others();
    let Err((_, shortfall)) = attempt(&mut measure) else {
        return;
    };
    drop(beside_others);
    eprintln!("{name}, beside other tests: {shortfall}");
    // Taken once for all tries, before the time is counted.
    let _turn = Turn::alone();
    let (started, mut fair, mut shortfalls) = (Instant::now(), 0, Vec::new());
    while fair < FAIR_TRIES && shortfalls.len() < TRIES && started.elapsed() < BUDGET {
        let Err((is_fair, shortfall)) = attempt(&mut measure) else {
            return;
        };
        fair += usize::from(is_fair);
        eprintln!("{name}: {shortfall}");
        shortfalls.push(shortfall);
    }
    let (tries, all) = (shortfalls.len(), shortfalls.join("; "));
    panic!("{name}, in {tries} tries, {fair} of them on a machine with time for it: {all}");
}

/// Measures once. What fell short comes with whether the machine had time for it.
fn attempt(measure: &mut impl FnMut() -> Option<Result<(), String>>) -> Result<(), (bool, String)> {
    let meter = Meter::start();
    let result = measure();
    let late = meter.end();
    let Some(Err(shortfall)) = result else {
        return Ok(());
    };
    let shortfall = format!(
        "{shortfall} (the machine was late by {} ms at most, by {} of {} ms in sum)",
        late.worst.as_millis(),
        late.sum.as_millis(),
        late.of.as_millis(),
    );
    Err((!late.is_too_much(), shortfall))
}

/// What fell short, if anything. Each bar comes with what to say if it was missed.
pub fn judge(bars: &[(bool, String)]) -> Result<(), String> {
    let missed = bars.iter().filter(|(is_met, _)| !is_met);
    let missed: Vec<&str> = missed.map(|(_, what)| what.as_str()).collect();
    if missed.is_empty() {
        Ok(())
    } else {
        Err(missed.join(", "))
    }
}

/// Waits for a condition to become true.
#[track_caller]
pub fn wait_for(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < limit, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_millis(5));
    }
    started.elapsed()
}
