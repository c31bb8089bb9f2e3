//! Why a link could not be built or changed.

use std::io;
use std::path::PathBuf;

/// Why a link could not be built or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is impossible on any machine.
    #[error("link `{link}`: {reason}")]
    Plan {
        /// The link's name.
        link: String,
        /// What is wrong, and what was expected.
        reason: String,
    },
    /// The layer or the kernel does not support the configuration.
    #[error("link `{link}`, {way}: the {layer} cannot do {what}")]
    Unsupported {
        /// The link's name.
        link: String,
        /// The direction.
        way: super::Way,
        /// The layer.
        layer: &'static str,
        /// The unsupported parts of the configuration, with the reason.
        what: String,
    },
    /// There is no link with this index.
    #[error("there is no link {link}: the network has {count}, counted from 0")]
    NoSuchLink {
        /// The index.
        link: usize,
        /// The number of links.
        count: usize,
    },
    /// A namespace or an interface could not be set up.
    #[error(transparent)]
    Testbed(#[from] crate::Error),
    /// A TAP device could not be created.
    #[error(
        "cannot make the TAP device `{interface}` in `{node}`: {reason}; it needs root and \
         /dev/net/tun (`modprobe tun`)"
    )]
    Tap {
        /// Its intended name.
        interface: String,
        /// Its intended host.
        node: String,
        /// What the system said.
        reason: io::Error,
    },
    /// A capture file could not be created.
    #[error("cannot write the capture {}: {reason}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {reason}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        reason: io::Error,
    },
    /// A probe of the validation got no usable answer.
    #[error("{what}: {reason}")]
    Probe {
        /// What was measured.
        what: String,
        /// What went wrong.
        reason: String,
    },
    /// The emulator's thread ended.
    #[error("the emulator stopped: {0}")]
    Stopped(String),
}
