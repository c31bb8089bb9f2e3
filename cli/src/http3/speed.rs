//! Speed tests: data in either direction that no disk reads or writes.
//!
//! A server does this only if told to, for one client at a time, and for a bounded time and number
//! of bytes: it must not be of use as a source of traffic.

use super::{Broken, Exchange, STALL, Tally, send_head, send_text, soon};
use crate::files::service::{Answer, Head};
use crate::guest::Guest;
use crate::speed::{HEADER, MAX_SECONDS, Received};
use bytes::{Buf, Bytes};
use h3::error::Code;
use http::{HeaderMap, Method, Request, StatusCode};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Bytes handed over at a time.
const PIECE: usize = 64 << 10;

/// The most bytes that one test moves.
const MAX_BYTES: u64 = 64 << 30;

/// A client ends a test itself. One that does not gets this much longer.
const GRACE: Duration = Duration::from_secs(2);

/// How long a client waits for its turn: until this side has seen the end of its previous test.
const TURN: Duration = Duration::from_secs(3);

/// Answers a request that has the header of a speed test.
pub(super) async fn answer(
    request: &Request<()>,
    exchange: &mut Exchange,
    guest: &Guest,
    tally: &mut Tally,
) -> Result<(), Broken> {
    let refuse = |status, words: &str| Answer::words(status, words);
    let turn = match &guest.service.speed {
        None => None,
        Some(turns) => Some(timeout(TURN, turns.acquire()).await),
    };
    let refusal = match turn {
        None => refuse(StatusCode::FORBIDDEN, "this server measures no speed"),
        Some(Err(_) | Ok(Err(_))) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "the speed is being measured for somebody else: try later",
        ),
        Some(Ok(Ok(_turn))) => {
            let seconds = request.headers().get(HEADER);
            let seconds = seconds.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
            let time = Duration::from_secs(seconds.unwrap_or(1).clamp(1, MAX_SECONDS));
            match *request.method() {
                Method::GET => return send(exchange, time, guest, tally).await,
                Method::PUT => return receive(exchange, time, guest, tally).await,
                _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "GET or PUT"),
            }
        }
    };
    match refusal {
        Answer::Text(head, text) => send_text(exchange, head, text, guest, tally).await,
        _ => Ok(()),
    }
}

/// Sends the head of an answer. The client may not pause here: others wait for their turns.
async fn begin(exchange: &mut Exchange, guest: &Guest, tally: &mut Tally) -> Result<(), Broken> {
    let head = Head {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
    };
    let sent = timeout(STALL, send_head(exchange, head, guest, tally)).await;
    sent.map_err(|_| Broken::Stalled)?
}

async fn send(
    exchange: &mut Exchange,
    time: Duration,
    guest: &Guest,
    tally: &mut Tally,
) -> Result<(), Broken> {
    begin(exchange, guest, tally).await?;
    let piece = Bytes::from(vec![0; PIECE]);
    let end = Instant::now() + time + GRACE;
    // With a stream that is always ready, the timeout below would never expire.
    while Instant::now() < end && tally.bytes < MAX_BYTES {
        match timeout_at(end, exchange.send_data(piece.clone())).await {
            Ok(Ok(())) => tally.bytes += piece.len() as u64,
            // The client has seen enough, or its time is over.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    // Data that is still queued is of no use.
    exchange.stop_stream(Code::H3_NO_ERROR);
    Ok(())
}

async fn receive(
    exchange: &mut Exchange,
    time: Duration,
    guest: &Guest,
    tally: &mut Tally,
) -> Result<(), Broken> {
    // The time runs from the first byte: what came before was the journey here.
    let first = soon(exchange.recv_data()).await?;
    tally.bytes += first.map_or(0, |piece| piece.remaining() as u64);
    let started = Instant::now();
    let end = started + time;
    // With a stream that always has data, the timeout below would never expire.
    while Instant::now() < end && tally.bytes < MAX_BYTES {
        let Ok(piece) = timeout_at(end, exchange.recv_data()).await else {
            break;
        };
        let Some(piece) = piece? else { break };
        tally.bytes += piece.remaining() as u64;
    }
    let received = Received {
        bytes: tally.bytes,
        seconds: started.elapsed().as_secs_f64(),
    };
    let text = serde_json::to_vec(&received).map_err(std::io::Error::other)?;
    begin(exchange, guest, tally).await?;
    soon(exchange.send_data(text.into())).await?;
    soon(exchange.finish()).await
}
