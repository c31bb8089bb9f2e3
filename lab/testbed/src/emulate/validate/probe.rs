//! Sends UDP packets over a link, and records when they were sent and when they arrived.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Node;
use nix::sys::socket::sockopt::{RcvBufForce, ReceiveTimestampns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;

use crate::emulate::Error;

/// The ends' addresses.
pub(super) const ADDRESSES: [&str; 2] = ["10.78.0.1/24", "10.78.0.2/24"];
const TO: &str = "10.78.0.2:7000";
const FROM: &str = "10.78.0.1:0";
/// Bytes of the IPv4 and UDP headers.
const HEADERS: u32 = 28;
/// Room for packets that arrive while the receiver does not get to run.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// After this much silence at the end, nothing more arrives.
const SILENCE: Duration = Duration::from_millis(600);
/// How often the receiver checks whether it should stop.
const LOOK: Duration = Duration::from_millis(50);

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// IP bytes of a packet.
    pub(super) packet_bytes: u32,
    /// The number of packets.
    pub(super) packets: u32,
    /// The time between two packets. A sender that falls behind sends several at once.
    pub(super) interval: Duration,
}

/// The packets of a load that arrived.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals {
    /// The number of packets sent.
    pub(super) sent: u32,
    /// How long sending took.
    pub(super) sending: Duration,
    /// IP bytes of each.
    pub(super) packet_bytes: u32,
    /// When each was sent and when it arrived, by the system's clock, in order of arrival.
    pub(super) packets: Vec<(u64, u64)>,
}

/// Sends a load from one node to the other and waits for everything that arrives.
pub(super) fn run(nodes: &[Node; 2], link: &str, load: &Load) -> Result<Arrivals, Error> {
    let failed = |reason: io::Error| Error::Probe {
        what: format!("probes over the link `{link}`"),
        reason: reason.to_string(),
    };
    let receiver = nodes[1].enter(open_receiver)?.map_err(failed)?;
    let sender = nodes[0].enter(open_sender)?.map_err(failed)?;
    let finished = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, load.packets, &finished));
        let sent = send(&sender, load);
        finished.store(true, Ordering::Release);
        let received = receiving.join().expect("the receiver does not panic");
        Ok((sent?, received?))
    });
    let (sending, packets) = result.map_err(failed)?;
    Ok(Arrivals {
        sent: load.packets,
        sending,
        packet_bytes: load.packet_bytes,
        packets,
    })
}

fn open_receiver() -> io::Result<UdpSocket> {
    let receiver = UdpSocket::bind(TO)?;
    setsockopt(&receiver, RcvBufForce, &RECEIVE_BUFFER_BYTES)?;
    setsockopt(&receiver, ReceiveTimestampns, &true)?;
    receiver.set_read_timeout(Some(LOOK))?;
    Ok(receiver)
}

fn open_sender() -> io::Result<UdpSocket> {
    let sender = UdpSocket::bind(FROM)?;
    let to: SocketAddr = TO.parse().expect("the address is well-formed");
    sender.connect(to)?;
    Ok(sender)
}

fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

/// Sends the load; each packet begins with its sending time. Returns how long sending took.
fn send(sender: &UdpSocket, load: &Load) -> io::Result<Duration> {
    let mut packet = vec![0; load.packet_bytes.saturating_sub(HEADERS).max(8) as usize];
    let started = Instant::now();
    for number in 0..load.packets {
        let early = (load.interval * number).saturating_sub(started.elapsed());
        // If packets follow each other closely, one sleep must serve for several.
        if early > LONG || (number % BUNCH == 0 && !early.is_zero()) {
            std::thread::sleep(early);
        }
        packet[..8].copy_from_slice(&wall_clock().to_be_bytes());
        sender.send(&packet)?;
    }
    Ok(started.elapsed())
}

/// The most packets that are sent together instead of sleeping between them.
const BUNCH: u32 = 16;
/// A pause long enough for a sleep of its own.
const LONG: Duration = Duration::from_micros(500);

/// Receives until everything has arrived, or nothing more arrives after the last packet was sent.
fn receive(
    receiver: &UdpSocket,
    expected: u32,
    finished: &AtomicBool,
) -> io::Result<Vec<(u64, u64)>> {
    let mut packets = Vec::with_capacity(expected as usize);
    let mut buffer = [0; 2048];
    let mut space = nix::cmsg_space!(TimeSpec);
    let mut quiet_since = Instant::now();
    while packets.len() < expected as usize {
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let fd = receiver.as_raw_fd();
        match recvmsg::<()>(fd, &mut parts, Some(&mut space), MsgFlags::empty()) {
            Ok(message) => {
                let arrived = message.cmsgs()?.find_map(|control| match control {
                    ControlMessageOwned::ScmTimestampns(at) => Some(nanos(at)),
                    _ => None,
                });
                let arrived = arrived.unwrap_or_else(wall_clock);
                let sent = buffer[..8].try_into().expect("a slice of eight bytes");
                packets.push((u64::from_be_bytes(sent), arrived));
                quiet_since = Instant::now();
            }
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if !finished.load(Ordering::Acquire) {
            quiet_since = Instant::now();
        } else if quiet_since.elapsed() > SILENCE {
            break;
        }
    }
    Ok(packets)
}

fn nanos(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
