//! CONNECT of HTTP/1.1 (RFC 9110, section 9.3.6), the proxy's side.

use super::Wanted;
use crate::refusal::Refusal;
use anabranch_masque::Target;
use bytes::BytesMut;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;

const END: &[u8] = b"\r\n\r\n";

/// Reads a request. A client that cannot be served was told so; then there is nothing.
pub(super) async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
) -> io::Result<Option<Wanted>> {
    let mut bytes = BytesMut::new();
    let end = loop {
        if let Some(at) = bytes.windows(END.len()).position(|four| four == END) {
            break at;
        }
        if bytes.len() > MAX_HEAD {
            say(
                socket,
                "431 Request Header Fields Too Large",
                "the request is too long",
            )
            .await?;
            return Ok(None);
        }
        if socket.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = bytes.split_to(end + END.len());
    let line = head[..]
        .split(|&byte| byte == b'\r')
        .next()
        .unwrap_or_default();
    match request(line) {
        Ok(target) => {
            // Some clients do not wait for the answer.
            let early = bytes.freeze();
            Ok(Some(Wanted { target, early }))
        }
        Err((status, words)) => {
            say(socket, status, words).await?;
            Ok(None)
        }
    }
}

/// The target of a request line.
fn request(line: &[u8]) -> Result<Target, (&'static str, &'static str)> {
    const BAD: (&str, &str) = ("400 Bad Request", "expected CONNECT HOST:PORT HTTP/1.1");
    let line = std::str::from_utf8(line).map_err(|_| BAD)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BAD);
    };
    if !version.starts_with("HTTP/1.") {
        return Err(BAD);
    }
    if method != "CONNECT" {
        let words = "only CONNECT is proxied: set this proxy for https, or use it as SOCKS5";
        return Err(("405 Method Not Allowed\r\nAllow: CONNECT", words));
    }
    target.parse().map_err(|_| BAD)
}

/// Tells the client how its request ended.
pub(super) async fn answer<S: AsyncWrite + Unpin>(
    socket: &mut S,
    result: Result<(), Refusal>,
) -> io::Result<()> {
    let Err(refusal) = result else {
        return socket
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await;
    };
    // Who is not let in is the entry, not its client.
    let status = match refusal {
        Refusal::Unauthenticated => 502,
        other => other.status(),
    };
    let reason = match status {
        400 => "Bad Request",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Bad Gateway",
    };
    let told = refusal.proxy_status();
    let told = told.map_or_else(String::new, |value| format!("\r\nProxy-Status: {value}"));
    say(
        socket,
        &format!("{status} {reason}{told}"),
        &refusal.to_string(),
    )
    .await
}

/// Answers with a status, further fields behind it, and words for a person.
async fn say<S: AsyncWrite + Unpin>(socket: &mut S, head: &str, words: &str) -> io::Result<()> {
    let length = words.len() + 1;
    let text = format!(
        "HTTP/1.1 {head}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{words}\n"
    );
    socket.write_all(text.as_bytes()).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    async fn ask(text: &str) -> (Option<Wanted>, String) {
        let (mut client, mut server) = duplex(64 << 10);
        client.write_all(text.as_bytes()).await.unwrap();
        let wanted = read(&mut server).await.unwrap();
        drop(server);
        let mut told = String::new();
        client.read_to_string(&mut told).await.unwrap();
        (wanted, told)
    }

    #[tokio::test]
    async fn a_target_is_asked_for_and_nothing_behind_the_head_is_lost() {
        let text = "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n\x16\x03hello";
        let (wanted, told) = ask(text).await;
        let wanted = wanted.unwrap();
        assert_eq!(wanted.target.to_string(), "[2001:db8::1]:443");
        assert_eq!((&wanted.early[..], &*told), (&b"\x16\x03hello"[..], ""));
    }

    #[tokio::test]
    async fn other_requests_are_answered_in_words() {
        for (text, status, word) in [
            ("GET http://a/ HTTP/1.1\r\n\r\n", "405", "SOCKS5"),
            ("CONNECT nowhere HTTP/1.1\r\n\r\n", "400", "HOST:PORT"),
            ("CONNECT a:1\r\n\r\n", "400", "HOST:PORT"),
            ("\r\n\r\n", "400", "HOST:PORT"),
        ] {
            let (wanted, told) = ask(text).await;
            assert!(wanted.is_none(), "{text}");
            assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{told}");
            assert!(told.contains(word), "{told}");
        }
        let long = format!("CONNECT a:1 HTTP/1.1\r\nx: {}", "y".repeat(MAX_HEAD));
        assert!(ask(&long).await.1.starts_with("HTTP/1.1 431 "));
    }

    #[tokio::test]
    async fn a_refusal_is_told_with_its_proxy_status() {
        let (mut client, mut server) = duplex(4096);
        answer(&mut server, Err(Refusal::ConnectionRefused))
            .await
            .unwrap();
        drop(server);
        let mut told = String::new();
        client.read_to_string(&mut told).await.unwrap();
        assert!(
            told.starts_with("HTTP/1.1 502 Bad Gateway\r\nProxy-Status: anabranch; error=conn")
        );
        assert!(
            told.ends_with("\r\n\r\nthe target refuses the connection\n"),
            "{told}"
        );
    }
}
