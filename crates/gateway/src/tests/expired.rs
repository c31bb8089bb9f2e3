//! Datagrams that cannot leave in time: whose they were is told at either end.

use super::classes::{class, shown, why};
use super::socks::{Client, Near, eventually};
use super::udp::echo;
use super::*;
use crate::status::Status;
use anabranch_net::engine::PathOptions;
use anabranch_proto::path::Shape;
use anabranch_proto::wire::PathId;
use anabranch_tunnel::class::Classes;

/// How many are sent at once, and how large they are.
const MANY: u64 = 100;
const SIZE: usize = 500;

/// A connection that sends so slowly that few of them leave within 200 ms.
fn slow(connection: &Connection) {
    let shape = Shape::Fixed {
        rate: 10_000,
        burst: Some(2000),
    };
    let options = PathOptions {
        shape: Some(shape),
        ..PathOptions::default()
    };
    let set = connection.with_engine(|engine| engine.set_path_options(PathId(0), options));
    set.unwrap().unwrap();
}

#[tokio::test]
async fn what_cannot_leave_a_near_end_in_time_is_told_of_its_flow_and_class() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    // The second one goes by the request of the first.
    let targets = [echo().await, echo().await];
    // The port that a target happens to have may be one of a class that is always there.
    let classes = Classes::new(vec![class("told", &targets[1], 100)]);
    near.entry.set_classes(classes);
    for target in &targets {
        client.ask(target, b"first", target).await;
    }
    slow(&near.entry.connection().unwrap());
    for _ in 0..MANY {
        client.send(&targets[1], &[b'x'; SIZE]).await;
    }
    eventually(|| shown(&near, "told").expired > MANY / 2).await;
    let (one, other) = (why(&near, &targets[0]).await, why(&near, &targets[1]).await);
    assert_eq!(one.datagrams.unwrap().expired, 0);
    let told = other.datagrams.unwrap();
    assert!(
        told.expired > MANY / 2 && told.expired < told.up,
        "{told:?}"
    );
    let Status::Near(status) = near.entry.glance() else {
        panic!("it is a near end");
    };
    assert_eq!(status.datagrams.expired, told.expired);
    assert_eq!(shown(&near, "told").expired, told.expired);
    assert_eq!(shown(&near, "voice").expired, 0);
}

#[tokio::test]
async fn what_cannot_leave_a_far_end_in_time_is_told_of_its_flow_and_client() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let target = echo().await;
    client.ask(&target, b"first", &target).await;
    slow(&place.exit.connections()[0]);
    for _ in 0..MANY {
        client.send(&target, &[b'x'; SIZE]).await;
    }
    eventually(|| place.exit.clients()[0].datagrams.expired > MANY / 2).await;
    let flow = place.exit.flows(Some(&target), 9).await.flows.remove(0);
    let told = flow.datagrams.unwrap();
    assert!(
        told.expired > MANY / 2 && told.expired < told.down,
        "{told:?}"
    );
    drop(client);
    eventually(|| place.exit.clients()[0].open == 0).await;
    let Status::Far(status) = place.exit.status().await else {
        panic!("it is a far end");
    };
    let client = &status.clients[0];
    assert_eq!(status.datagrams.expired, client.datagrams.expired);
    assert_eq!(why(&near, &target).await.datagrams.unwrap().expired, 0);
}
