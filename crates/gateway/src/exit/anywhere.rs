//! A UDP socket that sends to anybody, of both families where the machine has them, and is told
//! which remote ends refuse datagrams.

use crate::payloads::Payload;
use crate::udp::{Socket, canonical};
use bytes::BytesMut;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use socket2::{Domain, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use tokio::net::UdpSocket;

/// Addresses that nobody has (RFC 5737, RFC 3849), by which a socket that sends nothing learns from
/// which address it would.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
const DISCARD: u16 = 9;

/// Errors that are read at a time.
const ERRORS: usize = 64;

/// What ICMP says of a remote end and the kernel tells the socket, which goes on all the same.
const OF_ONE_REMOTE: [Errno; 9] = [
    Errno::ECONNREFUSED,
    Errno::EHOSTUNREACH,
    Errno::ENETUNREACH,
    Errno::EHOSTDOWN,
    Errno::ENOPROTOOPT,
    Errno::EOPNOTSUPP,
    Errno::EACCES,
    Errno::EPROTO,
    Errno::EMSGSIZE,
];

/// The socket.
#[derive(Debug)]
pub(super) struct Anywhere {
    socket: Socket,
    is_dual: bool,
}

impl Anywhere {
    pub(super) fn open() -> io::Result<Self> {
        let (socket, is_dual) = match both_families() {
            Ok(socket) => (socket, true),
            // There are machines without IPv6.
            Err(_) => (one(Domain::IPV4, Ipv4Addr::UNSPECIFIED.into())?, false),
        };
        setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        Ok(Self {
            socket: Socket::of(UdpSocket::from_std(socket.into())?)?,
            is_dual,
        })
    }

    pub(super) fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Whether it sends to this family of addresses.
    pub(super) fn has_family_of(&self, remote: SocketAddr) -> bool {
        self.is_dual || remote.is_ipv4()
    }

    /// Where it is reached, as far as this machine knows.
    pub(super) async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let (port, mut addresses) = (self.port()?, Vec::new());
        for elsewhere in ELSEWHERE {
            let elsewhere = SocketAddr::new(elsewhere, DISCARD);
            if self.has_family_of(elsewhere)
                && let Ok(probe) = Socket::connect(elsewhere).await
                && let Ok(local) = probe.local_addr()
            {
                addresses.push(SocketAddr::new(local.ip(), port));
            }
        }
        Ok(addresses)
    }

    /// Sends a datagram. What went wrong with an earlier one does not keep it from leaving.
    pub(super) async fn send_to(&self, payload: &[u8], to: SocketAddr) -> io::Result<()> {
        let to = self.named(to);
        match self.socket.send_to(payload, to).await {
            // The kernel tells what it knows of others instead of sending.
            Err(error) if is_of_one_remote(&error) => self.socket.send_to(payload, to).await,
            sent => sent,
        }
    }

    /// Sends [several](Socket::send_joined) with one call, likewise.
    pub(super) async fn send_joined(&self, run: &[Payload], to: SocketAddr) -> io::Result<bool> {
        let to = Some(self.named(to));
        match self.socket.send_joined(&[], run, to).await {
            Err(error) if is_of_one_remote(&error) => self.socket.send_joined(&[], run, to).await,
            sent => sent,
        }
    }

    /// A remote end as the socket's family has it.
    fn named(&self, remote: SocketAddr) -> SocketAddr {
        match remote {
            SocketAddr::V4(remote) if self.is_dual => {
                SocketAddr::new(remote.ip().to_ipv6_mapped().into(), remote.port())
            }
            other => other,
        }
    }

    /// Waits for datagrams, and appends those that are there, or for news of remote ends. Can be
    /// cancelled without a loss.
    pub(super) async fn receive(
        &self,
        arena: &mut BytesMut,
        into: &mut Vec<Payload>,
    ) -> io::Result<()> {
        let before = into.len();
        match self.socket.receive(arena, into).await {
            Err(error) if is_of_one_remote(&error) => {}
            received => received?,
        }
        for payload in &mut into[before..] {
            payload.remote = payload.remote.map(canonical);
        }
        Ok(())
    }

    /// Remote ends where nobody takes datagrams, as was heard since the last time.
    pub(super) fn refused(&self) -> Vec<SocketAddr> {
        let mut refused = Vec::new();
        for _ in 0..ERRORS {
            match self.socket.with(next_error) {
                Ok(Some(remote)) => refused.push(canonical(remote)),
                Ok(None) => {}
                Err(_) => break,
            }
        }
        refused
    }
}

fn is_of_one_remote(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| OF_ONE_REMOTE.contains(&errno))
}

fn both_families() -> io::Result<socket2::Socket> {
    let socket = one(Domain::IPV6, Ipv6Addr::UNSPECIFIED.into())?;
    setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
    Ok(socket)
}

fn one(domain: Domain, any: IpAddr) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(domain, Type::DGRAM, None)?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::new(any, 0).into())?;
    Ok(socket)
}

/// Takes the next error that waits: whom it is about, if that one refuses datagrams.
fn next_error(socket: &UdpSocket) -> io::Result<Option<SocketAddr>> {
    // Beside the error there is what is told of every datagram.
    let mut control = nix::cmsg_space!([u8; 512]);
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_ERRQUEUE);
    // What was sent is of no interest, only where to.
    let message = recvmsg::<SockaddrStorage>(fd, &mut [], Some(&mut control[..]), flags)?;
    let to = message.address.as_ref().and_then(socket_address);
    let mut is_refused = false;
    for one in message.cmsgs()? {
        let (ControlMessageOwned::Ipv4RecvErr(error, _)
        | ControlMessageOwned::Ipv6RecvErr(error, _)) = one
        else {
            continue;
        };
        let is_icmp = matches!(
            error.ee_origin,
            libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6
        );
        is_refused |= is_icmp && error.ee_errno == libc::ECONNREFUSED as u32;
    }
    Ok(to.filter(|_| is_refused))
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|it| (it.ip(), it.port()).into());
    v4.or_else(|| {
        let v6 = address.as_sockaddr_in6();
        v6.map(|it| (it.ip(), it.port()).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const END: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn of_several_remote_ends_it_is_known_which_one_refuses() {
        let socket = Anywhere::open().unwrap();
        let alive = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let at = dead.local_addr().unwrap();
        drop(dead);
        let heard = async {
            let (mut arena, mut received) = (BytesMut::new(), Vec::new());
            loop {
                socket.send_to(b"anybody?", at).await.unwrap();
                socket.receive(&mut arena, &mut received).await.unwrap();
                let refused = socket.refused();
                if !refused.is_empty() {
                    return refused;
                }
            }
        };
        let refused = timeout(END, heard).await.expect("news");
        assert_eq!(refused, [at]);
        // What is pending of the one does not stop what is for the other.
        socket.send_to(b"anybody?", at).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let alive_at = alive.local_addr().unwrap();
        socket.send_to(b"hello", alive_at).await.unwrap();
        let mut buffer = [0; 16];
        let received = timeout(END, alive.recv_from(&mut buffer));
        let (length, from) = received.await.expect("a datagram").unwrap();
        assert_eq!(&buffer[..length], b"hello");
        assert_eq!(from.port(), socket.port().unwrap());
        alive.send_to(b"back", from).await.unwrap();
        let (mut arena, mut received) = (BytesMut::new(), Vec::new());
        let answered = async {
            while received.is_empty() {
                socket.receive(&mut arena, &mut received).await.unwrap();
            }
        };
        timeout(END, answered).await.expect("an answer");
        assert_eq!(received[0].remote, Some(alive_at));
    }
}
