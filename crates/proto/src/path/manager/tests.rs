//! What the manager knows of itself whoever changes its slots.

use super::*;
use crate::config::TransportConfig;
use crate::datagram::{SocketId, Tuple};
use crate::path::route::Route;
use crate::path::state::PathOptions;
use crate::recovery::PacketSpace;
use crate::rng::Rng;
use anabranch_wire::ConnectionId;

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
    paths.put(path(1));
    paths
}

fn closing() -> Closing {
    Closing {
        code: 0,
        abandon_pending: true,
        peer_abandoned: false,
        abandon_acked: false,
        discard_at: Instant::ZERO,
    }
}

#[test]
fn every_change_of_a_slot_tells_whether_frames_are_owed() {
    let mut paths = manager();
    assert!(!paths.owes_frames());
    let cid = ConnectionId::new(&[1; 8]).unwrap();
    let token = ResetToken([1; 16]);
    let sequence = paths
        .slot_mut(PathId(1))
        .unwrap()
        .local_cids
        .issue(cid, token);
    assert!(paths.owes_frames());
    paths
        .slot_mut(PathId(1))
        .unwrap()
        .local_cids
        .on_sent(sequence);
    assert!(!paths.owes_frames());
    paths
        .slot_mut(PathId(1))
        .unwrap()
        .local_cids
        .on_lost(sequence);
    assert!(paths.owes_frames());
    paths
        .slot_mut(PathId(1))
        .unwrap()
        .local_cids
        .on_acked(sequence);
    assert!(!paths.owes_frames());
    let state = |slot: &mut Slot| {
        slot.state_status(PathStatus::Backup);
        slot.id < PathId(1)
    };
    assert!(!paths.change_each(state), "it ends where it is told to");
    assert!(paths.owes_frames());
}

#[test]
fn what_a_path_on_its_way_out_owes_is_its_end_alone() {
    let mut paths = manager();
    paths
        .slot_mut(PathId(1))
        .unwrap()
        .state_status(PathStatus::Backup);
    assert!(paths.begin_closing(PathId(1), closing()).is_some());
    assert!(paths.owes_frames());
    let mut slot = paths.slot_mut(PathId(1)).unwrap();
    slot.closing.as_mut().unwrap().abandon_pending = false;
    drop(slot);
    assert!(!paths.owes_frames());
    assert!(paths.discard(PathId(1)).is_ok());
    assert_eq!(
        paths.limit_to_send(),
        Some(PathId(3)),
        "another may be used"
    );
    paths.on_limit_sent();
    assert!(!paths.owes_frames());
    paths.on_limit_lost(PathId(3));
    assert!(paths.owes_frames());
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
    paths.put(path(2));
    note(&paths);
    let options = PathOptions::default();
    let open = paths.open_path_mut(PathId(2)).unwrap();
    open.set_options(options, Instant::ZERO);
    note(&paths);
    paths.slot_mut(PathId(2)).unwrap().peer_status = Some((PathStatus::Backup, 1));
    note(&paths);
    paths.begin_closing(PathId(2), closing());
    note(&paths);
    paths.discard(PathId(2)).unwrap();
    note(&paths);
    let before = paths.version();
    drop(paths.slot_mut(PathId(0)));
    assert_eq!(paths.version(), before, "looking at a slot is no change");
}
