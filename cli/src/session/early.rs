//! The first request of a connection. It is sent with the first packets if an earlier connection's
//! session is resumed (0-RTT).
//!
//! Only a GET is sent early: an attacker may make the server read it twice.

use super::{Exchange, H3_NO_ERROR, MAX_FIELD_BYTES, head, http_error, stream_error};
use crate::failure::Outcome;
use crate::url::ServerUrl;
use anabranch_net::connection::Connection;
use anabranch_net::h3::H3Connection;
use bytes::Bytes;
use h3::client::SendRequest;
use h3::error::Code;
use http::{HeaderMap, Request};
use std::sync::{Mutex, PoisonError};
use tokio::task::JoinHandle;

/// Sends requests.
type Requests = SendRequest<H3Connection, Bytes>;

/// A request that was sent early.
pub(super) struct Early {
    path: String,
    headers: HeaderMap,
    /// The request in progress.
    pub(super) exchange: Exchange,
}

impl Early {
    /// Whether it is what a GET of `url` with these header fields would send.
    pub(super) fn asks(&self, url: &ServerUrl, headers: &HeaderMap) -> bool {
        self.path == url.request_path() && self.headers == *headers
    }

    /// Cancels the request: nobody wants the answer.
    pub(super) fn call_off(mut self) {
        self.exchange.stop_sending(Code::H3_REQUEST_CANCELLED);
        self.exchange.stop_stream(Code::H3_REQUEST_CANCELLED);
    }
}

/// Sends a request early, if there is one, on each connection that may carry it.
pub(super) struct Asking {
    path: String,
    /// The request, and a copy of its header fields to recognise it later.
    request: Option<(Request<()>, HeaderMap)>,
    /// One for each attempt of a race of paths.
    begun: Mutex<Vec<Begun>>,
}

/// A connection on which the request was sent early.
struct Begun {
    connection: Connection,
    headers: HeaderMap,
    task: JoinHandle<Result<(Requests, Exchange), String>>,
}

impl Asking {
    /// A GET of `url` with these header fields; no request without them.
    ///
    /// # Errors
    ///
    /// The URL cannot be made into a request.
    pub(super) fn new(url: &ServerUrl, headers: Option<HeaderMap>) -> Outcome<Self> {
        let request = match headers {
            Some(headers) => Some((head("GET", url, headers.clone())?, headers)),
            None => None,
        };
        Ok(Self {
            path: url.request_path(),
            request,
            begun: Mutex::default(),
        })
    }

    /// Sends the request on a connection that may send early data.
    pub(super) fn begin(&self, connection: Connection) {
        let Some((request, headers)) = self.request.clone() else {
            return;
        };
        let task = tokio::spawn(ask(connection.clone(), request));
        let begun = Begun {
            connection,
            headers,
            task,
        };
        let mut all = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(begun);
    }

    /// Starts HTTP/3 on the connection that won, unless that was done early.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub(super) async fn outcome(
        self,
        connection: &Connection,
    ) -> Result<(Requests, Option<Early>), String> {
        let begun = self.begun.into_inner();
        let mut won = None;
        for begun in begun.unwrap_or_else(PoisonError::into_inner) {
            if begun.connection.is(connection) {
                won = Some(begun);
            } else {
                // Another path was faster: this request was sent in vain.
                begun.connection.close(H3_NO_ERROR, b"");
            }
        }
        let Some(begun) = won else {
            return Ok((speak(connection).await?, None));
        };
        let asked = begun.task.await.map_err(|error| error.to_string())?;
        let (requests, exchange) = asked?;
        let early = Early {
            path: self.path,
            headers: begun.headers,
            exchange,
        };
        Ok((requests, Some(early)))
    }
}

/// Starts HTTP/3.
async fn speak(connection: &Connection) -> Result<Requests, String> {
    let built = h3::client::builder()
        .max_field_section_size(MAX_FIELD_BYTES)
        .send_grease(false)
        .build(H3Connection::new(connection.clone()))
        .await;
    let (mut driver, requests) = built.map_err(|error| http_error(&error))?;
    tokio::spawn(async move { driver.wait_idle().await });
    Ok(requests)
}

/// Starts HTTP/3 and sends a request.
async fn ask(connection: Connection, request: Request<()>) -> Result<(Requests, Exchange), String> {
    let mut requests = speak(&connection).await?;
    let sent = requests.send_request(request).await;
    sent.map(|exchange| (requests, exchange))
        .map_err(|error| stream_error(&error))
}

#[cfg(test)]
mod tests;
