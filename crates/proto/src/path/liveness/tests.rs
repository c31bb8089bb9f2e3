//! The state machine of silence, without a connection around it.

use super::*;

const PTO: Duration = Duration::from_millis(20);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000) + Duration::from_millis(ms)
}

impl Liveness {
    /// All probes that are owed leave.
    fn send_probes(&mut self) {
        while self.owes_probe() {
            self.take_probe();
        }
    }
}

fn path() -> Liveness {
    Liveness::new(at(0))
}

/// One packet under way, sent at this time.
fn one(sent: u64) -> UnderWay {
    UnderWay {
        awaits: true,
        oldest: Some(at(sent)),
        last_sent: Some(at(sent)),
        ..nothing()
    }
}

fn nothing() -> UnderWay {
    UnderWay {
        pto: PTO,
        validated: true,
        loss_pending: false,
        awaits: false,
        oldest: None,
        third_oldest: None,
        last_sent: None,
    }
}

fn alone() -> Surroundings {
    Surroundings {
        confirmed: true,
        idle_timeout: Duration::from_secs(30),
        ..Surroundings::default()
    }
}

fn with_others() -> Surroundings {
    Surroundings {
        others_answer: true,
        several: true,
        ..alone()
    }
}

/// Several paths, none of which is trusted but perhaps this one.
fn all_silent() -> Surroundings {
    Surroundings {
        several: true,
        ..alone()
    }
}

fn starved(since: u64) -> Surroundings {
    Surroundings {
        last_data: Some(at(since)),
        ..with_others()
    }
}

/// A path that was sent something at 0 and is doubted since the probe time-out.
fn doubted() -> Liveness {
    let mut path = path();
    path.on_sent(at(0), Sent::Awaited);
    let verdicts = path.on_timeout(at(20), &one(0), &with_others());
    assert_eq!(verdicts.as_slice(), [Verdict::Probe, Verdict::Doubt]);
    path
}

/// A path that is asked, after two probe time-outs in vain.
fn asked() -> Liveness {
    let mut path = path();
    assert!(path.ask(true));
    path
}

mod probing {
    use super::*;

    /// A time-out of a path on which `own` is under way, since when a packet came at `heard`.
    fn timed_out(own: &UnderWay, heard: u64) -> (Liveness, Verdicts) {
        let mut path = path();
        path.on_heard(at(1));
        path.on_sent(at(2), Sent::Awaited);
        path.on_heard(at(heard));
        let verdicts = path.on_timeout(at(22), own, &with_others());
        (path, verdicts)
    }

    #[test]
    fn a_path_that_is_heard_from_is_probed_and_not_doubted_for_a_late_packet() {
        let (mut path, verdicts) = timed_out(&one(2), 3);
        assert_eq!(verdicts.as_slice(), [Verdict::Probe]);
        assert!(path.is_trusted());
        path.send_probes();
        path.on_sent(at(22), Sent::Awaited);
        path.on_heard(at(40));
        let next = path.deadline(&one(2), &with_others());
        assert_eq!(next, Some((at(42), Alarm::Silence)), "one time-out more");
        let verdicts = path.on_timeout(at(42), &one(2), &with_others());
        assert_eq!(verdicts.as_slice(), [Verdict::Probe, Verdict::Doubt]);
    }

    #[test]
    fn chance_is_no_excuse_where_nothing_was_heard_or_several_packets_are_late() {
        let doubt = [Verdict::Probe, Verdict::Doubt];
        let (_, verdicts) = timed_out(&one(2), 2);
        assert_eq!(verdicts.as_slice(), doubt, "heard before they left");
        let three = UnderWay {
            third_oldest: Some(at(2)),
            ..one(2)
        };
        let (_, verdicts) = timed_out(&three, 3);
        assert_eq!(verdicts.as_slice(), doubt);
    }

