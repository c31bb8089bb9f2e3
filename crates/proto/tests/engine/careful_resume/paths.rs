//! Further paths begin where an earlier connection left them, too.

use super::*;
use anabranch_proto::datagram::SocketId;
use anabranch_proto::path::PathOptions;
use anabranch_proto::wire::frame::PathStatus;
use std::net::IpAddr;

/// A token for one address, in bytes, and what a further one adds.
const TOKEN: usize = 61;
const FURTHER: usize = 24;

impl Visits {
    /// Opens a path over a way, from the client's address there.
    fn open(&mut self, way: usize) -> PathId {
        let local = self.pair.ways[way].server.remote.ip();
        self.open_from(way, Some(local))
    }

    fn open_from(&mut self, way: usize, local: Option<IpAddr>) -> PathId {
        let (tuple, now) = (self.pair.ways[way].client, self.pair.now);
        let client = self.pair.client_conn();
        let opened = client.open_path_from(now, tuple, local, PathOptions::default());
        let id = opened.expect("there is room for one more");
        let both = self.pair.run_until(5 * RTT, |pair| {
            [true, false].into_iter().all(|server| {
                let stats = pair.side(server).and_then(|side| side.path_stats(id));
                stats.is_some_and(|stats| stats.validated)
            })
        });
        assert!(both, "path {id} was not validated");
        id
    }

    /// Files go by this path alone from now on.
    fn use_only(&mut self, id: PathId) {
        for server in [true, false] {
            let side = self.pair.side(server).expect("a connection");
            let others: Vec<_> = side.paths().filter(|other| *other != id).collect();
            for other in others {
                let set = side.set_path_status(other, PathStatus::Backup);
                set.expect("it is open");
            }
        }
        self.pair.run_for(RTT);
        self.path = id;
    }

    /// Opens a path, and files go by it alone.
    fn turn_to(&mut self, way: usize) {
        let id = self.open(way);
        self.use_only(id);
    }
}

/// A file goes by the second path in a first visit, and again in another one, before which
/// something is changed.
fn both_ways(download: bool, change: impl FnOnce(&mut Visits)) -> [Course; 2] {
    let mut visits = Visits::new();
    // Otherwise the first path would have nothing of its own to resume from.
    visits.transfer(download, FILE);
    visits.turn_to(1);
    let first = visits.transfer(download, FILE);
    visits.keep();
    change(&mut visits);
    visits.come_again();
    visits.turn_to(1);
    [first, visits.transfer(download, FILE)]
}

/// Whether the second one took almost two round trips less. Its path knew its largest packet in
/// both, which is worth the rest.
fn is_faster([first, second]: &[Course; 2]) -> bool {
    first.took >= second.took + RTT * 7 / 4
}

#[test]
fn a_second_path_resumes_a_download_when_the_client_comes_again() {
    let both = both_ways(true, |_| {});
    assert!(is_faster(&both), "{both:?}");
    assert_eq!(both[1].stats.counters.lost_bytes, 0);
}

#[test]
fn and_an_upload_too() {
    let both = both_ways(false, |_| {});
    assert!(is_faster(&both), "{both:?}");
}

#[test]
fn two_paths_at_once_both_resume() {
    for download in [true, false] {
        let mut visits = Visits::new();
        visits.open(1);
        let first = visits.transfer(download, 2 * FILE);
        visits.keep();
        if download {
            let token = visits.pair.client_conn().next_token().len();
            assert_eq!(token, TOKEN + FURTHER, "of both addresses");
        }
        visits.come_again();
        visits.path = visits.open(1);
        let second = visits.transfer(download, 2 * FILE);
        assert!(
            first.took >= second.took + 3 * RTT / 2,
            "{first:?} {second:?}"
        );
        assert!(second.widest > 10 * INITIAL, "{second:?}");
    }
}

#[test]
fn what_paths_carry_is_told_ten_times_at_most() {
    let small = "cubic:initial-window=2".parse().expect("a name");
    let mut visits = Visits::of(TransportConfig {
        congestion: Registry::builtin().factory(&small).expect("a controller"),
        ..TransportConfig::default()
    });
    visits.pair.run_for(2 * RTT);
    let first = visits.transfer(true, 4 * FILE).tokens.len();
    visits.turn_to(1);
    let second = visits.transfer(true, 4 * FILE).tokens.len();
    assert!(
        first >= 5,
        "each time that it carries twice as much: {first}"
    );
    assert_eq!(first + second, 10);
}

#[test]
fn a_token_names_no_address_that_is_not_proven() {
    let mut visits = Visits::new();
    visits.turn_to(1);
    // A little more, and there is something to tell.
    let told = visits.transfer(true, 80_000).tokens;
    assert!(told.is_empty(), "{told:?}");
    // The first path moves, and the server has to ask who is there.
    let (tuple, now) = (visits.pair.ways[2].client, visits.pair.now);
    let client = visits.pair.client_conn();
    let moved = client.migrate_path(now, PathId::ZERO, tuple);
    moved.expect("the handshake is confirmed");
    client.ping(PathId::ZERO).expect("it is open");
    let told = visits.transfer(true, FILE).tokens;
    assert_eq!(told.first(), Some(&TOKEN), "{told:?}");
    assert_eq!(told.last(), Some(&(TOKEN + FURTHER)), "once it knows");
}

