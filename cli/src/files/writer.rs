//! Writes a file off the runtime's threads, in large pieces, and hashes it.

use super::digest::Sum;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes collected before they are written. Up to twice as many are in memory.
const BATCH_BYTES: usize = 1 << 20;

/// Appends to a file.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Data waiting for the disk, copied into one buffer: a handle to each piece would keep the
    /// datagram it came in, which may be a thousand times as large as the piece.
    batch: Vec<u8>,
    state: Option<State>,
    writing: Option<JoinHandle<(State, io::Result<()>)>>,
    length: u64,
}

#[derive(Debug)]
struct State {
    file: File,
    hash: Sha256,
    /// The buffer of the previous batch, for reuse.
    spare: Vec<u8>,
}

impl Writer {
    /// Continues after the first `length` bytes of `file`, which `hash` has been fed. The rest of
    /// the file is cut off.
    ///
    /// # Errors
    ///
    /// Truncating the file or seeking in it failed.
    pub(crate) fn start(mut file: File, length: u64, hash: Sha256) -> io::Result<Self> {
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        let spare = Vec::new();
        Ok(Self {
            batch: Vec::new(),
            state: Some(State { file, hash, spare }),
            writing: None,
            length,
        })
    }

    /// The length of the file, including bytes not written yet.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Appends a piece. Returns at once unless a whole batch waits for the disk.
    ///
    /// # Errors
    ///
    /// An earlier piece could not be written.
    pub(crate) async fn write(&mut self, piece: Bytes) -> io::Result<()> {
        self.length += piece.len() as u64;
        self.batch.extend_from_slice(&piece);
        if self.batch.len() >= BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        let mut state = self.settle().await?;
        let batch = std::mem::replace(&mut self.batch, std::mem::take(&mut state.spare));
        self.writing = Some(spawn_blocking(move || {
            state.hash.update(&batch);
            let result = state.file.write_all(&batch);
            state.spare = batch;
            state.spare.clear();
            (state, result)
        }));
        Ok(())
    }

    /// Waits for what is being written.
    async fn settle(&mut self) -> io::Result<State> {
        // Cleared only once it is done, so that nothing is lost if the caller is cancelled here.
        if let Some(writing) = &mut self.writing {
            let joined = writing.await;
            self.writing = None;
            let (state, result) = joined.map_err(io::Error::other)?;
            // The state is kept after an error too: the file is needed to keep what was written.
            result.inspect_err(|_| self.batch.clear())?;
            return Ok(state);
        }
        self.state
            .take()
            .ok_or_else(|| io::Error::other("an earlier write failed"))
    }

    /// Writes everything to the disk; returns the file's digest.
    ///
    /// # Errors
    ///
    /// Something could not be written.
    pub(crate) async fn finish(mut self) -> io::Result<(File, Sum)> {
        self.flush().await?;
        let State { file, hash, .. } = self.settle().await?;
        let synced = spawn_blocking(move || file.sync_all().map(|()| file)).await;
        Ok((synced.map_err(io::Error::other)??, Sum::of(hash)))
    }

    /// Writes what was received, for a transfer that is continued later. Errors are ignored: nobody
    /// could act on them.
    pub(crate) async fn keep(mut self) {
        if self.flush().await.is_ok() {
            let _ = self.settle().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_can_be_continued() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 5) as u8).collect();
        let mut writer = Writer::start(file.reopen().unwrap(), 0, Sha256::new()).unwrap();
        for piece in data[..2_500_000].chunks(40_000) {
            writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        assert_eq!(writer.length(), 2_500_000);
        writer.keep().await;
        assert_eq!(std::fs::read(file.path()).unwrap(), data[..2_500_000]);
        // Bytes after the given length do not count: they are written again.
        let hash = super::super::reader::hash_prefix(file.as_file(), 2_000_000).unwrap();
        let mut writer = Writer::start(file.reopen().unwrap(), 2_000_000, hash).unwrap();
        writer
            .write(Bytes::copy_from_slice(&data[2_000_000..]))
            .await
            .unwrap();
        let (_, sum) = writer.finish().await.unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), data);
        assert_eq!(sum, Sum::of(Sha256::new().chain_update(&data)));
    }

    #[tokio::test]
    async fn a_tiny_piece_does_not_hold_the_datagram_it_came_in() {
        let file = tempfile::tempfile().unwrap();
        let mut writer = Writer::start(file, 0, Sha256::new()).unwrap();
        let datagram = Bytes::from(vec![7; 1200]);
        writer.write(datagram.slice(600..601)).await.unwrap();
        assert!(datagram.is_unique());
        let (_, sum) = writer.finish().await.unwrap();
        assert_eq!(sum, Sum::of(Sha256::new().chain_update([7])));
    }

    #[tokio::test]
    async fn a_full_disk_is_told() {
        let Ok(full) = File::options().write(true).open("/dev/full") else {
            return;
        };
        let state = State {
            file: full,
            hash: Sha256::new(),
            spare: Vec::new(),
        };
        let mut writer = Writer {
            batch: Vec::new(),
            state: Some(state),
            writing: None,
            length: 0,
        };
        writer.write(Bytes::from_static(b"x")).await.unwrap();
        let error = writer.finish().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
