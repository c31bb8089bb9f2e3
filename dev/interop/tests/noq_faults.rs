//! This engine and noq on one wire while paths fail: cut, mended, never answering, moved.
//! `cargo test -p anabranch-interop --test noq_faults -- --nocapture`.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]
#![allow(clippy::print_stdout, reason = "figures of a run are worth reading")]

mod ours;
mod theirs;

use anabranch_interop::{Answer, FurtherPath, Request};
use anabranch_net::engine::PathNotice;
use anabranch_proto::path::PathState;
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_testbed::Relay;
use ours::{LARGE, Server, Setup, in_turn, loopback, soon};
use std::net::SocketAddr;
use std::time::Duration;
use theirs::{FromNoq, ToNoq, listen};

/// Bytes that pass a relay before it cuts itself or moves.
const BEFORE_CUT: u64 = 200_000;

/// Transfers a sender gets to use a second path.
const TRIES: u32 = 10;

fn relay_to(server: SocketAddr) -> Relay {
    Relay::start(SocketAddr::new(loopback(1), 0), server).unwrap()
}

fn our_server() -> Server {
    Server::start(Setup {
        transport: in_turn(),
        ..Setup::default()
    })
}

/// Our client with path `id` through a relay and the other one direct.
async fn to_noq_through(id: u32) -> (ToNoq, Relay) {
    let listener = listen();
    let relay = relay_to(listener.addr());
    let first = (id == 0).then_some(relay.addr());
    let to = ToNoq::connect_over(listener, first).await;
    let mut further = to.path_from(2);
    if id == 1 {
        further.remote = relay.addr();
    }
    to.client.open_path(further, PathStatus::Available).await;
    let established = theirs::is_established(1);
    to.events.wait("noq to validate it", established).await;
    (to, relay)
}

/// noq's client with path `id` through a relay and the other one direct.
async fn from_noq_through(id: u32) -> (FromNoq, Relay) {
    let server = our_server();
    let relay = relay_to(server.addr);
    let first = (id == 0).then_some(relay.addr());
    let from = FromNoq::connect_over(server, first).await;
    let mut further = from.server.path_from(2);
    if id == 1 {
        further.remote = relay.addr();
    }
    let opening = from
        .client
        .open_path(further, noq::PathStatus::Available, 1);
    soon(opening).await.unwrap();
    let opened =
        |notice: &PathNotice| matches!(notice, PathNotice::Opened { id, .. } if *id == PathId(1));
    from.notices.wait("us to validate it", opened).await;
    (from, relay)
}

/// Whether we abandoned this path of our own accord.
fn gave_up(id: PathId) -> impl Fn(&PathNotice) -> bool {
    move |notice| match notice {
        PathNotice::Abandoned {
            id: at,
            by_peer: false,
            ..
        } => *at == id,
        _ => false,
    }
}

fn report(what: &str, id: u32, request: Request, relay: &Relay) {
    let after = relay.cut_for().expect("the path was cut");
    println!("{what}, path {id} cut in {request:?}: complete {after:?} after the cut");
}

/// Whether we stopped using this path.
fn doubted(id: u32) -> impl Fn(&PathNotice) -> bool {
    move |notice| *notice == PathNotice::Doubted { id: PathId(id) }
}

