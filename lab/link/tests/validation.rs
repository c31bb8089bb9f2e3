//! Compares what a link is configured to do with what it is measured to do.

use anabranch_link::{
    CoDel, GilbertElliott, Jitter, Link, LinkConfig, Loss, LossClock, LossPlace, Probability,
    Queue, Rate, Red, Trace,
};
use proptest::prelude::*;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn rate(bits_per_second: u64) -> Rate {
    Rate::bits_per_second(bits_per_second).expect("not 0")
}

fn probability(value: f64) -> Probability {
    Probability::new(value).expect("from 0 to 1")
}

fn bursty(loss: f64, burst: f64) -> Loss {
    Loss::GilbertElliott(GilbertElliott::from_mean(loss, burst).expect("a model exists"))
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Sends `count` packets of `size` bytes, one every `gap` nanoseconds, polling exactly at the
/// deadlines; returns the number and arrival time of each packet that arrives.
fn run(link: &mut Link<u64>, count: u64, size: u32, gap: u64) -> Vec<(u64, u64)> {
    let mut arrived = Vec::new();
    for number in 0..count {
        let now = number * gap;
        drain_until(link, now, &mut arrived);
        link.enqueue(now, size, number);
    }
    drain_until(link, u64::MAX, &mut arrived);
    assert!(link.is_empty());
    arrived
}

fn drain_until(link: &mut Link<u64>, end: u64, arrived: &mut Vec<(u64, u64)>) {
    while let Some(deadline) = link.deadline().filter(|deadline| *deadline <= end) {
        while let Some(number) = link.poll(deadline) {
            arrived.push((number, deadline));
        }
        assert_ne!(
            link.deadline(),
            Some(deadline),
            "polling at a deadline makes progress"
        );
    }
}

#[test]
fn stalls_hold_up_their_share_of_packets_and_what_follows() {
    let config = |reorder| LinkConfig {
        jitter: Jitter::Stall {
            probability: probability(0.01),
            min: millis(20),
            max: millis(60),
        },
        reorder,
        ..LinkConfig::new(Rate::Unlimited, millis(55))
    };
    // Far apart, so that packets do not affect each other.
    let gap = 100 * MS;
    let arrived = run(&mut Link::new(config(false), 5), 100_000, 1000, gap);
    let extra = arrived
        .iter()
        .map(|(number, at)| at - number * gap - 55 * MS);
    let stalled: Vec<_> = extra.filter(|extra| *extra > 0).collect();
    assert!((900..1100).contains(&stalled.len()), "{}", stalled.len());
    assert!(
        stalled
            .iter()
            .all(|extra| (20 * MS..=60 * MS).contains(extra))
    );
    let mean = stalled.iter().sum::<u64>() / stalled.len() as u64;
    assert!((38 * MS..42 * MS).contains(&mean), "{mean}");
    // One packet per millisecond: a stall holds up the packets behind it, unless they may overtake.
    let ordered = run(&mut Link::new(config(false), 5), 10_000, 1000, MS);
    assert!(ordered.is_sorted());
    let held = ordered
        .iter()
        .filter(|(number, at)| *at > number * MS + 55 * MS)
        .count();
    assert!((2000..4500).contains(&held), "{held}");
    let overtaking = run(&mut Link::new(config(true), 5), 10_000, 1000, MS);
    assert!(!overtaking.is_sorted());
}

#[test]
fn an_overloaded_link_delivers_at_its_rate_to_the_nanosecond() {
    for bits in [64_000, 7_000_000, 1_000_000_000] {
        let config = LinkConfig {
            queue: Queue::TailDropPackets(u64::MAX),
            ..LinkConfig::new(rate(bits), millis(10))
        };
        let arrived = run(&mut Link::new(config, 1), 1000, 1500, 1);
        let expected = 1000 * 1500 * 8 * u128::from(SECOND) / u128::from(bits);
        assert_eq!(u128::from(arrived[999].1), expected + u128::from(10 * MS));
    }
}

#[test]
fn a_packet_on_an_idle_link_takes_its_serialisation_and_the_delay() {
    let mut link = Link::new(LinkConfig::new(rate(8_000_000), millis(20)), 1);
    let arrived = run(&mut link, 100, 1000, 10 * MS);
    for (number, at) in arrived {
        assert_eq!(at, number * 10 * MS + 21 * MS);
    }
    assert_eq!(link.stats().sojourn_max_ns, 0);
}

#[test]
fn a_full_queue_delays_by_its_length_and_drops_the_excess() {
    let queue = Queue::TailDropBytes(50_000);
    let config = LinkConfig {
        queue,
        ..LinkConfig::new(rate(8_000_000), millis(0))
    };
    let mut link = Link::new(config, 1);
    // Twice the link's rate for a second.
    let arrived = run(&mut link, 2000, 1000, MS / 2);
    let stats = link.stats();
    assert_eq!(stats.queue_peak_bytes, 50_000);
    assert_eq!(stats.packets_out + stats.dropped_full, 2000);
    assert!(
        (1049..=1051).contains(&stats.packets_out),
        "{}",
        stats.packets_out
    );
    assert!(
        arrived
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1)
    );
    assert!(
        (49 * MS..=50 * MS).contains(&stats.sojourn_max_ns),
        "{}",
        stats.sojourn_max_ns
    );
    assert!(stats.mean_sojourn() > millis(40));
}

