//! The commands, one file each.

#[cfg(feature = "lab")]
pub(crate) mod campaign;
#[cfg(feature = "lab")]
pub(crate) mod demo;
pub(crate) mod doctor;
#[cfg(feature = "lab")]
mod experiments;
pub(crate) mod get;
pub(crate) mod key;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod ping;
pub(crate) mod put;
pub(crate) mod routes;
pub(crate) mod serve;
#[cfg(feature = "lab")]
pub(crate) mod sim;
pub(crate) mod speed;
pub(crate) mod transfer;
pub(crate) mod tunnel;

use crate::failure::{Failure, Outcome};
use tokio::signal::unix::{SignalKind, signal};

/// Runs a command that waits for sockets and timers to its end.
pub(crate) fn wait_for(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::io("cannot start", &error))?;
    let outcome = runtime.block_on(command);
    // A read or write delayed by the disk must not keep the program from ending.
    runtime.shutdown_background();
    outcome
}

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
