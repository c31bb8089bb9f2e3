//! Node A: takes connections of hosts and applications, and carries each on a stream to the exit.

mod associate;
mod bundle;
pub mod capture;
mod entrance;
mod flows;
mod http;
pub mod ip;
pub mod links;
mod owner;
mod policy;
mod quarantine;
pub(crate) mod socks;
mod uplink;

pub use entrance::{Credential, Entrance, Invited, NoCredential, Proxy};
pub use uplink::{Dial, Dialling, Failed, Far, News};

use crate::payloads::Counts;
use crate::records::{About, Listed, Meter, Records};
use crate::refusal::Refusal;
use crate::relay::{Cut, Moved, relay_ahead};
use crate::session::Incoming;
use crate::status::flow::Phase;
use crate::status::{self, Connections, Datagrams, Near, Snapshot, Status, Traffic};
use crate::udp::canonical;
use anabranch_masque::Target;
use anabranch_net::PathManager;
use anabranch_tunnel::class::{Classes, Transport};
use bytes::Bytes;
use capture::Doors;
use ip::Tun;
use links::Links;
use policy::{Beginning, Classed, Policy};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use uplink::{Opened, Up, Uplink};

/// How long a client may take to say what it wants.
const REQUEST: Duration = Duration::from_secs(15);
/// How long the answer to a client that is refused may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// Connections of clients at a time.
const MAX_FLOWS: usize = 16_384;
/// Time before the next connection is taken where the system has no more descriptors.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// What a client wants.
#[derive(Debug)]
struct Wanted {
    target: Target,
    /// What it sent without waiting for an answer.
    early: Bytes,
}

/// What a client asked for.
#[derive(Debug)]
enum Asked {
    Connection(Wanted),
    /// UDP, from this port of the client; 0 if it does not know it yet.
    Association {
        port: u16,
    },
}

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Socks,
    Http,
    /// The client speaks to its target, and does not know of us.
    Captured,
}

impl Dialect {
    async fn read(self, socket: &mut TcpStream) -> io::Result<Option<Asked>> {
        match self {
            Self::Socks => socks::read(socket).await,
            Self::Http => Ok(http::read(socket).await?.map(Asked::Connection)),
            Self::Captured => Ok(captured(socket)?.map(Asked::Connection)),
        }
    }

    async fn answer(self, socket: &mut TcpStream, result: Result<(), Refusal>) -> io::Result<()> {
        match self {
            Self::Socks => socks::answer(socket, result).await,
            Self::Http => http::answer(socket, result).await,
            Self::Captured => Ok(()),
        }
    }

    /// Tells a client why it gets no connection, and closes the one it has to us.
    async fn refuse(self, mut socket: TcpStream, refusal: Refusal) -> io::Result<()> {
        if self == Self::Captured {
            // The reset that its target would have sent.
            return socket.set_zero_linger();
        }
        self.answer(&mut socket, Err(refusal)).await?;
        leave(socket).await
    }
}

/// What a client wants that was captured: whom it has connected to, as it sees it.
fn captured(socket: &TcpStream) -> io::Result<Option<Wanted>> {
    let target = socket.local_addr()?;
    // Somebody has found the port.
    let is_captured = !target.ip().is_loopback();
    Ok(is_captured.then(|| Wanted {
        target: target.into(),
        early: Bytes::new(),
    }))
}

/// Whose connections a listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// Those of applications that know a proxy.
    Proxy,
    /// Those of hosts that know nothing.
    Capture,
}

/// Counts of the flows of an entry.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    pub(crate) open: AtomicUsize,
    pub(crate) opened: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// What packets of IP moved, which are of no class.
    pub(crate) packets: Moved,
    pub(crate) datagrams: Arc<Counts>,
    pub(crate) records: Arc<Records>,
}

/// What is seen of an entry at one time.
struct Seen {
    up: Option<Up>,
    moved: (u64, u64),
    paths: Snapshot,
}

/// Node A.
pub struct Entry {
    listeners: Vec<(TcpListener, Door)>,
    /// Where captured traffic comes out, if any is captured.
    doors: Option<Doors>,
    /// Where packets of any protocol come out, if they do.
    tun: Option<Tun>,
    uplink: Uplink,
    /// What each link is for, where somebody says so.
    links: Option<Arc<Links>>,
    policy: Policy,
    flows: Flows,
}

