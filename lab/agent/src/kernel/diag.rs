//! The kernel's figures of its TCP connections: `TCP_INFO` through netlink, and counters of
//! multipath TCP.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::{Nla, TcpInfo};
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as Netlink};
use std::fs;
use std::io;
use std::net::SocketAddr;

/// Header bytes of a segment with timestamps, by which payload bytes become packet bytes.
const SEGMENT_HEADER: u64 = 32;

/// The kernel's network statistics, in the namespace of this thread.
const NETSTAT: &str = "/proc/thread-self/net/netstat";

/// The scheduler of multipath TCP, in the namespace of this thread.
const SCHEDULER: &str = "/proc/sys/net/mptcp/scheduler";

/// One connection, or one subflow of multipath TCP.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) info: TcpInfo,
}

impl Flow {
    pub(super) fn sent_bytes(&self) -> u64 {
        self.info.bytes_sent + u64::from(self.info.segs_out) * SEGMENT_HEADER
    }

    pub(super) fn received_bytes(&self) -> u64 {
        self.info.bytes_received + u64::from(self.info.segs_in) * SEGMENT_HEADER
    }

    pub(super) fn cwnd_bytes(&self) -> u64 {
        u64::from(self.info.snd_cwnd) * u64::from(self.info.snd_mss)
    }

    /// Bytes in flight as the kernel itself counts them (`tcp_packets_in_flight`).
    pub(super) fn inflight_bytes(&self) -> u64 {
        let info = &self.info;
        let packets = i64::from(info.unacked) - i64::from(info.sacked) - i64::from(info.lost)
            + i64::from(info.retrans);
        packets.max(0) as u64 * u64::from(info.snd_mss)
    }

    pub(super) fn srtt_s(&self) -> Option<f64> {
        (self.info.rtt > 0).then(|| f64::from(self.info.rtt) / 1e6)
    }
}

/// All TCP connections of this namespace in one address family, except those that no longer have
/// figures.
/// figures any more.
///
/// # Errors
/// The kernel does not answer.
pub(super) fn flows(ipv4: bool) -> io::Result<Vec<Flow>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&Netlink::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let gone = StateFlags::LISTEN | StateFlags::TIME_WAIT | StateFlags::SYN_RECV;
    let request = InetRequest {
        family: if ipv4 { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::all() - gone,
        socket_id: if ipv4 {
            SocketId::new_v4()
        } else {
            SocketId::new_v6()
        },
    };
    let mut packet = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut flows = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        if take(&bytes, &mut flows)? {
            return Ok(flows);
        }
    }
}

/// Parses the messages of one datagram; returns whether they were the last.
fn take(bytes: &[u8], flows: &mut Vec<Flow>) -> io::Result<bool> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest);
        let message = message.map_err(|error| io::Error::other(error.to_string()))?;
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                flows.extend(flow(*response));
            }
            _ => {}
        }
        // Messages begin at multiples of four bytes.
        let length = (message.header.length as usize).next_multiple_of(4);
        rest = rest.get(length.max(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn flow(response: InetResponse) -> Option<Flow> {
    let id = response.header.socket_id;
    let info = response.nlas.into_iter().find_map(|nla| match nla {
        Nla::TcpInfo(info) => Some(info),
        _ => None,
    })?;
    let address = |ip: std::net::IpAddr, port| SocketAddr::new(ip.to_canonical(), port);
    Some(Flow {
        local: address(id.source_address, id.source_port),
        remote: address(id.destination_address, id.destination_port),
        info,
    })
}

/// How often multipath TCP has fallen back to plain TCP; `None` if the kernel does not count that.
pub(super) fn fallbacks() -> Option<u64> {
    counters(&fs::read_to_string(NETSTAT).ok()?)
}

fn counters(netstat: &str) -> Option<u64> {
    let mut lines = netstat
        .lines()
        .filter_map(|line| line.strip_prefix("MPTcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let pairs = names.split_whitespace().zip(values.split_whitespace());
    let fell = pairs.filter(|(name, _)| name.contains("Fallback") && *name != "FallbackFailed");
    Some(
        fell.filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum(),
    )
}

/// The scheduler multipath TCP uses.
pub(super) fn scheduler() -> String {
    let name = fs::read_to_string(SCHEDULER).unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_told_with_its_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        let mut bytes = [0; 1000];
        server.read_exact(&mut bytes).unwrap();
        let all = flows(true).unwrap();
        let near = all.iter().find(|flow| flow.remote == address).unwrap();
        assert_eq!(near.local, client.local_addr().unwrap());
        assert_eq!(near.info.bytes_sent, 1000);
        assert!(near.sent_bytes() > 1000 && near.cwnd_bytes() > 0);
        let far = all.iter().find(|flow| flow.local == address).unwrap();
        assert_eq!(far.info.bytes_received, 1000);
    }

    #[test]
    fn fallbacks_are_added_up_and_failed_ones_left_out() {
        let text = "TcpExt: A B\nTcpExt: 1 2\n\
            MPTcpExt: MPCapableSYNRX MPCapableFallbackACK DssFallback FallbackFailed\n\
            MPTcpExt: 9 2 3 4\n";
        assert_eq!(counters(text), Some(5));
        assert_eq!(counters("TcpExt: A\nTcpExt: 1\n"), None);
    }
}
