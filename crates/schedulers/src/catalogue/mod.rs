//! The schedulers, each a file of its own: the policy, its parameters, its source.

pub(crate) mod adaptive_redundant;
pub(crate) mod affinity;
pub(crate) mod arrival;
pub(crate) mod atsss;
pub(crate) mod auto;
pub(crate) mod bandwidth_aware;
pub(crate) mod blest;
pub(crate) mod critical_redundant;
pub(crate) mod cwnd_aware;
pub(crate) mod daps;
pub(crate) mod deadline_redundant;
pub(crate) mod delivery_delay;
pub(crate) mod dynamic_weighted;
pub(crate) mod ecf;
pub(crate) mod edpf;
pub(crate) mod fdps;
pub(crate) mod fit_rtt;
pub(crate) mod flow_table;
pub(crate) mod idd;
pub(crate) mod late;
pub(crate) mod linger;
pub(crate) mod mlppp;
pub(crate) mod on_demand;
pub(crate) mod osia;
pub(crate) mod otias;
pub(crate) mod priority;
pub(crate) mod redundant;
pub(crate) mod round_robin;
pub(crate) mod sa_ecf;
pub(crate) mod sttf;
pub(crate) mod target_rate;
pub(crate) mod weighted;
pub(crate) mod window_score;
pub(crate) mod wlb;

use anabranch_proto::sched::Entry;

/// All of them, in the order in which they are listed.
pub(crate) const ENTRIES: [Entry; 31] = [
    auto::ENTRY,
    round_robin::ENTRY,
    weighted::ENTRY,
    priority::ENTRY,
    redundant::ENTRY,
    dynamic_weighted::ENTRY,
    mlppp::ENTRY,
    delivery_delay::ENTRY,
    idd::ENTRY,
    osia::ENTRY,
    fdps::ENTRY,
    daps::ENTRY,
    otias::ENTRY,
    bandwidth_aware::ENTRY,
    on_demand::ENTRY,
    edpf::ENTRY,
    window_score::ENTRY,
    cwnd_aware::ENTRY,
    blest::ENTRY,
    ecf::ENTRY,
    sa_ecf::ENTRY,
    sttf::ENTRY,
    linger::ENTRY,
    adaptive_redundant::ENTRY,
    critical_redundant::ENTRY,
    deadline_redundant::ENTRY,
    target_rate::ENTRY,
    affinity::ENTRY,
    wlb::ENTRY,
    atsss::ENTRY,
    fit_rtt::ENTRY,
];
