//! Directories on the server: how to list them and how to recognise them.

use super::Run;
use super::file::refused;
use crate::failure::{Failure, Outcome};
use crate::files::listing::Entry;
use crate::url::ServerUrl;
use bytes::Buf;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};

/// The most bytes of a listing that are read.
const MAX_LISTING: usize = 64 << 20;

/// Fetches the listing of the directory at `url`.
pub(super) async fn fetch(run: &Run<'_>, url: &ServerUrl) -> Outcome<Vec<Entry>> {
    let session = run.session;
    let (mut exchange, response) = run.session.ask("GET", url, headers()).await?;
    if response.status() != StatusCode::OK {
        return Err(refused(&mut exchange, &response, url).await);
    }
    let mut text = Vec::new();
    while let Some(piece) = exchange
        .recv_data()
        .await
        .map_err(|error| session.broken(&error))?
    {
        text.extend_from_slice(piece.chunk());
        if text.len() > MAX_LISTING {
            return Err(Failure::failed("the listing is too long"));
        }
    }
    serde_json::from_slice(&text).map_err(|error| {
        let what = format!(
            "the listing of {} cannot be read: {error}",
            url.request_path()
        );
        Failure::failed(what).hint("is this a file? then leave out the slash at the end")
    })
}

/// The header fields of a request for a listing.
pub(super) fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers
}

/// The directory's own URL, if the response redirects from a file's URL to the same name with a
/// slash.
pub(super) fn instead(response: &Response<()>, url: &ServerUrl) -> Option<ServerUrl> {
    let field = |name| response.headers().get(name)?.to_str().ok();
    let mut directory = url.clone();
    directory.path.push('/');
    let is_moved = response.status().is_redirection()
        && field(header::LOCATION).is_some_and(|to| to.ends_with(&directory.request_path()));
    is_moved.then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_told_from_a_file() {
        let url: ServerUrl = "anabranch://h/a b".parse().unwrap();
        let told = |status: u16, fields: &[(&'static str, &str)]| {
            let mut response = Response::builder().status(status);
            for (name, value) in fields {
                response = response.header(*name, *value);
            }
            let found = instead(&response.body(()).unwrap(), &url);
            found.map(|url| url.path)
        };
        let text = ("content-type", "text/plain; charset=utf-8");
        let there = Some("a b/".to_owned());
        assert_eq!(told(308, &[("location", "/a%20b/")]), there);
        assert_eq!(told(301, &[("location", "https://h/a%20b/")]), there);
        assert_eq!(told(301, &[("location", "/elsewhere")]), None);
        assert_eq!(told(200, &[text]), None, "a file of a server without tags");
        assert_eq!(told(404, &[text]), None);
    }
}