    #[test]
    fn an_acknowledgement_of_what_was_sent_before_is_no_excuse() {
        let mut path = path();
        path.on_sent(at(1), Sent::Awaited);
        path.on_sent(at(2), Sent::Awaited);
        path.on_heard(at(3));
        path.on_acked(at(3), Some(at(1)), PTO);
        let (due, _) = path.deadline(&one(2), &with_others()).expect("a time-out");
        let verdicts = path.on_timeout(due, &one(2), &with_others());
        assert_eq!(verdicts.as_slice(), [Verdict::Probe, Verdict::Doubt]);
    }

    #[test]
    fn an_acknowledgement_makes_the_next_late_packet_one_of_chance_again() {
        let (mut path, _) = timed_out(&one(2), 3);
        path.on_acked(at(30), Some(at(2)), PTO);
        path.send_probes();
        path.on_sent(at(31), Sent::Awaited);
        path.on_heard(at(32));
        let (due, _) = path.deadline(&one(31), &with_others()).expect("a time-out");
        let verdicts = path.on_timeout(due, &one(31), &with_others());
        assert_eq!(verdicts.as_slice(), [Verdict::Probe]);
    }

    #[test]
    fn a_packet_that_is_not_acknowledged_is_probed_after_one_pto() {
        let mut path = path();
        path.on_sent(at(5), Sent::Awaited);
        assert_eq!(
            path.deadline(&one(5), &alone()),
            Some((at(25), Alarm::Probe))
        );
        assert!(path.on_timeout(at(24), &one(5), &alone()).is_empty());
        let verdicts = path.on_timeout(at(25), &one(5), &alone());
        assert_eq!(verdicts.as_slice(), [Verdict::Probe]);
        assert!(path.is_trusted(), "the only path is never doubted");
    }

    #[test]
    fn a_path_alone_owes_two_probes_and_one_with_others_owes_one() {
        for (around, owed) in [(alone(), 2), (with_others(), 1)] {
            let mut path = path();
            path.on_sent(at(0), Sent::Awaited);
            path.on_timeout(at(20), &one(0), &around);
            for _ in 0..owed {
                assert!(path.owes_probe());
                path.take_probe();
            }
            assert!(!path.owes_probe());
        }
    }

    #[test]
    fn nothing_is_probed_while_a_probe_is_owed_or_before_the_handshake_is_confirmed() {
        let mut path = path();
        path.on_sent(at(0), Sent::Awaited);
        let unconfirmed = Surroundings {
            confirmed: false,
            ..alone()
        };
        assert_eq!(path.deadline(&one(0), &unconfirmed), None);
        path.on_timeout(at(20), &one(0), &alone());
        assert_eq!(path.deadline(&one(0), &alone()), None);
    }

    #[test]
    fn a_loss_time_comes_before_any_probe() {
        let mut path = path();
        path.on_sent(at(0), Sent::Awaited);
        let own = UnderWay {
            loss_pending: true,
            ..one(0)
        };
        assert_eq!(path.deadline(&own, &alone()), None);
    }

    #[test]
    fn each_probe_in_vain_doubles_the_time_to_the_next() {
        let mut path = path();
        let mut sent = 0;
        for wait in [20, 40, 80, 160] {
            path.on_sent(at(sent), Sent::Awaited);
            let due = path.deadline(&one(sent), &alone());
            assert_eq!(due, Some((at(sent + wait), Alarm::Probe)));
            path.on_timeout(at(sent + wait), &one(sent), &alone());
            path.send_probes();
            sent += wait;
        }
        assert_eq!(path.pto_count(), 4);
    }

    #[test]
    fn a_doubted_path_is_probed_twice_a_second_however_long_it_is_silent() {
        let mut path = doubted();
        let mut sent = 20;
        for _ in 0..20 {
            path.send_probes();
            path.on_sent(at(sent), Sent::Awaited);
            let (due, alarm) = path.deadline(&one(sent), &with_others()).unwrap();
            assert_eq!(alarm, Alarm::Probe);
            assert!(due <= at(sent) + MAX_PROBE_INTERVAL);
            path.on_timeout(due, &one(sent), &with_others());
            sent = due.since(at(0)).as_millis() as u64;
        }
    }

