//! Mechanisms of the multipath literature. All are off unless set: then the engine behaves as
//! RFC 9000, RFC 9002 and RFC 10069 say.

/// What experiments turn on. Buffers have more of it in [`Limits`](crate::streams::Limits).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Mechanisms {
    /// Where lost data travels.
    pub retransmission: RetransmissionPolicy,
    /// What happens to data of a slow path that keeps everything from being sent.
    pub rescue: Rescue,
    /// How much of the send buffer one path may fill.
    pub split_send: Split,
    /// How much of the peer's receive buffer one path may fill.
    pub split_receive: Split,
    /// On which path flow-control credit returns.
    pub credit_return: CreditReturn,
    /// Against bufferbloat: a path whose smoothed RTT exceeds this many times its smallest RTT of
    /// the last seconds gets less than its congestion window. 3 is usual, 1.5 suits interactive
    /// data; not for use with BBR, which does this itself.
    pub bufferbloat_factor: Option<f64>,
    /// Packets leave as soon as the window lets them, in bursts, as those of a TCP or SCTP without
    /// pacing. RFC 9002, section 7.7, asks for pacing.
    pub unpaced: bool,
}

impl Mechanisms {
    /// Whether any of them limits what a path may have in flight.
    pub(crate) fn limits_windows(&self) -> bool {
        self.bufferbloat_factor.is_some()
            || self.split_send != Split::Off
            || self.split_receive != Split::Off
            || self.rescue == Rescue::CopyAndPenalise
    }
}

/// Where lost data travels: the retransmission policies of CMT-SCTP (docs/mechanisms.md). Paths
/// that do not answer are never chosen while others do; ties go to the lowest path ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetransmissionPolicy {
    /// Where the scheduler sends it.
    #[default]
    Scheduler,
    /// On the path that lost it, as long as that answers.
    Same,
    /// On any path with room, at random.
    Asap,
    /// On the path with room that has the largest congestion window.
    LargestWindow,
    /// On the path with room that has the largest slow-start threshold.
    LargestThreshold,
    /// On the path with room that loses the smallest share of packets.
    LowestLoss,
}

impl RetransmissionPolicy {
    /// All of them, for tests and random worlds.
    pub const ALL: [Self; 6] = [
        Self::Scheduler,
        Self::Same,
        Self::Asap,
        Self::LargestWindow,
        Self::LargestThreshold,
        Self::LowestLoss,
    ];
}

/// Opportunistic retransmission (docs/mechanisms.md): while flow control or a full send buffer
/// stops new data, the data everything waits for is copied from a slow path onto a faster one with
/// room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rescue {
    /// Data stays where it is until it is lost.
    #[default]
    Off,
    /// The hole is copied.
    Copy,
    /// The hole is copied, and if the peer's flow control is what stops new data, the slow path may
    /// have only half as much in flight for a while.
    CopyAndPenalise,
}

/// On which path flow-control credit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CreditReturn {
    /// On the fastest healthy path, like other control frames not tied to a path.
    #[default]
    Fastest,
    /// On the path that data came by last, as in protocols whose acknowledgements hold the free
    /// buffer (SCTP, TCP): then a slow path delays credit as well.
    SamePath,
}

/// How a buffer is split among paths (docs/mechanisms.md), so that one of them cannot fill it
/// alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Split {
    /// Not at all: any path may fill it.
    #[default]
    Off,
    /// Into equal parts.
    Equal,
    /// In proportion to delivery rate times smoothed RTT; to congestion windows until every path
    /// has both.
    Proportional,
}
