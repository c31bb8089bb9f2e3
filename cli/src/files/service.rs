//! Answers requests for files, whatever carries them.

use super::digest::{Cache, REPR_DIGEST, Sum, Version};
use super::range::{Span, Wanted, wanted};
use super::reader::hash_prefix;
use super::root::{Found, Refusal, RelPath, Root};
use super::upload::{Place, Upload};
use super::{OFFSET_HEADER, UPLOAD_HEADER, listing};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Files hashed at a time for clients that ask for a part.
const HASHING: usize = 2;

/// A served directory.
#[derive(Debug)]
pub(crate) struct Service {
    root: Root,
    writable: bool,
    cache: Cache,
    hashing: Semaphore,
    /// Turns of clients that measure the speed, if that is allowed.
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

/// What a request gets.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A status and perhaps a few words.
    Text(Head, Bytes),
    /// A file or a part of it.
    File(Head, Body),
    /// The request's body is wanted.
    Store(Box<Incoming>),
}

/// A part of an open file.
#[derive(Debug)]
pub(crate) struct Body {
    /// The file.
    pub(crate) file: File,
    /// What it was when it was opened.
    pub(crate) version: Version,
    /// The part.
    pub(crate) span: Span,
}

/// An upload that may begin.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Where it goes.
    pub(crate) upload: Upload,
    /// Bytes there are already.
    pub(crate) start: u64,
    /// Bytes there will be, if the client said so.
    pub(crate) total: Option<u64>,
    /// Whether a file is replaced.
    pub(crate) replaces: bool,
}

impl Head {
    fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
        }
    }

    fn with(mut self, name: HeaderName, value: impl Display) -> Self {
        // All values are made here of digits and hexadecimal digits, or are constants.
        if let Ok(value) = HeaderValue::try_from(format!("{value}")) {
            self.headers.insert(name, value);
        }
        self
    }
}

