//! What one connection can do to the others of its endpoint: nothing.

use super::*;
use crate::engine::ConnectionError;
use anabranch_proto::sched::{Choice, Scheduler, SendView};
use anabranch_proto::wire::{ErrorCode, TransportErrorCode};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A scheduler with a bug.
#[derive(Debug)]
struct Broken;

impl Scheduler for Broken {
    fn select(&mut self, _: &SendView<'_>) -> Choice {
        panic!("a scheduler's bug")
    }
}

fn is_internal(error: &ConnectionError) -> bool {
    let code = match error {
        ConnectionError::Transport(error) | ConnectionError::PeerClosed(error) => error.code,
        _ => return false,
    };
    code == TransportErrorCode::INTERNAL_ERROR
}

/// Checks that a connection works by sending something back and forth.
async fn works(client: &Connection, server: Connection) {
    let echo = tokio::spawn(echo(server));
    let data = pattern(300_000);
    assert_eq!(soon(round_trip(client, &data)).await, data);
    soon(echo).await.unwrap();
}

#[tokio::test]
async fn a_scheduler_that_panics_ends_its_connection_and_no_other() {
    let mut pair = pair();
    let (good, good_server, _manager) = pair.connect(&[]).await;
    let transport = TransportConfig {
        scheduler: SchedulerFactory::from_fn("broken", || Box::new(Broken)),
        ..TransportConfig::default()
    };
    pair.config.transport = Arc::new(transport);
    let (bad, bad_server, _other) = pair.connect(&[]).await;
    let mut stream = soon(bad.open_uni()).await.unwrap();
    // Whether this succeeds depends on when the driver asks the scheduler.
    let _ = soon(stream.write_all(b"x")).await;
    let error = soon(bad.closed()).await;
    assert!(is_internal(&error), "{error:?}");
    let told = soon(bad_server.closed()).await;
    assert!(is_internal(&told), "the peer is told: {told:?}");
    works(&good, good_server).await;
}

#[tokio::test]
async fn a_server_outlives_a_scheduler_that_panics_in_one_connection() {
    let built = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&built);
    let scheduler = SchedulerFactory::from_fn("broken once", move || {
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            Box::new(Broken)
        } else {
            TransportConfig::default().scheduler.build()
        }
    });
    let pair = pair_with(TransportConfig {
        scheduler,
        ..TransportConfig::default()
    });
    let (bad, bad_server, _manager) = pair.connect(&[]).await;
    let (good, good_server, _other) = pair.connect(&[]).await;
    let mut stream = soon(bad_server.open_uni()).await.unwrap();
    let _ = soon(stream.write_all(b"x")).await;
    let error = soon(bad.closed()).await;
    assert!(is_internal(&error), "{error:?}");
    works(&good, good_server).await;
}

#[tokio::test]
async fn a_command_that_panics_ends_its_connection_and_no_other() {
    let pair = pair();
    let (good, good_server, _manager) = pair.connect(&[]).await;
    let (bad, bad_server, _other) = pair.connect(&[]).await;
    let command = AssertUnwindSafe(|| bad.with_engine(|_| panic!("a caller's bug")));
    let panicked: std::thread::Result<Result<(), _>> = catch_unwind(command);
    assert!(panicked.is_err(), "it reaches who gave the command");
    let error = soon(bad.closed()).await;
    assert!(is_internal(&error), "{error:?}");
    assert!(is_internal(&soon(bad_server.closed()).await));
    works(&good, good_server).await;
    drop((bad, bad_server));
    pair.client.close(0, b"");
    soon(pair.client.wait_idle()).await;
}

#[tokio::test]
async fn a_look_that_panics_ends_its_connection_and_no_other() {
    let pair = pair();
    let (good, good_server, _manager) = pair.connect(&[]).await;
    let (bad, bad_server, _other) = pair.connect(&[]).await;
    let look = AssertUnwindSafe(|| bad.holder().look_mut(|_| panic!("a bug in the engine")));
    let panicked: std::thread::Result<Option<()>> = catch_unwind(look);
    assert!(panicked.is_err(), "it reaches who looked");
    let error = soon(bad.closed()).await;
    assert!(is_internal(&error), "{error:?}");
    assert!(is_internal(&soon(bad_server.closed()).await));
    works(&good, good_server).await;
}

#[tokio::test]
async fn an_order_to_all_reaches_those_behind_one_that_panics() {
    let pair = pair();
    let (bad, _bad_server, _manager) = pair.connect(&[]).await;
    let (good, good_server, _other) = pair.connect(&[]).await;
    let mut reached = 0;
    let shared = pair.client.first_worker();
    shared.lock().order_all(shared.clock.now(), |_| {
        reached += 1;
        assert!(reached > 1, "a bug in the engine");
    });
    assert_eq!(reached, 2);
    let error = soon(bad.closed()).await;
    assert!(is_internal(&error), "{error:?}");
    works(&good, good_server).await;
}

#[tokio::test]
async fn the_largest_codes_reach_the_other_side() {
    let pair = pair();
    let (client, server, _manager) = pair.connect(&[]).await;
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let (mut server_send, mut server_recv) = soon(server.accept_bi()).await.unwrap();
    send.reset(ErrorCode::MAX).unwrap();
    recv.stop(ErrorCode::MAX).unwrap();
    let most = ErrorCode::MAX.value();
    let reset = soon(async {
        loop {
            match server_recv.read_chunk(10).await {
                Ok(Some(_)) => {}
                other => return other,
            }
        }
    });
    assert_eq!(reset.await, Err(crate::error::ReadError::Reset(most)));
    assert_eq!(soon(server_send.stopped()).await, Ok(Some(most)));
    client.close(ErrorCode::MAX, b"");
    let error = soon(server.closed()).await;
    assert!(matches!(error, ConnectionError::ApplicationClosed { code, .. } if code == most));
}
