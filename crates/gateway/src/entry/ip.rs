//! Packets of IP (RFC 9484): a TUN device of this machine, and the request that carries what the
//! kernel sends by it.
//!
//! ```text
//! up ──> request granted ──> addresses and routes told ──> device set up ──> packets both ways
//!  └── not offered: nothing of the device is used              └── connection lost: the next `up`
//! ```
//! All packets of a tunnel are one sequence of numbers: those of `IPsec`, which drops what comes
//! long after others, and of tunnels within the tunnel need their order, and what is late holds
//! others up for 20 ms at most. So copies by several paths come out once, too.

use super::Entry;
use super::uplink::{Granted, News, Up};
use crate::ip::device::{self, Device, PACKET};
use crate::ip::keeper::Keeper;
use crate::ip::kernel::{self, CAP_NET_ADMIN, IP_TABLE, Kernel, Route};
use crate::ip::room::Room;
use crate::ip::{LEAST_V6, forwarded, is_forwarded};
use crate::payloads::{self, Activity, Payload, Sink, Source, Talk};
use crate::records::{Meter, Record, Tally};
use crate::refusal::Refusal;
use anabranch_masque::capsule::Capsule;
use anabranch_masque::ip::{Address, AddressRange, Prefix, Routes};
use anabranch_masque::{Contexts, Protocol};
use anabranch_net::interfaces;
use anabranch_proto::wire::Side;
use bytes::Bytes;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};

/// The device's name, unless told otherwise.
pub const DEVICE: &str = "anabranch";
/// Time before a request that ended, or was refused, is made again.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a far end may take to say which addresses are ours, until it has said none.
const SILENCE: Duration = Duration::from_secs(5);
/// Time before a device is read again that gave an error.
const RESUME: Duration = Duration::from_millis(200);
/// The device's MTU before it is known.
const FIRST_MTU: u16 = LEAST_V6;
/// The least MTU of IPv4 (RFC 791).
const LEAST_V4: u16 = 68;
/// Routes that are followed.
const MAX_ROUTES: usize = 1024;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The process may not change networks.
    #[error("a TUN device takes root, or CAP_NET_ADMIN")]
    Rights,
    /// No interface can be called so.
    #[error(
        "no interface can be called `{0}`: expected up to 15 letters, digits, `-`, `_` and `.`"
    )]
    Name(String),
    /// The device cannot be made.
    #[error("no TUN device `{0}`: {1}")]
    Device(String, io::Error),
}

/// What is carried now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Carried {
    /// The device that carries packets.
    pub device: String,
    /// The addresses of this machine that packets leave from; none while nothing is carried.
    pub addresses: Vec<IpAddr>,
}

impl Carried {
    pub(super) fn v4(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv4)
    }

    pub(super) fn v6(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv6)
    }
}

/// What the far end has told. Until it has, what there is stays as it is.
#[derive(Debug, Clone, Default)]
struct Told {
    addresses: Option<Vec<IpAddr>>,
    routes: Option<Vec<Prefix>>,
}

impl Told {
    /// Takes a list of addresses, which is the whole list.
    fn assigned(&mut self, list: &[Address]) {
        let ours = list.iter().filter(|one| !one.is_refusal());
        let hosts = ours.filter(|one| one.prefix.is_host());
        let ips = hosts.map(|one| one.prefix.address());
        let ips: Vec<IpAddr> = ips.filter(|ip| is_forwarded(*ip)).collect();
        let first = |is_v4: bool| ips.iter().copied().find(|ip| ip.is_ipv4() == is_v4);
        self.addresses = Some(first(true).into_iter().chain(first(false)).collect());
    }

    /// Takes a list of routes, which is the whole list. The kernel's routes know no protocols.
    fn advertised(&mut self, routes: &Routes) {
        let ranges = routes.ranges().iter().filter(|one| one.protocol() == 0);
        let prefixes = ranges.flat_map(AddressRange::prefixes);
        self.routes = Some(prefixes.take(MAX_ROUTES).collect());
    }
}

/// The device, which is made when it is needed first, unless it was kept of an earlier process.
#[derive(Debug)]
pub struct Tun {
    name: String,
    /// Whether somebody counts on it.
    is_asked_for: bool,
    device: OnceLock<Device>,
    kernel: Kernel,
    carried: watch::Sender<Carried>,
    /// Routes that were added.
    routes: Mutex<Vec<Prefix>>,
    /// How long packets were last; 0 if nobody knows.
    mtu: AtomicU16,
    /// Whether anybody was told what is carried.
    is_told: AtomicBool,
    keeper: Arc<dyn Keeper>,
}

