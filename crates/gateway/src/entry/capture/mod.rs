//! Capture: what hosts send that know nothing of the tunnel becomes flows of it.
//!
//! ```text
//! host ──> our table: TPROXY, mark ──> our rule, our route: "this is for us" ──> Doors ──> flows
//!      <── in the name of whom the host sent to ── transparent sockets <────────────────── flows
//! ```
//! Three owners. The kernel's tables belong to [`Capture`], which makes everything at its start and
//! follows the machine's subnets. A process beside it, the guard, undoes all of it when this one
//! ends, however that happens. [`Doors`] are the sockets where captured traffic comes out.

mod doors;
mod routing;
mod table;
mod udp;
mod unreachable;

pub use doors::Doors;
pub(super) use unreachable::Unreachable;

use super::ip::Carried;
use crate::guard::{Duty, Guard, GuardError, Lock};
use crate::ip::kernel::{self, CAP_NET_ADMIN};
use crate::nft::{self, NftError};
use crate::status::Captured;
use anabranch_net::error::NetlinkError;
use anabranch_net::interfaces::spec::{self, PathSpec, Selector, SpecError, SpecOptions};
use anabranch_net::interfaces::{self, Interface, Watch};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;
use table::{Families, Others, Plan};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The mark of what the program itself sends, which is never captured (`SO_MARK`).
pub const OURS: u32 = 0x0b00_0002;
/// The mark of what is captured, by which it is routed to this machine.
const CAPTURED: u32 = 0x0b00_0001;

/// The mark of captured packets other than TCP and UDP, by which they are routed to the device.
const CARRIED: u32 = 0x0b00_0003;

/// How long a node that captures may take to end.
const END: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

/// The bit of the capability to answer in the name of ports below 1024, DNS among them.
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;

/// Whose traffic is captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This machine's own traffic.
    Host,
    /// The traffic of the hosts behind this interface.
    Lan(String),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "host" => Ok(Self::Host),
            Some(("lan", name)) => match name.parse() {
                Ok(PathSpec {
                    selector: Selector::Name(name),
                    ..
                }) => Ok(Self::Lan(name)),
                Ok(_) => Err(format!("`{name}` is no interface: expected its name")),
                Err(error) => Err(error.to_string()),
            },
            _ => Err("expected `host` or `lan=INTERFACE`".into()),
        }
    }
}

impl Source {
    /// What it is written as.
    fn word(&self) -> String {
        match self {
            Self::Host => "host".into(),
            Self::Lan(name) => format!("lan={name}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("this machine"),
            Self::Lan(name) => write!(f, "hosts behind {name}"),
        }
    }
}

/// What is to be captured.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Whose traffic.
    pub sources: Vec<Source>,
    /// The addresses of the far end, which stay reachable beside the tunnel.
    pub far_end: Vec<IpAddr>,
    /// Whether everything stays blocked when this ends, until [`down`].
    pub kill_switch: bool,
}

/// Why nothing is captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The process may not change networks.
    #[error(
        "capturing takes root, or CAP_NET_ADMIN and CAP_NET_BIND_SERVICE: it adds firewall rules \
         and routes, and answers in the name of any port"
    )]
    Rights,
    /// The program `nft` is missing.
    #[error("capturing takes the program `nft`, which is not here")]
    NoNft,
    /// There is no such interface.
    #[error(transparent)]
    Interface(SpecError),
    /// Another process captures.
    #[error("another `anabranch tunnel join` captures traffic on this machine already")]
    Busy,
    /// The kernel refused the table.
    #[error("the firewall's table cannot be changed: {0}")]
    Table(String),
    /// The kernel refused rules or routes.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The kernel refused one change of rules or routes.
    #[error("{0}: {1}")]
    Routing(&'static str, rtnetlink::Error),
    /// A socket could not be made.
    #[error("no socket for what is captured: {0}")]
    Socket(io::Error),
    /// The process that undoes it did not start.
    #[error("the process that undoes capture does not start: {0}")]
    Guard(String),
    /// The process that captures did not end.
    #[error("the process that captures here does not end: {0:?} have passed")]
    Lasting(Duration),
}

