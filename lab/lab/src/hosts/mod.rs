//! Runs on hosts with clocks of their own: what each is asked, what each reports, and one outcome
//! made of both.
//!
//! A host runs an agent (crate `anabranch-agent`), a process of its own so that its processor time
//! and memory can be measured. The laboratory exchanges lines of JSON with it: over standard input
//! and output on the same machine, else over an authenticated connection.

mod check;
mod host;
mod job;
mod merge;
mod relay;

pub use check::DATAGRAM_HEADER;
pub use host::{Host, HostError, MAX_ASK, MAX_LINE};
pub use job::{
    Answer, Ask, Carrier, HostBin, HostPath, HostReport, Job, JobFlow, PathReport, Ready, Role,
    Serving, UnitTime,
};
pub use merge::{Carried, LinkTotals, merge};
pub use relay::Relay;
