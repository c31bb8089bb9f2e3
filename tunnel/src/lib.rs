//! What carries packets of unmodified hosts over a multipath connection.
//!
//! Datagrams of several paths overtake each other and may come twice. The sender [numbers] them;
//! the receiver drops [duplicates] and puts the rest in order again, waiting a bounded time for
//! what is missing ([resequencer]). Receivers that cannot do that get paths made equally slow
//! ([equaliser]). Nothing here reads a clock, touches a device or knows what an
//! item is.

pub mod duplicates;
pub mod equaliser;
pub mod numbers;
pub mod resequencer;

pub use duplicates::DuplicateFilter;
pub use equaliser::Equaliser;
pub use numbers::{NumberSize, Numbered, Numbering};
pub use resequencer::{Delivered, Resequencer, ResequencerConfig, Wait};
