//! Bytes between a TCP connection and a request stream, in both directions.
//!
//! ```text
//! TCP                                      stream
//! FIN read                          -->    FIN
//! shutdown(Write)                   <--    FIN
//! RST or an error                   -->    both directions reset: H3_CONNECT_ERROR
//! RST (SO_LINGER 0)                 <--    reset, STOP_SENDING, a broken rule, the connection lost
//! ```
//! Nothing is read from the socket before the stream has taken what was read before, and nothing
//! from the stream before the socket has. What a host has sent may go ahead of the answer to the
//! request; nothing comes out before that. A host that is gone without a word is noticed by probes
//! of the kernel.

use crate::records::Meter;
use crate::refusal::Refusal;
use crate::session::{Broken, Incoming, Outgoing, data};
use anabranch_masque::Code;
use anabranch_masque::stream::{Item, data_header_size, put_data_header};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// Bytes read from a socket at a time: little at first and where little comes, more where there was
/// more to read.
const LEAST: usize = 4 << 10;
const MOST: usize = 64 << 10;

/// Room for the frame's header before the bytes that are read.
const HEADER: usize = data_header_size(MOST);

/// How long a host may be silent before it is asked whether it is there, how often it is asked
/// then, and how many times.
const SILENT: Duration = Duration::from_secs(60);
const PROBED: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// Bytes that wait in the system for a host that reads slowly. What it does not take is held back
/// at the sender, by way of the stream, and does not grow old here; by itself the system takes up
/// to 4 MB for each connection. A gigabit moves half of this in a millisecond: that is the time in
/// which the next bytes have to come.
const MOST_UNSENT: u32 = 256 << 10;

/// Bytes moved, of payload.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// From the socket into the stream.
    pub(crate) into_stream: AtomicU64,
    /// From the stream into the socket.
    pub(crate) from_stream: AtomicU64,
}

impl Moved {
    /// Bytes into the stream and out of it so far.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.into_stream), load(&self.from_stream))
    }

    /// Bytes go into the stream.
    pub(crate) fn add_inward(&self, bytes: usize) {
        self.into_stream.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes have come out of the stream.
    pub(crate) fn add_outward(&self, bytes: usize) {
        self.from_stream.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What was moved since the last time it was taken.
    pub(crate) fn take(&self) -> (u64, u64) {
        // A client sends what comes out of the stream here.
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.from_stream), take(&self.into_stream))
    }
}

