//! What the manager knows of itself whoever changes its slots.

use super::*;
use crate::cid_format::{CidFormat, Routable};
use crate::config::TransportConfig;
use crate::datagram::{SocketId, Tuple};
use crate::handshake::token::EndpointKeys;
use crate::packet::Frames;
use crate::path::route::Route;
use crate::path::state::PathOptions;
use crate::recovery::PacketSpace;
use crate::recovery::sent::{SentFrame, SentFrames};
use crate::rng::Rng;
use std::sync::Arc;

fn path(id: u32) -> Path {
    let mut rng = Rng::from_seed([1; 32]);
    let tuple = Tuple {
        socket: SocketId(0),
        local: None,
        remote: "192.0.2.1:4433".parse().unwrap(),
    };
    let (config, now) = (TransportConfig::default(), Instant::ZERO);
    let route = Route::new(&config, &mut rng, now, PathId(id), tuple, 0);
    let space = PacketSpace::new(&mut rng);
    Path::new(PathId(id), space, route, PathOptions::default(), now)
}

fn manager() -> Manager {
    let mut paths = Manager::new(path(0));
    paths.negotiate(PathId(2), PathId(2));
    paths.put(path(1), PathStatus::Available);
    paths
}

/// Writes what is owed, up to `limit` bytes; returns what that was.
fn write(paths: &mut Manager, limit: usize) -> SentFrames {
    let mut buf = Vec::new();
    let mut frames = Frames::new(&mut buf, limit);
    paths.write_control(&mut frames, true);
    frames.into_sent()
}

fn issue(paths: &mut Manager) {
    issue_as(paths, &CidFormat::default());
}

fn issue_as(paths: &mut Manager, format: &CidFormat) {
    let mut rng = Rng::from_seed([2; 32]);
    let mut source = CidSource {
        rng: &mut rng,
        keys: &EndpointKeys::from_seed([3; 32]),
        format,
    };
    paths.issue_cids(&mut source, 2);
}

#[test]
fn connection_ids_of_all_paths_carry_the_servers_number() {
    let mut paths = manager();
    let routable = Routable::new(2, &[0xab, 0xcd], 8, None).unwrap();
    issue_as(&mut paths, &CidFormat::Routable(Arc::new(routable)));
    let issued: Vec<_> = std::iter::from_fn(|| paths.poll_routing()).collect();
    assert_eq!(issued.len(), 5, "a spare for open paths, one for others");
    for change in issued {
        let Routing::AddCid(cid, _) = change else {
            panic!("{change:?} is none");
        };
        assert_eq!(cid.as_slice()[..3], [0x4a, 0xab, 0xcd]);
    }
}

#[test]
fn every_change_of_a_slot_tells_whether_frames_are_owed() {
    let mut paths = manager();
    assert!(!paths.owes_frames());
    issue(&mut paths);
    assert!(paths.owes_frames());
    let sent = write(&mut paths, 1200);
    assert_eq!(sent.len(), 5, "a spare for open paths, one for others");
    assert!(!paths.owes_frames());
    paths.on_frame_lost(&sent[2]);
    assert!(paths.owes_frames());
    paths.on_frame_acked(&sent[2]);
    assert!(!paths.owes_frames(), "that was no loss");
    for id in [PathId(0), PathId(1)] {
        assert!(paths.set_status(id, PathStatus::Backup).is_some());
    }
    assert_eq!(write(&mut paths, 7).len(), 1, "it ends where it is told to");
    assert!(paths.owes_frames());
}

#[test]
fn what_a_path_on_its_way_out_owes_is_its_end_alone() {
    let mut paths = manager();
    let (path, limit) = (PathId(1), PathId(3));
    paths.set_status(path, PathStatus::Backup);
    assert!(paths.begin_closing(path, 7, Instant::ZERO));
    assert!(!paths.begin_closing(path, 8, Instant::ZERO), "no news");
    assert_eq!(
        write(&mut paths, 100)[..],
        [SentFrame::PathAbandon { path }]
    );
    assert!(!paths.owes_frames());
    assert_eq!(paths.discard_due(Instant::ZERO), Ok(None), "does it know?");
    paths.on_frame_acked(&SentFrame::PathAbandon { path });
    let gone = Discarded {
        id: path,
        had_path: true,
    };
    assert_eq!(paths.discard_due(Instant::ZERO), Ok(Some(gone)));
    let another = SentFrame::MaxPathId { limit };
    assert_eq!(write(&mut paths, 100)[..], [another]);
    assert!(!paths.owes_frames());
    paths.on_frame_lost(&another);
    assert!(paths.owes_frames());
}

