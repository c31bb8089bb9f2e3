//! A TUN device: packets from the kernel, and to it. It vanishes with the last descriptor of it,
//! which is that of the process unless somebody keeps another, and so do its addresses and routes.
//!
//! Offloads are off: the kernel does not join packets of the protocols it always carries, and each
//! packet has to fit a datagram.

use super::keeper::Keeper;
use super::kernel::{Kernel, Link};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat, makedev};
use nix::unistd;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;
use tun_rs::DeviceBuilder;

/// Packets that the kernel holds for us. More would be a queue before the first link.
const QUEUE: u32 = 100;
/// The most bytes of a name (`IFNAMSIZ` without the end).
const MAX_NAME: usize = 15;
/// How often it is looked whether a device that was given up is gone, and after which time. Who
/// keeps its descriptor and starts other processes shares it with them until they are another
/// program.
const LOOKS: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The longest packet.
pub(crate) const PACKET: usize = 65_535;

/// Whether an interface may be called so.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_short = !name.is_empty() && name.len() <= MAX_NAME;
    is_short && name.chars().all(is_plain) && !matches!(name, "." | ".." | "all" | "default")
}

/// Why a descriptor that was kept is not that of our device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// Something else, such as a file.
    #[error("it is no TUN device")]
    NotTun,
    /// Its device was removed.
    #[error("its device is gone")]
    Gone,
    /// One of another name.
    #[error("it is the device `{0}`")]
    Another(String),
    /// It has frames, headers of its own before packets, or several queues.
    #[error("`{0}` is a device of another kind")]
    Kind(String),
    /// The kernel tells nothing of it.
    #[error("`{0}`: {1}")]
    Unknown(String, rtnetlink::Error),
    /// It cannot be used.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for Unfit {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// One that we made, or that an earlier process has made and somebody has kept.
pub(crate) struct Device {
    inner: AsyncFd<OwnedFd>,
    name: String,
    index: u32,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Device");
        debug.field("name", &self.name).finish_non_exhaustive()
    }
}

/// Waits a little for the end of a device, if there is one of this name: until then a new one has
/// no place, and its addresses would be taken for those of somebody else.
async fn end_of(name: &str, kernel: &Kernel) {
    for _ in 0..LOOKS {
        if !matches!(kernel.link(name).await, Ok(Some(_))) {
            return;
        }
        sleep(LOOK_AGAIN).await;
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
        let index = device.if_index()?;
        Self::new(device.as_fd().try_clone_to_owned()?, name, index)
    }

    /// Takes over the one that was kept, as it is, if that fits; else it is gone, too.
    pub(crate) async fn kept(
        name: &str,
        kernel: &Kernel,
        keeper: &dyn Keeper,
    ) -> Option<(Self, Link)> {
        let mut refused = name.to_owned();
        if let Some(kept) = keeper.take() {
            match Self::adopt(kept, name, kernel).await {
                Ok(adopted) => {
                    tracing::info!("{name}: taken over from the process before");
                    keeper.took_over();
                    return Some(adopted);
                }
                Err(unfit) => {
                    keeper.refuse(&unfit.to_string());
                    if let Unfit::Another(called) = unfit {
                        refused = called;
                    }
                }
            }
        }
        end_of(&refused, kernel).await;
        None
    }

    async fn adopt(kept: OwnedFd, name: &str, kernel: &Kernel) -> Result<(Self, Link), Unfit> {
        let called = attached(kept.as_fd())?;
        if called != name {
            return Err(Unfit::Another(called));
        }
        let link = kernel.link(name).await;
        let link = link.map_err(|error| Unfit::Unknown(called, error))?;
        let link = link.ok_or(Unfit::Gone)?;
        if !link.is_plain_tun {
            return Err(Unfit::Kind(name.into()));
        }
        // Somebody may have switched it off meanwhile.
        let up = kernel.set_up(link.index).await;
        up.map_err(|error| Unfit::Unknown(name.into(), error))?;
        Ok((Self::new(kept, name, link.index)?, link))
    }

    fn new(descriptor: OwnedFd, name: &str, index: u32) -> io::Result<Self> {
        let flags = OFlag::from_bits_retain(fcntl(&descriptor, FcntlArg::F_GETFL)?);
        fcntl(&descriptor, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        #[allow(
            deprecated,
            reason = "sound where the descriptor stays the same and open, as that of a device does"
        )]
        let inner = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
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

    /// Waits for a packet. Can be cancelled without a loss.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let receive = |device: &OwnedFd| Ok(unistd::read(device, buffer)?);
        self.inner.async_io(Interest::READABLE, receive).await
    }

    /// Hands a packet to the kernel, or drops it if that takes no more.
    pub(crate) fn send(&self, packet: &[u8]) -> io::Result<()> {
        unistd::write(self.inner.get_ref(), packet)?;
        Ok(())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.get_ref().as_fd()
    }
}

/// The name of the device that this is a descriptor of.
fn attached(descriptor: BorrowedFd<'_>) -> Result<String, Unfit> {
    // devices.txt of the kernel: /dev/net/tun.
    const TUN: (u64, u64) = (10, 200);
    let stat = fstat(descriptor)?;
    let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
    if kind != SFlag::S_IFCHR || stat.st_rdev != makedev(TUN.0, TUN.1) {
        return Err(Unfit::NotTun);
    }
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()))?;
    let name = told.lines().find_map(|line| line.strip_prefix("iff:"));
    match name.map(str::trim) {
        None | Some("") => Err(Unfit::Gone),
        Some(name) => Ok(name.into()),
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

    #[test]
    fn a_file_a_socket_and_a_character_device_are_no_tun_device() {
        let file = fs::File::open("/proc/self/status").unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        for other in [file.as_fd(), null.as_fd(), socket.as_fd()] {
            assert!(matches!(attached(other), Err(Unfit::NotTun)), "{other:?}");
        }
    }
}
