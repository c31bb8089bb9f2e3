//! UDP sockets, one for each local address or interface: batched both ways.
//!
//! Decides how datagrams pass to and from the kernel (GSO, GRO, ECN, source addresses) and what a
//! failed send means. Which socket carries what is the engine's decision.

use anabranch_proto::datagram::Ecn;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, SockAddr, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[cfg(test)]
mod tests;

/// The requested size of a socket's buffers, in bytes: about 30 ms at a gigabit per second in each
/// direction. The kernel grants at most `net.core.rmem_max` and `wmem_max`.
pub const BUFFER_BYTES: usize = 4 << 20;

/// Messages taken from the kernel per call. Each may hold dozens of datagrams (GRO), so more would
/// only delay acknowledgements.
const MESSAGES: usize = 8;

/// The most bytes of a message: what the kernel merges at most (GRO).
const MESSAGE_BYTES: usize = 1 << 16;

/// The most bytes the kernel accepts in one call with GSO: the limit of a UDP payload, minus the
/// IPv6 header.
const MAX_SEND_BYTES: usize = 65_535 - 48;

/// The most segments the kernel accepts in one call with GSO (`UDP_MAX_SEGMENTS` of older kernels).
const MAX_SEND_SEGMENTS: usize = 64;

/// How long datagrams are sent one by one after the kernel refused a batch of them: some network
/// drivers do not support GSO, but a later route may use another driver.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Where a socket is bound, and how large its buffers should be.
#[derive(Debug, Clone)]
pub struct SocketConfig {
    /// The local address; port 0 lets the kernel choose.
    pub local: SocketAddr,
    /// The interface to bind to, so that datagrams leave through it whatever the routing table
    /// says.
    pub device: Option<String>,
    /// The mark of what leaves it (`SO_MARK`, which takes `CAP_NET_ADMIN`), by which rules of
    /// routing and of firewalls know it.
    pub mark: Option<u32>,
    /// The requested size of the receive buffer, in bytes.
    pub recv_buffer: usize,
    /// The requested size of the send buffer, in bytes.
    pub send_buffer: usize,
    /// Whether received datagrams report the local address they were sent to. A server on a
    /// wildcard address needs this to answer from that address.
    pub report_local: bool,
}

impl SocketConfig {
    /// A client's socket on this address, for one path.
    pub fn path(local: IpAddr, device: Option<String>) -> Self {
        Self {
            device,
            report_local: false,
            ..Self::listen(SocketAddr::new(local, 0))
        }
    }

    /// A server's socket.
    pub fn listen(local: SocketAddr) -> Self {
        Self {
            local,
            device: None,
            mark: None,
            recv_buffer: BUFFER_BYTES,
            send_buffer: BUFFER_BYTES,
            report_local: local.ip().is_unspecified(),
        }
    }
}

/// How firmly a socket is bound to its interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// No interface was requested.
    Address,
    /// Bound to the interface itself.
    Device,
    /// The kernel refused to bind to the interface (kernels before 5.7 require `CAP_NET_RAW`), so
    /// only the source address is fixed. Datagrams leave through the interface only if the routing
    /// rules say so; see [`crate::routes`].
    AddressOnly,
}

/// Why a datagram was not sent.
#[derive(Debug)]
pub enum SendError {
    /// The send buffer is full; wait until the socket is writable.
    Blocked,
    /// The datagram does not fit the link, as is to be expected of MTU probes.
    TooBig,
    /// The interface or its address is gone: nothing can be sent here for now.
    Fault(io::Error),
    /// No route leads from here to this destination. Others may still be reachable: someone who
    /// sends from strange addresses must not make the socket look dead to the peers that share it.
    Unreachable(io::Error),
    /// This datagram is lost; the next one may get through.
    Dropped(io::Error),
}