impl From<NftError> for CaptureError {
    fn from(error: NftError) -> Self {
        match error {
            NftError::Missing => Self::NoNft,
            NftError::Failed(why) => Self::Table(why),
        }
    }
}

impl From<GuardError> for CaptureError {
    fn from(error: GuardError) -> Self {
        match error {
            GuardError::Busy => Self::Busy,
            GuardError::Failed(why) => Self::Guard(why),
        }
    }
}

/// Checks that this machine has what capturing needs.
///
/// # Errors
///
/// What is missing.
pub fn possible() -> Result<(), CaptureError> {
    let wanted = CAP_NET_ADMIN | CAP_NET_BIND_SERVICE;
    if kernel::rights() & wanted != wanted {
        return Err(CaptureError::Rights);
    }
    Ok(nft::check()?)
}

/// Checks that the traffic of these sources can be captured on this machine.
///
/// # Errors
///
/// The reason why it cannot.
pub async fn check(sources: &[Source]) -> Result<(), CaptureError> {
    possible()?;
    let interfaces = interfaces::list().await?;
    sources
        .iter()
        .try_for_each(|source| exists(source, &interfaces))
}

/// Traffic that is captured until this is stopped or dropped, or the process ends.
#[derive(Debug)]
pub struct Capture {
    guard: Guard,
    keep: bool,
    stop: oneshot::Sender<()>,
    following: JoinHandle<()>,
}

impl Capture {
    /// Begins to capture, and follows what is `carried`. `guard` runs
    /// [`guard`](crate::guard::guard()) in a process of its own; with `--keep` it leaves the table
    /// as it is. What an earlier process has left is taken over.
    ///
    /// # Errors
    ///
    /// Nothing is captured. Whatever was changed is soon undone, but for a table that an earlier
    /// kill switch has left to block.
    pub async fn start(
        wanted: &Wanted,
        mut carried: watch::Receiver<Carried>,
        mut guard: Command,
    ) -> Result<(Self, Doors), CaptureError> {
        check(&wanted.sources).await?;
        let watch = Watch::start().await?;
        if wanted.kill_switch {
            guard.arg("--keep");
        }
        let guard = Guard::start(guard).await?;
        let captured = Captured {
            sources: wanted.sources.iter().map(Source::word).collect(),
            kill_switch: wanted.kill_switch,
        };
        let doors = Doors::open(captured).map_err(CaptureError::Socket)?;
        let mut plan = Plan::new(wanted, doors.ports());
        plan.others = others(&carried.borrow_and_update(), plan.lan());
        // What an earlier process has left is replaced, and blocks until then.
        routing::put(&wanted.sources, watch.current()).await?;
        let loaded = plan.text(watch.current());
        nft::load(loaded.clone()).await?;
        let (stop, stopped) = oneshot::channel();
        let following = tokio::spawn(follow(plan, watch, carried, loaded, stopped));
        let capture = Self {
            guard,
            keep: wanted.kill_switch,
            stop,
            following,
        };
        Ok((capture, doors))
    }

    /// Waits until the process is gone that would undo the capture when this one ends.
    pub async fn unguarded(&mut self) {
        self.guard.ended().await;
    }

    /// Ends the capture where somebody keeps its device: everything stays and lets nothing out,
    /// until another process takes over or the device is gone.
    pub async fn leave(self) {
        drop(self.stop);
        let _ = self.following.await;
        self.guard.leave();
    }

    /// Ends the capture, and waits until everything is undone.
    ///
    /// # Errors
    ///
    /// Something cannot be undone.
    pub async fn stop(self) -> Result<(), CaptureError> {
        // A table that is loaded now must not come after its removal.
        drop(self.stop);
        let _ = self.following.await;
        let is_done = self.guard.stop().await;
        if !is_done && !self.keep {
            remove().await?;
        }
        Ok(())
    }
}