#[test]
fn a_queue_of_no_packets_still_passes_what_meets_an_idle_link() {
    let queue = Queue::TailDropPackets(0);
    let config = LinkConfig {
        queue,
        ..LinkConfig::new(rate(8_000_000), millis(0))
    };
    let mut link = Link::new(config, 1);
    run(&mut link, 10, 1000, MS / 2);
    assert_eq!(link.stats().packets_out, 5);
}

#[test]
fn loss_is_measured_as_configured_before_and_after_the_queue() {
    for loss_place in [LossPlace::BeforeQueue, LossPlace::AfterQueue] {
        let config = LinkConfig {
            loss: Loss::Independent(probability(0.03)),
            loss_place,
            ..LinkConfig::new(rate(80_000_000), millis(5))
        };
        let mut link = Link::new(config, 9);
        let arrived = run(&mut link, 100_000, 1000, MS / 10);
        let share = 1.0 - arrived.len() as f64 / 100_000.0;
        // Five standard deviations of a binomial count.
        assert!(
            (share - 0.03).abs() < 5.0 * (0.03_f64 * 0.97 / 100_000.0).sqrt(),
            "{share}"
        );
        assert_eq!(link.stats().lost + link.stats().packets_out, 100_000);
    }
}

#[test]
fn loss_after_the_queue_takes_up_rate_and_loss_before_it_does_not() {
    let deliveries = |loss_place| {
        let config = LinkConfig {
            loss: Loss::Independent(probability(0.5)),
            loss_place,
            queue: Queue::TailDropPackets(5),
            ..LinkConfig::new(rate(8_000_000), millis(0))
        };
        run(&mut Link::new(config, 2), 10_000, 1000, MS / 2).len()
    };
    assert!((2300..2700).contains(&deliveries(LossPlace::AfterQueue)));
    assert!(deliveries(LossPlace::BeforeQueue) > 4500);
}

#[test]
fn bursts_of_loss_have_the_configured_length() {
    let config = LinkConfig {
        loss: bursty(0.05, 5.0),
        ..LinkConfig::default()
    };
    let arrived = run(&mut Link::new(config, 3), 200_000, 1000, MS);
    let gaps: Vec<_> = arrived
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0 - 1)
        .filter(|gap| *gap > 0)
        .collect();
    let lost = gaps.iter().sum::<u64>() as f64;
    assert!((lost / gaps.len() as f64 - 5.0).abs() < 0.4);
    assert!((lost / 200_000.0 - 0.05).abs() < 0.006);
}

#[test]
fn links_of_one_seed_lose_at_the_same_times_whoever_sends() {
    let config = LinkConfig {
        loss: Loss::Independent(probability(0.2)),
        loss_clock: LossClock::Slot(NonZeroU64::new(MS).unwrap()),
        ..LinkConfig::default()
    };
    let every = run(&mut Link::new(config.clone(), 4), 10_000, 1000, MS);
    let third = run(&mut Link::new(config, 4), 3333, 1000, 3 * MS);
    let expected: Vec<_> = every
        .iter()
        .filter(|(n, _)| n % 3 == 0 && n / 3 < 3333)
        .collect();
    assert_eq!(third.len(), expected.len());
    assert!(third.iter().zip(expected).all(|(a, b)| a.0 * 3 == b.0));
}