impl SendError {
    fn classify(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::WouldBlock {
            return Self::Blocked;
        }
        if is_fault(&error) {
            return Self::Fault(error);
        }
        match errno(&error) {
            Some(Errno::EMSGSIZE) => Self::TooBig,
            Some(
                Errno::ENETUNREACH
                | Errno::EHOSTUNREACH
                | Errno::EHOSTDOWN
                | Errno::ENONET
                // A firewall rule, or a source address that does not fit the destination.
                | Errno::EPERM
                | Errno::EACCES
                | Errno::EINVAL,
            ) => Self::Unreachable(error),
            _ => Self::Dropped(error),
        }
    }

    /// Whether quinn-udp takes this error as a sign that the kernel supports neither GSO nor the
    /// ECN field. Sending to an invalid destination fails with the same error.
    fn blames_offload(&self) -> bool {
        match self {
            Self::Unreachable(error) | Self::Dropped(error) => {
                matches!(errno(error), Some(Errno::EINVAL | Errno::EIO))
            }
            _ => false,
        }
    }
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

/// Whether an error means that the socket's interface or address is gone. Neither incoming packets
/// nor the address of a single peer can cause one of these.
pub(crate) fn is_fault(error: &io::Error) -> bool {
    matches!(
        errno(error),
        Some(Errno::ENETDOWN | Errno::ENODEV | Errno::ENXIO | Errno::EADDRNOTAVAIL)
    )
}

/// Whether a datagram can really come from this address: it must not have port 0 and must stand for
/// exactly one host. The kernel refuses to send to any other address, so not even an answer is
/// possible.
fn is_answerable(remote: SocketAddr) -> bool {
    let is_host = match remote.ip() {
        // 0.0.0.0/8 is "this network" (RFC 1122, section 3.2.1.3).
        IpAddr::V4(ip) => ip.octets()[0] != 0 && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    };
    remote.port() != 0 && is_host
}

/// Receive buffers, reused for every batch and shared by the sockets of a driver.
pub struct RecvBatch {
    bytes: Box<[u8]>,
    meta: [RecvMeta; MESSAGES],
    count: usize,
}

/// One received datagram. Its bytes may be decrypted in place.
#[derive(Debug)]
pub struct Received<'a> {
    /// The sender's address.
    pub remote: SocketAddr,
    /// The address it was sent to, if the socket reports it.
    pub local: Option<IpAddr>,
    /// The ECN field, unless Not-ECT.
    pub ecn: Option<Ecn>,
    /// The payload.
    pub data: &'a mut [u8],
}

impl RecvBatch {
    /// Empty buffers.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; MESSAGES * MESSAGE_BYTES].into_boxed_slice(),
            meta: [RecvMeta::default(); MESSAGES],
            count: 0,
        }
    }

    /// Whether the last batch was full, so that more may be waiting.
    pub fn is_full(&self) -> bool {
        self.count == MESSAGES
    }

    /// The datagrams of the last batch, with merged ones split, except those from impossible source
    /// addresses.
    pub fn datagrams(&mut self) -> impl Iterator<Item = Received<'_>> {
        let messages = self.meta[..self.count]
            .iter()
            .zip(self.bytes.chunks_mut(MESSAGE_BYTES));
        let messages = messages.filter(|(meta, _)| is_answerable(canonical(meta.addr)));
        messages.flat_map(|(meta, bytes)| {
            let remote = canonical(meta.addr);
            let local = meta.dst_ip.map(|ip| ip.to_canonical());
            let ecn = meta.ecn.map(ecn_from_codepoint);
            bytes[..meta.len]
                .chunks_mut(meta.stride.max(1))
                .map(move |data| Received {
                    remote,
                    local,
                    ecn,
                    data,
                })
        })
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch")
            .field("messages", &self.count)
            .finish_non_exhaustive()
    }
}

/// One datagram to send, or several of equal size.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The destination.
    pub remote: SocketAddr,
    /// The source address, if the socket is bound to more than one.
    pub local: Option<IpAddr>,
    /// The ECN field to set.
    pub ecn: Option<Ecn>,
    /// Size of each datagram if there are several; the last may be shorter.
    pub segment_size: Option<usize>,
    /// The payloads, one after the other.
    pub contents: &'a [u8],
}

