//! Byte ranges (RFC 9110, section 14).

/// What a `Range` field asks for, given the file's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Everything: the field is missing, or not understood and therefore ignored (several ranges,
    /// for example).
    All,
    /// These bytes, at least one.
    Part(Span),
    /// Nothing the file has.
    Unsatisfiable,
}

/// Bytes `start..end` of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The first byte.
    pub(crate) start: u64,
    /// One past the last byte.
    pub(crate) end: u64,
}

impl Span {
    /// Number of bytes.
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }

    /// As a `Content-Range` field of a file of `total` bytes. The span must not be empty.
    pub(crate) fn to_content_range(self, total: u64) -> String {
        format!("bytes {}-{}/{total}", self.start, self.end - 1)
    }

    /// Reads a `Content-Range` field; returns the span and the total. `bytes */N` and `bytes a-b/*`
    /// are of no use here and give `None`.
    pub(crate) fn from_content_range(value: &str) -> Option<(Self, u64)> {
        let (span, total) = value
            .trim()
            .strip_prefix("bytes")?
            .trim_start()
            .split_once('/')?;
        let (first, last) = span.split_once('-')?;
        let (start, last, total) = (number(first)?, number(last)?, number(total)?);
        let span = Self {
            start,
            end: last.checked_add(1)?,
        };
        (start <= last && last < total).then_some((span, total))
    }
}

/// What `value` asks for of a file of `length` bytes.
pub(crate) fn wanted(value: Option<&str>, length: u64) -> Wanted {
    let Some(spec) = value.and_then(|value| value.trim().strip_prefix("bytes=")) else {
        return Wanted::All;
    };
    let Some((first, last)) = spec.split_once('-') else {
        return Wanted::All;
    };
    let (first, last) = (first.trim(), last.trim());
    let (start, end) = match (number(first), number(last)) {
        (None, Some(suffix)) if first.is_empty() => (length.saturating_sub(suffix), length),
        (Some(start), None) if last.is_empty() => (start, length),
        (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(length)),
        _ => return Wanted::All,
    };
    if start < end {
        Wanted::Part(Span { start, end })
    } else {
        Wanted::Unsatisfiable
    }
}

/// A number as HTTP writes them: digits only.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, end: u64) -> Wanted {
        Wanted::Part(Span { start, end })
    }

    #[test]
    fn ranges_are_cut_at_the_end_of_the_file() {
        assert_eq!(wanted(Some("bytes=0-0"), 10), part(0, 1));
        assert_eq!(wanted(Some("bytes=2-5"), 10), part(2, 6));
        assert_eq!(wanted(Some("bytes=2-99"), 10), part(2, 10));
        assert_eq!(wanted(Some("bytes=9-"), 10), part(9, 10));
        assert_eq!(wanted(Some("bytes=-3"), 10), part(7, 10));
        assert_eq!(wanted(Some("bytes=-30"), 10), part(0, 10));
        assert_eq!(
            wanted(Some("bytes=0-18446744073709551615"), 10),
            part(0, 10)
        );
    }

    #[test]
    fn a_range_beyond_the_file_cannot_be_satisfied() {
        for value in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            assert_eq!(wanted(Some(value), 10), Wanted::Unsatisfiable, "{value}");
        }
        assert_eq!(wanted(Some("bytes=0-"), 0), Wanted::Unsatisfiable);
    }

    #[test]
    fn what_is_not_understood_is_ignored() {
        let strange = [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "lines=1-2",
            "bytes=5-2",
            "bytes=a-b",
        ];
        for value in strange
            .into_iter()
            .chain(["bytes=0-1,3-4", "bytes=+1-2", "bytes=--3"])
        {
            assert_eq!(wanted(Some(value), 10), Wanted::All, "{value}");
        }
        assert_eq!(wanted(Some("bytes=99999999999999999999-"), 10), Wanted::All);
        assert_eq!(wanted(None, 10), Wanted::All);
    }

    #[test]
    fn content_ranges_are_read_as_written() {
        let span = Span { start: 5, end: 10 };
        assert_eq!(span.to_content_range(10), "bytes 5-9/10");
        assert_eq!(Span::from_content_range("bytes 5-9/10"), Some((span, 10)));
        for value in [
            "bytes */10",
            "bytes 5-9/*",
            "bytes 9-5/10",
            "bytes 5-10/10",
            "5-9/10",
            "",
        ] {
            assert_eq!(Span::from_content_range(value), None, "{value}");
        }
    }
}
