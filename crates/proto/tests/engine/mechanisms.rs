//! Mechanisms of the multipath literature in running connections.

use crate::pair::{MBIT, Pair, Way};
use crate::policies;
use anabranch_proto::config::{Mechanisms, Rescue, RetransmissionPolicy, Split, TransportConfig};
use anabranch_proto::connection::PathStats;
use anabranch_proto::event::{Observation, Observer, Purpose};
use anabranch_proto::path::{PathOptions, Shape};
use anabranch_proto::sched::{Choice, Reason, Scheduler, SchedulerFactory, SendView};
use anabranch_proto::streams::{Limits, Release};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::{Frame, PathStatus};
use bytes::Bytes;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const SLOW: PathId = PathId(1);

/// Lowest RTT first.
fn with(mechanisms: Mechanisms, streams: Limits) -> TransportConfig {
    scheduled(SchedulerFactory::default(), mechanisms, streams)
}

fn scheduled(
    scheduler: SchedulerFactory,
    mechanisms: Mechanisms,
    streams: Limits,
) -> TransportConfig {
    TransportConfig {
        mechanisms,
        streams,
        scheduler,
        ..TransportConfig::default()
    }
}

fn connected(ways: Vec<Way>, config: TransportConfig) -> Pair {
    let mut pair = Pair::new(ways, config);
    pair.connect();
    pair.open_all();
    pair.run_for(Duration::from_secs(1));
    pair
}

/// A fast path and one with ten times the delay.
fn unequal() -> Vec<Way> {
    let way = |index| Way::new(index).rate(10 * MBIT).queue_ms(100);
    vec![way(1), way(2).delay(100)]
}

fn path(pair: &mut Pair, id: PathId) -> PathStats {
    pair.client_conn().path_stats(id).expect("the path is open")
}

/// Runs a transfer and looks at the client after each step.
fn watch(pair: &mut Pair, length: u64, mut look: impl FnMut(&mut Pair)) -> Duration {
    let flow = pair.start(true, length);
    let done = pair.run_until(LIMIT, |pair| {
        look(pair);
        pair.flows[flow].done_at.is_some()
    });
    assert!(done, "{}", pair.report());
    pair.now.since(pair.flows[flow].started)
}

#[test]
fn receive_buffer_blocking_is_counted_and_blamed_on_the_path_with_the_hole() {
    let limits = Limits::default().with_shared_receive_buffer(32 << 10);
    let config = scheduled(policies::turns(), Mechanisms::default(), limits);
    let mut pair = connected(unequal(), config);
    let took = pair.transfer(true, 1_000_000, LIMIT);
    let blocked = pair.client_conn().stats().blocked;
    assert!(
        blocked.receive_window.time > took / 4,
        "{blocked:?} in {took:?}"
    );
    assert!(blocked.receive_window.times > 3, "{blocked:?}");
    assert_eq!(blocked.send_buffer.times, 0);
    let slow = path(&mut pair, SLOW).counters.blocking;
    let fast = path(&mut pair, PathId::ZERO).counters.blocking;
    assert!(slow > fast * 2, "slow {slow:?}, fast {fast:?}");
    assert!(slow + fast <= blocked.receive_window.time);
}

#[test]
fn nothing_counts_as_blocked_with_wide_windows() {
    let mut pair = connected(unequal(), TransportConfig::default());
    pair.transfer(true, 1_000_000, LIMIT);
    let blocked = pair.client_conn().stats().blocked;
    assert_eq!(blocked.receive_window.times, 0);
    assert_eq!(blocked.send_buffer.times, 0);
}

#[test]
fn send_buffer_blocking_lasts_longer_if_acknowledged_bytes_stay() {
    let times = [Release::Acknowledged, Release::InOrder].map(|release| {
        let limits = Limits {
            send_buffer: 48 << 10,
            release,
            ..Limits::default()
        };
        let mut pair = connected(unequal(), with(Mechanisms::default(), limits));
        let took = pair.transfer(true, 1_000_000, LIMIT);
        let blocked = pair.client_conn().stats().blocked;
        assert!(
            blocked.send_buffer.time > Duration::from_millis(100),
            "{blocked:?}"
        );
        assert_eq!(blocked.receive_window.times, 0);
        took
    });
    assert!(times[1] > times[0].mul_f64(1.2), "{times:?}");
}

/// Sends on the first path only, and not before its time has come.
#[derive(Debug)]
struct Patient;

