//! Files and bytes for tests.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::fs;
use std::path::{Path, PathBuf};

/// A reproducible generator (xorshift64), for random choices and for bytes that never repeat, so
/// that misplaced ones are noticed.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        // Any state but zero works.
        Self((0x9e37_79b9_7f4a_7c15 ^ seed).max(1))
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for eight in bytes.chunks_mut(8) {
            eight.copy_from_slice(&self.draw().to_le_bytes()[..eight.len()]);
        }
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.draw() >> 33) % limit
    }
}

/// This many bytes, the same ones each time.
pub fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Noise::new(length as u64).fill(&mut bytes);
    bytes
}

/// The `XDG_STATE_HOME` of programs under test, where they keep what they need again: never the
/// developer's own.
pub fn state_home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("state")
}

/// Names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().expect("a name of ours"))
        .collect();
    names.sort();
    names
}
