//! How far a connection is in its life, and what the peer is told at its end (RFC 9000,
//! section 10).
//!
//! ```text
//! open ── we close ──> closing ── time ──> drained
//!   ├── the peer closes ──> draining ── time ──^
//!   └── nothing comes any more ────────────────^
//! ```

use crate::error::TransportError;
use crate::handshake::Level;
use crate::packet::Frames;
use crate::time::Instant;
use anabranch_wire::frame::{ConnectionClose, Frame};
use anabranch_wire::{ErrorCode, PathId, TransportErrorCode};

/// `CONNECTION_CLOSE` is answered to every 2^n-th packet that arrives while closing, up to this n
/// (RFC 9000, section 10.2.1 asks for a decreasing rate).
const MAX_CLOSE_BACKOFF: u32 = 10;

/// Bytes of a `CONNECTION_CLOSE` beside its reason, at the most.
const OVERHEAD: usize = 25;

/// The longest reason that is sent.
const MAX_REASON: usize = 256;

/// Where a connection is in its life.
#[derive(Debug, Default)]
pub(crate) struct Life(State);

#[derive(Debug, Default)]
enum State {
    /// It works for its application, or will.
    #[default]
    Open,
    /// We sent `CONNECTION_CLOSE` and answer stragglers with it.
    Closing(Box<Closing>),
    /// The peer closed, or we time out: nothing is sent any more.
    Draining { until: Instant },
    /// Nothing is left to do.
    Drained,
}

#[derive(Debug)]
struct Closing {
    farewell: Farewell,
    /// Paths the next `CONNECTION_CLOSE` still has to go out on.
    owed: Vec<PathId>,
    /// Packets that arrived since we closed, and how many trigger the next answer.
    arrived: u32,
    answer_at: u32,
    until: Instant,
}

/// What we tell the peer when we close.
#[derive(Debug)]
pub(crate) struct Farewell {
    application: bool,
    code: u64,
    frame_type: u64,
    reason: Vec<u8>,
}

impl Farewell {
    /// The application's words.
    pub(crate) fn of_application(code: ErrorCode, reason: &[u8]) -> Self {
        Self {
            application: true,
            code: code.value(),
            frame_type: 0,
            reason: reason.to_vec(),
        }
    }

    /// What went wrong.
    pub(crate) fn of_error(error: &TransportError) -> Self {
        Self {
            application: false,
            code: error.code.0,
            frame_type: error.frame_type,
            reason: error.reason.as_bytes().to_vec(),
        }
    }

    /// An application's words must not leave before the handshake protects them (RFC 9000, section
    /// 10.2.3).
    fn write(&self, level: Level, frames: &mut Frames<'_>) {
        let hidden = self.application && level != Level::OneRtt;
        let reason: &[u8] = if hidden { &[] } else { &self.reason };
        let room = frames.room().saturating_sub(OVERHEAD).min(MAX_REASON);
        frames.push(&Frame::ConnectionClose(ConnectionClose {
            application: self.application && !hidden,
            code: if hidden {
                TransportErrorCode::APPLICATION_ERROR.0
            } else {
                self.code
            },
            frame_type: self.frame_type,
            reason: &reason[..reason.len().min(room)],
        }));
    }
}

impl Life {
    /// Whether the connection can do nothing for its application any more.
    pub(crate) fn is_over(&self) -> bool {
        !matches!(self.0, State::Open)
    }

