//! A client's connection: made over the first path that answers, used for HTTP/3 requests.

mod early;

use self::early::{Asking, Early};
use crate::args::{Moving, Paths};
use crate::failure::{Failure, Outcome};
use crate::files::REASON_HEADER;
use crate::links;
use crate::output;
use crate::output::progress::Progress;
use crate::paths::{Direction, Labels};
use crate::qlog;
use crate::tickets::Tickets;
use crate::trust::ClientTrust;
use crate::tuning::Sending;
use crate::url::ServerUrl;
use anabranch_net::connection::Connection;
use anabranch_net::defaults;
use anabranch_net::endpoint::Endpoint;
use anabranch_net::engine::tls::{self, Fingerprint};
use anabranch_net::engine::{ClientConfig, ConnectionError, Resume, TransportConfig};
use anabranch_net::error::ConnectError;
use anabranch_net::h3::H3Connection;
use anabranch_net::manager::Target;
use anabranch_proto::error::printable;
use anabranch_proto::wire::TransportErrorCode;
use bytes::Bytes;
use h3::client::{RequestStream, SendRequest};
use h3::error::StreamError;
use http::{HeaderMap, Request, Response, StatusCode};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// The code that closes a connection without an error (RFC 9114, section 8.1).
pub(crate) const H3_NO_ERROR: u32 = 0x100;

/// How often a silent path is probed, so that a transfer that waits is not ended.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The most bytes of header fields that a server may send.
const MAX_FIELD_BYTES: u64 = 64 << 10;

/// A request in progress.
pub(crate) type Exchange = RequestStream<anabranch_net::h3::BidiStream<Bytes>, Bytes>;

/// A connection to a server.
pub(crate) struct Session {
    /// The connection itself.
    pub(crate) connection: Connection,
    /// Which interface each path uses.
    pub(crate) labels: Labels,
    endpoint: Endpoint,
    /// The fingerprint of the key we showed.
    shown: Option<Fingerprint>,
    requests: SendRequest<H3Connection, Bytes>,
    /// The request that was sent early.
    early: Mutex<Option<Early>>,
    /// Where tickets for the next connection are kept, and the server they are for.
    tickets: Option<(Tickets, String)>,
}

/// What a connection needs besides a URL.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    /// Which paths it uses.
    pub(crate) paths: &'a Paths,
    /// How this side sends.
    pub(crate) sending: &'a Sending,
    /// Whether only errors are printed.
    pub(crate) quiet: bool,
    /// Which servers it trusts, and which key it shows.
    pub(crate) trust: &'a ClientTrust,
    /// Where to write qlog.
    pub(crate) qlog: Option<&'a Path>,
    /// Whether it offers timestamps.
    pub(crate) timestamps: bool,
    /// The header fields of a GET of the URL that may be sent before the handshake is complete. It
    /// does no harm if an attacker makes the server read it twice.
    pub(crate) early: Option<HeaderMap>,
}

impl<'a> Options<'a> {
    /// What moving files needs.
    pub(crate) fn of(moving: &'a Moving, sending: &'a Sending, quiet: bool) -> Self {
        Self {
            paths: &moving.paths,
            sending,
            quiet,
            trust: &moving.trust,
            qlog: moving.report.qlog.as_deref(),
            timestamps: moving.timestamps,
            early: None,
        }
    }
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    ///
    /// There is no such server, it does not prove its identity, or nothing answers.
    pub(crate) async fn open(url: &ServerUrl, options: &Options<'_>) -> Outcome<Self> {
        let config = configure(url, options)?;
        let shown = options.trust.fingerprint();
        let target = look_up(url).await?;
        let endpoint = Endpoint::client().map_err(|error| Failure::io("no socket", &error))?;
        let wanted = options.paths.config();
        if !options.paths.are_default() {
            links::tell_dead_ends(&wanted.specs, &target.remotes).await;
        }
        let tickets = Tickets::of_user(options.quiet).filter(|_| !options.trust.no_resume);
        let tickets = tickets.map(|tickets| (tickets, url.hosts_text()));
        let asking = Asking::new(url, options.early.clone())?;
        let tls = config.tls.clone();
        let resume = async || match &tickets {
            Some((tickets, server)) if options.early.is_some() => {
                resume(tickets, server, &tls, &target.name).await
            }
            _ => None,
        };
        let connected = endpoint
            .connect_early(&target, config, &wanted, resume, |connection| {
                asking.begin(connection);
            })
            .await;
        let (connection, manager) = connected.map_err(|error| explain(url, &error, shown))?;
        let is_single = !connection.has_multipath();
        if is_single && manager.entries().len() > 1 {
            output::say("note: the server does not speak multipath QUIC: one path is used");
        }
        let (requests, early) = asking.outcome(&connection).await.map_err(|error| {
            closed(&connection, shown).unwrap_or_else(|| Failure::failed(error))
        })?;
        links::tell_changes(&manager);
        let labels = Labels::new(manager);
        Ok(Self {
            connection,
            labels,
            endpoint,
            shown,
            requests,
            early: Mutex::new(early),
            tickets,
        })
    }