/// Makes a request while the relay's path dies, and makes it again until that was so: noq sends on
/// the lowest path while its window has room, so the other one may not carry enough at once.
async fn through_a_cut<F: Future<Output = Answer>>(
    request: Request,
    relay: &Relay,
    ask: impl Fn() -> F,
) {
    relay.cut_after(BEFORE_CUT);
    for _ in 0..TRIES {
        assert_eq!(ask().await, Answer::expected(request));
        if relay.cut_for().is_some() {
            return;
        }
    }
    // It hardly used the path; what we promise holds for a path that carries little too.
    relay.cut();
    assert_eq!(ask().await, Answer::expected(request));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_upload_to_noq_survives_the_cut_of_either_path() {
    for id in [0, 1] {
        let (to, relay) = to_noq_through(id).await;
        let request = Request::Put(LARGE);
        relay.cut_after(BEFORE_CUT);
        assert_eq!(to.client.ask(request).await, Answer::expected(request));
        report("our client sends", id, request, &relay);
        to.client.notices.wait("doubt", doubted(id)).await;
        to.client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_servers_answer_to_noq_survives_the_cut_of_either_path() {
    for id in [0, 1] {
        let (from, relay) = from_noq_through(id).await;
        let request = Request::Get(LARGE);
        relay.cut_after(BEFORE_CUT);
        assert_eq!(from.ask(request).await, Answer::expected(request));
        report("our server sends", id, request, &relay);
        from.notices.wait("doubt", doubted(id)).await;
        from.client.close().await;
    }
}

/// D29 without noq's idle timer: what noq has on the dead path stays there, so we give it up for
/// noq. If the path is the first, noq's acknowledgements are lost with it (D11).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_frees_noqs_answer_from_either_dead_path() {
    for id in [0, 1] {
        let (to, relay) = to_noq_through(id).await;
        let request = Request::Get(LARGE);
        through_a_cut(request, &relay, || to.client.ask(request)).await;
        report("noq's server sends, no idle timer", id, request, &relay);
        to.client.close().await;
    }
}

/// The same with our server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_server_frees_noqs_upload_from_either_dead_path() {
    for id in [0, 1] {
        let (from, relay) = from_noq_through(id).await;
        let request = Request::Put(LARGE);
        through_a_cut(request, &relay, || from.ask(request)).await;
        report("noq's client sends, no idle timer", id, request, &relay);
        from.client.close().await;
    }
}

/// D29: noq's frames stuck on a dead path wait until one side gives the path up: noq's idle timer,
/// if it is set, or we.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noqs_answer_to_our_client_survives_the_cut_of_either_path() {
    for id in [0, 1] {
        let (to, relay) = to_noq_through(id).await;
        for path in 0..2_u32 {
            let path = to.theirs.path(noq::PathId::from(path)).unwrap();
            path.set_max_idle_timeout(Some(Duration::from_secs(2)))
                .unwrap();
        }
        let request = Request::Get(LARGE);
        through_a_cut(request, &relay, || to.client.ask(request)).await;
        report("noq's server sends", id, request, &relay);
        to.client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noqs_upload_to_our_server_survives_the_cut_of_either_path() {
    for id in [0, 1] {
        let (from, relay) = from_noq_through(id).await;
        for path in 0..2_u32 {
            let connection = &from.client.connection;
            let path = connection.path(noq::PathId::from(path)).unwrap();
            path.set_max_idle_timeout(Some(Duration::from_secs(2)))
                .unwrap();
        }
        let request = Request::Put(LARGE);
        through_a_cut(request, &relay, || from.ask(request)).await;
        report("noq's client sends", id, request, &relay);
        from.client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mended_path_to_noq_is_used_again() {
    let (to, relay) = to_noq_through(1).await;
    relay.cut_after(BEFORE_CUT);
    let request = Request::Put(LARGE);
    assert_eq!(to.client.ask(request).await, Answer::expected(request));
    // States and not notices: a busy machine may have doubted the path for a moment before.
    let state = || ours::path(&to.client.connection, 1).state;
    ours::until("us to doubt it", || state() == PathState::Doubtful).await;
    relay.restore();
    ours::until("it to recover", || state() == PathState::Active).await;
    let sent = || ours::path(&to.client.connection, 1).counters.sent_bytes;
    let before = sent();
    for _ in 0..TRIES {
        assert_eq!(to.client.ask(request).await, Answer::expected(request));
        if sent() - before > BEFORE_CUT {
            break;
        }
    }
    assert!(sent() - before > BEFORE_CUT, "{}", sent() - before);
    to.client.close().await;
}

/// D13: noq repeats its challenges for ever; our server gives a path up that it cannot validate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_server_refuses_a_path_on_which_its_answers_do_not_arrive() {
    let from = FromNoq::connect_over(our_server(), None).await;
    let relay = relay_to(from.server.addr);
    relay.cut_to_client();
    let further = FurtherPath {
        local: loopback(2),
        remote: relay.addr(),
    };
    let path = from.client.connection.open_path(
        noq::FourTuple::new(further.remote, Some(further.local)),
        noq::PathStatus::Available,
    );
    let given_up = gave_up(PathId(1));
    from.notices.wait("us to give it up", given_up).await;
    assert!(soon(path).await.is_err());
    let request = Request::Get(1_000_000);
    assert_eq!(from.ask(request).await, Answer::expected(request));
    from.client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_client_gives_up_a_path_to_noq_that_never_answers() {
    let to = ToNoq::connect().await;
    let relay = relay_to(to.listener.addr());
    relay.cut();
    let further = FurtherPath {
        local: loopback(2),
        remote: relay.addr(),
    };
    let started = to.client.start_path(further, PathStatus::Available);
    let id = started.await.unwrap();
    let given_up = gave_up(id);
    to.client.notices.wait("us to give it up", given_up).await;
    // D1: noq ignores PATH_ABANDON for an ID it never saw in use, so only time ends it here.
    let discarded = |notice: &PathNotice| *notice == PathNotice::Discarded { id };
    to.client.notices.wait("our state to go", discarded).await;
    let next = to
        .client
        .open_path(to.path_from(3), PathStatus::Available)
        .await;
    assert_eq!(next, PathId(id.0 + 1));
    let request = Request::Get(1_000_000);
    assert_eq!(to.client.ask(request).await, Answer::expected(request));
    to.client.close().await;
}

/// Makes a request while the relay moves, and makes it again until that was so.
async fn through_a_move<F: Future<Output = Answer>>(
    request: Request,
    relay: &Relay,
    ask: impl Fn() -> F,
) {
    relay.rebind_after(BEFORE_CUT);
    for _ in 0..TRIES {
        assert_eq!(ask().await, Answer::expected(request));
        if relay.rebinds() > 0 {
            return;
        }
    }
    // noq hardly used the path.
    relay.rebind().unwrap();
    assert_eq!(ask().await, Answer::expected(request));
}

/// D30 concerns a move that cannot be validated; an honest one works both ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_follows_the_other_when_the_address_of_a_path_changes() {
    let request = Request::Put(LARGE);
    for id in [0, 1] {
        let (to, relay) = to_noq_through(id).await;
        through_a_move(request, &relay, || to.client.ask(request)).await;
        to.client.close().await;

        let (from, relay) = from_noq_through(id).await;
        through_a_move(request, &relay, || from.ask(request)).await;
        if id == 0 {
            let moved = |notice: &PathNotice| match notice {
                PathNotice::Moved { id, .. } => *id == PathId(0),
                _ => false,
            };
            from.notices.wait("us to notice the move", moved).await;
        }
        from.client.close().await;
    }
}