impl Scheduler for Patient {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        match view.ready().find(|path| path.id == PathId::ZERO) {
            Some(path) => Choice::send(path.id, Reason::Priority),
            None => Choice::hold(Reason::WaitForBetter),
        }
    }
}

#[test]
fn waiting_by_the_wish_of_the_scheduler_is_counted_as_that() {
    let mut pair = connected(unequal(), TransportConfig::default());
    pair.client_conn().set_scheduler(Box::new(Patient));
    let took = pair.transfer(true, 1_000_000, LIMIT);
    let blocked = pair.client_conn().stats().blocked;
    assert!(blocked.scheduler.time > took / 2, "{blocked:?} in {took:?}");
    assert_eq!(blocked.receive_window.times, 0);
}

#[test]
fn rescued_data_shortens_a_transfer_through_a_small_window() {
    let took = [Rescue::Off, Rescue::Copy, Rescue::CopyAndPenalise].map(|rescue| {
        let limits = Limits::default().with_shared_receive_buffer(32 << 10);
        let mechanisms = Mechanisms {
            rescue,
            ..Mechanisms::default()
        };
        let config = scheduled(policies::turns(), mechanisms, limits);
        let mut pair = connected(unequal(), config);
        let mut penalised = false;
        let took = watch(&mut pair, 1_000_000, |pair| {
            let slow = path(pair, SLOW);
            penalised |= slow.usable_window < slow.congestion_window;
        });
        let rescued = path(&mut pair, PathId::ZERO).counters.rescued_bytes;
        assert_eq!(rescued > 0, rescue != Rescue::Off, "{rescue:?}");
        assert_eq!(penalised, rescue == Rescue::CopyAndPenalise);
        assert_eq!(path(&mut pair, SLOW).counters.rescued_bytes, 0);
        took
    });
    // A packet at a time helps a little; keeping the slow path from blocking helps much.
    assert!(took[1] < took[0].mul_f64(0.97), "{took:?}");
    assert!(took[2] < took[0].mul_f64(0.5), "{took:?}");
}

#[test]
fn data_of_similar_paths_is_left_where_it_is() {
    let ways = vec![
        Way::new(1).rate(10 * MBIT).delay(20),
        Way::new(2).rate(10 * MBIT).delay(30),
    ];
    let limits = Limits::default().with_shared_receive_buffer(64 << 10);
    let mechanisms = Mechanisms {
        rescue: Rescue::Copy,
        ..Mechanisms::default()
    };
    let mut pair = connected(ways, with(mechanisms, limits));
    pair.transfer(true, 1_000_000, LIMIT);
    let blocked = pair.client_conn().stats().blocked;
    assert!(blocked.receive_window.times > 0);
    // Only a window of a few packets may have let a copy through.
    let rescued = path(&mut pair, PathId::ZERO).counters.rescued_bytes;
    assert!(rescued < 20_000, "{rescued}");
}

#[test]
fn no_path_exceeds_its_part_of_a_split_buffer() {
    const BUFFER: u64 = 64 << 10;
    for (send, receive) in [(Split::Equal, Split::Off), (Split::Off, Split::Equal)] {
        let limits = Limits {
            send_buffer: if send == Split::Off { 1 << 20 } else { BUFFER },
            ..Limits::default().with_shared_receive_buffer(if receive == Split::Off {
                1 << 20
            } else {
                BUFFER
            })
        };
        let mechanisms = Mechanisms {
            split_send: send,
            split_receive: receive,
            ..Mechanisms::default()
        };
        let mut pair = connected(unequal(), with(mechanisms, limits));
        let mut most = [0, 0];
        watch(&mut pair, 2_000_000, |pair| {
            for (id, most) in [PathId::ZERO, SLOW].into_iter().zip(&mut most) {
                *most = path(pair, id).bytes_in_flight.max(*most);
            }
        });
        // Frames and packets have headers.
        let part = BUFFER / 2 * 21 / 20;
        assert!(most.iter().all(|most| *most <= part), "{most:?} of {part}");
        assert!(most[1] > part / 2, "{most:?}: the slow path uses its part");
    }
}

#[test]
fn a_proportional_split_follows_the_product_of_rate_and_delay() {
    let limits = Limits {
        send_buffer: 256 << 10,
        ..Limits::default()
    };
    let mechanisms = Mechanisms {
        split_send: Split::Proportional,
        ..Mechanisms::default()
    };
    let mut pair = connected(unequal(), with(mechanisms, limits));
    let (mut fast, mut slow) = (0, 0);
    watch(&mut pair, 6_000_000, |pair| {
        fast = path(pair, PathId::ZERO).usable_window;
        slow = path(pair, SLOW).usable_window;
    });
    assert!(slow > fast, "the slow path needs more: {slow} and {fast}");
}

