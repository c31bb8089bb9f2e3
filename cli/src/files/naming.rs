//! A file gets its final name.

use nix::errno::Errno;
use nix::fcntl::{AtFlags, RenameFlags, renameat2};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use std::os::fd::AsFd;
use std::path::Path;

/// Renames `from` to `to`, unless something has that name: `EEXIST` then.
pub(crate) fn rename_new(directory: impl AsFd, from: &Path, to: &Path) -> Result<(), Errno> {
    let here = directory.as_fd();
    match renameat2(here, from, here, to, RenameFlags::RENAME_NOREPLACE) {
        // File systems that cannot do it in one step (NFS, some of FUSE).
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            linkat(here, from, here, to, AtFlags::empty())?;
            // What cannot be removed stays: it is a second name and does no harm.
            let _ = unlinkat(here, from, UnlinkatFlags::NoRemoveDir);
            Ok(())
        }
        result => result,
    }
}
