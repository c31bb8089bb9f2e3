//! One end of a plain proxy pair, for hosts that know nothing of multipath TCP.
//!
//! ```text
//! client  TCP - near end =(multipath TCP)= far end - TCP  server
//! ```
//!
//! The near end takes in what was redirected to it, the far end connects to whom the connection was
//! meant for: its first six bytes say so. It decides nothing else. A connection of a host is one of
//! multipath TCP, made when the host's comes, as a proxy does that knows nothing before.

use anabranch_lab::hosts::Relay;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// The most connections at once; further ones wait in the kernel.
const MOST: usize = 1024;

/// The pause after a connection that could not be accepted.
const REFUSED: Duration = Duration::from_millis(10);

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Relays connections until it is killed. It prints a line once it listens.
///
/// # Errors
/// It cannot listen.
pub fn relay(relay: &Relay) -> io::Result<()> {
    // Each connection takes two.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    crate::runtime()?.block_on(serve(relay))
}

async fn serve(relay: &Relay) -> io::Result<()> {
    let listener = listen(relay)?;
    say_ready(&listener)?;
    let mut carried = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if carried.len() < MOST => {
                // The host gave up meanwhile, or there are too many open files: that passes.
                let Ok((host, _)) = accepted else {
                    tokio::time::sleep(REFUSED).await;
                    continue;
                };
                let relay = relay.clone();
                // A connection that breaks ends both of its halves, and nobody else's.
                carried.spawn(async move { carry(host, &relay).await.ok() });
            }
            Some(_) = carried.join_next(), if !carried.is_empty() => {}
        }
    }
}

fn say_ready(listener: &TcpListener) -> io::Result<()> {
    use std::io::Write;
    let mut out = io::stdout().lock();
    writeln!(out, "{} {}", Relay::READY, listener.local_addr()?)?;
    out.flush()
}

/// The near end listens for TCP, the far end for multipath TCP.
fn listen(relay: &Relay) -> io::Result<TcpListener> {
    let socket = if relay.far.is_some() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket
    } else {
        multipath(relay)?
    };
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(relay.listen))?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// A socket of multipath TCP.
fn multipath(relay: &Relay) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))?;
    socket.set_tcp_congestion(relay.congestion.as_bytes())?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

async fn carry(mut taken: TcpStream, relay: &Relay) -> io::Result<()> {
    taken.set_nodelay(true)?;
    let mut other = if let Some(ends) = relay.far {
        to_far(&taken, multipath(relay)?, ends).await?
    } else {
        to_target(&mut taken).await?
    };
    copy_bidirectional(&mut taken, &mut other).await?;
    Ok(())
}

/// To the far end, which is told whom this connection was meant for.
async fn to_far(
    taken: &TcpStream,
    socket: Socket,
    [own, far]: [SocketAddr; 2],
) -> io::Result<TcpStream> {
    let target = SockRef::from(taken).original_dst_v4()?.as_socket_ipv4();
    let target = target.ok_or_else(|| io::Error::other("meant for no address of IPv4"))?;
    socket.bind(&SockAddr::from(own))?;
    let socket = TcpSocket::from_std_stream(socket.into());
    let mut far = socket.connect(far).await?;
    far.write_all(&head(target)).await?;
    Ok(far)
}

/// To whom the near end says that this connection was meant for.
async fn to_target(taken: &mut TcpStream) -> io::Result<TcpStream> {
    let mut told = [0; HEAD];
    taken.read_exact(&mut told).await?;
    let target = TcpStream::connect(SocketAddr::V4(target(told))).await?;
    target.set_nodelay(true)?;
    Ok(target)
}

/// The bytes that name the target: its address and its port.
const HEAD: usize = 6;

fn head(target: SocketAddrV4) -> [u8; HEAD] {
    let [a, b, c, d] = target.ip().octets();
    let [high, low] = target.port().to_be_bytes();
    [a, b, c, d, high, low]
}

fn target([a, b, c, d, high, low]: [u8; HEAD]) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_far_end_reads_the_target_that_the_near_end_wrote() {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 79, 0, 1), 43_210);
        assert_eq!(target(head(address)), address);
    }
}
