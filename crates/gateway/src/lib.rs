//! Both nodes of the tunnel.
//!
//! ```text
//! applications ── SOCKS5, HTTP CONNECT ──> entry ══ HTTP/3, all paths ══> exit ── TCP ──> the net
//!                                         (node A)                      (node B)
//! ```
//! TCP ends at both nodes, in the kernel, and travels on a request stream of its own: a plain
//! CONNECT (RFC 9114, section 4.4), so that any HTTP/3 proxy client can use an exit, and an entry
//! any such proxy.
//!
//! This crate decides who is let in ([`identity`]), where connections lead ([`exit`]), how those of
//! hosts become requests ([`entry`]) and what is shown of it all. It invents no wire formats
//! (`anabranch-masque` has them) and prints nothing.

pub mod control;
pub mod entry;
pub mod exit;
pub mod guard;
pub mod identity;

mod ip;
mod nft;
mod payloads;
mod records;
mod refusal;
mod relay;
mod session;
pub mod status;
#[cfg(test)]
mod tests;
mod treatment;
mod udp;

use anabranch_masque::Templates;
use anabranch_net::defaults;
use anabranch_net::engine::TransportConfig;
use std::time::Duration;

pub use entry::Entry;
pub use exit::Exit;
pub use ip::keeper::Keeper;

/// Where a client shows who it is before it asks for anything.
const JOIN_PATH: &str = "/.well-known/anabranch/tunnel";

/// What requests and answers call an exit. It has many names, so none is compared.
const AUTHORITY: &str = "anabranch";

fn templates() -> Templates {
    Templates::of_proxy(AUTHORITY).expect("a name is an authority")
}

/// How long a path in use rests before it is asked, so that a dead one is known before it is
/// needed.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The same for a link in reserve, or one that costs: many translators of operators forget a
/// mapping after 30 seconds.
pub(crate) const SPARING_KEEP_ALIVE: Duration = Duration::from_secs(25);

/// The same at a far end. Near ends ask sooner, and are followed; clients of others may not ask at
/// all.
const FAR_KEEP_ALIVE: Duration = Duration::from_secs(27);

/// How long a UDP flow lasts on which nothing happens (RFC 9298, section 3.1: two minutes or more).
const UDP_IDLE: Duration = Duration::from_secs(150);

/// How long a connection outlasts the loss of all its paths.
const OUTAGE: Duration = Duration::from_secs(120);

/// How connections behave at a far end, unless told otherwise.
pub fn far_transport() -> TransportConfig {
    TransportConfig {
        keep_alive: Some(FAR_KEEP_ALIVE),
        // Only near ends know what their links cost.
        keep_alive_follows: true,
        ..near_transport()
    }
}

/// The same at a near end.
pub fn near_transport() -> TransportConfig {
    let mut transport = defaults::transport();
    transport.keep_alive = Some(KEEP_ALIVE);
    transport.max_idle_timeout = Some(OUTAGE);
    anabranch_tunnel::streams::suit(&mut transport.streams);
    transport
}
