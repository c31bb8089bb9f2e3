//! Connections of a protocol of one's own: `anabranch._engine.Connection` and `Listener`.

use super::stream::{PyBytesStream, broken};
use super::{Away, GRACE, PyOptions, failed, future};
use crate::trouble::Trouble;
use crate::turn::asking;
use anabranch_cli::transfers;
use anabranch_net::connection::{Connection, Notice, PathNotices};
use anabranch_net::endpoint::Endpoint;
use anabranch_net::manager::PathManager;
use anabranch_proto::event::PathNotice;
use anabranch_proto::wire::PathId;
use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, MutexGuard, PoisonError};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// The code by which a connection is closed whose scheduler raised an exception.
const RAISED: u32 = 1;

/// Keeps a connection, and is dropped without holding the interpreter's lock.
#[derive(Debug)]
struct Held {
    connection: Connection,
    /// Of a client: its paths and its sockets.
    _manager: Option<PathManager>,
    endpoint: Option<Endpoint>,
}

/// A connection.
#[pyclass(name = "Connection", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyConnection {
    held: Away<Arc<Held>>,
    trouble: Arc<Trouble>,
    /// Closes it when its scheduler raises.
    watch: JoinHandle<()>,
}

impl Drop for PyConnection {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl PyConnection {
    /// Must be called within the runtime of `tokio`.
    fn new(held: Held, trouble: &Arc<Trouble>) -> Self {
        let weak = held.connection.downgrade();
        let heard = Arc::clone(trouble);
        let watch = tokio::spawn(async move {
            heard.raised().await;
            if let Some(connection) = weak.upgrade() {
                connection.close(RAISED, b"a scheduler raised an exception");
            }
        });
        Self {
            held: Away::new(Arc::new(held)),
            trouble: Arc::clone(trouble),
            watch,
        }
    }

    fn parts(&self) -> (Arc<Held>, Arc<Trouble>) {
        (Arc::clone(self.held.get()), Arc::clone(&self.trouble))
    }
}

/// Connects to a server that speaks a protocol.
#[pyfunction]
pub(crate) fn connect(
    py: Python<'_>,
    url: String,
    alpn: String,
    options: Py<PyOptions>,
) -> PyResult<Bound<'_, PyAny>> {
    future(py, async move {
        let options = options.get();
        let dialled = transfers::connect(&url, &alpn, &options.options).await;
        let dialled = dialled.map_err(|error| failed(&error))?;
        let held = Held {
            connection: dialled.connection,
            _manager: Some(dialled.manager),
            endpoint: Some(dialled.endpoint),
        };
        Ok(PyConnection::new(held, &options.trouble))
    })
}