    /// Watches and shows what transfers in one direction do.
    pub(crate) fn progress(&self, direction: Direction, quiet: bool) -> Progress {
        Progress::start(&self.connection, &self.labels, direction, quiet)
    }

    /// Sends a request's head.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub(crate) async fn request(
        &self,
        method: &str,
        url: &ServerUrl,
        headers: HeaderMap,
    ) -> Outcome<Exchange> {
        let request = head(method, url, headers)?;
        // Requests of one connection share nothing but the connection.
        let mut requests = self.requests.clone();
        requests
            .send_request(request)
            .await
            .map_err(|error| self.broken(&error))
    }

    /// Sends a request without content, unless it was sent early, and waits for the head of the
    /// answer.
    ///
    /// # Errors
    ///
    /// The connection ended, or the server aborted the request.
    pub(crate) async fn ask(
        &self,
        method: &str,
        url: &ServerUrl,
        headers: HeaderMap,
    ) -> Outcome<(Exchange, Response<()>)> {
        if let Some(exchange) = self.take_early(method, url, &headers) {
            let (exchange, response) = self.answer(exchange).await?;
            if response.status() != StatusCode::TOO_EARLY {
                return Ok((exchange, response));
            }
            // Retry after the handshake (RFC 8470, section 5.2). If that fails, the next request
            // says why.
            let _ = self.connection.established().await;
        }
        self.answer(self.request(method, url, headers).await?).await
    }

    async fn answer(&self, mut exchange: Exchange) -> Outcome<(Exchange, Response<()>)> {
        // A server that has answered may have stopped reading the request, which is no error
        // (RFC 9114, section 4.1). If something is wrong, the answer says so.
        let _ = exchange.finish().await;
        let answered = exchange.recv_response().await;
        let response = answered.map_err(|error| self.broken(&error))?;
        Ok((exchange, response))
    }

    /// The request that was sent early, if it is this one. Any other one is cancelled.
    fn take_early(&self, method: &str, url: &ServerUrl, headers: &HeaderMap) -> Option<Exchange> {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let early = early.take()?;
        if method == "GET" && early.asks(url, headers) {
            return Some(early.exchange);
        }
        early.call_off();
        None
    }

    /// Waits until every wanted path is open, but no longer than `limit`.
    pub(crate) async fn opened(&self, limit: Duration) {
        if self.connection.has_multipath() {
            let _ = tokio::time::timeout(limit, self.labels.opened()).await;
        }
    }

    /// What a failed request means for the person who made it.
    pub(crate) fn broken(&self, error: &StreamError) -> Failure {
        closed(&self.connection, self.shown).unwrap_or_else(|| Failure::failed(stream_error(error)))
    }

    /// Closes the connection, tells the server, and keeps tickets for the next connection.
    pub(crate) async fn close(self) {
        let states = std::iter::from_fn(|| self.connection.take_resumption());
        let states: Vec<_> = states.collect();
        self.connection.close(H3_NO_ERROR, b"");
        let keep = async {
            if let Some((tickets, server)) = self.tickets {
                let _ = spawn_blocking(move || tickets.put(&server, &states)).await;
            }
        };
        tokio::join!(self.endpoint.say_goodbye(), keep);
    }
}

/// The settings of a connection.
fn configure(url: &ServerUrl, options: &Options<'_>) -> Outcome<ClientConfig> {
    let mut transport = TransportConfig {
        keep_alive: Some(KEEP_ALIVE),
        timestamps: options.timestamps,
        ..defaults::transport()
    };
    options.sending.configure(&mut transport);
    transport.observer = options.qlog.map(qlog::into_directory).transpose()?;
    let mut config = ClientConfig::new(options.trust.config(url)?);
    config.transport = Arc::new(transport);
    Ok(config)
}

