//! `ACK` and `PATH_ACK` (RFC 9000, section 19.3; RFC 10069).

use super::{FrameErrorKind, FrameType};
use crate::cursor::Reader;
use crate::id::PathId;
use crate::varint;
use std::ops::RangeInclusive;

/// ECN counts of one packet number space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EcnCounts {
    /// Packets received with ECT(0).
    pub ect0: u64,
    /// Packets received with ECT(1).
    pub ect1: u64,
    /// Packets received with CE.
    pub ce: u64,
}

/// Which type is used for a frame that exists for path 0 and for any path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// The frame of RFC 9000, which is about path 0 or an earlier packet number space.
    Plain,
    /// The frame of RFC 10069, which carries its path ID.
    Multipath,
}

/// `ACK` (path 0, and the Initial and Handshake spaces) or `PATH_ACK`.
#[derive(Debug, Clone, PartialEq)]
pub struct Ack<'a> {
    /// The path whose packet numbers are acknowledged.
    pub path: PathId,
    /// The largest packet number acknowledged.
    pub largest: u64,
    /// Delay in units of the peer's `ack_delay_exponent`, as on the wire.
    pub delay: u64,
    /// The encoded ranges, starting with First ACK Range; [`Ack::ranges`] decodes them.
    pub ranges: &'a [u8],
    /// ECN counts, if the frame carries them.
    pub ecn: Option<EcnCounts>,
}

impl<'a> Ack<'a> {
    /// The acknowledged packet numbers, in descending ranges with gaps between them.
    ///
    /// A decoded frame yields all its ranges, since they have been checked. In other cases invalid
    /// bytes end the iteration.
    pub fn ranges(&self) -> AckRanges<'a> {
        AckRanges {
            reader: Reader::new(self.ranges),
            next_largest: Some(self.largest),
        }
    }

    /// Decodes the fields after the path.
    pub(super) fn decode(
        reader: &mut Reader<'a>,
        path: PathId,
        with_ecn: bool,
    ) -> Result<Self, FrameErrorKind> {
        let largest = reader.varint()?;
        let delay = reader.varint()?;
        let more_ranges = reader.varint()?;
        let ranges = ranges_prefix(reader, largest, more_ranges)?;
        let ecn = if with_ecn {
            let (ect0, ect1, ce) = (reader.varint()?, reader.varint()?, reader.varint()?);
            Some(EcnCounts { ect0, ect1, ce })
        } else {
            None
        };
        Ok(Self {
            path,
            largest,
            delay,
            ranges,
            ecn,
        })
    }

    /// The number of ranges after the first, as counted on the wire.
    pub(super) fn more_ranges(&self) -> u64 {
        self.ranges().count().saturating_sub(1) as u64
    }
}

/// Takes `1 + more` ranges off `reader` after checking that no number falls below 0.
///
/// The peer chooses the count, but each range takes two bytes, so the packet's length bounds the
/// work.
fn ranges_prefix<'a>(
    reader: &mut Reader<'a>,
    largest: u64,
    more: u64,
) -> Result<&'a [u8], FrameErrorKind> {
    const BELOW_ZERO: FrameErrorKind = FrameErrorKind::Invalid("packet numbers below 0");
    let mut whole = reader.clone();
    let mut smallest = largest.checked_sub(reader.varint()?).ok_or(BELOW_ZERO)?;
    for _ in 0..more {
        let gap = reader.varint()?;
        let length = reader.varint()?;
        let below = gap + 2 + length;
        smallest = smallest.checked_sub(below).ok_or(BELOW_ZERO)?;
    }
    Ok(whole.bytes(whole.remaining() - reader.remaining())?)
}

/// The ranges of an [`Ack`], largest first.
#[derive(Debug, Clone)]
pub struct AckRanges<'a> {
    reader: Reader<'a>,
    next_largest: Option<u64>,
}

