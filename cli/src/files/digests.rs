//! Digests of whole files: made by few at a time, remembered, and given up together with the
//! request that wanted them.

use super::digest::{Cache, Sum, Version};
use super::reader::hash_while;
use sha2::Sha256;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Files hashed at a time.
const AT_ONCE: usize = 2;

/// Makes digests and remembers them.
#[derive(Debug)]
pub(crate) struct Digests {
    cache: Cache,
    turns: Arc<Semaphore>,
}

impl Default for Digests {
    fn default() -> Self {
        Self {
            cache: Cache::default(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Digests {
    /// The digest of a file, if it is known.
    pub(crate) fn known(&self, version: &Version) -> Option<Sum> {
        self.cache.look_up(version)
    }

    /// Remembers the digest of a file that was read or written whole.
    pub(crate) fn remember(&self, version: Version, sum: Sum) {
        self.cache.remember(version, sum);
    }

    /// The digest of a whole file; hashes it unless that was done before. `None` if the file cannot
    /// be read or changes meanwhile. Dropping the future ends the work and closes the file.
    pub(crate) async fn whole(&self, file: File, version: Version) -> Option<Sum> {
        if let Some(sum) = self.known(&version) {
            return Some(sum);
        }
        let hashing = self.hash(file, version.length, || self.known(&version).is_none());
        let Ok((file, hash)) = hashing.await else {
            // Somebody else may have hashed it meanwhile.
            return self.known(&version);
        };
        let unchanged = Version::of(&file.metadata().ok()?) == version;
        let sum = unchanged.then(|| Sum::of(hash))?;
        self.remember(version, sum);
        Some(sum)
    }

    /// Feeds the first `length` bytes of a file to a hash. Dropping the future ends the work.
    ///
    /// # Errors
    ///
    /// Reading failed or the file is shorter.
    pub(crate) async fn prefix(&self, file: File, length: u64) -> io::Result<(File, Sha256)> {
        self.hash(file, length, || true).await
    }

    async fn hash(
        &self,
        file: File,
        length: u64,
        is_wanted: impl FnOnce() -> bool,
    ) -> io::Result<(File, Sha256)> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(io::Error::other)?;
        if !is_wanted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let wish = Wish::default();
        let given_up = Arc::clone(&wish.0);
        let hashed = spawn_blocking(move || {
            let _turn = turn;
            let hash = hash_while(&file, length, || !given_up.load(Ordering::Relaxed))?;
            Ok((file, hash))
        });
        hashed.await.map_err(io::Error::other)?
    }
}

/// Whether somebody still wants a digest. Dropped, it ends the work that looks at it: a blocking
/// task cannot be aborted.
#[derive(Debug, Default)]
struct Wish(Arc<AtomicBool>);

impl Drop for Wish {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest;
    use std::path::PathBuf;
    use std::time::Duration;
    use tokio::time::timeout;

    /// A file that takes minutes to hash and no room.
    fn endless() -> (tempfile::NamedTempFile, Version) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(200 << 30).unwrap();
        let version = Version::of(&file.as_file().metadata().unwrap());
        (file, version)
    }

    /// How often this process has a file open.
    fn times_open(path: &std::path::Path) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.filter(|target: &PathBuf| target == path).count()
    }

    #[tokio::test]
    async fn the_digest_of_a_file_is_made_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "0123456789").unwrap();
        let version = Version::of(&file.as_file().metadata().unwrap());
        let digests = Digests::default();
        let sum = digests.whole(file.reopen().unwrap(), version).await;
        assert_eq!(sum, Some(Sum::of(Sha256::new_with_prefix(b"0123456789"))));
        assert_eq!(digests.known(&version), sum);
    }

    #[tokio::test]
    async fn a_request_that_is_gone_leaves_no_file_open_and_lets_others_hash() {
        let (file, version) = endless();
        let digests = Arc::new(Digests::default());
        let before = times_open(file.path());
        for _ in 0..6 {
            let whole = digests.whole(file.reopen().unwrap(), version);
            assert!(timeout(Duration::from_millis(5), whole).await.is_err());
        }
        // The piece in hand is read to its end.
        let closed = async {
            while times_open(file.path()) > before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), closed).await.unwrap();
        let small = tempfile::tempfile().unwrap();
        let hashed = timeout(Duration::from_secs(20), digests.prefix(small, 0));
        assert!(hashed.await.unwrap().is_ok());
    }
}
