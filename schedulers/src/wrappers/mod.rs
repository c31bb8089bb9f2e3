//! Schedulers around schedulers, each a prefix of a name: `guard+ecf`.

pub(crate) mod guard;

use anabranch_proto::sched::Wrapper;

/// All of them.
pub(crate) const ENTRIES: [Wrapper; 1] = [guard::ENTRY];
