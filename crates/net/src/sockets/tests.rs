//! Sending, receiving and failing sockets.

use super::*;
use std::future::poll_fn;
use std::time::Duration;

fn loopback() -> Socket {
    Socket::bind(&SocketConfig::path(Ipv4Addr::LOCALHOST.into(), None)).unwrap()
}

async fn receive(socket: &Socket, batch: &mut RecvBatch) {
    let wait = poll_fn(|cx| socket.poll_recv(cx, batch));
    tokio::time::timeout(Duration::from_secs(180), wait)
        .await
        .expect("datagram")
        .unwrap();
}

fn datagram(remote: SocketAddr, contents: &[u8]) -> Outgoing<'_> {
    Outgoing {
        remote,
        local: None,
        ecn: None,
        segment_size: None,
        contents,
    }
}

#[tokio::test]
async fn a_train_of_segments_arrives_as_the_datagrams_it_was_made_of() {
    let (sender, receiver) = (loopback(), loopback());
    let contents: Vec<u8> = (0..100 * 1200 + 300).map(|at| (at / 1200) as u8).collect();
    let train = Outgoing {
        segment_size: Some(1200),
        ecn: Some(Ecn::Ect0),
        ..datagram(receiver.local_addr(), &contents)
    };
    sender.try_send(&train).unwrap();
    let mut batch = RecvBatch::new();
    let mut arrived = Vec::new();
    while arrived.len() < 101 {
        receive(&receiver, &mut batch).await;
        for received in batch.datagrams() {
            assert_eq!(received.remote, sender.local_addr());
            assert_eq!(received.ecn, Some(Ecn::Ect0));
            assert_eq!(received.local, None, "a path's socket has one address");
            arrived.push((received.data[0], received.data.len()));
        }
    }
    arrived.sort_unstable();
    let mut expected: Vec<(u8, usize)> = (0..100).map(|at| (at, 1200)).collect();
    expected.push((100, 300));
    assert_eq!(arrived, expected);
}