#[test]
fn jitter_keeps_the_order_unless_told_otherwise() {
    let mut config = LinkConfig {
        jitter: Jitter::Normal(millis(8)),
        ..LinkConfig::new(Rate::Unlimited, millis(50))
    };
    let in_order = run(&mut Link::new(config.clone(), 5), 5000, 100, MS);
    assert!(in_order.is_sorted());
    config.reorder = true;
    let free = run(&mut Link::new(config, 5), 5000, 100, MS);
    assert!(free.iter().map(|(_, at)| at).is_sorted());
    assert!(!free.iter().map(|(number, _)| number).is_sorted());
    let delays: Vec<_> = free
        .iter()
        .map(|(n, at)| (at - n * MS) as f64 / MS as f64)
        .collect();
    let mean = delays.iter().sum::<f64>() / 5000.0;
    let variance = delays
        .iter()
        .map(|delay| (delay - mean).powi(2))
        .sum::<f64>()
        / 5000.0;
    assert!(
        (mean - 50.0).abs() < 0.5 && (variance.sqrt() - 8.0).abs() < 0.4,
        "{mean}"
    );
}

#[test]
fn even_jitter_stays_within_its_spread() {
    let config = LinkConfig {
        jitter: Jitter::Uniform(millis(4)),
        reorder: true,
        ..LinkConfig::new(Rate::Unlimited, millis(10))
    };
    let arrived = run(&mut Link::new(config, 6), 10_000, 100, MS);
    let delays = || arrived.iter().map(|(number, at)| at - number * MS);
    assert!((6 * MS..7 * MS).contains(&delays().min().unwrap()));
    assert!((13 * MS..=14 * MS).contains(&delays().max().unwrap()));
}

#[test]
fn a_trace_delivers_its_mean_rate_and_nothing_between_opportunities() {
    let trace = Arc::new(Trace::parse("1\n1\n4\n10\n").unwrap());
    let mean = trace.mean_rate();
    assert_eq!(mean, 4_800_000);
    let config = LinkConfig {
        queue: Queue::TailDropPackets(u64::MAX),
        ..LinkConfig::new(Rate::Trace(trace), millis(0))
    };
    let arrived = run(&mut Link::new(config, 7), 400, 1500, 1);
    assert_eq!(arrived.last().unwrap().1, 1000 * MS);
    assert!(
        arrived
            .iter()
            .all(|(_, at)| [1, 4, 0].contains(&(at / MS % 10)))
    );
}

#[test]
fn codel_keeps_a_standing_queue_near_its_target() {
    let overload = |queue| {
        let config = LinkConfig {
            queue,
            ..LinkConfig::new(rate(8_000_000), millis(0))
        };
        let mut link = Link::new(config, 8);
        run(&mut link, 60_000, 1000, MS * 95 / 100);
        link.stats()
    };
    let tail = overload(Queue::TailDropBytes(200_000));
    let codel = overload(Queue::CoDel(CoDel {
        limit_bytes: 200_000,
        ..CoDel::default()
    }));
    assert!(
        tail.mean_sojourn() > millis(150),
        "{:?}",
        tail.mean_sojourn()
    );
    assert!(
        codel.mean_sojourn() < millis(80),
        "{:?}",
        codel.mean_sojourn()
    );
    assert!(codel.dropped_early > 0 && codel.packets_out > 56_000);
}

#[test]
fn red_drops_early_and_keeps_the_average_between_its_bounds() {
    let red = Red {
        min_bytes: 10_000,
        max_bytes: 30_000,
        max_probability: probability(0.1),
        weight: probability(0.002),
        limit_bytes: 200_000,
    };
    let config = LinkConfig {
        queue: Queue::Red(red),
        ..LinkConfig::new(rate(8_000_000), millis(0))
    };
    let mut link = Link::new(config, 9);
    run(&mut link, 60_000, 1000, MS * 95 / 100);
    let stats = link.stats();
    assert_eq!(stats.dropped_full, 0);
    assert!(stats.dropped_early > 2000, "{}", stats.dropped_early);
    // 8 Mbit/s carry 1000 bytes per millisecond.
    let mean = stats.mean_sojourn();
    assert!((millis(10)..millis(30)).contains(&mean), "{mean:?}");
}

