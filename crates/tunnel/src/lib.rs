//! The logic to carry packets of unmodified hosts over a multipath connection.
//!
//! Datagrams on several paths overtake each other and may be duplicated. The sender [numbers] them;
//! the receiver drops [duplicates] and restores the order of the rest, waiting a bounded time for
//! what is missing ([resequencer]); for the datagrams of a request, as long as its paths differ
//! ([order]). For receivers that cannot do that, all paths are given the same delay ([equaliser]).
//! What kind of traffic a flow is, and so how it is carried, is its [class]. TCP connections travel
//! on [streams]. What each of the [links] may carry is a rule. Nothing here reads a clock, touches
//! a device or knows what an item is.

pub mod class;
pub mod duplicates;
pub mod equaliser;
pub mod links;
pub mod numbers;
pub mod order;
pub mod resequencer;
pub mod streams;

pub use class::{Class, Classes, Treatment};
pub use duplicates::DuplicateFilter;
pub use equaliser::Equaliser;
pub use numbers::{NumberSize, Numbered, Numbering};
pub use order::{Delays, Grace, Order, PathDelay, Taken};
pub use resequencer::{Delivered, Resequencer, ResequencerConfig, Wait};
