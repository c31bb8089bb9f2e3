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

/// Waits until the user or the system wants the program to end.
pub(crate) async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        // Without handlers the signals end the program by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
