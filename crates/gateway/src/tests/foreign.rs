//! An entry at a proxy that is no exit of ours: one that knows CONNECT and CONNECT-UDP, and nothing
//! of joining, of classes or of numbers.

use super::socks::{Client, Near, eventually};
use super::*;
use crate::entry::{Entrance, News, Proxy};
use crate::session::data;
use crate::session::datagrams::Sequence;
use anabranch_tunnel::Treatment;
use std::sync::Mutex;
use tokio::net::TcpStream;

/// The one target that it connects to.
const TARGET: &str = "192.0.2.1:80";

/// A proxy that answers by echoes, and what it was asked.
struct Other {
    settings: Settings,
    /// What it wants to be shown.
    credential: Option<&'static str>,
    identity: Identity,
    remotes: Vec<SocketAddr>,
    asked: Mutex<Vec<Request>>,
}

impl Other {
    fn open(settings: Settings, credential: Option<&'static str>) -> Arc<Self> {
        let identity = Identity::generate().unwrap();
        let endpoint = server(&identity, defaults::transport());
        let other = Arc::new(Self {
            settings,
            credential,
            identity,
            remotes: endpoint.local_addrs(),
            asked: Mutex::default(),
        });
        let running = Arc::clone(&other);
        tokio::spawn(async move {
            while let Some(connection) = endpoint.accept().await {
                tokio::spawn(Arc::clone(&running).receive(connection));
            }
        });
        other
    }

    async fn receive(self: Arc<Self>, connection: Connection) {
        let session = Session::start(connection, self.settings).await.unwrap();
        while let Ok((outgoing, incoming)) = session.accept().await {
            let (other, session) = (Arc::clone(&self), session.clone());
            // An error means that the entry has ended the request.
            tokio::spawn(async move { other.answer(session, outgoing, incoming).await });
        }
    }

    async fn answer(
        &self,
        session: Session,
        mut outgoing: Outgoing,
        mut incoming: Incoming,
    ) -> Result<(), Broken> {
        let datagrams = session.datagrams(outgoing.id());
        let request = Request::from_fields(incoming.head().await?).unwrap();
        self.asked.lock().unwrap().push(request.clone());
        let shown = request.headers.text("proxy-authorization");
        if self.credential.is_some() && shown != self.credential {
            return outgoing.answer(incoming, &Response::new(407)).await;
        }
        match request.line {
            RequestLine::Connect { authority } if authority == TARGET => {
                outgoing.head(&Response::new(200).to_fields()).await?;
                while let Item::Data(bytes) = incoming.next().await? {
                    outgoing.write(data(&[&bytes])).await?;
                }
                outgoing.finish();
                Ok(())
            }
            RequestLine::Extended { protocol, .. } if protocol == "connect-udp" => {
                let headers = Headers::new().with("capsule-protocol", "?1");
                let response = Response {
                    status: 200,
                    headers,
                };
                outgoing.head(&response.to_fields()).await?;
                let mut arrived = Vec::new();
                loop {
                    datagrams.arrive(&mut arrived).await;
                    for one in arrived.drain(..) {
                        let mut back = datagrams.begin(one.bytes.len() + 1);
                        back.extend_from_slice(&one.bytes);
                        back.push(b'!');
                        datagrams
                            .send(back, 0, Sequence::None, &Treatment::default())
                            .unwrap();
                    }
                }
            }
            _ => outgoing.answer(incoming, &Response::new(502)).await,
        }
    }

    async fn near(&self, proxy: Proxy) -> (Near, Arc<Mutex<Vec<String>>>) {
        let told = Arc::<Mutex<Vec<String>>>::default();
        let telling = Arc::clone(&told);
        let tell = move |news: &News| telling.lock().unwrap().push(news.to_string());
        let fingerprint = self.identity.fingerprint();
        let entrance = Entrance::Proxy(proxy);
        let near = Near::enter(self.remotes.clone(), fingerprint, entrance, tell).await;
        (near, told)
    }

    fn asked(&self) -> Vec<Request> {
        self.asked.lock().unwrap().clone()
    }
}

fn proxy() -> Proxy {
    Proxy::at("proxy.test:4433").unwrap()
}

/// Connects by SOCKS5 to an address of IPv4; returns the reply's code, too.
async fn socks(near: &Near, target: &str) -> (TcpStream, u8) {
    let target: std::net::SocketAddrV4 = target.parse().unwrap();
    let mut stream = TcpStream::connect(near.proxy).await.unwrap();
    let mut request = vec![5, 1, 0, 5, 1, 0, 1];
    request.extend_from_slice(&target.ip().octets());
    request.extend_from_slice(&target.port().to_be_bytes());
    stream.write_all(&request).await.unwrap();
    let mut reply = [0; 12];
    let read = timeout(END, stream.read_exact(&mut reply));
    read.await.expect("a reply").unwrap();
    (stream, reply[3])
}

