//! `PathEvent`: what happened between two decisions.

use anabranch_proto::sched::PathEvent;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use pyo3::prelude::*;

/// Something that happened on a path. It is the same object in every call of a connection.
#[pyclass(name = "PathEvent", module = "anabranch")]
#[derive(Debug)]
pub(crate) struct PyEvent {
    /// "opened", "status", "doubted", "recovered", "abandoned", "sent", "acked", "lost", "pto",
    /// "overtaken", "flow-blocked" or "written".
    #[pyo3(get)]
    kind: &'static str,
    /// The id of the path; None where it is about the connection.
    #[pyo3(get)]
    path: Option<u32>,
    /// Bytes that were sent, acknowledged or lost.
    #[pyo3(get)]
    bytes: Option<u64>,
    /// The RTT sample of an acknowledgement, in seconds.
    #[pyo3(get)]
    rtt: Option<f64>,
    /// The new status of the path.
    #[pyo3(get)]
    status: Option<&'static str>,
    /// The id of the path that overtook it.
    #[pyo3(get)]
    by: Option<u32>,
}

#[pymethods]
impl PyEvent {
    fn __repr__(&self) -> String {
        let path = self
            .path
            .map_or(String::new(), |path| format!(" on path {path}"));
        format!("<PathEvent {}{path}>", self.kind)
    }
}

impl PyEvent {
    /// The event; `None` for those that a later engine may add.
    pub(super) fn of(event: &PathEvent) -> Option<Self> {
        let on = |kind: &'static str, path: PathId| Self {
            kind,
            path: Some(path.0),
            bytes: None,
            rtt: None,
            status: None,
            by: None,
        };
        let none = |kind| Self {
            path: None,
            ..on(kind, PathId(0))
        };
        Some(match *event {
            PathEvent::Opened { path } => on("opened", path),
            PathEvent::Status { path, status } => {
                let status = match status {
                    PathStatus::Available => "available",
                    PathStatus::Backup => "backup",
                };
                Self {
                    status: Some(status),
                    ..on("status", path)
                }
            }
            PathEvent::Doubted { path } => on("doubted", path),
            PathEvent::Recovered { path } => on("recovered", path),
            PathEvent::Abandoned { path } => on("abandoned", path),
            PathEvent::Sent { path, bytes } => Self {
                bytes: Some(bytes),
                ..on("sent", path)
            },
            PathEvent::Acked { path, bytes, rtt } => Self {
                bytes: Some(bytes),
                rtt: rtt.map(|rtt| rtt.as_secs_f64()),
                ..on("acked", path)
            },
            PathEvent::Lost { path, bytes } => Self {
                bytes: Some(bytes),
                ..on("lost", path)
            },
            PathEvent::Pto { path } => on("pto", path),
            PathEvent::Overtaken { path, by } => Self {
                by: Some(by.0),
                ..on("overtaken", path)
            },
            PathEvent::FlowBlocked => none("flow-blocked"),
            PathEvent::Written => none("written"),
            _ => return None,
        })
    }
}
