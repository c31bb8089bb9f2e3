//! The server's side of HTTP/3: carries answers to clients.

pub(crate) mod pauses;
mod speed;

use crate::files::digest::{CONTENT_DIGEST, REPR_DIGEST, Sum};
use crate::files::reader::{Hashed, Reader, Sums};
use crate::files::root::Refusal;
use crate::files::service::{Answer, Body, Head, Incoming, Making};
use crate::files::writer::Writer;
use crate::guest::Guest;
use crate::speed::HEADER;
use anabranch_net::h3::{BidiStream, H3Connection};
use anabranch_proto::wire::StreamId;
use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use pauses::Pauses;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{timeout, timeout_at};

/// Requests served at a time on one connection; further ones wait. Each holds two pieces of a file.
pub(crate) const REQUESTS: usize = 8;

/// A request that makes no progress for this long is given up, so that it holds no files.
pub(crate) const STALL: Duration = Duration::from_secs(60);

/// How long a client is kept waiting while a file is hashed: a disk reads a hundred gigabytes
/// meanwhile. After that the client gets no digest, or cannot continue its upload.
const HASHING: Duration = Duration::from_secs(600);

/// Bytes of a file sent at a time, which must arrive within [`STALL`].
const SLICE: usize = 16 << 10;

/// The most bytes of header fields that a client may send.
const MAX_FIELD_BYTES: u64 = 16 << 10;

type Exchange = RequestStream<BidiStream<Bytes>, Bytes>;

/// The outcome of a request.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    /// The method.
    pub(crate) method: String,
    /// The path.
    pub(crate) path: String,
    /// The status sent.
    pub(crate) status: u16,
    /// Bytes of the file sent or received.
    pub(crate) bytes: u64,
    /// How long it took.
    pub(crate) duration: Duration,
    /// Number of paths; none if the connection ended meanwhile.
    pub(crate) paths: usize,
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
    #[error("the client gave up")]
    Gone,
    #[error("another connection goes on with this upload")]
    TakenOver,
    #[error("refused on the way")]
    Refused(Refusal),
    #[error("{0}")]
    Client(&'static str),
}

impl From<Refusal> for Broken {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What one request has done so far.
#[derive(Debug)]
struct Tally {
    status: u16,
    bytes: u64,
    pauses: Pauses,
}

/// Serves a connection until it ends. `report` is called with the outcome of each request.
pub(crate) async fn serve(guest: Guest, report: impl Fn(Done) + Clone + Send + 'static) {
    let built = h3::server::builder()
        .max_field_section_size(MAX_FIELD_BYTES)
        .send_grease(false)
        .build(H3Connection::new(guest.connection.clone()))
        .await;
    let Ok(mut http) = built else { return };
    let guest = Arc::new(guest);
    let slots = Arc::new(Semaphore::new(REQUESTS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        // An error means that the connection has ended, for whatever reason.
        let Ok(Some(resolver)) = http.accept().await else {
            return;
        };
        let (guest, report) = (Arc::clone(&guest), report.clone());
        tokio::spawn(async move {
            if let Some(done) = handle(resolver, &guest).await {
                report(done);
            }
            drop(slot);
        });
    }
}

async fn handle(resolver: RequestResolver<H3Connection, Bytes>, guest: &Guest) -> Option<Done> {
    let started = Instant::now();
    // Without a request there is nothing to report.
    let (request, mut exchange) = timeout(STALL, resolver.resolve_request())
        .await
        .ok()?
        .ok()?;
    let paths = guest.connection.paths().len();
    let mut tally = Tally {
        status: 0,
        bytes: 0,
        pauses: guest.pauses(),
    };
    let result = respond(&request, &mut exchange, guest, &mut tally).await;
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
        paths: paths.max(guest.connection.paths().len()),
        error: result.err().map(|broken| broken.to_string()),
    })
}

