//! This engine and noq on one wire: paths abandoned, marked and opened over and over.
//! `cargo test -p anabranch-interop --test noq_paths`.
//!
//! Where noq differs from RFC 10069, the test names the deviation (docs/interop.md).

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]
#![allow(clippy::print_stdout, reason = "figures of a run are worth reading")]

mod ours;
mod theirs;

use anabranch_interop::noq_peer::Listener;
use anabranch_interop::{Answer, Request, ServeConfig};
use anabranch_net::Connection;
use anabranch_net::engine::{
    AbandonPathError, OpenPathError, PathNotice, PathUnknown, TransportConfig,
};
use anabranch_proto::path::PathState;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_proto::wire::{PathId, TransportErrorCode};
use ours::{LARGE, Server, Setup, in_turn, soon_over, until};
use theirs::{FromNoq, PATHS, ToNoq};

/// What is moved where a busy machine should have little time to disturb.
const SOME: u64 = LARGE / 4;
/// What an idle path may still carry while [`SOME`] bytes or more take another.
const IDLE: u64 = 100_000;
const CODE: TransportErrorCode = TransportErrorCode::APPLICATION_ABANDON_PATH;

fn is_discarded(id: u32) -> impl Fn(&PathNotice) -> bool {
    move |notice| *notice == PathNotice::Discarded { id: PathId(id) }
}

