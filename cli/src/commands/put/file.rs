//! One file: resumes what the server has, sends the rest, verifies the whole.

use super::plan::{Job, open};
use super::{Run, going_on};
use crate::commands::transfer::{FileReport, verified};
use crate::failure::{Failure, Outcome};
use crate::files::digest::{CONTENT_DIGEST, REPR_DIGEST, Sum, Version};
use crate::files::digests::{Digests, Turns};
use crate::files::range::Span;
use crate::files::reader::{Hashed, Reader, Sums};
use crate::files::root::is_part;
use crate::files::{LENGTH_HEADER, OFFSET_HEADER, UPLOAD_HEADER, WANT_DIGEST, dates};
use crate::limit::STEP;
use crate::output::progress::Progress;
use crate::output::{self, units};
use crate::session::{Exchange, Session, words};
use crate::url::ServerUrl;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the server may hold on to an interrupted upload: until it has found out that the
/// connection is dead, with a margin.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two checks whether it still does.
const RETRY: Duration = Duration::from_millis(500);

/// Sends a file.
pub(super) async fn send(run: &Run<'_>, job: &Job, progress: &Progress) -> Outcome<FileReport> {
    let file = open(job)?;
    let metadata = file.metadata().map_err(|error| disk(job, &error))?;
    let version = Version::of(&metadata);
    let upload = Upload {
        run,
        job,
        version,
        progress,
    };
    progress.expect(version.length);
    let sent = upload.proceed(file).await?;
    Ok(sent.report(job))
}

/// An upload in progress.
struct Upload<'a> {
    run: &'a Run<'a>,
    job: &'a Job,
    version: Version,
    progress: &'a Progress,
}

/// A file that the server has now.
struct Sent {
    /// Whether it was there already.
    unchanged: bool,
    length: u64,
    start: u64,
    duration: Duration,
    sum: Sum,
    theirs: Option<Sum>,
}

/// What the server has already.
struct Known {
    /// Bytes of this same upload.
    offset: u64,
    /// Length of the file that has this name now.
    length: Option<u64>,
}

