//! Digests of files. Only a few files are hashed at a time, and one for each client. Digests are
//! cached. Hashing ends when the request that wanted it is dropped.

use super::digest::{Cache, Sum, Version};
use super::reader::{Hashing, for_a_while};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Files of each kind hashed at a time, for all clients. The others queue: each is hashed for a
/// while and then goes to the end of the queue, so that long files do not hold up short ones.
const AT_ONCE: usize = 2;

/// How long the digest of a whole file waits for its first turn, and a request for it waits while
/// another one that hashes the same file has had no turn. After that the client gets no digest,
/// which it can do without. Hashing that has begun continues.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes digests and remembers them.
#[derive(Debug)]
pub(crate) struct Digests {
    cache: Cache,
    turns: Turns,
    /// The files being hashed whole. One request hashes; the others that want the digest wait for
    /// it.
    under_way: Mutex<BTreeMap<Version, Weak<Alone>>>,
}

/// Lets one request at a time hash a file.
#[derive(Debug)]
struct Alone {
    one: Semaphore,
    /// Whether the hashing has had its first turn.
    has_begun: AtomicBool,
}

impl Default for Digests {
    fn default() -> Self {
        Self {
            cache: Cache::default(),
            turns: Turns::new(AT_ONCE),
            under_way: Mutex::default(),
        }
    }
}

/// Turns at hashing. Whole files and the prefixes of continued uploads have separate turns, so that
/// requests for digests hold up no upload.
#[derive(Debug)]
pub(crate) struct Turns {
    wholes: Arc<Semaphore>,
    prefixes: Arc<Semaphore>,
}

impl Turns {
    fn new(each: usize) -> Self {
        Self {
            wholes: Arc::new(Semaphore::new(each)),
            prefixes: Arc::new(Semaphore::new(each)),
        }
    }
}

impl Default for Turns {
    /// The turns of one client: only one, so that a client that asks for much delays no other.
    fn default() -> Self {
        Self::new(1)
    }
}

impl Digests {
    /// The digest of a file, if it is known.
    pub(crate) fn known(&self, version: &Version) -> Option<Sum> {
        self.cache.look_up(version)
    }

    /// The digest of a file that cannot have been written since without a trace: what is sent may
    /// be measured by it.
    pub(crate) fn certain(&self, version: &Version) -> Option<Sum> {
        self.cache.look_up_certain(version)
    }

    /// Remembers the digest of a file that was read or written whole; `was_settled` tells whether
    /// it [was settled](Version::is_settled) before that.
    pub(crate) fn remember(&self, version: Version, sum: Sum, was_settled: bool) {
        self.cache.remember(version, sum, was_settled);
    }

    /// The digest of a whole file; hashes the file unless the digest is known. `None` if the file
    /// cannot be read or changes meanwhile, or if too many others are being hashed. Dropping the
    /// future ends the work and closes the file.
    pub(crate) async fn whole(&self, file: File, version: Version, client: &Turns) -> Option<Sum> {
        let alone = self.alone(version);
        let mut one = pin!(alone.one.acquire());
        let held = match timeout(PATIENCE, &mut one).await {
            Ok(one) => one,
            // Another request is hashing this file, and is past its first turn.
            Err(_) if alone.has_begun.load(Ordering::Relaxed) => one.await,
            Err(_) => return None,
        };
        let _one = held.ok()?;
        if let Some(sum) = self.known(&version) {
            return Some(sum);
        }
        alone.has_begun.store(false, Ordering::Relaxed);
        let begun = || alone.has_begun.store(true, Ordering::Relaxed);
        let was_settled = version.is_settled();
        let turns = [&client.wholes, &self.turns.wholes];
        let hashed = hash(file, version.length, turns, Some(PATIENCE), begun).await;
        let (file, hash) = hashed.ok()?;
        let unchanged = Version::of(&file.metadata().ok()?).has_content_of(&version);
        let sum = unchanged.then(|| Sum::of(hash))?;
        self.remember(version, sum, was_settled);
        Some(sum)
    }

