//! What each profile is, and how it takes a control, a window and a buffer.

use super::*;
use crate::app::{Amount, Bulk, Receiver};
use crate::scene::{FIRST, Scene};
use anabranch_link::{LinkConfig, Rate};
use anabranch_proto::congestion::ControllerInit;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;

/// Transfers 300 kB over two links of 10 Mbit/s; returns the sizes of the packets with data.
fn run(profile: Profile, receive_buffer: Option<u64>) -> Vec<u32> {
    let link = LinkConfig::new(
        Rate::bits_per_second(10_000_000).unwrap(),
        Duration::from_millis(20),
    );
    let mut scene = Scene::new(1, &[(link.clone(), link.clone()), (link.clone(), link)]);
    let probe = crate::record::Probe::new(crate::record::Watch {
        packets: true,
        ..Default::default()
    });
    let mut near = profile.transport(&Names::default()).unwrap();
    if let Some(bytes) = receive_buffer {
        profile.fix_receive_buffer(&mut near, bytes);
    }
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
        assert!(!run(profile, None).is_empty());
    }
}

#[test]
fn packets_of_cmt_sctp_have_one_size_from_the_first_one_on() {
    let sizes = run(Profile::CmtSctp, None);
    // A chunk with its frame header, the packet's header and the tag, with or without an
    // acknowledgement.
    let full = sizes.iter().filter(|size| **size > 1420).count();
    assert!(full * 10 > sizes.len() * 9, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 1472));
}

#[test]
fn a_full_receive_buffer_of_cmt_sctp_is_refilled_in_whole_chunks() {
    let sizes = run(Profile::CmtSctp, Some(16 * 1024));
    // 300 kB in chunks of 1420 bytes; the other packets are a remainder at the end and those that
    // report the limit.
    let full = sizes.iter().filter(|size| **size > 1420).count();
    assert_eq!(full, 211);
    let cut = sizes.iter().filter(|size| (100..=1420).contains(*size));
    assert!(cut.count() <= 1, "{sizes:?}");
}

#[test]
fn a_receive_buffer_is_counted_as_the_system_counts_it() {
    for (profile, window) in [(Profile::CmtSctp, 22 * 1420), (Profile::Mptcp, 32 * 1024)] {
        let mut config = profile.transport(&Names::default()).unwrap();
        profile.fix_receive_buffer(&mut config, 32 * 1024);
        // 22 chunks of 1468 bytes.
        assert_eq!(config.streams.receive_window, window, "{profile}");
        assert_eq!(config.streams.max_receive_window, window, "{profile}");
    }
}

#[test]
fn names_that_do_not_exist_are_answered_with_the_nearest_one() {
    let error = "cmt-stcp".parse::<Profile>().unwrap_err();
    assert!(
        error.to_string().contains("did you mean `cmt-sctp`?"),
        "{error}"
    );
}

const INIT: ControllerInit = ControllerInit {
    max_datagram_size: 1000,
    now: Instant::ZERO,
    seed: 0,
    path: PathId::ZERO,
};

#[test]
fn pacing_and_credit_are_as_named() {
    let names = Names::default();
    for (profile, unpaced) in [
        (Profile::Quic, false),
        (Profile::CmtSctp, true),
        (Profile::Mptcp, true),
        (Profile::Stripe, false),
    ] {
        let usual = profile.transport(&names).unwrap();
        assert_eq!(usual.mechanisms.unpaced, unpaced, "{profile}");
        let every = usual.streams.credit_update == CreditUpdate::EveryRead;
        assert_eq!(every, profile == Profile::CmtSctp, "{profile}");
    }
}

#[test]
fn a_first_window_goes_to_any_control_that_names_none() {
    let names = Names::default();
    for (control, name, window) in [
        (None, "new-reno", 3000),
        (Some("cubic:hystart=false"), "cubic", 3000),
        (Some("lia:initial-window=7"), "lia", 7000),
    ] {
        let spec: Option<Spec> = control.map(|text| text.parse().unwrap());
        let made = Profile::CmtSctp.congestion(&names, spec.as_ref(), Some(3));
        let made = made.unwrap();
        assert_eq!(made.name(), name);
        assert_eq!(made.build(&INIT).window(), window);
    }
}

/// The name of a congestion control and its parameters.
fn spec_of(congestion: &ControllerFactory) -> String {
    let shown = format!("{congestion:?}");
    let given = shown.rsplit("given: ").next().unwrap();
    format!("{} {given}", congestion.name())
}

#[test]
fn a_profile_keeps_what_is_not_named() {
    let names = Names::default();
    // Each profile's own control and initial window; the window of another control; how another
    // initial window leaves the rest of the profile's own control as it is.
    let cases = [
        (Profile::Quic, "cubic", 10_000, 10_000),
        (Profile::CmtSctp, "new-reno:initial-window=2", 2000, 2000),
        (Profile::Mptcp, "lia:coupling=all", 10_000, 10_000),
        (Profile::Stripe, "cubic:random-loss=0", 10_000, 10_000),
    ];
    for (profile, own, window, of_another) in cases {
        let told = |made: &ControllerFactory| (spec_of(made), made.build(&INIT).window());
        let made = |control: Option<&Spec>, window| {
            told(&profile.congestion(&names, control, window).unwrap())
        };
        let usual = profile.transport(&names).unwrap();
        let expected = spec_of(&names.controller(own).unwrap());
        assert_eq!(
            told(&usual.congestion),
            (expected.clone(), window),
            "{profile}"
        );
        assert_eq!(made(None, None), (expected, window), "{profile}");
        let other = made(Some(&"westwood".parse().unwrap()), None);
        assert_eq!(other.1, of_another, "{profile}");
        let wider = made(None, Some(5));
        let (name, given) = own.split_once(':').unwrap_or((own, ""));
        let given = given.trim_start_matches("initial-window=2");
        let sign = if given.is_empty() { "" } else { "," };
        let spec = format!("{name}:{given}{sign}initial-window=5");
        let expected = spec_of(&names.controller(&spec).unwrap());
        assert_eq!(wider, (expected, 5000), "{profile}");
    }
}
