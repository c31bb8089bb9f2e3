//! Turns a scenario's transport into settings of the engine, for any driver.

use crate::scenario::{Profile, Settings, Transport, Usage};
use anabranch_proto::config::{Rescue, TransportConfig};
use anabranch_proto::path::PathOptions;
use anabranch_proto::sched::SchedulerFactory;
use anabranch_proto::spec::{Spec, SpecError};
use anabranch_proto::streams::Release;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_schedulers::Names;
use anabranch_sim::profile;

#[cfg(test)]
mod tests;

/// A scenario's settings for the engine.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// The system it imitates.
    pub profile: Profile,
    /// The scheduler; the profile's if `None`.
    pub scheduler: Option<&'a Spec>,
    /// The congestion control; the profile's if `None`.
    pub congestion: Option<&'a Spec>,
    /// The rest.
    pub settings: &'a Settings,
}

impl<'a> Setup<'a> {
    /// The setup of a contender.
    pub const fn of(transport: &'a Transport) -> Self {
        Self {
            profile: transport.profile,
            scheduler: transport.scheduler.as_ref(),
            congestion: transport.congestion.as_ref(),
            settings: &transport.settings,
        }
    }
}

/// The settings of both ends, without observers.
#[derive(Debug, Clone)]
pub struct Ends {
    /// For the end that sends the first flow's data.
    pub sender: TransportConfig,
    /// For the other end.
    pub receiver: TransportConfig,
}

/// Reads a scenario's transport.
///
/// # Errors
/// A name of a scheduler or controller that does not exist, or parameters that make no sense.
pub fn ends(setup: &Setup<'_>, names: &Names) -> Result<Ends, SpecError> {
    let mut sender = setup.profile.transport(names)?;
    choose(&mut sender, setup, names)?;
    apply(&mut sender, setup.settings);
    let receiver = sender.clone();
    if setup.profile == Profile::CmtSctp {
        // In SCTP and TCP a receiver's window updates are not acknowledged. Here the data sender
        // acknowledges them, and a packet for each would take room from its data, so
        // acknowledgements wait for packets with data.
        sender.ack_threshold = SENDER_ACK_THRESHOLD;
    }
    Ok(Ends { sender, receiver })
}

/// The turns in a round of each of these paths, given by index and weight: the weights of the
/// scheduler `weighted`, else one.
pub fn turns(scheduler: Option<&Spec>, paths: &[(usize, u32)]) -> Vec<u32> {
    let Some(spec) = scheduler.filter(|spec| spec.name == "weighted") else {
        return vec![1; paths.len()];
    };
    // Numbers, or the scenario would have been refused.
    let given: Vec<u32> = spec.params.clone().list("weights").unwrap_or_default();
    let weight = |(index, weight): &(usize, u32)| given.get(*index).copied().unwrap_or(*weight);
    paths.iter().map(|path| weight(path).max(1)).collect()
}

/// The options of a path that is to be used so.
pub fn path_options(usage: Usage) -> PathOptions {
    PathOptions {
        status: if usage.backup {
            PathStatus::Backup
        } else {
            PathStatus::Available
        },
        weight: usage.weight,
        priority: usage.priority,
        cost: usage.cost,
        ..PathOptions::default()
    }
}

/// Applies what depends on the profile.
fn choose(config: &mut TransportConfig, setup: &Setup<'_>, names: &Names) -> Result<(), SpecError> {
    let (profile, settings) = (setup.profile, setup.settings);
    // A stripe's scheduler and chunks are those of its application; each of its connections has
    // one path.
    let striped = profile == Profile::Stripe;
    if let Some(spec) = setup.scheduler.filter(|_| !striped) {
        config.scheduler = SchedulerFactory::new(&names.schedulers, spec)?;
    }
    config.chunk = settings.chunk.filter(|_| !striped).or(config.chunk);
    if setup.congestion.is_some() || settings.initial_window.is_some() {
        let window = settings.initial_window;
        config.congestion = profile.congestion(names, setup.congestion, window)?;
    }
    if let Some(bytes) = settings.receive_buffer {
        profile.fix_receive_buffer(config, bytes);
    }
    Ok(())
}

/// Applies what means the same for every profile.
fn apply(config: &mut TransportConfig, settings: &Settings) {
    // A run has a time limit of its own, so connections need no idle timeout.
    config.max_idle_timeout = None;
    if let Some(bytes) = settings.packet_size {
        profile::fix_datagram_size(config, bytes as u16);
    }
    set(&mut config.streams.send_buffer, settings.send_buffer);
    set(&mut config.ack_threshold, settings.ack_every);
    set(&mut config.max_ack_delay, settings.ack_delay);
    set(&mut config.timestamps, settings.timestamps);
    if let Some(renegable) = settings.renegable {
        config.streams.release = if renegable {
            Release::InOrder
        } else {
            Release::Acknowledged
        };
    }
    let mechanisms = &mut config.mechanisms;
    let unpaced = settings.pacing.map(|paced| !paced);
    set(&mut mechanisms.unpaced, unpaced);
    set(&mut mechanisms.retransmission, settings.retransmit);
    set(&mut mechanisms.split_send, settings.split);
    set(&mut mechanisms.split_receive, settings.split);
    mechanisms.rescue = rescue(mechanisms.rescue, settings);
    mechanisms.bufferbloat_factor = settings.bufferbloat_cap.or(mechanisms.bufferbloat_factor);
}

/// Changes a field, if there is a value.
fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// What is done about data that blocks the window. Of copying and penalising, whatever the scenario
/// leaves open is as in the profile.
fn rescue(usual: Rescue, settings: &Settings) -> Rescue {
    match (settings.opportunistic, settings.penalise) {
        (None, None) => usual,
        // There is no penalising without copies; a scenario that asks for it is refused when read.
        (Some(false), _) => Rescue::Off,
        (_, Some(true)) => Rescue::CopyAndPenalise,
        (Some(true), None) if usual == Rescue::CopyAndPenalise => usual,
        (None, Some(false)) if usual == Rescue::Off => usual,
        (Some(true), _) | (None, Some(false)) => Rescue::Copy,
    }
}

/// More packets than any data flow leaves unacknowledged within the acknowledgement delay.
const SENDER_ACK_THRESHOLD: u64 = 1000;