/// What the kernel can do for us, as far as known.
#[derive(Debug)]
struct Offload {
    state: UdpSocketState,
    /// When the kernel last refused a batch whose datagrams were then sent one by one.
    refused: Option<Instant>,
}

impl Offload {
    /// Asks the kernel what it supports.
    fn probe(io: &UdpSocket) -> io::Result<UdpSocketState> {
        let state = UdpSocketState::new(UdpSockRef::from(io))?;
        // quinn-udp 0.6.3 requests timestamps but reserves only 96 bytes for control messages. With
        // a merged batch's size and the destination address, no room is left for the ECN field,
        // which the kernel appends last and then drops.
        setsockopt(io, sockopt::ReceiveTimestampns, &false)?;
        Ok(state)
    }

    fn max_segments(&self) -> usize {
        if self.refused.is_some_and(|at| at.elapsed() < REFUSED_FOR) {
            1
        } else {
            self.state.max_gso_segments().min(MAX_SEND_SEGMENTS)
        }
    }
}

/// A bound UDP socket.
#[derive(Debug)]
pub struct Socket {
    /// Registered for reading alone: otherwise the kernel would wake a thread for each datagram
    /// sent, as soon as it has left and its room is free again.
    io: AsyncFd<UdpSocket>,
    /// Registered for writing while the send buffer is full. The same socket by another name, since
    /// each name can be registered once.
    full: Mutex<Option<AsyncFd<OwnedFd>>>,
    offload: RwLock<Offload>,
    local: SocketAddr,
    device: Option<String>,
    binding: Binding,
    report_local: bool,
}

impl Socket {
    /// Binds a socket. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The address does not belong to this machine or is in use, or the interface does not exist.
    pub fn bind(config: &SocketConfig) -> io::Result<Self> {
        Self::bind_to(config, false)
    }

