//! Commands for `ip` and `tc`.

use std::time::Duration;

use anabranch_link::{Jitter, LinkConfig, Loss, LossClock, LossPlace, Probability, Queue, Rate};

use crate::emulate::{ETHERNET_BYTES, LinkPlan, Way};
use crate::filter;

/// Packets that netem holds by default.
pub(super) const NETEM_DEFAULT_PACKETS: u32 = 1000;
/// Packets that netem holds in the middle namespace: more than any delay needs.
const NETEM_PACKETS: u32 = 1_000_000;
/// The burst of a token bucket, as time at the link's rate. If a timer is later than this, the link
/// falls short of its rate; on a busy machine, timers are a millisecond late.
const BURST: Duration = Duration::from_millis(2);
/// Stands for no limit, because a bucket cannot be removed without the packets waiting in it.
const UNLIMITED: u64 = 100_000_000_000;
/// The size of a queue that stays empty.
const ROOM: u64 = 64 << 20;

/// The devices of the middle namespace that a direction passes, in order.
#[derive(Debug)]
pub(super) struct Stations {
    /// Receives packets from the sending host.
    pub(super) entry: String,
    /// Holds packets to limit the rate.
    pub(super) shaper: String,
    /// The other end of `shaper`.
    pub(super) between: String,
    /// Holds packets for the delay, and passes them to the other host.
    pub(super) exit: String,
}

impl Stations {
    pub(super) fn of(link: usize, way: Way) -> Self {
        let [entry, shaper, between, exit] = match way {
            Way::Forward => ["a", "f", "g", "b"],
            Way::Backward => ["b", "r", "s", "a"],
        };
        let name = |letter: &str| format!("{letter}{link}");
        Self {
            entry: name(entry),
            shaper: name(shaper),
            between: name(between),
            exit: name(exit),
        }
    }
}

/// What a configuration asks for that these parts cannot do, if anything.
pub(super) fn lacking(config: &LinkConfig) -> Option<String> {
    let loses = config.loss != Loss::None;
    let jitters = config.jitter != Jitter::None;
    let bursty = matches!(config.loss, Loss::GilbertElliott(_));
    let checks = [
        (matches!(config.rate, Rate::Trace(_)), "a delivery trace"),
        (
            loses && matches!(config.loss_clock, LossClock::Slot(_)),
            "loss by time slots: it draws for each packet",
        ),
        (
            bursty && config.loss_place == LossPlace::BeforeQueue,
            "bursts of loss before the queue: netem comes after it",
        ),
        (
            matches!(config.jitter, Jitter::Stall { .. }),
            "delays of single packets",
        ),
        (
            jitters && !config.reorder,
            "jitter without reordering: netem delays each packet by itself",
        ),
        (
            matches!(config.queue, Queue::Red(_)),
            "RED with a gentle slope and weight of its own",
        ),
    ];
    let lacking: Vec<_> = checks.iter().filter(|check| check.0).collect();
    let names: Vec<_> = lacking.iter().map(|check| check.1).collect();
    (!names.is_empty()).then(|| names.join("; "))
}

/// Whether a configuration needs netem.
pub(super) fn needs_netem(config: &LinkConfig) -> bool {
    !config.delay.is_zero()
        || config.jitter != Jitter::None
        || matches!(config.loss, Loss::GilbertElliott(_))
}

/// Creates the devices of a link.
pub(super) fn devices(link: usize, plan: &LinkPlan) -> Vec<String> {
    let mtu = plan.ends[0].mtu;
    let mut commands = Vec::new();
    for (device, end) in to_hosts(link).iter().zip(&plan.ends) {
        let (name, namespace) = (&end.interface, end.node.namespace());
        commands.push(format!(
            "link add name {device} type veth peer name {name} netns {namespace}"
        ));
    }
    for [near, far] in [["f", "g"], ["r", "s"]] {
        commands.push(format!(
            "link add name {near}{link} type veth peer name {far}{link}"
        ));
    }
    for letter in ["a", "b", "f", "g", "r", "s"] {
        commands.push(format!("link set dev {letter}{link} mtu {mtu} up"));
    }
    commands
}

/// The devices of the middle namespace whose other ends are in the hosts.
pub(super) fn to_hosts(link: usize) -> [String; 2] {
    ["a", "b"].map(|letter| format!("{letter}{link}"))
}

