//! What the worlds of every third seed vary beside the names of schedulers and congestion controls:
//! wrappers, parameters, mechanisms, timestamps and ECN marks. The other worlds do not vary these,
//! so that seeds kept because they found a defect still give the world in which they found it. For
//! the same reason only the worlds of every tenth seed take the windows, acknowledgements and
//! mechanisms of a profile.
//!
//! The retransmission policy varies only in campaigns: every policy but the default sends a packet
//! beyond the window after a loss (RFC 9002, section 7.3.2), and the guard of those worlds must
//! allow for it.

use crate::Dice;
use crate::profile::Profile;
use anabranch_proto::config::{
    AckFrequency, Mechanisms, Rescue, RetransmissionPolicy, Split, TransportConfig,
};
use anabranch_proto::spec::ParamDoc;
use anabranch_schedulers::Names;
use std::time::Duration;

/// Gives the connection of a world of every tenth seed the windows, acknowledgements and mechanisms
/// of a profile. The sizes of packets stay as they are.
pub(super) fn take_profile(config: &mut TransportConfig, dice: &mut Dice, names: &Names) {
    let profile = dice.pick(&[Profile::CmtSctp, Profile::Mptcp, Profile::Stripe]);
    let Ok(of) = profile.transport(names) else {
        return;
    };
    config.initial_rtt = of.initial_rtt;
    config.ack_threshold = of.ack_threshold;
    config.max_ack_delay = of.max_ack_delay;
    config.chunk = of.chunk;
    config.streams = of.streams;
    config.mechanisms = Mechanisms {
        retransmission: config.mechanisms.retransmission,
        ..of.mechanisms
    };
}

/// Varies some of the settings.
pub(super) fn vary(config: &mut TransportConfig, dice: &mut Dice, names: &Names) {
    let name = config.scheduler.name().to_owned();
    let inner = name.rsplit('+').next().unwrap_or(&name);
    let entries = names.schedulers.entries().iter();
    let known = entries.map(|entry| (entry.name, entry.params));
    let params = known
        .filter(|(known, _)| *known == inner)
        .map(|known| known.1);
    let mut text = with_parameter(&name, params.flatten(), dice);
    if dice.below(3) == 0 {
        text = format!("guard+{text}");
    }
    // A value that does not fit its parameter leaves the setting unchanged.
    if let Ok(scheduler) = names.scheduler(&text) {
        config.scheduler = scheduler;
    }
    let name = config.congestion.name();
    let entries = names.controllers.entries().iter();
    let known = entries.filter(|entry| entry.name == name);
    let params = known.flat_map(|entry| entry.params);
    if let Ok(congestion) = names.controller(&with_parameter(name, params, dice)) {
        config.congestion = congestion;
    }
    config.timestamps = dice.below(2) == 0;
    config.ecn = dice.below(2) == 0;
    let mechanisms = &mut config.mechanisms;
    mechanisms.unpaced = dice.below(4) == 0;
    mechanisms.rescue = dice.pick(&[Rescue::Off, Rescue::Copy, Rescue::CopyAndPenalise]);
    mechanisms.split_send = dice.pick(&[Split::Off, Split::Off, Split::Equal, Split::Proportional]);
}

/// What only campaign worlds vary: where lost data is sent again, how late and how rarely
/// acknowledgements come, and what is requested of them.
pub(super) fn widen(config: &mut TransportConfig, dice: &mut Dice) {
    config.mechanisms.retransmission = dice.pick(&RetransmissionPolicy::ALL);
    config.ack_threshold = dice.pick(&[1, 2, 2, 10, 40]);
    config.max_ack_delay = Duration::from_millis(dice.pick(&[0, 1, 25, 25, 200]));
    config.ack_frequency = AckFrequency {
        accept: dice.below(4) > 0,
        immediate: dice.below(4) > 0,
        most_packets: dice.pick(&[None, None, Some(1), Some(8), Some(64)]),
    };
}

/// Returns the name, half of the time with another value for one of its parameters.
fn with_parameter<'a>(
    name: &str,
    params: impl Iterator<Item = &'a ParamDoc>,
    dice: &mut Dice,
) -> String {
    let params: Vec<&ParamDoc> = params.collect();
    if params.is_empty() || dice.below(2) == 0 {
        return name.to_owned();
    }
    let param = params[dice.below(params.len() as u64) as usize];
    let factor = dice.pick(&[0.5, 2.0]);
    let value = match (param.default, param.default.parse::<f64>()) {
        ("true", _) => "false".to_owned(),
        ("false", _) => "true".to_owned(),
        (text, Ok(number)) if text.contains('.') => (number * factor).to_string(),
        (_, Ok(number)) => (number * factor).ceil().to_string(),
        (text, Err(_)) => text.to_owned(),
    };
    format!("{name}:{}={value}", param.key)
}
