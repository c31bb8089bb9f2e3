//! What the loss process promises, one behaviour per test.

use super::*;
use std::num::NonZeroU64;

const PACKETS: u64 = 200_000;

fn slots(length: u64) -> LossClock {
    LossClock::Slot(NonZeroU64::new(length).unwrap())
}

fn independent(probability: f64) -> Loss {
    Loss::Independent(Probability::new(probability).unwrap())
}

fn bursty(loss: f64, burst: f64) -> Loss {
    Loss::GilbertElliott(GilbertElliott::from_mean(loss, burst).unwrap())
}

fn fates(loss: Loss, clock: LossClock, seed: u64) -> Vec<bool> {
    let mut process = LossProcess::new(loss, clock, seed);
    (0..PACKETS).map(|slot| process.takes(slot * 10)).collect()
}

/// The share of lost packets, and the mean length of a run of losses.
fn measure(fates: &[bool]) -> (f64, f64) {
    let lost = fates.iter().filter(|lost| **lost).count() as f64;
    let runs = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
    (lost / fates.len() as f64, lost / runs)
}

#[test]
fn independent_loss_has_the_asked_share_and_no_bursts() {
    for clock in [LossClock::Packet, slots(10)] {
        let (share, run) = measure(&fates(independent(0.02), clock, 1));
        assert!((share - 0.02).abs() < 0.002, "{share}");
        assert!((run - 1.0 / 0.98).abs() < 0.02, "{run}");
    }
}

#[test]
fn bursty_loss_has_the_asked_share_and_burst_length() {
    for clock in [LossClock::Packet, slots(10)] {
        let (share, run) = measure(&fates(bursty(0.05, 8.0), clock, 2));
        assert!((share - 0.05).abs() < 0.006, "{share}");
        assert!((run - 8.0).abs() < 0.6, "{run}");
    }
}

#[test]
fn never_and_always_mean_what_they_say() {
    assert!(!fates(Loss::None, LossClock::Packet, 3).contains(&true));
    for clock in [LossClock::Packet, slots(10)] {
        assert!(!fates(independent(0.0), clock, 3).contains(&true));
        assert!(!fates(independent(1.0), clock, 3).contains(&false));
    }
}

#[test]
fn loss_by_slots_depends_on_time_and_not_on_who_asked_before() {
    let mut every = LossProcess::new(bursty(0.3, 4.0), slots(10), 4);
    let mut some = LossProcess::new(bursty(0.3, 4.0), slots(10), 4);
    for slot in 0..30_000u64 {
        let lost = every.takes(slot * 10 + 3);
        if slot % 7 == 0 || slot % 9000 > 8000 {
            assert_eq!(some.takes(slot * 10 + 8), lost, "slot {slot}");
        }
    }
}

#[test]
fn packets_of_one_slot_have_fates_of_their_own() {
    let mut process = LossProcess::new(independent(0.5), slots(1_000_000), 5);
    let fates: Vec<_> = (0..64).map(|_| process.takes(17)).collect();
    assert!(fates.contains(&true) && fates.contains(&false));
}

#[test]
fn impossible_models_are_refused() {
    for (loss, burst) in [
        (1.0, 2.0),
        (-0.1, 2.0),
        (0.1, 0.5),
        (0.9, 1.0),
        (f64::NAN, 2.0),
    ] {
        assert_eq!(
            GilbertElliott::from_mean(loss, burst),
            None,
            "{loss} {burst}"
        );
    }
    assert_eq!(Probability::new(1.1), None);
    assert_eq!(Probability::new(f64::NAN), None);
}
