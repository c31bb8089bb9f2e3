//! Links between network namespaces that behave as a [`LinkConfig`] says: the laboratory's network.
//!
//! Two layers carry links and are used alike, as a [`LinkLayer`]:
//!
//! - [`emulator()`]: a TAP device at each end and one thread between, with a model of
//!   `anabranch-link` for each direction. It is the simulator's model in real time, so that both
//!   read a configuration alike, and it needs nothing of the kernel but TAP devices.
//! - [`kernel()`]: a namespace between the ends, with `tbf`, `netem` and filters on its interfaces.
//!   It can do what the kernel can do, and refuses the rest.
//!
//! Neither keeps packets in the queue of the host that sends, where waiting distorts what the
//! host's TCP believes of the network. [`kernel_in_hosts`] does exactly that, to measure how much.
//!
//! Rates and bytes are those of IP packets, without the Ethernet header of 14 bytes, as in the
//! simulator. [`validate()`] measures whether links are as configured.

mod capture;
mod emulator;
mod ends;
mod error;
mod kernel;
mod lateness;
mod validate;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anabranch_link::LinkConfig;
use anabranch_testbed::{Address, Node};

pub use emulator::emulator;
pub use error::Error;
pub use kernel::{kernel, kernel_in_hosts};
pub use validate::{Layer, Progress, Row, Validation, Verdict, validate};

/// Bytes of an Ethernet header, which rates and counters leave out.
const ETHERNET_BYTES: u32 = 14;

/// One end of a link.
#[derive(Debug, Clone)]
pub struct End {
    /// The host.
    pub node: Node,
    /// The name its interface gets; at most 15 bytes, and free on this host.
    pub interface: String,
    /// What the interface is called by.
    pub addresses: Vec<Address>,
    /// The largest IP packet in bytes.
    pub mtu: u32,
}

/// A link to build.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    /// What messages call it.
    pub name: String,
    /// The hosts it joins.
    pub ends: [End; 2],
    /// What it is like, from the first end to the second and back.
    pub configs: [LinkConfig; 2],
    /// Decides about loss, jitter and early drops in the emulator. The kernel draws as it likes.
    pub seed: u64,
    /// Where to write what both ends send and receive, as pcapng; the emulator only.
    pub pcap: Option<PathBuf>,
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the first end to the second.
    Forward,
    /// From the second end to the first.
    Backward,
}

impl Way {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Backward];

    /// The place of the sending end, and of the direction in [`LinkPlan::configs`].
    fn index(self) -> usize {
        match self {
            Self::Forward => 0,
            Self::Backward => 1,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        })
    }
}

/// All links of one network, from when they are built until they are dropped. Links are named by
/// their places in the plan.
pub trait LinkLayer: fmt::Debug + Send {
    /// Which layer this is: `emulator` or `kernel`.
    fn name(&self) -> &'static str;

    /// Makes one direction like this from now on. Packets that wait or are under way stay.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what this layer cannot do, [`Error::NoSuchLink`], and whatever
    /// the kernel refuses.
    fn change(&mut self, link: usize, way: Way, config: LinkConfig) -> Result<(), Error>;

    /// Makes one direction lose everything, or ends that. Neither end is told.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], and whatever the kernel refuses.
    fn set_silent(&mut self, link: usize, way: Way, silent: bool) -> Result<(), Error>;

    /// Takes the interfaces at both ends down, or up again. Hosts are told, and what waits is lost.
    /// Addresses, neighbours and the routes that used the interfaces are put back.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], and whatever the kernel refuses.
    fn set_admin(&mut self, link: usize, up: bool) -> Result<(), Error>;

    /// What one direction has done so far.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], and whatever the kernel refuses.
    fn counters(&mut self, link: usize, way: Way) -> Result<Counters, Error>;

    /// How well the layer itself has done so far.
    fn health(&mut self) -> Health;
}

/// What one direction of a link has done since it was built. Bytes are those of IP packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that entered.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that left at the other end.
    pub packets_delivered: u64,
    /// Their bytes.
    pub bytes_delivered: u64,
    /// Packets that found no room in the queue, or were dropped to keep it short.
    pub dropped_queue: u64,
    /// Packets that vanished by chance.
    pub dropped_chance: u64,
    /// Packets that vanished because the direction was silent, or down.
    pub dropped_silent: u64,
    /// Frames that did not enter because a link does not carry their kind; not among
    /// [`Self::packets_in`].
    pub ignored: u64,
    /// Bytes that wait now.
    pub queue_bytes: u64,
    /// The most bytes that waited at a time. The kernel's layer knows only the moments at which it
    /// was asked.
    pub queue_max_bytes: u64,
    /// Mean time in the queue; not known in the kernel's layer.
    pub mean_sojourn: Option<Duration>,
}

/// How well a layer has done since it was built.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Health {
    /// How late half of the packets left, at most. Zero where it is not known.
    pub late_p50: Duration,
    /// How late 99 of 100 packets left, at most.
    pub late_p99: Duration,
    /// How late the latest one left.
    pub late_max: Duration,
    /// Packets the layer itself lost: it did not fetch them in time, or had no room.
    pub own_drops: u64,
    /// Packets missing from captures because the disk was slow.
    pub capture_lost: u64,
    /// Processor time of the layer's own thread.
    pub cpu: Duration,
    /// Time since the layer was built.
    pub wall: Duration,
    /// The largest share of a core used over a second, from 0 to 1.
    pub busiest_second: f64,
    /// Why what was measured on these links is invalid; nothing if it is not.
    pub verdict: Option<String>,
}
