//! Who keeps the descriptor of a device while this process is replaced by another.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Somebody who keeps the descriptor of a device, such as a manager of services: the device lives
/// until the last descriptor of it is closed.
pub trait Keeper: fmt::Debug + Send + Sync {
    /// What was kept for this process; once.
    fn take(&self) -> Option<OwnedFd>;

    /// What was taken is in use, and is to be kept further on.
    fn took_over(&self);

    /// What was taken is not wanted, and was closed. Returns once it is not kept any more.
    fn refuse(&self, why: &str);

    /// Keeps the device of this descriptor from now on.
    fn keep(&self, device: BorrowedFd<'_>);
}
