//! HTTP/3 over these connections: implements the traits of `h3::quic`.

mod guard;

use crate::connection::Connection;
use crate::engine::ConnectionError;
use crate::error::{ReadError, WriteError};
use crate::streams;
use anabranch_proto::wire::{Dir, ErrorCode};
use bytes::{Buf, Bytes};
use guard::{EXCESSIVE_LOAD, Guard};
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The most bytes handed to h3 in one piece.
const READ_BYTES: usize = 64 << 10;

/// A connection for h3, or a handle that opens streams on it.
#[derive(Debug, Clone)]
pub struct H3Connection(Connection);

impl H3Connection {
    /// Prepares a connection for `h3::client::new` or `h3::server::Connection::new`. Keep a clone
    /// of the connection for what h3 has no interface for: paths, datagrams, counters.
    pub fn new(connection: Connection) -> Self {
        Self(connection)
    }
}

fn connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed { code, .. } => {
            ConnectionErrorIncoming::ApplicationClose { error_code: code }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

fn stream_error(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming {
        connection_error: connection_error(error),
    }
}

fn read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Connection(error) => stream_error(error),
        ReadError::Reset(error_code) => StreamErrorIncoming::StreamTerminated { error_code },
        ReadError::Closed => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Connection(error) => stream_error(error),
        WriteError::Stopped(error_code) => StreamErrorIncoming::StreamTerminated { error_code },
        WriteError::Closed => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

/// Converts a code of h3. HTTP/3's own codes all fit; one that does not becomes the largest code.
fn error_code(code: u64) -> ErrorCode {
    ErrorCode::new(code).unwrap_or(ErrorCode::MAX)
}

fn stream_id(id: anabranch_proto::wire::StreamId) -> StreamId {
    StreamId::try_from(id.0).expect("a stream ID fits a varint")
}

impl<B: Buf> quic::Connection<B> for H3Connection {
    type RecvStream = RecvStream;
    type OpenStreams = Self;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let id = ready!(self.0.poll_accept(cx, Dir::Uni)).map_err(connection_error)?;
        Poll::Ready(Ok(RecvStream::new(self.0.recv_stream(id))))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        let id = ready!(self.0.poll_accept(cx, Dir::Bi)).map_err(connection_error)?;
        let send = SendStream::new(self.0.send_stream(id));
        Poll::Ready(Ok(BidiStream {
            send,
            recv: RecvStream::new(self.0.recv_stream(id)),
        }))
    }

    fn opener(&self) -> Self::OpenStreams {
        self.clone()
    }
}

impl<B: Buf> quic::OpenStreams<B> for H3Connection {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        let id = ready!(self.0.poll_open(cx, Dir::Bi)).map_err(stream_error)?;
        let send = SendStream::new(self.0.send_stream(id));
        Poll::Ready(Ok(BidiStream {
            send,
            recv: RecvStream::new(self.0.recv_stream(id)),
        }))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        let id = ready!(self.0.poll_open(cx, Dir::Uni)).map_err(stream_error)?;
        Poll::Ready(Ok(SendStream::new(self.0.send_stream(id))))
    }

    fn close(&mut self, code: h3::error::Code, reason: &[u8]) {
        self.0.close(error_code(code.value()), reason);
    }
}

/// The sending side of a stream, for h3.
pub struct SendStream<B> {
    stream: streams::SendStream,
    /// What h3 handed over and is not fully written yet.
    writing: Option<WriteBuf<B>>,
    /// The part of it that was copied out and that the engine has not accepted yet.
    piece: Bytes,
}

impl<B> fmt::Debug for SendStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStream")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl<B: Buf> SendStream<B> {
    fn new(stream: streams::SendStream) -> Self {
        Self {
            stream,
            writing: None,
            piece: Bytes::new(),
        }
    }

    fn poll_drain(&mut self, cx: &Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        loop {
            while !self.piece.is_empty() {
                ready!(self.stream.poll_write_bytes(cx, &mut self.piece)).map_err(write_error)?;
            }
            let Some(data) = self.writing.as_mut().filter(Buf::has_remaining) else {
                self.writing = None;
                return Poll::Ready(Ok(()));
            };
            // One chunk at a time: if it is already `Bytes`, this only increments a reference
            // count.
            let length = data.chunk().len();
            self.piece = data.copy_to_bytes(length);
        }
    }
}

impl<B: Buf> quic::SendStream<B> for SendStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.poll_drain(cx)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() || !self.piece.is_empty() {
            let connection_error =
                ConnectionErrorIncoming::InternalError("send_data before poll_ready".into());
            return Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error });
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        ready!(self.poll_drain(cx))?;
        Poll::Ready(self.stream.finish().map_err(write_error))
    }

    fn reset(&mut self, reset_code: u64) {
        // An error means that the stream has already ended.
        let _ = self.stream.reset(error_code(reset_code));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl<B: Buf> quic::SendStreamUnframed<B> for SendStream<B> {
    fn poll_send<D: Buf>(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut D,
    ) -> Poll<Result<usize, StreamErrorIncoming>> {
        ready!(self.poll_drain(cx))?;
        let mut piece = Bytes::copy_from_slice(buf.chunk());
        let taken = ready!(self.stream.poll_write_bytes(cx, &mut piece)).map_err(write_error)?;
        buf.advance(taken);
        Poll::Ready(Ok(taken))
    }
}

/// The receiving side of a stream, for h3.
#[derive(Debug)]
pub struct RecvStream {
    stream: streams::RecvStream,
    guard: Guard,
}

impl RecvStream {
    fn new(stream: streams::RecvStream) -> Self {
        let guard = Guard::new(stream.id().dir());
        Self { stream, guard }
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Buf>, StreamErrorIncoming>> {
        let read = ready!(self.stream.poll_read_chunk(cx, READ_BYTES)).map_err(read_error)?;
        if let Some(piece) = &read
            && self.guard.watch(piece).is_err()
        {
            self.stop_sending(EXCESSIVE_LOAD);
            let error_code = EXCESSIVE_LOAD;
            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }));
        }
        Poll::Ready(Ok(read))
    }

    fn stop_sending(&mut self, error_code: u64) {
        // An error means that the stream has already ended.
        let _ = self.stream.stop(self::error_code(error_code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

/// Both sides of a stream, for h3.
#[derive(Debug)]
pub struct BidiStream<B> {
    send: SendStream<B>,
    recv: RecvStream,
}

impl<B: Buf> quic::BidiStream<B> for BidiStream<B> {
    type SendStream = SendStream<B>;
    type RecvStream = RecvStream;

    fn split(self) -> (Self::SendStream, Self::RecvStream) {
        (self.send, self.recv)
    }
}

impl<B: Buf> quic::RecvStream for BidiStream<B> {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Self::Buf>, StreamErrorIncoming>> {
        self.recv.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.recv.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl<B: Buf> quic::SendStream<B> for BidiStream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl<B: Buf> quic::SendStreamUnframed<B> for BidiStream<B> {
    fn poll_send<D: Buf>(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut D,
    ) -> Poll<Result<usize, StreamErrorIncoming>> {
        self.send.poll_send(cx, buf)
    }
}
