//! Runs on hosts with clocks of their own: what each is asked, what each tells, and one outcome
//! made of both.
//!
//! A host runs an agent (crate `anabranch-agent`), a process of its own so that its processor time
//! and memory can be told. The laboratory talks to it in lines of JSON: over its standard input
//! and output when it is on this machine, over an authenticated connection when it is not.

mod check;
mod host;
mod job;
mod merge;

pub use check::DATAGRAM_HEADER;
pub use host::{Host, HostError, MAX_ASK, MAX_LINE};
pub use job::{
    Answer, Ask, Carrier, HostBin, HostPath, HostReport, Job, JobFlow, PathReport, Ready, Role,
    Serving, UnitTime,
};
pub use merge::{Carried, LinkTotals, merge};
