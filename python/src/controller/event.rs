//! What a congestion controller is told. Each event is an object of its own, which may be kept, and
//! which a test of a controller may make.

use crate::scheduler::parts::seconds;
use anabranch_proto::congestion;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

/// A field as it is written in Python.
fn shown<'py>(py: Python<'py>, name: &str, value: impl IntoPyObjectExt<'py>) -> PyResult<String> {
    Ok(format!("{name}={}", value.into_bound_py_any(py)?.repr()?))
}

macro_rules! events {
    ($(
        $(#[$about:meta])*
        $type:ident = $name:literal {
            $($(#[$field_about:meta])* $field:ident: $kind:ty = $usual:tt,)*
        }
    )*) => {$(
        $(#[$about])*
        #[pyclass(name = $name, module = "anabranch", frozen, get_all)]
        #[derive(Debug, Clone)]
        pub(crate) struct $type {
            $($(#[$field_about])* pub(super) $field: $kind,)*
        }

        #[pymethods]
        impl $type {
            #[new]
            #[pyo3(signature = (*, $($field = $usual),*))]
            #[allow(clippy::too_many_arguments, reason = "in Python all have names")]
            fn new($($field: $kind),*) -> Self {
                Self { $($field),* }
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let fields = [$(shown(py, stringify!($field), self.$field)?),*];
                Ok(format!("{}({})", $name, fields.join(", ")))
            }
        }
    )*};
}

events! {
    /// What a controller is made for.
    PyInit = "ControllerInit" {
        /// Bytes of the largest datagram on the path.
        max_datagram_size: u16 = 1200,
        /// Seconds since the beginning.
        now: f64 = 0.0,
        /// A random number, for controllers that spread their probes.
        seed: u64 = 0,
        /// The id of the path.
        path: u32 = 0,
    }

    /// A packet left.
    PySentEvent = "SentEvent" {
        /// When, in seconds since the beginning.
        now: f64 = 0.0,
        /// Its size in bytes.
        bytes: u64 = 0,
        /// Bytes in flight on the path, this packet included.
        bytes_in_flight: u64 = 0,
        /// Whether there was nothing more to send although there was room.
        app_limited: bool = false,
    }

    /// An acknowledgement arrived.
    PyAckEvent = "AckEvent" {
        /// When, in seconds since the beginning.
        now: f64 = 0.0,
        /// Bytes newly acknowledged that counted as in flight.
        bytes: u64 = 0,
        /// When the largest newly acknowledged packet was sent, in seconds as `now`.
        largest_sent: f64 = 0.0,
        /// Bytes in flight after the acknowledgement.
        bytes_in_flight: u64 = 0,
        /// Bytes in flight before the acknowledgement.
        prior_in_flight: u64 = 0,
        /// The latest RTT sample in seconds, from this acknowledgement if it brought one.
        latest_rtt: f64 = 0.0,
        /// The smallest RTT in seconds.
        min_rtt: f64 = 0.0,
        /// Smoothed RTT in seconds.
        smoothed_rtt: f64 = 0.0,
        /// Whether the window was not the limit when the acknowledged packets were sent: it must
        /// not grow then (RFC 9002, section 7.8).
        app_limited: bool = false,
        /// The rate at which the packets were delivered, in bytes per second; None without a
        /// sample.
        delivery_rate: Option<u64> = None,
        /// Whether the sender left room unused meanwhile: the rate is a lower bound then.
        rate_app_limited: bool = false,
        /// Bytes delivered on the path so far, this acknowledgement included; 0 without a sample.
        delivered: u64 = 0,
        /// Bytes delivered when the newest acknowledged packet was sent; 0 without a sample.
        prior_delivered: u64 = 0,
    }

    /// Packets were lost, or marked by ECN.
    PyCongestionEvent = "CongestionEvent" {
        /// When it was noticed, in seconds since the beginning.
        now: f64 = 0.0,
        /// When the last of the affected packets was sent, in seconds as `now`.
        last_sent: f64 = 0.0,
        /// Bytes lost; 0 for ECN.
        bytes_lost: u64 = 0,
        /// Bytes in flight after the loss was accounted for.
        bytes_in_flight: u64 = 0,
        /// Whether everything was lost for so long that the path starts over (RFC 9002,
        /// section 7.6).
        persistent: bool = false,
        /// Whether it came from ECN marks.
        ecn: bool = false,
        /// Bytes in flight right after the lost packet was sent.
        sent_in_flight: u64 = 0,
    }

    /// A packet was acknowledged that had been declared lost.
    PySpuriousLoss = "SpuriousLoss" {
        /// When it was acknowledged, in seconds since the beginning.
        now: f64 = 0.0,
        /// Its size, which was part of `CongestionEvent.bytes_lost`.
        bytes: u64 = 0,
        /// When it was declared lost: the `now` of that `CongestionEvent`.
        lost_at: f64 = 0.0,
    }

    /// What a coupled controller sees of each open path, its own included.
    PyMember = "Member" {
        /// The id of the path.
        path: u32 = 0,
        /// Whether it is the path the event is about.
        is_self: bool = false,
        /// Congestion window in bytes.
        window: u64 = 0,
        /// Slow-start threshold in bytes; None until the first loss.
        ssthresh: Option<u64> = None,
        /// Smoothed RTT in seconds; 0 before the first sample.
        smoothed_rtt: f64 = 0.0,
        /// Whether the path has data to send: coupled increases leave idle paths out.
        active: bool = true,
        /// Whether it is known or assumed to have its bottleneck in common with the path the
        /// event is about.
        shares_bottleneck: bool = true,
    }
}

impl From<&congestion::ControllerInit> for PyInit {
    fn from(init: &congestion::ControllerInit) -> Self {
        Self {
            max_datagram_size: init.max_datagram_size,
            now: seconds(init.now),
            seed: init.seed,
            path: init.path.0,
        }
    }
}

impl From<&congestion::SentEvent> for PySentEvent {
    fn from(event: &congestion::SentEvent) -> Self {
        Self {
            now: seconds(event.now),
            bytes: event.bytes,
            bytes_in_flight: event.bytes_in_flight,
            app_limited: event.app_limited,
        }
    }
}

impl From<&congestion::AckEvent> for PyAckEvent {
    fn from(event: &congestion::AckEvent) -> Self {
        let rate = event.rate.as_ref();
        Self {
            now: seconds(event.now),
            bytes: event.bytes,
            largest_sent: seconds(event.largest_sent),
            bytes_in_flight: event.bytes_in_flight,
            prior_in_flight: event.prior_in_flight,
            latest_rtt: event.rtt.latest.as_secs_f64(),
            min_rtt: event.rtt.min.as_secs_f64(),
            smoothed_rtt: event.rtt.smoothed.as_secs_f64(),
            app_limited: event.app_limited,
            delivery_rate: rate.map(|sample| sample.rate),
            rate_app_limited: rate.is_some_and(|sample| sample.app_limited),
            delivered: rate.map_or(0, |sample| sample.delivered),
            prior_delivered: rate.map_or(0, |sample| sample.prior_delivered),
        }
    }
}

impl From<&congestion::CongestionEvent> for PyCongestionEvent {
    fn from(event: &congestion::CongestionEvent) -> Self {
        Self {
            now: seconds(event.now),
            last_sent: seconds(event.last_sent),
            bytes_lost: event.bytes_lost,
            bytes_in_flight: event.bytes_in_flight,
            persistent: event.persistent,
            ecn: event.ecn,
            sent_in_flight: event.sent_in_flight,
        }
    }
}

impl From<&congestion::SpuriousLoss> for PySpuriousLoss {
    fn from(event: &congestion::SpuriousLoss) -> Self {
        Self {
            now: seconds(event.now),
            bytes: event.bytes,
            lost_at: seconds(event.lost_at),
        }
    }
}

impl From<&congestion::Member> for PyMember {
    fn from(member: &congestion::Member) -> Self {
        Self {
            path: member.path.0,
            is_self: member.is_self,
            window: member.window,
            ssthresh: Some(member.ssthresh).filter(|bytes| *bytes != u64::MAX),
            smoothed_rtt: member.smoothed_rtt.as_secs_f64(),
            active: member.active,
            shares_bottleneck: member.shares_bottleneck,
        }
    }
}
