//! IP of the exit (RFC 9484): one TUN device for all clients, from which the kernel forwards.
//!
//! ```text
//! request of a client ──> source, destination ──> device ──> kernel: forwards, masquerades ──> net
//!                     <── its queue <── destination <── device <── kernel <────────────────── net
//! ```
//! A client has the same addresses whenever it comes (`Store::lease`), and one request: a new one
//! takes the place of the one before. The kernel knows how long packets to it may be by a route.

mod check;
mod firewall;
mod pool;

pub use anabranch_masque::ip::Prefix;
pub use pool::{NoPools, Pools};

use super::guests::{Flow, Guest};
use super::{Exit, HEAD, Visit};
use crate::guard::{Guard, GuardError};
use crate::identity::on_disk;
use crate::ip::device::{Device, PACKET};
use crate::ip::keeper::Keeper;
use crate::ip::kernel::{self, CAP_NET_ADMIN, Kernel, Route};
use crate::ip::room::Room;
use crate::ip::{LEAST_V6, forwarded};
use crate::nft::{self, NftError};
use crate::payloads::{self, Activity, Counts, Payload, Sink, Source, Talk};
use crate::records::{Meter, Record, Tally};
use crate::refusal::Refusal;
use crate::session::{Broken, Incoming, Outgoing};
use anabranch_masque::capsule::Capsule;
use anabranch_masque::ip::{Packet, Undeliverable, error_message};
use anabranch_masque::target::{IpTarget, Scope};
use anabranch_masque::{Contexts, Extensions, Protocol, Response, Settings};
use anabranch_net::error::NetlinkError;
use anabranch_net::interfaces;
use anabranch_proto::wire::Side;
use bytes::Bytes;
use check::{Bounds, Refused};
use pool::Lease;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

/// The device of all clients.
pub const DEVICE: &str = "anabranch-exit";
/// Its MTU. What a client's paths carry less is said by the route to it.
const MTU: u16 = 1500;
/// Packets that wait for a client's request.
const MAX_WAITING: usize = 256;
/// Packets of which a client is told in a second that they go nowhere.
const TOLD: u32 = 20;
/// Time before a device is read again that gave an error.
const AGAIN: Duration = Duration::from_millis(200);

/// Why clients can send no packets of IP.
#[derive(Debug, thiserror::Error)]
pub enum IpError {
    /// The process may not change networks.
    #[error("packets of IP take root, or CAP_NET_ADMIN: a TUN device, routes and firewall rules")]
    Rights,
    /// The program `nft` is missing.
    #[error("packets of IP take the program `nft`, which is not here")]
    NoNft,
    /// This machine does not forward.
    #[error("this machine forwards no {0} between its interfaces")]
    NotForwarding(&'static str),
    /// A pool overlaps a subnet of this machine.
    #[error("the pool {0} and the subnet of {1} have addresses in common")]
    Taken(Prefix, String),
    /// Another process does it.
    #[error("another `anabranch tunnel serve --ip` runs on this machine")]
    Busy,
    /// The TUN device could not be made.
    #[error("no TUN device `{DEVICE}`: {0}")]
    Device(io::Error),
    /// The kernel refused the table.
    #[error("the firewall's table cannot be changed: {0}")]
    Table(String),
    /// The process that undoes it did not start.
    #[error("the process that undoes it does not start: {0}")]
    Guard(String),
    /// The kernel refused to tell or be told of addresses and routes.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The kernel refused an address.
    #[error("an address cannot be added: {0}")]
    Address(rtnetlink::Error),
    /// The kernel does not tell the routes by the device.
    #[error("routes cannot be listed: {0}")]
    Routes(rtnetlink::Error),
}

impl From<NftError> for IpError {
    fn from(error: NftError) -> Self {
        match error {
            NftError::Missing => Self::NoNft,
            NftError::Failed(why) => Self::Table(why),
        }
    }
}

impl From<GuardError> for IpError {
    fn from(error: GuardError) -> Self {
        match error {
            GuardError::Busy => Self::Busy,
            GuardError::Failed(why) => Self::Guard(why),
        }
    }
}

/// Removes what a far end has left of itself; returns whether there was anything.
pub(crate) async fn remove() -> Result<bool, NftError> {
    nft::unload(firewall::TABLE).await
}

/// Undoes what was changed of this machine, when it is stopped or this process ends.
#[derive(Debug)]
pub struct Undo(Guard);

impl Undo {
    /// Waits until nobody is there any more who undoes it when this process ends.
    pub async fn unguarded(&mut self) {
        self.0.ended().await;
    }