impl Tun {
    /// Prepares a device of this name, and creates it now if `is_asked_for`. The one that `keeper`
    /// has is used as it is, if it fits.
    ///
    /// # Errors
    ///
    /// The name is not valid, the process may not change networks, or the kernel refuses.
    pub async fn new(
        name: &str,
        is_asked_for: bool,
        keeper: Arc<dyn Keeper>,
    ) -> Result<Self, TunError> {
        Self::check_name(name)?;
        if kernel::rights() & CAP_NET_ADMIN == 0 {
            return Err(TunError::Rights);
        }
        let failed = |error| TunError::Device(name.into(), error);
        let tun = Self {
            name: name.into(),
            is_asked_for,
            device: OnceLock::new(),
            kernel: Kernel::open().map_err(failed)?,
            carried: watch::Sender::default(),
            routes: Mutex::default(),
            mtu: AtomicU16::default(),
            is_told: AtomicBool::default(),
            keeper,
        };
        if let Some((device, link)) = Device::kept(name, &tun.kernel, &*tun.keeper).await {
            tun.take_over(device, link.mtu).await;
        }
        if is_asked_for {
            tun.device().map_err(failed)?;
        }
        Ok(tun)
    }

    /// Goes on with what an earlier process has carried, until the far end tells what is ours.
    async fn take_over(&self, device: Device, mtu: u16) {
        let found = kernel::addresses(device.index()).await;
        let found = found.unwrap_or_else(|error| {
            tracing::warn!("{}: {error}", self.name);
            Vec::new()
        });
        let addresses = found.into_iter().map(|(ip, _)| ip).collect();
        self.carried.send_replace(Carried {
            device: self.name.clone(),
            addresses,
        });
        match self.kernel.routes(device.index(), Some(IP_TABLE)).await {
            Ok(routes) => *self.routes.lock().await = routes,
            Err(error) => tracing::warn!("{}: {error}", self.name),
        }
        self.mtu.store(mtu, Ordering::Relaxed);
        self.device.get_or_init(|| device);
    }

    /// Checks that `name` is a valid device name.
    ///
    /// # Errors
    ///
    /// [`TunError::Name`] if it is not.
    pub fn check_name(name: &str) -> Result<(), TunError> {
        if device::is_name(name) {
            return Ok(());
        }
        Err(TunError::Name(name.into()))
    }

    /// What it carries, now and later.
    pub fn carried(&self) -> watch::Receiver<Carried> {
        self.carried.subscribe()
    }

    fn device(&self) -> io::Result<&Device> {
        if let Some(device) = self.device.get() {
            return Ok(device);
        }
        let device = Device::open(&self.name, FIRST_MTU)?;
        // Of what comes back by it, some is for hosts behind this machine.
        device.set("ipv4", "forwarding", "1");
        self.keeper.keep(device.as_fd());
        Ok(self.device.get_or_init(|| device))
    }

    /// Nothing is carried.
    fn rest(&self) {
        self.carried.send_if_modified(|carried| {
            let was_used = !carried.addresses.is_empty();
            carried.addresses.clear();
            was_used
        });
    }

    /// Sets the device up as the far end has told, for packets of this length at most. Returns
    /// whether that changed what is carried.
    async fn set_up(&self, device: &Device, told: &Told, mtu: u16) -> bool {
        self.mtu.store(mtu, Ordering::Relaxed);
        // The kernel takes everything of IPv6 from a device that carries too little for it.
        let set = self.kernel.set_mtu(device.index(), mtu.max(LEAST_V4));
        if let Err(error) = set.await {
            tracing::warn!("{}: {error}", self.name);
        }
        let has_room = |ip: &IpAddr| ip.is_ipv4() || mtu >= LEAST_V6;
        let mut addresses = Vec::new();
        for &ip in told.addresses.iter().flatten().filter(|ip| has_room(ip)) {
            if is_elsewhere(ip, &self.name).await {
                tracing::warn!("the far end assigns {ip}, which is in a subnet of this machine");
                continue;
            }
            let length = if ip.is_ipv4() { 32 } else { 128 };
            match self.kernel.add_address(device.index(), ip, length).await {
                Ok(()) => addresses.push(ip),
                Err(error) => tracing::warn!("{}: {ip}: {error}", self.name),
            }
        }
        let before = self.carried.borrow().addresses.clone();
        for ip in before.into_iter().filter(|ip| !addresses.contains(ip)) {
            let length = if ip.is_ipv4() { 32 } else { 128 };
            self.kernel.remove_address(device.index(), ip, length).await;
        }
        self.set_routes(device, told, &addresses).await;
        let carried = Carried {
            device: self.name.clone(),
            addresses,
        };
        self.carried.send_if_modified(|before| {
            let is_new = *before != carried;
            *before = carried;
            is_new
        })
    }

