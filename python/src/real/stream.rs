//! Streams of a connection: `anabranch._engine.Stream`.

use super::{Away, future};
use crate::error::raise;
use crate::trouble::Trouble;
use anabranch_net::error::ReadToEndError;
use anabranch_net::{RecvStream, SendStream};
use bytes::Bytes;
use pyo3::prelude::*;
use std::fmt::Display;
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use tokio::sync::Mutex;

/// The most bytes that one read returns.
const MOST: usize = 1 << 20;

type Shared<T> = Arc<Mutex<T>>;

/// The direction that this side reads.
#[derive(Debug)]
struct Receiving {
    stream: Mutex<RecvStream>,
    /// What arrived for somebody who waited, and was not fetched: who waits may be cancelled at the
    /// moment when it arrives.
    arrived: SyncMutex<Option<Arrived>>,
}

/// What comes next on a stream.
#[derive(Debug)]
enum Arrived {
    Piece(Bytes),
    End,
}

impl Receiving {
    fn new(stream: RecvStream) -> Self {
        Self {
            stream: Mutex::new(stream),
            arrived: SyncMutex::default(),
        }
    }

    fn arrived(&self) -> MutexGuard<'_, Option<Arrived>> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what arrived, at most so many bytes: nothing at the end, `None` if nothing arrived.
    fn fetch(&self, most: usize) -> Option<Bytes> {
        let mut arrived = self.arrived();
        match arrived.as_mut()? {
            Arrived::End => Some(Bytes::new()),
            Arrived::Piece(piece) => {
                let first = piece.split_to(most.min(piece.len()));
                if piece.is_empty() {
                    *arrived = None;
                }
                Some(first)
            }
        }
    }
}

/// One or both directions of a stream.
#[pyclass(name = "Stream", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyBytesStream {
    #[pyo3(get)]
    id: u64,
    send: Option<Away<Shared<SendStream>>>,
    receive: Option<Away<Arc<Receiving>>>,
    trouble: Arc<Trouble>,
}

impl PyBytesStream {
    pub(crate) fn new(
        send: Option<SendStream>,
        receive: Option<RecvStream>,
        trouble: &Arc<Trouble>,
    ) -> Self {
        let ids = (
            send.as_ref().map(SendStream::id),
            receive.as_ref().map(RecvStream::id),
        );
        Self {
            id: ids.0.or(ids.1).map_or(0, |id| id.0),
            send: send.map(|stream| Away::new(Arc::new(Mutex::new(stream)))),
            receive: receive.map(|stream| Away::new(Arc::new(Receiving::new(stream)))),
            trouble: Arc::clone(trouble),
        }
    }

    fn sending(&self) -> PyResult<(Shared<SendStream>, Arc<Trouble>)> {
        let send = self.send.as_ref().map(|it| Arc::clone(it.get()));
        let send = send.ok_or_else(|| raise("UsageError", "the peer writes on this stream"))?;
        Ok((send, Arc::clone(&self.trouble)))
    }

    fn receiving(&self) -> PyResult<(Arc<Receiving>, Arc<Trouble>)> {
        let receive = self.receive.as_ref().map(|it| Arc::clone(it.get()));
        let receive =
            receive.ok_or_else(|| raise("UsageError", "the peer reads from this stream"))?;
        Ok((receive, Arc::clone(&self.trouble)))
    }
}

/// The exception for an error of a connection: what a scheduler raised, if that ended it.
pub(crate) fn broken(trouble: &Trouble, error: impl Display) -> PyErr {
    if trouble.is_raised() {
        trouble.error()
    } else {
        raise("TransferError", error)
    }
}

#[pymethods]
impl PyBytesStream {
    /// Whether this side may write.
    #[getter]
    fn writable(&self) -> bool {
        self.send.is_some()
    }

    /// Whether this side may read.
    #[getter]
    fn readable(&self) -> bool {
        self.receive.is_some()
    }

    /// Waits until there is something to fetch.
    fn wait<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyAny>> {
        let (receiving, trouble) = self.receiving()?;
        future(py, async move {
            let mut stream = receiving.stream.lock().await;
            if receiving.arrived().is_none() {
                let chunk = stream.read_chunk(most.clamp(1, MOST)).await;
                let chunk = chunk.map_err(|error| broken(&trouble, error))?;
                *receiving.arrived() = Some(chunk.map_or(Arrived::End, Arrived::Piece));
            }
            Ok(())
        })
    }

    /// Data that was waited for, nothing at the end; `None` if somebody else has fetched it.
    fn fetch(&self, most: usize) -> PyResult<Option<Vec<u8>>> {
        let (receiving, _) = self.receiving()?;
        Ok(receiving.fetch(most.clamp(1, MOST)).map(Vec::from))
    }

    /// Waits for all that is left.
    fn read_all<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyAny>> {
        let (receiving, trouble) = self.receiving()?;
        future(py, async move {
            let mut stream = receiving.stream.lock().await;
            let first = match receiving.arrived().take() {
                Some(Arrived::End) => return Ok(Vec::new()),
                Some(Arrived::Piece(piece)) => piece,
                None => Bytes::new(),
            };
            let too_long = || broken(&trouble, ReadToEndError::TooLong(limit));
            let left = limit.checked_sub(first.len()).ok_or_else(too_long)?;
            let rest = stream
                .read_to_end(left)
                .await
                .map_err(|error| match error {
                    ReadToEndError::TooLong(_) => too_long(),
                    error @ ReadToEndError::Read(_) => broken(&trouble, error),
                })?;
            Ok([first, rest].concat())
        })
    }

    /// Waits until all of it may be sent.
    fn write<'py>(&self, py: Python<'py>, data: Vec<u8>) -> PyResult<Bound<'py, PyAny>> {
        let (stream, trouble) = self.sending()?;
        future(py, async move {
            let written = stream.lock().await.write_bytes(Bytes::from(data)).await;
            written.map_err(|error| broken(&trouble, error))
        })
    }

    /// Ends it in order.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (stream, trouble) = self.sending()?;
        future(py, async move {
            let finished = stream.lock().await.finish();
            finished.map_err(|error| broken(&trouble, error))
        })
    }

    /// Gives it up, unsent data included.
    fn reset<'py>(&self, py: Python<'py>, code: u32) -> PyResult<Bound<'py, PyAny>> {
        let (stream, trouble) = self.sending()?;
        future(py, async move {
            let reset = stream.lock().await.reset(code);
            reset.map_err(|error| broken(&trouble, error))
        })
    }

    /// Wants no more of it.
    fn stop<'py>(&self, py: Python<'py>, code: u32) -> PyResult<Bound<'py, PyAny>> {
        let (receiving, trouble) = self.receiving()?;
        future(py, async move {
            let stopped = receiving.stream.lock().await.stop(code);
            stopped.map_err(|error| broken(&trouble, error))
        })
    }
}