    /// Leaves it to whoever takes over the device, which somebody keeps; it is undone once that is
    /// gone.
    pub fn leave(self) {
        self.0.leave();
    }

    /// Undoes it, and waits for that.
    ///
    /// # Errors
    ///
    /// Something cannot be undone.
    pub async fn undo(self) -> Result<(), IpError> {
        if !self.0.stop().await {
            remove().await?;
        }
        Ok(())
    }
}

/// What waits for a client, and for which of its requests.
#[derive(Debug)]
struct Tenant {
    packets: mpsc::Sender<Bytes>,
    serial: u64,
}

/// The network of the clients.
#[derive(Debug)]
pub struct Network {
    pools: Pools,
    device: Device,
    kernel: Kernel,
    /// By their numbers.
    tenants: Mutex<BTreeMap<u32, Tenant>>,
    serials: AtomicU64,
}

impl Network {
    /// The addresses of clients and of this node.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = Prefix> {
        self.pools.prefixes()
    }

    /// Makes the network. `guard` runs [`guard`](crate::guard::guard()) in a process of its own.
    /// The device that `keeper` has is used, if it fits.
    ///
    /// # Errors
    ///
    /// Nothing is made; what was changed is soon undone.
    pub async fn start(
        pools: Pools,
        guard: Command,
        keeper: &dyn Keeper,
    ) -> Result<(Self, Undo), IpError> {
        if kernel::rights() & CAP_NET_ADMIN == 0 {
            return Err(IpError::Rights);
        }
        nft::check()?;
        for prefix in pools.prefixes() {
            let (is_v4, family) = match prefix.address() {
                IpAddr::V4(_) => (true, "IPv4"),
                IpAddr::V6(_) => (false, "IPv6"),
            };
            if !kernel::forwards(is_v4, None) {
                return Err(IpError::NotForwarding(family));
            }
        }
        is_free(&pools).await?;
        let undo = Undo(Guard::start(guard).await?);
        let kernel = Kernel::open().map_err(IpError::Device)?;
        let kept = Device::kept(DEVICE, &kernel, keeper).await;
        let device = if let Some((device, _)) = kept {
            device
        } else {
            let device = Device::open(DEVICE, MTU).map_err(IpError::Device)?;
            keeper.keep(device.as_fd());
            device
        };
        nft::load(firewall::text(&pools)).await?;
        set_addresses(&kernel, &device, &pools).await?;
        let network = Self {
            pools,
            device,
            kernel,
            tenants: Mutex::default(),
            serials: AtomicU64::default(),
        };
        Ok((network, undo))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Tenant>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out what the kernel sends to clients, for as long as it is polled.
    pub(super) async fn run(&self) {
        let mut buffer = vec![0; PACKET];
        loop {
            match self.device.receive(&mut buffer).await {
                Ok(length) => self.hand_out(&buffer[..length]),
                Err(error) => {
                    tracing::warn!("{DEVICE}: {error}");
                    sleep(AGAIN).await;
                }
            }
        }
    }

    /// What nobody takes, or not as fast, is dropped.
    fn hand_out(&self, bytes: &[u8]) {
        let Some(packet) = forwarded(bytes) else {
            return;
        };
        let Some(number) = self.pools.number(packet.destination()) else {
            return;
        };
        if let Some(tenant) = self.lock().get(&number) {
            let _ = tenant.packets.try_send(Bytes::copy_from_slice(bytes));
        }
    }

    /// Gives the addresses of this number to a new request, and takes them from the one that had
    /// them.
    fn move_in(&self, number: u32) -> (Tenancy<'_>, mpsc::Receiver<Bytes>) {
        let (packets, waiting) = mpsc::channel(MAX_WAITING);
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let tenant = Tenant {
            packets: packets.clone(),
            serial,
        };
        self.lock().insert(number, tenant);
        let tenancy = Tenancy {
            network: self,
            number,
            serial,
            packets: packets.downgrade(),
        };
        (tenancy, waiting)
    }

    /// Says how long packets to a client may be; without room there is no route of its own, as
    /// there is none for IPv6 where that has too little.
    async fn set_room(&self, number: u32, room: Option<u16>) {
        for ip in self.pools.lease(number).addresses() {
            let least = if ip.is_ipv6() { LEAST_V6 } else { 0 };
            let mtu = room.filter(|room| *room >= least);
            let route = Route {
                to: Prefix::host(ip),
                device: Some(self.device.index()),
                table: None,
                mtu,
            };
            if mtu.is_none() {
                self.kernel.remove_route(route).await;
            } else if let Err(error) = self.kernel.add_route(route).await {
                tracing::debug!("no route to {ip}: {error}");
            }
        }
    }
}

/// Gives the device the addresses of this node, and takes from it whatever an earlier process has
/// left: other addresses, and the routes to its clients, who come anew.
async fn set_addresses(kernel: &Kernel, device: &Device, pools: &Pools) -> Result<(), IpError> {
    let index = device.index();
    let lengths = pools.prefixes().map(Prefix::length);
    let ours: Vec<(IpAddr, u8)> = pools.node().addresses().zip(lengths).collect();
    for &(ip, length) in &ours {
        let added = kernel.add_address(index, ip, length);
        added.await.map_err(IpError::Address)?;
    }
    for (ip, length) in kernel::addresses(index).await? {
        if !ours.contains(&(ip, length)) {
            kernel.remove_address(index, ip, length).await;
        }
    }
    let left = kernel.routes(index, None).await.map_err(IpError::Routes)?;
    for to in left {
        let route = Route {
            to,
            device: Some(index),
            table: None,
            mtu: None,
        };
        kernel.remove_route(route).await;
    }
    Ok(())
}

/// Whether nobody here has addresses of the pools already.
async fn is_free(pools: &Pools) -> Result<(), IpError> {
    let all = interfaces::list().await?;
    for interface in all.iter().filter(|one| one.name != DEVICE) {
        for address in &interface.addresses {
            let subnet = Prefix::around(address.ip, address.prefix_len);
            let common = pools.prefixes().find(|pool| {
                let holds = |a: &Prefix, b: &Prefix| a.contains(b.address());
                subnet.is_some_and(|subnet| holds(pool, &subnet) || holds(&subnet, pool))
            });
            if let Some(pool) = common {
                return Err(IpError::Taken(pool, interface.name.clone()));
            }
        }
    }
    Ok(())
}

/// A number that a request has, until it ends or another one takes it.
#[derive(Debug)]
struct Tenancy<'a> {
    network: &'a Network,
    number: u32,
    serial: u64,
    /// Those to itself.
    packets: mpsc::WeakSender<Bytes>,
}

