//! Answers requests for files, over any protocol.

use super::digest::{REPR_DIGEST, Sum, Version};
use super::digests::Digests;
use super::range::{Span, Wanted, wanted};
use super::root::{Found, Refusal, RelPath, Root};
use super::upload::{Place, Precondition, Upload};
use super::uploads::{Account, Limits, Uploads};
use super::{
    LENGTH_HEADER, OFFSET_HEADER, REASON_HEADER, UPLOAD_HEADER, WANT_DIGEST, dates, expiry,
    listing, media,
};
use crate::url;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Answers prepared from disk at a time, each on a thread: some requests, such as listings, are
/// cheap to send and costly to answer.
const ANSWERS: usize = 64;

/// When a client that was told that the server is busy may ask again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A served directory.
#[derive(Debug)]
pub(crate) struct Service {
    root: Root,
    /// `None` if uploads are not accepted.
    uploads: Option<Arc<Uploads>>,
    /// Digests of its files.
    pub(crate) digests: Digests,
    turns: Semaphore,
    /// Permits for clients that measure the speed, if that is allowed.
    pub(crate) speed: Option<Semaphore>,
}

/// What is sent before a body.
#[derive(Debug)]
pub(crate) struct Head {
    /// The status.
    pub(crate) status: StatusCode,
    /// The fields.
    pub(crate) headers: HeaderMap,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A status and perhaps a few words.
    Text(Head, Bytes),
    /// A file or a part of it.
    File(Head, Body),
    /// No content. The head still lacks the digest of the whole file, which the client asked for.
    Digest(Head, Body),
    /// The request's body is an upload, to be stored.
    Store(Box<Incoming>),
    /// The request's body must be empty; then [`Service::make`] answers.
    Make(Making),
}

/// A part of an open file.
#[derive(Debug)]
pub(crate) struct Body {
    /// The file.
    pub(crate) file: File,
    /// Its version when it was opened.
    pub(crate) version: Version,
    /// The part.
    pub(crate) span: Span,
}

/// An upload that may begin.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Where it goes.
    pub(crate) upload: Upload,
    /// Bytes that an earlier attempt left.
    pub(crate) start: u64,
    /// The length of the whole file, if the client gave it.
    pub(crate) total: Option<u64>,
    /// Whether a file is replaced.
    pub(crate) replaces: bool,
    /// What must hold when it gets its name.
    pub(crate) precondition: Precondition,
    /// When its content last changed, if the client said so.
    pub(crate) modified: Option<SystemTime>,
}

/// A directory to be made.
#[derive(Debug)]
pub(crate) struct Making {
    path: RelPath,
    precondition: Precondition,
}

impl Head {
    fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
        }
    }

    fn with(mut self, name: HeaderName, value: impl Display) -> Self {
        // All values are made here: text from a client is escaped before it becomes part of one.
        if let Ok(value) = HeaderValue::try_from(format!("{value}")) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Adds the digest of the whole file.
    pub(crate) fn with_digest(self, sum: Sum) -> Self {
        self.with(HeaderName::from_static(REPR_DIGEST), sum.to_field())
    }
}

impl Answer {
    /// A status with an explanation for a person.
    pub(crate) fn words(status: StatusCode, words: impl Into<String>) -> Self {
        let text = words.into() + "\n";
        let mut head = Head::new(status)
            .with(header::CONTENT_TYPE, "text/plain; charset=utf-8")
            .with(header::CONTENT_LENGTH, text.len());
        if status == StatusCode::SERVICE_UNAVAILABLE {
            head = head.with(header::RETRY_AFTER, RETRY_AFTER.as_secs());
        }
        Self::Text(head, text.into())
    }

    /// The answer to content that was sent for a directory.
    pub(crate) fn directory_with_content() -> Self {
        let words = "the path ends in a slash: a directory has no content";
        Self::words(StatusCode::BAD_REQUEST, words)
    }
}

