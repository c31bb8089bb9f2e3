//! Frames appended to a packet while they fit, each noted for when it is acknowledged or lost.

use crate::recovery::sent::{SentFrame, SentFrames};
use anabranch_wire::frame::{Form, Frame};

/// The frames of a packet under construction.
///
/// Those who own what frames tell append them here, and note what has to be known once the packet
/// is acknowledged or lost.
#[derive(Debug)]
pub struct Frames<'a> {
    buf: &'a mut Vec<u8>,
    /// Where the first one starts.
    start: usize,
    /// Where the last one must end.
    end: usize,
    sent: SentFrames,
    ack_eliciting: bool,
}

/// How far a packet was filled: to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    length: usize,
    noted: usize,
    ack_eliciting: bool,
}

impl<'a> Frames<'a> {
    /// Frames from the end of `buf` on, which must end at `end` of it.
    pub fn new(buf: &'a mut Vec<u8>, end: usize) -> Self {
        Self {
            start: buf.len(),
            buf,
            end,
            sent: SentFrames::new(),
            ack_eliciting: false,
        }
    }

    /// Bytes frames may still take.
    pub fn room(&self) -> usize {
        self.end.saturating_sub(self.buf.len())
    }

    /// Whether there is none, not even padding.
    pub fn is_empty(&self) -> bool {
        self.buf.len() == self.start
    }

    /// What was noted.
    pub fn sent(&self) -> &SentFrames {
        &self.sent
    }

    /// What was noted, when all is written.
    pub fn into_sent(self) -> SentFrames {
        self.sent
    }

    /// Whether one of them asks for an acknowledgement.
    pub(crate) fn is_ack_eliciting(&self) -> bool {
        self.ack_eliciting
    }

    /// Appends a frame if it fits; returns whether it did.
    pub(crate) fn put(&mut self, frame: &Frame<'_>) -> bool {
        self.put_in(frame, Form::Plain)
    }

    /// As [`put`](Self::put), in this form.
    pub(crate) fn put_in(&mut self, frame: &Frame<'_>, form: Form) -> bool {
        let fits = frame.encode_within(self.buf, form, self.end);
        self.ack_eliciting |= fits && frame.frame_type(form).is_ack_eliciting();
        fits
    }

    /// Appends a frame and notes it, if it fits; returns whether it did.
    pub(crate) fn put_noted(&mut self, frame: &Frame<'_>, form: Form, noted: SentFrame) -> bool {
        let fits = self.put_in(frame, form);
        if fits {
            self.note(noted);
        }
        fits
    }

    /// Appends a frame of which the caller knows that it fits, or does not matter if it does.
    pub(crate) fn push(&mut self, frame: &Frame<'_>) {
        frame.encode(self.buf, Form::Plain);
        self.ack_eliciting |= frame.frame_type(Form::Plain).is_ack_eliciting();
    }

    /// Asks for an acknowledgement, if there is room; returns whether there was.
    pub(crate) fn ping(&mut self) -> bool {
        self.put(&Frame::Ping)
    }

    /// For owners that write the bytes of a frame themselves: the buffer, and where it must end.
    /// They [note](Self::note) what they wrote.
    pub(crate) fn raw(&mut self) -> (&mut Vec<u8>, usize) {
        (self.buf, self.end)
    }

    /// Notes a frame that was written.
    pub(crate) fn note(&mut self, frame: SentFrame) {
        self.ack_eliciting |= !matches!(frame, SentFrame::Ack { .. });
        self.sent.push(frame);
    }

    /// How far it is filled.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            length: self.buf.len(),
            noted: self.sent.len(),
            ack_eliciting: self.ack_eliciting,
        }
    }

    /// Whether nothing was added since.
    pub(crate) fn is_at(&self, mark: Mark) -> bool {
        self.buf.len() == mark.length
    }

    /// What was noted since.
    pub(crate) fn sent_since(&self, mark: Mark) -> &[SentFrame] {
        &self.sent[mark.noted..]
    }

    /// Takes back what was added since.
    pub(crate) fn go_back(&mut self, mark: Mark) {
        self.buf.truncate(mark.length);
        self.sent.truncate(mark.noted);
        self.ack_eliciting = mark.ack_eliciting;
    }

    pub(super) fn into_buf(self) -> &'a mut Vec<u8> {
        self.buf
    }

    pub(super) fn into_parts(self) -> (&'a mut Vec<u8>, SentFrames) {
        (self.buf, self.sent)
    }
}
