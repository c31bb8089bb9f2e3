//! Reads a file piece by piece off the runtime's threads, one piece ahead, and hashes it where its
//! digest is asked for.

use super::digest::{Sum, Version};
use super::range::Span;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes read at once. Two pieces exist at a time.
const PIECE_BYTES: u64 = 256 << 10;

/// How long a thread hashes before others get a turn: enough for some tens of megabytes.
const WHILE: Duration = Duration::from_millis(100);

/// What is hashed of what is read.
#[derive(Debug)]
pub(crate) enum Hashed {
    /// Nothing: the digest is known, or nobody asks for it.
    Nothing,
    /// The span.
    Span,
    /// The span, and the file up to its end: this was fed the bytes before the span.
    SpanAfter(Sha256),
}

/// Reads a span of a file.
#[derive(Debug)]
pub(crate) struct Reader {
    ahead: Option<JoinHandle<(State, io::Result<Bytes>)>>,
    done: Option<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    version: Version,
    span: Span,
    left: u64,
    content: Option<Sha256>,
    /// Hashes the file from its beginning, where the span begins later.
    whole: Option<Sha256>,
}

/// The digests, once everything was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Of the span.
    pub(crate) content: Sum,
    /// Of the file up to the end of the span, if the bytes before it were given.
    pub(crate) whole: Option<Sum>,
}

impl Sums {
    /// Those of a file that is carried whole.
    pub(crate) fn of_whole(sum: Sum) -> Self {
        Self {
            content: sum,
            whole: Some(sum),
        }
    }
}

impl Reader {
    /// Starts reading.
    ///
    /// # Errors
    ///
    /// Seeking in the file failed.
    pub(crate) fn start(
        mut file: File,
        version: Version,
        span: Span,
        hashed: Hashed,
    ) -> io::Result<Self> {
        file.seek(SeekFrom::Start(span.start))?;
        let (content, whole) = match hashed {
            Hashed::Nothing => (None, None),
            Hashed::Span => (Some(Sha256::new()), None),
            // From the beginning on, both are the same.
            Hashed::SpanAfter(before) => (Some(Sha256::new()), (span.start > 0).then_some(before)),
        };
        let state = State {
            file,
            version,
            span,
            left: span.len(),
            content,
            whole,
        };
        Ok(Self {
            ahead: Some(spawn_blocking(|| state.read())),
            done: None,
        })
    }

    /// The next piece; none at the end.
    ///
    /// # Errors
    ///
    /// Reading failed, or the file was changed or truncated meanwhile.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Some(ahead) = self.ahead.take() else {
            return Ok(None);
        };
        let (state, piece) = ahead.await.map_err(io::Error::other)?;
        let piece = piece?;
        if piece.is_empty() {
            self.done = Some(state);
            return Ok(None);
        }
        self.ahead = Some(spawn_blocking(|| state.read()));
        Ok(Some(piece))
    }

    /// The digests, once [`next`](Self::next) has reached the end; `None` if nothing was hashed.
    pub(crate) fn finish(self) -> Option<Sums> {
        let state = self.done?;
        let content = Sum::of(state.content?);
        let from_start = (state.span.start == 0).then_some(content);
        Some(Sums {
            content,
            whole: from_start.or(state.whole.map(Sum::of)),
        })
    }
}

impl State {
    fn read(mut self) -> (Self, io::Result<Bytes>) {
        let result = self.read_piece();
        (self, result)
    }

    fn read_piece(&mut self) -> io::Result<Bytes> {
        let length = self.left.min(PIECE_BYTES);
        let mut piece = Vec::with_capacity(length as usize);
        (&self.file).take(length).read_to_end(&mut piece)?;
        let is_cut = (piece.len() as u64) < length;
        let is_same = || {
            let now = Version::of(&self.file.metadata()?);
            Ok::<_, io::Error>(now.has_content_of(&self.version))
        };
        if is_cut || (self.left == 0 && !is_same()?) {
            return Err(io::Error::other("the file changed while it was read"));
        }
        self.left -= length;
        for hash in [&mut self.content, &mut self.whole].into_iter().flatten() {
            hash.update(&piece);
        }
        Ok(piece.into())
    }
}

/// Hashes the beginning of a file, and can pause between pieces.
#[derive(Debug)]
pub(crate) struct Hashing {
    file: File,
    hash: Sha256,
    at: u64,
    end: u64,
}

impl Hashing {
    /// Will hash the first `length` bytes. Does not move the file's position.
    pub(crate) fn new(file: File, length: u64) -> Self {
        Self {
            file,
            hash: Sha256::new(),
            at: 0,
            end: length,
        }
    }