#[tokio::test]
async fn a_wildcard_listener_tells_which_address_was_asked_and_answers_from_it() {
    let wildcards: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    for wildcard in wildcards {
        let config = SocketConfig::listen((wildcard, 0).into());
        match Socket::bind(&config) {
            Ok(listener) => is_asked_and_answers(&listener).await,
            // As happens in many containers.
            Err(error) if wildcard.is_ipv6() => {
                anabranch_testbed::Need::Network.skip("a wildcard of IPv6", error);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn is_asked_and_answers(listener: &Socket) {
    let client = loopback();
    let asked: IpAddr = "127.0.0.9".parse().unwrap();
    client
        .try_send(&datagram(
            (asked, listener.local_addr().port()).into(),
            b"hello",
        ))
        .unwrap();
    let mut batch = RecvBatch::new();
    receive(listener, &mut batch).await;
    let (remote, local) = {
        let received = batch.datagrams().next().unwrap();
        (received.remote, received.local)
    };
    assert_eq!((remote, local), (client.local_addr(), Some(asked)));
    listener
        .try_send(&Outgoing {
            local,
            ..datagram(remote, b"answer")
        })
        .unwrap();
    receive(&client, &mut batch).await;
    let answer = batch.datagrams().next().unwrap();
    assert_eq!((answer.remote.ip(), &*answer.data), (asked, &b"answer"[..]));
}

#[tokio::test]
async fn an_oversized_datagram_is_told_apart_from_a_dead_link() {
    let sender = loopback();
    let contents = vec![0; 65_600];
    let result = sender.try_send(&datagram(sender.local_addr(), &contents));
    assert!(matches!(result, Err((0, SendError::TooBig))), "{result:?}");
    let lost = io::Error::from_raw_os_error(Errno::ENETUNREACH as i32);
    assert!(matches!(
        SendError::classify(lost),
        SendError::Unreachable(_)
    ),);
    let refused = io::Error::from_raw_os_error(Errno::ECONNREFUSED as i32);
    assert!(matches!(
        SendError::classify(refused),
        SendError::Dropped(_)
    ));
}

#[test]
fn only_a_lost_interface_is_a_fault_of_the_socket() {
    let of = |errno: Errno| SendError::classify(io::Error::from_raw_os_error(errno as i32));
    for errno in [
        Errno::ENETDOWN,
        Errno::ENODEV,
        Errno::ENXIO,
        Errno::EADDRNOTAVAIL,
    ] {
        assert!(matches!(of(errno), SendError::Fault(_)), "{errno}");
    }
    // Each of these errors can be about a single destination, which others can choose.
    let of_one = [
        Errno::ENETUNREACH,
        Errno::EHOSTUNREACH,
        Errno::EPERM,
        Errno::EACCES,
    ];
    for errno in of_one.into_iter().chain([Errno::EINVAL]) {
        assert!(matches!(of(errno), SendError::Unreachable(_)), "{errno}");
    }
    for errno in [
        Errno::ECONNREFUSED,
        Errno::ENOBUFS,
        Errno::ENOMEM,
        Errno::EIO,
    ] {
        assert!(matches!(of(errno), SendError::Dropped(_)), "{errno}");
    }
}

#[tokio::test]
async fn a_destination_the_kernel_refuses_costs_the_socket_neither_gso_nor_ecn() {
    let (sender, receiver) = (loopback(), loopback());
    let segments = sender.offload().max_segments();
    let contents = vec![7; 2400];
    for segment_size in [None, Some(1200)] {
        let refused = Outgoing {
            segment_size,
            ecn: Some(Ecn::Ect0),
            ..datagram((Ipv4Addr::LOCALHOST, 0).into(), &contents)
        };
        let result = sender.try_send(&refused);
        assert!(
            matches!(result, Err((0, SendError::Unreachable(_)))),
            "{result:?}"
        );
        assert_eq!(sender.offload().max_segments(), segments);
    }
    let marked = Outgoing {
        ecn: Some(Ecn::Ect0),
        ..datagram(receiver.local_addr(), b"x")
    };
    sender.try_send(&marked).unwrap();
    let mut batch = RecvBatch::new();
    receive(&receiver, &mut batch).await;
    assert_eq!(batch.datagrams().next().unwrap().ecn, Some(Ecn::Ect0));
}

#[test]
fn nobody_has_port_0_or_an_address_that_stands_for_none_or_many() {
    let unanswerable = [
        "192.0.2.1:0",
        "[2001:db8::1]:0",
        "0.0.0.0:9",
        "0.1.2.3:9",
        "[::]:9",
    ];
    let many = [
        "224.0.0.1:9",
        "239.1.2.3:9",
        "255.255.255.255:9",
        "[ff02::1]:9",
    ];
    for address in unanswerable.into_iter().chain(many) {
        assert!(!is_answerable(address.parse().unwrap()), "{address}");
    }
    for address in [
        "192.0.2.1:9",
        "127.0.0.1:65535",
        "[2001:db8::1]:9",
        "[fe80::1]:9",
    ] {
        assert!(is_answerable(address.parse().unwrap()), "{address}");
    }
}

/// Sends a UDP datagram with source port 0, which only raw sockets can do.
fn send_from_port_0(to: SocketAddr, contents: &[u8]) -> io::Result<()> {
    let raw = socket2::Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP))?;
    let length = u16::try_from(8 + contents.len()).unwrap();
    let mut bytes = vec![0, 0];
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(contents);
    raw.send_to(&bytes, &SockAddr::from(to)).map(drop)
}

#[tokio::test]
async fn a_datagram_from_port_0_is_never_seen() {
    let (sender, receiver) = (loopback(), loopback());
    if let Err(error) = send_from_port_0(receiver.local_addr(), b"from nobody") {
        eprintln!("skipped: raw sockets take root: {error}");
        return;
    }
    let after = datagram(receiver.local_addr(), b"from somebody");
    sender.try_send(&after).unwrap();
    let mut batch = RecvBatch::new();
    let mut seen: Vec<Vec<u8>> = Vec::new();
    while seen.is_empty() {
        receive(&receiver, &mut batch).await;
        seen.extend(batch.datagrams().map(|received| received.data.to_vec()));
    }
    assert_eq!(seen, [b"from somebody".to_vec()]);
}

#[tokio::test]
async fn a_socket_knows_from_which_address_it_would_send() {
    let bound: IpAddr = [127, 0, 0, 9].into();
    let socket = Socket::bind(&SocketConfig::path(bound, None)).unwrap();
    let there = SocketAddr::from(([127, 0, 0, 1], 9));
    assert_eq!(socket.address_towards(there), Some(bound));
    for wildcard in [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Ipv6Addr::UNSPECIFIED.into(),
    ] {
        let socket = Socket::bind(&SocketConfig::path(wildcard, None)).unwrap();
        let chosen = Some(Ipv4Addr::LOCALHOST.into());
        assert_eq!(socket.address_towards(there), chosen);
    }
}

#[tokio::test]
async fn an_interface_that_does_not_exist_is_named_in_the_error() {
    let config = SocketConfig::path(Ipv4Addr::LOCALHOST.into(), Some("nosuch0".into()));
    let error = Socket::bind(&config).unwrap_err();
    assert!(error.to_string().contains("nosuch0"), "{error}");
}

#[tokio::test]
async fn a_socket_bound_to_an_interface_says_so() {
    let config = SocketConfig::path(Ipv4Addr::LOCALHOST.into(), Some("lo".into()));
    let socket = Socket::bind(&config).unwrap();
    assert_ne!(socket.binding(), Binding::Address);
    assert_eq!(socket.device(), Some("lo"));
    assert!(socket.can_reach(([127, 0, 0, 1], 1).into()));
    assert!(!socket.can_reach((Ipv6Addr::LOCALHOST, 1).into()));
}

#[tokio::test]
async fn a_socket_is_marked_where_that_is_allowed_and_else_not_bound() {
    let config = SocketConfig {
        mark: Some(7),
        ..SocketConfig::path(Ipv4Addr::LOCALHOST.into(), None)
    };
    match Socket::bind(&config) {
        Ok(socket) => assert_eq!(socket2::SockRef::from(&socket.io).mark().unwrap(), 7),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
    }
}

#[tokio::test]
async fn an_empty_datagram_is_no_datagram() {
    let (sender, receiver) = (loopback(), loopback());
    sender
        .try_send(&datagram(receiver.local_addr(), b""))
        .unwrap();
    sender
        .try_send(&datagram(receiver.local_addr(), b"x"))
        .unwrap();
    let mut batch = RecvBatch::new();
    let mut seen = Vec::new();
    while seen.is_empty() {
        receive(&receiver, &mut batch).await;
        seen.extend(batch.datagrams().map(|received| received.data.len()));
    }
    assert_eq!(seen, [1]);
}
