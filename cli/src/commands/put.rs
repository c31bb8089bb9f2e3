//! `anabranch put`: sends a file.

use super::interrupted;
use super::transfer::{ConnectionReport, FileReport, Transfer, verified};
use crate::args::Put;
use crate::failure::{Failure, Outcome};
use crate::files::digest::{CONTENT_DIGEST, REPR_DIGEST, Sum, Version};
use crate::files::range::Span;
use crate::files::reader::{Reader, Sums, hash_prefix};
use crate::files::{OFFSET_HEADER, UPLOAD_HEADER};
use crate::limit::{Limit, STEP};
use crate::output::progress::Progress;
use crate::output::{self, units};
use crate::paths::{Direction, Samples};
use crate::session::{Exchange, Options, Session, words};
use crate::url::ServerUrl;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use sha2::Sha256;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// Runs the command.
pub(crate) async fn run(args: &Put, quiet: bool) -> Outcome {
    let url = destination(args)?;
    let (file, version) = open_file(args)?;
    let options = Options {
        paths: &args.paths,
        tuning: &args.tuning,
        trust: &args.trust,
        qlog: args.report.qlog.as_deref(),
        timestamps: args.timestamps,
    };
    let started = Instant::now();
    let session = tokio::select! {
        session = Session::open(&url, &options) => session,
        () = interrupted() => Err(Failure::failed("interrupted while connecting")),
    };
    let mut session = session?;
    let connected = started.elapsed();
    let mut upload = Upload {
        args,
        url: &url,
        version,
        quiet,
        progress: None,
    };
    let result = tokio::select! {
        result = upload.run(&mut session, file) => result,
        () = interrupted() => {
            let failure = Failure::failed("interrupted");
            Err(failure.hint("the server keeps what it got: give the same command again to go on"))
        }
    };
    drop(upload);
    let result = result.map(|sent| sent.report(args, &session, connected));
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

/// The URL of the file: a URL that ends in a slash gets the local name.
fn destination(args: &Put) -> Outcome<ServerUrl> {
    let mut url = args.url.clone();
    if url.file_name().is_none() {
        let name = args.file.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| {
            let failure = Failure::usage(format!("{} has no name to use", args.file.display()));
            failure.hint("append a file's name to the URL")
        })?;
        url.path.push_str(name);
    }
    Ok(url)
}

fn open_file(args: &Put) -> Outcome<(File, Version)> {
    let opened = File::open(&args.file).and_then(|file| Ok((file.metadata()?, file)));
    let (metadata, file) = opened
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", args.file.display())))?;
    if !metadata.is_file() {
        return Err(Failure::usage(format!(
            "{} is not a file",
            args.file.display()
        )));
    }
    Ok((file, Version::of(&metadata)))
}

/// An upload under way.
struct Upload<'a> {
    args: &'a Put,
    url: &'a ServerUrl,
    version: Version,
    quiet: bool,
    progress: Option<Progress>,
}

/// A file the server has.
struct Sent {
    length: u64,
    start: u64,
    duration: Duration,
    sum: Sum,
    theirs: Option<Sum>,
    samples: Samples,
}