/// Keeps the table in step with the subnets that this machine is attached to, and with what is
/// carried.
async fn follow(
    mut plan: Plan,
    mut watch: Watch,
    mut carried: watch::Receiver<Carried>,
    mut loaded: String,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        tokio::select! {
            change = watch.next() => if let Err(error) = change {
                tracing::warn!("subnets that come now are captured too: {error}");
                return;
            },
            Ok(()) = carried.changed() => {
                let carried = carried.borrow_and_update().clone();
                plan.others = others(&carried, plan.lan());
            }
            _ = &mut stopped => return,
        }
        let text = plan.text(watch.current());
        if text != loaded {
            match nft::load(text.clone()).await {
                Ok(()) => loaded = text,
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }
}

/// Whose packets are carried: those of hosts behind interfaces only if the kernel passes them on.
fn others(carried: &Carried, lan: &[String]) -> Others {
    let forwards = |is_v4: bool| {
        let closed = lan.iter().find(|name| !kernel::forwards(is_v4, Some(name)));
        if let Some(name) = closed {
            let switch = if is_v4 {
                format!("net.ipv4.conf.{name}.forwarding")
            } else {
                "net.ipv6.conf.all.forwarding".into()
            };
            tracing::warn!(
                "of hosts behind {name} TCP and UDP alone are carried: for the rest this machine \
                 has to forward (sysctl -w {switch}=1), and `join` to be started again"
            );
        }
        closed.is_none()
    };
    let (v4, v6) = (carried.v4(), carried.v6());
    Others {
        device: carried.device.clone(),
        host: Families { v4, v6 },
        lan: Families {
            v4: v4 && forwards(true),
            v6: v6 && forwards(false),
        },
    }
}

/// Checks that the interface of a source is among `interfaces`.
///
/// # Errors
///
/// [`CaptureError::Interface`] if it is not.
pub fn exists(source: &Source, interfaces: &[Interface]) -> Result<(), CaptureError> {
    let Source::Lan(name) = source else {
        return Ok(());
    };
    let wanted = PathSpec {
        selector: Selector::Name(name.clone()),
        options: SpecOptions::default(),
    };
    match spec::check(&[wanted], interfaces, &[]) {
        Err(error @ SpecError::NoInterface { .. }) => Err(CaptureError::Interface(error)),
        // The interface may get its address later.
        _ => Ok(()),
    }
}

/// Ends the process that captures on this machine, if there is one, and removes whatever it or an
/// earlier one has left. Returns what that was, in words.
///
/// # Errors
///
/// Something cannot be removed.
pub async fn down() -> Result<Vec<String>, CaptureError> {
    match possible() {
        // Without the program there is no table of ours.
        Ok(()) | Err(CaptureError::NoNft) => {}
        Err(error) => return Err(error),
    }
    let mut done = Vec::new();
    if Lock::ask_owner(Duty::Capture).await {
        let ended = async {
            while Lock::is_taken(Duty::Capture) {
                sleep(POLL).await;
            }
        };
        let ended = timeout(END, ended).await;
        ended.map_err(|_| CaptureError::Lasting(END))?;
        done.push("ended the capture that ran here".into());
    }
    done.extend(remove().await?);
    Ok(done)
}

/// Removes table, rules and routes; returns what there was.
pub(crate) async fn remove() -> Result<Vec<String>, CaptureError> {
    let mut removed = Vec::new();
    // Where one of them cannot be removed, the other is all the same.
    let (table, routes) = (nft::unload(table::NAME).await, routing::remove().await);
    if table? {
        removed.push(format!("removed the table inet {}", table::NAME));
    }
    removed.extend(routes?);
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_and_interfaces_can_be_captured() {
        assert_eq!("host".parse(), Ok(Source::Host));
        assert_eq!("lan=br0".parse(), Ok(Source::Lan("br0".into())));
        for wrong in [
            "",
            "lan",
            "lan=",
            "lan=a b",
            "lan=eth*",
            "lan=10.0.0.1",
            "wan=eth0",
        ] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }
}