#[test]
fn a_second_path_from_another_address_resumes_nothing() {
    for download in [true, false] {
        let both = both_ways(download, |visits| {
            let elsewhere = "10.0.9.1".parse().expect("an address");
            visits.pair.ways[1].server.remote.set_ip(elsewhere);
        });
        assert!(is_as_slow(&both), "{both:?}");
    }
}

#[test]
fn a_second_path_does_not_resume_what_the_first_one_carried() {
    for download in [true, false] {
        let mut visits = Visits::new();
        let first = visits.transfer(download, FILE);
        visits.keep();
        visits.come_again();
        visits.turn_to(1);
        let both = [first, visits.transfer(download, FILE)];
        assert!(is_as_slow(&both), "{both:?}");
    }
}

#[test]
fn which_path_the_handshake_takes_does_not_matter() {
    let mut visits = Visits::new();
    visits.turn_to(1);
    let first = visits.download();
    visits.keep();
    // The other network answers first.
    visits.pair.ways.swap(0, 1);
    visits.come_again();
    let both = [first, visits.download()];
    assert!(is_faster(&both), "{both:?}");
}

#[test]
fn of_several_paths_from_one_address_one_resumes() {
    let mut visits = Visits::new();
    visits.turn_to(1);
    let first = visits.download();
    visits.keep();
    let shared = visits.pair.ways[1].server.remote.ip();
    visits.pair.ways[2].server.remote.set_ip(shared);
    visits.come_again();
    visits.open(1);
    visits.turn_to(2);
    let both = [first, visits.download()];
    assert!(is_as_slow(&both), "{both:?}");
}

#[test]
fn a_path_that_is_opened_again_resumes_nothing() {
    for download in [true, false] {
        let mut visits = Visits::new();
        visits.turn_to(1);
        let first = visits.transfer(download, FILE);
        visits.keep();
        visits.come_again();
        let (id, now) = (visits.open(1), visits.pair.now);
        let left = visits.pair.client_conn().abandon_path(now, id, 0);
        left.expect("there is another path");
        visits.pair.run_for(10 * RTT);
        visits.turn_to(1);
        let both = [first, visits.transfer(download, FILE)];
        assert!(is_as_slow(&both), "{both:?}");
    }
}

#[test]
fn an_upload_whose_path_could_be_another_one_resumes_nothing() {
    let mut visits = Visits::new();
    let visit = |visits: &mut Visits| {
        visits.transfer(false, FILE / 2);
        // The driver does not know from where; the server is the same for both paths.
        let id = visits.open_from(1, None);
        visits.use_only(id);
        visits.transfer(false, FILE)
    };
    let first = visit(&mut visits);
    visits.keep();
    visits.come_again();
    let both = [first, visit(&mut visits)];
    assert!(is_as_slow(&both), "{both:?}");
}

/// A path of the client's moves to another way to the server's other address, from the same socket
/// or another one, and uploads there; in another visit a path that is opened there does.
fn moved(same_socket: bool, told: bool) -> [Course; 2] {
    let mut visits = Visits::new();
    let [_, before, after] = &mut visits.pair.ways[..] else {
        panic!("three ways")
    };
    let other: IpAddr = "10.1.0.2".parse().expect("an address");
    after.client.remote.set_ip(other);
    after.server.socket = SocketId(1);
    if same_socket {
        after.client.socket = before.client.socket;
        after.server.remote = before.server.remote;
    }
    let (tuple, local) = (after.client, after.server.remote.ip());
    visits.turn_to(1);
    let (id, now) = (visits.path, visits.pair.now);
    let client = visits.pair.client_conn();
    let moved = client.migrate_path_from(now, id, tuple, told.then_some(local));
    moved.expect("the handshake is confirmed");
    visits.pair.run_for(5 * RTT);
    let first = visits.transfer(false, FILE);
    assert_eq!(first.stats.tuple, tuple);
    visits.keep();
    visits.come_again();
    let id = visits.open_from(2, (same_socket || told).then_some(local));
    visits.use_only(id);
    [first, visits.transfer(false, FILE)]
}

#[test]
fn a_path_that_moved_is_known_by_the_address_of_its_socket() {
    let both = moved(true, false);
    assert!(is_faster(&both), "{both:?}");
}

#[test]
fn or_by_the_one_that_is_told_of_its_new_socket() {
    let both = moved(false, true);
    assert!(is_faster(&both), "{both:?}");
}

#[test]
fn and_is_not_remembered_without_one() {
    let both = moved(false, false);
    assert!(is_as_slow(&both), "{both:?}");
}