    #[test]
    fn a_trickle_does_not_put_off_the_probe_for_ever() {
        let mut path = path();
        for sent in [0, 10, 20, 30] {
            path.on_sent(at(sent), Sent::Awaited);
        }
        assert_eq!(
            path.deadline(&one(0), &alone()),
            Some((at(40), Alarm::Probe))
        );
    }

    #[test]
    fn challenges_do_not_put_off_the_probe_and_questions_only_while_the_path_answers() {
        let mut path = path();
        path.on_sent(at(0), Sent::Awaited);
        path.on_sent(at(10), Sent::Unawaited);
        assert_eq!(
            path.deadline(&one(0), &alone()),
            Some((at(20), Alarm::Probe))
        );
        path.on_sent(at(15), Sent::Question);
        assert_eq!(
            path.deadline(&one(0), &alone()),
            Some((at(35), Alarm::Probe))
        );
        path.on_timeout(at(35), &one(0), &alone());
        path.send_probes();
        let before = path.deadline(&one(0), &alone());
        path.on_sent(at(40), Sent::Question);
        assert_eq!(path.deadline(&one(0), &alone()), before);
    }

    #[test]
    fn what_is_asked_after_a_rest_has_its_full_time() {
        let mut path = path();
        path.on_sent(at(0), Sent::Awaited);
        path.on_acked(at(10), Some(at(0)), PTO);
        path.on_answered(at(10), PTO, [at(0)].into_iter());
        path.on_sent(at(500), Sent::Unawaited);
        for around in [alone(), with_others()] {
            let deadline = path.deadline(&one(500), &around);
            assert!(deadline.is_some_and(|(time, _)| time >= at(520)));
        }
    }

    #[test]
    fn an_acknowledgement_ends_the_backoff_and_gives_what_is_under_way_its_full_time() {
        let mut path = path();
        path.on_sent(at(0), Sent::Awaited);
        path.on_timeout(at(20), &one(0), &alone());
        path.on_acked(at(30), Some(at(0)), PTO);
        path.on_answered(at(30), PTO, [at(0)].into_iter());
        assert_eq!(path.pto_count(), 0);
        assert_eq!(
            path.deadline(&one(20), &alone()),
            Some((at(50), Alarm::Probe))
        );
    }
}

mod doubt {
    use super::*;

    #[test]
    fn a_path_that_swallows_a_steady_stream_is_noticed_after_one_pto() {
        let mut path = path();
        path.on_acked(at(0), None, PTO);
        path.on_sent(at(39), Sent::Awaited);
        let due = path.deadline(&one(20), &with_others());
        assert_eq!(due, Some((at(40), Alarm::Silence)));
        let verdicts = path.on_timeout(at(40), &one(20), &with_others());
        assert_eq!(verdicts.as_slice(), [Verdict::Probe, Verdict::Doubt]);
    }

    #[test]
    fn half_a_pto_without_a_word_is_enough_once_several_packets_are_late() {
        let mut path = path();
        path.on_acked(at(30), None, PTO);
        path.on_sent(at(39), Sent::Awaited);
        let own = UnderWay {
            third_oldest: Some(at(12)),
            ..one(10)
        };
        let due = path.deadline(&own, &with_others());
        assert_eq!(due, Some((at(40), Alarm::Silence)));
        let later = UnderWay {
            third_oldest: Some(at(25)),
            ..own
        };
        let due = path.deadline(&later, &with_others());
        assert_eq!(due, Some((at(45), Alarm::Silence)), "third one late first");
    }

    #[test]
    fn the_last_path_that_answers_is_never_doubted_by_a_timer() {
        let mut path = path();
        path.on_sent(at(0), Sent::Awaited);
        for time in [20, 100, 1000, 10_000] {
            let verdicts = path.on_timeout(at(time), &one(0), &all_silent());
            assert!(!verdicts.contains(&Verdict::Doubt));
            path.send_probes();
        }
    }

    #[test]
    fn a_refused_datagram_means_doubt_at_once_and_only_once() {
        let mut path = path();
        assert_eq!(path.on_refused(at(3), true), Some(Verdict::Doubt));
        assert_eq!(path.doubted_since(), Some(at(3)));
        assert_eq!(path.on_refused(at(4), true), None);
        assert_eq!(path.doubted_since(), Some(at(3)));
    }

