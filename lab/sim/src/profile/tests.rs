//! What each profile makes of its settings.

use super::*;
use crate::app::{Amount, Bulk, Receiver};
use crate::scene::{FIRST, Scene};
use anabranch_link::{LinkConfig, Rate};
use anabranch_proto::congestion::ControllerInit;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;

/// Transfers 300 kB over two links of 10 Mbit/s; returns the sizes of the packets with data.
fn run(profile: Profile, settings: &Settings) -> Vec<u32> {
    let link = LinkConfig::new(
        Rate::bits_per_second(10_000_000).unwrap(),
        Duration::from_millis(20),
    );
    let mut scene = Scene::new(1, &[(link.clone(), link.clone()), (link.clone(), link)]);
    let probe = crate::record::Probe::new(crate::record::Watch {
        packets: true,
        ..Default::default()
    });
    let mut near = transport(profile, settings, &Names::default()).unwrap();
    let far = near.clone();
    near.observer = Some(probe.sender());
    let (near, far) = scene.pair(near, far);
    let bulk = Bulk::new(FIRST, Amount::Bytes(300_000), Instant::ZERO);
    let hosts = scene.start(near.app(bulk), far.app(Receiver::new(1)));
    let end = Instant::ZERO + Duration::from_secs(60);
    assert!(scene.world.run_hosts(&[hosts.server], end), "{profile}");
    let packets = probe.packets();
    let data = packets.iter().filter(|row| row.data.is_some());
    data.map(|row| row.bytes).collect()
}

#[test]
fn every_profile_transfers() {
    for profile in Profile::ALL {
        assert!(!run(profile, &Settings::default()).is_empty());
    }
}

#[test]
fn packets_of_cmt_sctp_have_one_size_from_the_first_one_on() {
    let sizes = run(Profile::CmtSctp, &Settings::default());
    // A chunk with its frame header, the packet's header and the tag, with or without an
    // acknowledgement.
    let full = sizes.iter().filter(|size| **size > 1420).count();
    assert!(full * 10 > sizes.len() * 9, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 1472));
}

#[test]
fn a_full_receive_buffer_of_cmt_sctp_is_refilled_in_whole_chunks() {
    let settings = Settings {
        receive_buffer: Some(16 * 1024),
        ..Settings::default()
    };
    let sizes = run(Profile::CmtSctp, &settings);
    // 300 kB in chunks of 1420 bytes; the other packets are a remainder at the end and those that
    // report the limit.
    let full = sizes.iter().filter(|size| **size > 1420).count();
    assert_eq!(full, 211);
    let cut = sizes.iter().filter(|size| (100..=1420).contains(*size));
    assert!(cut.count() <= 1, "{sizes:?}");
}

#[test]
fn a_setting_overrides_the_profile() {
    let settings = Settings {
        scheduler: Some("min-rtt".into()),
        receive_buffer: Some(32 * 1024),
        ack_threshold: Some(2),
        ..Settings::default()
    };
    let config = transport(Profile::CmtSctp, &settings, &Names::default()).unwrap();
    assert_eq!(config.scheduler.name(), "min-rtt");
    // 22 chunks of 1468 bytes.
    assert_eq!(config.streams.max_receive_window, 22 * 1420);
    assert_eq!(config.ack_threshold, 2);
}

#[test]
fn names_that_do_not_exist_are_answered_with_the_nearest_one() {
    let settings = Settings {
        scheduler: Some("min-rt".into()),
        ..Settings::default()
    };
    let error = transport(Profile::Quic, &settings, &Names::default()).unwrap_err();
    assert!(
        error.to_string().contains("did you mean `min-rtt`?"),
        "{error}"
    );
    let error = "cmt-stcp".parse::<Profile>().unwrap_err();
    assert!(
        error.to_string().contains("did you mean `cmt-sctp`?"),
        "{error}"
    );
}

#[test]
fn first_windows_pacing_and_credit_are_as_named() {
    let names = Names::default();
    let made = |profile, congestion: Option<&str>| {
        let settings = Settings {
            congestion: congestion.map(str::to_owned),
            initial_window: Some(3),
            pacing: Some(false),
            ..Settings::default()
        };
        transport(profile, &settings, &names).unwrap()
    };
    let init = ControllerInit {
        max_datagram_size: 1000,
        now: Instant::ZERO,
        seed: 0,
        path: PathId::ZERO,
    };
    for (congestion, name, window) in [
        (None, "new-reno", 3000),
        (Some("cubic:hystart=false"), "cubic", 3000),
        (Some("lia:initial-window=7"), "lia", 7000),
    ] {
        let config = made(Profile::CmtSctp, congestion);
        assert_eq!(config.congestion.name(), name);
        assert_eq!(config.congestion.build(&init).window(), window);
        assert!(config.mechanisms.unpaced);
        assert_eq!(config.streams.credit_update, CreditUpdate::EveryRead);
    }
    for (profile, unpaced) in [
        (Profile::CmtSctp, true),
        (Profile::Mptcp, true),
        (Profile::Stripe, false),
    ] {
        let usual = transport(profile, &Settings::default(), &names).unwrap();
        assert_eq!(usual.mechanisms.unpaced, unpaced, "{profile}");
    }
    let usual = transport(Profile::Quic, &Settings::default(), &names).unwrap();
    assert!(!usual.mechanisms.unpaced);
    assert_eq!(usual.congestion.build(&init).window(), 10_000);
}

/// The name of a congestion control and its parameters.
fn spec_of(congestion: &ControllerFactory) -> String {
    let shown = format!("{congestion:?}");
    let given = shown.rsplit("given: ").next().unwrap();
    format!("{} {given}", congestion.name())
}

#[test]
fn a_profile_keeps_what_a_setting_does_not_name() {
    let names = Names::default();
    let init = ControllerInit {
        max_datagram_size: 1000,
        now: Instant::ZERO,
        seed: 0,
        path: PathId::ZERO,
    };
    // Each profile's own control and initial window; the window of another control; how another
    // initial window leaves the rest of the profile's own control as it is.
    let cases = [
        (Profile::Quic, "cubic", 10_000, 10_000),
        (Profile::CmtSctp, "new-reno:initial-window=2", 2000, 2000),
        (Profile::Mptcp, "lia:coupling=all", 10_000, 10_000),
        (Profile::Stripe, "cubic", 10_000, 10_000),
    ];
    for (profile, own, window, of_another) in cases {
        let made = |settings: Settings| {
            let config = transport(profile, &settings, &names).unwrap();
            let window = config.congestion.build(&init).window();
            (spec_of(&config.congestion), window)
        };
        let expected = spec_of(&names.controller(own).unwrap());
        assert_eq!(made(Settings::default()), (expected, window), "{profile}");
        let other = made(Settings {
            congestion: Some("westwood".into()),
            ..Settings::default()
        });
        assert_eq!(other.1, of_another, "{profile}");
        let wider = made(Settings {
            initial_window: Some(5),
            ..Settings::default()
        });
        let (name, given) = own.split_once(':').unwrap_or((own, ""));
        let given = given.trim_start_matches("initial-window=2");
        let sign = if given.is_empty() { "" } else { "," };
        let spec = format!("{name}:{given}{sign}initial-window=5");
        let expected = spec_of(&names.controller(&spec).unwrap());
        assert_eq!(wider, (expected, 5000), "{profile}");
    }
}
