//! Netlink, the interface to the kernel's routing: set-up and errors shared by its users.

use rtnetlink::{Handle, packet_route::route::RouteAddress};
use std::io;
use std::net::IpAddr;

/// Why the kernel's network state could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No netlink socket could be opened.
    #[error("cannot talk to the kernel's routing code (netlink): {0}")]
    Open(#[from] io::Error),
    /// The kernel refused.
    #[error("{what}: {error}{}", advice(error))]
    Refused {
        /// What was attempted.
        what: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The exchange with the kernel failed.
    #[error("{what}: {reason}")]
    Failed {
        /// What was attempted.
        what: String,
        /// What went wrong.
        reason: String,
    },
}

fn advice(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied {
        " (run as root, or with CAP_NET_ADMIN)"
    } else {
        ""
    }
}

impl NetlinkError {
    pub(crate) fn new(what: impl Into<String>, error: rtnetlink::Error) -> Self {
        let what = what.into();
        match error {
            rtnetlink::Error::NetlinkError(message) => Self::Refused {
                what,
                error: message.to_io(),
            },
            other => Self::Failed {
                what,
                reason: other.to_string(),
            },
        }
    }

    /// The error number of the kernel's answer, if there was one.
    pub fn os_error(&self) -> Option<nix::errno::Errno> {
        match self {
            Self::Refused { error, .. } => error.raw_os_error().map(nix::errno::Errno::from_raw),
            _ => None,
        }
    }
}

/// A handle to netlink. Its connection runs as a task until the handle is dropped.
pub(crate) fn open() -> Result<Handle, NetlinkError> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    tokio::spawn(connection);
    Ok(handle)
}

/// The IP address in a route's attribute, if it is an IP address.
pub(crate) fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}
