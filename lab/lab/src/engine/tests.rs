//! What the engine makes of a scenario's settings.

use super::*;
use anabranch_proto::config::{RetransmissionPolicy, Split};
use std::time::Duration;

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

/// The sender's settings.
fn made(profile: Profile, settings: &Settings) -> TransportConfig {
    let setup = Setup {
        profile,
        scheduler: None,
        congestion: None,
        settings,
    };
    ends(&setup, &Names::default()).unwrap().sender
}

#[test]
fn a_setting_overrides_the_profile() {
    let settings = Settings {
        receive_buffer: Some(32 * 1024),
        ack_every: Some(2),
        initial_window: Some(3),
        pacing: Some(true),
        ..Settings::default()
    };
    let (scheduler, congestion) = (spec("min-rtt"), spec("cubic"));
    let setup = Setup {
        profile: Profile::CmtSctp,
        scheduler: Some(&scheduler),
        congestion: Some(&congestion),
        settings: &settings,
    };
    let Ends { sender, receiver } = ends(&setup, &Names::default()).unwrap();
    assert_eq!(sender.scheduler.name(), "min-rtt");
    assert_eq!(sender.congestion.name(), "cubic");
    assert!(format!("{:?}", sender.congestion).contains("(\"initial-window\", \"3\")"));
    // 22 chunks of 1468 bytes.
    assert_eq!(sender.streams.max_receive_window, 22 * 1420);
    assert!(!sender.mechanisms.unpaced);
    assert_eq!(receiver.ack_threshold, 2);
    assert_eq!(sender.ack_threshold, SENDER_ACK_THRESHOLD);
}

#[test]
fn every_setting_of_the_engine_arrives() {
    let settings = Settings {
        send_buffer: Some(123_456),
        packet_size: Some(1300),
        chunk: Some(2000),
        ack_delay: Some(Duration::from_millis(7)),
        pacing: Some(false),
        retransmit: Some(RetransmissionPolicy::LowestLoss),
        split: Some(Split::Equal),
        renegable: Some(true),
        bufferbloat_cap: Some(1.5),
        timestamps: Some(true),
        ..Settings::default()
    };
    let config = made(Profile::Quic, &settings);
    assert_eq!(config.streams.send_buffer, 123_456);
    assert_eq!(config.initial_mtu, 1300);
    assert_eq!((config.mtu.min, config.mtu.max), (1300, 1300));
    assert_eq!(config.chunk, Some(2000));
    assert_eq!(config.max_ack_delay, Duration::from_millis(7));
    assert_eq!(config.max_idle_timeout, None);
    assert!(config.timestamps);
    assert_eq!(config.streams.release, Release::InOrder);
    let mechanisms = config.mechanisms;
    assert!(mechanisms.unpaced);
    assert_eq!(mechanisms.retransmission, RetransmissionPolicy::LowestLoss);
    assert_eq!(mechanisms.split_send, Split::Equal);
    assert_eq!(mechanisms.split_receive, Split::Equal);
    assert_eq!(mechanisms.bufferbloat_factor, Some(1.5));
}

#[test]
fn a_stripe_keeps_its_scheduler_and_its_chunks_for_its_application() {
    let settings = Settings {
        chunk: Some(2000),
        ..Settings::default()
    };
    let scheduler = spec("weighted:weights=2/1");
    let setup = Setup {
        profile: Profile::Stripe,
        scheduler: Some(&scheduler),
        congestion: None,
        settings: &settings,
    };
    let sender = ends(&setup, &Names::default()).unwrap().sender;
    let usual = made(Profile::Stripe, &Settings::default());
    assert_eq!(sender.scheduler.name(), usual.scheduler.name());
    assert_eq!(sender.chunk, usual.chunk);
}

#[test]
fn a_scheduler_that_does_not_exist_is_answered_with_the_nearest_one() {
    let scheduler = spec("min-rt");
    let setup = Setup {
        profile: Profile::Quic,
        scheduler: Some(&scheduler),
        congestion: None,
        settings: &Settings::default(),
    };
    let error = ends(&setup, &Names::default()).unwrap_err().to_string();
    assert!(error.contains("did you mean `min-rtt`?"), "{error}");
}

#[test]
fn turns_are_the_weights_of_the_scheduler_else_those_of_the_paths() {
    let paths = [(0, 2), (1, 3), (2, 0)];
    let turns = |text: &str| turns(Some(&spec(text)), &paths);
    assert_eq!(turns("round-robin"), [1, 1, 1]);
    assert_eq!(turns("weighted"), [2, 3, 1]);
    assert_eq!(turns("weighted:weights=5/0/4"), [5, 1, 4]);
    assert_eq!(turns("weighted:mode=hold,weights=5"), [5, 3, 1]);
    assert_eq!(super::turns(None, &paths), [1, 1, 1]);
}

#[test]
fn a_half_of_the_rescue_that_a_scenario_does_not_name_is_the_profiles() {
    let made = |profile, opportunistic, penalise| {
        let settings = Settings {
            opportunistic,
            penalise,
            ..Settings::default()
        };
        made(profile, &settings).mechanisms.rescue
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