    #[test]
    fn a_path_that_is_not_proven_is_left_to_its_validation() {
        let mut path = path();
        assert_eq!(path.on_refused(at(3), false), None);
        path.on_sent(at(0), Sent::Awaited);
        let own = UnderWay {
            validated: false,
            ..one(0)
        };
        let verdicts = path.on_timeout(at(20), &own, &with_others());
        assert_eq!(verdicts.as_slice(), [Verdict::Probe]);
    }

    #[test]
    fn a_doubted_path_with_nothing_under_way_is_asked_too() {
        let mut path = path();
        path.on_refused(at(0), true);
        let due = path.deadline(&nothing(), &with_others());
        assert_eq!(due, Some((at(500), Alarm::KeepAlive)));
        assert!(
            path.on_timeout(at(500), &nothing(), &with_others())
                .is_empty()
        );
        assert!(path.owes_ping());
    }

    #[test]
    fn a_path_doubted_for_too_long_is_abandoned_if_another_answers() {
        let mut path = doubted();
        let own = one(0);
        let end = at(20) + with_others().idle_timeout;
        assert!(
            !path
                .on_timeout(end, &own, &all_silent())
                .contains(&Verdict::Abandon)
        );
        assert_eq!(
            path.on_timeout(end, &own, &with_others()).as_slice(),
            [Verdict::Abandon]
        );
    }
}

mod trust {
    use super::*;

    fn answered(path: &mut Liveness, now: u64, sent: &[u64]) -> Option<Verdict> {
        let sent = sent.iter().map(|sent| at(*sent));
        path.on_acked(at(now), sent.clone().min(), PTO);
        path.on_answered(at(now), PTO, sent)
    }

    #[test]
    fn an_answer_to_what_was_sent_before_the_doubt_means_it_was_slow() {
        let mut path = doubted();
        let (after, was_slow) = (ms(30), true);
        let verdict = answered(&mut path, 50, &[0]);
        assert_eq!(verdict, Some(Verdict::Trust { after, was_slow }));
        assert!(path.is_trusted() && !path.owes_probe());
    }

    #[test]
    fn an_answer_to_a_probe_means_it_was_away() {
        let mut path = doubted();
        let (after, was_slow) = (ms(2000), false);
        let verdict = answered(&mut path, 2020, &[1990]);
        assert_eq!(verdict, Some(Verdict::Trust { after, was_slow }));
    }

    #[test]
    fn an_answer_to_a_probe_that_tells_of_older_packets_means_slow_only_if_it_comes_soon() {
        for (now, was_slow) in [(139, true), (140, false)] {
            let verdict = answered(&mut doubted(), now, &[0, 100]);
            let after = ms(now - 20);
            assert_eq!(verdict, Some(Verdict::Trust { after, was_slow }));
        }
    }

    #[test]
    fn a_trusted_path_that_answers_changes_nothing() {
        assert_eq!(answered(&mut path(), 5, &[0]), None);
    }

    #[test]
    fn a_path_that_was_slow_gets_the_whole_time_for_half_a_minute() {
        let mut path = doubted();
        answered(&mut path, 50, &[0]);
        let mut due = |heard: u64| {
            path.on_acked(at(heard), None, PTO);
            path.on_sent(at(heard), Sent::Awaited);
            let own = UnderWay {
                third_oldest: Some(at(heard - 12)),
                ..one(heard - 15)
            };
            path.deadline(&own, &with_others()).unwrap().0
        };
        assert!(due(30_049) >= at(30_049) + PTO);
        assert_eq!(due(30_051), at(30_051) + PTO / 2);
    }

    #[test]
    fn a_peer_that_answers_late_is_given_a_quarter_more_than_it_took() {
        let mut path = path();
        path.on_acked(at(40), Some(at(0)), PTO);
        path.on_sent(at(41), Sent::Awaited);
        let due = path.deadline(&one(41), &with_others());
        assert_eq!(due, Some((at(91), Alarm::Probe)));
        assert_eq!(
            path.deadline(&one(41), &alone()),
            Some((at(61), Alarm::Probe)),
            "where no other path answers nothing is lost by probing"
        );
    }