impl Entry {
    /// Listens for SOCKS5 and HTTP CONNECT on all of these addresses.
    ///
    /// # Errors
    ///
    /// One of them cannot be listened on.
    pub async fn bind(addresses: &[SocketAddr], far: Far) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for &address in addresses {
            let bound = TcpListener::bind(address).await.map_err(|error| {
                io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
            });
            listeners.push((bound?, Door::Proxy));
        }
        Ok(Self {
            listeners,
            doors: None,
            tun: None,
            uplink: Uplink::new(far),
            links: None,
            policy: Policy::default(),
            flows: Flows::default(),
        })
    }

    /// Carries what comes out of these doors, too.
    #[must_use]
    pub fn with_doors(mut self, mut doors: Doors) -> Self {
        let captured = doors.tcp.drain(..).map(|one| (one, Door::Capture));
        self.listeners.extend(captured);
        self.doors = Some(doors);
        self
    }

    /// Carries what the kernel sends by this device, too.
    #[must_use]
    pub fn with_tun(mut self, tun: Tun) -> Self {
        self.tun = Some(tun);
        self
    }

    /// Uses paths by the rules of these links, which the dialling side has to use too.
    #[must_use]
    pub fn with_links(mut self, links: Arc<Links>) -> Self {
        self.links = Some(links);
        self
    }

    /// Classifies flows that begin from now on by these classes; returns whether the classes
    /// changed.
    pub fn set_classes(&self, classes: Classes) -> bool {
        self.policy.set(classes)
    }

    /// The manager that opens the paths of the connection that stands.
    pub fn manager(&self) -> Option<PathManager> {
        self.uplink.current().map(|up| up.manager)
    }

    /// The addresses where it listens for applications.
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        let proxies = self
            .listeners
            .iter()
            .filter(|(_, door)| *door == Door::Proxy);
        proxies
            .filter_map(|(one, _)| one.local_addr().ok())
            .collect()
    }

    /// Serves until a failure that retrying cannot mend; returns it. Whoever cancels this calls
    /// [`close`](Self::close).
    pub async fn run(self: &Arc<Self>) -> Failed {
        // They end with this, whether it returns or is cancelled.
        let mut accepting = JoinSet::new();
        for at in 0..self.listeners.len() {
            accepting.spawn(Arc::clone(self).accept(at));
        }
        for door in self.doors.iter().flat_map(|doors| &doors.udp) {
            accepting.spawn(Arc::clone(self).captured_udp(Arc::clone(door)));
        }
        if self.tun.is_some() {
            accepting.spawn(Arc::clone(self).carry_ip());
        }
        accepting.spawn(Arc::clone(self).count_expired());
        let Some(links) = &self.links else {
            return self.uplink.keep().await;
        };
        tokio::select! {
            failed = self.uplink.keep() => failed,
            never = links.keep(&self.uplink) => match never {},
        }
    }

    /// Counts the datagrams that could not leave in time. What is open on a connection may go on
    /// beside the next one.
    async fn count_expired(self: Arc<Self>) {
        let (mut counting, mut seen) = (JoinSet::new(), 0);
        loop {
            let up = self.uplink.next_up(seen).await;
            seen = up.number;
            let (entry, connection) = (Arc::clone(&self), up.session.connection().clone());
            counting.spawn(async move {
                let all = || Some(Arc::clone(&entry.flows.datagrams));
                entry.flows.records.count_expired(connection, all).await;
            });
            while counting.try_join_next().is_some() {}
        }
    }

    /// The near end's status; rates are measured for a second.
    pub async fn status(&self) -> Status {
        let before = self.look();
        sleep(status::MEASURED).await;
        self.describe(&before, &self.look())
    }

    /// The status without rates, for callers that ask again and again.
    pub fn glance(&self) -> Status {
        let seen = self.look();
        self.describe(&seen, &seen)
    }

    fn look(&self) -> Seen {
        let up = self.uplink.current();
        let connection = up.as_ref().map(|up| up.session.connection());
        let (flows, packets) = (self.policy.moved(), self.flows.packets.so_far());
        Seen {
            paths: status::snapshot(connection),
            moved: (flows.0 + packets.0, flows.1 + packets.1),
            up,
        }
    }

    fn describe(&self, before: &Seen, after: &Seen) -> Status {
        let number = |seen: &Seen| seen.up.as_ref().map(|up| up.number);
        let is_same = number(before) == number(after);
        let nothing = Snapshot::new();
        let paths = if is_same { &before.paths } else { &nothing };
        let up = after.up.as_ref();
        let mut paths = status::paths(paths, &after.paths, up.map(|up| &up.manager));
        if let Some(links) = &self.links {
            links.describe(&mut paths);
        }
        Status::Near(Near {
            far_end: up.map(|up| up.name().to_owned()),
            connected_seconds: up.map(|up| up.since.elapsed().as_secs()),
            trouble: self.uplink.trouble(),
            listening: self.local_addrs(),
            captured: self.doors.as_ref().map(|doors| doors.captured.clone()),
            connections: Connections::of(&self.flows),
            traffic: Traffic::between(before.moved, after.moved),
            datagrams: Datagrams::of_near(&self.flows.datagrams),
            classes: self.policy.shown(),
            paths,
        })
    }

    /// Tells hosts of datagrams that cannot be delivered.
    fn unreachable(&self) -> Option<&capture::Unreachable> {
        self.doors.as_ref().map(|doors| &doors.unreachable)
    }

    /// Flows that are open.
    #[cfg(test)]
    pub(crate) fn open_flows(&self) -> usize {
        self.flows.open.load(Ordering::Relaxed)
    }

    /// The connection that stands.
    #[cfg(test)]
    pub(crate) fn connection(&self) -> Option<anabranch_net::Connection> {
        let up = self.uplink.current()?;
        Some(up.session.connection().clone())
    }

    /// Flows that were made.
    #[cfg(test)]
    pub(crate) fn opened_flows(&self) -> u64 {
        self.flows.opened.load(Ordering::Relaxed)
    }

    /// Flows that could not be made.
    #[cfg(test)]
    pub(crate) fn refused_flows(&self) -> u64 {
        self.flows.refused.load(Ordering::Relaxed)
    }

    /// Carries a connection as if a host that knows nothing of it had made it.
    #[cfg(test)]
    pub(crate) async fn carry_captured(&self, socket: TcpStream, target: Target) -> io::Result<()> {
        let early = Bytes::new();
        let wanted = Wanted { target, early };
        self.connect(socket, Dialect::Captured, wanted).await
    }

    /// Tells the exit that this is the end.
    pub fn close(&self) {
        self.uplink.close();
    }

    async fn accept(self: Arc<Self>, listener: usize) {
        let (listener, door) = &self.listeners[listener];
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    if self.flows.open.load(Ordering::Relaxed) < MAX_FLOWS {
                        tokio::spawn(Arc::clone(&self).serve(socket, *door));
                    }
                }
                Err(error) => {
                    tracing::warn!("no connection can be taken: {error}");
                    sleep(EXHAUSTED).await;
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, socket: TcpStream, door: Door) {
        let _open = Open::new(&self.flows.open);
        match self.carry(socket, door).await {
            Ok(()) => {}
            Err(error) => tracing::debug!("a flow ended early: {error}"),
        }
    }

    async fn carry(self: &Arc<Self>, mut socket: TcpStream, door: Door) -> io::Result<()> {
        let asked = timeout(REQUEST, async {
            let Some(dialect) = dialect(&socket, door).await? else {
                return Ok(None);
            };
            let asked = dialect.read(&mut socket).await?;
            io::Result::Ok(asked.map(|asked| (dialect, asked)))
        });
        let (dialect, wanted) = match asked.await?? {
            Some((dialect, Asked::Connection(wanted))) => (dialect, wanted),
            Some((_, Asked::Association { port })) => return self.associate(socket, port).await,
            None => return leave(socket).await,
        };
        self.connect(socket, dialect, wanted).await
    }

    /// Connects a client to what it wants, and carries what both send.
    async fn connect(&self, socket: TcpStream, dialect: Dialect, wanted: Wanted) -> io::Result<()> {
        let (host, target) = (socket.peer_addr()?, socket.local_addr()?);
        let beginning = Beginning {
            transport: Transport::Tcp,
            host,
            socket: owner::Socket::tcp(host, target),
            dscp: None,
        };
        let flow = self.enlist(host, &wanted.target, false);
        let class = self.policy.classify(beginning, &wanted.target).await;
        class.mark(&flow);
        let goes_ahead = dialect == Dialect::Captured && self.uplink.takes_early();
        let ahead = || async {
            if !goes_ahead || !has_written(&socket).await {
                std::future::pending::<()>().await;
            }
        };
        let opened = tokio::select! {
            opened = self.uplink.open(&wanted.target, &class.treatment, &flow, ahead) => opened,
            // Nobody waits for the answer any more.
            () = gone(&socket), if wanted.early.is_empty() => return Ok(()),
        };
        match opened {
            Ok(opened) => {
                let host = (socket, dialect, wanted);
                self.carry_on(host, opened, &class, &flow).await
            }
            Err(refusal) => {
                flow.ends(&refusal);
                self.count_refused(&wanted.target, refusal);
                dialect.refuse(socket, refusal).await
            }
        }
    }

    /// Carries what a client and its target send; the target may have yet to be reached.
    async fn carry_on(
        &self,
        (mut socket, dialect, wanted): (TcpStream, Dialect, Wanted),
        opened: Opened,
        class: &Classed,
        flow: &Listed,
    ) -> io::Result<()> {
        let Opened { ends, is_answered } = opened;
        let stands = || {
            self.flows.opened.fetch_add(1, Ordering::Relaxed);
            flow.enter(Phase::Open);
        };
        if is_answered {
            stands();
            dialect.answer(&mut socket, Ok(())).await?;
        }
        let answered = async |incoming: &mut Incoming| {
            if !is_answered {
                self.uplink.answer(incoming).await?;
                stands();
            }
            Ok(())
        };
        let meter = Meter {
            all: class.moved(),
            record: flow,
        };
        let (outgoing, incoming) = ends;
        let relayed = relay_ahead(socket, outgoing, incoming, wanted.early, meter, answered);
        match relayed.await {
            Ok(()) => {}
            Err(Cut::Refused(refusal)) => self.count_refused(&wanted.target, refusal),
            Err(cut) => tracing::debug!("{cut}"),
        }
        Ok(())
    }

    fn count_refused(&self, target: &Target, refusal: Refusal) {
        self.flows.refused.fetch_add(1, Ordering::Relaxed);
        tracing::info!("{target}: {refusal}");
    }

    /// A flow begins, and is listed until its end.
    pub(super) fn enlist(&self, source: SocketAddr, target: &Target, is_udp: bool) -> Listed {
        self.flows.records.begin(About {
            is_udp,
            target: target.clone(),
            source: Some(canonical(source)),
            client: None,
        })
    }

    /// The flows of this number, target or source, or the biggest ones; measured for a second.
    pub async fn flows(&self, called: Option<&str>, most: usize) -> status::flow::Flows {
        let mut flows = self.flows.records.show(called, most, true).await;
        let up = self.uplink.current();
        flows.explain(|_| Some(up.as_ref()?.session.connection().clone()));
        flows
    }
}

