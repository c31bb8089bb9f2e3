//! A TUN device: packets from the kernel, and to it. It vanishes with the process, and with it its
//! addresses and routes.
//!
//! Offloads are off: the kernel does not join packets of the protocols it always carries, and each
//! packet has to fit a datagram.

use std::fmt;
use std::fs;
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tun_rs::{DeviceBuilder, SyncDevice};

/// Packets that the kernel holds for us. More would be a queue before the first link.
const QUEUE: u32 = 100;
/// The most bytes of a name (`IFNAMSIZ` without the end).
const MAX_NAME: usize = 15;
/// The longest packet.
pub(crate) const PACKET: usize = 65_535;

/// Whether an interface may be called so.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_short = !name.is_empty() && name.len() <= MAX_NAME;
    is_short && name.chars().all(is_plain) && !matches!(name, "." | ".." | "all" | "default")
}

/// One that we made.
pub(crate) struct Device {
    inner: AsyncFd<SyncDevice>,
    name: String,
    index: u32,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Device");
        debug.field("name", &self.name).finish_non_exhaustive()
    }
}

impl Device {
    /// Makes it. It is up, and has no address.
    pub(crate) fn open(name: &str, mtu: u16) -> io::Result<Self> {
        let device = DeviceBuilder::new()
            .name(name)
            .mtu(mtu)
            .enable(true)
            .with(|builder| {
                builder.tx_queue_len(QUEUE).offload(false);
            })
            .build_sync()?;
        device.set_nonblocking(true)?;
        let index = device.if_index()?;
        #[allow(
            deprecated,
            reason = "sound where the descriptor stays the same and open, as that of a device does"
        )]
        let inner = AsyncFd::with_interest(device, Interest::READABLE)?;
        let device = Self {
            inner,
            name: name.into(),
            index,
        };
        // What comes out of it has sources that no route leads to by it, and perhaps none at all
        // while a link is down. Of the machine's switch and this one the greater counts, and 2 is
        // the loose check.
        let all = fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter");
        let is_off = all.is_ok_and(|all| all.trim() == "0");
        device.set("ipv4", "rp_filter", if is_off { "0" } else { "2" });
        Ok(device)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Sets something of this device alone, which goes with it. Where that may not be written it
    /// stays as the machine has it.
    pub(crate) fn set(&self, family: &str, what: &str, value: &str) {
        let path = format!("/proc/sys/net/{family}/conf/{}/{what}", self.name);
        if let Err(error) = fs::write(&path, value) {
            tracing::debug!("{path}: {error}");
        }
    }

    pub(crate) fn set_mtu(&self, mtu: u16) -> io::Result<()> {
        self.inner.get_ref().set_mtu(mtu)
    }

    /// Waits for a packet. Can be cancelled without a loss.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let receive = |device: &SyncDevice| device.recv(buffer);
        self.inner.async_io(Interest::READABLE, receive).await
    }

    /// Hands a packet to the kernel, or drops it if that takes no more.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.inner.get_ref().send(packet).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces_are_short_and_plain() {
        for good in ["anabranch", "tun0", "a-b_c.1"] {
            assert!(is_name(good), "{good}");
        }
        for wrong in [
            "",
            ".",
            "..",
            "all",
            "default",
            "a/b",
            "a b",
            "a\"b",
            "sixteen-bytes-xx",
        ] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
