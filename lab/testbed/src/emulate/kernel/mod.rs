//! Links from the kernel's own parts: a namespace between the ends, in which each direction passes
//! a rate limit with its queue, then loss and delay.
//!
//! ```text
//!   | a0 -> (loss before) -> [tbf: rate, queue] f0 -> g0 -> (loss after) -> [netem] b0 |
//! a |                                                                                  | b
//!   | a0 [netem] <- (loss after) <- s0 <- r0 [tbf: rate, queue] <- (loss before) <- b0 |
//! ```
//!
//! `f0`-`g0` and `r0`-`s0` are pairs within the middle namespace that only provide queues. Rate and
//! delay need separate queues, since a queue that delays counts the delayed packets against its
//! limit.
//!
//! Packets would belong to the sending socket all the way, even across namespaces. Its TCP would
//! then keep only two of them in the bottleneck's queue (TCP small queues), where it would fill a
//! router's queue. So each host's interface has a netem of 1 us, which detaches them from the
//! socket.
//!
//! Packets move between devices by redirection; random loss and silence are filters. After a change
//! of rate, the packet being sent still leaves at the old rate, because `tbf` does not recompute
//! its time.

mod commands;
#[cfg(test)]
mod tests;

use std::time::Instant;

use anabranch_link::LinkConfig;

use crate::device::{self, Queue, Sent};
use crate::{Node, Testbed};

use crate::emulate::ends::{self, SavedRoutes};
use crate::emulate::{Counters, ETHERNET_BYTES, Error, Health, LinkLayer, LinkPlan, Way};
use commands::Stations;

/// The layer's name in messages.
const LAYER: &str = "kernel's layer";

/// Builds links from `veth`, `tbf`, `netem` and filters, in a namespace between the ends. They
/// vanish when the returned object is dropped; the next start removes what a killed process left
/// behind.
///
/// # Errors
/// [`Error::Unsupported`] for what the parts cannot do or this kernel lacks, [`Error::Plan`] for a
/// plan that no machine can carry out, [`Error::Testbed`] for what the kernel refuses.
pub fn kernel(links: Vec<LinkPlan>) -> Result<Box<dyn LinkLayer>, Error> {
    build(links, DelayIn::Middle)
}

/// Builds links as [`kernel()`] does, but with the delay in the sending host's queue, where many
/// put it with `tc qdisc add dev eth0 root netem delay`. There it distorts TCP, since the host
/// takes delayed packets for unsent ones. This layer exists to show that.
///
/// # Errors
/// Those of [`kernel()`].
pub fn kernel_in_hosts(links: Vec<LinkPlan>) -> Result<Box<dyn LinkLayer>, Error> {
    build(links, DelayIn::Hosts)
}

/// The queue that delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DelayIn {
    Middle,
    Hosts,
}

