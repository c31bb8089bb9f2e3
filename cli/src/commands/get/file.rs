//! One file: resumes what is here, receives the rest, verifies the whole and names it.

use super::listing;
use super::plan::{Job, Place};
use super::present::{self, Present};
use super::{Run, stdout};
use crate::args::Get;
use crate::commands::transfer::{FileReport, verified};
use crate::failure::{Failure, Outcome};
use crate::files::digest::{CONTENT_DIGEST, REPR_DIGEST, Sum};
use crate::files::partial::{PartFile, ResumePoint};
use crate::files::range::Span;
use crate::files::writer::Writer;
use crate::output::progress::Progress;
use crate::output::{self, units};
use crate::session::{Exchange, words};
use crate::url::ServerUrl;
use bytes::Buf;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Why a download ended early.
#[derive(Debug)]
pub(super) enum Broken {
    /// What was received is intact, and the download can be resumed.
    Resumable(Failure),
    /// What was received is wrong and must be discarded.
    Worthless(Failure),
    /// This is a directory, whose own URL ends in a slash.
    Directory(ServerUrl),
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self::Resumable(failure)
    }
}

impl Broken {
    /// What to tell the user.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Resumable(failure) | Self::Worthless(failure) => failure,
            Self::Directory(url) => {
                let what = format!("{} is a directory", url.request_path());
                Failure::usage(what).hint(format!(
                    "`anabranch get \"{url}\"` lists it, `get -r` fetches it"
                ))
            }
        }
    }
}

/// Fetches a file to its place.
pub(super) async fn fetch(
    run: &Run<'_>,
    job: &Job,
    progress: &Progress,
) -> Result<FileReport, Broken> {
    let Place::File(target) = &job.place else {
        return stdout::fetch(run, job, progress).await;
    };
    if !run.args.force && fs::symlink_metadata(target).is_ok() {
        let compared = run.or_stopped(present::compare(run, &job.url, target));
        let report = leave(target, compared.await?)?;
        progress.expect(report.bytes);
        progress.already(report.bytes);
        return Ok(report);
    }
    let part = PartFile::open(target)?;
    let mut download = Download {
        run,
        job,
        part: &part,
        progress,
        writer: None,
    };
    let result = tokio::select! {
        result = download.run() => result,
        () = run.stopped() => {
            Err(Broken::Resumable(Failure::failed("interrupted").hint(again(&part))))
        }
    };
    if let Some(writer) = download.writer.take() {
        writer.keep().await;
    }
    match result {
        Ok(fetched) => Ok(fetched.name(part, target, run.args.force)?),
        Err(Broken::Worthless(failure)) => {
            part.discard();
            Err(Broken::Worthless(failure))
        }
        Err(broken) => {
            part.discard_if_empty();
            Err(broken)
        }
    }
}

/// A file that is already here stays, whatever it is.
fn leave(target: &Path, present: Present) -> Result<FileReport, Broken> {
    match present {
        Present::Same { length, sum } => Ok(unchanged(target, length, sum)),
        Present::Other(why) => Err(in_the_way(target, why).into()),
        Present::Directory(url) => Err(Broken::Directory(url)),
        Present::Unknown => {
            let why = "the server tells nothing to compare it with";
            Err(in_the_way(target, why).into())
        }
    }
}

fn unchanged(target: &Path, length: u64, sum: Option<Sum>) -> FileReport {
    FileReport {
        command: "get",
        file: target.display().to_string(),
        bytes: length,
        resumed_from: length,
        unchanged: true,
        seconds: 0.0,
        goodput_bps: 0.0,
        sha256: sum.map(|sum| sum.to_string()),
        verified: verified(sum),
    }
}

fn in_the_way(target: &Path, why: &str) -> Failure {
    let what = format!("{} is here already, and {why}", target.display());
    Failure::usage(what).hint("replace it with `--force`, or choose another name with `-o FILE`")
}

fn again(part: &PartFile) -> String {
    format!(
        "{} is kept: give the same command again to go on",
        part.path().display()
    )
}

/// A download in progress. It holds the writer, so that what was received survives an interruption.
struct Download<'a> {
    run: &'a Run<'a>,
    job: &'a Job,
    part: &'a PartFile,
    progress: &'a Progress,
    writer: Option<Writer>,
}

/// A complete and correct file.
struct Fetched {
    length: u64,
    start: u64,
    duration: Duration,
    sum: Sum,
    theirs: Option<Sum>,
    modified: Option<SystemTime>,
}

/// What the server is about to send.
struct Offer {
    start: u64,
    total: Option<u64>,
    etag: Option<String>,
}

