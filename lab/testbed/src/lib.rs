//! Networks in this machine's kernel: namespaces as hosts, links between them, and processes in
//! them.
//!
//! A [`Testbed`] owns namespaces, the links between them and the processes in them. It removes them
//! all when dropped, even if a panic unwinds. The next [`Testbed`] on the machine, or
//! [`remove_stale`], removes what a killed process left behind.
//!
//! A link made here is a veth pair for tests. Its rate is a token bucket on each sending end;
//! silence and random loss are filters on each receiving end, so a sender gets no hint of them. Its
//! only delay is that of its queue, because not every kernel has netem. For links with delay,
//! jitter, traces and more, use the module [`emulate`].
//! A [`Relay`] needs no namespaces: it is a path over the loopback interface.
//!
//! ```no_run
//! use anabranch_testbed::{Direction, LinkSpec, Rate, Testbed};
//! # fn main() -> Result<(), anabranch_testbed::Error> {
//! let mut bed = Testbed::new("two-paths")?;
//! let (client, server) = (bed.node("client")?, bed.node("server")?);
//! let spec = LinkSpec::new("10.1.0.1/24".parse()?, "10.1.0.2/24".parse()?);
//! let path = bed.link(&client, &server, &spec.rate(Rate::mbit(20)))?;
//! client.run("ip", &["route", "get", "10.1.0.2"])?;
//! bed.blackhole(path, Direction::Both)?;
//! # Ok(())
//! # }
//! ```

mod address;
mod bond;
mod device;
pub mod emulate;
mod filter;
mod link;
mod need;
mod node;
mod process;
mod relay;
mod resume;
mod shell;
mod stale;

use std::sync::atomic::{AtomicU32, Ordering};

pub use address::Address;
pub use bond::{Bond, TUNNEL_BYTES};
pub use link::{Counters, Direction, Flow, LinkId, LinkSpec, Rate};
pub use need::{Need, browser};
pub use node::Node;
pub use process::ProcessId;
pub use relay::Relay;
pub use resume::resumed;
pub use stale::remove_stale;

use link::Link;
use process::Processes;
use shell::ip;

/// The prefix of the names of all namespaces made here.
const PREFIX: &str = "ab";

/// Why a network could not be built or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine cannot make namespaces at all; the text says what is missing.
    #[error("no network namespaces here: {0}")]
    Unavailable(String),
    /// A program could not be started.
    #[error("cannot run `{command}`: {reason}")]
    Spawn {
        /// The command line.
        command: String,
        /// What the system said.
        reason: std::io::Error,
    },
    /// A program ran and failed.
    #[error("`{command}` failed: {stderr}")]
    Failed {
        /// The command line.
        command: String,
        /// What it wrote to standard error.
        stderr: String,
    },
    /// An address is not `IP/PREFIX`.
    #[error("`{0}` is not an address with a prefix length, like 10.0.0.1/24")]
    Address(String),
    /// A program gave an unexpected answer.
    #[error("cannot understand `{command}`: {reason}")]
    Answer {
        /// The command line.
        command: String,
        /// What was wrong with the answer.
        reason: String,
    },
    /// The link, node or process belongs to another testbed.
    #[error("{0} does not belong to this testbed")]
    Foreign(String),
    /// Two nodes of the same name, or a name that a namespace cannot have.
    #[error("`{0}` cannot name another node: use fresh names of letters, digits and dashes")]
    NodeName(String),
    /// A system call failed.
    #[error("{what}: {reason}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        reason: std::io::Error,
    },
}

/// A network of namespaces, removed when dropped.
#[derive(Debug)]
pub struct Testbed {
    /// The common prefix of its namespaces' names.
    name: String,
    nodes: Vec<Node>,
    links: Vec<Link>,
    processes: Processes,
}

