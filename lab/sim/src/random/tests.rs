//! `ANABRANCH_SIM_SEEDS=n` runs n seeds instead of the default number, starting at
//! `ANABRANCH_SIM_SEED_FROM` if that is set. `ANABRANCH_SIM_SEED=s` runs only that seed. Seeds from
//! [`WIDE`] on vary more; those from [`WRAPPED`] on are for campaigns.

use super::*;

const SEEDS: u64 = 200;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("ANABRANCH_SIM_SEED") {
        return seed..seed + 1;
    }
    let from = number("ANABRANCH_SIM_SEED_FROM").unwrap_or(0);
    from..from + number("ANABRANCH_SIM_SEEDS").unwrap_or(SEEDS)
}

/// Runs every `of`-th seed, starting at `first`, so that several tests share the work.
fn run_part(first: u64, of: u64) {
    let names = Names::default();
    let (mut failed, mut lost, mut all) = (Vec::new(), 0, 0);
    for seed in seeds().filter(|seed| seed % of == first) {
        all += 1;
        match std::panic::catch_unwind(|| run(seed, &names)) {
            Ok(Ok(Outcome::Settled(_))) => {}
            Ok(Ok(Outcome::Lost)) => lost += 1,
            Ok(Err(failure)) => {
                eprintln!("seed {seed} failed\n{failure}");
                failed.push(seed);
            }
            Err(_) => {
                eprintln!("seed {seed} failed\nit panicked");
                failed.push(seed);
            }
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
    assert!(
        lost * 10 <= all + 20,
        "{lost} of {all} connections ran out of paths"
    );
}

#[test]
fn random_worlds_settle_first_half() {
    run_part(0, 2);
}

#[test]
fn random_worlds_settle_second_half() {
    run_part(1, 2);
}

#[test]
fn the_same_seed_does_the_same_again() {
    let names = Names::default();
    for seed in [3, 14, 15] {
        assert_eq!(run(seed, &names), run(seed, &names), "seed {seed}");
    }
    assert_ne!(run(3, &names), run(14, &names));
}

/// Tries in a few worlds what only campaigns vary.
#[test]
fn worlds_of_campaigns_settle() {
    let names = Names::default();
    let failed = (WRAPPED..WRAPPED + 20).filter_map(|seed| run(seed, &names).err());
    let failed: Vec<String> = failed.map(|failure| failure.to_string()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

fn settles(seed: u64) {
    let outcome = run(seed, &Names::default());
    assert!(
        matches!(outcome, Ok(Outcome::Settled(_))),
        "{}",
        outcome.expect_err("it did not settle")
    );
}

#[test]
fn regression_a_path_slower_than_the_longest_probe_interval_was_doubted_again_and_again() {
    settles(7);
    settles(25);
}

#[test]
fn regression_a_connection_id_that_came_before_its_path_was_allowed_was_forgotten() {
    settles(448);
}

/// A client gave up the path of the handshake before it knew that the server was complete, and went
/// on sending Handshake packets there; or waited for ever with a path that nothing probed.
#[test]
fn regression_the_first_path_was_given_up_before_the_handshake_was_confirmed() {
    for seed in [1_000_284, 1_000_872, 1_001_575, 1_003_384, 2_003_276] {
        assert!(run(seed, &Names::default()).is_ok());
    }
}

/// A server that freed a path after 215 s sent to NATs that had forgotten the client by then.
#[test]
fn regression_a_client_behind_nats_was_silent_for_longer_than_they_remember() {
    settles(9230);
}

/// A side that had given up its other path closed when the peer gave up the last one; all the peer
/// heard of it was a stateless reset.
#[test]
fn regression_a_reset_by_a_side_without_paths_was_taken_for_a_fault() {
    for seed in [1_000_532, 1_003_902] {
        assert_eq!(run(seed, &Names::default()), Ok(Outcome::Lost));
    }
}

#[test]
fn a_reset_is_a_fault_unless_the_other_side_ran_out_of_paths() {
    let ends = |texts: &[&str]| -> Vec<String> { texts.iter().map(|it| (*it).into()).collect() };
    let reset = "the client 7 ms Reset";
    let gone = "the server 5 ms Transport(TransportError { code: NO_VIABLE_PATH })";
    let broken = "the server 5 ms Transport(TransportError { code: PROTOCOL_VIOLATION })";
    assert!(is_loss(&ends(&[reset, gone]), false));
    assert!(!is_loss(&ends(&[reset]), false));
    assert!(!is_loss(&ends(&[reset, broken]), false));
    assert!(!is_loss(&ends(&[gone, broken]), false));
    assert!(!is_loss(&[], true));
}

/// A packet that left beyond the window after a loss had room for datagrams only, or repeated
/// only the end of a stream, and another one followed.
#[test]
fn regression_one_loss_let_several_packets_go_beyond_the_window() {
    for seed in [1_014_763, 1_005_244] {
        settles(seed);
    }
}

/// BBR ended its search for the lowest RTT as it sent after a pause, which no observer heard of.
#[test]
fn regression_the_guard_was_not_told_of_a_window_that_grew_on_sending() {
    settles(1_026_125);
}
