//! What systemd is told of a node that it started: that it is ready, what it does, that it lives.

use crate::output;
use anabranch_gateway::status::Status;
use anabranch_net::Endpoint;
use sd_notify::{NotifyState, notify, watchdog_enabled};
use std::time::Duration;
use tokio::time::sleep;

/// How often it is told what the node does, if it does not want to hear more often.
const PERIOD: Duration = Duration::from_secs(10);

/// Says that the node serves, and goes on saying what it does and that it lives, if somebody wants
/// to hear that.
///
/// A sign of life comes only after the task that carries everything has gone round and the node
/// has said what it does: where either is stuck, there is none, and systemd starts it again.
pub(super) async fn attend(endpoint: &Endpoint, look: impl Fn() -> Status) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return std::future::pending().await;
    }
    let limit = watchdog_enabled();
    // Twice within the time it has, as systemd's manual advises.
    let period = limit.map_or(PERIOD, |limit| (limit / 2).min(PERIOD));
    let mut is_heard = tell(&[NotifyState::Ready], true);
    loop {
        endpoint.turned().await;
        let words = match look().health() {
            Ok(words) | Err(words) => words,
        };
        // A line of this protocol is one thing that is told.
        let status = NotifyState::Status(words.lines().next().unwrap_or_default());
        is_heard = match limit {
            Some(_) => tell(&[NotifyState::Watchdog, status], is_heard),
            None => tell(&[status], is_heard),
        };
        sleep(period).await;
    }
}

/// Says that the node ends.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping], false);
}

/// Returns whether it was heard; complains only if it was before.
fn tell(states: &[NotifyState<'_>], was_heard: bool) -> bool {
    let told = notify(states);
    if let (Err(error), true) = (&told, was_heard) {
        output::say(format!("note: systemd is not told: {error}"));
    }
    told.is_ok()
}