#[test]
fn a_new_rate_holds_from_the_moment_it_is_set() {
    let config = LinkConfig::new(rate(8_000_000), millis(0));
    let mut link = Link::new(config.clone(), 1);
    for number in 0..10 {
        link.enqueue(0, 1000, number);
    }
    let mut arrived = Vec::new();
    drain_until(&mut link, 2 * MS, &mut arrived);
    link.reconfigure(
        2 * MS + MS / 2,
        LinkConfig {
            rate: rate(80_000_000),
            ..config
        },
    );
    drain_until(&mut link, u64::MAX, &mut arrived);
    let times: Vec<_> = arrived.iter().map(|(_, at)| *at).collect();
    // Half of the third packet was left, which takes a twentieth of a millisecond at ten times the
    // rate.
    assert_eq!(times[..4], [MS, 2 * MS, 2_550_000, 2_650_000]);
    assert_eq!(times[9], 3_250_000);
}

#[test]
fn a_link_that_goes_down_loses_silently_and_works_again_when_up() {
    let config = LinkConfig::new(rate(8_000_000), millis(10));
    let mut link = Link::new(config.clone(), 1);
    link.enqueue(0, 1000, 0);
    link.enqueue(0, 1000, 1);
    link.reconfigure(
        MS + 1,
        LinkConfig {
            up: false,
            ..config.clone()
        },
    );
    link.enqueue(2 * MS - 1, 1000, 2);
    let mut arrived = Vec::new();
    drain_until(&mut link, 20 * MS, &mut arrived);
    assert_eq!(arrived, [(0, 11 * MS)], "what was under way arrives");
    assert_eq!(link.stats().dropped_down, 2);
    link.reconfigure(20 * MS, config);
    link.enqueue(20 * MS, 1000, 3);
    drain_until(&mut link, u64::MAX, &mut arrived);
    assert_eq!(arrived[1], (3, 31 * MS));
}

#[test]
fn a_shorter_delay_does_not_let_packets_overtake() {
    let config = LinkConfig::new(Rate::Unlimited, millis(100));
    let mut link = Link::new(config.clone(), 1);
    link.enqueue(0, 1000, 0);
    link.reconfigure(
        MS,
        LinkConfig {
            delay: millis(10),
            ..config.clone()
        },
    );
    link.enqueue(MS, 1000, 1);
    let mut arrived = Vec::new();
    drain_until(&mut link, u64::MAX, &mut arrived);
    assert_eq!(arrived, [(0, 100 * MS), (1, 100 * MS)]);
    let mut link = Link::new(
        LinkConfig {
            reorder: true,
            ..config.clone()
        },
        1,
    );
    link.enqueue(0, 1000, 0);
    link.reconfigure(
        MS,
        LinkConfig {
            delay: millis(10),
            reorder: true,
            ..config
        },
    );
    link.enqueue(MS, 1000, 1);
    arrived.clear();
    drain_until(&mut link, u64::MAX, &mut arrived);
    assert_eq!(arrived, [(1, 11 * MS), (0, 100 * MS)]);
}

fn any_jitter() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        (0u64..30).prop_map(|ms| Jitter::Uniform(millis(ms))),
        (0u64..30).prop_map(|ms| Jitter::Normal(millis(ms))),
        (0u64..30, 0u64..60).prop_map(|(min, max)| Jitter::Stall {
            probability: probability(0.1),
            min: millis(min),
            max: millis(max),
        }),
    ]
}

