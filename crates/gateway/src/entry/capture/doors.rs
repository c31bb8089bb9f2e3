//! Sockets where captured traffic comes out: transparent ones, which take what is for anybody.

use super::OURS;
use super::unreachable::Unreachable;
use crate::status::Captured;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use socket2::{Domain, Socket, Type};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::{TcpListener, UdpSocket};

/// Connections of hosts that nobody has taken yet.
const BACKLOG: i32 = 1024;

/// The ports that the table sends captured traffic to: of TCP and of UDP.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) v4: Option<(u16, u16)>,
    pub(super) v6: Option<(u16, u16)>,
}

/// Where captured traffic comes out.
#[derive(Debug)]
pub struct Doors {
    pub(in crate::entry) tcp: Vec<TcpListener>,
    pub(in crate::entry) udp: Vec<Arc<Datagrams>>,
    pub(in crate::entry) unreachable: Unreachable,
    /// What they are for.
    pub(in crate::entry) captured: Captured,
    ports: Ports,
}

impl Doors {
    pub(super) fn open(captured: Captured) -> io::Result<Self> {
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        let mut open = |ip: IpAddr| {
            let stream = transparent((ip, 0).into(), Type::STREAM)?;
            stream.listen(BACKLOG)?;
            let stream = TcpListener::from_std(stream.into())?;
            let datagrams = Datagrams::open(ip)?;
            let ports = (
                stream.local_addr()?.port(),
                datagrams.socket.local_addr()?.port(),
            );
            tcp.push(stream);
            udp.push(Arc::new(datagrams));
            io::Result::Ok(ports)
        };
        let v4 = Some(open(Ipv4Addr::LOCALHOST.into())?);
        // There are machines without IPv6.
        let v6 = match open(Ipv6Addr::LOCALHOST.into()) {
            Ok(ports) => Some(ports),
            Err(error) if is_without(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            tcp,
            udp,
            unreachable: Unreachable::open(),
            captured,
            ports: Ports { v4, v6 },
        })
    }

    pub(super) fn ports(&self) -> Ports {
        self.ports
    }
}

/// Whether there is no such family of addresses here.
fn is_without(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}

/// A socket with this address, which need not be one of this machine. What it sends is never
/// captured.
fn transparent(local: SocketAddr, kind: Type) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), kind, None)?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // The option of IPv4 sets what both families look at.
    setsockopt(&socket, sockopt::IpTransparent, &true)?;
    socket.set_mark(OURS)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    Ok(socket)
}

/// A socket that speaks to a host in the name of the target it has sent to. What the host sends
/// there from now on comes by it.
pub(super) fn in_the_name_of(target: SocketAddr, host: SocketAddr) -> io::Result<UdpSocket> {
    let socket = transparent(target, Type::DGRAM)?;
    socket.connect(&host.into())?;
    UdpSocket::from_std(socket.into())
}

/// A socket that speaks in the name of somebody and hears nothing: what hosts send there comes out
/// of the door, as the kernel leads to connected sockets alone (TPROXY).
pub(super) fn speaking_as(name: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::from_std(transparent(name, Type::DGRAM)?.into())
}

/// A datagram of a host that has no socket yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct First {
    pub(super) host: SocketAddr,
    pub(super) target: SocketAddr,
    /// Its code point (RFC 2474).
    pub(super) dscp: Option<u8>,
    pub(super) length: usize,
}

/// First datagrams of all flows of a family.
#[derive(Debug)]
pub(in crate::entry) struct Datagrams {
    socket: UdpSocket,
}

impl Datagrams {
    fn open(ip: IpAddr) -> io::Result<Self> {
        let socket = transparent((ip, 0).into(), Type::DGRAM)?;
        if ip.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true)?;
            setsockopt(&socket, sockopt::IpRecvTos, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true)?;
            setsockopt(&socket, sockopt::Ipv6RecvTClass, &true)?;
        }
        let socket = UdpSocket::from_std(socket.into())?;
        Ok(Self { socket })
    }

    /// Waits for a datagram. `None` if the kernel does not say whom it is for.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<First>> {
        let receive = || self.receive_now(buffer);
        self.socket.async_io(Interest::READABLE, receive).await
    }

    fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Option<First>> {
        let mut control = nix::cmsg_space!(libc::sockaddr_in6, libc::c_int);
        let mut parts = [IoSliceMut::new(buffer)];
        let fd = self.socket.as_raw_fd();
        let (control, flags) = (Some(&mut control[..]), MsgFlags::empty());
        let message = recvmsg::<SockaddrStorage>(fd, &mut parts, control, flags)?;
        let (mut target, mut dscp) = (None, None);
        for one in message.cmsgs()? {
            match one {
                ControlMessageOwned::Ipv4OrigDstAddr(to) => target = Some(from_v4(&to)),
                ControlMessageOwned::Ipv6OrigDstAddr(to) => target = Some(from_v6(&to)),
                // The last two bits are of ECN.
                ControlMessageOwned::Ipv4Tos(tos) => dscp = Some(tos >> 2),
                ControlMessageOwned::Ipv6TClass(class) => dscp = u8::try_from(class >> 2).ok(),
                _ => {}
            }
        }
        let host = message.address.and_then(|address| {
            let v4 = address
                .as_sockaddr_in()
                .map(|it| (it.ip(), it.port()).into());
            let v6 = || {
                address
                    .as_sockaddr_in6()
                    .map(|it| (it.ip(), it.port()).into())
            };
            v4.or_else(v6)
        });
        let length = message.bytes;
        let first = |(host, target)| First {
            host,
            target,
            dscp,
            length,
        };
        Ok(host.zip(target).map(first))
    }
}

fn from_v4(address: &libc::sockaddr_in) -> SocketAddr {
    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
    (ip, u16::from_be(address.sin_port)).into()
}

fn from_v6(address: &libc::sockaddr_in6) -> SocketAddr {
    let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
    (ip, u16::from_be(address.sin6_port)).into()
}