    async fn set_routes(&self, device: &Device, told: &Told, addresses: &[IpAddr]) {
        let route = |to: Prefix| Route {
            to,
            device: Some(device.index()),
            table: Some(IP_TABLE),
            mtu: None,
        };
        let has_source = |to: &Prefix| {
            let is_v4 = to.address().is_ipv4();
            addresses.iter().any(|ip| ip.is_ipv4() == is_v4)
        };
        let mut routes = self.routes.lock().await;
        let wanted = told.routes.as_ref().unwrap_or(&routes);
        let wanted = wanted.iter().copied().filter(has_source);
        let wanted: Vec<Prefix> = wanted.collect();
        for to in routes.iter().filter(|to| !wanted.contains(to)) {
            self.kernel.remove_route(route(*to)).await;
        }
        for to in &wanted {
            if let Err(error) = self.kernel.add_route(route(*to)).await {
                tracing::warn!("{}: no route to {to}: {error}", self.name);
            }
        }
        *routes = wanted;
    }
}

/// Whether an address belongs to a subnet that this machine is attached to by another interface.
async fn is_elsewhere(ip: IpAddr, device: &str) -> bool {
    let all = interfaces::list().await.unwrap_or_default();
    let others = all.iter().filter(|one| one.name != device);
    let mut subnets = others.flat_map(|interface| &interface.addresses);
    subnets.any(|subnet| subnet.prefix_len > 0 && subnet.covers(ip))
}

impl Entry {
    /// Carries what the kernel sends by the device, whenever the far end offers that.
    pub(super) async fn carry_ip(self: Arc<Self>) {
        let Some(tun) = &self.tun else { return };
        let (mut seen, mut told) = (0, None);
        loop {
            let up = self.uplink.next_up(seen).await;
            seen = up.number;
            loop {
                match up.ask_for_ip().await {
                    Ok(Ok(granted)) => self.use_ip(tun, &up, granted).await,
                    Ok(Err(refusal)) => {
                        tun.rest();
                        if told != Some(refusal) {
                            tell(tun, refusal);
                        }
                        told = Some(refusal);
                    }
                    Err(broken) => tracing::debug!("IP: {broken}"),
                }
                tokio::select! {
                    () = sleep(AGAIN) => {}
                    _ = up.session.connection().closed() => break,
                }
            }
        }
    }

    /// Uses what was granted, until it ends.
    async fn use_ip(&self, tun: &Tun, up: &Up, granted: Granted) {
        let device = match tun.device() {
            Ok(device) => device,
            Err(error) => {
                tun.rest();
                return tracing::warn!("no TUN device `{}`: {error}", tun.name);
            }
        };
        let Granted {
            agreed,
            in_datagrams,
            ends,
            ..
        } = granted;
        let before = tun.mtu.load(Ordering::Relaxed);
        let connection = up.session.connection();
        let room = Room::new(connection, ends.0.id(), in_datagrams, agreed, before);
        let (tells, hears) = watch::channel(Told::default());
        let heed = move |capsule| {
            tells.send_modify(|told| match capsule {
                Capsule::AddressAssign(list) => told.assigned(&list),
                Capsule::RouteAdvertisement(list) => told.advertised(&list),
                _ => {}
            });
            Vec::new()
        };
        let talk = Talk::of_ip(vec![request()], Box::new(heed));
        let contexts = Contexts::new(Side::Client, Protocol::Ip, agreed, true);
        let record = Record::unlisted();
        let tally = Tally {
            all: Arc::clone(&self.flows.datagrams),
            record: Arc::clone(&record),
        };
        let meter = Meter {
            all: &self.flows.packets,
            record: &record,
        };
        let halves = payloads::split(ends, contexts, in_datagrams, tally, talk);
        let carried = tun.carried();
        let source = FromKernel {
            device,
            carried: carried.clone(),
            buffer: vec![0; PACKET],
        };
        let sink = ToKernel { device, carried };
        let activity = Activity::lasting();
        let ended = tokio::select! {
            ended = payloads::relay(source, sink, halves, meter, &activity) => ended,
            () = self.keep_up(tun, device, hears, room) => Ok(()),
        };
        if let Err(cut) = ended {
            tracing::debug!("IP: {cut}");
        }
    }