impl Iterator for AckRanges<'_> {
    type Item = RangeInclusive<u64>;

    fn next(&mut self) -> Option<Self::Item> {
        let largest = self.next_largest.take()?;
        let smallest = largest.checked_sub(self.reader.varint().ok()?)?;
        if let Ok(gap) = self.reader.varint() {
            self.next_largest = smallest.checked_sub(gap + 2);
        }
        Some(smallest..=largest)
    }
}

impl std::iter::FusedIterator for AckRanges<'_> {}

/// The most ranges after the first one that [`put_ack`] writes: what a two-byte count holds.
const MAX_MORE_RANGES: usize = 0x3fff;

/// Appends an acknowledgement of `ranges_desc`: as many ranges as fit, the newest first.
///
/// The ranges descend and have gaps between them. `delay` is in units of our `ack_delay_exponent`.
/// `path` matters only for [`Form::Multipath`]. If there is no range, or not even the first one
/// fits below `limit`, nothing is written and the result is `None`.
///
/// # Panics
/// If the ranges touch, overlap or ascend.
#[allow(
    clippy::too_many_arguments,
    reason = "one call per ACK, each value from another owner"
)]
pub fn put_ack(
    out: &mut Vec<u8>,
    form: Form,
    path: PathId,
    ranges_desc: impl Iterator<Item = RangeInclusive<u64>>,
    max_ranges: usize,
    delay: u64,
    ecn: Option<EcnCounts>,
    limit: usize,
) -> Option<()> {
    let mut ranges = ranges_desc.take(max_ranges.min(MAX_MORE_RANGES + 1));
    let first = ranges.next()?;
    let (largest, mut smallest) = (*first.end(), *first.start());
    let start = out.len();
    varint::put(out, ack_type(form, ecn.is_some()).0);
    if form == Form::Multipath {
        varint::put(out, u64::from(path.0));
    }
    varint::put(out, largest);
    varint::put(out, delay.min(varint::MAX));
    let count_at = out.len();
    out.push(0);
    varint::put(out, largest - smallest);
    let tail = ecn.map_or(0, EcnCounts::encoded_len);
    if out.len() + tail > limit {
        out.truncate(start);
        return None;
    }
    let mut more = 0;
    for range in ranges {
        let gap = smallest
            .checked_sub(*range.end())
            .and_then(|distance| distance.checked_sub(2))
            .expect("acknowledged ranges descend with gaps between them");
        let length = range.end() - range.start();
        // With 64 further ranges the count takes a second byte.
        let wider_count = usize::from(more == 63);
        let size = varint::size(gap) + varint::size(length) + wider_count;
        if out.len() + size + tail > limit {
            break;
        }
        if wider_count == 1 {
            out.insert(count_at, 0);
        }
        varint::put(out, gap);
        varint::put(out, length);
        smallest = *range.start();
        more += 1;
    }
    if more < 64 {
        out[count_at] = more as u8;
    } else {
        out[count_at..][..2].copy_from_slice(&(more as u16 | 0x4000).to_be_bytes());
    }
    if let Some(ecn) = ecn {
        ecn.values()
            .into_iter()
            .for_each(|count| varint::put(out, count));
    }
    Some(())
}

/// The type of an acknowledgement.
pub(super) const fn ack_type(form: Form, with_ecn: bool) -> FrameType {
    match (form, with_ecn) {
        (Form::Plain, false) => FrameType::ACK,
        (Form::Plain, true) => FrameType::ACK_ECN,
        (Form::Multipath, false) => FrameType::PATH_ACK,
        (Form::Multipath, true) => FrameType::PATH_ACK_ECN,
    }
}

impl EcnCounts {
    /// The counts in their order on the wire.
    pub(super) const fn values(self) -> [u64; 3] {
        [self.ect0, self.ect1, self.ce]
    }

    fn encoded_len(self) -> usize {
        self.values().into_iter().map(varint::size).sum()
    }
}
