//! Gives files their final names, and tells which names are safe.

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};
use std::os::fd::AsFd;
use std::path::Path;

/// Renames `from` to `to`. Fails with `EEXIST` if `to` exists.
pub(crate) fn rename_new(directory: impl AsFd, from: &Path, to: &Path) -> Result<(), Errno> {
    let here = directory.as_fd();
    // nix has this call for glibc alone.
    let renamed = renameat_with(here, from, here, to, RenameFlags::NOREPLACE);
    match renamed.map_err(|error| Errno::from_raw(error.raw_os_error())) {
        // File systems that cannot do it in one step (NFS, some of FUSE).
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            linkat(here, from, here, to, AtFlags::empty())?;
            // If the old name cannot be removed, it stays: a second name does no harm.
            let _ = unlinkat(here, from, UnlinkatFlags::NoRemoveDir);
            Ok(())
        }
        result => result,
    }
}

/// Whether a name is one printable path component, and neither `.` nor `..`.
pub(crate) fn is_safe(name: &str) -> bool {
    let is_unfit = |c: char| c == '/' || c.is_control();
    !name.is_empty() && name != "." && name != ".." && !name.contains(is_unfit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else_and_is_shown_as_it_is() {
        for name in [
            "", ".", "..", "a/b", "/etc", "a\0b", "a\nb", "\x1b[2J", "a\u{9b}",
        ] {
            assert!(!is_safe(name), "{name:?}");
        }
        assert!(is_safe("..a") && is_safe("a b"));
    }
}