impl Upload<'_> {
    /// The name of this upload on the server: different content gets a different name.
    fn tag(&self) -> HeaderValue {
        let Version {
            length,
            modified,
            inode,
            device,
            ..
        } = self.version;
        let tag = format!("{device:x}-{inode:x}-{length:x}-{modified:x}");
        HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("-"))
    }

    async fn proceed(&self, file: File) -> Outcome<Sent> {
        let session = self.run.session;
        let known = self.known().await?;
        if self.is_alike(&known)
            && let Some(sent) = self.compare(&file).await?
        {
            return Ok(sent);
        }
        // The last byte is sent again, so that there is always something to send.
        let start = known.offset.min(self.version.length.saturating_sub(1));
        if start > 0 && !self.run.talk.quiet {
            output::say(format!("going on after {}", units::bytes(start)));
        }
        let copy = file.try_clone().map_err(|error| disk(self.job, &error))?;
        let hashed = Digests::default()
            .prefix(copy, start, &Turns::default())
            .await;
        let (_, before) = hashed.map_err(|error| disk(self.job, &error))?;
        let length = self.version.length;
        let span = Span { start, end: length };
        let mut reader = Reader::start(file, self.version, span, Hashed::SpanAfter(before))
            .map_err(|error| disk(self.job, &error))?;
        let started = Instant::now();
        let mut exchange = session
            .request("PUT", &self.job.url, self.headers(span))
            .await?;
        self.progress.already(start);
        let sums = match self.send(&mut exchange, &mut reader).await {
            Ok(()) => reader.finish(),
            Err(Step::Failed(failure)) => return Err(failure),
            Err(Step::Stream(error)) => {
                // The server may have said why before it stopped reading.
                return Err(match exchange.recv_response().await {
                    Ok(response) => self.refused(&mut exchange, &response).await,
                    Err(_) => going_on(session.broken(&error)),
                });
            }
        };
        let sums = sums.and_then(|sums| Some((sums, sums.whole?)));
        let (sums, sum) = sums.ok_or_else(|| Failure::failed("the file was not hashed"))?;
        let response = answer(session, &mut exchange, trailers(&sums, sum)).await?;
        if !response.status().is_success() {
            return Err(self.refused(&mut exchange, &response).await);
        }
        let theirs = response.headers().get(REPR_DIGEST);
        let theirs = theirs.and_then(|value| Sum::from_field(value.to_str().ok()?));
        if theirs.is_some_and(|theirs| theirs != sum) {
            return Err(Failure::failed(
                "the server has stored something else: its SHA-256 differs",
            ));
        }
        Ok(Sent {
            unchanged: false,
            length,
            start,
            duration: started.elapsed(),
            sum,
            theirs,
        })
    }

    /// Asks what the server has. If the server still holds this upload for the connection over
    /// which it broke off, waits for it to let go.
    async fn known(&self) -> Outcome<Known> {
        if self.job.is_new {
            return Ok(Known {
                offset: 0,
                length: None,
            });
        }
        let since = Instant::now();
        let mut told = self.run.talk.quiet;
        loop {
            let mut headers = HeaderMap::new();
            headers.insert(UPLOAD_HEADER, self.tag());
            let (mut exchange, response) = self.head(headers).await?;
            let is_held = response.status() == StatusCode::LOCKED;
            if is_held && since.elapsed() < PATIENCE {
                if !std::mem::replace(&mut told, true) {
                    output::say("waiting: the server still holds this upload for a connection");
                }
                tokio::time::sleep(RETRY).await;
                continue;
            }
            if !response.status().is_success() {
                return Err(self.refused(&mut exchange, &response).await);
            }
            let number = |name: &str| {
                let value = response.headers().get(name)?.to_str().ok()?;
                value.parse().ok()
            };
            return Ok(Known {
                offset: number(OFFSET_HEADER).unwrap_or(0),
                length: number(LENGTH_HEADER),
            });
        }
    }

    async fn head(&self, headers: HeaderMap) -> Outcome<(Exchange, Response<()>)> {
        self.run.session.ask("HEAD", &self.job.url, headers).await
    }

    /// Whether the server's file may be the same as this one.
    fn is_alike(&self, known: &Known) -> bool {
        let length = self.version.length;
        known.offset == 0 && known.length == Some(length) && !self.run.args.no_clobber
    }

    /// Compares digests: an identical file need not be sent.
    async fn compare(&self, file: &File) -> Outcome<Option<Sent>> {
        let started = Instant::now();
        let mut headers = HeaderMap::new();
        let wanted = HeaderName::from_static(WANT_DIGEST);
        headers.insert(wanted, HeaderValue::from_static("sha-256=10"));
        let copy = file.try_clone().map_err(|error| disk(self.job, &error))?;
        let digests = Digests::default();
        let turns = Turns::default();
        let ours = digests.whole(copy, self.version, &turns);
        let (ours, theirs) = if self.version.length == 0 {
            // Empty files are identical: the server is not asked.
            let ours = ours.await;
            (ours, ours)
        } else {
            let (ours, theirs) = tokio::join!(ours, self.head(headers));
            let (_, response) = theirs?;
            let field = response.headers().get(REPR_DIGEST);
            let theirs = field.and_then(|value| Sum::from_field(value.to_str().ok()?));
            (ours, theirs)
        };
        let Some(sum) = ours.filter(|ours| theirs == Some(*ours)) else {
            return Ok(None);
        };
        self.progress.already(self.version.length);
        Ok(Some(Sent {
            unchanged: true,
            length: self.version.length,
            start: self.version.length,
            duration: started.elapsed(),
            sum,
            theirs,
        }))
    }

    fn headers(&self, span: Span) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(UPLOAD_HEADER, self.tag());
        headers.insert(header::CONTENT_LENGTH, span.len().into());
        if let Some(date) = dates::of(&self.version)
            && let Ok(value) = HeaderValue::try_from(dates::to_field(date))
        {
            headers.insert(header::LAST_MODIFIED, value);
        }
        if self.run.args.no_clobber {
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        if span.start > 0
            && let Ok(value) = HeaderValue::try_from(span.to_content_range(self.version.length))
        {
            headers.insert(header::CONTENT_RANGE, value);
        }
        headers
    }

    async fn send(&self, exchange: &mut Exchange, reader: &mut Reader) -> Result<(), Step> {
        let limit = self.run.limit;
        while let Some(mut piece) = reader
            .next()
            .await
            .map_err(|error| disk(self.job, &error))?
        {
            while !piece.is_empty() {
                let step = if limit.is_limited() {
                    STEP
                } else {
                    piece.len()
                };
                let step = piece.split_to(step.min(piece.len()));
                let length = step.len() as u64;
                limit.pass(length).await;
                exchange.send_data(step).await?;
                self.progress.advance(length);
            }
        }
        Ok(())
    }

    async fn refused(&self, exchange: &mut Exchange, response: &Response<()>) -> Failure {
        refused(self.run, &self.job.url, exchange, response).await
    }
}

