//! Sockets of the kernel's TCP, configured as a job says and verified.

use crate::rules::Doors;
use anabranch_lab::hosts::{Carrier, HostPath};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The congestion controls that the kernel has loaded.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// How sockets are configured.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    pub(super) multipath: bool,
    congestion: String,
    buffers: Option<(u64, u64)>,
}

impl Kind {
    /// The kind of a carrier; `None` for the engine.
    pub(super) fn of(carrier: &Carrier) -> Option<Self> {
        let (multipath, congestion, buffers) = match carrier {
            Carrier::Tcp {
                congestion,
                buffers,
            } => (false, congestion, buffers),
            Carrier::Mptcp {
                congestion,
                buffers,
            } => (true, congestion, buffers),
            Carrier::Anabranch { .. } => return None,
        };
        Some(Self {
            multipath,
            congestion: congestion.clone(),
            buffers: *buffers,
        })
    }

    /// A socket that listens for clients of this path. For multipath TCP it listens on all
    /// addresses, or subflows to any but the first would be refused.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(super) fn listen(&self, path: &HostPath, doors: &Doors) -> Result<TcpListener, String> {
        let at = if !self.multipath {
            path.local
        } else if path.local.is_ipv4() {
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        } else {
            IpAddr::from(Ipv6Addr::UNSPECIFIED)
        };
        // What cannot be done at any port is reported first.
        self.make(path)?;
        let listening = doors.open(at, |at| {
            let socket = self.make(path).map_err(io::Error::other)?;
            // Makes the port of an earlier run available although its connections linger.
            socket.set_reuse_address(true)?;
            socket.bind(&SockAddr::from(at))?;
            socket.listen(BACKLOG)?;
            TcpListener::from_std(socket.into())
        });
        listening.map_err(|error| format!("path `{}`: cannot listen on {at}: {error}", path.name))
    }

    /// Connects along a path.
    ///
    /// # Errors
    /// What the kernel refused, or that there was no answer.
    pub(super) async fn connect(
        &self,
        path: &HostPath,
        remote: SocketAddr,
    ) -> Result<TcpStream, String> {
        let socket = self.make(path)?;
        let local = path.local;
        let bound = socket.bind(&SockAddr::from(SocketAddr::new(local, 0)));
        bound.map_err(|error| format!("path `{}`: cannot bind to {local}: {error}", path.name))?;
        let connected = TcpSocket::from_std_stream(socket.into())
            .connect(remote)
            .await;
        connected.map_err(|error| format!("cannot connect from {local} to {remote}: {error}"))
    }

    /// A socket bound to the path's interface, but not to an address yet.
    fn make(&self, path: &HostPath) -> Result<Socket, String> {
        let protocol = if self.multipath {
            Protocol::MPTCP
        } else {
            Protocol::TCP
        };
        let domain = Domain::for_address(SocketAddr::new(path.local, 0));
        let socket = Socket::new(domain, Type::STREAM, Some(protocol)).map_err(|error| {
            let name = if self.multipath {
                "multipath TCP (is net.mptcp.enabled = 1?)"
            } else {
                "TCP"
            };
            format!("unsupported: the kernel makes no socket of {name}: {error}")
        })?;
        self.control(&socket)?;
        let set = || {
            socket.set_nonblocking(true)?;
            socket.set_tcp_nodelay(true)?;
            io::Result::Ok(())
        };
        set().map_err(|error| format!("cannot set up a socket: {error}"))?;
        if let Some((receive, send)) = self.buffers {
            set_buffers(&socket, receive as usize, send as usize)?;
        }
        // A subflow of multipath TCP uses the interface that the route from its address leads to.
        if let Some(interface) = path.interface.as_deref().filter(|_| !self.multipath) {
            let bound = socket.bind_device(Some(interface.as_bytes()));
            bound.map_err(|error| format!("cannot bind to interface `{interface}`: {error}"))?;
        }
        Ok(socket)
    }

    /// Sets the congestion control and verifies it.
    fn control(&self, socket: &Socket) -> Result<(), String> {
        let wanted = &self.congestion;
        if let Err(error) = socket.set_tcp_congestion(wanted.as_bytes()) {
            let known = fs::read_to_string(AVAILABLE).unwrap_or_default();
            return Err(format!(
                "unsupported: congestion control `{wanted}`: {error}; this kernel has: {}",
                known.trim()
            ));
        }
        let used = read_control(socket).map_err(|error| format!("congestion control: {error}"))?;
        if used != *wanted {
            return Err(format!(
                "the kernel uses congestion control `{used}`, not `{wanted}`"
            ));
        }
        Ok(())
    }
}

/// Sets both buffers and verifies them, beyond the system's limits if this process may. The kernel
/// doubles the size it is asked for, to have room for its own bookkeeping (socket(7)).
fn set_buffers(socket: &Socket, receive: usize, send: usize) -> Result<(), String> {
    if setsockopt(socket, sockopt::RcvBufForce, &receive).is_err() {
        let set = socket.set_recv_buffer_size(receive);
        set.map_err(|error| format!("receive buffer of {receive} bytes: {error}"))?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &send).is_err() {
        let set = socket.set_send_buffer_size(send);
        set.map_err(|error| format!("send buffer of {send} bytes: {error}"))?;
    }
    let granted = [
        ("receive", "rmem_max", receive, socket.recv_buffer_size()),
        ("send", "wmem_max", send, socket.send_buffer_size()),
    ];
    for (name, limit, wanted, got) in granted {
        let got = got.map_err(|error| format!("{name} buffer: {error}"))? / 2;
        if got < wanted {
            return Err(format!(
                "{name} buffer of {wanted} bytes: the kernel grants {got}; run as root or raise \
                 net.core.{limit}"
            ));
        }
    }
    Ok(())
}

fn read_control(socket: &Socket) -> io::Result<String> {
    let bytes = socket.tcp_congestion()?;
    let end = bytes.iter().position(|byte| *byte == 0);
    Ok(String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned())
}

/// The congestion control a connection uses.
///
/// # Errors
/// The kernel does not say.
pub(super) fn control_of(stream: &TcpStream) -> io::Result<String> {
    let socket = socket2::SockRef::from(stream);
    let bytes = socket.tcp_congestion()?;
    let end = bytes.iter().position(|byte| *byte == 0);
    Ok(String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned())
}