    /// Hashes as long as `may_go_on`, which is asked before each piece. Returns whether everything
    /// is hashed. Blocks.
    ///
    /// # Errors
    ///
    /// Reading failed or the file is shorter.
    pub(crate) fn go_on(&mut self, may_go_on: impl Fn() -> bool) -> io::Result<bool> {
        let mut buffer = vec![0; PIECE_BYTES as usize];
        while self.at < self.end && may_go_on() {
            let room = (self.end - self.at).min(PIECE_BYTES) as usize;
            match self.file.read_at(&mut buffer[..room], self.at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.hash.update(&buffer[..count]);
                    self.at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.at >= self.end)
    }

    /// The file, and the hash of what has been read of it.
    pub(crate) fn finish(self) -> (File, Sha256) {
        (self.file, self.hash)
    }
}

/// Feeds the first `length` bytes of a file to a hash. Blocks.
///
/// # Errors
///
/// Reading failed or the file is shorter.
#[cfg(test)]
pub(crate) fn hash_prefix(file: &File, length: u64) -> io::Result<Sha256> {
    let mut hashing = Hashing::new(file.try_clone()?, length);
    hashing.go_on(|| true)?;
    Ok(hashing.finish().1)
}

/// Feeds the first `length` bytes of a file to a hash, off the runtime's threads. Hashing ends soon
/// after the future is dropped.
///
/// # Errors
///
/// Reading failed or the file is shorter.
pub(crate) async fn hash_apart(file: File, length: u64) -> io::Result<Sha256> {
    let mut hashing = Hashing::new(file, length);
    loop {
        let (back, is_whole) = for_a_while(hashing, ()).await?;
        if is_whole {
            return Ok(back.finish().1);
        }
        hashing = back;
    }
}

/// Hashes for [`WHILE`] at most, off the runtime's threads. Returns whether everything is hashed.
/// `held` is dropped at the end, even if nobody waits for the result any more: running work cannot
/// be taken off its thread, so it is kept short.
///
/// # Errors
///
/// Reading failed or the file is shorter.
pub(crate) async fn for_a_while(
    mut hashing: Hashing,
    held: impl Send + 'static,
) -> io::Result<(Hashing, bool)> {
    let working = spawn_blocking(move || {
        let until = Instant::now() + WHILE;
        let is_whole = hashing.go_on(|| Instant::now() < until)?;
        drop(held);
        Ok((hashing, is_whole))
    });
    working.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(data: &[u8]) -> (tempfile::NamedTempFile, Version) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(data).unwrap();
        let version = Version::of(&file.as_file().metadata().unwrap());
        (file, version)
    }

    async fn read_all(mut reader: Reader) -> io::Result<(Vec<u8>, Sums)> {
        let mut all = Vec::new();
        while let Some(piece) = reader.next().await? {
            all.extend_from_slice(&piece);
        }
        Ok((all, reader.finish().unwrap()))
    }

    #[tokio::test]
    async fn a_span_is_read_whole_and_hashed_twice() {
        let data: Vec<u8> = (0..700_000u32).map(|i| (i / 7) as u8).collect();
        let (file, version) = file_of(&data);
        let span = Span {
            start: 1000,
            end: 700_000,
        };
        let before = hash_prefix(file.as_file(), span.start).unwrap();
        let hashed = Hashed::SpanAfter(before);
        let reader = Reader::start(file.reopen().unwrap(), version, span, hashed).unwrap();
        let (read, sums) = read_all(reader).await.unwrap();
        assert_eq!(read, data[1000..]);
        let sum = |data: &[u8]| Sum::of(Sha256::new().chain_update(data));
        assert_eq!(
            sums,
            Sums {
                content: sum(&data[1000..]),
                whole: Some(sum(&data))
            }
        );
    }

    #[tokio::test]
    async fn an_empty_file_has_a_digest() {
        let (file, version) = file_of(b"");
        let span = Span { start: 0, end: 0 };
        let reader = Reader::start(file.reopen().unwrap(), version, span, Hashed::Span).unwrap();
        let (read, sums) = read_all(reader).await.unwrap();
        assert!(read.is_empty());
        assert_eq!(sums.whole, Some(Sum::of(Sha256::new())));
    }

    #[tokio::test]
    async fn a_digest_that_nobody_asks_for_is_not_made() {
        let (file, version) = file_of(b"hello");
        let span = Span { start: 0, end: 5 };
        let mut reader =
            Reader::start(file.reopen().unwrap(), version, span, Hashed::Nothing).unwrap();
        while reader.next().await.unwrap().is_some() {}
        assert_eq!(reader.finish(), None);
    }

    #[tokio::test]
    async fn a_file_that_changes_meanwhile_is_an_error() {
        let span = Span { start: 0, end: 5 };
        for hashed in [Hashed::Span, Hashed::Nothing] {
            let (mut file, version) = file_of(b"hello");
            file.write_all(b"more").unwrap();
            let reader = Reader::start(file.reopen().unwrap(), version, span, hashed).unwrap();
            assert!(read_all(reader).await.is_err());
        }
        let (file, version) = file_of(b"hello");
        file.as_file().set_len(2).unwrap();
        let reader = Reader::start(file.reopen().unwrap(), version, span, Hashed::Span).unwrap();
        assert!(read_all(reader).await.is_err());
    }
}
