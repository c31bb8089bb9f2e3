//! `--metrics`: what a node does, for Prometheus, and whether it is well, for whoever restarts it.
//!
//! A page of HTTP/1.1 that knows two paths, reads nothing but the head of a request, and changes
//! nothing.

mod page;

use crate::failure::{Failure, Outcome};
use crate::output;
use anabranch_gateway::status::Status;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Requests that are answered at a time; others wait.
const AT_A_TIME: usize = 16;
/// How long a request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 8 << 10;
/// Time before the next request is taken where the system has no more descriptors.
const EXHAUSTED: Duration = Duration::from_millis(100);

const END: &[u8] = b"\r\n\r\n";

/// Listens where the command line says, if it does.
pub(super) async fn bind(address: Option<SocketAddr>, quiet: bool) -> Outcome<Option<TcpListener>> {
    let Some(address) = address else {
        return Ok(None);
    };
    page::start();
    let bound = TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    });
    let listener =
        bound.map_err(|error| Failure::usage(error).hint("choose another with `--metrics`"))?;
    if let (false, Ok(at)) = (quiet, listener.local_addr()) {
        output::say(format!("metrics on http://{at}/metrics and /healthz"));
    }
    Ok(Some(listener))
}

/// Answers for as long as it is polled, several at a time; `look` says what the node does.
pub(super) async fn serve(listener: Option<TcpListener>, look: impl Fn() -> Status) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let mut attended = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(ended) = attended.next() => {
                if let Ok(Err(error)) | Err(error) = Result::map_err(ended, io::Error::from) {
                    tracing::debug!("a request for metrics broke off: {error}");
                }
            }
            stream = accept(&listener), if attended.len() < AT_A_TIME => {
                attended.push(timeout(PATIENCE, attend(stream, &look)));
            }
        }
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!("no request for metrics can be taken: {error}");
                sleep(EXHAUSTED).await;
            }
        }
    }
}

async fn attend(mut stream: TcpStream, look: impl Fn() -> Status) -> io::Result<()> {
    let answer = match head(&mut stream).await? {
        Some(head) => answer(&head, look),
        None => Answer::refusal(
            "431 Request Header Fields Too Large",
            "the request is too long",
        ),
    };
    stream.write_all(&answer.bytes()).await?;
    stream.shutdown().await?;
    // What is left unread would make the system reset the connection before the answer is read.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// The head of a request, or nothing if it is too long.
async fn head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    while !bytes.windows(END.len()).any(|four| four == END) {
        if bytes.len() > MAX_HEAD {
            return Ok(None);
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(bytes))
}

#[derive(Debug)]
struct Answer {
    /// With further fields behind it.
    status: &'static str,
    kind: &'static str,
    body: String,
    /// Whether only the head was asked for.
    is_bare: bool,
}

impl Answer {
    fn refusal(status: &'static str, words: &str) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            body: format!("{words}\n"),
            is_bare: false,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let Self {
            status, kind, body, ..
        } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        );
        let body = if self.is_bare { "" } else { body };
        [head.as_bytes(), body.as_bytes()].concat()
    }
}

fn answer(head: &[u8], look: impl Fn() -> Status) -> Answer {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    let &[method, target, version] = &*words else {
        return Answer::refusal("400 Bad Request", "expected GET /metrics HTTP/1.1");
    };
    if !version.starts_with("HTTP/1.") {
        return Answer::refusal("400 Bad Request", "expected HTTP/1.1");
    }
    if !["GET", "HEAD"].contains(&method) {
        let status = "405 Method Not Allowed\r\nAllow: GET, HEAD";
        return Answer::refusal(status, "nothing can be changed here");
    }
    let path = target.split('?').next().unwrap_or_default();
    let mut answer = match path {
        "/metrics" => Answer {
            status: "200 OK",
            kind: page::KIND,
            body: page::text(&look()),
            is_bare: false,
        },
        "/healthz" => match look().health() {
            Ok(words) => Answer::refusal("200 OK", &words),
            Err(words) => Answer::refusal("503 Service Unavailable", &words),
        },
        _ => Answer::refusal("404 Not Found", "there are /metrics and /healthz"),
    };
    answer.is_bare = method == "HEAD";
    answer
}

#[cfg(test)]
mod tests {
    use super::super::show::tests::near;
    use super::*;

    fn told(head: &str) -> String {
        let answer = answer(head.as_bytes(), || Status::Near(near()));
        String::from_utf8(answer.bytes()).unwrap()
    }

    #[test]
    fn health_is_a_status_and_says_why() {
        let well = told("GET /healthz HTTP/1.1\r\n\r\n");
        assert!(well.starts_with("HTTP/1.1 200 OK\r\n"), "{well}");
        assert!(
            well.ends_with("\r\n\r\nconnected to home, paths that answer: 1\n"),
            "{well}"
        );
        let mut ill = near();
        (ill.far_end, ill.trouble) = (None, Some("no answer".into()));
        let head = b"GET /healthz?x HTTP/1.0\r\n\r\n";
        let ill = answer(head, || Status::Near(ill.clone()));
        assert_eq!(
            (ill.status, &*ill.body),
            ("503 Service Unavailable", "not connected: no answer\n")
        );
    }

    #[test]
    fn what_is_no_request_for_it_is_refused() {
        for (head, status) in [
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", "404"),
            ("GET http://127.0.0.1/metrics HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics HTTP/2\r\n\r\n", "400"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
            ("\u{fffd}\r\n\r\n", "400"),
        ] {
            let told = told(head);
            assert!(
                told.starts_with(&format!("HTTP/1.1 {status} ")),
                "{head}: {told}"
            );
        }
    }

    #[test]
    fn only_the_head_is_told_to_who_asks_for_it() {
        let whole = told("GET /metrics HTTP/1.1\r\n\r\n");
        let bare = told("HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(
            bare.ends_with("\r\n\r\n") && whole.starts_with("HTTP/1.1 200 OK\r\n"),
            "{bare}"
        );
        assert!(whole.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    }

    async fn listening() -> (TcpListener, SocketAddr) {
        let listener = bind(Some(([127, 0, 0, 1], 0).into()), true)
            .await
            .unwrap()
            .unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    async fn ask(address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut told = String::new();
        // A connection may be cut while too much is written.
        let _ = stream.read_to_string(&mut told).await;
        told
    }

    #[tokio::test]
    async fn who_sends_too_much_is_told_so_and_the_next_one_is_answered() {
        let (listener, address) = listening().await;
        let asking = async {
            let long = [b"GET /".as_slice(), &[b'x'; MAX_HEAD + 1024]].concat();
            let told = ask(address, &long).await;
            assert!(told.starts_with("HTTP/1.1 431 "), "{told}");
            assert!(
                ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")
                    .await
                    .contains("anabranch_")
            );
        };
        tokio::select! {
            () = serve(Some(listener), || Status::Near(near())) => {}
            () = asking => {}
        }
    }

    #[tokio::test]
    async fn who_asks_nothing_is_left_and_makes_others_wait_for_no_longer() {
        let (listener, address) = listening().await;
        let asking = async {
            let mut silent = Vec::new();
            for _ in 0..AT_A_TIME {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
            let told = ask(address, b"GET /healthz HTTP/1.1\r\n\r\n").await;
            assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
        };
        let asking = timeout(Duration::from_secs(60), asking);
        tokio::select! {
            () = serve(Some(listener), || Status::Near(near())) => {}
            answered = asking => answered.unwrap(),
        }
    }
}
