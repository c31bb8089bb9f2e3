//! The server's side of HTTP/3, and of HTTP/0.9 (`hq-interop`): carries answers to clients.

mod speed;

use crate::files::digest::{CONTENT_DIGEST, REPR_DIGEST, Sum};
use crate::files::reader::{Reader, Sums};
use crate::files::root::Refusal;
use crate::files::service::{Answer, Body, Head, Incoming, Service};
use crate::files::writer::Writer;
use crate::speed::HEADER;
use crate::tuning::Tuning;
use anabranch_net::connection::Connection;
use anabranch_net::h3::{BidiStream, H3Connection};
use anabranch_net::streams::{RecvStream, SendStream};
use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Requests served at a time on one connection; further ones wait. Each holds two pieces of a file.
const REQUESTS: usize = 8;

/// A request that makes no progress for so long is given up, so that it holds no files.
const STALL: Duration = Duration::from_secs(60);

/// Bytes of a file that have to leave within [`STALL`]. So few that even the slowest modem is not
/// taken for a stall: 2.2 kbit/s will do.
const SLICE: usize = 16 << 10;

/// Bytes of header fields a client may send.
const MAX_FIELD_BYTES: u64 = 16 << 10;

/// Bytes of an HTTP/0.9 request.
const MAX_LINE: usize = 4096;

/// The code of a stream that ends without success, where HTTP/0.9 knows none.
const HQ_ERROR: u32 = 1;

type Exchange = RequestStream<BidiStream<Bytes>, Bytes>;

/// What became of a request.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    /// What was asked.
    pub(crate) method: String,
    /// Of what.
    pub(crate) path: String,
    /// The status sent.
    pub(crate) status: u16,
    /// Bytes of the file sent or received.
    pub(crate) bytes: u64,
    /// How long it took.
    pub(crate) duration: Duration,
    /// Why it broke off, if it did.
    pub(crate) error: Option<String>,
}