    fn alone(&self, version: Version) -> Arc<Alone> {
        let under_way = self.under_way.lock();
        let mut under_way = under_way.unwrap_or_else(PoisonError::into_inner);
        under_way.retain(|_, alone| alone.strong_count() > 0);
        if let Some(alone) = under_way.get(&version).and_then(Weak::upgrade) {
            return alone;
        }
        let alone = Arc::new(Alone {
            one: Semaphore::new(1),
            has_begun: AtomicBool::new(false),
        });
        under_way.insert(version, Arc::downgrade(&alone));
        alone
    }

    /// Feeds the first `length` bytes of a file to a hash. Dropping the future ends the work.
    ///
    /// # Errors
    ///
    /// Reading failed or the file is shorter.
    pub(crate) async fn prefix(
        &self,
        file: File,
        length: u64,
        client: &Turns,
    ) -> io::Result<(File, Sha256)> {
        let turns = [&client.prefixes, &self.turns.prefixes];
        hash(file, length, turns, None, || {}).await
    }
}

/// Hashes in turns, one for each [`for_a_while`]. An empty prefix needs no turn.
///
/// # Errors
///
/// Reading failed, the file is shorter, or `TimedOut` if the server's first turn did not come
/// within `patience`.
async fn hash(
    file: File,
    length: u64,
    turns: [&Arc<Semaphore>; 2],
    patience: Option<Duration>,
    begun: impl FnOnce(),
) -> io::Result<(File, Sha256)> {
    if length == 0 {
        return Ok((file, Sha256::new()));
    }
    let mut hashing = Hashing::new(file, length);
    let mut turn = turn(turns, patience).await?;
    begun();
    loop {
        let (back, is_whole) = for_a_while(hashing, turn).await?;
        if is_whole {
            return Ok(back.finish());
        }
        hashing = back;
        turn = self::turn(turns, None).await?;
    }
}

