//! A scenario's mechanisms as settings of the engine.

use crate::scenario::{Profile, Retransmit, Split as Shares, Transport};
use anabranch_proto::config::{Rescue, RetransmissionPolicy, Split, TransportConfig};
use anabranch_proto::streams::Release;

/// Sets what the scenario names, and leaves the rest to the profile.
pub(super) fn apply(config: &mut TransportConfig, transport: &Transport) {
    let settings = &transport.settings;
    if let Some(timestamps) = settings.timestamps {
        config.timestamps = timestamps;
    }
    if let Some(renegable) = settings.renegable {
        config.streams.release = if renegable {
            Release::InOrder
        } else {
            Release::Acknowledged
        };
    }
    let mechanisms = &mut config.mechanisms;
    if let Some(policy) = settings.retransmit {
        mechanisms.retransmission = match policy {
            Retransmit::Scheduler => RetransmissionPolicy::Scheduler,
            Retransmit::Same => RetransmissionPolicy::Same,
            Retransmit::Soon => RetransmissionPolicy::Asap,
            Retransmit::Window => RetransmissionPolicy::LargestWindow,
            Retransmit::Ssthresh => RetransmissionPolicy::LargestThreshold,
            Retransmit::Loss => RetransmissionPolicy::LowestLoss,
        };
    }
    if let Some(split) = settings.split {
        let split = match split {
            Shares::Shared => Split::Off,
            Shares::Equal => Split::Equal,
            Shares::Proportional => Split::Proportional,
        };
        (mechanisms.split_send, mechanisms.split_receive) = (split, split);
    }
    match (settings.opportunistic, settings.penalise) {
        (_, Some(true)) => mechanisms.rescue = Rescue::CopyAndPenalise,
        (Some(true), _) => mechanisms.rescue = Rescue::Copy,
        (Some(false), _) => mechanisms.rescue = Rescue::Off,
        (None, _) => {}
    }
    if settings.bufferbloat_cap.is_some() {
        mechanisms.bufferbloat_factor = settings.bufferbloat_cap;
    }
}

/// In SCTP and TCP nobody acknowledges what the receiver says of its buffer. Here the sender does,
/// and a packet for each would take room from data in their direction: packets with data take these
/// acknowledgements along.
pub(super) fn spare_the_sender(sender: &mut TransportConfig, transport: &Transport) {
    if transport.profile == Profile::CmtSctp {
        sender.ack_threshold = SENDER_ACK_THRESHOLD;
    }
}

/// More than any flow of data leaves unacknowledged for as long as acknowledgements are delayed.
const SENDER_ACK_THRESHOLD: u64 = 1000;