    /// Keeps the device as the far end says and the paths allow.
    async fn keep_up(
        &self,
        tun: &Tun,
        device: &Device,
        mut hears: watch::Receiver<Told>,
        mut room: Room,
    ) {
        let heard = hears.wait_for(|told| told.addresses.is_some());
        let _ = timeout(SILENCE, heard).await;
        loop {
            let told = hears.borrow_and_update().clone();
            let is_new = tun.set_up(device, &told, room.now()).await;
            let is_first = !tun.is_told.swap(true, Ordering::Relaxed);
            if is_new || is_first {
                let Carried { device, addresses } = tun.carried.borrow().clone();
                if !addresses.is_empty() {
                    self.uplink.say(&News::Packets { device, addresses });
                }
            }
            tokio::select! {
                Ok(()) = hears.changed() => {}
                _ = room.changed() => {}
            }
        }
    }
}

/// Asks for an address of each family, whichever.
fn request() -> Capsule {
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let asked = any.into_iter().zip(1..).map(|(ip, request_id)| Address {
        request_id,
        prefix: Prefix::host(ip),
    });
    Capsule::AddressRequest(asked.collect())
}

/// Tells why nothing but TCP and UDP is carried.
fn tell(tun: &Tun, refusal: Refusal) {
    let why = match refusal {
        Refusal::Unsupported | Refusal::NotHere => {
            "the far end carries no packets of IP (`tunnel serve` does with `--ip`)".to_owned()
        }
        other => other.to_string(),
    };
    if tun.is_asked_for {
        tracing::warn!("nothing is carried by {}: {why}", tun.name);
    } else {
        tracing::info!("TCP and UDP alone are carried: {why}");
    }
}

/// What the kernel sends.
struct FromKernel<'a> {
    device: &'a Device,
    carried: watch::Receiver<Carried>,
    buffer: Vec<u8>,
}

impl Source for FromKernel<'_> {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        let length = match self.device.receive(&mut self.buffer).await {
            Ok(length) => length,
            Err(error) => {
                // Somebody has switched it off.
                tracing::debug!("{}: {error}", self.device.name());
                sleep(RESUME).await;
                return Ok(true);
            }
        };
        let bytes = &self.buffer[..length];
        let packet = forwarded(bytes);
        // What has another source would come back to nobody.
        let is_ours = |ip| self.carried.borrow().addresses.contains(&ip);
        if packet.is_some_and(|packet| is_ours(packet.source())) {
            into.push(Payload {
                remote: None,
                bytes: Bytes::copy_from_slice(bytes),
            });
        }
        Ok(true)
    }
}

/// What goes to the kernel.
struct ToKernel<'a> {
    device: &'a Device,
    carried: watch::Receiver<Carried>,
}

impl Sink for ToKernel<'_> {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        let packet = forwarded(&payload.bytes);
        let is_ours = |ip| self.carried.borrow().addresses.contains(&ip);
        if packet.is_some_and(|packet| is_ours(packet.destination())) {
            // The kernel takes no more than it has room for.
            let _ = self.device.send(&payload.bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(texts: &[(u64, &str)]) -> Vec<Address> {
        let one = |(request_id, text): &(u64, &str)| Address {
            request_id: *request_id,
            prefix: text.parse().unwrap(),
        };
        texts.iter().map(one).collect()
    }

    #[test]
    fn one_address_of_each_family_is_taken_and_none_that_means_another_thing() {
        for (list, expected) in [
            (
                &[(1, "10.90.0.2/32"), (2, "fd90::2/128")][..],
                "10.90.0.2 fd90::2",
            ),
            (&[(1, "0.0.0.0/32"), (2, "fd90::2/128")], "fd90::2"),
            (&[(0, "10.90.0.2/32"), (0, "10.90.0.3/32")], "10.90.0.2"),
            (&[(1, "127.0.0.1/32"), (2, "fe80::1/128")], ""),
            (&[(1, "10.0.0.0/8"), (2, "ff02::1/128")], ""),
        ] {
            let mut told = Told::default();
            told.assigned(&assigned(list));
            let found = told.addresses.iter().flatten().map(ToString::to_string);
            let found: Vec<String> = found.collect();
            assert_eq!(found.join(" "), expected);
        }
    }

    #[test]
    fn of_routes_as_many_are_followed_as_there_may_be() {
        let mut told = Told::default();
        let all = ["0.0.0.0/0", "::/0"].map(|text| text.parse().unwrap());
        told.advertised(&Routes::of_prefixes(all));
        assert_eq!(told.routes.as_deref(), Some(all.as_slice()));
        let many = (0..200u32).map(|at| {
            let start = IpAddr::from(Ipv4Addr::from_bits((at << 20) + 1));
            let end = IpAddr::from(Ipv4Addr::from_bits((at << 20) + 0xf_fffe));
            AddressRange::new(start, end, 0).unwrap()
        });
        told.advertised(&Routes::new(many.collect()).unwrap());
        assert_eq!(told.routes.map(|routes| routes.len()), Some(MAX_ROUTES));
    }
}
