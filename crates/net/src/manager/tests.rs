//! The decisions of the path manager's table.

use super::table::{EntryState, Request, Seen, Table};
use super::*;
use crate::engine::PathNotice;
use anabranch_proto::datagram::Tuple;
use std::net::IpAddr;

fn candidate(index: u32) -> Candidate {
    Candidate {
        index,
        interface: format!("eth{index}"),
        local: IpAddr::from([10, 0, index as u8, 2]),
        remote: "192.0.2.1:443".parse().unwrap(),
        number: 0,
        options: SpecOptions::default(),
        bind_device: true,
    }
}

fn remotes() -> Vec<SocketAddr> {
    ["192.0.2.1:443", "[2001:db8::1]:443", "192.0.2.2:443"]
        .map(|remote| remote.parse().unwrap())
        .to_vec()
}

fn opened(id: u32) -> PathNotice {
    let remote = "192.0.2.1:443".parse().unwrap();
    let tuple = Tuple {
        socket: SocketId(id),
        local: None,
        remote,
    };
    PathNotice::Opened {
        id: PathId(id),
        tuple,
    }
}

fn abandoned(id: u32) -> PathNotice {
    PathNotice::Abandoned {
        id: PathId(id),
        code: 0,
        by_peer: true,
    }
}

/// What a connection says of these paths, and that it knows no others.
fn told<const N: usize>(paths: [(PathId, Seen); N]) -> impl Fn(PathId) -> Option<Seen> {
    move |path| {
        paths
            .iter()
            .find_map(|(id, seen)| (*id == path).then_some(*seen))
    }
}

fn states(table: &Table) -> Vec<EntryState> {
    table
        .entries()
        .into_iter()
        .map(|entry| entry.state)
        .collect()
}

/// Interface 1 carries path 0 over socket 0; interface 2 is wanted as well.
fn two(now: Instant) -> Table {
    let mut table = Table::new(candidate(1), SocketId(0), remotes(), now);
    table.on_wanted(&[candidate(1), candidate(2)], now);
    table
}

/// Both interfaces carry an open path.
fn two_open(now: Instant) -> Table {
    let mut table = two(now);
    assert_eq!(table.next_request(now), Some(Request::Open { entry: 1 }));
    table.on_opening(1, PathId(1), SocketId(1));
    table.on_notice(opened(1), now);
    table
}

