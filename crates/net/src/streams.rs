//! Streams, as seen by an application.

use crate::connection::Holder;
use crate::engine;
use crate::error::{ReadError, ReadExactError, ReadToEndError, WriteError};
use crate::state::{SendEnd, Tracked};
use anabranch_proto::wire::{ErrorCode, StreamId};
use bytes::{Buf, Bytes, BytesMut};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes copied into one piece from borrowed memory.
const COPY_BYTES: usize = 64 << 10;

/// The most bytes read in one piece for [`AsyncRead`] and [`RecvStream::read_to_end`].
const READ_BYTES: usize = 256 << 10;

/// The sending side of a stream. If it is dropped without [`finish`](Self::finish), it is reset
/// with code 0, so that the peer cannot mistake a part for the whole.
#[derive(Debug)]
pub struct SendStream {
    holder: Arc<Holder>,
    id: StreamId,
    ended: bool,
}

impl SendStream {
    pub(crate) fn new(holder: Arc<Holder>, id: StreamId) -> Self {
        Self {
            holder,
            id,
            ended: false,
        }
    }

    /// The stream's ID.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Accepts as much from the front of `data` as there is room for, or arranges a wake-up.
    pub fn poll_write_bytes(
        &mut self,
        cx: &Context<'_>,
        data: &mut Bytes,
    ) -> Poll<Result<usize, WriteError>> {
        if self.ended {
            return Poll::Ready(Err(WriteError::Closed));
        }
        let id = self.id;
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let poll = self
            .holder
            .poll_act(|tracked, connection| match connection.write(id, data) {
                Ok(taken) => Poll::Ready(Ok(taken)),
                Err(engine::WriteError::Stopped(code)) => {
                    Poll::Ready(Err(WriteError::Stopped(code)))
                }
                // The engine forgets a stream once the peer knows of its end.
                Err(engine::WriteError::Closed) => Poll::Ready(Err(match tracked.stopped(id) {
                    Some(code) => WriteError::Stopped(code),
                    None => WriteError::Closed,
                })),
                Err(engine::WriteError::Blocked) => {
                    let sending = tracked.sending.entry(id).or_default();
                    sending.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            });
        poll.map(|result| result?)
    }

    /// Writes all of `data` without copying it.
    ///
    /// # Errors
    ///
    /// The peer stopped reading, the stream was finished, or the connection ended.
    pub async fn write_bytes(&mut self, mut data: Bytes) -> Result<(), WriteError> {
        while !data.is_empty() {
            poll_fn(|cx| self.poll_write_bytes(cx, &mut data)).await?;
        }
        Ok(())
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    ///
    /// Those of [`write_bytes`](Self::write_bytes).
    pub async fn write_all(&mut self, data: &[u8]) -> Result<(), WriteError> {
        for piece in data.chunks(COPY_BYTES) {
            self.write_bytes(Bytes::copy_from_slice(piece)).await?;
        }
        Ok(())
    }

    /// Tells the peer that there is no more data. What was written is still delivered.
    ///
    /// # Errors
    ///
    /// The stream was already finished or reset, or the connection ended.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        if self.ended {
            return Err(WriteError::Closed);
        }
        let id = self.id;
        let result = self.holder.act(|_, connection| connection.finish(id))?;
        self.ended = true;
        result.map_err(|_| WriteError::Closed)
    }

    /// Resets the stream: data that has not arrived may never be delivered.
    ///
    /// # Errors
    ///
    /// The stream or the connection has already ended.
    pub fn reset(&mut self, code: impl Into<ErrorCode>) -> Result<(), WriteError> {
        let id = self.id;
        let result = self
            .holder
            .act(|_, connection| connection.reset(id, code))?;
        self.ended = true;
        result.map_err(|_| WriteError::Closed)
    }

    /// Sets the stream's priority: higher values go first.
    ///
    /// # Errors
    ///
    /// The stream or the connection has already ended.
    pub fn set_priority(&mut self, priority: i32) -> Result<(), WriteError> {
        let id = self.id;
        let result = self
            .holder
            .act(|_, connection| connection.set_priority(id, priority))?;
        result.map_err(|_| WriteError::Closed)
    }

    /// Tells the scheduler what kind of traffic the stream carries, so that it may steer each kind
    /// in its own way: a number below [`MAX_CLASSES`](anabranch_proto::sched::MAX_CLASSES), 0
    /// unless set. Data of one class waits for no data of another.
    ///
    /// ```
    /// # use std::error::Error;
    /// # async fn send(connection: anabranch_net::Connection) -> Result<(), Box<dyn Error>> {
    /// use anabranch_net::DatagramOptions;
    ///
    /// const VOICE: u8 = 5;
    /// let mut control = connection.open_uni().await?;
    /// control.set_class(VOICE)?;
    /// let options = DatagramOptions {
    ///     class: VOICE,
    ///     ..DatagramOptions::default()
    /// };
    /// connection.send_datagram_with("a frame of speech".into(), options)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The stream or the connection has already ended.
    pub fn set_class(&mut self, class: u8) -> Result<(), WriteError> {
        let id = self.id;
        let result = self
            .holder
            .act(|_, connection| connection.set_class(id, class))?;
        result.map_err(|_| WriteError::Closed)
    }

