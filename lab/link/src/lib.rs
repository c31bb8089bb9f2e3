//! A model of one direction of a network link, without clock and I/O.
//!
//! ```text
//! enqueue -> (loss) -> queue -> serialiser -> (loss) -> delay and jitter -> poll
//!                       |          |
//!                 tail drop,    fixed rate, token bucket,
//!                 CoDel, RED    or a delivery trace
//! ```
//!
//! A [`Link`] decides whether each packet arrives, and when. It does not know what a packet is: it
//! sees sizes, and hands back the caller's token. A simulator runs it in virtual time, an emulator
//! in real time; the same link behaves alike in both.
//!
//! Time is a number of nanoseconds since an epoch of the caller's choice. Events happen at exact
//! times, not at ticks, and are computed when the link is next called: a caller that polls late
//! gets everything that was due, with the times at which it was due. The same seed and the same
//! calls yield the same deliveries on every machine.

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