fn disk(job: &Job, error: &io::Error) -> Failure {
    Failure::io(format!("cannot read {}", job.local.display()), error)
}

/// Why the server refused, with a hint.
pub(super) async fn refused(
    run: &Run<'_>,
    url: &ServerUrl,
    exchange: &mut Exchange,
    response: &Response<()>,
) -> Failure {
    let words = words(exchange, response).await;
    let failure = Failure::failed(format!("{}: {words}", url.request_path()));
    match response.status() {
        StatusCode::FORBIDDEN if takes_nothing(run, url).await => {
            run.over.store(true, Ordering::Relaxed);
            failure.hint("the server takes no files: does it run with `--writable`?")
        }
        StatusCode::FORBIDDEN => failure.hint(
            "the server takes files, but not there: its user may not write there, or a symbolic \
             link leads out of its directory",
        ),
        StatusCode::NOT_FOUND if url.path.split('/').any(|name| is_part(name.as_bytes())) => {
            failure.hint(
                "the server keeps unfinished uploads under names such as `.NAME.part`: choose \
                 another",
            )
        }
        StatusCode::LOCKED => failure.hint(
            "somebody is sending this very file: give the same command again once that is over",
        ),
        StatusCode::CONFLICT if run.args.recursive => failure.hint(
            "a file there has the name of a directory, or a directory that of a file: see \
             `anabranch get URL/`",
        ),
        StatusCode::CONFLICT => failure.hint(
            "a file goes into a directory that the server has, under a name that no directory has: \
             see `anabranch get URL/`; `put -r` makes directories",
        ),
        StatusCode::PRECONDITION_FAILED => failure.hint("leave out `--no-clobber` to replace it"),
        StatusCode::TOO_MANY_REQUESTS => {
            run.over.store(true, Ordering::Relaxed);
            failure.hint("give the same command again: it goes on over another connection")
        }
        StatusCode::INSUFFICIENT_STORAGE => {
            run.over.store(true, Ordering::Relaxed);
            failure.hint("nothing more can be sent until there is room on the server's disk")
        }
        _ => failure,
    }
}

/// Whether a server that forbids one path forbids all of them. Asks about the root, which is a
/// directory: a server that accepts files answers with another error there.
async fn takes_nothing(run: &Run<'_>, url: &ServerUrl) -> bool {
    let asked = run.takes_nothing.get_or_init(async || {
        let mut root = url.clone();
        root.path = String::new();
        let mut headers = HeaderMap::new();
        headers.insert(UPLOAD_HEADER, HeaderValue::from_static("-"));
        let (_, response) = run.session.ask("HEAD", &root, headers).await.ok()?;
        Some(response.status() == StatusCode::FORBIDDEN)
    });
    asked.await.unwrap_or(false)
}

/// Why sending stopped.
enum Step {
    Failed(Failure),
    Stream(h3::error::StreamError),
}

impl From<Failure> for Step {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<h3::error::StreamError> for Step {
    fn from(error: h3::error::StreamError) -> Self {
        Self::Stream(error)
    }
}

/// Ends the request and waits for the response.
async fn answer(
    session: &Session,
    exchange: &mut Exchange,
    trailers: HeaderMap,
) -> Outcome<Response<()>> {
    let ended = async {
        exchange.send_trailers(trailers).await?;
        exchange.finish().await
    };
    // A server that has seen enough may respond early and stop reading: then its response counts.
    let ended = ended.await;
    exchange.recv_response().await.map_err(|error| {
        let first = ended.err().unwrap_or(error);
        going_on(session.broken(&first))
    })
}

fn trailers(sums: &Sums, whole: Sum) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    for (name, sum) in [(CONTENT_DIGEST, sums.content), (REPR_DIGEST, whole)] {
        if let Ok(value) = HeaderValue::try_from(sum.to_field()) {
            trailers.insert(HeaderName::from_static(name), value);
        }
    }
    trailers
}

impl Sent {
    fn report(self, job: &Job) -> FileReport {
        let moved = self.length - self.start;
        FileReport {
            command: "put",
            file: job.local.display().to_string(),
            bytes: self.length,
            resumed_from: self.start,
            unchanged: self.unchanged,
            seconds: units::json_seconds(self.duration),
            goodput_bps: units::rate(moved, self.duration).round(),
            sha256: Some(self.sum.to_string()),
            verified: verified(self.theirs),
        }
    }
}