impl Upload<'_> {
    /// What this upload is called on the server: another content gets another name.
    fn tag(&self) -> HeaderValue {
        let Version {
            length,
            modified,
            inode,
            device,
        } = self.version;
        let tag = format!("{device:x}-{inode:x}-{length:x}-{modified:x}");
        HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("-"))
    }

    async fn run(&mut self, session: &mut Session, file: File) -> Outcome<Sent> {
        let start = self.offset(session).await?;
        if start > 0 && !self.quiet {
            output::say(format!("going on after {}", units::bytes(start)));
        }
        let before = self.hash_before(&file, start).await?;
        let length = self.version.length;
        let span = Span { start, end: length };
        let mut reader = Reader::start(file, self.version, span, Some(before))
            .map_err(|error| self.disk(&error))?;
        let started = Instant::now();
        let mut exchange = session.request("PUT", self.url, self.headers(span)).await?;
        self.progress = Some(Progress::start(
            &session.connection,
            &session.labels,
            Direction::Out,
            start,
            Some(length),
            self.quiet,
        ));
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
        let answered = async {
            exchange.send_trailers(trailers(&sums, sum)).await?;
            exchange.finish().await?;
            exchange.recv_response().await
        };
        let response = answered
            .await
            .map_err(|error| going_on(session.broken(&error)))?;
        if !response.status().is_success() {
            return Err(self.refused(&mut exchange, &response).await);
        }
        let samples = self
            .progress
            .take()
            .map(Progress::finish)
            .unwrap_or_default();
        let theirs = response.headers().get(REPR_DIGEST);
        let theirs = theirs.and_then(|value| Sum::from_field(value.to_str().ok()?));
        if theirs.is_some_and(|theirs| theirs != sum) {
            return Err(Failure::failed(
                "the server has stored something else: its SHA-256 differs",
            ));
        }
        Ok(Sent {
            length,
            start,
            duration: started.elapsed(),
            sum,
            theirs,
            samples,
        })
    }

    /// Where to go on: behind what the server has of this very upload.
    async fn offset(&self, session: &mut Session) -> Outcome<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(UPLOAD_HEADER, self.tag());
        let mut exchange = session.request("HEAD", self.url, headers).await?;
        exchange
            .finish()
            .await
            .map_err(|error| session.broken(&error))?;
        let response = exchange
            .recv_response()
            .await
            .map_err(|error| session.broken(&error))?;
        if !response.status().is_success() {
            return Err(self.refused(&mut exchange, &response).await);
        }
        let offset = response
            .headers()
            .get(OFFSET_HEADER)
            .and_then(|value| value.to_str().ok());
        let offset: u64 = offset.and_then(|value| value.parse().ok()).unwrap_or(0);
        // The last byte is sent again, so that there is always something to send.
        Ok(offset.min(self.version.length.saturating_sub(1)))
    }

    async fn hash_before(&self, file: &File, length: u64) -> Outcome<Sha256> {
        let copy = file.try_clone().map_err(|error| self.disk(&error))?;
        let hashed = spawn_blocking(move || hash_prefix(&copy, length)).await;
        hashed
            .map_err(io::Error::other)
            .and_then(|hash| hash)
            .map_err(|error| self.disk(&error))
    }

    fn headers(&self, span: Span) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(UPLOAD_HEADER, self.tag());
        headers.insert(header::CONTENT_LENGTH, span.len().into());
        if self.args.no_clobber {
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
        let limit = Limit::new(self.args.limit_rate);
        while let Some(mut piece) = reader.next().await.map_err(|error| self.disk(&error))? {
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
                if let Some(progress) = &self.progress {
                    progress.advance(length);
                }
            }
        }
        Ok(())
    }

    fn disk(&self, error: &io::Error) -> Failure {
        Failure::io(format!("cannot read {}", self.args.file.display()), error)
    }

    async fn refused(&self, exchange: &mut Exchange, response: &Response<()>) -> Failure {
        let words = words(exchange, response).await;
        let failure = Failure::failed(format!("{}: {words}", self.url.request_path()));
        match response.status() {
            StatusCode::FORBIDDEN => failure.hint("does the server run with `--writable`?"),
            StatusCode::CONFLICT => failure.hint(
                "if an upload of this file broke off just now, the server waits half a minute for \
                 it: give the same command again then",
            ),
            StatusCode::PRECONDITION_FAILED => {
                failure.hint("leave out `--no-clobber` to replace it")
            }
            _ => failure,
        }
    }
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

fn going_on(failure: Failure) -> Failure {
    failure.hint("the server keeps what it got: give the same command again to go on")
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
    fn report(self, args: &Put, session: &Session, connected: Duration) -> Transfer {
        let moved = self.length - self.start;
        let file = FileReport {
            command: "put",
            file: args.file.display().to_string(),
            bytes: self.length,
            resumed_from: self.start,
            unchanged: false,
            seconds: units::json_seconds(self.duration),
            goodput_bps: units::rate(moved, self.duration).round(),
            sha256: Some(self.sum.to_string()),
            verified: verified(self.theirs),
        };
        let rows = self.samples.rows(Direction::Out, &session.labels);
        Transfer {
            file,
            connection: ConnectionReport::of(session, connected, rows),
        }
    }
}
