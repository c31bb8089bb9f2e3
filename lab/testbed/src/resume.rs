//! Calls that go on after a signal.

use std::io::{self, ErrorKind};

/// Calls until it was not interrupted. The kernel resumes no call on a socket with a timeout after
/// a signal (`signal(7)`), be it of a child that ends or of a machine that was stopped, and `std`
/// does so only where it reads or writes all.
///
/// # Errors
/// What the call fails with otherwise, its timeout included.
pub fn resumed<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