/// Waits for a turn of the client and then for one of the server. A client thus waits for only one
/// of the server's turns at a time. Turns are given in order of arrival.
async fn turn(
    [own, common]: [&Arc<Semaphore>; 2],
    patience: Option<Duration>,
) -> io::Result<[OwnedSemaphorePermit; 2]> {
    let own = Arc::clone(own).acquire_owned().await;
    let common = Arc::clone(common).acquire_owned();
    let common = match patience {
        Some(patience) => timeout(patience, common).await?,
        None => common.await,
    };
    Ok([
        own.map_err(io::Error::other)?,
        common.map_err(io::Error::other)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::time::Duration;
    use tokio::time::timeout;

    /// A sparse file that takes minutes to hash and no room on disk.
    fn endless() -> (tempfile::NamedTempFile, Version) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(200 << 30).unwrap();
        let version = Version::of(&file.as_file().metadata().unwrap());
        (file, version)
    }

    /// How many times this process has a file open.
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
        let client = Turns::default();
        let sum = digests
            .whole(file.reopen().unwrap(), version, &client)
            .await;
        assert_eq!(sum, Some(Sum::of(Sha256::new_with_prefix(b"0123456789"))));
        assert_eq!(digests.known(&version), sum);
    }

    #[tokio::test]
    async fn a_request_that_is_gone_leaves_no_file_open_and_lets_others_hash() {
        let (file, version) = endless();
        let digests = Arc::new(Digests::default());
        let before = times_open(file.path());
        for _ in 0..6 {
            let client = Turns::default();
            let whole = digests.whole(file.reopen().unwrap(), version, &client);
            assert!(timeout(Duration::from_millis(5), whole).await.is_err());
        }
        // The current piece is read to its end.
        let closed = async {
            while times_open(file.path()) > before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), closed).await.unwrap();
        let (small, version) = small();
        let client = Turns::default();
        let whole = digests.whole(small, version, &client);
        let hashed = timeout(Duration::from_secs(20), whole).await;
        assert!(hashed.unwrap().is_some());
    }

    fn small() -> (File, Version) {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let version = Version::of(&file.metadata().unwrap());
        (file, version)
    }

    #[tokio::test]
    async fn digests_of_whole_files_hold_up_no_upload() {
        let digests = Arc::new(Digests::default());
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..AT_ONCE {
            let (digests, (file, version)) = (Arc::clone(&digests), endless());
            let file = file.reopen().unwrap();
            asked.spawn(async move { digests.whole(file, version, &Turns::default()).await });
        }
        while digests.turns.wholes.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let (file, _) = small();
        let client = Turns::default();
        let prefix = digests.prefix(file, 5, &client);
        let hashed = timeout(Duration::from_secs(20), prefix).await;
        assert!(hashed.unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_client_takes_one_turn_and_nothing_takes_none() {
        let digests = Arc::new(Digests::default());
        let greedy = Arc::new(Turns::default());
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..2 * AT_ONCE {
            let (digests, greedy) = (Arc::clone(&digests), Arc::clone(&greedy));
            let (file, version) = endless();
            let file = file.reopen().unwrap();
            asked.spawn(async move { digests.whole(file, version, &greedy).await });
        }
        let (other, (file, version)) = (Turns::default(), small());
        let whole = digests.whole(file, version, &other);
        let hashed = timeout(Duration::from_secs(20), whole).await;
        assert!(hashed.unwrap().is_some());
        let nothing = digests.turns.prefixes.acquire_many(AT_ONCE as u32).await;
        let empty = tempfile::tempfile().unwrap();
        let hashed = timeout(Duration::from_secs(20), digests.prefix(empty, 0, &other)).await;
        assert!(hashed.unwrap().is_ok());
        drop(nothing);
    }

    #[tokio::test]
    async fn long_files_of_many_clients_let_short_ones_overtake() {
        let digests = Arc::new(Digests::default());
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..2 * AT_ONCE {
            let (digests, (file, version)) = (Arc::clone(&digests), endless());
            let (whole, prefix) = (file.reopen().unwrap(), file.reopen().unwrap());
            let other = Arc::clone(&digests);
            asked.spawn(async move {
                let whole = digests.whole(whole, version, &Turns::default()).await;
                assert!(whole.is_none(), "hashed in no time");
            });
            asked.spawn(async move {
                let client = Turns::default();
                let prefix = other.prefix(prefix, version.length, &client);
                assert!(prefix.await.is_err(), "hashed in no time");
            });
        }
        let turns = &digests.turns;
        while turns.wholes.available_permits() + turns.prefixes.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let (client, bound) = (Turns::default(), Duration::from_secs(20));
        let (file, version) = small();
        let whole = digests.whole(file, version, &client);
        assert!(timeout(bound, whole).await.unwrap().is_some());
        let prefix = digests.prefix(small().0, 5, &client);
        assert!(timeout(bound, prefix).await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_long_for_the_first_turn_at_a_whole_file() {
        let digests = Digests::default();
        let _taken = digests.turns.wholes.acquire_many(AT_ONCE as u32).await;
        let (file, version) = small();
        let client = Turns::default();
        let whole = digests.whole(file, version, &client);
        let told = timeout(Duration::from_secs(20), whole).await;
        assert_eq!(told, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn nor_does_who_waits_for_somebody_else_to_hash_the_same_file() {
        let digests = Arc::new(Digests::default());
        let taken = digests.turns.wholes.acquire_many(AT_ONCE as u32).await;
        let (file, version) = small();
        let ask = |file: File| {
            let digests = Arc::clone(&digests);
            async move { digests.whole(file, version, &Turns::default()).await }
        };
        let began = tokio::time::Instant::now();
        let copies = (0..8).map(|_| ask(file.try_clone().unwrap()));
        let told = futures_util::future::join_all(copies).await;
        assert!(told.iter().all(Option::is_none));
        assert!(began.elapsed() <= 2 * PATIENCE, "{:?}", began.elapsed());
        // Some request is hashing: the others wait for its end.
        let alone = digests.alone(version);
        let one = alone.one.acquire().await.unwrap();
        alone.has_begun.store(true, Ordering::Relaxed);
        let waiting = tokio::spawn(ask(file));
        tokio::time::sleep(10 * PATIENCE).await;
        assert!(!waiting.is_finished());
        drop((taken, one));
        assert!(waiting.await.unwrap().is_some());
    }
}