    /// Waits until the peer has received everything (`None`) or wants no more (its code).
    ///
    /// # Errors
    ///
    /// The connection ended first.
    pub async fn stopped(&mut self) -> Result<Option<u64>, engine::ConnectionError> {
        let id = self.id;
        poll_fn(|cx| {
            self.holder.tracked(|tracked| {
                let sending = tracked.sending.entry(id).or_default();
                match (sending.end, &tracked.ended) {
                    (Some(SendEnd::Acknowledged), _) => Poll::Ready(Ok(None)),
                    (Some(SendEnd::Stopped(code)), _) => Poll::Ready(Ok(Some(code))),
                    (None, Some(error)) => Poll::Ready(Err(error.clone())),
                    (None, None) => {
                        sending.waker = Some(cx.waker().clone());
                        Poll::Pending
                    }
                }
            })
        })
        .await
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        let id = self.id;
        let forget = |tracked: &mut Tracked| {
            if let Some(sending) = tracked.sending.remove(&id) {
                sending.watchers.into_iter().for_each(Waker::wake);
            }
        };
        if self.ended {
            return self.holder.tracked(forget);
        }
        self.holder.act_for_drop(|tracked, connection| {
            forget(tracked);
            // An error means that the peer stopped the stream and the engine has already reset it.
            connection.is_some_and(|connection| connection.reset(id, 0).is_ok())
        });
    }
}

impl AsyncWrite for SendStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut piece = Bytes::copy_from_slice(&data[..data.len().min(COPY_BYTES)]);
        self.get_mut()
            .poll_write_bytes(cx, &mut piece)
            .map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        // Shutting down twice is allowed.
        Poll::Ready(if stream.ended {
            Ok(())
        } else {
            stream.finish().map_err(Into::into)
        })
    }
}

/// The receiving side of a stream. If it is dropped before its end, it is stopped with code 0.
#[derive(Debug)]
pub struct RecvStream {
    holder: Arc<Holder>,
    id: StreamId,
    ended: bool,
    /// Data taken from the engine that did not fit into the caller's buffer.
    rest: Bytes,
}

impl RecvStream {
    pub(crate) fn new(holder: Arc<Holder>, id: StreamId) -> Self {
        Self {
            holder,
            id,
            ended: false,
            rest: Bytes::new(),
        }
    }

    /// The stream's ID.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Takes the next piece of at most `max` bytes without copying it, or arranges a wake-up. Ready
    /// with `None` at the end of the stream.
    pub fn poll_read_chunk(
        &mut self,
        cx: &Context<'_>,
        max: usize,
    ) -> Poll<Result<Option<Bytes>, ReadError>> {
        if !self.rest.is_empty() {
            let length = max.min(self.rest.len());
            return Poll::Ready(Ok(Some(self.rest.split_to(length))));
        }
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        let id = self.id;
        let poll = self
            .holder
            .poll_act(|tracked, connection| match connection.read(id, max) {
                Ok(piece) => Poll::Ready(Ok(piece)),
                Err(engine::ReadError::Reset(code)) => Poll::Ready(Err(ReadError::Reset(code))),
                Err(engine::ReadError::Closed) => Poll::Ready(Err(ReadError::Closed)),
                Err(engine::ReadError::Blocked) => {
                    tracked.receiving.insert(id, Some(cx.waker().clone()));
                    Poll::Pending
                }
            });
        let result = match ready!(poll) {
            Ok(result) => result,
            Err(error) => Err(error.into()),
        };
        self.ended = !matches!(result, Ok(Some(_)));
        Poll::Ready(result)
    }

    /// Waits for the next piece of at most `max` bytes; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// The peer reset the stream, or the connection ended.
    pub async fn read_chunk(&mut self, max: usize) -> Result<Option<Bytes>, ReadError> {
        poll_fn(|cx| self.poll_read_chunk(cx, max)).await
    }

    /// Reads into `buffer` and returns how many bytes; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// Those of [`read_chunk`](Self::read_chunk).
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ReadError> {
        if buffer.is_empty() {
            return Ok(Some(0));
        }
        let Some(piece) = self.read_chunk(buffer.len()).await? else {
            return Ok(None);
        };
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(Some(piece.len()))
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    ///
    /// The stream ended first, or reading failed.
    pub async fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ReadExactError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]).await? {
                Some(count) => filled += count,
                None => return Err(ReadExactError::EndedAfter(filled)),
            }
        }
        Ok(())
    }

    /// Reads everything up to the end of the stream.
    ///
    /// # Errors
    ///
    /// The stream is longer than `limit` bytes, or reading failed.
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Bytes, ReadToEndError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.read_chunk(READ_BYTES).await? {
            if all.len() + piece.len() > limit {
                return Err(ReadToEndError::TooLong(limit));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// Tells the peer to send no more.
    ///
    /// # Errors
    ///
    /// The stream or the connection has already ended.
    pub fn stop(&mut self, code: impl Into<ErrorCode>) -> Result<(), ReadError> {
        if self.ended {
            return Err(ReadError::Closed);
        }
        let id = self.id;
        let result = self.holder.act(|_, connection| connection.stop(id, code))?;
        self.ended = true;
        self.rest = Bytes::new();
        result.map_err(|_| ReadError::Closed)
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        let id = self.id;
        let forget = |tracked: &mut Tracked| tracked.receiving.remove(&id);
        if self.ended {
            self.holder.tracked(forget);
            return;
        }
        self.holder.act_for_drop(|tracked, connection| {
            forget(tracked);
            // An error means that everything was already received or reset.
            connection.is_some_and(|connection| connection.stop(id, 0).is_ok())
        });
    }
}

impl AsyncRead for RecvStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if stream.rest.is_empty() {
            // Takes large pieces, whatever the size of the caller's buffer, because each one costs
            // a lock.
            match ready!(stream.poll_read_chunk(cx, READ_BYTES))? {
                Some(piece) => stream.rest = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = stream.rest.len().min(buffer.remaining());
        buffer.put_slice(&stream.rest[..length]);
        stream.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}