    #[test]
    fn another_way_back_is_noticed_once() {
        let mut path = path();
        assert!(!path.on_ack_by(PathId(0)));
        assert!(path.on_ack_by(PathId(1)));
        assert!(!path.on_ack_by(PathId(1)));
    }
}

mod inquiry {
    use super::*;

    #[test]
    fn every_path_is_challenged_after_the_second_probe_in_vain() {
        let mut path = path();
        path.on_sent(at(0), Sent::Awaited);
        let first = path.on_timeout(at(20), &one(0), &all_silent());
        assert_eq!(first.as_slice(), [Verdict::Probe]);
        path.send_probes();
        let second = path.on_timeout(at(60), &one(0), &all_silent());
        assert_eq!(second.as_slice(), [Verdict::Probe, Verdict::Challenge]);
    }

    #[test]
    fn a_path_alone_asks_nobody() {
        let mut path = path();
        path.on_sent(at(0), Sent::Awaited);
        for time in [20, 60, 200, 1000] {
            let verdicts = path.on_timeout(at(time), &one(0), &alone());
            assert!(!verdicts.contains(&Verdict::Challenge));
            path.send_probes();
        }
    }

    #[test]
    fn a_path_is_asked_once_and_not_while_another_validation_is_under_way() {
        let mut path = path();
        assert!(!path.ask(false));
        assert!(path.ask(true));
        assert!(!path.ask(true));
    }

    #[test]
    fn the_first_to_respond_is_trusted_and_the_silent_ones_are_doubted() {
        let mut first = doubted();
        assert!(first.ask(true));
        let trust = Verdict::Trust {
            after: ms(80),
            was_slow: false,
        };
        let verdicts = first.on_responded(at(100));
        assert_eq!(verdicts.as_slice(), [trust, Verdict::DoubtSilent]);
        assert_eq!(first.responded_at(), Some(at(100)));
        assert_eq!(first.on_other_responded(at(100), true), None);

        let mut silent = asked();
        let doubt = silent.on_other_responded(at(100), true);
        assert_eq!(doubt, Some(Verdict::Doubt));
    }

    #[test]
    fn a_response_that_nobody_inquired_for_says_nothing() {
        assert!(path().on_responded(at(1)).is_empty());
    }

    #[test]
    fn who_does_not_respond_in_three_ptos_after_another_is_abandoned() {
        for (pto, end) in [(PTO, 600), (ms(300), 1000)] {
            let mut path = asked();
            let own = UnderWay { pto, ..nothing() };
            assert_eq!(path.deadline(&own, &all_silent()), None);
            let around = Surroundings {
                first_response: Some(at(100)),
                ..all_silent()
            };
            assert_eq!(
                path.deadline(&own, &around),
                Some((at(end), Alarm::Inquiry))
            );
            let verdicts = path.on_timeout(at(end), &own, &around);
            assert_eq!(verdicts.as_slice(), [Verdict::Abandon]);
        }
    }

    #[test]
    fn an_acknowledgement_anywhere_ends_it() {
        let mut path = asked();
        assert!(path.end_inquiry(), "its challenge is in vain");
        assert!(!path.end_inquiry());
        assert_eq!(path.deadline(&nothing(), &with_others()), None);
    }
}

mod missing_data {
    use super::*;

    #[test]
    fn a_receiver_that_waits_behind_a_gap_asks_every_path() {
        let mut path = path();
        let around = starved(1000);
        let due = path.deadline(&nothing(), &around);
        assert_eq!(due, Some((at(1500), Alarm::KeepAlive)));
        path.on_timeout(at(1500), &nothing(), &around);
        assert!(path.owes_ping());
        assert_eq!(path.deadline(&nothing(), &around), None, "one is enough");
    }

    #[test]
    fn a_doubted_path_is_given_up_when_nothing_is_mended_while_another_answers() {
        let mut path = doubted();
        let around = Surroundings {
            answering_since: Some(at(300)),
            ..starved(100)
        };
        let own = one(0);
        path.send_probes();
        assert!(
            !path
                .on_timeout(at(2299), &own, &around)
                .contains(&Verdict::Abandon)
        );
        let verdicts = path.on_timeout(at(2300), &own, &around);
        assert_eq!(verdicts.as_slice(), [Verdict::Abandon]);
    }