async fn respond(
    request: &Request<()>,
    exchange: &mut Exchange,
    guest: &Guest,
    tally: &mut Tally,
) -> Result<(), Broken> {
    let tuned = guest.tune(request.headers());
    let is_timely = is_timely(request, guest.connection.is_established());
    if tuned.is_ok() && is_timely && request.headers().contains_key(HEADER) {
        return speed::answer(request, exchange, guest, tally).await;
    }
    let answer = if let Err(mistake) = tuned {
        Answer::words(StatusCode::BAD_REQUEST, mistake)
    } else if !is_timely {
        let words = "ask again once the handshake is complete: this may have been sent twice";
        Answer::words(StatusCode::TOO_EARLY, words)
    } else {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (headers, service) = (request.headers().clone(), Arc::clone(&guest.service));
        let account = Arc::clone(&guest.account);
        let _turn = guest.service.turn().await;
        let answered = spawn_blocking(move || service.answer(&method, &path, &headers, &account));
        answered.await.map_err(io::Error::other)?
    };
    let answer = match answer {
        Answer::Digest(head, body) => {
            let digesting = once_established(guest.connection.established(), async {
                let digests = &guest.service.digests;
                digests.whole(body.file, body.version, &guest.turns).await
            });
            let sum = timeout(HASHING, wanted(stream_of(exchange), guest, digesting)).await;
            let head = match sum.ok().transpose()?.flatten() {
                Some(sum) => head.with_digest(sum),
                None => head,
            };
            Answer::Text(head, Bytes::new())
        }
        Answer::Store(incoming) => receive_file(exchange, *incoming, guest, tally).await?,
        Answer::Make(making) => make_directory(exchange, making, guest).await?,
        other => other,
    };
    match answer {
        Answer::Text(head, text) => send_text(exchange, head, text, guest, tally).await,
        Answer::File(head, body) => send_file(exchange, head, body, guest, tally).await,
        // Receiving ends with a text, and a digest becomes a head without content.
        Answer::Digest(..) | Answer::Store(_) | Answer::Make(_) => Ok(()),
    }
}

/// Makes a directory once it is known that the request has no content.
async fn make_directory(
    exchange: &mut Exchange,
    making: Making,
    guest: &Guest,
) -> Result<Answer, Broken> {
    let until = tokio::time::Instant::now() + STALL;
    loop {
        let piece = timeout_at(until, exchange.recv_data()).await;
        match piece.map_err(|_| Broken::Stalled)?? {
            None => break,
            Some(piece) if piece.has_remaining() => return Ok(Answer::directory_with_content()),
            Some(_) => {}
        }
    }
    let (service, account) = (Arc::clone(&guest.service), Arc::clone(&guest.account));
    let _turn = guest.service.turn().await;
    let made = spawn_blocking(move || service.make(&making, &account)).await;
    Ok(made.map_err(io::Error::other)?)
}

/// Starts costly work only once the handshake is complete: an attacker may be replaying what came
/// before. `None` if the handshake fails, or if the work yields nothing.
async fn once_established<T, E>(
    established: impl Future<Output = Result<(), E>>,
    work: impl Future<Output = Option<T>>,
) -> Option<T> {
    established.await.ok()?;
    work.await
}

fn stream_of(exchange: &Exchange) -> StreamId {
    StreamId(exchange.id().into_inner())
}

/// Does long work that neither sends nor receives, unless the client gives up meanwhile.
async fn wanted<T>(
    stream: StreamId,
    guest: &Guest,
    work: impl Future<Output = T>,
) -> Result<T, Broken> {
    tokio::select! {
        done = work => Ok(done),
        () = guest.connection.send_ended(stream) => Err(Broken::Gone),
    }
}

async fn soon<T>(step: impl Future<Output = Result<T, StreamError>>) -> Result<T, Broken> {
    timeout(STALL, step)
        .await
        .map_err(|_| Broken::Stalled)?
        .map_err(Broken::Stream)
}

/// Whether a request may be answered now. Before the handshake is complete, an attacker may be
/// replaying a client's request. That does no harm if the request changes nothing (RFC 8470);
/// costly work waits ([`once_established`]).
fn is_timely(request: &Request<()>, is_established: bool) -> bool {
    let is_safe = [Method::GET, Method::HEAD].contains(request.method());
    is_established || (is_safe && !request.headers().contains_key(HEADER))
}

/// Waits until something has been sent, as long as the client is alive.
async fn leaves<T>(
    guest: &Guest,
    pauses: &mut Pauses,
    step: impl Future<Output = Result<T, StreamError>>,
) -> Result<T, Broken> {
    let done = pauses.patient(|| guest.heard(), step).await;
    done.ok_or(Broken::Stalled)?.map_err(Broken::Stream)
}

/// Splits a piece of a file, so that progress shows.
pub(crate) fn slices(mut piece: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let length = piece.len().min(SLICE);
        (length > 0).then(|| piece.split_to(length))
    })
}