#[pymethods]
impl PyConnection {
    /// Opens a stream.
    fn open<'py>(&self, py: Python<'py>, one_way: bool) -> PyResult<Bound<'py, PyAny>> {
        let (held, trouble) = self.parts();
        future(py, async move {
            let opened = if one_way {
                held.connection.open_uni().await.map(|send| (send, None))
            } else {
                let both = held.connection.open_bi().await;
                both.map(|(send, receive)| (send, Some(receive)))
            };
            let (send, receive) = opened.map_err(|error| broken(&trouble, error))?;
            Ok(PyBytesStream::new(Some(send), receive, &trouble))
        })
    }

    /// Waits for a stream of the peer's.
    fn accept<'py>(&self, py: Python<'py>, one_way: bool) -> PyResult<Bound<'py, PyAny>> {
        let (held, trouble) = self.parts();
        future(py, async move {
            let accepted = if one_way {
                let receive = held.connection.accept_uni().await;
                receive.map(|receive| (None, receive))
            } else {
                let both = held.connection.accept_bi().await;
                both.map(|(send, receive)| (Some(send), receive))
            };
            let (send, receive) = accepted.map_err(|error| broken(&trouble, error))?;
            Ok(PyBytesStream::new(send, Some(receive), &trouble))
        })
    }

    /// Sends a datagram, once there is room for it.
    fn send_datagram<'py>(&self, py: Python<'py>, data: Vec<u8>) -> PyResult<Bound<'py, PyAny>> {
        let (held, trouble) = self.parts();
        future(py, async move {
            let sent = held.connection.send_datagram_wait(Bytes::from(data)).await;
            sent.map_err(|error| broken(&trouble, error))
        })
    }

    /// Waits for a datagram.
    fn receive_datagram<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (held, trouble) = self.parts();
        future(py, async move {
            let datagram = held.connection.read_datagram().await;
            let datagram = datagram.map_err(|error| broken(&trouble, error))?;
            Ok(Vec::from(datagram))
        })
    }

    /// The most bytes of a datagram now; nothing if the peer takes none.
    #[getter]
    fn max_datagram(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        asking(py, || self.held.get().connection.max_datagram_payload())
    }

    /// Whether both sides speak multipath QUIC.
    #[getter]
    fn multipath(&self, py: Python<'_>) -> PyResult<bool> {
        asking(py, || self.held.get().connection.has_multipath())
    }

    /// The peer's address.
    #[getter]
    fn remote(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let remote = asking(py, || self.held.get().connection.remote_addr())?;
        Ok(remote.map(|address| address.to_string()))
    }

    /// The open paths, or their last state.
    fn paths<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let paths = asking(py, || self.held.get().connection.paths())?;
        let told = paths.into_iter().map(|(id, stats)| {
            let path = PyDict::new(py);
            path.set_item("id", id.0)?;
            path.set_item("remote", stats.tuple.remote.to_string())?;
            path.set_item("state", format!("{:?}", stats.state).to_lowercase())?;
            path.set_item("status", format!("{:?}", stats.status).to_lowercase())?;
            path.set_item("smoothed_rtt", stats.smoothed_rtt.as_secs_f64())?;
            path.set_item("min_rtt", stats.min_rtt.as_secs_f64())?;
            path.set_item("congestion_window", stats.congestion_window)?;
            path.set_item("bytes_in_flight", stats.bytes_in_flight)?;
            path.set_item("delivery_rate", stats.delivery_rate)?;
            path.set_item("mtu", stats.mtu)?;
            Ok(path)
        });
        told.collect()
    }

    /// What happens to paths from now on.
    fn path_changes(&self, py: Python<'_>) -> PyResult<PyPathChanges> {
        let notices = asking(py, || self.held.get().connection.path_notices())?;
        Ok(PyPathChanges(Arc::new(Mutex::new(notices))))
    }

    /// Waits until it has ended; why it did.
    fn closed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (held, trouble) = self.parts();
        future(py, async move {
            let reason = held.connection.closed().await;
            if trouble.is_raised() {
                return Err(trouble.error());
            }
            Ok(reason.to_string())
        })
    }

    /// Closes it and tells the peer; what has not arrived is lost.
    fn close<'py>(
        &self,
        py: Python<'py>,
        code: u32,
        reason: String,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (held, _) = self.parts();
        future(py, async move {
            held.connection.close(code, reason.as_bytes());
            if let Some(endpoint) = &held.endpoint {
                let _ = tokio::time::timeout(GRACE, endpoint.say_goodbye()).await;
            }
            Ok(())
        })
    }
}

/// What happens to the paths of a connection: `anabranch._engine.PathChanges`.
#[pyclass(name = "PathChanges", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyPathChanges(Arc<Mutex<PathNotices>>);

/// The kind, the path, how long it was silent in seconds, the peer's address, the code.
type Change = (
    &'static str,
    Option<u32>,
    Option<f64>,
    Option<String>,
    Option<u64>,
);