/// Redirects packets from device to device.
pub(super) fn redirections(link: usize) -> Vec<String> {
    let mut commands = Vec::new();
    for way in Way::BOTH {
        let stations = Stations::of(link, way);
        let steps = [
            (&stations.entry, &stations.shaper),
            (&stations.between, &stations.exit),
        ];
        for (from, to) in steps {
            commands.push(format!("qdisc add dev {from} clsact"));
            commands.push(format!(
                "filter add dev {from} ingress protocol all prio 2 handle 1 \
                 bpf bytecode '{}' action mirred egress redirect dev {to}",
                filter::matching_all()
            ));
        }
    }
    commands
}

/// Sets rate and queue.
pub(super) fn shaping(stations: &Stations, config: &LinkConfig, mtu: u32) -> Vec<String> {
    let (rate, burst) = match &config.rate {
        Rate::Fixed {
            bits_per_second,
            burst,
        } => (bits_per_second.get(), u64::from(*burst)),
        Rate::Unlimited | Rate::Trace(_) => (UNLIMITED, 0),
    };
    let device = &stations.shaper;
    let bytes_of = |time: Duration| {
        let bytes = u128::from(rate) * time.as_nanos() / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    };
    // A packet larger than the bucket would never pass; room for two allows for a late timer.
    let frames = 2 * u64::from(mtu + ETHERNET_BYTES);
    let burst = burst.max(bytes_of(BURST)).max(frames);
    // The packet being sent is in this queue too, although it does not count as waiting.
    let extra = u64::from(mtu);
    let limit = match config.queue {
        _ if rate == UNLIMITED => ROOM,
        Queue::TailDropBytes(bytes) => bytes.saturating_add(extra).min(u64::from(u32::MAX)),
        _ => ROOM,
    };
    let mut commands = vec![format!(
        "qdisc replace dev {device} root handle 1: stab overhead -{ETHERNET_BYTES} \
         linklayer ethernet tbf rate {rate}bit burst {burst} limit {limit}"
    )];
    match config.queue {
        Queue::TailDropPackets(packets) => {
            let limit = packets.saturating_add(1).min(u64::from(u32::MAX));
            commands.push(format!(
                "qdisc replace dev {device} parent 1:1 handle 10: pfifo limit {limit}"
            ));
        }
        Queue::CoDel(codel) => {
            let limit = (codel.limit_bytes / u64::from(mtu)).max(1);
            commands.push(format!(
                "qdisc replace dev {device} parent 1:1 handle 10: codel limit {limit} \
                 target {}us interval {}us noecn",
                codel.target.as_micros(),
                codel.interval.as_micros()
            ));
        }
        Queue::TailDropBytes(_) | Queue::Red(_) => {}
    }
    commands
}

/// Configures netem on a device.
pub(super) fn delaying(device: &str, config: &LinkConfig, limit: Option<u32>) -> String {
    let limit = limit.unwrap_or(NETEM_PACKETS);
    let micros = |time: Duration| format!("{}us", time.as_nanos() as f64 / 1e3);
    let jitter = match config.jitter {
        Jitter::None | Jitter::Stall { .. } => String::new(),
        Jitter::Uniform(spread) => format!(" {}", micros(spread)),
        Jitter::Normal(deviation) => format!(" {} distribution normal", micros(deviation)),
    };
    let percent = |p: Probability| p.as_f64() * 100.0;
    let loss = match config.loss {
        Loss::GilbertElliott(model) => format!(
            " loss gemodel {:.6}% {:.6}% {:.6}% {:.6}%",
            percent(model.to_bad),
            percent(model.to_good),
            percent(model.loss_bad),
            percent(model.loss_good)
        ),
        Loss::None | Loss::Independent(_) => String::new(),
    };
    let delay = micros(config.delay);
    format!(
        "qdisc replace dev {device} root handle 2: netem limit {limit} delay {delay}{jitter}{loss}"
    )
}

/// Detaches a host's packets from their socket as they leave, which netem does if it has any delay.
pub(super) fn releasing(device: &str) -> String {
    format!("qdisc replace dev {device} root handle 3: netem limit {NETEM_PACKETS} delay 1us")
}

