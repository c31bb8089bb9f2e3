//! One direction of a network link as a model without clock and I/O.
//!
//! ```text
//! enqueue -> (loss) -> queue -> serialiser -> (loss) -> delay and jitter -> poll
//!                       |          |
//!                 tail drop,    fixed rate, token bucket,
//!                 CoDel, RED    or a delivery trace
//! ```
//!
//! A [`Link`] decides when each packet comes out, and whether. It does not know what a packet is:
//! it sees sizes, and hands back the caller's token. A simulator runs it in virtual time, an
//! emulator in real time; a link means the same in both.
//!
//! Time is a number of nanoseconds since an epoch of the caller's choice. Events happen at exact
//! times, never at ticks, and are worked out when the link is next asked: a caller that polls late
//! gets what was due earlier, at the times it was due. The same seed and the same calls yield the
//! same deliveries, on every machine.

mod codel;
mod config;
mod link;
mod loss;
mod queue;
mod random;
mod red;
mod serialiser;
mod stats;
mod trace;

pub use config::{
    CoDel, GilbertElliott, Jitter, LinkConfig, Loss, LossClock, LossPlace, Probability, Queue,
    Rate, Red,
};
pub use link::Link;
pub use stats::LinkStats;
pub use trace::{Trace, TraceError};