impl Answer {
    /// The answer to a `HEAD` (RFC 9110, section 9.3.2). The words of a refusal move into its head.
    fn without_content(self) -> Self {
        match self {
            Self::Text(head, text) if head.status.is_success() || text.is_empty() => {
                Self::Text(head, Bytes::new())
            }
            Self::Text(head, text) => {
                let words = String::from_utf8_lossy(&text);
                let reason = HeaderName::from_static(REASON_HEADER);
                Self::Text(head.with(reason, words.trim_end()), Bytes::new())
            }
            other => other,
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let (status, words) = match refusal {
            Refusal::NotFound => (StatusCode::NOT_FOUND, "there is no such file"),
            Refusal::Forbidden => (StatusCode::FORBIDDEN, "this may not be read or written"),
            Refusal::NoDirectory => (
                StatusCode::CONFLICT,
                "the server has no such directory to put it into",
            ),
            Refusal::IsDirectory => (StatusCode::CONFLICT, "a directory has this name"),
            Refusal::NoPlace => (
                StatusCode::CONFLICT,
                "something else than a directory has this name",
            ),
            Refusal::InUse => (
                StatusCode::LOCKED,
                "this very upload is under way over another connection",
            ),
            Refusal::Exists => (StatusCode::PRECONDITION_FAILED, "the file exists already"),
            Refusal::Changed => (
                StatusCode::PRECONDITION_FAILED,
                "the file is not the one that was to be replaced",
            ),
            Refusal::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "this is more than the server takes over one connection",
            ),
            Refusal::TooMany => (
                StatusCode::TOO_MANY_REQUESTS,
                "these are more files than the server takes over one connection",
            ),
            Refusal::Crowded => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the directory has more entries than a listing may have (100000)",
            ),
            Refusal::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is busy: try later",
            ),
            Refusal::DiskFull => (
                StatusCode::INSUFFICIENT_STORAGE,
                "the server's disk is full",
            ),
            Refusal::Internal => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the server's disk failed",
            ),
        };
        Self::words(status, words)
    }
}

impl Service {
    /// Serves the files below `root`; accepts uploads within `limits`, if given.
    ///
    /// # Errors
    ///
    /// See [`Root::open`].
    pub(crate) fn new(root: &Path, limits: Option<Limits>) -> io::Result<Self> {
        Ok(Self {
            root: Root::open(root)?,
            uploads: limits.map(|limits| Arc::new(Uploads::new(limits))),
            digests: Digests::default(),
            turns: Semaphore::new(ANSWERS),
            speed: None,
        })
    }

    /// A permit to hold while an answer is prepared.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// Removes unfinished uploads that were last written longer than `age` ago; returns how many.
    /// Blocks on the disk.
    pub(crate) fn expire(&self, age: Duration) -> usize {
        expiry::sweep(&self.root, age)
    }

    /// Answers a request. `account` is what its connection has uploaded. Blocks on the disk.
    pub(crate) fn answer(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        account: &Arc<Account>,
    ) -> Answer {
        let result = match (method, headers.get(UPLOAD_HEADER)) {
            (&Method::HEAD, Some(tag)) => self.upload_state(path, tag.to_str().ok()),
            (&Method::GET | &Method::HEAD, _) => self.get(method, path, headers),
            (&Method::PUT, _) => self.put(path, headers, account),
            _ => {
                let head = Head::new(StatusCode::METHOD_NOT_ALLOWED);
                Ok(Answer::Text(
                    head.with(header::ALLOW, "GET, HEAD, PUT"),
                    Bytes::new(),
                ))
            }
        };
        let answer = result.unwrap_or_else(Answer::from);
        if method == Method::HEAD {
            answer.without_content()
        } else {
            answer
        }
    }