    #[test]
    fn a_path_counts_as_answering_only_if_it_was_heard_of_after_the_doubt() {
        let mut path = path();
        path.on_acked(at(10), None, PTO);
        path.on_acked(at(30), None, PTO);
        assert_eq!(path.answers_since(at(20)), Some(at(10)));
        assert_eq!(path.answers_since(at(30)), None);
    }

    #[test]
    fn keep_alive_asks_a_path_that_rested() {
        let mut path = path();
        path.on_activity(at(100));
        let around = Surroundings {
            keep_alive: Rest {
                most: Some(ms(1000)),
                follows: false,
            },
            ..alone()
        };
        let due = path.deadline(&nothing(), &around);
        assert_eq!(due, Some((at(1100), Alarm::KeepAlive)));
        assert_eq!(
            path.deadline(&one(100), &around),
            None,
            "it is asked anyway"
        );
    }

    fn follows(most: u64) -> Surroundings {
        Surroundings {
            keep_alive: Rest {
                most: Some(ms(most)),
                follows: true,
            },
            ..alone()
        }
    }

    fn rest_ends(path: &Liveness, around: &Surroundings) -> u64 {
        let (due, alarm) = path.deadline(&nothing(), around).unwrap();
        assert_eq!(alarm, Alarm::KeepAlive);
        due.since(at(0)).as_millis() as u64
    }

    #[test]
    fn a_server_lets_a_path_rest_a_little_shorter_than_its_client_does() {
        let (mut path, around) = (path(), follows(60_000));
        assert_eq!(rest_ends(&path, &around), 60_000);
        path.on_heard(at(16_000));
        assert_eq!(rest_ends(&path, &around), 31_000);
        // What comes at once says nothing about rests, nor do those that are longer than its own.
        path.on_heard(at(17_000));
        assert_eq!(rest_ends(&path, &around), 32_000);
        assert_eq!(rest_ends(&path, &follows(10_000)), 27_000);
    }

    #[test]
    fn a_server_that_asked_waits_for_its_client_to_ask_again() {
        let (mut path, around) = (path(), follows(60_000));
        path.on_heard(at(16_000));
        path.on_timeout(at(31_000), &nothing(), &around);
        assert!(path.owes_ping());
        path.take_ping();
        path.on_activity(at(31_000));
        assert_eq!(rest_ends(&path, &around), 91_000, "it may rest longer now");
    }

    #[test]
    fn who_does_not_follow_does_not_look_at_the_peers_rests() {
        let mut path = path();
        path.on_heard(at(16_000));
        let mut around = follows(60_000);
        around.keep_alive.follows = false;
        assert_eq!(rest_ends(&path, &around), 76_000);
    }
}

mod detour {
    use super::*;

    #[test]
    fn two_lone_pings_in_a_row_send_acknowledgements_another_way_for_a_while() {
        let mut path = path();
        assert_eq!(path.on_lone_ping(at(0)), None);
        assert_eq!(path.on_lone_ping(at(10)), Some(at(2010)));
        assert!(path.takes_detour(at(2009)) && !path.takes_detour(at(2010)));
    }

    #[test]
    fn any_other_question_starts_the_count_again() {
        let mut path = path();
        path.on_lone_ping(at(0));
        path.on_other_question();
        assert_eq!(path.on_lone_ping(at(10)), None);
        assert!(!path.takes_detour(at(10)));
    }

    #[test]
    fn each_detour_lasts_twice_as_long_up_to_a_minute() {
        let mut path = path();
        path.on_lone_ping(at(0));
        let spans = (0..7).map(|_| path.on_lone_ping(at(0)).unwrap().since(at(0)));
        let spans: Vec<u64> = spans.map(|span| span.as_millis() as u64 / 1000).collect();
        assert_eq!(spans, [2, 4, 8, 16, 32, 60, 60]);
    }
}
