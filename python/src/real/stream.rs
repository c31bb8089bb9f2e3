//! Streams of a connection: `anabranch._engine.Stream`.

use super::{Away, future};
use crate::error::raise;
use crate::trouble::Trouble;
use anabranch_net::{RecvStream, SendStream};
use bytes::Bytes;
use pyo3::prelude::*;
use std::fmt::Display;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The most bytes that one read returns.
const MOST: usize = 1 << 20;

type Shared<T> = Arc<Mutex<T>>;

/// One or both directions of a stream.
#[pyclass(name = "Stream", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyBytesStream {
    #[pyo3(get)]
    id: u64,
    send: Option<Away<Shared<SendStream>>>,
    receive: Option<Away<Shared<RecvStream>>>,
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
            receive: receive.map(|stream| Away::new(Arc::new(Mutex::new(stream)))),
            trouble: Arc::clone(trouble),
        }
    }

    fn sending(&self) -> PyResult<(Shared<SendStream>, Arc<Trouble>)> {
        let send = self.send.as_ref().map(|it| Arc::clone(it.get()));
        let send = send.ok_or_else(|| raise("UsageError", "the peer writes on this stream"))?;
        Ok((send, Arc::clone(&self.trouble)))
    }

    fn receiving(&self) -> PyResult<(Shared<RecvStream>, Arc<Trouble>)> {
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

    /// Waits for data; nothing at the end.
    fn read<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyAny>> {
        let (stream, trouble) = self.receiving()?;
        future(py, async move {
            let chunk = stream.lock().await.read_chunk(most.clamp(1, MOST)).await;
            let chunk = chunk.map_err(|error| broken(&trouble, error))?;
            Ok(chunk.map(Vec::from).unwrap_or_default())
        })
    }

    /// Waits for all that is left.
    fn read_all<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyAny>> {
        let (stream, trouble) = self.receiving()?;
        future(py, async move {
            let all = stream.lock().await.read_to_end(limit).await;
            let all = all.map_err(|error| broken(&trouble, error))?;
            Ok(Vec::from(all))
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
        let (stream, trouble) = self.receiving()?;
        future(py, async move {
            let stopped = stream.lock().await.stop(code);
            stopped.map_err(|error| broken(&trouble, error))
        })
    }
}
