//! UDP by SOCKS5, through an entry and an exit.

use super::classes::why;
use super::udp::echo;
use super::*;
use crate::entry::{Entrance, Entry, Far, Invited, News};
use crate::identity::Kept;
use std::net::Ipv4Addr;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::interval;

/// An entry that is connected to an exit.
pub(super) struct Near {
    pub(super) entry: Arc<Entry>,
    pub(super) proxy: SocketAddr,
    _state: Option<TempDir>,
}

impl Near {
    pub(super) async fn open(place: &Place) -> Self {
        let state = tempfile::tempdir().unwrap();
        let (remotes, fingerprint) = (place.remotes.clone(), place.identity.fingerprint());
        let entrance = Entrance::Exit(Invited {
            kept: Kept::in_directory(state.path()),
            server: fingerprint.to_string(),
            invitation: Some(place.exit.invite().await.unwrap()),
            name: "test".into(),
        });
        Self {
            _state: Some(state),
            ..Self::enter(remotes, fingerprint, entrance, |_| {}).await
        }
    }

    /// One that gets in by this entrance.
    pub(super) async fn enter(
        remotes: Vec<SocketAddr>,
        fingerprint: Fingerprint,
        entrance: Entrance,
        tell: impl Fn(&News) + Send + Sync + 'static,
    ) -> Self {
        let dial = move || -> crate::entry::Dialling {
            let (remotes, fingerprint) = (remotes.clone(), fingerprint);
            Box::pin(async move { Ok(connect_to(&remotes, fingerprint).await) })
        };
        let far = Far {
            dial: Box::new(dial),
            entrance,
            tell: Box::new(tell),
        };
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let entry = Arc::new(Entry::bind(&[anywhere], far).await.unwrap());
        let running = Arc::clone(&entry);
        tokio::spawn(async move { running.run().await });
        Self {
            proxy: entry.local_addrs()[0],
            entry,
            _state: None,
        }
    }

    /// Flows that are open: connections of clients, and of each association one for each target.
    fn open_flows(&self) -> usize {
        self.entry.open_flows()
    }
}

/// A client of an entry.
pub(super) struct Client {
    control: TcpStream,
    socket: UdpSocket,
    relay: SocketAddr,
}

impl Client {
    /// One that says from which port it sends, or does not.
    pub(super) async fn open(near: &Near, says_port: bool) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut control = TcpStream::connect(near.proxy).await.unwrap();
        let port = if says_port {
            socket.local_addr().unwrap().port()
        } else {
            0
        };
        let mut request = vec![5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0];
        request.extend_from_slice(&port.to_be_bytes());
        control.write_all(&request).await.unwrap();
        let mut reply = [0; 12];
        let read = timeout(END, control.read_exact(&mut reply));
        read.await.expect("a reply").unwrap();
        assert_eq!(reply[..6], [5, 0, 5, 0, 0, 1]);
        let ip = Ipv4Addr::from([reply[6], reply[7], reply[8], reply[9]]);
        let relay = (ip, u16::from_be_bytes([reply[10], reply[11]])).into();
        Self {
            control,
            socket,
            relay,
        }
    }

    pub(super) async fn send(&self, target: &str, payload: &[u8]) {
        send_from(&self.socket, self.relay, target, payload).await;
    }

    /// What comes next, and whom it names.
    pub(super) async fn hear(&self) -> (String, Vec<u8>) {
        let mut buffer = [0; 2048];
        let (length, at) = self.socket.recv_from(&mut buffer).await.unwrap();
        assert_eq!(at, self.relay);
        let bytes = bytes::Bytes::copy_from_slice(&buffer[..length]);
        let (from, payload) = crate::entry::socks::datagram(&bytes).unwrap();
        (from.to_string(), payload.to_vec())
    }

    /// Sends a question to the echo at `target` until it is answered from `from`.
    pub(super) async fn ask(&self, target: &str, question: &[u8], from: &str) {
        let wanted = [&header(from)[..], question, b"!"].concat();
        let asked = async {
            let mut again = interval(Duration::from_secs(1));
            let mut buffer = [0; 2048];
            loop {
                tokio::select! {
                    _ = again.tick() => self.send(target, question).await,
                    received = self.socket.recv_from(&mut buffer) => {
                        let (length, at) = received.unwrap();
                        assert_eq!(at, self.relay);
                        // Others answer questions that were asked twice.
                        if buffer[..length] == wanted {
                            return;
                        }
                    }
                }
            }
        };
        timeout(END, asked).await.expect("an answer");
    }
}