/// How a client speaks that came by this door; `None` if it is gone.
async fn dialect(socket: &TcpStream, door: Door) -> io::Result<Option<Dialect>> {
    if door == Door::Capture {
        return Ok(Some(Dialect::Captured));
    }
    let mut first = [0];
    if socket.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    Ok(Some(match first {
        [socks::VERSION] => Dialect::Socks,
        _ => Dialect::Http,
    }))
}

/// Waits until a client that waits for an answer is gone. One that has sent more is there.
async fn gone(socket: &TcpStream) {
    if has_written(socket).await {
        std::future::pending::<()>().await;
    }
}

/// Waits until a client has sent something, or nothing more can come of it.
async fn has_written(socket: &TcpStream) -> bool {
    matches!(socket.peek(&mut [0]).await, Ok(1))
}

/// Closes a connection so that its client gets to read the answer: what it has sent meanwhile would
/// make the system reset it.
async fn leave(mut socket: TcpStream) -> io::Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    socket.shutdown().await?;
    let mut rest = [0; 1024];
    let drained = timeout(FAREWELL, async {
        while socket.read(&mut rest).await? > 0 {}
        Ok(())
    });
    drained.await.unwrap_or(Ok(()))
}

/// Counts something while it lasts.
pub(crate) struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    pub(crate) fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