    /// When what is left of it ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.0 {
            State::Closing(closing) => Some(closing.until),
            State::Draining { until } => Some(*until),
            State::Open | State::Drained => None,
        }
    }

    /// We close: the peer is told by these paths, and whenever it does not seem to know until then.
    pub(crate) fn close(&mut self, farewell: Farewell, owed: Vec<PathId>, until: Instant) {
        self.0 = State::Closing(Box::new(Closing {
            farewell,
            owed,
            arrived: 0,
            answer_at: 1,
            until,
        }));
    }

    /// The peer is told once more by these paths, if we closed.
    pub(crate) fn say_again(&mut self, paths: Vec<PathId>) {
        if let State::Closing(closing) = &mut self.0 {
            closing.owed = paths;
        }
    }

    /// A packet arrived by a path although we closed: some of them are answered.
    pub(crate) fn on_straggler(&mut self, path: PathId) {
        let State::Closing(closing) = &mut self.0 else {
            return;
        };
        closing.arrived += 1;
        if closing.arrived >= closing.answer_at {
            closing.arrived = 0;
            closing.answer_at = (closing.answer_at * 2).min(1 << MAX_CLOSE_BACKOFF);
            if !closing.owed.contains(&path) {
                closing.owed.push(path);
            }
        }
    }

    /// The next path by which the peer is to be told; each is named once.
    pub(crate) fn next_owed(&mut self) -> Option<PathId> {
        match &mut self.0 {
            State::Closing(closing) => closing.owed.pop(),
            _ => None,
        }
    }

    /// Appends what the peer is told to a packet of this level.
    pub(crate) fn write(&self, level: Level, frames: &mut Frames<'_>) {
        if let State::Closing(closing) = &self.0 {
            closing.farewell.write(level, frames);
        }
    }

    /// Nothing is sent any more; returns whether that is the end for the application, too.
    pub(crate) fn drain(&mut self, until: Instant) -> bool {
        let was_open = !self.is_over();
        if matches!(self.0, State::Open | State::Closing(_)) {
            self.0 = State::Draining { until };
        }
        was_open
    }

    /// Nothing is left to do; returns whether that is news.
    pub(crate) fn finish(&mut self) -> bool {
        !matches!(
            std::mem::replace(&mut self.0, State::Drained),
            State::Drained
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_wire::cursor::Reader;
    use anabranch_wire::frame;

    const A: PathId = PathId(0);
    const B: PathId = PathId(1);

    fn closed(owed: Vec<PathId>) -> Life {
        let mut life = Life::default();
        let code = ErrorCode::new(7).unwrap();
        life.close(
            Farewell::of_application(code, b"enough"),
            owed,
            Instant::from_nanos(9),
        );
        life
    }

    /// Code and reason of what is told, and whether it is the application's.
    fn told(life: &Life, level: Level, limit: usize) -> (bool, u64, Vec<u8>) {
        let mut buf = Vec::new();
        life.write(level, &mut Frames::new(&mut buf, limit));
        assert!(buf.len() <= limit);
        match frame::decode(&mut Reader::new(&buf)).unwrap().1 {
            Frame::ConnectionClose(close) => (close.application, close.code, close.reason.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_ends_once_for_the_application_and_once_for_good() {
        let (early, late) = (Instant::from_nanos(5), Instant::from_nanos(20));
        let mut life = Life::default();
        assert_eq!((life.is_over(), life.deadline()), (false, None));
        assert!(life.drain(early), "the peer ended it");
        assert!(!life.drain(late));
        assert_eq!(life.deadline(), Some(early), "nothing puts it off");
        let mut life = closed(vec![A]);
        assert!(!life.drain(late), "we had ended it");
        assert_eq!((life.next_owed(), life.deadline()), (None, Some(late)));
        assert!(life.finish() && !life.finish());
        assert!(!life.drain(late));
        assert_eq!((life.is_over(), life.deadline()), (true, None));
    }

    #[test]
    fn stragglers_are_answered_ever_more_rarely_each_by_its_path() {
        let mut life = closed(vec![A, B]);
        assert_eq!((life.next_owed(), life.next_owed()), (Some(B), Some(A)));
        let mut answered = Vec::new();
        for packet in 1..=5000 {
            life.on_straggler(B);
            while let Some(path) = life.next_owed() {
                assert_eq!(path, B);
                answered.push(packet);
            }
        }
        assert_eq!(answered[..4], [1, 3, 7, 15]);
        let tail: Vec<_> = answered.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(tail.last(), Some(&1024), "but answered they are");
        for _ in 0..4096 {
            life.on_straggler(A);
        }
        assert_eq!((life.next_owed(), life.next_owed()), (Some(A), None));
        life.say_again(vec![B]);
        assert_eq!(life.next_owed(), Some(B));
    }

    #[test]
    fn an_applications_words_wait_for_the_keys_that_hide_them_and_for_room() {
        let life = closed(vec![A]);
        let generic = (false, TransportErrorCode::APPLICATION_ERROR.0, Vec::new());
        assert_eq!(told(&life, Level::Initial, 100), generic);
        assert_eq!(told(&life, Level::Handshake, 100), generic);
        assert_eq!(
            told(&life, Level::OneRtt, 100),
            (true, 7, b"enough".to_vec())
        );
        assert_eq!(
            told(&life, Level::OneRtt, OVERHEAD + 2),
            (true, 7, b"en".to_vec())
        );
    }
}