impl Answer {
    /// A status with an explanation for a person.
    pub(crate) fn words(status: StatusCode, words: impl Into<String>) -> Self {
        let text = words.into() + "\n";
        let head = Head::new(status)
            .with(header::CONTENT_TYPE, "text/plain; charset=utf-8")
            .with(header::CONTENT_LENGTH, text.len());
        Self::Text(head, text.into())
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let (status, words) = match refusal {
            Refusal::NotFound => (StatusCode::NOT_FOUND, "there is no such file"),
            Refusal::Forbidden => (StatusCode::FORBIDDEN, "this may not be read or written"),
            Refusal::Conflict => (
                StatusCode::CONFLICT,
                "the directory does not exist, the name is a directory's, or it is being written",
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
    /// Serves the files below `root`; takes uploads if `writable`.
    ///
    /// # Errors
    ///
    /// See [`Root::open`].
    pub(crate) fn new(root: &Path, writable: bool) -> io::Result<Self> {
        Ok(Self {
            root: Root::open(root)?,
            writable,
            cache: Cache::default(),
            hashing: Semaphore::new(HASHING),
            speed: None,
        })
    }

    /// What a request gets. Blocks on the disk.
    pub(crate) fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Answer {
        let result = match (method, headers.get(UPLOAD_HEADER)) {
            (&Method::HEAD, Some(tag)) => self.upload_state(path, tag.to_str().ok()),
            (&Method::GET | &Method::HEAD, _) => self.get(method, path, headers),
            (&Method::PUT, _) => self.put(path, headers),
            _ => {
                let head = Head::new(StatusCode::METHOD_NOT_ALLOWED);
                Ok(Answer::Text(
                    head.with(header::ALLOW, "GET, HEAD, PUT"),
                    Bytes::new(),
                ))
            }
        };
        result.unwrap_or_else(Answer::from)
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
        let file = match self.root.find(&RelPath::parse(path)?)? {
            Found::File(file) => file,
            Found::Directory(directory) => return list(&directory, headers),
        };
        let version = Version::of(&file.metadata()?);
        let etag = version.etag();
        let length = version.length;
        let range = field(headers, &header::RANGE).filter(|_| {
            // A range of another version is of no use: the whole file is sent instead.
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
        let mut head = Head::new(status)
            .with(header::CONTENT_TYPE, "application/octet-stream")
            .with(header::CONTENT_LENGTH, span.len())
            .with(header::ACCEPT_RANGES, "bytes")
            .with(header::ETAG, etag);
        if status == StatusCode::PARTIAL_CONTENT {
            head = head.with(header::CONTENT_RANGE, span.to_content_range(length));
        }
        if method == Method::HEAD {
            if let Some(sum) = self.cache.look_up(&version) {
                head = head.with(HeaderName::from_static(REPR_DIGEST), sum.to_field());
            }
            return Ok(Answer::Text(head, Bytes::new()));
        }
        Ok(Answer::File(
            head,
            Body {
                file,
                version,
                span,
            },
        ))
    }

    fn upload_state(&self, path: &str, tag: Option<&str>) -> Result<Answer, Refusal> {
        self.check_writable()?;
        let place = Place::new(&self.root, &RelPath::parse(path)?, tag)?;
        let name = HeaderName::from_static(OFFSET_HEADER);
        Ok(Answer::Text(
            Head::new(StatusCode::NO_CONTENT).with(name, place.length()),
            Bytes::new(),
        ))
    }

    fn put(&self, path: &str, headers: &HeaderMap) -> Result<Answer, Refusal> {
        self.check_writable()?;
        let tag = headers.get(UPLOAD_HEADER).map(HeaderValue::to_str);
        let tag = tag.transpose().map_err(|_| Refusal::Conflict)?;
        let length = field(headers, &header::CONTENT_LENGTH).map(str::parse::<u64>);
        let length = length.transpose().map_err(|_| Refusal::Conflict)?;
        let (start, total) = match field(headers, &header::CONTENT_RANGE) {
            None => (0, length),
            Some(value) => match Span::from_content_range(value) {
                Some((span, total)) if span.end == total => (span.start, Some(total)),
                _ => {
                    let words = "Content-Range must reach to the end: bytes A-(N-1)/N";
                    return Ok(Answer::words(StatusCode::BAD_REQUEST, words));
                }
            },
        };
        let place = Place::new(&self.root, &RelPath::parse(path)?, tag)?;
        let replaces = place.is_taken();
        if replaces && field(headers, &header::IF_NONE_MATCH) == Some("*") {
            return Ok(Answer::words(
                StatusCode::PRECONDITION_FAILED,
                "the file exists already",
            ));
        }
        if place.length() < start {
            let words = "the bytes before Content-Range are not here";
            return Ok(Answer::words(StatusCode::RANGE_NOT_SATISFIABLE, words));
        }
        let upload = place.open()?;
        Ok(Answer::Store(Box::new(Incoming {
            upload,
            start,
            total,
            replaces,
        })))
    }

    fn check_writable(&self) -> Result<(), Refusal> {
        if self.writable {
            Ok(())
        } else {
            Err(Refusal::Forbidden)
        }
    }

    /// Remembers the digest of a file that was read whole.
    pub(crate) fn remember(&self, version: Version, sum: Sum) {
        self.cache.remember(version, sum);
    }

    /// The digest of the whole file of which a part is sent; hashes it unless that was done before.
    /// `None` if the file cannot be read.
    pub(crate) async fn whole_sum(self: Arc<Self>, file: File, version: Version) -> Option<Sum> {
        if let Some(sum) = self.cache.look_up(&version) {
            return Some(sum);
        }
        let _turn = self.hashing.acquire().await.ok()?;
        // Somebody else may have hashed it meanwhile.
        if let Some(sum) = self.cache.look_up(&version) {
            return Some(sum);
        }
        let hashed = spawn_blocking(move || {
            let sum = Sum::of(hash_prefix(&file, version.length)?);
            Ok::<_, io::Error>((Version::of(&file.metadata()?) == version).then_some(sum))
        });
        let sum = hashed.await.ok()?.ok()??;
        self.cache.remember(version, sum);
        Some(sum)
    }
}

fn list(directory: &OwnedFd, headers: &HeaderMap) -> Result<Answer, Refusal> {
    let entries = listing::read(directory)?;
    let json = field(headers, &header::ACCEPT).is_some_and(|accept| accept.contains("json"));
    let (kind, text) = if json {
        let text = serde_json::to_string(&entries).map_err(|_| Refusal::Internal)?;
        ("application/json", text + "\n")
    } else {
        ("text/plain; charset=utf-8", listing::to_text(&entries))
    };
    let head = Head::new(StatusCode::OK)
        .with(header::CONTENT_TYPE, kind)
        .with(header::CONTENT_LENGTH, text.len());
    Ok(Answer::Text(head, text.into()))
}

/// A field's value, if it is text.
fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests;
