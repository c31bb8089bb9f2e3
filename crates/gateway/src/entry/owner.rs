//! Whose process has a socket on this machine: what `/proc/net` says (`proc_net(5)`).
//!
//! The kernel lists all sockets of a kind, so this is read only where a class asks for users.

use anabranch_tunnel::class::Transport;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::task::spawn_blocking;

/// A socket as the kernel lists it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Socket {
    transport: Transport,
    local: SocketAddr,
    /// Whom it is connected to, if it is.
    peer: SocketAddr,
}

impl Socket {
    pub(crate) fn tcp(local: SocketAddr, peer: SocketAddr) -> Self {
        let transport = Transport::Tcp;
        Self {
            transport,
            local,
            peer,
        }
    }

    pub(crate) fn udp(local: SocketAddr, peer: SocketAddr) -> Self {
        let transport = Transport::Udp;
        Self {
            transport,
            local,
            peer,
        }
    }
}

/// The user whose socket this is. None if there is no such socket here: those of other hosts.
pub(super) async fn of(socket: Socket) -> Option<u32> {
    spawn_blocking(move || look(socket)).await.ok().flatten()
}

fn look(socket: Socket) -> Option<u32> {
    let lists = match socket.transport {
        Transport::Tcp => ["/proc/self/net/tcp", "/proc/self/net/tcp6"],
        Transport::Udp => ["/proc/self/net/udp", "/proc/self/net/udp6"],
    };
    lists.iter().find_map(|list| {
        let text = std::fs::read_to_string(list).ok()?;
        find(&text, socket)
    })
}

/// Looks for the socket in a list.
fn find(list: &str, socket: Socket) -> Option<u32> {
    let plain = |at: SocketAddr| (at.ip().to_canonical(), at.port());
    let (wanted, peer) = (plain(socket.local), plain(socket.peer));
    list.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (own, other) = (
            plain(address(words.next()?)?),
            plain(address(words.next()?)?),
        );
        // A socket of UDP may be bound to all addresses, and connected to nobody.
        let is_own = own == wanted || (own.1 == wanted.1 && own.0.is_unspecified());
        let is_peer = other.1 == 0 || other == peer;
        // Behind the state, the queues, the timer and the retransmissions.
        let user = words.nth(4)?;
        (is_own && is_peer).then(|| user.parse().ok()).flatten()
    })
}

/// An address as the kernel prints it: words of 32 bits as they lie in memory, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((ip, port).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

    #[tokio::test]
    async fn a_socket_of_this_process_is_its_user_s() {
        let user = Some(nix::unistd::getuid().as_raw());
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(loopback) else {
                continue;
            };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (local, peer) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            assert_eq!(of(Socket::tcp(local, peer)).await, user);
            assert_eq!(of(Socket::tcp(local, ELSEWHERE)).await, None);
        }
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let local = ([127, 0, 0, 1], socket.local_addr().unwrap().port()).into();
        assert_eq!(of(Socket::udp(local, ELSEWHERE)).await, user);
        assert_eq!(of(Socket::udp(ELSEWHERE, local)).await, None);
    }

    #[test]
    fn a_list_that_is_none_has_no_owner() {
        let socket = Socket::tcp("127.0.0.1:8080".parse().unwrap(), ELSEWHERE);
        for text in [
            "",
            "head\n",
            "head\n0: x",
            "head\n0: 0100007F:1F90 00000000:0000 0A",
        ] {
            assert_eq!(find(text, socket), None);
        }
    }
}