#[test]
fn what_is_routed_to_a_path_is_taken_back_with_it() {
    let mut paths = manager();
    issue(&mut paths);
    let routed = |paths: &mut Manager| std::iter::from_fn(|| paths.poll_routing()).count();
    assert_eq!(routed(&mut paths), 5);
    assert!(paths.begin_closing(PathId(1), 0, Instant::ZERO));
    paths.on_peer_abandoned(PathId(1), Instant::ZERO);
    let of_slot = paths.slot(PathId(1)).into_iter();
    let cids: Vec<_> = of_slot
        .flat_map(|slot| slot.local_cids.live())
        .map(|local| Routing::RemoveCid(local.cid))
        .collect();
    assert!(paths.discard_due(Instant::ZERO).is_ok());
    let taken: Vec<_> = std::iter::from_fn(|| paths.poll_routing()).collect();
    assert_eq!((cids.len(), taken), (2, cids));
}

#[test]
fn paths_that_come_change_or_go_change_the_version() {
    let mut paths = manager();
    let mut known = vec![paths.version()];
    let mut note = |paths: &Manager| {
        let version = paths.version();
        assert!(!known.contains(&version), "{version} of {known:?}");
        known.push(version);
    };
    paths.put(path(2), PathStatus::Available);
    note(&paths);
    let options = PathOptions::default();
    let open = paths.open_path_mut(PathId(2)).unwrap();
    open.set_options(options, Instant::ZERO);
    note(&paths);
    let status = Some(PathStatus::Backup);
    assert_eq!(
        paths.on_peer_status(PathId(2), PathStatus::Backup, 1),
        status
    );
    note(&paths);
    paths.begin_closing(PathId(2), 0, Instant::ZERO);
    note(&paths);
    paths.on_peer_abandoned(PathId(2), Instant::ZERO);
    assert!(paths.discard_due(Instant::ZERO).is_ok());
    note(&paths);
    let before = paths.version();
    drop(paths.slot_mut(PathId(0)));
    assert_eq!(paths.version(), before, "looking at a slot is no change");
}

#[test]
fn a_status_is_news_only_if_data_is_scheduled_by_another_one() {
    use PathStatus::{Available, Backup};
    let mut paths = manager();
    let id = PathId(1);
    let before = paths.version();
    assert_eq!(paths.set_status(id, Available), None, "it is already");
    assert_eq!(paths.version(), before);
    assert_eq!(paths.set_status(id, Backup), Some(Backup));
    assert_eq!(paths.on_peer_status(id, Available, 4), Some(Available));
    let before = paths.version();
    assert_eq!(paths.on_peer_status(id, Available, 5), None, "said again");
    assert_eq!(paths.on_peer_status(id, Backup, 5), None, "an old word");
    assert_eq!(
        paths.set_status(id, Available),
        None,
        "the peer's word holds"
    );
    assert_eq!(paths.set_status(id, Backup), None, "the peer's word holds");
    assert_eq!(paths.version(), before);
    assert_eq!(paths.on_peer_status(id, Backup, 6), Some(Backup));
    assert_ne!(paths.version(), before);
}

#[test]
fn a_lost_wish_for_paths_is_repeated_while_the_peer_allows_no_more() {
    let mut paths = Manager::new(path(0));
    paths.negotiate(PathId(4), PathId(1));
    paths.put(path(1), PathStatus::Available);
    issue(&mut paths);
    write(&mut paths, 1200);
    assert!(paths.next_unused().is_err());
    let wish = SentFrame::PathsBlocked { limit: PathId(1) };
    assert_eq!(write(&mut paths, 1200).as_slice(), [wish]);
    assert!(paths.next_unused().is_err());
    assert!(!paths.owes_frames(), "the peer knows");
    paths.on_frame_lost(&wish);
    assert_eq!(write(&mut paths, 1200).as_slice(), [wish]);
    assert_eq!(paths.on_max_path_id(PathId(2)), Ok(true));
    issue(&mut paths);
    write(&mut paths, 1200);
    paths.on_frame_lost(&wish);
    assert!(!paths.owes_frames(), "there is another path");
}