/// That nothing but what the RFCs have was said to it.
#[track_caller]
fn assert_standard(request: &Request) {
    const KNOWN: [&str; 3] = ["capsule-protocol", "proxy-authorization", "authorization"];
    for field in &request.headers {
        let name = std::str::from_utf8(&field.name).unwrap();
        assert!(KNOWN.contains(&name), "{name}");
    }
}

#[tokio::test]
async fn tcp_goes_through_a_proxy_that_knows_nothing_of_us() {
    let other = Other::open(Settings::OURS, None);
    let (near, told) = other.near(proxy()).await;
    let (mut stream, code) = socks(&near, TARGET).await;
    assert_eq!(code, 0);
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    let read = timeout(END, stream.read_to_end(&mut back));
    read.await.expect("an end").unwrap();
    assert_eq!(back, b"hello");
    let unreachable = socks(&near, "192.0.2.9:80").await.1;
    assert_eq!(unreachable, 4, "its bare 502: no such host");
    let asked = other.asked();
    assert_eq!(asked.len(), 2, "nobody asked to be let in: {asked:?}");
    asked.iter().for_each(assert_standard);
    assert_eq!(told.lock().unwrap()[..], ["connected to proxy.test:4433"]);
}

#[tokio::test]
async fn udp_goes_through_it_without_numbers_by_the_template_of_the_user() {
    let other = Other::open(Settings::OURS, None);
    let template = "/u?h={target_host}&p={target_port}";
    let (near, _) = other.near(proxy().with_udp(template).unwrap()).await;
    let client = Client::open(&near, true).await;
    // The context, 0, and what follows come back as they went.
    client.ask("192.0.2.1:53", b"who?", "192.0.2.1:53").await;
    let asked = other.asked();
    let [request] = &asked[..] else {
        panic!("one flow: {asked:?}");
    };
    assert_standard(request);
    let RequestLine::Extended {
        authority, path, ..
    } = &request.line
    else {
        panic!("{request:?}");
    };
    assert_eq!(authority, "proxy.test:4433");
    assert_eq!(path, "/u?h=192.0.2.1&p=53");
}

#[tokio::test]
async fn a_credential_is_shown_and_one_that_is_refused_is_told_with_what_to_do() {
    let other = Other::open(Settings::OURS, Some("Basic dTpw"));
    let right = proxy().with_credential("u:p".parse().unwrap());
    let (near, _) = other.near(right).await;
    assert_eq!(socks(&near, TARGET).await.1, 0);
    for (proxy, words) in [
        (proxy(), "the proxy wants to know who this is"),
        (
            proxy().with_credential("u:wrong".parse().unwrap()),
            "the proxy does not accept the credential",
        ),
    ] {
        let (near, told) = other.near(proxy).await;
        for _ in 0..3 {
            assert_eq!(socks(&near, TARGET).await.1, 1, "a general failure");
        }
        let told = told.lock().unwrap().clone();
        let [_, denied] = &told[..] else {
            panic!("once: {told:?}");
        };
        assert!(denied.starts_with(words), "{denied}");
        assert!(denied.contains("--credential FILE"), "{denied}");
    }
}

#[tokio::test]
async fn a_proxy_for_tcp_alone_is_not_asked_for_udp() {
    let settings = Settings {
        connect_protocol: false,
        ..Settings::OURS
    };
    let other = Other::open(settings, None);
    let (near, told) = other.near(proxy()).await;
    assert_eq!(socks(&near, TARGET).await.1, 0);
    let client = Client::open(&near, true).await;
    client.send("192.0.2.1:53", b"who?").await;
    eventually(|| near.entry.refused_flows() == 1).await;
    assert_eq!(other.asked().len(), 1);
    let told = told.lock().unwrap()[0].clone();
    assert!(told.ends_with("note: it carries TCP alone"), "{told}");
}

#[tokio::test]
async fn a_tunnel_that_is_no_proxy_of_http_3_is_tried_again() {
    // It never says its settings, as if it spoke something else.
    let identity = Identity::generate().unwrap();
    let endpoint = server(&identity, defaults::transport());
    let remotes = endpoint.local_addrs();
    tokio::spawn(async move {
        while let Some(connection) = endpoint.accept().await {
            crate::session::close(&connection, Code::NO_ERROR, "not here");
        }
    });
    let told = Arc::<Mutex<Vec<String>>>::default();
    let telling = Arc::clone(&told);
    let tell = move |news: &News| telling.lock().unwrap().push(news.to_string());
    let entrance = Entrance::Proxy(proxy());
    let _near = Near::enter(remotes, identity.fingerprint(), entrance, tell).await;
    eventually(|| !told.lock().unwrap().is_empty()).await;
    let told = told.lock().unwrap()[0].clone();
    assert!(
        told.contains("speaks no tunnel") && told.contains("trying again"),
        "{told}"
    );
}
