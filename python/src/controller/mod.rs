//! Congestion controllers written in Python, as controllers of the engine.
//!
//! The engine asks for a window with every packet, and Python is not asked that often: what the
//! object says of itself in its attributes is read once after each call of one of its methods.

pub(crate) mod event;

use crate::error::raise;
use crate::scheduler::parts::seconds;
use crate::trouble::Trouble;
use anabranch_proto::congestion::{
    AckEvent, CongestionEvent, Controller, ControllerFactory, ControllerInit, Member, SentEvent,
    SpuriousLoss,
};
use anabranch_proto::time::Instant;
use event::{PyAckEvent, PyCongestionEvent, PyInit, PyMember, PySentEvent, PySpuriousLoss};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::fmt;
use std::sync::Arc;

/// Datagrams in the smallest window (RFC 9002, section 7.2).
const MIN_DATAGRAMS: u64 = 2;
/// The largest window that is believed, in bytes.
const MAX_WINDOW: f64 = 1e12;

/// A controller for each route, from a Python callable that makes one. Its name is `name`.
pub(crate) fn factory(
    name: &str,
    make: &Bound<'_, PyAny>,
    trouble: &Arc<Trouble>,
) -> ControllerFactory {
    let (make, trouble) = (Arc::new(make.clone().unbind()), Arc::clone(trouble));
    ControllerFactory::from_fn(name, move |init| {
        let mut controller = FromPython {
            live: None,
            said: Said::before(init.max_datagram_size),
            max_datagram_size: init.max_datagram_size,
            trouble: Arc::clone(&trouble),
        };
        controller.begin(&make, init);
        Box::new(controller)
    })
}

/// What the object says of itself.
#[derive(Debug, Clone, Copy)]
struct Said {
    window: u64,
    ssthresh: u64,
    pacing_rate: Option<u64>,
    in_recovery: bool,
    is_coupled: bool,
}

impl Said {
    /// Before it has said anything: the smallest window.
    fn before(max_datagram_size: u16) -> Self {
        Self {
            window: MIN_DATAGRAMS * u64::from(max_datagram_size),
            ssthresh: u64::MAX,
            pacing_rate: None,
            in_recovery: false,
            is_coupled: false,
        }
    }

    /// Reads the attributes.
    fn read(object: &Bound<'_, PyAny>, max_datagram_size: u16) -> PyResult<Self> {
        let window = match object.getattr("window")?.extract::<f64>()? {
            window if window.is_finite() => window.clamp(0.0, MAX_WINDOW) as u64,
            window => return Err(unusable("window", window, "a number of bytes")),
        };
        let ssthresh = match object.getattr("ssthresh")?.extract::<Option<f64>>()? {
            None => u64::MAX,
            Some(bytes) if bytes.is_nan() => {
                return Err(unusable("ssthresh", bytes, "a number of bytes, or None"));
            }
            Some(bytes) => bytes.max(0.0) as u64,
        };
        let pacing_rate = match object.getattr("pacing_rate")?.extract::<Option<f64>>()? {
            Some(rate) if !rate.is_finite() || rate < 1.0 => {
                let expected = "bytes per second from 1 on, or None";
                return Err(unusable("pacing_rate", rate, expected));
            }
            rate => rate.map(|rate| rate as u64),
        };
        Ok(Self {
            window: window.max(MIN_DATAGRAMS * u64::from(max_datagram_size)),
            ssthresh,
            pacing_rate,
            in_recovery: object.getattr("in_recovery")?.is_truthy()?,
            is_coupled: object.getattr("is_coupled")?.is_truthy()?,
        })
    }
}

fn unusable(name: &str, value: f64, expected: &str) -> PyErr {
    let what = format!("a controller cannot have {name} = {value}: expected {expected}");
    raise("UsageError", what)
}

/// The object's methods.
struct Live {
    object: Py<PyAny>,
    on_ack: Py<PyAny>,
    on_congestion: Py<PyAny>,
    /// These are called if there are any.
    on_sent: Option<Py<PyAny>>,
    on_spurious_loss: Option<Py<PyAny>>,
    on_idle: Option<Py<PyAny>>,
}