#[tokio::test(start_paused = true)]
async fn a_path_is_opened_for_each_wanted_interface() {
    let now = Instant::now();
    let mut table = two_open(now);
    assert_eq!(
        states(&table),
        [EntryState::Open(PathId(0)), EntryState::Open(PathId(1))]
    );
    assert_eq!(table.next_request(now), None);
    assert_eq!(table.next_due(), None);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_capacity_is_asked_again_when_it_says_so() {
    let now = Instant::now();
    let mut table = two(now);
    table.on_no_capacity();
    assert_eq!(table.next_request(now), None);
    assert_eq!(table.next_due(), None);
    table.on_notice(PathNotice::Capacity, now);
    assert_eq!(table.next_request(now), Some(Request::Open { entry: 1 }));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_fails_is_opened_again_after_ever_longer_pauses() {
    let start = Instant::now();
    let mut now = start;
    let mut table = two_open(now);
    let mut pauses = Vec::new();
    for id in 1..8 {
        table.on_notice(abandoned(id), now);
        assert_eq!(table.next_request(now), None);
        let due = table.next_due().unwrap();
        pauses.push((due - now).as_secs());
        now = due;
        assert_eq!(table.next_request(now), Some(Request::Open { entry: 1 }));
        table.on_opening(1, PathId(id + 1), SocketId(id + 1));
        table.on_notice(opened(id + 1), now);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    now += Duration::from_secs(31);
    table.on_notice(abandoned(8), now);
    assert_eq!(
        (table.next_due().unwrap() - now).as_secs(),
        1,
        "it was stable in between"
    );
}

#[tokio::test(start_paused = true)]
async fn a_socket_is_closed_when_its_path_is_gone_and_not_before() {
    let now = Instant::now();
    let mut table = two_open(now);
    table.on_notice(abandoned(1), now);
    assert_eq!(table.next_request(now), None);
    assert_eq!(table.sockets(), [SocketId(0), SocketId(1)]);
    table.on_notice(PathNotice::Discarded { id: PathId(1) }, now);
    assert_eq!(
        table.next_request(now),
        Some(Request::RemoveSocket {
            socket: SocketId(1)
        })
    );
    assert_eq!(table.sockets(), [SocketId(0)]);
}

#[tokio::test(start_paused = true)]
async fn a_vanished_interface_is_doubted_and_its_path_abandoned_over_another() {
    let now = Instant::now();
    let mut table = two_open(now);
    table.on_wanted(&[candidate(2)], now);
    assert_eq!(states(&table)[0], EntryState::Lost(PathId(0)));
    assert_eq!(
        table.next_request(now),
        Some(Request::Doubt {
            socket: SocketId(0)
        })
    );
    assert_eq!(
        table.next_request(now),
        Some(Request::Abandon { path: PathId(0) })
    );
    table.on_abandoning(PathId(0), false);
    table.on_notice(abandoned(0), now);
    assert_eq!(
        states(&table),
        [EntryState::Open(PathId(1))],
        "forgotten, not reopened"
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_path_is_kept_until_there_is_another() {
    let now = Instant::now();
    let mut table = Table::new(candidate(1), SocketId(0), remotes(), now);
    table.on_wanted(&[], now);
    assert_eq!(
        table.next_request(now),
        Some(Request::Doubt {
            socket: SocketId(0)
        })
    );
    assert_eq!(
        table.next_request(now),
        None,
        "nothing could carry the message"
    );
    table.on_wanted(&[candidate(2)], now);
    assert_eq!(table.next_request(now), Some(Request::Open { entry: 1 }));
    table.on_opening(1, PathId(1), SocketId(1));
    table.on_notice(opened(1), now);
    assert_eq!(
        table.next_request(now),
        Some(Request::Abandon { path: PathId(0) })
    );
}

#[tokio::test(start_paused = true)]
async fn an_interface_that_comes_back_in_time_keeps_its_path() {
    let now = Instant::now();
    let mut table = Table::new(candidate(1), SocketId(0), remotes(), now);
    table.on_wanted(&[], now);
    table.on_wanted(&[candidate(1)], now);
    assert_eq!(states(&table), [EntryState::Silent(PathId(0))]);
    let recovered = PathNotice::Recovered {
        id: PathId(0),
        after: Duration::from_secs(1),
    };
    table.on_notice(recovered, now);
    assert_eq!(states(&table), [EntryState::Open(PathId(0))]);
}

#[tokio::test(start_paused = true)]
async fn a_replugged_interface_gets_a_new_path_at_once() {
    let now = Instant::now();
    let mut table = two_open(now);
    table.on_wanted(&[candidate(1)], now);
    let mut again = candidate(2);
    again.index = 9;
    table.on_wanted(&[candidate(1), again], now);
    assert_eq!(
        table.next_request(now),
        Some(Request::Doubt {
            socket: SocketId(1)
        })
    );
    assert_eq!(
        table.next_request(now),
        Some(Request::Abandon { path: PathId(1) })
    );
    assert_eq!(table.next_request(now), Some(Request::Open { entry: 2 }));
}

#[tokio::test(start_paused = true)]
async fn missed_notices_are_made_up_for_by_looking() {
    let now = Instant::now();
    let mut table = two(now);
    table.on_opening(1, PathId(1), SocketId(1));
    table.on_missed(told([(PathId(1), Seen::Active)]), now);
    assert_eq!(
        states(&table),
        [
            EntryState::Waiting { failures: 1 },
            EntryState::Open(PathId(1))
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_missed_doubt_and_a_missed_recovery_are_made_up_for() {
    let now = Instant::now();
    let mut table = two_open(now);
    let (first, second) = (PathId(0), PathId(1));
    let told_of = [(first, Seen::Active), (second, Seen::Doubtful)];
    table.on_missed(told(told_of), now);
    assert_eq!(
        states(&table),
        [EntryState::Open(first), EntryState::Silent(second)]
    );
    let told_of = [(first, Seen::Doubtful), (second, Seen::Active)];
    table.on_missed(told(told_of), now);
    assert_eq!(
        states(&table),
        [EntryState::Silent(first), EntryState::Open(second)]
    );
    assert_eq!(table.next_request(now), None);
}

#[tokio::test(start_paused = true)]
async fn a_lost_path_is_abandoned_even_if_the_recovery_of_the_other_was_missed() {
    let now = Instant::now();
    let mut table = two_open(now);
    table.on_notice(PathNotice::Doubted { id: PathId(1) }, now);
    table.on_wanted(&[candidate(2)], now);
    let doubt = Request::Doubt {
        socket: SocketId(0),
    };
    assert_eq!(table.next_request(now), Some(doubt));
    assert_eq!(table.next_request(now), None, "no path would carry it");
    let seen = [(PathId(0), Seen::Doubtful), (PathId(1), Seen::Active)];
    table.on_missed(told(seen), now);
    let abandon = Request::Abandon { path: PathId(0) };
    assert_eq!(table.next_request(now), Some(abandon));
}

#[tokio::test(start_paused = true)]
async fn missed_notices_close_the_sockets_of_discarded_paths_only() {
    let now = Instant::now();
    let mut table = two_open(now);
    table.on_notice(abandoned(0), now);
    table.on_notice(abandoned(1), now);
    table.on_missed(told([(PathId(1), Seen::Closing)]), now);
    let removed = Request::RemoveSocket {
        socket: SocketId(0),
    };
    assert_eq!(table.next_request(now), Some(removed));
    assert_eq!(table.next_request(now), None);
    assert_eq!(table.sockets(), [SocketId(1)], "it carries the farewell");
}

fn given_up(id: u32) -> PathNotice {
    PathNotice::Abandoned {
        id: PathId(id),
        code: 0,
        by_peer: false,
    }
}

/// Lets the path of entry 1 be opened so many times in vain, as a dead link does; the pauses before
/// the attempts, and where they led. The last path had the ID `id`.
fn tried_in_vain(
    table: &mut Table,
    now: &mut Instant,
    id: &mut u32,
    times: u32,
) -> Vec<(Duration, SocketAddr)> {
    let mut tried = Vec::new();
    for _ in 0..times {
        table.on_notice(given_up(*id), *now);
        let due = table.next_due().unwrap();
        assert_eq!(table.next_request(due), Some(Request::Open { entry: 1 }));
        *id += 1;
        table.on_opening(1, PathId(*id), SocketId(*id));
        tried.push((due - *now, table.candidate(1).remote));
        *now = due + Duration::from_secs(3);
    }
    tried
}

#[tokio::test(start_paused = true)]
async fn a_path_that_used_to_work_is_asked_for_every_second_for_a_minute_and_then_ever_less() {
    let mut now = Instant::now();
    let mut table = two_open(now);
    now += Duration::from_secs(60);
    let mut id = 1;
    let tried = tried_in_vain(&mut table, &mut now, &mut id, 100);
    // The first one follows what the path was as long as it worked.
    let pauses: Vec<Duration> = tried[1..].iter().map(|(pause, _)| *pause).collect();
    let (prompt, later) = pauses.split_at(19);
    let longest = prompt.iter().max().unwrap();
    assert!(*longest < Duration::from_millis(500), "{longest:?}");
    let later: Vec<u64> = later.iter().map(Duration::as_secs).collect();
    assert_eq!(later[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(later.iter().max(), Some(&60), "for ever");
    let tried: Vec<SocketAddr> = tried.iter().map(|(_, remote)| *remote).collect();
    let proven = remotes()[0];
    let other = remotes()[2];
    assert_eq!(tried[..5], [proven, proven, proven, proven, other]);
    // A peer that refuses the path is asked less often.
    table.on_notice(abandoned(id), now);
    assert!(table.next_due().unwrap() - now >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_dead_for_long_is_asked_for_at_once_when_its_interface_changes() {
    let mut now = Instant::now();
    let mut table = two_open(now);
    let mut id = 1;
    tried_in_vain(&mut table, &mut now, &mut id, 60);
    table.on_notice(given_up(id), now);
    let due = table.next_due().unwrap();
    assert_eq!((due - now).as_secs(), 60);
    table.on_changed(1, now);
    assert_eq!(table.next_due(), Some(due), "that is another one's");
    table.on_changed(2, now);
    assert_eq!(table.next_request(now), Some(Request::Open { entry: 1 }));
    // And then as often as if it had died just now.
    table.on_opening(1, PathId(id + 1), SocketId(id + 1));
    table.on_notice(given_up(id + 1), now);
    assert!(table.next_due().unwrap() - now < Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_dead_for_long_is_asked_for_every_second_when_no_other_works() {
    let mut now = Instant::now();
    let mut table = two_open(now);
    let mut id = 1;
    tried_in_vain(&mut table, &mut now, &mut id, 60);
    table.on_notice(given_up(id), now);
    assert_eq!((table.next_due().unwrap() - now).as_secs(), 60);
    table.on_notice(PathNotice::Doubted { id: PathId(0) }, now);
    assert!(table.next_due().unwrap() - now < Duration::from_millis(500));
    let after = Duration::from_secs(1);
    table.on_notice(
        PathNotice::Recovered {
            id: PathId(0),
            after,
        },
        now,
    );
    assert_eq!((table.next_due().unwrap() - now).as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_multipath_is_not_asked_again() {
    let now = Instant::now();
    let mut table = two(now);
    table.give_up_opening();
    assert_eq!(table.next_request(now), None);
    assert_eq!(table.next_due(), None);
}

#[test]
fn the_race_tries_the_other_address_family_last_and_each_interface_once() {
    use crate::interfaces::{Address, Interface, Kind};
    let interface = |index: u32, addresses: &[(&str, u8)]| Interface {
        index,
        name: format!("eth{index}"),
        kind: Kind::Uplink,
        up: true,
        running: true,
        mtu: 1500,
        addresses: addresses
            .iter()
            .map(|(ip, prefix_len)| Address {
                ip: ip.parse().unwrap(),
                prefix_len: *prefix_len,
            })
            .collect(),
        gateways: Vec::new(),
        default_route: false,
        destinations: ["0.0.0.0", "::"]
            .map(|ip| Address {
                ip: ip.parse().unwrap(),
                prefix_len: 0,
            })
            .into(),
    };
    let interfaces = [
        interface(1, &[("10.0.1.2", 24), ("2001:db8::2", 64)]),
        interface(2, &[("10.0.2.2", 24)]),
    ];
    let remotes = [
        "[2001:db8:1::1]:443".parse().unwrap(),
        "192.0.2.1:443".parse().unwrap(),
    ];
    let specs = ["auto,paths=2".parse().unwrap()];
    let candidates = start::first_candidates(&specs, &interfaces, &remotes);
    let order = candidates.iter().map(|one| one.local.to_string());
    assert!(order.eq(["2001:db8::2", "10.0.2.2", "10.0.1.2"]));
    // Interfaces at nearly the same time, another address of one of them much later.
    let config = PathsConfig::default();
    let pauses = |candidates: &[Candidate]| [1, 2, 3].map(|at| config.pause(candidates, at));
    assert_eq!(pauses(&candidates), [SPREAD, STAGGER, STAGGER]);
    let mut reserve = candidates;
    reserve[1].options.status = PathStatus::Backup;
    assert_eq!(pauses(&reserve), [STAGGER; 3], "a path in reserve waits");
}

#[test]
fn a_path_that_never_opened_tries_the_peers_next_address() {
    let now = Instant::now();
    let mut table = two(now);
    let mut tried = Vec::new();
    let mut at = now;
    for id in 1..=3 {
        table.on_opening(1, PathId(id), SocketId(id));
        tried.push(table.candidate(1).remote.to_string());
        at += Duration::from_secs(60);
        table.on_notice(abandoned(id), at);
    }
    assert_eq!(tried, ["192.0.2.1:443", "192.0.2.2:443", "192.0.2.1:443"]);
    assert_eq!(table.entries().len(), 2);
    // A wanted path matches by where it starts, even if it leads elsewhere by now.
    table.on_wanted(&[candidate(1), candidate(2)], at);
    assert_eq!(table.entries().len(), 2);
}

#[test]
fn a_path_that_was_open_returns_to_the_same_address() {
    let now = Instant::now();
    let mut table = two_open(now);
    let before = table.candidate(1).remote;
    table.on_notice(abandoned(1), now);
    assert_eq!(table.candidate(1).remote, before);
}

#[tokio::test(start_paused = true)]
async fn an_open_path_that_is_wanted_otherwise_is_used_otherwise() {
    let now = Instant::now();
    let mut table = two_open(now);
    let mut backup = candidate(2);
    backup.options.status = PathStatus::Backup;
    table.on_wanted(&[candidate(1), backup.clone()], now);
    let (path, options) = (PathId(1), backup.options);
    assert_eq!(
        table.next_request(now),
        Some(Request::Use { path, options })
    );
    table.on_wanted(&[candidate(1), backup], now);
    assert_eq!(table.next_request(now), None, "once");
}
