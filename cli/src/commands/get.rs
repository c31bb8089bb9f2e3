//! `anabranch get`: fetches a file, or lists a directory.

use super::{Transfer, interrupted, verified};
use crate::args::Get;
use crate::failure::{Failure, Outcome};
use crate::files::digest::{CONTENT_DIGEST, REPR_DIGEST, Sum};
use crate::files::listing::{self, Entry};
use crate::files::partial::{PartFile, ResumePoint};
use crate::files::range::Span;
use crate::files::writer::Writer;
use crate::output::progress::Progress;
use crate::output::{self, units};
use crate::paths::Direction;
use crate::session::{Exchange, Options, Session, words};
use bytes::Buf;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a directory's listing that are read.
const MAX_LISTING: usize = 64 << 20;

/// Runs the command.
pub(crate) async fn run(args: &Get, quiet: bool) -> Outcome {
    let Some(name) = args.url.file_name() else {
        return list(args).await;
    };
    let target = target(args.output.as_deref(), name);
    let part = PartFile::open(&target)?;
    let started = Instant::now();
    let session = tokio::select! {
        session = open(args) => session,
        () = interrupted() => Err(Failure::failed("interrupted while connecting")),
    };
    let mut session = match session {
        Ok(session) => session,
        Err(failure) => {
            part.discard_if_empty();
            return Err(failure);
        }
    };
    let connected = started.elapsed();
    let mut download = Download {
        args,
        part: &part,
        quiet,
        writer: None,
        progress: None,
    };
    let result = tokio::select! {
        result = download.run(&mut session) => result,
        () = interrupted() => {
            Err(Broken::Resumable(Failure::failed("interrupted").hint(again(&part))))
        }
    };
    let Download {
        writer, progress, ..
    } = download;
    if let Some(writer) = writer {
        writer.keep().await;
    }
    drop(progress);
    let result = match result {
        Ok(fetched) => finish(&fetched, part, &target, &session, connected),
        Err(Broken::Worthless(failure)) => {
            part.discard();
            Err(failure)
        }
        Err(Broken::Resumable(failure)) => {
            part.discard_if_empty();
            Err(failure)
        }
    };
    session.close().await;
    let transfer = result?;
    if !quiet {
        transfer.say();
    }
    if args.report.json {
        output::json(&transfer)
    } else {
        Ok(())
    }
}

async fn open(args: &Get) -> Outcome<Session> {
    let options = Options {
        paths: &args.paths,
        tuning: &args.tuning,
        trust: &args.trust,
        qlog: args.report.qlog.as_deref(),
        timestamps: args.timestamps,
    };
    Session::open(&args.url, &options).await
}

/// Where the file goes: `-o` may name a directory.
fn target(output: Option<&Path>, name: &str) -> PathBuf {
    match output {
        None => name.into(),
        Some(path) if path.is_dir() => path.join(name),
        Some(path) => path.into(),
    }
}

fn again(part: &PartFile) -> String {
    format!(
        "{} is kept: give the same command again to go on",
        part.path().display()
    )
}

/// Why a download ended early.
enum Broken {
    /// What was received is right and can be continued.
    Resumable(Failure),
    /// What was received is wrong.
    Worthless(Failure),
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self::Resumable(failure)
    }
}

/// A download under way. The writer is kept here, so that what was received survives an
/// interruption.
struct Download<'a> {
    args: &'a Get,
    part: &'a PartFile,
    quiet: bool,
    writer: Option<Writer>,
    progress: Option<Progress>,
}

/// A file that is whole and right.
struct Fetched {
    length: u64,
    start: u64,
    duration: Duration,
    sum: Sum,
    theirs: Option<Sum>,
    samples: crate::paths::Samples,
}

/// What the server is about to send.
struct Offer {
    start: u64,
    total: Option<u64>,
    etag: Option<String>,
}

