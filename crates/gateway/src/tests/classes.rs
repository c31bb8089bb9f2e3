//! Targets of one port: what each is of, and what is told of it.

use super::bind::{Seen, watching};
use super::socks::{Client, Near, eventually};
use super::*;
use crate::status::flow::{Flow, Phase};
use crate::status::{Class as Shown, Status};
use anabranch_tunnel::class::{Class, Classes, Match, Treatment};
use tokio::net::UdpSocket;

fn port(address: &str) -> u16 {
    address.parse::<SocketAddr>().unwrap().port()
}

/// A class of what goes to this port.
pub(super) fn class(name: &str, target: &str, wait: u64) -> Class {
    let port = port(target);
    Class {
        name: name.into(),
        matches: vec![Match {
            ports: vec![port..=port],
            ..Match::default()
        }],
        treatment: Treatment {
            wait: Some(Duration::from_millis(wait)),
            ..Treatment::default()
        },
    }
}

pub(super) fn shown(near: &Near, name: &str) -> Shown {
    let Status::Near(status) = near.entry.glance() else {
        panic!("it is a near end");
    };
    let mut all = status.classes.into_iter();
    all.find(|one| one.name == name).unwrap()
}

/// The flow to a target, with those of its port.
pub(super) async fn why(near: &Near, target: &str) -> Flow {
    let mut flows = near.entry.flows(Some(target), 9).await.flows;
    assert_eq!(flows.len(), 1);
    flows.remove(0)
}

#[tokio::test]
async fn each_target_of_a_port_is_of_a_class_of_its_own_and_counted_there() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let seen = Seen::default();
    let (first, second) = (watching(&seen).await, watching(&seen).await);
    let classes = vec![class("one", &first, 1), class("other", &second, 500)];
    near.entry.set_classes(Classes::new(classes));
    let client = Client::open(&near, true).await;
    client.ask(&first, &[b'a'; 100], &first).await;
    client.ask(&second, b"second", &second).await;
    assert_eq!(seen.lock().unwrap().len(), 1, "{seen:?}");
    // Questions may be asked and answered twice.
    for (name, length) in [("one", 100), ("other", 6)] {
        let class = shown(&near, name);
        assert_eq!((class.open, class.made), (1, 1), "{name}");
        let (up, down) = (class.up_bytes, class.down_bytes);
        assert!(
            up > 0 && up % length == 0 && up < 10 * length,
            "{name}: {up}"
        );
        assert!(down > 0 && down % (length + 1) == 0, "{name}: {down}");
    }
    assert_eq!(shown(&near, "bulk").made, 0);
    let (one, other) = (why(&near, &first).await, why(&near, &second).await);
    assert_eq!(one.class.as_deref(), Some("one"));
    assert_eq!(other.class.as_deref(), Some("other"));
    drop(client);
    eventually(|| shown(&near, "one").open + shown(&near, "other").open == 0).await;
}

#[tokio::test]
async fn both_ends_tell_of_every_remote_end_what_came_of_it() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let seen = Seen::default();
    let mut targets = Vec::new();
    for _ in 0..3 {
        let target = watching(&seen).await;
        // The first one goes with the request, and comes by no path of its own.
        for _ in 0..2 {
            client.ask(&target, b"who am I?", &target).await;
        }
        targets.push(target);
    }
    for target in &targets {
        let far = place.exit.flows(Some(target), 9).await.flows.remove(0);
        for (flow, is_near) in [(why(&near, target).await, true), (far, false)] {
            assert_eq!(flow.target, *target);
            let port = flow.same_port.unwrap();
            assert_eq!((port.open, port.flows.len()), (3, 3));
            let mut told: Vec<&str> = port.flows.iter().map(|one| &*one.target).collect();
            told.sort_unstable();
            let mut all: Vec<&str> = targets.iter().map(|it| &**it).collect();
            all.sort_unstable();
            assert_eq!(told, all);
            for one in &port.flows {
                let came: u64 = one.paths.iter().map(|path| path.received_bytes).sum();
                let moved = if is_near {
                    one.down_bytes
                } else {
                    one.up_bytes
                };
                assert!(moved > 0 && 2 * came >= moved, "{one:?}");
                let datagrams = one.datagrams.unwrap();
                assert!(datagrams.up > 0 && datagrams.down > 0, "{one:?}");
                assert_eq!(one.state, Phase::Open);
                assert!(one.idle_seconds.is_some());
            }
        }
    }
}

#[tokio::test]
async fn a_name_that_comes_after_the_first_target_has_the_same_port() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let seen = Seen::default();
    let (first, second) = (watching(&seen).await, watching(&seen).await);
    client.ask(&first, b"a", &first).await;
    let name = format!("localhost:{}", port(&second));
    client.ask(&name, b"b", &second).await;
    assert_eq!(seen.lock().unwrap().len(), 1, "{seen:?}");
    let flow = why(&near, &name).await;
    assert_eq!(flow.remote.as_deref(), Some(&*second));
    assert_eq!(flow.same_port.unwrap().open, 2);
    eventually(|| place.exit.clients()[0].open == 2).await;
    // The same by its address: it is one remote end, whatever it is called.
    client.ask(&second, b"c", &second).await;
    client.ask(&name, b"d", &second).await;
    client.ask(&first, b"e", &first).await;
    let nowhere = format!("localhost:{}", port(&first));
    client.ask(&nowhere, b"f", &first).await;
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_refused_alone() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    let seen = Seen::default();
    let (first, second) = (watching(&seen).await, watching(&seen).await);
    client.ask(&first, b"a", &first).await;
    client.send("nowhere.invalid:9", b"no").await;
    eventually(|| near.entry.refused_flows() > 0).await;
    client.ask(&second, b"b", &second).await;
    assert_eq!(seen.lock().unwrap().len(), 1, "{seen:?}");
}

/// Answers with the same and a `!`, but what is two bytes long with more than any path carries.
async fn verbose() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut buffer = vec![0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let mut answer = [&buffer[..length], b"!"].concat();
            if length == 2 {
                answer.resize(LARGE, b'!');
            }
            let _ = socket.send_to(&answer, from).await;
        }
    });
    address
}

/// More than a datagram of any path takes.
const LARGE: usize = 60_000;

#[tokio::test]
async fn what_no_path_carries_is_dropped_and_no_part_of_what_a_flow_has_moved() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    // The second one goes by the request of the first.
    let targets = [verbose().await, verbose().await];
    for target in &targets {
        client.ask(target, b"small", target).await;
        client.send(target, &vec![b'x'; LARGE]).await;
        client.send(target, b"2!").await;
    }
    for target in &targets {
        let both = async || {
            let far = place.exit.flows(Some(target), 9).await.flows.remove(0);
            (why(&near, target).await, far)
        };
        let dropped = |flow: &Flow| flow.datagrams.as_ref().unwrap().dropped == 1;
        let waited = async {
            loop {
                let (flow, far) = both().await;
                if dropped(&flow) && dropped(&far) {
                    return (flow, far);
                }
            }
        };
        let (flow, far) = timeout(END, waited).await.expect("both are dropped");
        // What was asked may have been asked more than once.
        let up = flow.datagrams.as_ref().unwrap().up;
        assert_eq!(flow.up_bytes, 5 * (up - 1) + 2, "{flow:?}");
        let down = far.datagrams.as_ref().unwrap().down;
        assert_eq!(far.down_bytes, 6 * down, "{far:?}");
    }
    let class = shown(&near, "bulk");
    assert!(
        class.up_bytes < 1000 && class.down_bytes < 1000,
        "{class:?}"
    );
}
