//! Compares a file that is already here with the server's: by SHA-256 if the server sends one,
//! otherwise by length and time, as rsync does.

use super::Run;
use super::file::{modified, refused, their_sum};
use super::listing;
use crate::failure::{Failure, Outcome};
use crate::files::digest::Sum;
use crate::files::reader::hash_apart;
use crate::url::ServerUrl;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Asks for the digest of the whole file (RFC 9530, section 4).
const WANT_DIGEST: &str = "want-repr-digest";

/// The result of a comparison.
#[derive(Debug)]
pub(super) enum Present {
    /// It is the server's file, by digest or by length and time.
    Same {
        /// Its length.
        length: u64,
        /// Its digest, if digests were compared.
        sum: Option<Sum>,
    },
    /// It is a different file; why.
    Other(&'static str),
    /// The server has a directory there, with this URL.
    Directory(ServerUrl),
    /// The server sends nothing to compare with.
    Unknown,
}

/// Compares the file at `path` with the server's.
pub(super) async fn compare(run: &Run<'_>, url: &ServerUrl, path: &Path) -> Outcome<Present> {
    let cannot = |error| Failure::io(format!("cannot read {}", path.display()), &error);
    let mut headers = HeaderMap::new();
    headers.insert(WANT_DIGEST, HeaderValue::from_static("sha-256=10"));
    let (mut exchange, response) = run.session.ask("HEAD", url, headers).await?;
    if let Some(directory) = listing::instead(&response, url) {
        return Ok(Present::Directory(directory));
    }
    if matches!(
        response.status(),
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED
    ) {
        return Err(refused(&mut exchange, &response, url).await);
    }
    let field = response.headers().get(header::CONTENT_LENGTH);
    let length = field.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let (Some(length), true) = (length, response.status().is_success()) else {
        return Ok(Present::Unknown);
    };
    let found = fs::metadata(path).map_err(cannot)?;
    if !found.is_file() {
        return Ok(Present::Other("is no file"));
    }
    if found.len() != length {
        return Ok(Present::Other("has another length than the server's"));
    }
    if let Some(theirs) = their_sum(&response, None, 0) {
        let file = File::open(path).map_err(cannot)?;
        let ours = Sum::of(hash_apart(file, length).await.map_err(cannot)?);
        return Ok(if ours == theirs {
            let sum = Some(ours);
            Present::Same { length, sum }
        } else {
            Present::Other("has another SHA-256 than the server's")
        });
    }
    let times = modified(&response).zip(found.modified().ok());
    Ok(
        if times.is_some_and(|(theirs, ours)| is_same_second(theirs, ours)) {
            Present::Same { length, sum: None }
        } else {
            Present::Other("was changed at another time than the server's")
        },
    )
}

/// HTTP dates have whole seconds.
fn is_same_second(one: SystemTime, other: SystemTime) -> bool {
    let seconds = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        since.as_ref().map(Duration::as_secs).ok()
    };
    seconds(one) == seconds(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared_as_precisely_as_http_tells_them() {
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        assert!(is_same_second(at(5000), at(5999)));
        assert!(!is_same_second(at(5000), at(6000)));
    }
}
