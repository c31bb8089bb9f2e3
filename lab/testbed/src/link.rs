//! One link: a veth pair, shaped where it sends and filtered where it receives.

use std::time::Duration;

use crate::device::{self, Queue, hardware_address};
use crate::shell::{ip, run};
use crate::{Address, Error, Node, filter};

/// A full-size Ethernet frame.
const FRAME_BYTES: u32 = 1514;
/// The default burst of a token bucket, as time at the link's rate: small enough to resemble a
/// wire, large enough for the kernel's timers.
const DEFAULT_BURST: Duration = Duration::from_millis(1);
/// The default for how long a packet may wait in a full queue, as in a typical home router.
const DEFAULT_LATENCY: Duration = Duration::from_millis(50);

/// A link of a testbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub(crate) usize);

/// A rate of link-layer bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate {
    bits_per_second: u64,
}

impl Rate {
    /// `kbit` times 1000 bits a second.
    ///
    /// # Panics
    /// If that is zero or beyond 64 bits.
    #[must_use]
    pub const fn kbit(kbit: u64) -> Self {
        assert!(kbit > 0, "a link without a rate is a blackhole");
        Self {
            bits_per_second: kbit * 1000,
        }
    }

    /// `mbit` times 1 000 000 bits a second.
    ///
    /// # Panics
    /// If that is zero or beyond 64 bits.
    #[must_use]
    pub const fn mbit(mbit: u64) -> Self {
        Self::kbit(mbit * 1000)
    }

    fn bytes_in(self, time: Duration) -> u64 {
        let bits = u128::from(self.bits_per_second) * time.as_nanos() / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }
}

/// A direction of a link; A is the node given first when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From A to B.
    AToB,
    /// From B to A.
    BToA,
    /// Both ways.
    Both,
}

/// The initial properties of a link.
#[derive(Debug, Clone)]
pub struct LinkSpec {
    addr_a: Address,
    addr_b: Address,
    rate: Option<Rate>,
    burst_bytes: Option<u32>,
    latency: Duration,
}

impl LinkSpec {
    /// A link with these addresses at its ends and no limit to its rate.
    #[must_use]
    pub fn new(addr_a: Address, addr_b: Address) -> Self {
        Self {
            addr_a,
            addr_b,
            rate: None,
            burst_bytes: None,
            latency: DEFAULT_LATENCY,
        }
    }

    /// Limits both directions to `rate`.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Bytes that a direction passes at once after a pause; by default a millisecond's worth.
    #[must_use]
    pub fn burst(mut self, bytes: u32) -> Self {
        self.burst_bytes = Some(bytes);
        self
    }

    /// How long a packet may wait in the queue before later ones are dropped; by default 50 ms.
    #[must_use]
    pub fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }
}

/// What one direction has carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow {
    /// Packets that left the queue, before any random loss.
    pub packets: u64,
    /// Bytes of those packets with their Ethernet headers.
    pub bytes: u64,
    /// Packets dropped because the queue was full.
    pub queue_drops: u64,
}

/// What a link has carried since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// From A to B.
    pub a_to_b: Flow,
    /// From B to A.
    pub b_to_a: Flow,
}

/// A veth pair whose ends have the same name.
#[derive(Debug)]
pub(crate) struct Link {
    number: usize,
    interface: String,
    ends: [Node; 2],
    spec: LinkSpec,
}

impl Link {
    pub(crate) fn create(
        number: usize,
        a: &Node,
        b: &Node,
        spec: &LinkSpec,
    ) -> Result<Self, Error> {
        let link = Self {
            number,
            interface: format!("path{number}"),
            ends: [a.clone(), b.clone()],
            spec: spec.clone(),
        };
        let name = link.interface.as_str();
        let [mac_a, mac_b] = [0, 1].map(|end| hardware_address(number, end));
        let [a, b] = [a.namespace(), b.namespace()];
        ip(&[
            "link", "add", "name", name, "address", &mac_a, "netns", a, "type", "veth", "peer",
            "name", name, "address", &mac_b, "netns", b,
        ])?;
        let ends = [
            (a, spec.addr_a, spec.addr_b, &mac_b),
            (b, spec.addr_b, spec.addr_a, &mac_a),
        ];
        for (end, own, other, _) in ends {
            // One packet at a time on the wire, so that loss and counters mean packets, as on a
            // real link, and not the kernel's batches of up to 64 KiB.
            ip(&["-n", end, "link", "set", "dev", name, "gso_max_segs", "1"])?;
            // Without a link-local address the kernel does not send duplicate address detection or
            // router solicitations, so counters only count what tests send.
            ip(&["-n", end, "link", "set", "dev", name, "addrgenmode", "none"])?;
            let mut address = vec!["-n", end, "address", "add"];
            let own = own.to_string();
            address.extend([own.as_str(), "dev", name]);
            if other.ip().is_ipv6() {
                // Otherwise the address could not be used for its first second.
                address.push("nodad");
            }
            ip(&address)?;
        }
        // Set before it is up, because programs that wait for a link use it at once.
        link.set_rate(Direction::Both, spec.rate)?;
        for (end, _, other, other_mac) in ends {
            ip(&["-n", end, "link", "set", "dev", name, "up"])?;
            // Permanent neighbour entries. Without them, the kernel's own probes would fail after
            // some seconds of a silent link and cause errors.
            let other = other.ip().to_string();
            ip(&[
                "-n",
                end,
                "neighbour",
                "replace",
                &other,
                "lladdr",
                other_mac,
                "dev",
                name,
                "nud",
                "permanent",
            ])?;
        }
        link.wait_until_up()?;
        Ok(link)
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// The indices of the ends that send in `direction`.
    fn senders(direction: Direction) -> &'static [usize] {
        match direction {
            Direction::AToB => &[0],
            Direction::BToA => &[1],
            Direction::Both => &[0, 1],
        }
    }