impl Testbed {
    /// Creates an empty network. `name` appears in the namespaces' names only.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where namespaces cannot be made: not root, or no `ip` or `tc`.
    pub fn new(name: &str) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::available()?;
        remove_stale();
        if !is_name(name) {
            return Err(Error::NodeName(name.to_owned()));
        }
        let maker = stale::Maker::this();
        let maker = maker.ok_or_else(|| Error::Unavailable("there is no /proc".to_owned()))?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            name: format!("{PREFIX}-{maker}-{count}-{name}"),
            nodes: Vec::new(),
            links: Vec::new(),
            processes: Processes::default(),
        })
    }

    /// Returns a network, or `None` if none can be made and the test is to be skipped. For the
    /// first line of a test.
    ///
    /// # Panics
    /// If none can be made and [`Need::Network`] is required.
    #[must_use]
    #[track_caller]
    pub fn require(name: &str) -> Option<Self> {
        Self::new(name)
            .map_err(|reason| Need::Network.skip(name, reason))
            .ok()
    }

    /// Does what [`Self::require`] does, for a test that also calls other programs.
    ///
    /// # Panics
    /// If no network can be made or a program is missing, and [`Need::Network`] is required.
    #[must_use]
    #[track_caller]
    pub fn require_with(name: &str, programs: &[&str]) -> Option<Self> {
        let bed = Self::require(name)?;
        Need::Network.programs(name, programs).then_some(bed)
    }

    /// Whether this machine can make namespaces.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with what is missing.
    pub fn available() -> Result<(), Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::Unavailable("they need root".to_owned()));
        }
        // Even root may lack the right, in a container. A short-lived thread tries.
        std::thread::spawn(|| nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET))
            .join()
            .expect("a system call does not panic")
            .map_err(|errno| Error::Unavailable(format!("root may make none ({errno})")))?;
        for program in ["ip", "tc"] {
            shell::run(program, &["-V"])
                .map_err(|e| Error::Unavailable(format!("{e}; install iproute2")))?;
        }
        Ok(())
    }

    /// Adds a host that has only a loopback interface.
    ///
    /// # Errors
    /// [`Error::NodeName`] for a name in use or unusable, [`Error::Failed`] if the kernel refuses.
    pub fn node(&mut self, name: &str) -> Result<Node, Error> {
        if !is_name(name) || self.nodes.iter().any(|node| node.name() == name) {
            return Err(Error::NodeName(name.to_owned()));
        }
        let node = Node::new(name, format!("{}-{name}", self.name));
        if stale::exists(node.namespace()) {
            // Left by a killed process with the same process id.
            stale::remove_namespace(node.namespace());
        }
        ip(&["netns", "add", node.namespace()])?;
        self.nodes.push(node.clone());
        ip(&["-n", node.namespace(), "link", "set", "dev", "lo", "up"])?;
        Ok(node)
    }

    /// Joins two hosts. The interface has the same name on both ends: `path0` for the testbed's
    /// first link, `path1` for the second.
    ///
    /// # Errors
    /// [`Error::Foreign`] for another testbed's nodes, [`Error::Failed`] if the kernel refuses.
    pub fn link(&mut self, a: &Node, b: &Node, spec: &LinkSpec) -> Result<LinkId, Error> {
        for node in [a, b] {
            if !self.nodes.contains(node) {
                return Err(Error::Foreign(format!("node `{}`", node.name())));
            }
        }
        let id = LinkId(self.links.len());
        self.links.push(Link::create(id.0, a, b, spec)?);
        Ok(id)
    }

    fn get(&mut self, id: LinkId) -> Result<&mut Link, Error> {
        self.links
            .get_mut(id.0)
            .ok_or_else(|| Error::Foreign(format!("link {}", id.0)))
    }

    /// The name of the link's interface, which is the same on both ends.
    ///
    /// # Errors
    /// [`Error::Foreign`] for another testbed's link.
    pub fn interface(&mut self, id: LinkId) -> Result<String, Error> {
        Ok(self.get(id)?.interface().to_owned())
    }

    /// Takes the link's interfaces down, or up again. Both ends notice at once, as when a cable is
    /// pulled. Addresses stay.
    ///
    /// # Errors
    /// [`Error::Failed`] if the kernel refuses.
    pub fn set_up(&mut self, id: LinkId, up: bool) -> Result<(), Error> {
        self.get(id)?.set_up(up)
    }

    /// Makes the link lose every packet of a direction; neither end notices.
    ///
    /// # Errors
    /// [`Error::Failed`] if the kernel refuses.
    pub fn blackhole(&mut self, id: LinkId, direction: Direction) -> Result<(), Error> {
        self.get(id)?.set_loss(direction, 1.0)
    }

    /// Ends [`Self::blackhole`] and [`Self::set_loss`] for a direction.
    ///
    /// # Errors
    /// [`Error::Failed`] if the kernel refuses.
    pub fn heal(&mut self, id: LinkId, direction: Direction) -> Result<(), Error> {
        self.get(id)?.set_loss(direction, 0.0)
    }

    /// Makes the link lose packets of a direction at random, each with `probability` (0 to 1). The
    /// kernel draws, so runs are not repeatable.
    ///
    /// # Errors
    /// [`Error::Failed`] if the kernel refuses.
    pub fn set_loss(
        &mut self,
        id: LinkId,
        direction: Direction,
        probability: f64,
    ) -> Result<(), Error> {
        self.get(id)?.set_loss(direction, probability)
    }

    /// Changes the rate of a direction; `None` lifts the limit.
    ///
    /// # Errors
    /// [`Error::Failed`] if the kernel refuses.
    pub fn set_rate(
        &mut self,
        id: LinkId,
        direction: Direction,
        rate: Option<Rate>,
    ) -> Result<(), Error> {
        self.get(id)?.set_rate(direction, rate)
    }

    /// What the link has carried so far.
    ///
    /// # Errors
    /// [`Error::Failed`] if the kernel does not say.
    pub fn counters(&mut self, id: LinkId) -> Result<Counters, Error> {
        self.get(id)?.counters()
    }

    /// Starts a command made by [`Node::command`]; it ends with the testbed at the latest.
    ///
    /// # Errors
    /// [`Error::Spawn`] if it cannot be started.
    pub fn spawn(&mut self, command: std::process::Command) -> Result<ProcessId, Error> {
        self.processes.spawn(command)
    }

    /// Whether a process is still running.
    ///
    /// # Errors
    /// [`Error::Foreign`] for another testbed's process.
    pub fn is_running(&mut self, id: ProcessId) -> Result<bool, Error> {
        self.processes.is_running(id)
    }

    /// Kills a process and waits for its end. It may have ended already.
    ///
    /// # Errors
    /// [`Error::Foreign`] for another testbed's process.
    pub fn kill(&mut self, id: ProcessId) -> Result<(), Error> {
        self.processes.kill(id)
    }

    /// Waits for a process to end by itself and returns what it printed, if its output was piped.
    ///
    /// # Errors
    /// [`Error::Foreign`] for another testbed's process.
    pub fn wait(&mut self, id: ProcessId) -> Result<std::process::Output, Error> {
        self.processes.wait(id)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.processes.kill_all();
        for node in &self.nodes {
            stale::remove_namespace(node.namespace());
        }
    }
}

fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    !name.is_empty() && name.len() <= 64 && name.bytes().all(fits)
}

#[cfg(test)]
mod tests;