/// The head of a request.
fn head(method: &str, url: &ServerUrl, headers: HeaderMap) -> Outcome<Request<()>> {
    let authority = url
        .hosts
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    let uri = format!("https://{authority}{}", url.request_path());
    let built = Request::builder().method(method).uri(uri).body(());
    let mut request = built.map_err(|error| Failure::usage(format!("{url}: {error}")))?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// What an earlier connection to this server left, if it fits what is trusted now.
async fn resume(
    tickets: &Tickets,
    server: &str,
    tls: &tls::ClientTls,
    name: &str,
) -> Option<Resume> {
    let (tickets, server) = (tickets.clone(), server.to_owned());
    let (tls, name) = (tls.clone(), name.to_owned());
    let taken = spawn_blocking(move || tickets.take(&server, |state| state.fits(&tls, &name)));
    let (state, age) = taken.await.ok()??;
    Some(Resume {
        state,
        age,
        early_data: true,
    })
}

/// The addresses of all hosts of a URL. A host that cannot be resolved is no error if another can.
pub(crate) async fn look_up(url: &ServerUrl) -> Outcome<Target> {
    let mut remotes = Vec::new();
    let mut failure = None;
    for host in &url.hosts {
        match Target::lookup(&host.name, host.port).await {
            Ok(target) => remotes.extend(target.remotes),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if remotes.is_empty() => {
            Err(Failure::failed(error).hint("is the host's name right, and is there a network?"))
        }
        _ => Ok(Target {
            name: url.server_name().into(),
            remotes,
        }),
    }
}

pub(crate) fn explain(
    url: &ServerUrl,
    error: &ConnectError,
    shown: Option<Fingerprint>,
) -> Failure {
    let failure = Failure::failed(format!("cannot connect to {}: {error}", url.hosts_text()));
    match root_cause(error) {
        Cause::Paths => Failure::usage(format!("cannot connect: {error}"))
            .hint("`anabranch doctor` lists the interfaces and their addresses"),
        Cause::Silence => failure.hint("is the server running there, and does UDP get through?"),
        Cause::Trust if url.pin.is_some() => failure.hint(
            "the server's key is not the one in the URL: take the URL that `serve` prints now, or \
             somebody else answers in the server's place",
        ),
        Cause::Trust => failure.hint(
            "the URL pins no key, and the authorities do not lead to the server's certificate: \
             give theirs with `--ca FILE`, or take the whole URL that `serve` prints",
        ),
        Cause::Full => failure.hint(
            "the server takes no more connections, from this address or at all: try later, or let \
             it take more (`serve --max-connections`, `--max-connections-per-address`)",
        ),
        Cause::Refused(hint) => failure.hint(with_key(hint, shown)),
        Cause::Other => failure,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Paths,
    Silence,
    /// The server has as many connections as it takes.
    Full,
    /// We do not trust the server.
    Trust,
    /// The server does not trust us. Says what to do about it.
    Refused(&'static str),
    Other,
}

fn root_cause(error: &ConnectError) -> Cause {
    match error {
        ConnectError::NoPath(_) | ConnectError::Socket { .. } => Cause::Paths,
        ConnectError::TimedOut(_) | ConnectError::Handshake(ConnectionError::TimedOut) => {
            Cause::Silence
        }
        ConnectError::Handshake(ConnectionError::PeerClosed(error))
            if error.code == TransportErrorCode::CONNECTION_REFUSED =>
        {
            Cause::Full
        }
        ConnectError::Handshake(reason) if refusal(reason).is_some() => {
            refusal(reason).map_or(Cause::Other, Cause::Refused)
        }
        ConnectError::Handshake(ConnectionError::Transport(error))
            if error.code.tls_alert().is_some() =>
        {
            Cause::Trust
        }
        ConnectError::AllFailed(attempts) => {
            let mut causes = attempts.iter().map(|(_, error)| root_cause(error));
            let first = causes.next().unwrap_or(Cause::Other);
            if causes.all(|cause| cause == first) {
                first
            } else {
                Cause::Other
            }
        }
        _ => Cause::Other,
    }
}

/// What the end of a connection means, if it has ended.
fn closed(connection: &Connection, shown: Option<Fingerprint>) -> Option<Failure> {
    let reason = connection.close_reason()?;
    // A server checks its clients last, when the connection already exists for them.
    Some(match refusal(&reason) {
        Some(hint) => Failure::failed(format!("the server does not let us in: {reason}"))
            .hint(with_key(hint, shown)),
        None => Failure::failed(format!("the connection broke: {reason}")),
    })
}

/// What to do about a server that does not let this client in.
fn refusal(reason: &ConnectionError) -> Option<&'static str> {
    let ConnectionError::PeerClosed(error) = reason else {
        return None;
    };
    // Alert numbers of RFC 8446, section 6.
    match error.code.tls_alert()? {
        HANDSHAKE_FAILURE => Some(
            "the server wants another proof of who you are: `--cert FILE --key FILE` where it was \
             started with `--client-ca`, `--identity DIR` where with `--client-pin`",
        ),
        CERTIFICATE_REQUIRED => Some(
            "the server lets in only clients it knows: show who you are with `--identity DIR`, or \
             with `--cert FILE --key FILE` where it was started with `--client-ca`",
        ),
        42..=49 | DECRYPT_ERROR => Some(
            "the server does not know this key or certificate: it has to be among its \
             `--client-pin`, or lead to its `--client-ca`",
        ),
        _ => None,
    }
}

/// A hint about the key we showed, with the fingerprint that the server must be given.
fn with_key(hint: &str, shown: Option<Fingerprint>) -> String {
    match shown {
        Some(key) => format!("{hint}; the key shown has the fingerprint {key}"),
        None => hint.into(),
    }
}

const HANDSHAKE_FAILURE: u8 = 40;
const DECRYPT_ERROR: u8 = 51;
const CERTIFICATE_REQUIRED: u8 = 116;

fn http_error(error: &h3::error::ConnectionError) -> String {
    format!("HTTP/3: {error}")
}

/// What broke a request, in words.
pub(crate) fn stream_error(error: &StreamError) -> String {
    match error {
        StreamError::RemoteTerminate { .. } => {
            "the server gave up on the request (the file may have changed or gone)".into()
        }
        other => format!("HTTP/3: {other}"),
    }
}

/// The server's explanation of a status, read from a response's body.
pub(crate) async fn words(exchange: &mut Exchange, response: &Response<()>) -> String {
    use bytes::Buf;
    const MAX_WORDS: usize = 500;
    let mut text = Vec::new();
    while let Ok(Some(piece)) = exchange.recv_data().await {
        text.extend_from_slice(piece.chunk());
        if text.len() > MAX_WORDS {
            break;
        }
    }
    text.truncate(MAX_WORDS);
    let mut text = printable(String::from_utf8_lossy(&text).trim());
    // An answer without content has it in its head.
    let reason = response.headers().get(REASON_HEADER);
    if let (true, Some(reason)) = (text.is_empty(), reason) {
        text = String::from_utf8_lossy(reason.as_bytes()).into_owned();
    }
    if text.is_empty() {
        response.status().to_string()
    } else {
        format!("{text} ({})", response.status().as_u16())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_proto::error::TransportError;

    #[test]
    fn a_refused_key_is_told_from_silence() {
        let alert = TransportError::new(TransportErrorCode(0x12a), "bad certificate");
        let trust = || ConnectError::Handshake(ConnectionError::Transport(alert.clone()));
        assert_eq!(root_cause(&trust()), Cause::Trust);
        let silence = || ConnectError::TimedOut(Duration::from_secs(1));
        assert_eq!(root_cause(&silence()), Cause::Silence);
        let both = vec![("a".into(), trust()), ("b".into(), trust())];
        assert_eq!(root_cause(&ConnectError::AllFailed(both)), Cause::Trust);
        let mixed = vec![("a".into(), trust()), ("b".into(), silence())];
        assert_eq!(root_cause(&ConnectError::AllFailed(mixed)), Cause::Other);
    }

    #[test]
    fn a_refused_certificate_is_not_blamed_on_a_url_without_key() {
        let alert = TransportError::new(TransportErrorCode(0x130), "unknown issuer");
        let error = ConnectError::Handshake(ConnectionError::Transport(alert));
        let pin = "ab".repeat(32);
        let told = |url: String| {
            explain(&url.parse().unwrap(), &error, None)
                .report()
                .unwrap()
        };
        let pinned = told(format!("anabranch://{pin}@h/f"));
        assert!(pinned.contains("not the one in the URL"), "{pinned}");
        let plain = told("anabranch://h/f".into());
        assert!(
            plain.contains("--ca FILE") && plain.contains("unknown issuer"),
            "{plain}"
        );
    }

    #[test]
    fn a_server_that_refuses_us_is_told_from_one_that_we_refuse() {
        let closed = |code| {
            let error = TransportError::new(TransportErrorCode(code), "");
            ConnectError::Handshake(ConnectionError::PeerClosed(error))
        };
        for (alert, word) in [
            (40, "--client-ca"),
            (116, "--identity"),
            (46, "--client-pin"),
        ] {
            let Cause::Refused(hint) = root_cause(&closed(0x100 + alert)) else {
                panic!("{alert}");
            };
            assert!(hint.contains(word), "{hint}");
        }
        assert_eq!(root_cause(&closed(0x02)), Cause::Full);
        assert_eq!(root_cause(&closed(0x178)), Cause::Other);
        assert_eq!(root_cause(&closed(0x0a)), Cause::Other);
    }

    #[test]
    fn a_path_that_does_not_exist_is_a_mistake_in_usage() {
        let url: ServerUrl = "anabranch://h/f".parse().unwrap();
        let error = ConnectError::NoPath("no interface `eht0`".into());
        let failure = explain(&url, &error, None);
        assert!(matches!(failure, Failure::Usage(_)));
    }
}