impl Live {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let method = |name: &str| object.getattr(name).map(Bound::unbind);
        let maybe = |name: &str| {
            object
                .getattr_opt(name)
                .map(|found| found.map(Bound::unbind))
        };
        Ok(Self {
            on_ack: method("on_ack")?,
            on_congestion: method("on_congestion")?,
            on_sent: maybe("on_sent")?,
            on_spurious_loss: maybe("on_spurious_loss")?,
            on_idle: maybe("on_idle")?,
            object: object.clone().unbind(),
        })
    }
}

/// One controller of one route.
struct FromPython {
    /// None if it could not be made.
    live: Option<Live>,
    said: Said,
    max_datagram_size: u16,
    trouble: Arc<Trouble>,
}

impl fmt::Debug for FromPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromPython")
            .field("said", &self.said)
            .finish_non_exhaustive()
    }
}

impl FromPython {
    fn begin(&mut self, make: &Py<PyAny>, init: &ControllerInit) {
        let began = self.trouble.call(init.now, |py| {
            let object = make.bind(py).call0()?;
            object.call_method1("begin", (PyInit::from(init),))?;
            let said = Said::read(&object, init.max_datagram_size)?;
            Ok((Live::new(&object)?, said))
        });
        if let Some((live, said)) = began {
            (self.live, self.said) = (Some(live), said);
        }
    }

    /// Calls the object, and reads what it then says of itself.
    fn with(&mut self, now: Instant, call: impl FnOnce(Python<'_>, &Live) -> PyResult<()>) {
        let Some(live) = &self.live else {
            return;
        };
        let max_datagram_size = self.max_datagram_size;
        let said = self.trouble.call(now, |py| {
            call(py, live)?;
            Said::read(live.object.bind(py), max_datagram_size)
        });
        self.said = said.unwrap_or(self.said);
    }
}

fn members<'py>(py: Python<'py>, group: &[Member]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, group.iter().map(PyMember::from))
}

impl Controller for FromPython {
    fn on_sent(&mut self, event: &SentEvent) {
        if self.live.as_ref().is_none_or(|live| live.on_sent.is_none()) {
            return;
        }
        self.with(event.now, |py, live| match &live.on_sent {
            Some(method) => method.call1(py, (PySentEvent::from(event),)).map(drop),
            None => Ok(()),
        });
    }

    fn on_ack(&mut self, event: &AckEvent, group: &[Member]) {
        self.with(event.now, |py, live| {
            let arguments = (PyAckEvent::from(event), members(py, group)?);
            live.on_ack.call1(py, arguments).map(drop)
        });
    }

    fn on_congestion(&mut self, event: &CongestionEvent, group: &[Member]) {
        self.with(event.now, |py, live| {
            let arguments = (PyCongestionEvent::from(event), members(py, group)?);
            live.on_congestion.call1(py, arguments).map(drop)
        });
    }

    fn is_coupled(&self) -> bool {
        self.said.is_coupled
    }

    fn on_spurious_loss(&mut self, event: &SpuriousLoss) {
        self.with(event.now, |py, live| match &live.on_spurious_loss {
            Some(method) => method.call1(py, (PySpuriousLoss::from(event),)).map(drop),
            None => Ok(()),
        });
    }

    fn on_mtu(&mut self, max_datagram_size: u16) {
        self.max_datagram_size = max_datagram_size;
        // The engine does not say when: an exception in it counts as one of the beginning.
        self.with(Instant::ZERO, |py, live| {
            let object = live.object.bind(py);
            object
                .call_method1("on_mtu", (max_datagram_size,))
                .map(drop)
        });
    }

    fn restart(&mut self, now: Instant) {
        self.with(now, |py, live| {
            let object = live.object.bind(py);
            object.call_method1("restart", (seconds(now),)).map(drop)
        });
    }

    fn on_idle(&mut self, now: Instant) {
        self.with(now, |py, live| match &live.on_idle {
            Some(method) => method.call1(py, (seconds(now),)).map(drop),
            None => Ok(()),
        });
    }

    fn window(&self) -> u64 {
        self.said.window
    }

    fn ssthresh(&self) -> u64 {
        self.said.ssthresh
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.said.pacing_rate
    }

    fn in_recovery(&self) -> bool {
        self.said.in_recovery
    }
}