#[test]
fn a_path_in_reserve_has_no_part_of_a_split_buffer() {
    let limits = Limits {
        send_buffer: 256 << 10,
        ..Limits::default()
    };
    let mechanisms = Mechanisms {
        split_send: Split::Equal,
        ..Mechanisms::default()
    };
    let mut pair = connected(unequal(), with(mechanisms, limits));
    pair.transfer(true, 1_000_000, LIMIT);
    let before = path(&mut pair, PathId::ZERO).usable_window;
    let client = pair.client_conn();
    client
        .set_path_status(SLOW, PathStatus::Backup)
        .expect("the path is open");
    let mut after = 0;
    watch(&mut pair, 1_000_000, |pair| {
        after = after.max(path(pair, PathId::ZERO).usable_window);
    });
    assert!(before <= 128 << 10 && after > before, "{before}, {after}");
}

#[test]
fn a_cap_against_bufferbloat_keeps_the_queue_short() {
    let longest = [None, Some(1.5)].map(|factor| {
        let ways = vec![Way::new(1).rate(10 * MBIT).delay(20).queue_ms(1000)];
        let mechanisms = Mechanisms {
            bufferbloat_factor: factor,
            ..Mechanisms::default()
        };
        let mut pair = connected(ways, with(mechanisms, Limits::default()));
        let mut longest = Duration::ZERO;
        let took = watch(&mut pair, 4_000_000, |pair| {
            longest = path(pair, PathId::ZERO).smoothed_rtt.max(longest);
        });
        assert!(
            took < Duration::from_millis(4500),
            "{took:?} for 3.2 s of data"
        );
        longest
    });
    assert!(longest[1] < longest[0] / 2, "{longest:?}");
    assert!(longest[1] < Duration::from_millis(140), "{longest:?}");
}

#[test]
fn a_shaped_path_is_used_no_faster_than_its_shape() {
    let ways = vec![Way::new(1).rate(10 * MBIT)];
    let mut pair = connected(ways, TransportConfig::default());
    let options = PathOptions {
        shape: Some(Shape::Fixed {
            rate: 200_000,
            burst: None,
        }),
        ..PathOptions::default()
    };
    let client = pair.client_conn();
    client
        .set_path_options(PathId::ZERO, options)
        .expect("the path is open");
    let took = pair.transfer(true, 400_000, LIMIT).as_secs_f64();
    assert!((1.9..2.3).contains(&took), "{took} s");
    let client = pair.client_conn();
    client
        .set_path_options(PathId::ZERO, PathOptions::default())
        .expect("the path is open");
    let took = pair.transfer(true, 400_000, LIMIT).as_secs_f64();
    assert!(took < 1.0, "{took} s");
}

#[test]
fn every_retransmission_policy_repairs_losses_on_the_path_it_names() {
    use RetransmissionPolicy as Policy;
    for policy in RetransmissionPolicy::ALL {
        let way = |index| Way::new(index).rate(10 * MBIT).delay(20).queue_ms(100);
        let ways = vec![way(1).loss(30), way(2).queue_ms(2000)];
        let mechanisms = Mechanisms {
            retransmission: policy,
            ..Mechanisms::default()
        };
        let mut pair = connected(ways, with(mechanisms, Limits::default()));
        pair.transfer(true, 3_000_000, LIMIT);
        let [lossy, clean] = [PathId::ZERO, SLOW].map(|id| path(&mut pair, id).counters);
        let (here, there) = (lossy.retransmitted_bytes, clean.retransmitted_bytes);
        assert!(lossy.lost_bytes > 10_000, "{policy:?}: {lossy:?}");
        match policy {
            // Queue drops of the clean path are repaired there too.
            Policy::Same => assert!(
                // What it holds while it is silent is carried by the other one.
                (here + lossy.reinjected_bytes) * 10 > lossy.lost_bytes * 9 && there < 10_000,
                "{here} {there}, {lossy:?}"
            ),
            Policy::LowestLoss | Policy::LargestWindow => {
                // Where there is no room, the other one has to do.
                assert!(there > here, "{policy:?}: {here} {there}");
            }
            _ => assert!(here + there > 0, "{policy:?}"),
        }
    }
}