    /// Binds `count` sockets, one at least, to the same address: the kernel leads what comes from
    /// one address to one of them. No other program can have the address.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    pub(crate) fn bind_group(config: &SocketConfig, count: usize) -> io::Result<Vec<Self>> {
        // Bound alone: otherwise a program of the same user that does as this one would share the
        // address. Later ones of the group are let in.
        let first = Self::bind(config)?;
        let config = SocketConfig {
            local: first.local,
            ..config.clone()
        };
        let mut group = vec![first];
        if count > 1 {
            socket2::SockRef::from(group[0].io.get_ref()).set_reuse_port(true)?;
        }
        for _ in 1..count {
            group.push(Self::bind_to(&config, true)?);
        }
        Ok(group)
    }

    fn bind_to(config: &SocketConfig, is_of_group: bool) -> io::Result<Self> {
        let socket = socket2::Socket::new(
            Domain::for_address(config.local),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        if config.local.is_ipv6() {
            // The IPv6 wildcard address also accepts IPv4, so that one listener serves every
            // client.
            socket.set_only_v6(!config.local.ip().is_unspecified())?;
        }
        let binding = match &config.device {
            None => Binding::Address,
            Some(device) => bind_device(&socket, device)?,
        };
        if let Some(mark) = config.mark {
            socket.set_mark(mark)?;
        }
        if is_of_group {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&SockAddr::from(config.local))?;
        // Best effort: the kernel silently reduces the size, and a small buffer costs speed, not
        // correctness.
        let _ = socket.set_recv_buffer_size(config.recv_buffer);
        let _ = socket.set_send_buffer_size(config.send_buffer);
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from(socket);
        let offload = Offload {
            state: Offload::probe(&socket)?,
            refused: None,
        };
        let local = socket.local_addr()?;
        Ok(Self {
            io: registered(socket, Interest::READABLE)?,
            full: Mutex::new(None),
            offload: RwLock::new(offload),
            local,
            device: config.device.clone(),
            binding,
            report_local: config.report_local,
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The interface the socket was requested for.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// How firmly the socket is bound to that interface.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// Whether the socket serves all interfaces: a failed send then says nothing about the next
    /// one.
    pub fn is_wildcard(&self) -> bool {
        self.local.ip().is_unspecified() && self.device.is_none()
    }

    /// Whether datagrams can be sent to `remote` at all, that is, whether the address families
    /// match.
    pub fn can_reach(&self, remote: SocketAddr) -> bool {
        self.local.is_ipv4() == remote.is_ipv4()
            || (self.local.is_ipv6() && self.local.ip().is_unspecified())
    }

    /// The address that datagrams to `remote` leave from: the bound one, or what the system would
    /// choose now.
    pub(crate) fn address_towards(&self, remote: SocketAddr) -> Option<IpAddr> {
        let bound = self.local.ip();
        if !bound.is_unspecified() {
            return Some(bound.to_canonical());
        }
        let device = self.device.as_deref();
        let mark = socket2::SockRef::from(self.io.get_ref()).mark().ok();
        let is_device = self.binding == Binding::Device;
        routed_from(remote, device.filter(|_| is_device), mark)
    }

    /// Receives waiting datagrams into `batch`, or arranges a wake-up.
    ///
    /// # Errors
    ///
    /// The socket itself failed; a datagram cannot make it fail.
    pub fn poll_recv(&self, cx: &mut Context<'_>, batch: &mut RecvBatch) -> Poll<io::Result<()>> {
        batch.count = 0;
        loop {
            let _ = ready!(self.io.poll_read_ready(cx))?;
            let result = self.io.try_io(Interest::READABLE, |_| self.recv_now(batch));
            match result {
                Ok(count) => {
                    batch.count = count;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Receives waiting datagrams into `batch` without asking the runtime, which may not have
    /// noticed them yet. Does not arrange a wake-up.
    pub(crate) fn recv_unannounced(&self, batch: &mut RecvBatch) -> Poll<io::Result<()>> {
        batch.count = 0;
        match self.recv_now(batch) {
            Ok(count) => {
                batch.count = count;
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn recv_now(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        let mut rest = &mut batch.bytes[..];
        let mut slices: [IoSliceMut<'_>; MESSAGES] = std::array::from_fn(|_| {
            let (message, tail) = std::mem::take(&mut rest).split_at_mut(MESSAGE_BYTES);
            rest = tail;
            IoSliceMut::new(message)
        });
        let count = self.offload().state.recv(
            UdpSockRef::from(self.io.get_ref()),
            &mut slices,
            &mut batch.meta,
        )?;
        if !self.report_local {
            batch.meta[..count]
                .iter_mut()
                .for_each(|meta| meta.dst_ip = None);
        }
        Ok(count)
    }

    /// Waits until the send buffer has room, if it was found full.
    ///
    /// # Errors
    ///
    /// The runtime is shutting down.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &*self.full() {
            Some(waiting) => waiting.poll_write_ready(cx).map_ok(drop),
            None => Poll::Ready(Ok(())),
        }
    }

    fn full(&self) -> MutexGuard<'_, Option<AsyncFd<OwnedFd>>> {
        self.full.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends after the send buffer was found full, through the runtime, so that it will report when
    /// there is room.
    fn send_when_full(&self, send: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut full = self.full();
        let waiting = match &mut *full {
            Some(waiting) => waiting,
            none => {
                let name = self.io.get_ref().as_fd().try_clone_to_owned()?;
                none.insert(registered(name, Interest::WRITABLE)?)
            }
        };
        waiting.try_io(Interest::WRITABLE, |_| send())
    }

    /// Sends without waiting. On an error, the count says how many bytes of `contents` were sent.
    ///
    /// # Errors
    ///
    /// See [`SendError`].
    pub fn try_send(&self, outgoing: &Outgoing<'_>) -> Result<(), (usize, SendError)> {
        let Some(segment) = outgoing
            .segment_size
            .filter(|&size| size < outgoing.contents.len())
        else {
            return self
                .send_piece(outgoing, outgoing.contents, None)
                .map_err(|error| (0, error));
        };
        let mut sent = 0;
        // Whether a batch was refused, so that its datagrams are tried one by one.
        let mut one_by_one = false;
        while sent < outgoing.contents.len() {
            let segments = match self.offload().max_segments() {
                _ if one_by_one => 1,
                most => most.min(MAX_SEND_BYTES / segment).max(1),
            };
            let end = outgoing.contents.len().min(sent + segments * segment);
            let piece = &outgoing.contents[sent..end];
            match self.send_piece(outgoing, piece, Some(segment)) {
                Ok(()) => {
                    sent = end;
                    if std::mem::take(&mut one_by_one) {
                        self.offload_mut(|offload| offload.refused = Some(Instant::now()));
                    }
                }
                Err(error) if segments > 1 && error.blames_offload() => one_by_one = true,
                Err(error) => return Err((sent, error)),
            }
        }
        Ok(())
    }

    fn offload(&self) -> RwLockReadGuard<'_, Offload> {
        self.offload.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn offload_mut(&self, change: impl FnOnce(&mut Offload)) {
        change(&mut self.offload.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Discards what quinn-udp concluded from a failed send: otherwise it would stop using GSO and
    /// ECN for the lifetime of the socket, whatever the reason was.
    fn probe_again(&self) {
        if let Ok(state) = Offload::probe(self.io.get_ref()) {
            self.offload_mut(|offload| offload.state = state);
        }
    }

    fn send_piece(
        &self,
        outgoing: &Outgoing<'_>,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> Result<(), SendError> {
        let transmit = quinn_udp::Transmit {
            destination: self.for_family(outgoing.remote),
            ecn: outgoing.ecn.map(ecn_to_codepoint),
            contents,
            segment_size,
            src_ip: outgoing.local.filter(|_| self.report_local),
        };
        let send = || {
            let offload = self.offload();
            offload
                .state
                .try_send(UdpSockRef::from(self.io.get_ref()), &transmit)
        };
        let result = match send() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.send_when_full(send),
            result => {
                // There is room: nobody has to be told.
                *self.full() = None;
                result
            }
        };
        result.map_err(|error| {
            let error = SendError::classify(error);
            if error.blames_offload() {
                self.probe_again();
            }
            error
        })
    }

    /// The destination in the address format of this socket's family.
    fn for_family(&self, remote: SocketAddr) -> SocketAddr {
        match remote {
            SocketAddr::V4(v4) if self.local.is_ipv6() => {
                SocketAddr::V6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0))
            }
            other => other,
        }
    }
}

/// A descriptor of which the runtime tells what it is ready for.
fn registered<T: AsRawFd>(descriptor: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    #[allow(
        deprecated,
        reason = "sound where the descriptor stays the same and open, as that of a socket does"
    )]
    AsyncFd::with_interest(descriptor, interest)
}

fn bind_device(socket: &socket2::Socket, device: &str) -> io::Result<Binding> {
    match socket.bind_device(Some(device.as_bytes())) {
        Ok(()) => Ok(Binding::Device),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(
                "binding to {device} takes CAP_NET_RAW: using its address only, so routing rules \
                 must send that address's packets out by {device}"
            );
            Ok(Binding::AddressOnly)
        }
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("interface {device}: {error}"),
        )),
    }
}

/// The address from which the system would send to `remote`, if it has a route: through this
/// device and with this mark, if they are given.
pub(crate) fn routed_from(
    remote: SocketAddr,
    device: Option<&str>,
    mark: Option<u32>,
) -> Option<IpAddr> {
    let domain = Domain::for_address(remote);
    let socket = socket2::Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).ok()?;
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes())).ok()?;
    }
    if let Some(mark) = mark.filter(|mark| *mark != 0) {
        socket.set_mark(mark).ok()?;
    }
    // Nothing is sent: connecting a datagram socket only looks up the route.
    socket.connect(&SockAddr::from(remote)).ok()?;
    let local = socket.local_addr().ok()?.as_socket()?;
    Some(local.ip().to_canonical())
}

/// The wildcard address of the same family as `remote`.
pub fn wildcard_for(remote: SocketAddr) -> IpAddr {
    if remote.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    }
}

/// Converts IPv4-mapped IPv6 addresses, which dual-stack sockets report, to IPv4.
fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

fn ecn_from_codepoint(codepoint: EcnCodepoint) -> Ecn {
    match codepoint {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}

fn ecn_to_codepoint(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}