fn header(target: &str) -> Vec<u8> {
    let target: anabranch_masque::Target = target.parse().unwrap();
    crate::entry::socks::datagram_header(&target)
}

async fn send_from(socket: &UdpSocket, relay: SocketAddr, target: &str, payload: &[u8]) {
    let datagram = [&header(target)[..], payload].concat();
    socket.send_to(&datagram, relay).await.unwrap();
}

pub(super) async fn eventually(mut is_so: impl FnMut() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(END, waited).await.expect("it is so in the end");
}

#[tokio::test]
async fn questions_go_to_the_targets_that_they_name_and_answers_name_them_too() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let (one, other) = (echo().await, echo().await);
    for says_port in [true, false] {
        let client = Client::open(&near, says_port).await;
        for target in [&one, &other] {
            client.ask(target, b"who?", target).await;
        }
        // What a name has led to is told as an address.
        let port = one.rsplit(':').next().unwrap();
        client.ask(&format!("localhost:{port}"), b"n", &one).await;
    }
}

#[tokio::test]
async fn an_association_ends_with_its_connection_and_frees_everything() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let target = echo().await;
    let client = Client::open(&near, true).await;
    client.ask(&target, b"x", &target).await;
    assert_eq!(near.open_flows(), 2, "the association and its flow");
    assert_eq!(place.exit.clients()[0].open, 1);
    let Client {
        control,
        socket,
        relay,
    } = client;
    drop(control);
    eventually(|| near.open_flows() == 0 && place.exit.clients()[0].open == 0).await;
    // Nobody takes its datagrams any more: the system says so, sooner or later.
    let refused = async {
        socket.connect(relay).await.unwrap();
        while socket.send(&[0]).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(END, refused).await.expect("the socket is gone");
}

#[tokio::test]
async fn what_others_send_to_an_association_goes_nowhere() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let (target, silent) = (echo().await, UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let watched = silent.local_addr().unwrap().to_string();
    let client = Client::open(&near, true).await;
    let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    send_from(&stranger, client.relay, &watched, b"mine").await;
    client.ask(&target, b"x", &target).await;
    // The stranger's came first, so it would have been carried by now or be under way.
    assert_eq!(
        place.exit.clients()[0].open,
        1,
        "a flow for the client alone"
    );
    assert!(silent.try_recv(&mut [0]).is_err());
}

#[tokio::test]
async fn fragments_are_dropped_and_counted() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let target = echo().await;
    let client = Client::open(&near, true).await;
    let mut fragment = [&header(&target)[..], b"part"].concat();
    fragment[2] = 1;
    client
        .socket
        .send_to(&fragment, client.relay)
        .await
        .unwrap();
    client.ask(&target, b"whole", &target).await;
    let crate::status::Status::Near(shown) = near.entry.status().await else {
        panic!("an entry is the near end");
    };
    // An answer that was sent again although it had come is dropped, too.
    let again = why(&near, &target).await.datagrams.unwrap().copies;
    let dropped = shown.datagrams.dropped;
    assert!(
        (1..=1 + again).contains(&dropped),
        "{dropped}, {again} again"
    );
    assert!(shown.datagrams.up >= 1 && shown.datagrams.down >= 1);
    let client = &place.exit.clients()[0];
    assert!(client.datagrams.up >= 1 && client.datagrams.down >= 1);
}

#[tokio::test]
async fn a_hundred_targets_are_reached_through_one_association() {
    let place = Place::open(1000);
    let near = Near::open(&place).await;
    let client = Client::open(&near, true).await;
    for number in 0..100u8 {
        let target = echo().await;
        client.ask(&target, &[number], &target).await;
    }
    assert_eq!(place.exit.clients()[0].open, 100);
}

#[tokio::test]
async fn a_target_that_is_refused_costs_one_request_and_others_go_on() {
    let place = Place::open(100);
    let near = Near::open(&place).await;
    let target = echo().await;
    let client = Client::open(&near, true).await;
    for _ in 0..20 {
        client.send("127.0.0.2:53", b"no").await;
    }
    client.ask(&target, b"yes", &target).await;
    eventually(|| near.entry.refused_flows() > 0).await;
    assert_eq!(near.entry.refused_flows(), 1);
}
