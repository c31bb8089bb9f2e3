//! Who is let in, and what each side remembers of it.
//!
//! ```text
//! B mints an invitation ── in the join URL ──> A makes a credential, writes it down, shows both
//! B strikes the invitation off, keeps the hash of the credential; A shows it from then on
//! ```
//! A repeats its first request as often as it must: its credential counts as soon as B has struck
//! the invitation off, so an answer that was lost costs nothing. B's own identity is its key, which
//! the join URL pins.

pub(crate) mod file;
mod kept;
mod secret;
mod store;

pub use file::FileError;
pub use kept::{Kept, Known};
pub use secret::{Digest, NoSecret, Secret};
pub use store::{Client, ClientId, NotAdded, NotRevoked, Refused, Store};

use std::future::pending;
use std::panic::resume_unwind;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::task::spawn_blocking;

/// The field that carries an invitation, beside the credential that is to count from then on.
pub(crate) const INVITATION: &str = "anabranch-invitation";

/// The field that carries the name by which a client wants to be known, and a server's own.
pub(crate) const NAME: &str = "anabranch-name";

/// Characters of a name.
const NAME_CHARS: usize = 64;

/// A name as it may be kept and shown: nobody chooses how a terminal looks.
pub(crate) fn plain_name(name: &str) -> String {
    let is_plain = |c: &char| c.is_alphanumeric() || " .-_@".contains(*c);
    let name: String = name
        .trim()
        .chars()
        .filter(is_plain)
        .take(NAME_CHARS)
        .collect();
    if name.is_empty() {
        "unnamed".into()
    } else {
        name
    }
}

/// Does what waits for the disk where that keeps nobody else waiting. It is done to its end even if
/// nobody waits for it any more.
pub(crate) async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is shut down, and with it whoever waits for this.
            Err(_) => pending().await,
        },
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
