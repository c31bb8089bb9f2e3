//! The commands, one file each.

pub(crate) mod campaign;
pub(crate) mod demo;
pub(crate) mod doctor;
mod experiments;
pub(crate) mod get;
pub(crate) mod key;
pub(crate) mod lab;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod ping;
pub(crate) mod put;
pub(crate) mod routes;
pub(crate) mod serve;
pub(crate) mod sim;
pub(crate) mod speed;
mod transfer;

use tokio::signal::unix::{SignalKind, signal};

/// Waits until the user or the system wants the program to end. Listens from the call on, not only
/// from the first poll, so that an early signal does not kill the program.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    let signals = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    );
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            // Without handlers, signals end the program by themselves.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
