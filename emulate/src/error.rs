//! Why a link could not be built or changed.

use std::io;
use std::path::PathBuf;

/// Why a link could not be built or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan cannot be carried out on any machine.
    #[error("link `{link}`: {reason}")]
    Plan {
        /// The link's name.
        link: String,
        /// What is wrong, and what was expected.
        reason: String,
    },
    /// This layer or this kernel cannot do what the configuration asks for.
    #[error("link `{link}`, {way}: the {layer} cannot do {what}")]
    Unsupported {
        /// The link's name.
        link: String,
        /// Which direction.
        way: crate::Way,
        /// Which layer.
        layer: &'static str,
        /// Which parts of the configuration, and why.
        what: String,
    },
    /// There is no link in this place.
    #[error("there is no link {link}: the network has {count}, counted from 0")]
    NoSuchLink {
        /// What was asked for.
        link: usize,
        /// How many there are.
        count: usize,
    },
    /// A namespace or an interface could not be set up.
    #[error(transparent)]
    Testbed(#[from] anabranch_testbed::Error),
    /// A TAP device could not be made.
    #[error(
        "cannot make the TAP device `{interface}` in `{node}`: {reason}; it needs root and \
         /dev/net/tun (`modprobe tun`)"
    )]
    Tap {
        /// The name it should have had.
        interface: String,
        /// The host it should have been in.
        node: String,
        /// What the system said.
        reason: io::Error,
    },
    /// A capture file could not be made.
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