impl Tenancy<'_> {
    fn is_current(&self) -> bool {
        let tenants = self.network.lock();
        let current = tenants.get(&self.number);
        current.is_some_and(|tenant| tenant.serial == self.serial)
    }
}

impl Drop for Tenancy<'_> {
    fn drop(&mut self) {
        let mut tenants = self.network.lock();
        let current = tenants.get(&self.number);
        if current.is_some_and(|tenant| tenant.serial == self.serial) {
            tenants.remove(&self.number);
        }
    }
}

impl Exit {
    /// Carries packets between a client and the net.
    pub(super) async fn carry_ip(
        &self,
        visit: &Visit,
        guest: &Arc<Guest>,
        scope: Scope,
        offered: Extensions,
        (mut outgoing, incoming): (Outgoing, Incoming),
    ) -> Result<(), Broken> {
        let datagrams = visit.session.datagrams(outgoing.id());
        let (network, flow, number) = match self.admit(guest, &scope).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                tracing::debug!("IP: {refusal}");
                return outgoing.answer(incoming, &refusal.response()).await;
            }
        };
        // A peer that says nothing about itself is taken to know no datagrams.
        let settings = timeout(HEAD, visit.session.settings()).await;
        let settings = settings.unwrap_or_else(|_| Ok(Settings::default()))?;
        let in_datagrams = visit.session.has_datagrams(&settings);
        let agreed = payloads::OF_IP.and(offered);
        let mut response = Response::new(200);
        agreed.put(&mut response.headers);
        outgoing.head(&response.to_fields()).await?;
        let connection = visit.session.connection();
        let room = Room::new(connection, outgoing.id(), in_datagrams, agreed, 0);
        let contexts = Contexts::new(Side::Server, Protocol::Ip, agreed, true);
        let ends = (outgoing, incoming, datagrams);
        let lease = network.pools.lease(number);
        let talk = talk(lease, &scope);
        let record = Record::unlisted();
        let tally = Tally {
            all: flow.datagrams(),
            record: Arc::clone(&record),
        };
        let meter = Meter {
            all: flow.moved(),
            record: &record,
        };
        let halves = payloads::split(ends, contexts, in_datagrams, tally, talk);
        let (tenancy, waiting) = network.move_in(number);
        let bounds = Bounds { lease, scope };
        let source = FromNet {
            network,
            bounds: bounds.clone(),
            waiting,
        };
        let sink = ToNet {
            exit: self,
            tenancy: &tenancy,
            bounds,
            counts: &flow.datagrams(),
            told: (Instant::now(), 0),
        };
        let activity = Activity::lasting();
        let carried = tokio::select! {
            carried = payloads::relay(source, sink, halves, meter, &activity) => carried,
            () = keep_room(network, number, room) => Ok(()),
        };
        if let Err(cut) = carried {
            tracing::debug!("IP: {cut}");
        }
        if tenancy.is_current() {
            network.set_room(number, None).await;
        }
        Ok(())
    }

    async fn admit(
        &self,
        guest: &Arc<Guest>,
        scope: &Scope,
    ) -> Result<(&Network, Flow, u32), Refusal> {
        let network = self.network.as_ref().ok_or(Refusal::Unsupported)?;
        if matches!(scope.target, IpTarget::Name(_)) {
            return Err(Refusal::Unsupported);
        }
        let flow = Flow::begin(guest, self.max_flows).ok_or(Refusal::TooMany)?;
        let (store, id) = (Arc::clone(&self.store), guest.id.clone());
        let range = pool::FIRST..=network.pools.last();
        let lease = on_disk(move || store.lease(&id, &range)).await;
        match lease {
            Ok(Some(number)) => Ok((network, flow, number)),
            Ok(None) => {
                tracing::warn!("the pools have no address left for {}", guest.id);
                Err(Refusal::Full)
            }
            Err(error) => {
                tracing::warn!("a client's addresses cannot be written down: {error}");
                Err(Refusal::NotRecorded)
            }
        }
    }
}

