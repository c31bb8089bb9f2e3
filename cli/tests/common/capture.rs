//! Captures with tcpdump what passes a host's interfaces.

use super::process::Process;
use super::wait_for;
use anabranch_testbed::{Need, Node};
use nix::sys::signal::Signal;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes kept of each packet: all headers and the beginning of the payload. The payload is
/// encrypted, so its beginning identifies the packet.
const KEPT: usize = 128;

/// Bytes of the payload that identify a packet.
const NAME: usize = 48;

/// If nothing was written for this long, no packet is waiting to be written.
const QUIET: Duration = Duration::from_millis(700);

/// A running capture.
pub struct Capture {
    process: Process,
    file: PathBuf,
}

/// A captured UDP datagram over IPv4.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Since 1970.
    pub time: Duration,
    pub source: Ipv4Addr,
    /// Bytes of the whole IP packet.
    pub length: usize,
    /// The beginning of its payload, which identifies the packet.
    pub name: Vec<u8>,
}

impl Capture {
    /// Captures what a filter lets through on all interfaces of a host. Returns `None` if there is
    /// no tcpdump.
    pub fn start(node: &Node, name: &str, filter: &str, directory: &TempDir) -> Option<Self> {
        let file = directory.path().join(name);
        let mut command = node.command("tcpdump");
        let kept = KEPT.to_string();
        // One link type for all interfaces, a buffer of 32 MiB, and permission to write the file.
        let options = [
            "-i",
            "any",
            "-y",
            "LINUX_SLL2",
            "-s",
            &kept,
            "-B",
            "32768",
            "-Z",
            "root",
        ];
        command
            .args(options)
            .arg("-n")
            .arg("-w")
            .arg(&file)
            .args(filter.split(' '));
        if !Need::Network.programs(name, &["tcpdump"]) {
            return None;
        }
        let process = Process::start(&mut command, directory);
        wait_for("tcpdump", Duration::from_secs(120), || {
            process.stderr().contains("listening on")
        });
        Some(Self { process, file })
    }

    /// Ends the capture once nothing more is written: tcpdump loses what it has not read when it is
    /// told to end. Returns the packets in the order they were seen, or why some are missing.
    #[track_caller]
    pub fn finish(self) -> Result<Vec<Packet>, String> {
        let length = || fs::metadata(&self.file).map_or(0, |data| data.len());
        let (mut written, mut since) = (length(), Instant::now());
        wait_for("the end of the capture", Duration::from_secs(120), || {
            if length() != written {
                (written, since) = (length(), Instant::now());
            }
            since.elapsed() > QUIET
        });
        self.process.signal(Signal::SIGTERM);
        let ended = self.process.wait(Duration::from_secs(120));
        if !ended.stderr.contains("\n0 packets dropped by kernel") {
            return Err(format!("the capture has holes: {}", ended.stderr));
        }
        Ok(parse(&fs::read(&self.file).expect("the capture")))
    }
}

/// Reads a pcap file of "Linux cooked" packets, version 2 (draft-ietf-opsawg-pcap; the link type's
/// page at tcpdump.org).
fn parse(bytes: &[u8]) -> Vec<Packet> {
    const FILE_HEADER: usize = 24;
    const RECORD_HEADER: usize = 16;
    let number = |at: usize| {
        let four = bytes.get(at..at + 4).expect("a complete file");
        u32::from_le_bytes(four.try_into().expect("four bytes"))
    };
    assert_eq!(
        number(0),
        0xa1b2_c3d4,
        "microseconds, this machine's byte order"
    );
    assert_eq!(number(20), 276, "LINUX_SLL2");
    let mut packets = Vec::new();
    let mut at = FILE_HEADER;
    while at < bytes.len() {
        let time = Duration::new(number(at).into(), number(at + 4) * 1000);
        let kept = number(at + 8) as usize;
        at += RECORD_HEADER;
        packets.extend(packet(time, &bytes[at..at + kept]));
        at += kept;
    }
    packets
}

fn packet(time: Duration, bytes: &[u8]) -> Option<Packet> {
    const COOKED_HEADER: usize = 20;
    const UDP_HEADER: usize = 8;
    let ip = bytes.get(COOKED_HEADER..)?;
    let header = usize::from(ip.first()? & 0x0f) * 4;
    let source: [u8; 4] = ip.get(12..16)?.try_into().ok()?;
    let payload = ip.get(header + UDP_HEADER..)?;
    Some(Packet {
        time,
        source: source.into(),
        length: usize::from(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?)),
        name: payload[..payload.len().min(NAME)].to_vec(),
    })
}