/// Why a request broke off.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("{0}")]
    Stream(#[from] StreamError),
    #[error("{0}")]
    Disk(#[from] io::Error),
    #[error("no progress for {} s", STALL.as_secs())]
    Stalled,
    #[error("{0}")]
    Client(&'static str),
}

/// What one request did so far.
#[derive(Debug, Default)]
struct Tally {
    status: u16,
    bytes: u64,
}

/// Serves a connection until it ends. `report` learns what became of each request.
pub(crate) async fn serve(
    connection: Connection,
    service: Arc<Service>,
    report: impl Fn(Done) + Clone + Send + 'static,
) {
    let built = h3::server::builder()
        .max_field_section_size(MAX_FIELD_BYTES)
        .send_grease(false)
        .build(H3Connection::new(connection.clone()))
        .await;
    let Ok(mut http) = built else { return };
    let slots = Arc::new(Semaphore::new(REQUESTS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        // An error means that the connection has ended, one way or another.
        let Ok(Some(resolver)) = http.accept().await else {
            return;
        };
        let (connection, service, report) = (connection.clone(), service.clone(), report.clone());
        tokio::spawn(async move {
            if let Some(done) = handle(resolver, &connection, service).await {
                report(done);
            }
            drop(slot);
        });
    }
}

async fn handle(
    resolver: RequestResolver<H3Connection, Bytes>,
    connection: &Connection,
    service: Arc<Service>,
) -> Option<Done> {
    let started = Instant::now();
    // Without a request there is nothing to report.
    let (request, mut exchange) = timeout(STALL, resolver.resolve_request())
        .await
        .ok()?
        .ok()?;
    let mut tally = Tally::default();
    let result = respond(&request, &mut exchange, connection, service, &mut tally).await;
    if let Err(broken) = &result {
        let code = match broken {
            Broken::Disk(_) => Code::H3_INTERNAL_ERROR,
            _ => Code::H3_REQUEST_CANCELLED,
        };
        exchange.stop_stream(code);
    }
    exchange.stop_sending(Code::H3_NO_ERROR);
    Some(Done {
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        status: tally.status,
        bytes: tally.bytes,
        duration: started.elapsed(),
        error: result.err().map(|broken| broken.to_string()),
    })
}

async fn respond(
    request: &Request<()>,
    exchange: &mut Exchange,
    connection: &Connection,
    service: Arc<Service>,
    tally: &mut Tally,
) -> Result<(), Broken> {
    let tuned = Tuning::from_headers(request.headers())
        .and_then(|tuning| tuning.apply(connection).map_err(|error| error.to_string()));
    if tuned.is_ok() && request.headers().contains_key(HEADER) {
        return speed::answer(request, exchange, service.speed.as_ref(), tally).await;
    }
    let answer = if let Err(mistake) = tuned {
        Answer::words(StatusCode::BAD_REQUEST, mistake)
    } else {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (headers, service) = (request.headers().clone(), Arc::clone(&service));
        let answered = spawn_blocking(move || service.answer(&method, &path, &headers));
        answered.await.map_err(io::Error::other)?
    };
    match answer {
        Answer::Text(head, text) => send_text(exchange, head, text, tally).await,
        Answer::File(head, body) => send_file(exchange, head, body, service, tally).await,
        Answer::Store(incoming) => {
            let answer = receive_file(exchange, *incoming, tally).await?;
            let Answer::Text(head, text) = answer else {
                return Ok(());
            };
            send_text(exchange, head, text, tally).await
        }
    }
}

async fn soon<T>(step: impl Future<Output = Result<T, StreamError>>) -> Result<T, Broken> {
    timeout(STALL, step)
        .await
        .map_err(|_| Broken::Stalled)?
        .map_err(Broken::Stream)
}

/// A piece of a file in parts that each get [`STALL`] to leave.
fn slices(mut piece: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let length = piece.len().min(SLICE);
        (length > 0).then(|| piece.split_to(length))
    })
}

async fn send_head(exchange: &mut Exchange, head: Head, tally: &mut Tally) -> Result<(), Broken> {
    tally.status = head.status.as_u16();
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    soon(exchange.send_response(response)).await
}

async fn send_text(
    exchange: &mut Exchange,
    head: Head,
    text: Bytes,
    tally: &mut Tally,
) -> Result<(), Broken> {
    send_head(exchange, head, tally).await?;
    if !text.is_empty() {
        soon(exchange.send_data(text)).await?;
    }
    soon(exchange.finish()).await
}

async fn send_file(
    exchange: &mut Exchange,
    head: Head,
    body: Body,
    service: Arc<Service>,
    tally: &mut Tally,
) -> Result<(), Broken> {
    send_head(exchange, head, tally).await?;
    let is_whole = body.span.len() == body.version.length;
    // Hashed while the part is sent: both take about as long.
    let whole = if is_whole {
        None
    } else {
        let hashing = Arc::clone(&service).whole_sum(reopen(&body.file)?, body.version);
        Some(tokio::spawn(hashing))
    };
    let mut reader = Reader::start(body.file, body.version, body.span, None)?;
    while let Some(piece) = reader.next().await? {
        for slice in slices(piece) {
            tally.bytes += slice.len() as u64;
            soon(exchange.send_data(slice)).await?;
        }
    }
    let sums = reader
        .finish()
        .ok_or_else(|| io::Error::other("the file was not read whole"))?;
    let whole = match whole {
        Some(hashing) => hashing.await.ok().flatten(),
        None => Some(sums.content),
    };
    if is_whole {
        service.remember(body.version, sums.content);
    }
    soon(exchange.send_trailers(trailers(&sums, whole))).await?;
    soon(exchange.finish()).await
}

/// The same file with a position of its own.
fn reopen(file: &std::fs::File) -> io::Result<std::fs::File> {
    use std::os::fd::AsRawFd;
    std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn trailers(sums: &Sums, whole: Option<Sum>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let mut add = |name: &'static str, sum: Sum| {
        // The value is made of ASCII characters only.
        if let Ok(value) = HeaderValue::try_from(sum.to_field()) {
            trailers.insert(HeaderName::from_static(name), value);
        }
    };
    add(CONTENT_DIGEST, sums.content);
    if let Some(whole) = whole {
        add(REPR_DIGEST, whole);
    }
    trailers
}

async fn receive_file(
    exchange: &mut Exchange,
    incoming: Incoming,
    tally: &mut Tally,
) -> Result<Answer, Broken> {
    let Incoming {
        upload,
        start,
        total,
        replaces,
    } = incoming;
    let mut writer = match upload.writer(start).await {
        Ok(writer) => writer,
        Err(error) => return Ok(Refusal::from(error).into()),
    };
    match receive_body(exchange, &mut writer, total, tally).await {
        Ok(()) => {}
        Err(Broken::Disk(error)) => return Ok(Refusal::from(error).into()),
        Err(broken) => {
            // Kept, if the client gave it a name: it may go on another day.
            writer.keep().await;
            return Err(broken);
        }
    }
    let given = soon(exchange.recv_trailers()).await?;
    let given = given
        .as_ref()
        .and_then(|fields| fields.get(REPR_DIGEST)?.to_str().ok());
    let given = given.and_then(Sum::from_field);
    let length = writer.length();
    let (file, sum) = match writer.finish().await {
        Ok(finished) => finished,
        Err(error) => return Ok(Refusal::from(error).into()),
    };
    drop(file);
    if total.is_some_and(|total| total != length) {
        let words = format!("{length} bytes are here, which is not what was announced");
        return Ok(Answer::words(StatusCode::BAD_REQUEST, words));
    }
    if given.is_some_and(|given| given != sum) {
        upload.discard();
        let words = "the SHA-256 is wrong: what was received is thrown away";
        return Ok(Answer::words(StatusCode::UNPROCESSABLE_ENTITY, words));
    }
    let committed = spawn_blocking(move || upload.commit())
        .await
        .map_err(io::Error::other)?;
    if let Err(refusal) = committed {
        return Ok(refusal.into());
    }
    let status = if replaces {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let mut answer = Answer::words(status, format!("{length} bytes, sha-256 {sum}"));
    if let Answer::Text(head, _) = &mut answer
        && let Ok(value) = HeaderValue::try_from(sum.to_field())
    {
        head.headers
            .insert(HeaderName::from_static(REPR_DIGEST), value);
    }
    Ok(answer)
}

async fn receive_body(
    exchange: &mut Exchange,
    writer: &mut Writer,
    total: Option<u64>,
    tally: &mut Tally,
) -> Result<(), Broken> {
    while let Some(mut piece) = soon(exchange.recv_data()).await? {
        let piece = piece.copy_to_bytes(piece.remaining());
        tally.bytes += piece.len() as u64;
        if total.is_some_and(|total| writer.length() + piece.len() as u64 > total) {
            return Err(Broken::Client("more bytes than announced"));
        }
        writer.write(piece).await?;
    }
    Ok(())
}

/// Serves a connection that speaks HTTP/0.9, until it ends.
pub(crate) async fn serve_hq(
    connection: Connection,
    service: Arc<Service>,
    report: impl Fn(Done) + Clone + Send + 'static,
) {
    let slots = Arc::new(Semaphore::new(REQUESTS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let Ok((send, recv)) = connection.accept_bi().await else {
            return;
        };
        let (service, report) = (Arc::clone(&service), report.clone());
        tokio::spawn(async move {
            if let Some(done) = handle_hq(send, recv, &service).await {
                report(done);
            }
            drop(slot);
        });
    }
}

async fn handle_hq(
    mut send: SendStream,
    mut recv: RecvStream,
    service: &Arc<Service>,
) -> Option<Done> {
    let started = Instant::now();
    let line = timeout(STALL, recv.read_to_end(MAX_LINE))
        .await
        .ok()?
        .ok()?;
    let path = hq_path(&line).map(str::to_owned);
    let mut tally = Tally::default();
    let result = match &path {
        Some(path) => send_hq(&mut send, path, service, &mut tally).await,
        None => Err("not a request of HTTP/0.9".into()),
    };
    if result.is_err() {
        // An error means that the client has given up already.
        let _ = send.reset(HQ_ERROR);
    } else {
        // Dropping the stream before everything has arrived would be no harm; waiting keeps the
        // number of open files bounded.
        let _ = timeout(STALL, send.stopped()).await;
    }
    Some(Done {
        method: "GET".into(),
        path: path.unwrap_or_default(),
        status: if result.is_ok() { 200 } else { 404 },
        bytes: tally.bytes,
        duration: started.elapsed(),
        error: result.err(),
    })
}

/// The path of `GET /path`, with or without a version behind it.
fn hq_path(line: &[u8]) -> Option<&str> {
    let line = str::from_utf8(line).ok()?.trim_end();
    let path = line.strip_prefix("GET ")?.split(' ').next()?;
    path.starts_with('/').then_some(path)
}

async fn send_hq(
    send: &mut SendStream,
    path: &str,
    service: &Arc<Service>,
    tally: &mut Tally,
) -> Result<(), String> {
    let (path, service) = (path.to_owned(), Arc::clone(service));
    let opened = spawn_blocking(move || service.open(&path)).await;
    let body = opened.map_err(|error| error.to_string())?;
    let body = body.map_err(|refusal| format!("{refusal:?}"))?;
    let reader = Reader::start(body.file, body.version, body.span, None);
    let mut reader = reader.map_err(|error| error.to_string())?;
    while let Some(piece) = reader.next().await.map_err(|error| error.to_string())? {
        for slice in slices(piece) {
            tally.bytes += slice.len() as u64;
            let written = timeout(STALL, send.write_bytes(slice)).await;
            written
                .map_err(|_| Broken::Stalled.to_string())?
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
        assert_eq!(hq_path(b"GET /file\r\n"), Some("/file"));
        assert_eq!(hq_path(b"GET /file"), Some("/file"));
        assert_eq!(hq_path(b"GET /a HTTP/1.1\r\n"), Some("/a"));
        for line in [&b"POST /file"[..], b"GET file", b"", b"GET ", b"\xff"] {
            assert_eq!(hq_path(line), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_modem_at_10_kbit_s_is_slow_but_not_stalled() {
        let piece: Bytes = (0..=u8::MAX).cycle().take(256 << 10).collect();
        let mut arrived = Vec::new();
        for slice in slices(piece.clone()) {
            let seconds = slice.len() as f64 * 8.0 / 10e3;
            let sending = tokio::time::sleep(Duration::from_secs_f64(seconds));
            timeout(STALL, sending).await.expect("progress");
            arrived.extend_from_slice(&slice);
        }
        assert_eq!(arrived, piece);
    }

    #[test]
    fn a_reopened_file_has_its_own_position() {
        use std::io::{Read, Write};
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"hello").unwrap();
        let mut text = String::new();
        reopen(&file).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }
}