async fn send_head(
    exchange: &mut Exchange,
    head: Head,
    guest: &Guest,
    tally: &mut Tally,
) -> Result<(), Broken> {
    tally.status = head.status.as_u16();
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    leaves(guest, &mut tally.pauses, exchange.send_response(response)).await
}

async fn send_text(
    exchange: &mut Exchange,
    head: Head,
    text: Bytes,
    guest: &Guest,
    tally: &mut Tally,
) -> Result<(), Broken> {
    send_head(exchange, head, guest, tally).await?;
    for slice in slices(text) {
        leaves(guest, &mut tally.pauses, exchange.send_data(slice)).await?;
    }
    leaves(guest, &mut tally.pauses, exchange.finish()).await
}

async fn send_file(
    exchange: &mut Exchange,
    head: Head,
    body: Body,
    guest: &Guest,
    tally: &mut Tally,
) -> Result<(), Broken> {
    send_head(exchange, head, guest, tally).await?;
    let is_whole = body.span.len() == body.version.length;
    // Who asks for a file that others have had does not make the server hash it again.
    let digests = &guest.service.digests;
    let known = digests.certain(&body.version).filter(|_| is_whole);
    let known = known.map(Sums::of_whole);
    let was_settled = body.version.is_settled();
    // Hashed while the part is sent: both take about as long. Ends with this request at the latest.
    let mut hashing = JoinSet::new();
    if !is_whole {
        let (service, file) = (Arc::clone(&guest.service), reopen(&body.file)?);
        let turns = Arc::clone(&guest.turns);
        let connection = guest.connection.clone();
        hashing.spawn(async move {
            let whole = service.digests.whole(file, body.version, &turns);
            once_established(connection.established(), whole).await
        });
    }
    let hashed = known.map_or(Hashed::Span, |_| Hashed::Nothing);
    let mut reader = Reader::start(body.file, body.version, body.span, hashed)?;
    while let Some(piece) = reader.next().await? {
        for slice in slices(piece) {
            tally.bytes += slice.len() as u64;
            leaves(guest, &mut tally.pauses, exchange.send_data(slice)).await?;
        }
    }
    let sums = known
        .or_else(|| reader.finish())
        .ok_or_else(|| io::Error::other("the file was not read whole"))?;
    let whole = if is_whole {
        if known.is_none() {
            digests.remember(body.version, sums.content, was_settled);
        }
        sums.whole
    } else {
        let hashed = timeout(
            HASHING,
            wanted(stream_of(exchange), guest, hashing.join_next()),
        )
        .await;
        hashed.ok().transpose()?.and_then(|joined| joined?.ok()?)
    };
    leaves(
        guest,
        &mut tally.pauses,
        exchange.send_trailers(trailers(&sums, whole)),
    )
    .await?;
    leaves(guest, &mut tally.pauses, exchange.finish()).await
}

/// Opens the same file again, with a position of its own.
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

/// Prepares to append to what is here, after hashing it.
async fn begin_writing(
    stream: StreamId,
    incoming: &Incoming,
    guest: &Guest,
) -> Result<io::Result<Writer>, Broken> {
    let upload = &incoming.upload;
    let begun = async {
        let digests = &guest.service.digests;
        let before = digests.prefix(upload.file()?, incoming.start, &guest.turns);
        let (file, hash) = timeout(HASHING, before)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Writer::start(file, incoming.start, hash)
    };
    tokio::select! {
        begun = wanted(stream, guest, begun) => begun,
        () = upload.claim().taken_over() => Err(Broken::TakenOver),
    }
}