impl Download<'_> {
    async fn run(&mut self) -> Result<Fetched, Broken> {
        let (session, url) = (self.run.session, &self.job.url);
        let point = self.part.resume_point();
        let started = Instant::now();
        let headers = headers(self.run.args, point.as_ref());
        let (mut exchange, response) = self.run.session.ask("GET", url, headers).await?;
        if let Some(directory) = listing::instead(&response, url) {
            return Err(Broken::Directory(directory));
        }
        let offer = match offer(&response, point.as_ref()) {
            Some(offer) => offer?,
            None => return Err(refused(&mut exchange, &response, url).await.into()),
        };
        self.writer = Some(self.begin(&offer).await?);
        if let Some(total) = offer.total {
            self.progress.expect(total);
        }
        self.progress.already(offer.start);
        let received = self.receive(&mut exchange).await;
        received.map_err(|failure| match failure {
            Broken::Resumable(failure) => Broken::Resumable(failure.hint_if_none(again(self.part))),
            other => other,
        })?;
        let duration = started.elapsed();
        let length = self.writer.as_ref().map_or(0, Writer::length);
        if offer.total.is_some_and(|total| total != length) {
            let failure = Failure::failed(format!("the file ended after {length} bytes"));
            return Err(failure.hint(again(self.part)).into());
        }
        let trailers = exchange
            .recv_trailers()
            .await
            .map_err(|error| session.broken(&error))?;
        let theirs = their_sum(&response, trailers.as_ref(), offer.start);
        let sum = self.verify(theirs).await?;
        Ok(Fetched {
            length,
            start: offer.start,
            duration,
            sum,
            theirs,
            modified: modified(&response),
        })
    }

    /// Writes everything to the disk and compares the digest with the server's.
    async fn verify(&mut self, theirs: Option<Sum>) -> Result<Sum, Broken> {
        let writer = self.writer.take();
        let writer = writer.ok_or_else(|| Failure::failed("nothing was written"))?;
        let finished = writer.finish().await;
        let (_, sum) = finished.map_err(|error| self.disk(&error))?;
        if theirs.is_some_and(|theirs| theirs != sum) {
            let failure = Failure::failed("the SHA-256 differs from the server's: thrown away");
            let failure = failure.hint("give the command again to fetch it anew");
            return Err(Broken::Worthless(failure));
        }
        Ok(sum)
    }

    async fn begin(&self, offer: &Offer) -> Result<Writer, Broken> {
        if offer.start == 0 {
            self.part
                .begin(offer.etag.as_deref())
                .map_err(|error| self.disk(&error))?;
        } else if !self.run.talk.quiet {
            output::say(format!("going on after {}", units::bytes(offer.start)));
        }
        Ok(self
            .part
            .writer(offer.start)
            .await
            .map_err(|error| self.disk(&error))?)
    }

    async fn receive(&mut self, exchange: &mut Exchange) -> Result<(), Broken> {
        let Some(writer) = self.writer.as_mut() else {
            return Ok(());
        };
        loop {
            let piece = exchange
                .recv_data()
                .await
                .map_err(|error| self.run.session.broken(&error))?;
            let Some(mut piece) = piece else {
                return Ok(());
            };
            let piece = piece.copy_to_bytes(piece.remaining());
            let length = piece.len() as u64;
            if let Err(error) = writer.write(piece).await {
                return Err(self.disk(&error).into());
            }
            self.progress.advance(length);
            // This is the rate limit: flow control stops the server while nothing is read here.
            self.run.limit.pass(length).await;
        }
    }

    fn disk(&self, error: &std::io::Error) -> Failure {
        let failure = Failure::io(
            format!("cannot write {}", self.part.path().display()),
            error,
        );
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                failure.hint("make room, or choose another place with `-o FILE`")
            }
            _ => failure,
        }
    }
}

impl Fetched {
    /// Gives the file its name and the modification time of the server's file.
    fn name(self, part: PartFile, target: &Path, replace: bool) -> Outcome<FileReport> {
        if let Some(modified) = self.modified
            && let Err(error) = part.set_modified(modified)
        {
            tracing::info!("{}: the time is not kept: {error}", target.display());
        }
        part.commit(replace).map_err(|error| {
            if error.kind() == std::io::ErrorKind::AlreadyExists {
                in_the_way(target, "came while the server's was fetched")
            } else {
                Failure::io(format!("cannot name {}", target.display()), &error)
            }
        })?;
        Ok(FileReport {
            command: "get",
            file: target.display().to_string(),
            bytes: self.length,
            resumed_from: self.start,
            unchanged: false,
            seconds: units::json_seconds(self.duration),
            goodput_bps: units::rate(self.length - self.start, self.duration).round(),
            sha256: Some(self.sum.to_string()),
            verified: verified(self.theirs),
        })
    }
}

