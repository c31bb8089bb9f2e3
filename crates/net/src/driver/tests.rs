//! What a lane does when its socket is full.

use super::*;
use crate::namespace::{Elsewhere, in_namespace, ip};
use crate::sockets::SocketConfig;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

const DATAGRAM: usize = 1200;
/// Several times what the sender's buffer holds, but less than the receiver's: the kernel accounts
/// 2304 bytes for each datagram and gives a socket 212 992 bytes by default.
const COUNT: u32 = 80;

/// A datagram that carries its number.
fn numbered(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; DATAGRAM];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn transmit(remote: SocketAddr) -> Transmit {
    let tuple = Tuple {
        socket: SocketId(0),
        local: None,
        remote,
    };
    Transmit {
        tuple,
        ecn: None,
        length: DATAGRAM,
        segment_size: None,
        connection: None,
    }
}

fn lane(config: &SocketConfig) -> Lane {
    let socket = Arc::new(Socket::bind(config).unwrap());
    Lane::new(SocketId(0), &socket, &Arc::default())
}

/// A slow link with a deep queue to another namespace: what waits in the queue counts against the
/// buffer of the socket.
fn plug_slow_link(there: &Elsewhere) {
    ip(&format!(
        "link add v0 type veth peer name p0 netns {}",
        there.name()
    ));
    there.ip("addr add 10.8.0.1/24 dev p0");
    there.ip("link set p0 up");
    ip("addr add 10.8.0.2/24 dev v0");
    ip("link set v0 up");
    there.wait_for_carriers("v0", "p0");
    let shape = "qdisc add dev v0 root tbf rate 4mbit burst 3kb limit 10mb";
    assert!(
        Command::new("tc")
            .args(shape.split(' '))
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_full_socket_keeps_datagrams_in_order_and_sends_them_when_there_is_room() {
    in_namespace(|| async {
        let (tell, told) = std::sync::mpsc::channel();
        let _there = Elsewhere::start(plug_slow_link, move || async move {
            let socket = tokio::net::UdpSocket::bind("10.8.0.1:9000").await.unwrap();
            tell.send(None).unwrap();
            let mut bytes = [0; 2 * DATAGRAM];
            loop {
                socket.recv(&mut bytes).await.unwrap();
                let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                tell.send(Some(number)).unwrap();
            }
        });
        assert_eq!(told.recv().unwrap(), None, "the receiver is ready");
        let mut config = SocketConfig::path(IpAddr::from([10, 8, 0, 2]), None);
        config.send_buffer = 16 << 10;
        let mut lane = lane(&config);
        let remote = SocketAddr::from(([10, 8, 0, 1], 9000));
        let mut failures = Vec::new();
        poll_fn(|cx| {
            for number in 0..COUNT {
                lane.send(cx, transmit(remote), &numbered(number), &mut failures);
            }
            Poll::Ready(())
        })
        .await;
        assert!(
            !lane.blocked.is_empty(),
            "the buffer is smaller than what was sent"
        );
        assert_eq!(lane.blocked_bytes, lane.blocked.len() * DATAGRAM);
        let flushed = poll_fn(|cx| {
            lane.flush(cx, &mut failures);
            if lane.blocked.is_empty() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        tokio::time::timeout(Duration::from_secs(180), flushed)
            .await
            .expect("woken for room");
        assert_eq!((lane.blocked_bytes, failures), (0, vec![]));
        let arrived: Vec<u32> = (0..COUNT)
            .map(|_| {
                told.recv_timeout(Duration::from_secs(180))
                    .unwrap()
                    .unwrap()
            })
            .collect();
        assert_eq!(arrived, (0..COUNT).collect::<Vec<u32>>());
    });
}

#[tokio::test]
async fn what_a_full_socket_keeps_is_bounded() {
    let config = SocketConfig::path(IpAddr::from([127, 0, 0, 1]), None);
    let mut lane = lane(&config);
    let remote = lane.socket.local_addr();
    for number in 0..2000 {
        lane.keep(transmit(remote), &numbered(number));
    }
    assert!(lane.blocked_bytes <= MAX_BLOCKED_BYTES);
    assert_eq!(lane.blocked.len(), MAX_BLOCKED_BYTES / DATAGRAM);
}

#[tokio::test]
async fn a_datagram_that_cannot_be_sent_is_blamed_on_its_route_alone() {
    let config = SocketConfig::path(IpAddr::from([127, 0, 0, 1]), None);
    let lane = lane(&config);
    // The kernel refuses port 0, just as it refuses addresses without a route.
    let nowhere = transmit((IpAddr::from([127, 0, 0, 1]), 0).into());
    let mut failures = Vec::new();
    lane.attempt(&nowhere, &numbered(1), &mut failures);
    assert_eq!(failures, [], "an answer without a connection harms none");
    let of_a_connection = Transmit {
        connection: Some(Handle(3)),
        ..nowhere
    };
    lane.attempt(&of_a_connection, &numbered(1), &mut failures);
    assert_eq!(failures, [Failure::Route(Handle(3), nowhere.tuple)]);
}
