//! UDP sockets of both nodes: nothing is fragmented, and much is read at a time.

use crate::payloads::Payload;
use bytes::BytesMut;
use nix::errno::Errno;
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Reads at a time; each gets what the kernel has joined of one sender.
const READS: usize = 8;
/// The most that one of them gets.
const READ: usize = 64 << 10;
/// Bytes of payload that share an allocation.
const ARENA: usize = 16 << 10;

/// What there is to read: datagrams, or what ICMP says of one that was sent.
const HEARD: Interest = Interest::READABLE.add(Interest::ERROR);

thread_local! {
    /// Where the kernel writes to, before it is known how much.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READS * READ]);
}

/// A UDP socket. What leaves it is marked "don't fragment", and Not-ECT.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

impl Socket {
    pub(crate) async fn bind(local: SocketAddr) -> io::Result<Self> {
        Self::of(UdpSocket::bind(local).await?)
    }

    /// One that was made elsewhere.
    pub(crate) fn of(socket: UdpSocket) -> io::Result<Self> {
        // Sets the bits in question on every kind of system.
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self { socket, state })
    }

    /// One that sends to this address and receives from it alone.
    pub(crate) async fn connect(remote: SocketAddr) -> io::Result<Self> {
        let any: IpAddr = match remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = Self::bind((any, 0).into()).await?;
        socket.socket.connect(remote).await?;
        Ok(socket)
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Does something with the socket itself.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&UdpSocket) -> T) -> T {
        work(&self.socket)
    }

    /// Waits for datagrams, and appends those that are there. Can be cancelled without a loss.
    pub(crate) async fn receive(
        &self,
        arena: &mut BytesMut,
        into: &mut Vec<Payload>,
    ) -> io::Result<()> {
        loop {
            let ready = self.socket.ready(HEARD).await?;
            // One at a time: the runtime knows no more.
            let heard = if ready.is_readable() {
                Interest::READABLE
            } else {
                Interest::ERROR
            };
            let read = self.socket.try_io(heard, || {
                BUFFER.with_borrow_mut(|buffer| self.read(buffer, arena, into))
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    fn read(
        &self,
        buffer: &mut [u8],
        arena: &mut BytesMut,
        into: &mut Vec<Payload>,
    ) -> io::Result<()> {
        let mut metas = [RecvMeta::default(); READS];
        let mut slices = buffer.chunks_exact_mut(READ).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; READS] =
            std::array::from_fn(|_| slices.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let socket = UdpSockRef::from(&self.socket);
        let count = self.state.recv(socket, &mut slices, &mut metas)?;
        for (meta, slice) in metas.iter().zip(&slices).take(count) {
            let joined = &slice[..meta.len];
            // An empty datagram is one too.
            let mut add = |payload: &[u8]| {
                if arena.capacity() < payload.len() {
                    arena.reserve(ARENA.max(payload.len()));
                }
                arena.extend_from_slice(payload);
                let bytes = arena.split().freeze();
                let remote = Some(meta.addr);
                into.push(Payload { remote, bytes });
            };
            if joined.is_empty() {
                add(joined);
            }
            joined.chunks(meta.stride.max(1)).for_each(add);
        }
        Ok(())
    }

    /// Sends to where it is connected to.
    pub(crate) async fn send(&self, payload: &[u8]) -> io::Result<()> {
        self.socket.send(payload).await.map(|_| ())
    }

    pub(crate) async fn send_to(&self, payload: &[u8], to: SocketAddr) -> io::Result<()> {
        self.socket.send_to(payload, to).await.map(|_| ())
    }
}

/// An address as its own family has it: IPv6 sockets name those of IPv4 by mapped ones.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// What of an error ends a socket's use: not that one datagram was too large.
pub(crate) fn lasting(result: io::Result<()>) -> io::Result<()> {
    let Err(error) = result else { return Ok(()) };
    let errno = error.raw_os_error().map(Errno::from_raw);
    match errno {
        Some(Errno::EMSGSIZE | Errno::ENOBUFS | Errno::EINTR | Errno::EAGAIN) => Ok(()),
        _ => Err(error),
    }
}