    /// Opens a file, for protocols without headers. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    pub(crate) fn open(&self, path: &str) -> Result<Body, Refusal> {
        match self.root.find(&RelPath::parse(path)?)? {
            Found::File(file) => {
                let version = Version::of(&file.metadata()?);
                let span = Span {
                    start: 0,
                    end: version.length,
                };
                Ok(Body {
                    file,
                    version,
                    span,
                })
            }
            Found::Directory(_) => Err(Refusal::NotFound),
        }
    }

    fn get(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Answer, Refusal> {
        let parsed = RelPath::parse(path)?;
        let file = match self.root.find(&parsed)? {
            Found::File(file) => file,
            Found::Directory(_) if !parsed.is_directory => return Ok(add_slash(path)),
            Found::Directory(directory) => return self.list(&parsed, &directory, headers),
        };
        let version = Version::of(&file.metadata()?);
        let etag = version.etag();
        let length = version.length;
        if is_known(headers, &version) {
            let head = Head::new(StatusCode::NOT_MODIFIED).with(header::ETAG, etag);
            return Ok(Answer::Text(head, Bytes::new()));
        }
        let range = field(headers, &header::RANGE).filter(|_| {
            // A range of another version is useless: the whole file is sent instead.
            field(headers, &header::IF_RANGE).is_none_or(|known| known == etag)
        });
        let (status, span) = match wanted(range, length) {
            Wanted::All => (
                StatusCode::OK,
                Span {
                    start: 0,
                    end: length,
                },
            ),
            Wanted::Part(span) => (StatusCode::PARTIAL_CONTENT, span),
            Wanted::Unsatisfiable => {
                let head = Head::new(StatusCode::RANGE_NOT_SATISFIABLE)
                    .with(header::CONTENT_RANGE, format!("bytes */{length}"))
                    .with(header::ETAG, etag);
                return Ok(Answer::Text(head, Bytes::new()));
            }
        };
        let kind = media::content_type(parsed.name().unwrap_or_default());
        let mut head = Head::new(status)
            .with(header::CONTENT_TYPE, kind)
            // A browser must not guess that other content is a web page.
            .with(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
            .with(header::CONTENT_LENGTH, span.len())
            .with(header::ACCEPT_RANGES, "bytes")
            .with(header::ETAG, etag);
        if let Some(date) = dates::of(&version) {
            head = head.with(header::LAST_MODIFIED, dates::to_field(date));
        }
        if status == StatusCode::PARTIAL_CONTENT {
            head = head.with(header::CONTENT_RANGE, span.to_content_range(length));
        }
        let body = Body {
            file,
            version,
            span,
        };
        if method != Method::HEAD {
            return Ok(Answer::File(head, body));
        }
        Ok(match self.digests.known(&version) {
            Some(sum) => Answer::Text(head.with_digest(sum), Bytes::new()),
            None if headers.contains_key(WANT_DIGEST) => Answer::Digest(head, body),
            None => Answer::Text(head, Bytes::new()),
        })
    }

    fn list(
        &self,
        path: &RelPath,
        directory: &OwnedFd,
        headers: &HeaderMap,
    ) -> Result<Answer, Refusal> {
        let entries = listing::read(&self.root, path, directory)?;
        let json = field(headers, &header::ACCEPT).is_some_and(|accept| accept.contains("json"));
        let (kind, text) = if json {
            let text = serde_json::to_string(&entries).map_err(|_| Refusal::Internal)?;
            ("application/json", text + "\n")
        } else {
            ("text/plain; charset=utf-8", listing::to_text(&entries))
        };
        let head = Head::new(StatusCode::OK)
            .with(header::CONTENT_TYPE, kind)
            .with(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
            .with(header::CONTENT_LENGTH, text.len());
        Ok(Answer::Text(head, text.into()))
    }

    fn upload_state(&self, path: &str, tag: Option<&str>) -> Result<Answer, Refusal> {
        let uploads = self.uploads.as_ref().ok_or(Refusal::Forbidden)?;
        let place = Place::new(&self.root, &RelPath::parse(path)?, tag)?;
        uploads.settle(&place)?;
        let name = HeaderName::from_static(OFFSET_HEADER);
        let mut head = Head::new(StatusCode::NO_CONTENT).with(name, place.length());
        if let Some(length) = place.taken_length() {
            head = head.with(HeaderName::from_static(LENGTH_HEADER), length);
        }
        Ok(Answer::Text(head, Bytes::new()))
    }

    fn put(
        &self,
        path: &str,
        headers: &HeaderMap,
        account: &Arc<Account>,
    ) -> Result<Answer, Refusal> {
        let uploads = self.uploads.as_ref().ok_or(Refusal::Forbidden)?;
        let bad = |words: &str| Ok(Answer::words(StatusCode::BAD_REQUEST, words));
        let Ok(tag) = headers
            .get(UPLOAD_HEADER)
            .map(HeaderValue::to_str)
            .transpose()
        else {
            return bad("the upload's name is not text");
        };
        let length = field(headers, &header::CONTENT_LENGTH).map(str::parse::<u64>);
        let Ok(length) = length.transpose() else {
            return bad("Content-Length is not a number");
        };
        let (start, total) = match field(headers, &header::CONTENT_RANGE) {
            None => (0, length),
            Some(value) => match Span::from_content_range(value) {
                Some((span, total)) if span.end == total => (span.start, Some(total)),
                _ => return bad("Content-Range must reach to the end: bytes A-(N-1)/N"),
            },
        };
        let parsed = RelPath::parse(path)?;
        if parsed.is_directory {
            return Ok(match length {
                None | Some(0) => Answer::Make(Making {
                    path: parsed,
                    precondition: precondition(headers),
                }),
                Some(_) => Answer::directory_with_content(),
            });
        }
        let precondition = precondition(headers);
        let place = Place::new(&self.root, &parsed, tag)?;
        place.check(&precondition)?;
        let replaces = place.is_taken();
        if place.length() < start {
            let words = "the bytes before Content-Range are not here";
            return Ok(Answer::words(StatusCode::RANGE_NOT_SATISFIABLE, words));
        }
        let announced = total.map(|total| total.saturating_sub(start));
        let upload = uploads.begin(place, account, announced)?;
        Ok(Answer::Store(Box::new(Incoming {
            upload,
            start,
            total,
            replaces,
            precondition,
            modified: dates::field(headers, &header::LAST_MODIFIED),
        })))
    }

    /// Makes a directory and its missing parents, as a `PUT` of a path that ends in a slash asks
    /// for. Blocks on the disk.
    pub(crate) fn make(&self, making: &Making, account: &Account) -> Answer {
        match self.try_make(making, account) {
            Ok(true) => Answer::words(StatusCode::CREATED, "the directory is made"),
            Ok(false) => Answer::words(StatusCode::OK, "the directory is there already"),
            Err(refusal) => refusal.into(),
        }
    }

    /// Returns whether it is new.
    fn try_make(
        &self,
        Making { path, precondition }: &Making,
        account: &Account,
    ) -> Result<bool, Refusal> {
        let uploads = self.uploads.as_ref().ok_or(Refusal::Forbidden)?;
        let is_there = match self.root.directory(path) {
            Err(Refusal::NoDirectory) => false,
            found => found.map(|_| true)?,
        };
        match precondition {
            Precondition::Present if !is_there => return Err(Refusal::Changed),
            // A directory has no entity tag.
            Precondition::Version(_) => return Err(Refusal::Changed),
            Precondition::Absent if is_there => return Err(Refusal::Exists),
            _ => {}
        }
        let is_new = uploads.make_directory(&self.root, path, account)?;
        if *precondition == Precondition::Absent && !is_new {
            return Err(Refusal::Exists);
        }
        Ok(is_new)
    }
}

/// Redirects a request for a directory to the path with a slash at the end. Otherwise its listing
/// could be taken for a file, and the names in the listing are relative to the slash.
fn add_slash(path: &str) -> Answer {
    let plain = url::unescape(path.trim_start_matches('/'));
    let location = format!("/{}/", url::escape(&plain));
    let words = format!("this is a directory: {location}");
    match Answer::words(StatusCode::PERMANENT_REDIRECT, words) {
        Answer::Text(head, text) => Answer::Text(head.with(header::LOCATION, location), text),
        other => other,
    }
}

/// Whether the client has this version already (RFC 9110, sections 13.1.2 and 13.1.3).
fn is_known(headers: &HeaderMap, version: &Version) -> bool {
    if headers.contains_key(header::IF_NONE_MATCH) {
        let tags = tags(headers, &header::IF_NONE_MATCH);
        return tags
            .iter()
            .any(|tag| tag == "*" || tag.trim_start_matches("W/") == version.etag());
    }
    let since = dates::field(headers, &header::IF_MODIFIED_SINCE);
    since
        .zip(dates::of(version))
        .is_some_and(|(since, modified)| modified <= since)
}

/// What must hold of the file that an upload replaces.
fn precondition(headers: &HeaderMap) -> Precondition {
    if tags(headers, &header::IF_NONE_MATCH) == ["*"] {
        return Precondition::Absent;
    }
    if !headers.contains_key(header::IF_MATCH) {
        return Precondition::None;
    }
    let tags = tags(headers, &header::IF_MATCH);
    if tags == ["*"] {
        Precondition::Present
    } else {
        Precondition::Version(tags)
    }
}

/// The entity tags of a field. Ours contain no commas.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    let tags = values.flat_map(|value| value.split(','));
    tags.map(|tag| tag.trim().to_owned()).collect()
}

/// A field's value, if it is text.
fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests;