/// Sets the filters: random loss in one place, silence in both.
pub(super) fn losing(stations: &Stations, config: &LinkConfig, silent: bool) -> Vec<String> {
    let chance = match config.loss {
        Loss::Independent(probability) => probability.as_f64(),
        Loss::None | Loss::GilbertElliott(_) => 0.0,
    };
    let places = [
        (&stations.entry, LossPlace::BeforeQueue),
        (&stations.between, LossPlace::AfterQueue),
    ];
    let commands = places.map(|(device, place)| {
        let probability = match (silent, config.loss_place == place) {
            (true, _) => 1.0,
            (false, true) => chance,
            (false, false) => 0.0,
        };
        // Replacing changes the filter without a gap.
        format!(
            "filter replace dev {device} ingress protocol all prio 1 handle 1 \
             bpf direct-action bytecode '{}'",
            filter::losing(probability, filter::ASK_NEXT)
        )
    });
    commands.into()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use anabranch_link::CoDel;

    use super::*;

    fn mbit(rate: u64) -> Rate {
        Rate::Fixed {
            bits_per_second: NonZeroU64::new(rate * 1_000_000).unwrap(),
            burst: 0,
        }
    }

    #[test]
    fn rate_and_queue_become_a_bucket_that_counts_ip_bytes() {
        let stations = Stations::of(3, Way::Forward);
        let config = LinkConfig {
            queue: Queue::TailDropBytes(30_000),
            ..LinkConfig::new(mbit(10), Duration::ZERO)
        };
        let expected = "qdisc replace dev f3 root handle 1: stab overhead -14 linklayer \
                        ethernet tbf rate 10000000bit burst 3028 limit 31500";
        assert_eq!(shaping(&stations, &config, 1500), [expected]);
        let fast = LinkConfig::new(mbit(800), Duration::ZERO);
        let commands = shaping(&stations, &fast, 1500);
        assert!(commands[0].contains("burst 200000"), "{commands:?}");
        assert!(commands[1].ends_with("pfifo limit 1001"), "{commands:?}");
        let codel = LinkConfig {
            queue: Queue::CoDel(CoDel::default()),
            ..fast
        };
        let commands = shaping(&stations, &codel, 1500);
        let expected = "codel limit 666 target 5000us interval 100000us noecn";
        assert!(commands[1].ends_with(expected), "{commands:?}");
    }

    #[test]
    fn delay_jitter_and_bursts_are_netems() {
        let config = LinkConfig {
            jitter: Jitter::Normal(Duration::from_micros(1500)),
            loss: Loss::GilbertElliott(
                anabranch_link::GilbertElliott::from_mean(0.01, 4.0).unwrap(),
            ),
            ..LinkConfig::new(Rate::Unlimited, Duration::from_millis(20))
        };
        let expected = "qdisc replace dev b0 root handle 2: netem limit 1000000 delay 20000us \
                        1500us distribution normal loss gemodel 0.252525% 25.000000% \
                        100.000000% 0.000000%";
        assert_eq!(delaying("b0", &config, None), expected);
    }

    #[test]
    fn programs_are_quoted_as_tc_reads_them() {
        let stations = Stations::of(0, Way::Backward);
        let half = Loss::Independent(Probability::new(0.5).unwrap());
        let config = LinkConfig {
            loss: half,
            ..LinkConfig::default()
        };
        let [before, after] = losing(&stations, &config, false).try_into().unwrap();
        assert!(before.contains("dev b0 ingress"), "{before}");
        assert!(
            before.contains("bytecode '1,6 0 0 4294967295,'"),
            "{before}"
        );
        assert!(after.contains("dev s0 ingress"), "{after}");
        let program = "'4,32 0 0 4294963256,53 0 1 2147483648,6 0 0 4294967295,6 0 0 2,'";
        assert!(after.contains(program), "{after}");
        let silent = losing(&stations, &config, true);
        assert!(
            silent
                .iter()
                .all(|command| command.contains("'1,6 0 0 2,'"))
        );
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        assert_eq!(lacking(&LinkConfig::default()), None);
        let jitter = LinkConfig {
            jitter: Jitter::Uniform(Duration::from_millis(1)),
            loss: Loss::Independent(Probability::ALWAYS),
            loss_clock: LossClock::Slot(NonZeroU64::MIN),
            ..LinkConfig::default()
        };
        let what = lacking(&jitter).unwrap();
        assert!(
            what.contains("time slots") && what.contains("without reordering"),
            "{what}"
        );
        let reordering = LinkConfig {
            reorder: true,
            loss: Loss::None,
            ..jitter
        };
        assert_eq!(lacking(&reordering), None);
    }
}