impl Download<'_> {
    async fn run(&mut self, session: &mut Session) -> Result<Fetched, Broken> {
        let point = self.part.resume_point();
        let started = Instant::now();
        let headers = self.headers(point.as_ref());
        let mut exchange = session.request("GET", &self.args.url, headers).await?;
        finish_request(session, &mut exchange).await?;
        let response = exchange
            .recv_response()
            .await
            .map_err(|error| session.broken(&error))?;
        let offer = offer(&response, point.as_ref());
        let offer = match offer {
            Some(offer) => offer?,
            None => {
                return Err(refused(&mut exchange, &response, &self.args.url)
                    .await
                    .into());
            }
        };
        self.writer = Some(self.begin(&offer).await?);
        let progress = Progress::start(
            &session.connection,
            &session.labels,
            Direction::In,
            offer.start,
            offer.total,
            self.quiet,
        );
        self.progress = Some(progress);
        let received = self.receive(session, &mut exchange).await;
        received.map_err(|failure| match failure {
            Broken::Resumable(failure) => Broken::Resumable(failure.hint_if_none(again(self.part))),
            worthless @ Broken::Worthless(_) => worthless,
        })?;
        let duration = started.elapsed();
        let samples = self
            .progress
            .take()
            .map(Progress::finish)
            .unwrap_or_default();
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
            samples,
        })
    }

    /// Brings everything to the disk and compares its digest with the server's.
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

    fn headers(&self, point: Option<&ResumePoint>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.args.tuning.to_headers(&mut headers);
        if let Some(point) = point
            && let Ok(etag) = HeaderValue::try_from(&point.etag)
            && let Ok(range) = HeaderValue::try_from(format!("bytes={}-", resume_at(point)))
        {
            headers.insert(header::RANGE, range);
            headers.insert(header::IF_RANGE, etag);
        }
        headers
    }

    async fn begin(&self, offer: &Offer) -> Result<Writer, Broken> {
        if offer.start == 0 {
            self.part
                .begin(offer.etag.as_deref())
                .map_err(|error| self.disk(&error))?;
        } else if !self.quiet {
            output::say(format!("going on after {}", units::bytes(offer.start)));
        }
        Ok(self
            .part
            .writer(offer.start)
            .await
            .map_err(|error| self.disk(&error))?)
    }

    async fn receive(&mut self, session: &Session, exchange: &mut Exchange) -> Result<(), Broken> {
        let Some(writer) = self.writer.as_mut() else {
            return Ok(());
        };
        loop {
            let piece = exchange
                .recv_data()
                .await
                .map_err(|error| session.broken(&error))?;
            let Some(mut piece) = piece else {
                return Ok(());
            };
            let piece = piece.copy_to_bytes(piece.remaining());
            let length = piece.len() as u64;
            if let Err(error) = writer.write(piece).await {
                return Err(self.disk(&error).into());
            }
            if let Some(progress) = &self.progress {
                progress.advance(length);
            }
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

/// What the response offers; `None` if it is no success.
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

/// Where a broken download goes on: its last byte is fetched again, so that there is always
/// something to ask for, also if only the digest is missing.
fn resume_at(point: &ResumePoint) -> u64 {
    point.length.saturating_sub(1)
}

async fn finish_request(session: &Session, exchange: &mut Exchange) -> Outcome {
    exchange
        .finish()
        .await
        .map_err(|error| session.broken(&error))
}

/// The server's digest of the whole file.
fn their_sum(response: &Response<()>, trailers: Option<&HeaderMap>, start: u64) -> Option<Sum> {
    let find = |name: &'static str| {
        let in_trailers = trailers.and_then(|fields| fields.get(name));
        let field = in_trailers.or_else(|| response.headers().get(name))?;
        Sum::from_field(field.to_str().ok()?)
    };
    // The digest of the content is that of the file only if all of it was sent.
    find(REPR_DIGEST).or_else(|| {
        if start == 0 {
            find(CONTENT_DIGEST)
        } else {
            None
        }
    })
}

async fn refused(
    exchange: &mut Exchange,
    response: &Response<()>,
    url: &crate::url::ServerUrl,
) -> Failure {
    let words = words(exchange, response).await;
    let failure = Failure::failed(format!("{}: {words}", url.request_path()));
    match response.status() {
        StatusCode::NOT_FOUND => failure.hint("end the URL in a slash to list a directory"),
        StatusCode::BAD_REQUEST => failure.hint("the server may know other schedulers than we do"),
        _ => failure,
    }
}

fn finish(
    fetched: &Fetched,
    part: PartFile,
    target: &Path,
    session: &Session,
    connected: Duration,
) -> Outcome<Transfer> {
    part.commit()
        .map_err(|error| Failure::io(format!("cannot name {}", target.display()), &error))?;
    let stats = session.connection.stats();
    let moved = fetched.length - fetched.start;
    Ok(Transfer {
        command: "get",
        file: target.display().to_string(),
        bytes: fetched.length,
        resumed_from: fetched.start,
        seconds: units::json_seconds(fetched.duration),
        connect_seconds: units::json_seconds(connected),
        goodput_bps: units::rate(moved, fetched.duration).round(),
        sha256: fetched.sum.to_string(),
        verified: verified(fetched.theirs),
        multipath: session.connection.has_multipath(),
        duplicate_bytes: stats.streams.duplicate_bytes,
        reassembly_peak_bytes: stats.streams.reassembly_peak,
        retransmitted_bytes: stats.streams.bytes_retransmitted,
        paths: fetched.samples.rows(Direction::In, &session.labels),
    })
}

async fn list(args: &Get) -> Outcome {
    if args.output.is_some() {
        return Err(Failure::usage(
            "the URL names a directory, which is listed on stdout: no `-o`",
        )
        .hint("append the name of a file to the URL"));
    }
    let mut session = open(args).await?;
    let result = fetch_listing(&mut session, args).await;
    session.close().await;
    let entries = result?;
    if args.report.json {
        output::json(&entries)
    } else {
        output::raw(listing::to_text(&entries).as_bytes())
    }
}

async fn fetch_listing(session: &mut Session, args: &Get) -> Outcome<Vec<Entry>> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let mut exchange = session.request("GET", &args.url, headers).await?;
    finish_request(session, &mut exchange).await?;
    let response = exchange
        .recv_response()
        .await
        .map_err(|error| session.broken(&error))?;
    if response.status() != StatusCode::OK {
        return Err(refused(&mut exchange, &response, &args.url).await);
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
    serde_json::from_slice(&text)
        .map_err(|error| Failure::failed(format!("the listing cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_may_be_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(target(None, "f"), Path::new("f"));
        assert_eq!(
            target(Some(directory.path()), "f"),
            directory.path().join("f")
        );
        assert_eq!(target(Some(Path::new("/x/y")), "f"), Path::new("/x/y"));
    }

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
    fn a_complete_part_still_has_something_to_ask_for() {
        let point = ResumePoint {
            length: 10,
            etag: "\"x\"".into(),
        };
        assert_eq!(resume_at(&point), 9);
    }
}