fn change(notice: Notice) -> Change {
    let of = |kind, id: PathId| (kind, Some(id.0), None, None, None);
    match notice {
        Notice::Missed => ("missed", None, None, None, None),
        Notice::Path(PathNotice::Capacity) => ("capacity", None, None, None, None),
        Notice::Path(PathNotice::Opened { id, tuple }) => (
            "opened",
            Some(id.0),
            None,
            Some(tuple.remote.to_string()),
            None,
        ),
        Notice::Path(PathNotice::Doubted { id }) => of("doubted", id),
        Notice::Path(PathNotice::Recovered { id, after }) => (
            "recovered",
            Some(id.0),
            Some(after.as_secs_f64()),
            None,
            None,
        ),
        Notice::Path(PathNotice::Moved { id, tuple }) => (
            "moved",
            Some(id.0),
            None,
            Some(tuple.remote.to_string()),
            None,
        ),
        Notice::Path(PathNotice::Abandoned { id, code, .. }) => {
            ("abandoned", Some(id.0), None, None, Some(code))
        }
        Notice::Path(PathNotice::Discarded { id }) => of("discarded", id),
    }
}

#[pymethods]
impl PyPathChanges {
    /// Waits for the next; nothing once the connection has ended.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let notices = Arc::clone(&self.0);
        future(py, async move {
            let next = notices.lock().await.next().await;
            Ok(next.map(change))
        })
    }
}

/// A server of a protocol: `anabranch._engine.Listener`.
#[pyclass(name = "Listener", module = "anabranch._engine", frozen)]
#[derive(Debug)]
pub(crate) struct PyListener {
    #[pyo3(get)]
    url: String,
    /// Nothing once it was closed.
    endpoint: Away<Arc<std::sync::Mutex<Option<Arc<Endpoint>>>>>,
    /// Whether it was: whoever waits for a connection hears of it.
    is_closed: watch::Sender<bool>,
    trouble: Arc<Trouble>,
}

/// Listens for connections of a protocol.
#[pyfunction]
pub(crate) fn listen(
    py: Python<'_>,
    addresses: Vec<String>,
    alpn: String,
    options: Py<PyOptions>,
) -> PyResult<Bound<'_, PyAny>> {
    future(py, async move {
        let options = options.get();
        let bound = transfers::listen(&addresses, &alpn, &options.options).await;
        let (endpoint, url) = bound.map_err(|error| failed(&error))?;
        Ok(PyListener {
            url,
            endpoint: Away::new(Arc::new(std::sync::Mutex::new(Some(Arc::new(endpoint))))),
            is_closed: watch::Sender::new(false),
            trouble: Arc::clone(&options.trouble),
        })
    })
}

impl PyListener {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<Endpoint>>> {
        let slot = self.endpoint.get().lock();
        slot.unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyListener {
    /// Waits for a connection; nothing if it is closed.
    fn accept<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let endpoint = self.slot().clone();
        let (mut closed, trouble) = (self.is_closed.subscribe(), Arc::clone(&self.trouble));
        future(py, async move {
            let Some(endpoint) = endpoint else {
                return Ok(None);
            };
            let accepted = tokio::select! {
                accepted = endpoint.accept() => accepted,
                _ = closed.wait_for(|is_closed| *is_closed) => None,
            };
            let Some(connection) = accepted else {
                return Ok(None);
            };
            let held = Held {
                connection,
                _manager: None,
                endpoint: None,
            };
            Ok(Some(PyConnection::new(held, &trouble)))
        })
    }

    /// Takes no more, closes all of its connections and gives its port back.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.is_closed.send_replace(true);
        let endpoint = self.slot().take();
        future(py, async move {
            let Some(endpoint) = endpoint else {
                return Ok(());
            };
            endpoint.close(0_u32, b"");
            let _ = tokio::time::timeout(GRACE, endpoint.wait_idle()).await;
            // Whoever waited for this may bind to the same address at once.
            let _ = tokio::time::timeout(GRACE, endpoint.unbind()).await;
            Ok(())
        })
    }
}
