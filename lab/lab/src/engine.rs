//! Turns a scenario's transport into settings of the engine, for any driver.

use crate::scenario::{Profile, Retransmit, Settings, Split as Shares};
use anabranch_proto::config::{Rescue, RetransmissionPolicy, Split, TransportConfig};
use anabranch_proto::spec::SpecError;
use anabranch_proto::streams::Release;
use anabranch_schedulers::Names;
use anabranch_sim::profile;

/// A scenario's settings for the engine.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// The system it imitates.
    pub profile: Profile,
    /// The scheduler as users name it; the profile's if `None`.
    pub scheduler: Option<&'a str>,
    /// The congestion control as users name it; the profile's if `None`.
    pub congestion: Option<&'a str>,
    /// The rest.
    pub settings: &'a Settings,
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
    let settings = setup.settings;
    let striped = setup.profile == Profile::Stripe;
    let profile = match setup.profile {
        Profile::Quic => profile::Profile::Quic,
        Profile::CmtSctp => profile::Profile::CmtSctp,
        Profile::Mptcp => profile::Profile::Mptcp,
        Profile::Stripe => profile::Profile::Stripe,
    };
    let named = profile::Settings {
        scheduler: setup.scheduler.filter(|_| !striped).map(ToOwned::to_owned),
        congestion: setup.congestion.map(ToOwned::to_owned),
        initial_window: settings.initial_window,
        pacing: settings.pacing,
        receive_buffer: settings.receive_buffer,
        send_buffer: settings.send_buffer,
        chunk: settings.chunk.filter(|_| !striped),
        datagram_size: settings.packet_size.map(|bytes| bytes as u16),
        ack_threshold: settings.ack_every,
        max_ack_delay: settings.ack_delay,
        // A run has a time limit of its own, so connections need no idle timeout.
        max_idle_timeout: Some(None),
        ..profile::Settings::default()
    };
    let mut sender = profile::transport(profile, &named, names)?;
    apply(&mut sender, settings);
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
pub fn turns(scheduler: Option<&str>, paths: &[(usize, u32)]) -> Vec<u32> {
    let Some(text) = scheduler.filter(|text| *text == "weighted" || text.starts_with("weighted:"))
    else {
        return vec![1; paths.len()];
    };
    let given = text
        .split(['=', ':', ','])
        .skip_while(|word| *word != "weights")
        .nth(1);
    let given: Vec<u32> = given
        .map(|list| {
            list.split('/')
                .filter_map(|weight| weight.parse().ok())
                .collect()
        })
        .unwrap_or_default();
    let weight = |(index, weight): &(usize, u32)| given.get(*index).copied().unwrap_or(*weight);
    paths.iter().map(|path| weight(path).max(1)).collect()
}

/// Applies what the scenario sets, and leaves the rest to the profile.
fn apply(config: &mut TransportConfig, settings: &Settings) {
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
    mechanisms.rescue = rescue(mechanisms.rescue, settings);
    if settings.bufferbloat_cap.is_some() {
        mechanisms.bufferbloat_factor = settings.bufferbloat_cap;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_of_the_rescue_that_a_scenario_does_not_name_is_the_profiles() {
        let made = |profile, opportunistic, penalise| {
            let settings = Settings {
                opportunistic,
                penalise,
                ..Settings::default()
            };
            let setup = Setup {
                profile,
                scheduler: None,
                congestion: None,
                settings: &settings,
            };
            let ends = ends(&setup, &Names::default()).unwrap();
            ends.sender.mechanisms.rescue
        };
        let cases = [
            (Profile::Mptcp, None, None, Rescue::CopyAndPenalise),
            (Profile::Mptcp, None, Some(false), Rescue::Copy),
            (Profile::Mptcp, Some(true), None, Rescue::CopyAndPenalise),
            (Profile::Mptcp, Some(false), None, Rescue::Off),
            (Profile::Quic, Some(true), None, Rescue::Copy),
            (
                Profile::Quic,
                Some(true),
                Some(true),
                Rescue::CopyAndPenalise,
            ),
            (Profile::Quic, None, Some(true), Rescue::CopyAndPenalise),
        ];
        for (profile, opportunistic, penalise, expected) in cases {
            let rescue = made(profile, opportunistic, penalise);
            assert_eq!(
                rescue, expected,
                "{profile:?} {opportunistic:?} {penalise:?}"
            );
        }
        let usual = made(Profile::Quic, None, None);
        let without = made(Profile::Quic, None, Some(false));
        let expected = [Rescue::Off, Rescue::Copy][usize::from(usual != Rescue::Off)];
        assert_eq!(without, expected);
    }
}
