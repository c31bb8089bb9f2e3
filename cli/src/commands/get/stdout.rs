//! One file to stdout. The reader gets the data before it can be verified: only the exit code says
//! whether it was right.

use super::Run;
use super::file::{Broken, headers, refused, their_sum};
use super::listing;
use super::plan::Job;
use crate::commands::transfer::{FileReport, verified};
use crate::failure::{Failure, Outcome};
use crate::files::digest::Sum;
use crate::output::progress::Progress;
use crate::output::units;
use bytes::{Buf, Bytes};
use http::{StatusCode, header};
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::time::Instant;
use tokio::task::spawn_blocking;

/// Bytes collected before each write.
const BATCH_BYTES: usize = 256 << 10;

/// Fetches a file and writes it to stdout as it arrives.
pub(super) async fn fetch(
    run: &Run<'_>,
    job: &Job,
    progress: &Progress,
) -> Result<FileReport, Broken> {
    tokio::select! {
        result = receive(run, job, progress) => result,
        () = run.stopped() => Err(Failure::failed("interrupted").into()),
    }
}

async fn receive(run: &Run<'_>, job: &Job, progress: &Progress) -> Result<FileReport, Broken> {
    let (session, url) = (run.session, &job.url);
    let started = Instant::now();
    let (mut exchange, response) = run.session.ask("GET", url, headers(run.args, None)).await?;
    if let Some(directory) = listing::instead(&response, url) {
        return Err(Broken::Directory(directory));
    }
    if response.status() != StatusCode::OK {
        return Err(refused(&mut exchange, &response, url).await.into());
    }
    let total = response.headers().get(header::CONTENT_LENGTH);
    let total = total.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    progress.expect(total.unwrap_or(0));
    let mut out = Out::default();
    let mut length = 0;
    while let Some(mut piece) = exchange
        .recv_data()
        .await
        .map_err(|error| session.broken(&error))?
    {
        let piece = piece.copy_to_bytes(piece.remaining());
        let bytes = piece.len() as u64;
        out.write(piece).await?;
        length += bytes;
        progress.advance(bytes);
        run.limit.pass(bytes).await;
    }
    out.flush().await?;
    let trailers = exchange
        .recv_trailers()
        .await
        .map_err(|error| session.broken(&error))?;
    if total.is_some_and(|total| total != length) {
        return Err(Failure::failed(format!("the file ended after {length} bytes")).into());
    }
    let (ours, theirs) = (
        Sum::of(out.hash),
        their_sum(&response, trailers.as_ref(), 0),
    );
    if theirs.is_some_and(|theirs| theirs != ours) {
        let what = "the SHA-256 differs from the server's: what went to stdout is wrong";
        return Err(Failure::failed(what).into());
    }
    Ok(FileReport {
        command: "get",
        file: "-".into(),
        bytes: length,
        resumed_from: 0,
        unchanged: false,
        seconds: units::json_seconds(started.elapsed()),
        goodput_bps: units::rate(length, started.elapsed()).round(),
        sha256: Some(ours.to_string()),
        verified: verified(theirs),
    })
}

/// Stdout, written and hashed off the runtime's threads.
#[derive(Default)]
struct Out {
    waiting: Vec<Bytes>,
    bytes: usize,
    hash: Sha256,
}

impl Out {
    async fn write(&mut self, piece: Bytes) -> Outcome {
        self.bytes += piece.len();
        self.waiting.push(piece);
        if self.bytes < BATCH_BYTES {
            return Ok(());
        }
        self.flush().await
    }

    async fn flush(&mut self) -> Outcome {
        let waiting = std::mem::take(&mut self.waiting);
        let mut hash = std::mem::take(&mut self.hash);
        self.bytes = 0;
        let written = spawn_blocking(move || {
            let mut out = io::stdout().lock();
            for piece in &waiting {
                hash.update(piece);
                out.write_all(piece)?;
            }
            out.flush()?;
            Ok(hash)
        });
        let written = written.await.map_err(io::Error::other);
        self.hash = written
            .and_then(|hash| hash)
            .map_err(|error| cannot(&error))?;
        Ok(())
    }
}

fn cannot(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::PipeClosed
    } else {
        Failure::io("cannot write to stdout", error)
    }
}