/// Why a relay ended before both sides were done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    /// The TCP connection broke.
    #[error("the TCP connection broke: {0}")]
    Socket(#[from] io::Error),
    /// The stream broke.
    #[error("the stream broke: {0}")]
    Stream(#[from] Broken),
    /// The request was refused, after bytes had gone ahead of the answer.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// One remote end of a bound socket takes no datagrams; others go on.
    #[error("the target refuses datagrams")]
    Deaf,
}

/// Moves bytes both ways until both sides are done, or one breaks.
///
/// # Errors
///
/// What broke. The other side was told.
pub(crate) async fn relay(
    socket: TcpStream,
    outgoing: Outgoing,
    incoming: Incoming,
    meter: Meter<'_>,
) -> Result<(), Cut> {
    let answered = async |_: &mut Incoming| Ok(());
    relay_ahead(socket, outgoing, incoming, Bytes::new(), meter, answered).await
}

/// Like [`relay`]; but what the host sends goes ahead of the answer to the request, for which
/// `answered` waits. `early` are bytes that were read from the socket already.
///
/// # Errors
///
/// What broke, or why the request was refused. The other side was told.
pub(crate) async fn relay_ahead(
    mut socket: TcpStream,
    mut outgoing: Outgoing,
    mut incoming: Incoming,
    early: Bytes,
    meter: Meter<'_>,
    answered: impl AsyncFnOnce(&mut Incoming) -> Result<(), Cut>,
) -> Result<(), Cut> {
    // Without it, the last bytes of each request of an application wait for an acknowledgement.
    let _ = socket.set_nodelay(true);
    let probes = TcpKeepalive::new()
        .with_time(SILENT)
        .with_interval(PROBED)
        .with_retries(PROBES);
    let options = SockRef::from(&socket);
    let _ = options.set_tcp_keepalive(&probes);
    let _ = options.set_tcp_notsent_lowat(MOST_UNSENT);
    let ends = (&mut socket, &mut outgoing, &mut incoming);
    let result = both_ways(ends, early, meter, answered).await;
    let Err(cut) = result else { return Ok(()) };
    meter.record.ends(&cut);
    let code = match &cut {
        Cut::Socket(_) | Cut::Deaf => Code::CONNECT_ERROR,
        Cut::Refused(_) => Code::REQUEST_CANCELLED,
        Cut::Stream(broken) => broken.code(),
    };
    outgoing.reset(code);
    incoming.stop(code);
    // The host learns that not all of it arrived.
    let _ = socket.set_zero_linger();
    Err(cut)
}

async fn both_ways(
    (socket, outgoing, incoming): (&mut TcpStream, &mut Outgoing, &mut Incoming),
    early: Bytes,
    meter: Meter<'_>,
    answered: impl AsyncFnOnce(&mut Incoming) -> Result<(), Cut>,
) -> Result<(), Cut> {
    let (read, mut write) = socket.split();
    let mut into = pin!(into_stream(&read, outgoing, early, meter));
    let mut all_read = false;
    {
        let mut answered = pin!(answered(incoming));
        tokio::select! {
            biased;
            answer = &mut answered => answer?,
            ended = &mut into => match ended {
                Err(Cut::Socket(error)) => return Err(error.into()),
                // Who refuses a request reads no more of it: what it says counts.
                ended => {
                    answered.await?;
                    ended?;
                    all_read = true;
                }
            }
        }
    }
    let mut from = pin!(from_stream(incoming, &mut write, meter));
    if !all_read {
        tokio::select! {
            ended = &mut from => {
                ended?;
                return into.await;
            }
            ended = &mut into => ended?,
        }
    }
    // The socket is read no more, by which a break was noticed until now.
    tokio::select! {
        ended = from => ended,
        error = broken(&read) => Err(error.into()),
    }
}

/// Waits until a connection breaks from which everything was read.
async fn broken(socket: &ReadHalf<'_>) -> io::Error {
    if let Err(error) = socket.ready(Interest::ERROR).await {
        return error;
    }
    match socket.as_ref().take_error() {
        Ok(Some(error)) | Err(error) => error,
        // A writer has taken the error, and tells of it.
        Ok(None) => std::future::pending().await,
    }
}

async fn into_stream(
    socket: &ReadHalf<'_>,
    outgoing: &mut Outgoing,
    early: Bytes,
    meter: Meter<'_>,
) -> Result<(), Cut> {
    if !early.is_empty() {
        meter.inward(early.len());
        let frame = data(&[&early]);
        meter.record.wait_inward(outgoing.write(frame)).await?;
    }
    let mut piece = Piece::default();
    loop {
        tokio::select! {
            biased;
            ready = socket.readable() => ready?,
            broken = outgoing.given_up() => return Err(broken.into()),
        }
        match piece.read(socket) {
            Ok(None) => break,
            Ok(Some((frame, length))) => {
                meter.inward(length);
                meter.record.wait_inward(outgoing.write(frame)).await?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                piece.buffer = BytesMut::new();
            }
            Err(error) => return Err(error.into()),
        }
    }
    outgoing.finish();
    Ok(())
}

async fn from_stream(
    incoming: &mut Incoming,
    socket: &mut WriteHalf<'_>,
    meter: Meter<'_>,
) -> Result<(), Cut> {
    loop {
        match incoming.next().await? {
            Item::Data(bytes) => {
                meter.record.wait_outward(socket.write_all(&bytes)).await?;
                meter.outward(bytes.len());
            }
            Item::End => break,
            // A tunnel has no other field sections: the reader refuses them.
            Item::Head(_) => {}
        }
    }
    // A socket whose other end is gone already says so by an error, which changes nothing.
    let _ = socket.shutdown().await;
    Ok(())
}

/// Where bytes are read to. A flow that has nothing to read keeps no buffer.
#[derive(Debug)]
struct Piece {
    buffer: BytesMut,
    size: usize,
    /// The header of a frame, while it is made.
    header: Vec<u8>,
}

impl Default for Piece {
    fn default() -> Self {
        Self {
            buffer: BytesMut::new(),
            size: LEAST,
            header: Vec::with_capacity(HEADER),
        }
    }
}

impl Piece {
    /// A DATA frame with what the socket has, and how much that is; `None` at its end.
    fn read(&mut self, socket: &ReadHalf<'_>) -> io::Result<Option<(Bytes, usize)>> {
        self.buffer.clear();
        // Takes the rest of the block that was used before, if that is enough.
        self.buffer.reserve(HEADER + self.size);
        self.buffer.put_bytes(0, HEADER);
        let length = socket.try_read_buf(&mut (&mut self.buffer).limit(self.size))?;
        if length == 0 {
            return Ok(None);
        }
        let mut frame = self.buffer.split();
        self.header.clear();
        put_data_header(&mut self.header, length);
        frame.advance(HEADER - self.header.len());
        frame[..self.header.len()].copy_from_slice(&self.header);
        if length == self.size {
            self.size = (self.size * 2).min(MOST);
        } else {
            // There is no more to read, perhaps for long.
            self.buffer = BytesMut::new();
            if length < self.size / 4 {
                self.size = (self.size / 2).max(LEAST);
            }
        }
        Ok(Some((frame.freeze(), length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_flow_that_has_nothing_to_read_keeps_no_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut host = TcpStream::connect(address).await.unwrap();
        let mut socket = listener.accept().await.unwrap().0;
        let (read, _) = socket.split();
        let mut piece = Piece {
            size: MOST,
            ..Piece::default()
        };
        host.write_all(b"hello").await.unwrap();
        let frame = loop {
            read.readable().await.unwrap();
            match piece.read(&read) {
                Ok(frame) => break frame.unwrap(),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        };
        assert_eq!(frame, (Bytes::from_static(b"\0\x05hello"), 5));
        assert_eq!((piece.buffer.capacity(), piece.size), (0, MOST / 2));
    }
}
