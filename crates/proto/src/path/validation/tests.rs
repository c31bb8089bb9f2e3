//! Tests: what `validation` promises, one behaviour each.

use super::*;

const PTO: Duration = Duration::from_millis(100);

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn started(pto: Duration) -> Validation {
    Validation::start(at(0), &mut Rng::from_seed([7; 32]), pto)
}

#[test]
fn the_first_challenge_is_due_at_once_and_repeats_back_off() {
    let mut validation = started(PTO);
    let mut sent_at = Vec::new();
    while let Some(deadline) = validation.deadline().filter(|t| !validation.failed(*t)) {
        assert!(validation.poll_challenge(deadline).is_some());
        assert!(
            validation.poll_challenge(deadline).is_none(),
            "one challenge per time-out"
        );
        sent_at.push(deadline);
    }
    let expected = [0, 100, 300, 700, 1200, 1700, 2200, 2700];
    assert_eq!(sent_at, expected.map(at));
}

#[test]
fn a_route_of_unknown_rtt_is_asked_three_times() {
    let mut validation = started(INITIAL_PTO);
    let mut due = |millis| validation.poll_challenge(at(millis)).is_some();
    let sent_at: Vec<u64> = (0..4000).filter(|millis| due(*millis)).collect();
    assert_eq!(sent_at, [0, 999, 1998]);
}

#[test]
fn every_challenge_has_bytes_of_its_own() {
    let mut validation = started(PTO);
    let first = validation.poll_challenge(at(0)).unwrap();
    let second = validation.poll_challenge(at(100)).unwrap();
    assert_ne!(first, second);
}

#[test]
fn an_answer_to_any_challenge_proves_the_address_and_times_that_challenge() {
    let mut validation = started(PTO);
    let first = validation.poll_challenge(at(0)).unwrap();
    validation.poll_challenge(at(100)).unwrap();
    assert_eq!(
        validation.on_response(first, at(130)),
        Some(Duration::from_millis(130))
    );
    assert!(validation.is_validated());
    assert!(!validation.needs_size_check());
    assert_eq!(validation.deadline(), None);
    assert!(validation.poll_challenge(at(300)).is_none());
    assert!(!validation.failed(at(100_000)));
}

#[test]
fn a_second_answer_is_not_timed_again() {
    let mut validation = started(PTO);
    let data = validation.poll_challenge(at(0)).unwrap();
    assert!(validation.on_response(data, at(10)).is_some());
    assert_eq!(validation.on_response(data, at(20)), None);
}

#[test]
fn bytes_that_were_never_sent_prove_nothing() {
    let mut validation = started(PTO);
    let mut data = validation.poll_challenge(at(0)).unwrap();
    data[7] ^= 1;
    assert_eq!(validation.on_response(data, at(10)), None);
    assert!(!validation.is_validated());
}

#[test]
fn it_fails_after_three_initial_ptos_on_a_fast_route_and_three_own_on_a_slow_one() {
    let fast = started(PTO);
    assert!(!fast.failed(at(2996)));
    assert!(fast.failed(at(2997)));
    let slow = started(Duration::from_secs(2));
    assert!(!slow.failed(at(5999)));
    assert!(slow.failed(at(6000)));
}

#[test]
fn a_failed_validation_sends_nothing_more() {
    let mut validation = started(PTO);
    assert!(validation.poll_challenge(at(2997)).is_none());
}

#[test]
fn a_small_challenge_proves_the_address_but_not_the_size() {
    let mut validation = started(PTO);
    let small = validation.poll_challenge(at(0)).unwrap();
    validation.sent_small();
    assert!(!validation.needs_size_check(), "nothing is proven yet");
    assert!(validation.on_response(small, at(10)).is_some());
    assert!(validation.needs_size_check());
}

#[test]
fn a_tiny_pto_neither_floods_the_path_nor_outgrows_memory() {
    let mut validation = started(Duration::from_nanos(1));
    let mut count = 0;
    for millis in 0..3000 {
        count += usize::from(validation.poll_challenge(at(millis)).is_some());
    }
    assert_eq!(count, MAX_CHALLENGES);
    assert!(!validation.sent.is_empty() && validation.sent.len() <= MAX_CHALLENGES);
}

#[test]
fn a_flood_of_challenges_is_answered_from_its_newest_end() {
    let mut responses = Responses::<[u8; 8]>::new();
    for byte in 0..100 {
        responses.push([byte; 8]);
    }
    responses.push([99; 8]);
    let answered: Vec<_> = std::iter::from_fn(|| responses.pop()).collect();
    assert_eq!(answered, [[96; 8], [97; 8], [98; 8], [99; 8]]);
    assert!(responses.is_empty());
}

fn tuple(port: u16) -> Tuple {
    Tuple {
        socket: crate::datagram::SocketId(0),
        local: None,
        remote: ([192, 0, 2, 1], port).into(),
    }
}

#[test]
fn what_one_address_asked_is_answered_together_and_in_order() {
    let mut elsewhere = Elsewhere::default();
    elsewhere.push(tuple(1), [1; 8], 10, 100);
    elsewhere.push(tuple(2), [2; 8], 11, 50);
    elsewhere.push(tuple(1), [3; 8], 12, 100);
    let first = elsewhere.pop().unwrap();
    assert_eq!((first.tuple, first.budget), (tuple(1), 600));
    assert_eq!(first.data.as_slice(), [[1; 8], [3; 8]]);
    let second = elsewhere.pop().unwrap();
    assert_eq!((second.tuple, second.budget), (tuple(2), 150));
    assert!(elsewhere.is_empty() && elsewhere.pop().is_none());
}

proptest::proptest! {
    #[test]
    fn answers_elsewhere_never_exceed_three_times_the_packets(
        asked in proptest::collection::vec((0..4_u16, 1..4_usize, 20..1500_usize), 0..40),
        pops in proptest::collection::vec(0..3_usize, 40),
    ) {
        let mut elsewhere = Elsewhere::default();
        let (mut earned, mut spent) = ([0; 4], [0; 4]);
        for (pn, ((port, challenges, size), pops)) in asked.into_iter().zip(pops).enumerate() {
            earned[usize::from(port)] += 3 * size as u64;
            for n in 0..challenges {
                elsewhere.push(tuple(port), [n as u8; 8], pn as u64, size);
            }
            for _ in 0..pops {
                let Some(answers) = elsewhere.pop() else { break };
                proptest::prop_assert!(answers.data.len() <= Responses::<[u8; 8]>::CAPACITY);
                spent[usize::from(answers.tuple.remote.port())] += answers.budget;
            }
            for (spent, earned) in spent.iter().zip(&earned) {
                proptest::prop_assert!(spent <= earned);
            }
        }
    }
}