fn any_config() -> impl Strategy<Value = LinkConfig> {
    let trace = Arc::new(Trace::parse("1\n2\n2\n9\n").expect("a trace"));
    let fixed = |(bits, burst)| Rate::Fixed {
        bits_per_second: NonZeroU64::new(bits).expect("not 0"),
        burst,
    };
    let rates = prop_oneof![
        Just(Rate::Unlimited),
        (10_000u64..1_000_000_000, 0u32..10_000).prop_map(fixed),
        Just(Rate::Trace(trace)),
    ];
    let losses = prop_oneof![
        Just(Loss::None),
        (0.0..1.0).prop_map(|p| Loss::Independent(probability(p))),
        (0.0..0.4, 1.0..9.0).prop_map(|(p, b)| bursty(p, b)),
    ];
    let red = |limit_bytes| Red {
        min_bytes: 2000,
        max_bytes: 8000,
        max_probability: probability(0.2),
        weight: probability(0.1),
        limit_bytes,
    };
    let queues = prop_oneof![
        (0u64..20_000).prop_map(Queue::TailDropBytes),
        (0u64..20).prop_map(Queue::TailDropPackets),
        (0u64..20_000).prop_map(|limit_bytes| Queue::CoDel(CoDel {
            limit_bytes,
            ..CoDel::default()
        })),
        (0u64..20_000).prop_map(move |limit| Queue::Red(red(limit))),
    ];
    let slots = |slot| {
        if slot {
            LossClock::Slot(NonZeroU64::MIN)
        } else {
            LossClock::Packet
        }
    };
    let places = |after| {
        if after {
            LossPlace::AfterQueue
        } else {
            LossPlace::BeforeQueue
        }
    };
    let flags = any::<(bool, bool, bool)>();
    (rates, 0u64..50, any_jitter(), losses, queues, flags, 0u8..8).prop_map(
        move |(rate, delay, jitter, loss, queue, (reorder, slot, after), down)| LinkConfig {
            rate,
            delay: millis(delay),
            jitter,
            reorder,
            loss,
            loss_clock: slots(slot),
            loss_place: places(after),
            queue,
            up: down > 0,
        },
    )
}

type Step = (u64, u32, Option<LinkConfig>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = prop_oneof![9 => Just(None), 1 => any_config().prop_map(Some)];
    prop::collection::vec((0u64..3 * MS, 1u32..3000, change), 1..150)
}

/// What arrives if the link is polled at its deadlines, or only at the steps.
fn deliveries(config: &LinkConfig, steps: &[Step], at_deadlines: bool) -> (Vec<u64>, Link<u64>) {
    let mut link = Link::new(config.clone(), 11);
    let (mut now, mut arrived) = (0, Vec::new());
    for (number, (gap, size, change)) in steps.iter().enumerate() {
        now += gap;
        let mut due = Vec::new();
        if at_deadlines {
            drain_until(&mut link, now, &mut due);
        }
        arrived.extend(due.iter().map(|(number, _)| *number));
        arrived.extend(std::iter::from_fn(|| link.poll(now)));
        if let Some(config) = change {
            link.reconfigure(now, config.clone());
        }
        link.enqueue(now, *size, number as u64);
    }
    let mut due = Vec::new();
    drain_until(&mut link, u64::MAX, &mut due);
    arrived.extend(due.iter().map(|(number, _)| *number));
    (arrived, link)
}

proptest! {
    #[test]
    fn every_packet_is_delivered_once_or_counted_as_dropped(
        config in any_config(),
        steps in steps(),
    ) {
        let (mut arrived, link) = deliveries(&config, &steps, true);
        let stats = link.stats();
        prop_assert!(link.is_empty());
        prop_assert_eq!(stats.packets_in, steps.len() as u64);
        prop_assert_eq!(stats.packets_out, arrived.len() as u64);
        prop_assert_eq!(stats.packets_out + stats.dropped(), stats.packets_in);
        let ever_reorders = steps.iter().any(|(_, _, change)| {
            change.as_ref().is_some_and(|config| config.reorder)
        });
        prop_assert!(config.reorder || ever_reorders || arrived.is_sorted());
        arrived.sort_unstable();
        arrived.dedup();
        prop_assert_eq!(stats.packets_out, arrived.len() as u64);
    }

    #[test]
    fn the_same_calls_and_seed_yield_the_same_deliveries_however_late_the_poll(
        config in any_config(),
        steps in steps(),
    ) {
        let (exact, first) = deliveries(&config, &steps, true);
        let (again, second) = deliveries(&config, &steps, true);
        prop_assert_eq!(&exact, &again);
        prop_assert_eq!(first.stats(), second.stats());
        let (late, third) = deliveries(&config, &steps, false);
        prop_assert_eq!(exact, late);
        prop_assert_eq!(first.stats(), third.stats());
    }
}