/// The header fields of a request for a file, or for the rest of it.
pub(super) fn headers(args: &Get, point: Option<&ResumePoint>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    args.moving.tuning.to_headers(&mut headers);
    if let Some(point) = point
        && let Ok(etag) = HeaderValue::try_from(&point.etag)
        && let Ok(range) = HeaderValue::try_from(format!("bytes={}-", resume_at(point)))
    {
        headers.insert(header::RANGE, range);
        headers.insert(header::IF_RANGE, etag);
    }
    headers
}

/// What the response offers; `None` if it is not a success.
fn offer(response: &Response<()>, point: Option<&ResumePoint>) -> Option<Result<Offer, Broken>> {
    let field = |name: &HeaderName| response.headers().get(name)?.to_str().ok();
    let etag = field(&header::ETAG).map(str::to_owned);
    match response.status() {
        StatusCode::OK => {
            let total = field(&header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
            Some(Ok(Offer {
                start: 0,
                total,
                etag,
            }))
        }
        StatusCode::PARTIAL_CONTENT => {
            let range = field(&header::CONTENT_RANGE).and_then(Span::from_content_range);
            let fits = point.zip(range).filter(|(point, (span, total))| {
                span.start == resume_at(point) && span.end == *total
            });
            let offer = fits.map(|(point, (span, total))| Offer {
                start: span.start,
                total: Some(total),
                etag: Some(point.etag.clone()),
            });
            let what = "the server sent another part of the file than asked for";
            Some(offer.ok_or_else(|| Failure::failed(what).into()))
        }
        _ => None,
    }
}

/// Where a download resumes. Its last byte is fetched again, so that there is always a range to
/// request, even if only the digest is missing.
fn resume_at(point: &ResumePoint) -> u64 {
    point.length.saturating_sub(1)
}

/// The server's digest of the whole file.
pub(super) fn their_sum(
    response: &Response<()>,
    trailers: Option<&HeaderMap>,
    start: u64,
) -> Option<Sum> {
    let find = |name: &'static str| {
        let in_trailers = trailers.and_then(|fields| fields.get(name));
        let field = in_trailers.or_else(|| response.headers().get(name))?;
        Sum::from_field(field.to_str().ok()?)
    };
    // The digest of the content is the file's digest only if the whole file was sent.
    find(REPR_DIGEST).or_else(|| {
        if start == 0 {
            find(CONTENT_DIGEST)
        } else {
            None
        }
    })
}

/// When the server's file was last modified.
pub(super) fn modified(response: &Response<()>) -> Option<SystemTime> {
    let field = response.headers().get(header::LAST_MODIFIED)?;
    httpdate::parse_http_date(field.to_str().ok()?).ok()
}

/// Why the server refused the request, with a hint.
pub(super) async fn refused(
    exchange: &mut Exchange,
    response: &Response<()>,
    url: &ServerUrl,
) -> Failure {
    let words = words(exchange, response).await;
    let failure = Failure::failed(format!("{}: {words}", url.request_path()));
    match response.status() {
        StatusCode::NOT_FOUND => {
            let mut parent = url.clone();
            let path = url.path.trim_end_matches('/');
            parent.path = path
                .rsplit_once('/')
                .map_or("", |(parent, _)| parent)
                .into();
            if !parent.path.is_empty() {
                parent.path.push('/');
            }
            let slash = if parent.path.is_empty() { "/" } else { "" };
            failure.hint(format!(
                "`anabranch get \"{parent}{slash}\"` lists what there is"
            ))
        }
        StatusCode::BAD_REQUEST => failure.hint("the server may know other schedulers than we do"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_part_is_not_taken_for_the_files() {
        let sum = Sum([3; 32]);
        let mut trailers = HeaderMap::new();
        let value = HeaderValue::try_from(sum.to_field()).unwrap();
        trailers.insert(CONTENT_DIGEST, value.clone());
        let response = Response::new(());
        assert_eq!(their_sum(&response, Some(&trailers), 0), Some(sum));
        assert_eq!(their_sum(&response, Some(&trailers), 1), None);
        trailers.insert(REPR_DIGEST, value);
        assert_eq!(their_sum(&response, Some(&trailers), 1), Some(sum));
    }

    #[test]
    fn a_file_that_cannot_be_compared_is_in_the_way() {
        let left = leave(Path::new("file"), Present::Unknown).unwrap_err();
        let Broken::Resumable(Failure::Usage(_)) = &left else {
            panic!("{left:?}");
        };
        let report = left.into_failure().report().unwrap();
        assert!(report.contains("--force"), "{report}");
    }

    #[test]
    fn a_complete_part_still_has_something_to_ask_for() {
        let point = ResumePoint {
            length: 10,
            etag: "\"x\"".into(),
        };
        assert_eq!(resume_at(&point), 9);
    }
}
