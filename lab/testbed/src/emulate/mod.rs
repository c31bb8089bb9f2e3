//! Links between hosts of a testbed that behave as a [`LinkConfig`] says: the laboratory's network.
//!
//! Two layers can carry links, with a common interface, [`LinkLayer`]:
//!
//! - [`emulator()`]: a TAP device at each end and one thread between, with a model of
//!   `anabranch-link` for each direction. This is the simulator's model in real time, so both
//!   interpret a configuration alike, and it needs nothing of the kernel but TAP devices.
//! - [`kernel()`]: a namespace between the ends, with `tbf`, `netem` and filters on its interfaces.
//!   It does what the kernel can do, and refuses the rest.
//!
//! Neither keeps packets in the sending host's queue, where waiting distorts that host's view of
//! the network. [`kernel_in_hosts`] does exactly that, to measure the effect.
//!
//! Rates and bytes are those of IP packets, without the Ethernet header of 14 bytes, as in the
//! simulator. [`validate()`] measures whether links behave as configured.

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

use crate::{Address, Node};
use anabranch_link::LinkConfig;

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
    /// The name of its interface: at most 15 bytes, and unused on this host.
    pub interface: String,
    /// The addresses of its interface.
    pub addresses: Vec<Address>,
    /// The largest IP packet in bytes.
    pub mtu: u32,
}

/// A link to build.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    /// Its name in messages.
    pub name: String,
    /// The hosts it joins.
    pub ends: [End; 2],
    /// The configurations from the first end to the second, and back.
    pub configs: [LinkConfig; 2],
    /// The seed of loss, jitter and early drops in the emulator. The kernel's layer does not use
    /// it.
    pub seed: u64,
    /// A pcapng file for what both ends send and receive; only in the emulator.
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

    /// The index of the sending end, and of the direction in [`LinkPlan::configs`].
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

/// All links of one network, from their creation until this is dropped. Links are numbered as in
/// the plan.
pub trait LinkLayer: fmt::Debug + Send {
    /// The layer's name: `emulator` or `kernel`.
    fn name(&self) -> &'static str;

    /// Changes the configuration of one direction. Packets already in the queue or in flight stay.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what this layer cannot do, [`Error::NoSuchLink`], and whatever
    /// the kernel refuses.
    fn change(&mut self, link: usize, way: Way, config: LinkConfig) -> Result<(), Error>;

    /// Makes one direction lose everything, or ends that. Neither end notices.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], and whatever the kernel refuses.
    fn set_silent(&mut self, link: usize, way: Way, silent: bool) -> Result<(), Error>;

    /// Takes the interfaces at both ends down, or up again. Hosts notice, and waiting packets are
    /// lost. Coming up restores addresses, neighbours and the routes that used the interfaces.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], and whatever the kernel refuses.
    fn set_admin(&mut self, link: usize, up: bool) -> Result<(), Error>;

    /// The totals of one direction.
    ///
    /// # Errors
    /// [`Error::NoSuchLink`], and whatever the kernel refuses.
    fn counters(&mut self, link: usize, way: Way) -> Result<Counters, Error>;

    /// How well the layer itself has worked so far.
    fn health(&mut self) -> Health;
}

/// The totals of one direction since the link was built. Bytes are those of IP packets.
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
    /// Packets dropped because the queue was full, or to keep it short.
    pub dropped_queue: u64,
    /// Packets lost at random.
    pub dropped_chance: u64,
    /// Packets lost because the direction was silent or down.
    pub dropped_silent: u64,
    /// Frames of kinds that a link does not carry, which never entered it; not part of
    /// [`Self::packets_in`].
    pub ignored: u64,
    /// Bytes waiting now.
    pub queue_bytes: u64,
    /// The most bytes that waited at any time. The kernel's layer only knows the times at which it
    /// was asked.
    pub queue_max_bytes: u64,
    /// Mean time in the queue; unknown in the kernel's layer.
    pub mean_sojourn: Option<Duration>,
}

/// How well a layer has worked since it was built.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Health {
    /// Median lateness of the packets that left; zero if unknown.
    pub late_p50: Duration,
    /// 99th percentile of their lateness.
    pub late_p99: Duration,
    /// Largest lateness.
    pub late_max: Duration,
    /// Packets that the layer itself lost, because it fetched them too late or had no room.
    pub own_drops: u64,
    /// Packets missing from captures because the disk was slow.
    pub capture_lost: u64,
    /// Processor time of the layer's own thread.
    pub cpu: Duration,
    /// Time since the layer was built.
    pub wall: Duration,
    /// The largest share of a core used over a second, from 0 to 1.
    pub busiest_second: f64,
    /// Why measurements on these links are invalid; `None` if they are valid.
    pub verdict: Option<String>,
}