fn build(links: Vec<LinkPlan>, delay_in: DelayIn) -> Result<Box<dyn LinkLayer>, Error> {
    ends::check(&links)?;
    for plan in &links {
        if plan.pcap.is_some() {
            return Err(unsupported(plan, Way::Forward, "captures".to_owned()));
        }
        for way in Way::BOTH {
            let lacking = commands::lacking(&plan.configs[way.index()]);
            if let Some(what) = lacking {
                return Err(unsupported(plan, way, what));
            }
        }
    }
    let mut bed = Testbed::new("links")?;
    let middle = bed.node("middle")?;
    for device in ["all", "default"] {
        // Otherwise the devices in the middle would send packets of their own.
        if std::path::Path::new("/proc/sys/net/ipv6").exists() {
            middle.set_sysctl(&format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
        }
    }
    let directions = links.iter().map(|_| [Direction::default(); 2]).collect();
    let saved = links.iter().map(|_| None).collect();
    let mut layer = Kernel {
        links,
        directions,
        saved,
        middle,
        delay_in,
        started: Instant::now(),
        has_netem: None,
        _bed: bed,
    };
    for link in 0..layer.links.len() {
        layer.build_link(link)?;
    }
    Ok(Box::new(layer))
}

fn unsupported(plan: &LinkPlan, way: Way, what: String) -> Error {
    Error::Unsupported {
        link: plan.name.clone(),
        way,
        layer: LAYER,
        what,
    }
}

/// The state of a direction.
#[derive(Debug, Clone, Copy, Default)]
struct Direction {
    silent: bool,
    /// What the filters dropped in earlier silences.
    silent_drops: u64,
    /// The filters' drop count at the start of the current silence.
    silent_since: Option<u64>,
    queue_max_bytes: u64,
}

#[derive(Debug)]
struct Kernel {
    links: Vec<LinkPlan>,
    directions: Vec<[Direction; 2]>,
    /// What is restored when a link comes up again.
    saved: Vec<Option<SavedRoutes>>,
    middle: Node,
    delay_in: DelayIn,
    started: Instant,
    /// Whether this kernel has netem, once that has been checked.
    has_netem: Option<bool>,
    /// Owns the middle namespace, and removes it.
    _bed: Testbed,
}

impl Kernel {
    fn build_link(&mut self, link: usize) -> Result<(), Error> {
        let plan = &self.links[link];
        self.middle.ip(&commands::devices(link, plan))?;
        for (index, end) in plan.ends.iter().enumerate() {
            // One packet at a time, as on a wire, since loss and queues count packets.
            let single = format!("link set dev {} gso_max_segs 1", end.interface);
            end.node.ip(&[single])?;
            ends::set_up(link, plan, index)?;
        }
        self.middle.tc(&commands::redirections(link))?;
        for way in Way::BOTH {
            let config = self.links[link].configs[way.index()].clone();
            self.configure(link, way, &config)?;
        }
        self.wait_for_carriers(link)
    }

    /// Configures the parts of a direction.
    fn configure(&mut self, link: usize, way: Way, config: &LinkConfig) -> Result<(), Error> {
        let plan = &self.links[link];
        if let Some(what) = commands::lacking(config) {
            return Err(unsupported(plan, way, what));
        }
        let now = &plan.configs[way.index()];
        if std::mem::discriminant(&now.queue) != std::mem::discriminant(&config.queue) {
            let what = "another kind of queue while the link is in use".to_owned();
            return Err(unsupported(plan, way, what));
        }
        let with_netem = self.has_netem();
        if commands::needs_netem(config) && !with_netem {
            let what = "delay, jitter or bursts of loss: it has no netem (`modprobe sch_netem`)";
            return Err(unsupported(&self.links[link], way, what.to_owned()));
        }
        let plan = &mut self.links[link];
        let stations = Stations::of(link, way);
        let mtu = plan.ends[0].mtu;
        let mut shaping = commands::shaping(&stations, config, mtu);
        let sender = &plan.ends[way.index()];
        match self.delay_in {
            _ if !with_netem => {}
            DelayIn::Middle => {
                shaping.push(commands::delaying(&stations.exit, config, None));
                sender.node.tc(&[commands::releasing(&sender.interface)])?;
            }
            DelayIn::Hosts => {
                let limit = Some(commands::NETEM_DEFAULT_PACKETS);
                let delaying = commands::delaying(&sender.interface, config, limit);
                sender.node.tc(&[delaying])?;
            }
        }
        self.middle.tc(&shaping)?;
        plan.configs[way.index()] = config.clone();
        self.filter(link, way)
    }

    /// Sets the filters of a direction for its loss and its silence.
    fn filter(&mut self, link: usize, way: Way) -> Result<(), Error> {
        let config = self.links[link].configs[way.index()].clone();
        let stations = Stations::of(link, way);
        let silent = self.directions[link][way.index()].silent || !config.up;
        let dropped = self.measure(&stations)?.filter_drops();
        let direction = &mut self.directions[link][way.index()];
        match (silent, direction.silent_since) {
            (true, None) => direction.silent_since = Some(dropped),
            (false, Some(since)) => {
                direction.silent_drops += dropped - since;
                direction.silent_since = None;
            }
            _ => {}
        }
        self.middle
            .tc(&commands::losing(&stations, &config, silent))?;
        Ok(())
    }

    fn has_netem(&mut self) -> bool {
        let middle = &self.middle;
        *self.has_netem.get_or_insert_with(|| {
            let add = "qdisc add dev lo root netem delay 1ms".to_owned();
            let delete = "qdisc del dev lo root".to_owned();
            middle.tc(&[add, delete]).is_ok()
        })
    }

    fn plan(&self, link: usize) -> Result<&LinkPlan, Error> {
        self.links.get(link).ok_or(Error::NoSuchLink {
            link,
            count: self.links.len(),
        })
    }

    fn wait_for_carriers(&self, link: usize) -> Result<(), Error> {
        for end in &self.links[link].ends {
            device::wait_until_up(end.node.namespace(), &end.interface)?;
        }
        Ok(())
    }

    fn measure(&self, stations: &Stations) -> Result<Measured, Error> {
        let middle = self.middle.namespace();
        let queues = device::queues(middle, &[])?;
        let find = |device: &str, kinds: &[&str]| {
            let found = queues
                .iter()
                .find(|q| q.dev == device && kinds.contains(&q.kind.as_str()));
            found.cloned().unwrap_or_default()
        };
        Ok(Measured {
            entry: find(&stations.entry, &["clsact"]),
            shaper: find(&stations.shaper, &["tbf"]),
            between: find(&stations.between, &["clsact"]),
            exit: find(&stations.exit, &["netem"]),
            sent: device::sent(middle, &stations.exit)?,
        })
    }
}

impl LinkLayer for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn change(&mut self, link: usize, way: Way, config: LinkConfig) -> Result<(), Error> {
        self.plan(link)?;
        self.configure(link, way, &config)
    }

    fn set_silent(&mut self, link: usize, way: Way, silent: bool) -> Result<(), Error> {
        self.plan(link)?;
        self.directions[link][way.index()].silent = silent;
        self.filter(link, way)
    }

    fn set_admin(&mut self, link: usize, up: bool) -> Result<(), Error> {
        self.plan(link)?;
        if ends::set_admin(link, &self.links[link], up, &mut self.saved[link])? && up {
            self.wait_for_carriers(link)?;
        }
        Ok(())
    }

    fn counters(&mut self, link: usize, way: Way) -> Result<Counters, Error> {
        self.plan(link)?;
        let measured = self.measure(&Stations::of(link, way))?;
        let direction = &mut self.directions[link][way.index()];
        let waiting = measured.shaper.backlog;
        direction.queue_max_bytes = direction.queue_max_bytes.max(waiting);
        let filtered = measured.filter_drops();
        let now = direction.silent_since.map_or(0, |since| filtered - since);
        let silent = direction.silent_drops + now;
        let sent = measured.sent;
        Ok(Counters {
            packets_in: measured.entry.packets,
            bytes_in: measured.entry.bytes,
            packets_delivered: sent.packets,
            bytes_delivered: sent.bytes - sent.packets * u64::from(ETHERNET_BYTES),
            dropped_queue: measured.shaper.drops,
            dropped_chance: filtered - silent + measured.exit.drops,
            dropped_silent: silent,
            ignored: 0,
            queue_bytes: waiting,
            queue_max_bytes: direction.queue_max_bytes,
            mean_sojourn: None,
        })
    }

    fn health(&mut self) -> Health {
        Health {
            wall: self.started.elapsed(),
            ..Health::default()
        }
    }
}

impl Drop for Kernel {
    /// Deletes the devices first. The kernel removes the content of a namespace some time after the
    /// namespace itself, and would refuse interfaces of the same names until then.
    fn drop(&mut self) {
        for link in 0..self.links.len() {
            for device in commands::to_hosts(link) {
                // The device is missing if building stopped before it.
                let _ = self.middle.ip(&[format!("link delete dev {device}")]);
            }
        }
    }
}

/// What the parts of a direction have counted.
#[derive(Debug)]
struct Measured {
    entry: Queue,
    shaper: Queue,
    between: Queue,
    exit: Queue,
    sent: Sent,
}

impl Measured {
    fn filter_drops(&self) -> u64 {
        self.entry.drops + self.between.drops
    }
}