async fn receive_file(
    exchange: &mut Exchange,
    incoming: Incoming,
    guest: &Guest,
    tally: &mut Tally,
) -> Result<Answer, Broken> {
    let mut writer = match begin_writing(stream_of(exchange), &incoming, guest).await? {
        Ok(writer) => writer,
        Err(error) => return Ok(Refusal::from(error).into()),
    };
    let received = receive_body(exchange, &mut writer, &incoming, tally).await;
    let given = match received {
        Ok(given) => given,
        Err(Broken::Disk(error)) => return Ok(Refusal::from(error).into()),
        Err(broken) => {
            // Kept if the client named the upload: it may be continued later.
            writer.keep().await;
            return match broken {
                Broken::Refused(refusal) => Ok(refusal.into()),
                broken => Err(broken),
            };
        }
    };
    let length = writer.length();
    let (_, sum) = match writer.finish().await {
        Ok(finished) => finished,
        Err(error) => return Ok(Refusal::from(error).into()),
    };
    if incoming.total.is_some_and(|total| total != length) {
        let words = format!("{length} bytes are here, which is not what was announced");
        return Ok(Answer::words(StatusCode::BAD_REQUEST, words));
    }
    if given.is_some_and(|given| given != sum) {
        incoming.upload.discard();
        let words = "the SHA-256 is wrong: what was received is thrown away";
        return Ok(Answer::words(StatusCode::UNPROCESSABLE_ENTITY, words));
    }
    let status = if incoming.replaces {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let committed = spawn_blocking(move || {
        let Incoming {
            upload,
            precondition,
            modified,
            ..
        } = incoming;
        upload.commit(&precondition, modified)
    });
    let version = match committed.await.map_err(io::Error::other)? {
        Ok(version) => version,
        Err(refusal) => return Ok(refusal.into()),
    };
    guest.service.digests.remember(version, sum, false);
    let answer = Answer::words(status, format!("{length} bytes, sha-256 {sum}"));
    Ok(match answer {
        Answer::Text(head, text) => Answer::Text(head.with_digest(sum), text),
        other => other,
    })
}

/// The minimum speed of an upload, so that nobody keeps one open with a byte now and then.
struct Pace {
    arrived: usize,
    until: tokio::time::Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            arrived: 0,
            until: tokio::time::Instant::now() + STALL,
        }
    }
}

impl Pace {
    fn count(&mut self, bytes: usize) {
        self.arrived += bytes;
        if self.arrived >= SLICE {
            *self = Self::default();
        }
    }
}

/// Receives the content, and the digest of the whole file that the client gives.
async fn receive_body(
    exchange: &mut Exchange,
    writer: &mut Writer,
    incoming: &Incoming,
    tally: &mut Tally,
) -> Result<Option<Sum>, Broken> {
    let claim = incoming.upload.claim();
    let disk = incoming.upload.file()?;
    let mut pace = Pace::default();
    loop {
        let piece = tokio::select! {
            piece = timeout_at(pace.until, exchange.recv_data()) => piece,
            () = claim.taken_over() => return Err(Broken::TakenOver),
        };
        let Some(mut piece) = piece.map_err(|_| Broken::Stalled)?? else {
            break;
        };
        let piece = piece.copy_to_bytes(piece.remaining());
        pace.count(piece.len());
        tally.bytes += piece.len() as u64;
        let end = writer.length() + piece.len() as u64;
        if incoming.total.is_some_and(|total| end > total) {
            return Err(Broken::Client("more bytes than announced"));
        }
        claim.count(&disk, piece.len() as u64)?;
        writer.write(piece).await?;
    }
    let trailers = soon(exchange.recv_trailers()).await?;
    let field = trailers.as_ref().and_then(|fields| fields.get(REPR_DIGEST));
    Ok(field.and_then(|field| Sum::from_field(field.to_str().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_nothing_is_answered_before_the_handshake_is_complete() {
        for (method, early) in [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::PUT, false),
            (Method::DELETE, false),
            (Method::POST, false),
        ] {
            let request = Request::builder().method(&method).body(()).unwrap();
            assert_eq!(is_timely(&request, false), early, "{method}");
            assert!(is_timely(&request, true));
        }
        let test = Request::builder().header(HEADER, "1").body(()).unwrap();
        assert!(!is_timely(&test, false) && is_timely(&test, true));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_costly_begins_before_the_handshake_is_complete() {
        let begun = std::cell::Cell::new(false);
        let work = || async {
            begun.set(true);
            Some(7)
        };
        let never = std::future::pending::<Result<(), ()>>();
        let early = timeout(STALL, once_established(never, work())).await;
        assert!(early.is_err() && !begun.get());
        let failed = once_established(std::future::ready(Err(())), work()).await;
        assert!(failed.is_none() && !begun.get());
        let ready = std::future::ready(Ok::<_, ()>(()));
        assert_eq!(once_established(ready, work()).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_of_a_byte_now_and_then_is_given_up() {
        let mut pace = Pace::default();
        let began = tokio::time::Instant::now();
        let crumb = || tokio::time::sleep(STALL / 4);
        while timeout_at(pace.until, crumb()).await.is_ok() {
            pace.count(1);
        }
        assert!(began.elapsed() <= STALL);
        let mut pace = Pace::default();
        for _ in 0..20 {
            assert!(timeout_at(pace.until, crumb()).await.is_ok());
            pace.count(SLICE);
        }
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
