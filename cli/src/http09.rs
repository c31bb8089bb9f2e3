//! The server's side of HTTP/0.9 (`hq-interop`), as in the QUIC interop runner.

use crate::files::reader::{Hashed, Reader};
use crate::guest::Guest;
use crate::http3::{Done, REQUESTS, STALL, slices};
use anabranch_net::streams::{RecvStream, SendStream};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The longest request, in bytes.
const MAX_LINE: usize = 4096;

/// The error code of a failed stream; the protocol defines none.
const HQ_ERROR: u32 = 1;

/// Serves a connection until it ends. `report` is called with the outcome of each request.
pub(crate) async fn serve(guest: Guest, report: impl Fn(Done) + Clone + Send + 'static) {
    let guest = Arc::new(guest);
    let slots = Arc::new(Semaphore::new(REQUESTS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let Ok((send, recv)) = guest.connection.accept_bi().await else {
            return;
        };
        let (guest, report) = (Arc::clone(&guest), report.clone());
        tokio::spawn(async move {
            if let Some(done) = handle(send, recv, &guest).await {
                report(done);
            }
            drop(slot);
        });
    }
}

async fn handle(mut send: SendStream, mut recv: RecvStream, guest: &Guest) -> Option<Done> {
    let started = Instant::now();
    let paths = guest.connection.paths().len();
    let line = timeout(STALL, recv.read_to_end(MAX_LINE))
        .await
        .ok()?
        .ok()?;
    let path = path_of(&line).map(str::to_owned);
    let mut bytes = 0;
    let result = match &path {
        Some(path) => send_file(&mut send, path, guest, &mut bytes).await,
        None => Err("not a request of HTTP/0.9".into()),
    };
    if result.is_err() {
        // An error means that the client has given up already.
        let _ = send.reset(HQ_ERROR);
    } else {
        // The stream could be dropped before everything has arrived. Waiting keeps the number of
        // open files bounded.
        let _ = timeout(STALL, send.stopped()).await;
    }
    Some(Done {
        method: "GET".into(),
        path: path.unwrap_or_default(),
        status: if result.is_ok() { 200 } else { 404 },
        bytes,
        duration: started.elapsed(),
        paths: paths.max(guest.connection.paths().len()),
        error: result.err(),
    })
}

/// The path of `GET /path`, with or without a version after it.
fn path_of(line: &[u8]) -> Option<&str> {
    let line = str::from_utf8(line).ok()?.trim_end();
    let path = line.strip_prefix("GET ")?.split(' ').next()?;
    path.starts_with('/').then_some(path)
}

async fn send_file(
    send: &mut SendStream,
    path: &str,
    guest: &Guest,
    bytes: &mut u64,
) -> Result<(), String> {
    let (path, service) = (path.to_owned(), Arc::clone(&guest.service));
    let opened = spawn_blocking(move || service.open(&path)).await;
    let body = opened.map_err(|error| error.to_string())?;
    let body = body.map_err(|refusal| format!("{refusal:?}"))?;
    let reader = Reader::start(body.file, body.version, body.span, Hashed::Nothing);
    let mut reader = reader.map_err(|error| error.to_string())?;
    let mut pauses = guest.pauses();
    while let Some(piece) = reader.next().await.map_err(|error| error.to_string())? {
        for slice in slices(piece) {
            *bytes += slice.len() as u64;
            let written = pauses
                .patient(|| guest.heard(), send.write_bytes(slice))
                .await;
            written
                .ok_or_else(|| format!("no progress for {} s", STALL.as_secs()))?
                .map_err(|error| error.to_string())?;
        }
    }
    send.finish().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_http_0_9_is_a_line() {
        assert_eq!(path_of(b"GET /file\r\n"), Some("/file"));
        assert_eq!(path_of(b"GET /file"), Some("/file"));
        assert_eq!(path_of(b"GET /a HTTP/1.1\r\n"), Some("/a"));
        for line in [&b"POST /file"[..], b"GET file", b"", b"GET ", b"\xff"] {
            assert_eq!(path_of(line), None);
        }
    }
}
