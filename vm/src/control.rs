//! Ending a guest from outside.

use std::io::Write;
use std::process::ChildStdin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What makes the guest's first process pass an interruption on: any line does.
const INTERRUPT: &[u8] = b"interrupt\n";

/// Ends a [`Machine`](crate::Machine) while it runs, from another thread. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    /// The guest's console, from when its command runs until it has ended.
    input: Mutex<Option<ChildStdin>>,
}

impl Control {
    /// Sends the guest's command SIGINT, as Ctrl-C does to a program of this machine. A guest that
    /// has not begun with its command is stopped.
    pub fn interrupt(&self) {
        let mut input = self.0.input.lock().unwrap_or_else(PoisonError::into_inner);
        match input.as_mut() {
            // A guest that is gone needs no interruption.
            Some(input) => drop(input.write_all(INTERRUPT).and_then(|()| input.flush())),
            None => self.stop(),
        }
    }

    /// Ends the machine at once. What its command made is lost.
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