/// The packets of one path that carry data although the window is full.
#[derive(Debug, Default)]
struct Excess {
    window: u64,
    in_flight: u64,
    since_loss: u32,
    /// The most of them without a loss in between.
    most: u32,
    datagrams: u32,
}

#[derive(Debug)]
struct ExcessWatch(Arc<Mutex<Excess>>);

impl Observer for ExcessWatch {
    fn observe(&mut self, _: Instant, observation: &Observation<'_>) {
        let mut seen = self.0.lock().expect("no test thread panicked");
        match observation {
            Observation::Metrics { metrics, .. } => {
                seen.window = metrics.congestion_window;
                seen.in_flight = metrics.bytes_in_flight;
            }
            Observation::PacketLost { .. } => seen.since_loss = 0,
            Observation::PacketSent {
                size,
                purpose: Purpose::Frames,
                frames,
                ..
            } => {
                let has = |wanted: fn(&Frame<'_>) -> bool| frames.iter().any(|(_, it)| wanted(it));
                let datagram = has(|frame| matches!(frame, Frame::Datagram { .. }));
                let data = datagram || has(|frame| matches!(frame, Frame::Stream(_)));
                if data && seen.in_flight >= seen.window {
                    seen.since_loss += 1;
                    seen.most = seen.most.max(seen.since_loss);
                    seen.datagrams += u32::from(datagram);
                }
                if has(|frame| !matches!(frame, Frame::Ack(_))) {
                    seen.in_flight += *size as u64;
                }
            }
            _ => {}
        }
    }
}

/// RFC 9002, section 7.3.2: one packet after a loss may leave beyond the window, to repair it.
#[test]
fn one_packet_after_a_loss_leaves_beyond_the_window_and_carries_no_datagrams() {
    let mechanisms = Mechanisms {
        retransmission: RetransmissionPolicy::Same,
        ..Mechanisms::default()
    };
    let way = Way::new(1).rate(10 * MBIT).delay(20).queue_ms(100).loss(20);
    let mut pair = connected(vec![way], with(mechanisms, Limits::default()));
    let stats = path(&mut pair, PathId::ZERO);
    let seen = Arc::new(Mutex::new(Excess {
        window: stats.congestion_window,
        in_flight: stats.bytes_in_flight,
        ..Excess::default()
    }));
    let observer = Box::new(ExcessWatch(seen.clone()));
    pair.client_conn().set_observer(Some(observer));
    watch(&mut pair, 2_000_000, |pair| {
        let client = pair.client_conn();
        if client.backlog().datagrams < 4_000 {
            let data = Bytes::from(vec![9; 1_000]);
            client.send_datagram(data).expect("it fits");
        }
        while pair.server_conn().recv_datagram().is_some() {}
    });
    let seen = seen.lock().expect("no test thread panicked");
    assert_eq!((seen.most, seen.datagrams), (1, 0), "{seen:?}");
}

#[test]
fn fresh_data_does_not_wait_for_the_path_that_lost_something() {
    let took = [RetransmissionPolicy::Same, RetransmissionPolicy::LowestLoss].map(|policy| {
        let way = |index| Way::new(index).rate(10 * MBIT).queue_ms(2000);
        let ways = vec![way(1).delay(100).loss(20), way(2).delay(20)];
        let mechanisms = Mechanisms {
            retransmission: policy,
            ..Mechanisms::default()
        };
        let mut pair = connected(ways, with(mechanisms, Limits::default()));
        pair.transfer(true, 3_000_000, LIMIT)
    });
    assert!(took[0] < took[1].mul_f64(1.5), "{took:?}");
}

#[test]
fn mechanisms_change_nothing_unless_set() {
    let trace = |config: TransportConfig| {
        let mut pair = connected(unequal(), config);
        pair.transfer(true, 500_000, LIMIT);
        let slow = path(&mut pair, SLOW);
        assert_eq!(slow.usable_window, slow.congestion_window);
        pair.trace
    };
    let roomy = Mechanisms {
        split_send: Split::Equal,
        rescue: Rescue::Copy,
        ..Mechanisms::default()
    };
    let limits = Limits {
        send_buffer: 1 << 40,
        ..Limits::default()
    };
    let plain = trace(with(Mechanisms::default(), Limits::default()));
    assert_eq!(
        trace(with(roomy, limits)),
        plain,
        "caps that do not bind do nothing"
    );
}