    pub(crate) fn set_up(&self, up: bool) -> Result<(), Error> {
        let state = if up { "up" } else { "down" };
        for end in &self.ends {
            ip(&[
                "-n",
                end.namespace(),
                "link",
                "set",
                "dev",
                &self.interface,
                state,
            ])?;
        }
        if up {
            self.wait_until_up()?;
            self.restore_after_down()?;
        }
        Ok(())
    }

    fn wait_until_up(&self) -> Result<(), Error> {
        for end in &self.ends {
            device::wait_until_up(end.namespace(), &self.interface)?;
        }
        Ok(())
    }

    /// Restores the IPv6 addresses and permanent neighbours that going down removes.
    fn restore_after_down(&self) -> Result<(), Error> {
        let addresses = [self.spec.addr_a, self.spec.addr_b];
        for end in [0, 1] {
            let namespace = self.ends[end].namespace();
            if addresses[end].ip().is_ipv6() {
                let own = addresses[end].to_string();
                ip(&[
                    "-n",
                    namespace,
                    "address",
                    "replace",
                    &own,
                    "dev",
                    &self.interface,
                    "nodad",
                ])?;
            }
            let other = addresses[1 - end].ip().to_string();
            let other_mac = hardware_address(self.number, 1 - end);
            ip(&[
                "-n",
                namespace,
                "neighbour",
                "replace",
                &other,
                "lladdr",
                &other_mac,
                "dev",
                &self.interface,
                "nud",
                "permanent",
            ])?;
        }
        Ok(())
    }

    pub(crate) fn set_rate(&self, direction: Direction, rate: Option<Rate>) -> Result<(), Error> {
        for &end in Self::senders(direction) {
            let namespace = self.ends[end].namespace();
            let Some(rate) = rate else {
                if self.queue(end)?.kind == "tbf" {
                    run(
                        "tc",
                        &[
                            "-n",
                            namespace,
                            "qdisc",
                            "del",
                            "dev",
                            &self.interface,
                            "root",
                        ],
                    )?;
                }
                continue;
            };
            let burst = match self.spec.burst_bytes {
                Some(bytes) => u64::from(bytes),
                None => rate.bytes_in(DEFAULT_BURST),
            };
            // With less than a frame, nothing would ever pass.
            let burst = burst.max(2 * u64::from(FRAME_BYTES)).to_string();
            let latency = format!("{}us", self.spec.latency.as_micros().max(1));
            let rate = format!("{}bit", rate.bits_per_second);
            run(
                "tc",
                &[
                    "-n",
                    namespace,
                    "qdisc",
                    "replace",
                    "dev",
                    &self.interface,
                    "root",
                    "handle",
                    "1:",
                    "tbf",
                    "rate",
                    &rate,
                    "burst",
                    &burst,
                    "latency",
                    &latency,
                ],
            )?;
        }
        Ok(())
    }

    pub(crate) fn set_loss(&self, direction: Direction, probability: f64) -> Result<(), Error> {
        for &sender in Self::senders(direction) {
            let receiver = self.ends[1 - sender].namespace();
            // Replacing changes the filter without a gap.
            run(
                "tc",
                &[
                    "-n",
                    receiver,
                    "qdisc",
                    "replace",
                    "dev",
                    &self.interface,
                    "clsact",
                ],
            )?;
            run(
                "tc",
                &[
                    "-n",
                    receiver,
                    "filter",
                    "replace",
                    "dev",
                    &self.interface,
                    "ingress",
                    "protocol",
                    "all",
                    "prio",
                    "1",
                    "handle",
                    "1",
                    "bpf",
                    "direct-action",
                    "bytecode",
                    &filter::losing(probability, filter::PASS),
                ],
            )?;
        }
        Ok(())
    }

    pub(crate) fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters {
            a_to_b: self.flow(0)?,
            b_to_a: self.flow(1)?,
        })
    }

    fn flow(&self, sender: usize) -> Result<Flow, Error> {
        let sent = device::sent(self.ends[sender].namespace(), &self.interface)?;
        Ok(Flow {
            packets: sent.packets,
            bytes: sent.bytes,
            queue_drops: self.queue(sender)?.drops,
        })
    }

    fn queue(&self, end: usize) -> Result<Queue, Error> {
        let which = ["dev", self.interface.as_str(), "root"];
        let shown = device::queues(self.ends[end].namespace(), &which)?;
        Ok(shown.into_iter().next().unwrap_or_default())
    }
}
