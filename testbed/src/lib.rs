//! Linux network namespaces as hosts, links between them, and processes in them.
//!
//! A [`Testbed`] owns namespaces, the links between them and the processes in them, and removes all
//! of it when dropped, also while a panic unwinds. What a killed process left behind is removed by
//! the next [`Testbed`] on the machine, or by [`remove_stale`].
//!
//! A link made here is a veth pair for tests. Its rate is a token bucket on each sending end,
//! silence and random loss are filters on each receiving end, so a sender gets no hint of them. It
//! has no delay of its own beyond its queue's, because not every kernel has netem. Links with
//! delay, jitter, traces and all are those of `anabranch-emulate`, which needs the nodes alone.
//!
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
mod link;
mod need;
mod node;
mod process;
mod relay;
mod shell;
mod stale;

use std::sync::atomic::{AtomicU32, Ordering};

pub use address::Address;
pub use bond::{Bond, TUNNEL_BYTES};
pub use link::{Counters, Direction, Flow, LinkId, LinkSpec, Rate};
pub use need::Need;
pub use node::Node;
pub use process::ProcessId;
pub use relay::Relay;
pub use stale::remove_stale;

use link::Link;
use process::Processes;
use shell::ip;

/// Beginning of the names of all namespaces made here.
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
    /// A program answered something unexpected.
    #[error("cannot understand `{command}`: {reason}")]
    Answer {
        /// The command line.
        command: String,
        /// What was wrong with the answer.
        reason: String,
    },
    /// The link, node or process is not this testbed's.
    #[error("{0} does not belong to this testbed")]
    Foreign(String),
    /// Two nodes of one name, or a name a namespace cannot have.
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

/// A network of namespaces; gone when dropped.
#[derive(Debug)]
pub struct Testbed {
    /// Common beginning of its namespaces' names.
    name: String,
    nodes: Vec<Node>,
    links: Vec<Link>,
    processes: Processes,
}

impl Testbed {
    /// Makes an empty network. `name` shows in the namespaces' names only.
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

    /// For the first line of a test: a network, or nothing where none can be made; then the test is
    /// skipped.
    ///
    /// # Panics
    /// When none can be made and [`Need::Network`] is required.
    #[must_use]
    #[track_caller]
    pub fn require(name: &str) -> Option<Self> {
        Self::new(name)
            .map_err(|reason| Need::Network.skip(name, reason))
            .ok()
    }

    /// As [`Self::require`], for a test that calls further programs.
    ///
    /// # Panics
    /// When no network can be made or a program is missing, and [`Need::Network`] is required.
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
        // Root of a container may not: a thread that ends at once tries.
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

    /// Adds a host with nothing but a loopback interface.
    ///
    /// # Errors
    /// [`Error::NodeName`] for a name in use or unusable, [`Error::Failed`] if the kernel refuses.
    pub fn node(&mut self, name: &str) -> Result<Node, Error> {
        if !is_name(name) || self.nodes.iter().any(|node| node.name() == name) {
            return Err(Error::NodeName(name.to_owned()));
        }
        let node = Node::new(name, format!("{}-{name}", self.name));
        if stale::exists(node.namespace()) {
            // Of a killed process that had this one's number.
            stale::remove_namespace(node.namespace());
        }
        ip(&["netns", "add", node.namespace()])?;
        self.nodes.push(node.clone());
        ip(&["-n", node.namespace(), "link", "set", "dev", "lo", "up"])?;
        Ok(node)
    }

    /// Joins two hosts. The interface is called the same on both ends, `path0` for the first link
    /// of the testbed, `path1` for the second.
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
        self.links
            .push(Link::create(format!("path{}", id.0), a, b, spec)?);
        Ok(id)
    }

    fn get(&mut self, id: LinkId) -> Result<&mut Link, Error> {
        self.links
            .get_mut(id.0)
            .ok_or_else(|| Error::Foreign(format!("link {}", id.0)))
    }

    /// The name of the link's interface, the same on both ends.
    ///
    /// # Errors
    /// [`Error::Foreign`] for another testbed's link.
    pub fn interface(&mut self, id: LinkId) -> Result<String, Error> {
        Ok(self.get(id)?.interface().to_owned())
    }

    /// Takes the link's interfaces down, or up again: both ends see it at once, as with a pulled
    /// cable. Addresses stay.
    ///
    /// # Errors
    /// [`Error::Failed`] if the kernel refuses.
    pub fn set_up(&mut self, id: LinkId, up: bool) -> Result<(), Error> {
        self.get(id)?.set_up(up)
    }

    /// Makes the link swallow every packet of a direction; neither end is told.
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

    /// Makes the link lose packets of a direction at random, each with `probability` (0 to 1),
    /// drawn by the kernel: runs do not repeat.
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

    /// What went through the link so far.
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

    /// Whether a process has not ended yet.
    ///
    /// # Errors
    /// [`Error::Foreign`] for another testbed's process.
    pub fn is_running(&mut self, id: ProcessId) -> Result<bool, Error> {
        self.processes.is_running(id)
    }

    /// Kills a process and waits for it; fine if it has ended already.
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
