//! When a file last changed, as HTTP writes it (RFC 9110, section 8.8.2).

use super::digest::Version;
use http::{HeaderMap, header};
use std::time::{Duration, SystemTime};

/// The seconds since 1970 that such a date can express: the years 1970 to 9999.
const SECONDS: std::ops::RangeInclusive<i128> = 0..=253_402_300_799;

/// The date of a version, in whole seconds; none before 1970.
pub(crate) fn of(version: &Version) -> Option<SystemTime> {
    let seconds = version.modified.div_euclid(1_000_000_000);
    let is_date = SECONDS.contains(&seconds);
    is_date.then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds as u64))
}

/// A date as a field's value. It must come from [`of`] or [`field`].
pub(crate) fn to_field(date: SystemTime) -> String {
    httpdate::fmt_http_date(date)
}

/// The date in a field, if there is one.
pub(crate) fn field(headers: &HeaderMap, name: &header::HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(modified: i128) -> Version {
        Version {
            device: 1,
            inode: 2,
            length: 3,
            modified,
            changed: modified,
        }
    }

    #[test]
    fn a_date_is_read_as_written_and_impossible_ones_are_none() {
        let date = of(&version(784_111_777_999_999_999)).unwrap();
        assert_eq!(to_field(date), "Sun, 06 Nov 1994 08:49:37 GMT");
        let mut headers = HeaderMap::new();
        headers.insert(header::LAST_MODIFIED, to_field(date).parse().unwrap());
        assert_eq!(field(&headers, &header::LAST_MODIFIED), Some(date));
        headers.insert(header::LAST_MODIFIED, "yesterday".parse().unwrap());
        assert_eq!(field(&headers, &header::LAST_MODIFIED), None);
        for seconds in [-1, SECONDS.end() + 1] {
            assert_eq!(of(&version(seconds * 1_000_000_000)), None);
        }
        let last = of(&version(SECONDS.end() * 1_000_000_000)).unwrap();
        assert!(to_field(last).contains("9999"));
    }
}
