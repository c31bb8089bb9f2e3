//! What peers ask of each other: a line, then bytes.
//!
//! One request a bidirectional stream. `GET /bytes/N` is answered with N bytes of [`pattern`];
//! `PUT /sink` with a body, up to the end of the stream, is answered with its length and digest.
//! Anything else is answered with nothing. Lines end in CR LF.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes handled at a time.
const CHUNK: usize = 64 * 1024;
/// Longest request line.
const MAX_LINE: usize = 1024;
/// Distance after which [`pattern`] repeats; a prime, so no packet size divides it.
const PERIOD: usize = 65_521;

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// So many bytes, please.
    Get(u64),
    /// Here are so many bytes.
    Put(u64),
}

/// What a client got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Bytes of content that arrived: at the client for [`Request::Get`], at the server for
    /// [`Request::Put`].
    pub len: u64,
    /// SHA-256 of that content.
    pub sha256: [u8; 32],
}

impl Answer {
    /// What a faultless transfer of `request` leads to.
    #[must_use]
    pub fn expected(request: Request) -> Self {
        let (Request::Get(len) | Request::Put(len)) = request;
        let mut hasher = Sha256::new();
        for chunk in chunks(len) {
            hasher.update(chunk);
        }
        Self {
            len,
            sha256: hasher.finalize().into(),
        }
    }
}

/// The first `len` bytes of the content: it repeats, but not at any power of two.
#[must_use]
pub fn pattern(len: usize) -> Vec<u8> {
    let byte = |at: usize| {
        let at = at % PERIOD;
        (at ^ (at >> 8)) as u8
    };
    (0..len).map(byte).collect()
}

/// Content of `len` bytes in pieces.
fn chunks(len: u64) -> impl Iterator<Item = Vec<u8>> {
    let period = pattern(PERIOD);
    let whole = len / PERIOD as u64;
    let rest = (len % PERIOD as u64) as usize;
    let last = (rest > 0).then(|| period[..rest].to_vec());
    (0..whole).map(move |_| period.clone()).chain(last)
}

/// Serves one stream to its end.
///
/// # Errors
/// What the stream says when the client goes away early.
pub async fn answer<R, W>(mut receive: R, mut send: W) -> std::io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let line = read_line(&mut receive).await?;
    if let Some(len) = line.strip_prefix("GET /bytes/") {
        if let Ok(len) = len.trim_end().parse() {
            for chunk in chunks(len) {
                send.write_all(&chunk).await?;
            }
        }
    } else if line.starts_with("PUT /sink") {
        let Answer { len, sha256 } = digest(&mut receive).await?;
        send.write_all(format!("{len} {}\n", hex(&sha256)).as_bytes())
            .await?;
    }
    send.shutdown().await?;
    // Letting go of a stream before its end asks the client to stop sending, and s2n-quic takes
    // that as the loss of all it has sent.
    let mut rest = receive.take(MAX_LINE as u64);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Ok(())
}

/// Makes one request and reads the answer.
///
/// # Errors
/// What the stream says when it breaks; `InvalidData` for an answer that is none.
pub async fn ask<R, W>(request: Request, mut receive: R, mut send: W) -> std::io::Result<Answer>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match request {
        Request::Get(len) => {
            send.write_all(format!("GET /bytes/{len}\r\n").as_bytes())
                .await?;
            send.shutdown().await?;
            digest(&mut receive).await
        }
        Request::Put(len) => {
            send.write_all(b"PUT /sink\r\n").await?;
            for chunk in chunks(len) {
                send.write_all(&chunk).await?;
            }
            send.shutdown().await?;
            let mut text = String::new();
            receive
                .take(MAX_LINE as u64)
                .read_to_string(&mut text)
                .await?;
            parse_receipt(&text).ok_or_else(|| {
                let problem = format!("`{}` is no receipt", text.trim_end());
                std::io::Error::new(std::io::ErrorKind::InvalidData, problem)
            })
        }
    }
}

async fn read_line(receive: &mut (impl AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut line = Vec::new();
    // Byte by byte: what follows the line belongs to the body.
    while line.len() < MAX_LINE && !line.ends_with(b"\n") {
        let mut byte = [0];
        if receive.read(&mut byte).await? == 0 {
            break;
        }
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

async fn digest(receive: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Answer> {
    let mut buffer = vec![0; CHUNK];
    let (mut len, mut hasher) = (0, Sha256::new());
    loop {
        match receive.read(&mut buffer).await? {
            0 => {
                return Ok(Answer {
                    len,
                    sha256: hasher.finalize().into(),
                });
            }
            count => {
                hasher.update(&buffer[..count]);
                len += count as u64;
            }
        }
    }
}

/// In hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A digest from its hexadecimal digits; `None` if the text is anything else.
#[must_use]
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(digest)
}

fn parse_receipt(text: &str) -> Option<Answer> {
    let (len, digest) = text.trim_end().split_once(' ')?;
    Some(Answer {
        len: len.parse().ok()?,
        sha256: unhex(digest)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_in_pieces_is_the_pattern() {
        for len in [0, 1, PERIOD, PERIOD + 1, 3 * PERIOD - 1] {
            let joined: Vec<u8> = chunks(len as u64).flatten().collect();
            assert!(joined == pattern(len), "{len}");
        }
    }

    #[test]
    fn a_receipt_reads_back_and_a_broken_one_does_not() {
        let answer = Answer::expected(Request::Put(1000));
        let text = format!("{} {}\n", answer.len, hex(&answer.sha256));
        assert_eq!(parse_receipt(&text), Some(answer));
        for broken in [
            "",
            "12",
            "x y",
            "12 zz",
            &text[..40],
            &text.replace('0', "é"),
        ] {
            assert_eq!(parse_receipt(broken), None, "{broken}");
        }
    }

    #[tokio::test]
    async fn a_request_that_makes_no_sense_gets_an_empty_answer() {
        for line in [
            "",
            "GET /\r\n",
            "GET /bytes/many\r\n",
            "DELETE /bytes/1\r\n",
        ] {
            let mut reply = Vec::new();
            answer(line.as_bytes(), &mut reply).await.unwrap();
            assert!(reply.is_empty(), "{line}");
        }
    }
}
