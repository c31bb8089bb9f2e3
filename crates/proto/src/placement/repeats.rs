//! Copies that the scheduler asked for together with the original: they wait for room on their
//! paths.

use crate::path::PathSet;
use crate::recovery::sent::SentFrames;
use crate::streams::Streams;
use anabranch_wire::PathId;
use bytes::Bytes;
use std::collections::VecDeque;

/// Copies waiting for room on one path; of more, the oldest are dropped.
const MAX_REPEATS: usize = 64;

/// Frames to be repeated on another path.
#[derive(Debug)]
pub(crate) struct Repeat {
    number: u64,
    pub(crate) from: PathId,
    on: PathId,
    pub(crate) frames: SentFrames,
    /// The bytes of the datagrams among them, which nobody else keeps.
    pub(crate) datagrams: Vec<Bytes>,
}

/// Room for frames in the packets of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// In the next one.
    pub(super) next: usize,
    /// In the largest.
    pub(super) full: usize,
}

impl Repeat {
    /// Whether a packet with `room` for frames would hold any of it.
    fn would_write(&self, room: usize, streams: &Streams) -> bool {
        let first = self.datagrams.first();
        let fits = first.is_some_and(|data| Streams::datagram_fits(data.len(), room));
        let mut frames = self.frames.iter();
        fits || frames.any(|frame| streams.would_copy(frame, self.on, room))
    }

    /// Forgets what needs no copy any more, and datagrams that fit no packet: packets of the path
    /// have become smaller. Returns whether anything is left.
    fn settle(&mut self, full: usize, streams: &Streams) -> bool {
        let (on, frames) = (self.on, &mut self.frames);
        frames.retain(|frame| streams.is_copyable(frame, on));
        let fits = |data: &Bytes| Streams::datagram_fits(data.len(), full);
        self.datagrams.retain(fits);
        !self.frames.is_empty() || !self.datagrams.is_empty()
    }
}

/// The copies that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    waiting: VecDeque<Repeat>,
    next: u64,
}

impl Repeats {
    pub(super) fn push(
        &mut self,
        from: PathId,
        also: &PathSet,
        frames: &SentFrames,
        datagrams: &[Bytes],
    ) {
        for on in also.iter().filter(|path| *path != from) {
            self.make_room(on);
            self.waiting.push_back(Repeat {
                number: self.next,
                from,
                on,
                frames: frames.clone(),
                datagrams: datagrams.to_vec(),
            });
            self.next += 1;
        }
    }

    /// A path that carries nothing keeps no copies from the others, and has the newest when it
    /// does.
    fn make_room(&mut self, on: PathId) {
        if self.waiting.len() < MAX_REPEATS {
            return;
        }
        let mut of_path = (0..self.waiting.len()).filter(|at| self.waiting[*at].on == on);
        let oldest = of_path.next();
        if 1 + of_path.count() >= MAX_REPEATS
            && let Some(oldest) = oldest
        {
            self.waiting.remove(oldest);
        }
    }

    /// The first copy that a path has room for, which `room` tells while it can send; its path and
    /// number. What was acknowledged meanwhile needs no copy, and is forgotten.
    pub(super) fn next(
        &mut self,
        streams: &Streams,
        room: impl Fn(PathId) -> Option<Room>,
    ) -> Option<(PathId, u64)> {
        let mut at = 0;
        while let Some(repeat) = self.waiting.get_mut(at) {
            match room(repeat.on) {
                Some(room) if !repeat.settle(room.full, streams) => {
                    self.waiting.remove(at);
                }
                Some(room) if repeat.would_write(room.next, streams) => {
                    return Some((repeat.on, repeat.number));
                }
                _ => at += 1,
            }
        }
        None
    }

    pub(super) fn get(&self, number: u64) -> Option<&Repeat> {
        self.waiting.iter().find(|repeat| repeat.number == number)
    }

    /// Whether any waits for this path.
    pub(super) fn wait_for(&self, path: PathId) -> bool {
        self.waiting.iter().any(|repeat| repeat.on == path)
    }

    /// Whether a packet with `room` for frames would hold any of this copy.
    pub(super) fn would_write(&self, number: u64, room: usize, streams: &Streams) -> bool {
        let repeat = self.get(number);
        repeat.is_some_and(|repeat| repeat.would_write(room, streams))
    }

    /// The first `datagrams` of its datagrams were sent, and of its frames what fitted.
    pub(super) fn on_written(&mut self, number: u64, datagrams: usize, streams: &Streams) {
        let mut waiting = self.waiting.iter();
        let Some(at) = waiting.position(|repeat| repeat.number == number) else {
            return;
        };
        let repeat = &mut self.waiting[at];
        repeat.datagrams.drain(..datagrams);
        if !repeat.settle(usize::MAX, streams) {
            self.waiting.remove(at);
        }
    }

    /// The path is gone, or in doubt. What was to be copied from it matters all the more.
    pub(super) fn forget(&mut self, path: PathId) {
        self.waiting.retain(|repeat| repeat.on != path);
    }
}