fn is_abandoned(id: u32, by_peer: bool) -> impl Fn(&PathNotice) -> bool {
    let id = PathId(id);
    move |notice| {
        *notice
            == PathNotice::Abandoned {
                id,
                code: CODE.0,
                by_peer,
            }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_abandons_either_path_in_mid_transfer() {
    for (id, request) in [(0, Request::Get(LARGE)), (1, Request::Put(LARGE))] {
        let to = ToNoq::connect().await;
        to.client
            .open_path(to.path_from(2), PathStatus::Available)
            .await;
        let ours = to.client.connection.clone();
        let abandon = move || ours.abandon_path(PathId(id), CODE).unwrap();
        let answer = to.client.ask_and(request, LARGE / 4, abandon).await;
        assert_eq!(answer, Answer::expected(request), "path {id}");
        to.events
            .wait("noq to hear of it", theirs::is_abandoned(id))
            .await;
        // D14: noq keeps its state until it has both said and heard PATH_ABANDON.
        let notices = &to.client.notices;
        notices.wait("our state to go", is_discarded(id)).await;
        to.events
            .wait("noq's state to go", theirs::is_discarded(id))
            .await;
        to.client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noqs_server_abandons_either_path_in_mid_transfer() {
    for (id, request) in [(0, Request::Get(LARGE)), (1, Request::Put(LARGE))] {
        let to = ToNoq::connect().await;
        to.client
            .open_path(to.path_from(2), PathStatus::Available)
            .await;
        to.events
            .wait("noq to validate it", theirs::is_established(1))
            .await;
        let path = to.theirs.path(noq::PathId::from(id)).unwrap();
        let abandon = move || path.close().unwrap();
        let answer = to.client.ask_and(request, LARGE / 4, abandon).await;
        assert_eq!(answer, Answer::expected(request), "path {id}");
        let notices = &to.client.notices;
        notices.wait("us to hear", is_abandoned(id, true)).await;
        notices.wait("our state to go", is_discarded(id)).await;
        to.events
            .wait("noq's state to go", theirs::is_discarded(id))
            .await;
        to.client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noqs_client_abandons_either_path_in_mid_transfer() {
    for (id, request) in [(0, Request::Put(LARGE)), (1, Request::Get(LARGE))] {
        let from = FromNoq::connect().await;
        let second = from.open_path(2, noq::PathStatus::Available).await;
        let path = match id {
            0 => from.client.connection.path(noq::PathId::ZERO).unwrap(),
            _ => second,
        };
        let abandon = move || path.close().unwrap();
        let answer = from.ask_and(request, LARGE / 4, abandon).await;
        assert_eq!(answer, Answer::expected(request), "path {id}");
        from.notices
            .wait("us to hear", is_abandoned(id, true))
            .await;
        from.notices.wait("our state to go", is_discarded(id)).await;
        from.events
            .wait("noq's state to go", theirs::is_discarded(id))
            .await;
        from.client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_server_abandons_either_path_in_mid_transfer() {
    for (id, request) in [(0, Request::Put(LARGE)), (1, Request::Get(LARGE))] {
        let from = FromNoq::connect().await;
        from.open_path(2, noq::PathStatus::Available).await;
        let ours = from.ours.clone();
        let abandon = move || ours.abandon_path(PathId(id), CODE).unwrap();
        let answer = from.ask_and(request, LARGE / 4, abandon).await;
        assert_eq!(answer, Answer::expected(request), "path {id}");
        from.events
            .wait("noq to hear of it", theirs::is_abandoned(id))
            .await;
        from.notices.wait("our state to go", is_discarded(id)).await;
        from.events
            .wait("noq's state to go", theirs::is_discarded(id))
            .await;
        from.client.close().await;
    }
}

/// D5: noq reports our status to its application and goes on sending as it likes; what ends its
/// sending there is abandoning the path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noq_hears_that_a_path_is_backup_and_leaves_it_only_when_it_is_abandoned() {
    let to = ToNoq::connect().await;
    to.client
        .open_path(to.path_from(2), PathStatus::Available)
        .await;
    let connection = &to.client.connection;
    connection
        .set_path_status(PathId(0), PathStatus::Backup)
        .unwrap();
    let told = theirs::is_status(0, noq::PathStatus::Backup);
    to.events.wait("noq to be told", told).await;
    let request = Request::Get(LARGE);
    let before = ours::path(connection, 0).counters.received_bytes;
    assert_eq!(to.client.ask(request).await, Answer::expected(request));
    let sent = ours::path(connection, 0).counters.received_bytes - before;
    println!("noq sent {sent} bytes on the path we call backup");
    assert!(sent > IDLE, "D5 is gone: noq obeys now");
    connection.abandon_path(PathId(0), CODE).unwrap();
    to.events
        .wait("noq to hear of it", theirs::is_abandoned(0))
        .await;
    assert_eq!(to.client.ask(request).await, Answer::expected(request));
    to.client.close().await;
}

/// D4: noq forgets the status of a path that is not open yet, so it is said again after validation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noq_learns_the_status_a_path_is_opened_with() {
    let to = ToNoq::connect().await;
    to.client
        .open_path(to.path_from(2), PathStatus::Backup)
        .await;
    let told = theirs::is_status(1, noq::PathStatus::Backup);
    to.events.wait("noq to be told", told).await;
    to.client
        .connection
        .set_path_status(PathId(1), PathStatus::Available)
        .unwrap();
    let told = theirs::is_status(1, noq::PathStatus::Available);
    to.events.wait("noq to be told again", told).await;
    to.client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_leave_a_path_that_noq_calls_backup_and_come_back() {
    let to = ToNoq::connect().await;
    to.client
        .open_path(to.path_from(2), PathStatus::Available)
        .await;
    to.events
        .wait("noq to validate it", theirs::is_established(1))
        .await;
    let connection = &to.client.connection;
    let path = to.theirs.path(noq::PathId::from(1_u32)).unwrap();
    let status = || ours::path(connection, 1).status;
    let ask = || to.client.ask(Request::Put(SOME));
    path.set_status(noq::PathStatus::Backup).unwrap();
    until("the status to arrive", || status() == PathStatus::Backup).await;
    assert_left_alone(connection, Request::Put(SOME), ask).await;
    path.set_status(noq::PathStatus::Available).unwrap();
    until("the status to arrive", || status() == PathStatus::Available).await;
    let is_late = soon_over();
    let before = ours::path(connection, 1).counters.sent_bytes;
    while ours::path(connection, 1).counters.sent_bytes - before < IDLE {
        assert!(!is_late(), "we do not come back");
        assert_eq!(ask().await, Answer::expected(Request::Put(SOME)));
    }
    to.client.close().await;
}

/// Makes a request, and again while path 0 is doubted meanwhile: there path 1 has to help out,
/// backup or not, and a machine that is busy gives cause for doubt. Without that we send nothing to
/// speak of on path 1.
async fn assert_left_alone<F: Future<Output = Answer>>(
    ours: &Connection,
    request: Request,
    ask: impl Fn() -> F,
) {
    let is_late = soon_over();
    loop {
        let is_active = || ours::path(ours, 0).state == PathState::Active;
        until("path 0 to be in use", is_active).await;
        let state = || {
            (
                ours::path(ours, 0).counters.doubts,
                ours::path(ours, 1).counters,
            )
        };
        let (doubts, before) = state();
        assert_eq!(ask().await, Answer::expected(request));
        let (doubts_now, now) = state();
        let sent = now.sent_bytes - before.sent_bytes;
        println!("{request:?}: we sent {sent} bytes on the backup");
        if sent < IDLE {
            return;
        }
        assert!(
            doubts_now > doubts && !is_late(),
            "{sent} bytes on the backup"
        );
    }
}

/// D6: noq does not say that it opens a path as backup; to us it is available until it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_noq_opens_as_backup_is_available_to_us_until_it_says_so() {
    let from = FromNoq::connect().await;
    let path = from.open_path(2, noq::PathStatus::Backup).await;
    let request = Request::Get(SOME);
    let status = || ours::path(&from.ours, 1).status;
    assert_eq!(from.ask(request).await, Answer::expected(request));
    assert_eq!(status(), PathStatus::Available);
    path.set_status(noq::PathStatus::Available).unwrap();
    path.set_status(noq::PathStatus::Backup).unwrap();
    until("the status to arrive", || status() == PathStatus::Backup).await;
    assert_left_alone(&from.ours, request, || from.ask(request)).await;
    from.client.close().await;
}

/// D25: noq allows one more path ID for each path that was abandoned, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_opens_and_abandons_a_path_twenty_times() {
    let to = ToNoq::connect().await;
    let mut last = PathId::ZERO;
    for _ in 0..20 {
        let id = to
            .client
            .open_path(to.path_from(2), PathStatus::Available)
            .await;
        assert!(id > last, "{id} after {last}");
        last = id;
        let request = Request::Get(100_000);
        assert_eq!(to.client.ask(request).await, Answer::expected(request));
        to.client.connection.abandon_path(id, CODE).unwrap();
        let discarded = theirs::is_discarded(id.0);
        to.events.wait("noq's state to go", discarded).await;
    }
    let paths = || to.client.connection.paths();
    until("our state to go", || paths().len() == 1).await;
    to.client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noq_opens_and_abandons_a_path_twenty_times() {
    let from = FromNoq::connect().await;
    let mut last = noq::PathId::ZERO;
    for _ in 0..20 {
        let path = from.open_path(2, noq::PathStatus::Available).await;
        assert!(path.id() > last, "{} after {last}", path.id());
        last = path.id();
        let request = Request::Get(100_000);
        assert_eq!(from.ask(request).await, Answer::expected(request));
        path.close().unwrap();
        let discarded = is_discarded(theirs::number(last));
        from.notices.wait("our state to go", discarded).await;
    }
    let last = theirs::is_discarded(theirs::number(last));
    from.events.wait("noq's state to go", last).await;
    until("our state to go", || from.ours.paths().len() == 1).await;
    from.client.close().await;
}

/// D1, D2, D3, D7, D9: noq lets pass what we must not send; we do not send it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_stay_within_the_limit_noq_sets_and_leave_unused_ids_alone() {
    let config = ServeConfig {
        max_paths: 2,
        ..ServeConfig::default()
    };
    let to = ToNoq::connect_over(Listener::bind(&config).unwrap(), None).await;
    let connection = &to.client.connection;
    let refused = connection.abandon_path(PathId(1), CODE);
    assert_eq!(refused, Err(AbandonPathError::Unknown));
    let further = to.path_from(2);
    to.client.open_path(further, PathStatus::Available).await;
    let third = to.client.try_path(to.path_from(3), PathStatus::Available);
    assert_eq!(third, Err(OpenPathError::LimitReached));
    let status = connection.set_path_status(PathId(2), PathStatus::Backup);
    assert_eq!(status, Err(PathUnknown));
    let request = Request::Get(1000);
    assert_eq!(to.client.ask(request).await, Answer::expected(request));
    for id in 0..2 {
        let told = theirs::path(&to.theirs, id).frame_rx;
        assert_eq!((told.path_abandon, told.path_status_backup), (0, 0));
    }
    to.client.close().await;
}

/// D24: noq refuses to abandon the last path; so do we.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_side_abandons_the_last_path() {
    let to = ToNoq::connect().await;
    let connection = &to.client.connection;
    let refused = connection.abandon_path(PathId(0), CODE);
    assert_eq!(refused, Err(AbandonPathError::LastPath));
    let theirs = to.theirs.path(noq::PathId::ZERO).unwrap();
    assert!(theirs.close().is_err());
    let request = Request::Get(1000);
    assert_eq!(to.client.ask(request).await, Answer::expected(request));
    to.client.close().await;
}

/// D16: noq opens paths although `disable_active_migration` asks it not to; they are tolerated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_noq_opens_against_our_wish_does_not_end_the_connection() {
    let transport = TransportConfig {
        migration: false,
        ..in_turn()
    };
    let setup = Setup {
        transport,
        ..Setup::default()
    };
    let from = FromNoq::connect_over(Server::start(setup), None).await;
    let further = from.server.path_from(2);
    let opening = from
        .client
        .open_path(further, noq::PathStatus::Available, 1);
    let opened = ours::soon(opening).await.is_ok();
    println!("opened: {opened}");
    let request = Request::Get(LARGE);
    assert_eq!(from.ask(request).await, Answer::expected(request));
    assert!(PATHS > 1 && from.ours.close_reason().is_none());
    from.client.close().await;
}