/// Tells a client its addresses and routes at once, and its addresses whenever it asks.
fn talk(lease: Lease, scope: &Scope) -> Talk {
    let assign = move |asked: &[_]| Capsule::AddressAssign(lease.assignment(asked));
    let routes = Capsule::RouteAdvertisement(lease.routes(scope));
    let heed = move |capsule| match capsule {
        Capsule::AddressRequest(asked) => vec![assign(&asked)],
        _ => Vec::new(),
    };
    Talk::of_ip(vec![assign(&[]), routes], Box::new(heed))
}

/// Keeps the kernel informed of how long packets to a client may be.
async fn keep_room(network: &Network, number: u32, mut room: Room) {
    let mut now = room.now();
    loop {
        network.set_room(number, Some(now)).await;
        now = room.changed().await;
    }
}

/// What the net sends to a client.
struct FromNet<'a> {
    network: &'a Network,
    bounds: Bounds,
    waiting: mpsc::Receiver<Bytes>,
}

impl Source for FromNet<'_> {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        let Some(bytes) = self.waiting.recv().await else {
            // Another request of the same client has come.
            return Ok(false);
        };
        let packet = forwarded(&bytes);
        if packet.is_some_and(|packet| self.bounds.inward(&packet, &self.network.pools)) {
            into.push(Payload {
                remote: None,
                bytes,
            });
        }
        Ok(true)
    }
}

/// What a client sends to the net.
struct ToNet<'a> {
    exit: &'a Exit,
    tenancy: &'a Tenancy<'a>,
    bounds: Bounds,
    counts: &'a Counts,
    /// Since when, and how many times, it was told that something goes nowhere.
    told: (Instant, u32),
}

impl ToNet<'_> {
    async fn pass_on(&self, bytes: &[u8]) -> Result<(), Option<Vec<u8>>> {
        let network = self.tenancy.network;
        let refuse = |packet: &Packet<'_>| {
            let from = network.pools.node().beside(packet.source())?;
            error_message(packet, from, Undeliverable::Prohibited)
        };
        let (packet, to) = match self.bounds.outward(bytes, &network.pools) {
            Ok(checked) => checked,
            Err((Refused::Prohibited, Some(packet))) => return Err(refuse(&packet)),
            Err(_) => return Err(None),
        };
        if !self.exit.allow.leads_to(to).await {
            return Err(refuse(&packet));
        }
        // The kernel takes no more than it has room for.
        network.device.send(bytes).map_err(|_| None)
    }
}

impl Sink for ToNet<'_> {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        let Err(message) = self.pass_on(&payload.bytes).await else {
            return Ok(());
        };
        self.counts.lose(1);
        if self.told.0.elapsed() >= Duration::from_secs(1) {
            self.told = (Instant::now(), 0);
        }
        if let Some(message) = message.filter(|_| self.told.1 < TOLD)
            && let Some(packets) = self.tenancy.packets.upgrade()
        {
            self.told.1 += 1;
            let _ = packets.try_send(message.into());
        }
        Ok(())
    }
}
