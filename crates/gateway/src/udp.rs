//! UDP sockets of both nodes: nothing is fragmented, and much is read at a time.

use crate::payloads::Payload;
use bytes::BytesMut;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Reads at a time; each gets what the kernel has joined of one sender.
const READS: usize = 8;
/// The most that one of them gets.
const READ: usize = 64 << 10;
/// Bytes of payload that share an allocation.
const ARENA: usize = 16 << 10;

/// Datagrams that are sent with one call, by what kernels take (`UDP_MAX_SEGMENTS`).
pub(crate) const MOST_JOINED: usize = 64;
/// Bytes of them, with what precedes each: less than the longest datagram.
const MOST_JOINED_BYTES: usize = 60_000;

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

    /// Sends payloads of one length, of which the last may be shorter, each behind `header`, with
    /// one call: most of what a datagram costs is the way through the kernel. Returns false if the
    /// kernel does not take them so, and each has to be sent for itself.
    pub(crate) async fn send_joined(
        &self,
        header: &[u8],
        run: &[Payload],
        to: Option<SocketAddr>,
    ) -> io::Result<bool> {
        let size = header.len() + run.first().map_or(0, |first| first.bytes.len());
        let most = self.state.max_gso_segments().min(MOST_JOINED);
        if run.len() < 2 || run.len() > most || size * run.len() > MOST_JOINED_BYTES {
            return Ok(false);
        }
        let Ok(segment) = u16::try_from(size) else {
            return Ok(false);
        };
        let each = |payload| [IoSlice::new(header), IoSlice::new(payload)];
        let pieces: Vec<_> = run.iter().flat_map(|one| each(&one.bytes)).collect();
        let (to, fd) = (to.map(SockaddrStorage::from), self.socket.as_raw_fd());
        let sent = self.socket.async_io(Interest::WRITABLE, || {
            let control = [ControlMessage::UdpGsoSegments(&segment)];
            let flags = MsgFlags::empty();
            Ok(sendmsg(fd, &pieces, &control, flags, to.as_ref())?)
        });
        match sent.await {
            Ok(_) => Ok(true),
            Err(error) if is_of_joining(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// An address as its own family has it: IPv6 sockets name those of IPv4 by mapped ones.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether datagrams that were joined may leave one by one: the path or the device takes no such
/// ones, or there is no room for all.
fn is_of_joining(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    let of_all = [
        Errno::EMSGSIZE,
        Errno::EINVAL,
        Errno::EIO,
        Errno::ENOBUFS,
        Errno::EINTR,
    ];
    errno.is_some_and(|errno| of_all.contains(&errno))
}

/// Payloads in parts that can each be sent with one call; none is empty.
pub(crate) fn runs(payloads: &[Payload]) -> impl Iterator<Item = &[Payload]> {
    let mut left = payloads;
    std::iter::from_fn(move || {
        let (run, others) = left.split_at(joined(left));
        left = others;
        (!run.is_empty()).then_some(run)
    })
}

/// How many of the first payloads can be sent with one call: they have one remote end and one
/// length, but the last, which may be shorter.
fn joined(payloads: &[Payload]) -> usize {
    // What precedes each, unless it is a long name.
    const HEADER: usize = 22;
    let Some(first) = payloads.first() else {
        return 0;
    };
    let size = first.bytes.len();
    if size == 0 {
        return 1;
    }
    let most = MOST_JOINED.min(MOST_JOINED_BYTES / (size + HEADER)).max(1);
    let others = payloads.iter().take(most).skip(1);
    let is_same = |one: &&Payload| one.remote == first.remote && one.bytes.len() == size;
    let same = 1 + others.take_while(is_same).count();
    let is_last =
        |last: &Payload| last.remote == first.remote && (1..size).contains(&last.bytes.len());
    same + usize::from(same < most && payloads.get(same).is_some_and(is_last))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    fn payload(length: usize) -> Payload {
        Payload::of_target(vec![length as u8; length].into())
    }

    #[test]
    fn payloads_of_one_length_go_together_and_the_last_of_them_may_be_shorter() {
        let run = |lengths: &[usize]| {
            let payloads: Vec<Payload> = lengths.iter().map(|length| payload(*length)).collect();
            joined(&payloads)
        };
        assert_eq!(run(&[]), 0);
        assert_eq!(run(&[5]), 1);
        assert_eq!(run(&[5, 5, 5]), 3);
        assert_eq!(run(&[5, 5, 3, 5]), 3);
        assert_eq!(run(&[5, 6, 6]), 1);
        assert_eq!(run(&[5, 0, 5]), 1);
        assert_eq!(run(&[0, 0]), 1);
        assert_eq!(run(&[160; 100]), MOST_JOINED);
        assert_eq!(run(&[65_000, 65_000]), 1);
        assert!(run(&[1_400; 64]) * 1_400 <= MOST_JOINED_BYTES);
    }

    #[test]
    fn payloads_of_two_remote_ends_do_not_go_together() {
        let mut payloads = vec![payload(5), payload(5), payload(3)];
        payloads[1].remote = Some(([192, 0, 2, 1], 9).into());
        payloads[2].remote = payloads[1].remote;
        assert_eq!(joined(&payloads), 1);
        assert_eq!(joined(&payloads[1..]), 2);
    }

    #[tokio::test]
    async fn joined_payloads_arrive_one_by_one_each_behind_the_header() {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let (from, to) = (Socket::bind(here).await, Socket::bind(here).await);
        let (from, to) = (from.unwrap(), to.unwrap());
        let payloads: Vec<Payload> = [160, 160, 160, 7].map(payload).into();
        let at = to.local_addr().unwrap();
        let run = &payloads[..joined(&payloads)];
        assert_eq!(run.len(), payloads.len());
        if !from.send_joined(b"head", run, Some(at)).await.unwrap() {
            // The kernel has no such thing.
            return;
        }
        let (mut arena, mut received) = (BytesMut::new(), Vec::new());
        let all = async {
            while received.len() < payloads.len() {
                to.receive(&mut arena, &mut received).await.unwrap();
            }
        };
        timeout(Duration::from_secs(30), all)
            .await
            .expect("all of them");
        let expected: Vec<Vec<u8>> = payloads
            .iter()
            .map(|payload| [&b"head"[..], &payload.bytes].concat())
            .collect();
        let received: Vec<Vec<u8>> = received.iter().map(|one| one.bytes.to_vec()).collect();
        assert_eq!(received, expected);
    }

    #[tokio::test]
    async fn what_is_too_large_for_the_path_is_not_joined() {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let (from, to) = (Socket::bind(here).await, Socket::bind(here).await);
        let (from, at) = (from.unwrap(), to.unwrap().local_addr().unwrap());
        let run = [payload(40_000), payload(40_000)];
        assert!(!from.send_joined(&[], &run, Some(at)).await.unwrap());
        assert!(!from.send_joined(&[], &run[..1], Some(at)).await.unwrap());
    }
}
