//! Stops a guest from outside.

use std::io::Write;
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A line to the guest's first process, which then interrupts the command; any line would do.
const INTERRUPT: &[u8] = b"interrupt\n";

/// Stops a running [`Machine`](crate::Machine) from another thread. Clones control the same
/// machine.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    /// The guest's console, present while its command runs.
    input: Mutex<Option<ChildStdin>>,
}

impl Control {
    /// Sends SIGINT to the guest's command, as Ctrl-C does to a local program. A guest that has not
    /// started its command is stopped.
    pub fn interrupt(&self) {
        let mut input = self.0.input.lock().unwrap_or_else(PoisonError::into_inner);
        match input.as_mut() {
            // Fails only if the guest is gone, and then there is nothing to interrupt.
            Some(input) => drop(input.write_all(INTERRUPT).and_then(|()| input.flush())),
            None => self.stop(),
        }
    }

    /// Stops the machine at once. The results of its command are lost.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn attach(&self, input: Option<ChildStdin>) {
        let mut own = self.0.input.lock().unwrap_or_else(PoisonError::into_inner);
        *own = input;
    }
}
