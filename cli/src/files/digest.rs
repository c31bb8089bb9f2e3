//! SHA-256 and the HTTP fields that carry it (RFC 9530).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Trailer or header: the digest of what this message carries.
pub(crate) const CONTENT_DIGEST: &str = "content-digest";

/// Trailer or header: the digest of the whole file, whatever part of it this message carries.
pub(crate) const REPR_DIGEST: &str = "repr-digest";

/// Longer than a step of the clock of any file system.
const STEP: Duration = Duration::from_secs(2);

/// The most digests kept at a time.
const CACHED: usize = 4096;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum(pub(crate) [u8; 32]);

impl Sum {
    /// The digest of everything that `hash` was fed.
    pub(crate) fn of(hash: Sha256) -> Self {
        Self(hash.finalize().into())
    }

    /// As a field's value: `sha-256=:BASE64:`.
    pub(crate) fn to_field(self) -> String {
        format!("sha-256=:{}:", STANDARD.encode(self.0))
    }

    /// The SHA-256 member of a field's value; other algorithms are skipped.
    pub(crate) fn from_field(value: &str) -> Option<Self> {
        value.split(',').find_map(|member| {
            let encoded = member.trim().strip_prefix("sha-256=:")?.strip_suffix(':')?;
            let bytes = STANDARD.decode(encoded).ok()?;
            bytes.try_into().ok().map(Self)
        })
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Identifies the content of a file at the time it was hashed. A file that changes gets a different
/// version, unless it is written again within the clock's granularity and keeps its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    /// The device it is on.
    pub(crate) device: u64,
    /// Its inode number on that device.
    pub(crate) inode: u64,
    /// Its length in bytes.
    pub(crate) length: u64,
    /// When its content last changed, in nanoseconds. Anybody who may write the file can set it.
    pub(crate) modified: i128,
    /// When anything about it last changed, its name or its `modified` too. Nobody can set it.
    pub(crate) changed: i128,
}

impl Version {
    /// The version of an open file.
    pub(crate) fn of(metadata: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether a file that is still open has the content it had, though its name or its permissions
    /// may be others.
    pub(crate) fn has_content_of(&self, before: &Self) -> bool {
        let changed = before.changed;
        Self { changed, ..*self } == *before
    }

    /// Whether a change from now on would show: the last one is longer ago than a step of the
    /// clock.
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos() as i128;
        self.changed + STEP.as_nanos() as i128 <= now
    }

    /// As an entity tag (RFC 9110, section 8.8.3), without the device, which means nothing to
    /// others.
    pub(crate) fn etag(&self) -> String {
        format!("\"{:x}-{:x}-{:x}\"", self.inode, self.length, self.modified)
    }
}

/// A time of a file in nanoseconds.
pub(crate) fn nanoseconds(seconds: i64, rest: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(rest)
}

/// Digests of files that were read whole. Bounded: the oldest are dropped.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    inner: Mutex<(BTreeMap<Version, Known>, VecDeque<Version>)>,
}

/// A digest, and whether its file [was settled](Version::is_settled) before it was read.
#[derive(Debug, Clone, Copy)]
struct Known {
    sum: Sum,
    was_settled: bool,
}

impl Cache {
    /// The digest of a file, if it is known.
    pub(crate) fn look_up(&self, version: &Version) -> Option<Sum> {
        Some(self.find(version)?.sum)
    }

    /// The digest of a file that cannot have been written since without a trace.
    pub(crate) fn look_up_certain(&self, version: &Version) -> Option<Sum> {
        let known = self.find(version)?;
        known.was_settled.then_some(known.sum)
    }

    fn find(&self, version: &Version) -> Option<Known> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0.get(version).copied()
    }

    /// Remembers a digest; `was_settled` tells whether the file
    /// [was settled](Version::is_settled) before it was read.
    pub(crate) fn remember(&self, version: Version, sum: Sum, was_settled: bool) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (sums, order) = &mut *inner;
        if sums.insert(version, Known { sum, was_settled }).is_none() {
            order.push_back(version);
        }
        if order.len() > CACHED
            && let Some(oldest) = order.pop_front()
        {
            sums.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9530, appendix D: `{"hello": "world"}` and a line feed.
    const FIELD: &str = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";

    fn sum(data: &[u8]) -> Sum {
        Sum::of(Sha256::new().chain_update(data))
    }

    #[test]
    fn the_field_is_that_of_rfc_9530() {
        assert_eq!(sum(b"{\"hello\": \"world\"}\n").to_field(), FIELD);
        assert_eq!(
            Sum::from_field(FIELD),
            Some(sum(b"{\"hello\": \"world\"}\n"))
        );
    }

    #[test]
    fn other_algorithms_are_skipped_and_bad_values_refused() {
        let both = format!("sha-512=:AAAA:, {FIELD}");
        assert!(Sum::from_field(&both).is_some());
        for value in [
            "",
            "sha-256=:AAAA:",
            "sha-256=RK",
            "sha-256=:!:",
            "md5=:AAAA:",
        ] {
            assert_eq!(Sum::from_field(value), None, "{value}");
        }
    }

    #[test]
    fn a_file_with_other_permissions_is_another_version_of_the_same_content() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::tempfile().unwrap();
        let version = || Version::of(&file.metadata().unwrap());
        let first = version();
        // The clock of a file system takes up to ten milliseconds for a step.
        std::thread::sleep(Duration::from_millis(50));
        let readable = std::fs::Permissions::from_mode(0o444);
        file.set_permissions(readable).unwrap();
        let second = version();
        assert!(second != first && second.has_content_of(&first));
        assert_eq!(second.etag(), first.etag());
        file.set_len(3).unwrap();
        assert!(!version().has_content_of(&second));
    }

    #[test]
    fn the_cache_forgets_the_oldest() {
        let version = |inode| Version {
            device: 1,
            inode,
            length: 2,
            modified: 3,
            changed: 4,
        };
        let cache = Cache::default();
        for inode in 0..=CACHED as u64 {
            cache.remember(version(inode), Sum([0; 32]), true);
            cache.remember(version(inode), Sum([1; 32]), true);
        }
        assert_eq!(cache.look_up(&version(0)), None);
        assert_eq!(cache.look_up(&version(1)), Some(Sum([1; 32])));
    }

    #[test]
    fn a_digest_of_a_file_that_had_just_been_written_is_not_certain() {
        let file = tempfile::tempfile().unwrap();
        let fresh = Version::of(&file.metadata().unwrap());
        let old = Version {
            changed: fresh.changed - 3_000_000_000,
            ..fresh
        };
        assert!(old.is_settled() && !fresh.is_settled());
        let cache = Cache::default();
        for version in [fresh, old] {
            cache.remember(version, Sum([1; 32]), version.is_settled());
            assert_eq!(cache.look_up(&version), Some(Sum([1; 32])));
        }
        assert_eq!(cache.look_up_certain(&fresh), None);
        assert_eq!(cache.look_up_certain(&old), Some(Sum([1; 32])));
    }
}
