//! What becomes of a request that was sent early, with a server that the tests control.

use super::super::*;
use super::Asking;
use crate::trust::ALPN_H3;
use anabranch_net::engine::ServerConfig;
use anabranch_net::identity::{Identity, provider};
use h3::error::Code;
use http::StatusCode;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Fails a test instead of letting it hang.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(60), work).await;
    done.expect("in time")
}

type Answering = h3::server::RequestStream<anabranch_net::h3::BidiStream<Bytes>, Bytes>;

/// A server that answers the requests of its first client in turn.
struct Server {
    endpoint: Endpoint,
    identity: Identity,
}

impl Server {
    fn new() -> Self {
        let identity = Identity::generate().unwrap();
        let tls = identity.server(&["localhost"]).unwrap();
        let config = ServerConfig::new(tls.alpn(&[ALPN_H3]).build().unwrap());
        let endpoint = Endpoint::server(config, &[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        Self { endpoint, identity }
    }

    /// Hands over each request, with its method.
    fn requests(&self) -> mpsc::UnboundedReceiver<(String, Answering)> {
        let (send, requests) = mpsc::unbounded_channel();
        let endpoint = self.endpoint.clone();
        tokio::spawn(async move {
            let connection = endpoint.accept().await.unwrap();
            let mut http = h3::server::builder()
                .build(H3Connection::new(connection))
                .await
                .unwrap();
            while let Ok(Some(resolver)) = http.accept().await {
                let (request, stream) = resolver.resolve_request().await.unwrap();
                let _ = send.send((request.method().to_string(), stream));
            }
        });
        requests
    }

    /// A client whose request for `/early` has already been sent.
    async fn client(&self) -> Session {
        let tls = tls::ClientTls::pinned(provider(), self.identity.fingerprint());
        let config = ClientConfig::new(tls.alpn(&[ALPN_H3]).build().unwrap());
        let target = Target {
            name: "localhost".into(),
            remotes: self.endpoint.local_addrs(),
        };
        let endpoint = Endpoint::client().unwrap();
        let paths = anabranch_net::PathsConfig::default();
        let connected = endpoint.connect(&target, config, &paths);
        let (connection, manager) = soon(connected).await.unwrap();
        let asking = Asking::new(&url("early"), Some(HeaderMap::new())).unwrap();
        asking.begin(connection.clone());
        let (requests, early) = soon(asking.outcome(&connection)).await.unwrap();
        Session {
            connection,
            labels: Labels::new(manager),
            endpoint,
            shown: None,
            requests,
            early: Mutex::new(early),
            tickets: None,
        }
    }
}

fn url(name: &str) -> ServerUrl {
    format!("anabranch://localhost/{name}").parse().unwrap()
}

async fn answer(stream: &mut Answering, status: StatusCode) {
    let mut response = Response::new(());
    *response.status_mut() = status;
    stream.send_response(response).await.unwrap();
}

#[tokio::test]
async fn what_was_asked_early_and_is_not_wanted_is_called_off() {
    let server = Server::new();
    let mut requests = server.requests();
    let session = server.client().await;
    let (method, mut early) = soon(requests.recv()).await.unwrap();
    assert_eq!(method, "GET");
    answer(&mut early, StatusCode::OK).await;
    let asked = tokio::spawn(async move {
        let (_, response) = session
            .ask("HEAD", &url("early"), HeaderMap::new())
            .await
            .unwrap();
        (session, response.status())
    });
    let (method, mut other) = soon(requests.recv()).await.unwrap();
    assert_eq!(method, "HEAD");
    answer(&mut other, StatusCode::NO_CONTENT).await;
    other.finish().await.unwrap();
    let (session, status) = soon(asked).await.unwrap();
    assert_eq!(status, StatusCode::NO_CONTENT);
    let sending = async { while early.send_data(vec![0; 1 << 16].into()).await.is_ok() {} };
    soon(sending).await;
    let told = soon(early.recv_data()).await.err();
    let is_called_off = matches!(
        &told,
        Some(StreamError::RemoteTerminate { code, .. }) if *code == Code::H3_REQUEST_CANCELLED
    );
    assert!(is_called_off, "{told:?}");
    assert!(session.connection.close_reason().is_none());
}

#[tokio::test]
async fn what_a_server_finds_too_early_is_asked_again() {
    let server = Server::new();
    let mut requests = server.requests();
    let session = server.client().await;
    let answered = AtomicUsize::new(0);
    let (early, late) = (url("early"), url("late"));
    let asking = session.ask("GET", &early, HeaderMap::new());
    let answering = async {
        for status in [StatusCode::TOO_EARLY, StatusCode::OK] {
            let (_, mut stream) = requests.recv().await.unwrap();
            answer(&mut stream, status).await;
            stream.finish().await.unwrap();
            answered.fetch_add(1, Ordering::Relaxed);
        }
        requests.recv().await
    };
    let response = soon(async {
        tokio::select! {
            asked = asking => asked.unwrap().1,
            _ = answering => panic!("a third request"),
        }
    });
    assert_eq!(response.await.status(), StatusCode::OK);
    assert!(answered.load(Ordering::Relaxed) >= 1);
    // If a request was not sent early, this status is final.
    let asking = session.ask("GET", &late, HeaderMap::new());
    let answering = async {
        let (_, mut stream) = requests.recv().await.unwrap();
        answer(&mut stream, StatusCode::TOO_EARLY).await;
        stream.finish().await.unwrap();
        requests.recv().await
    };
    let response = soon(async {
        tokio::select! {
            asked = asking => asked.unwrap().1,
            _ = answering => panic!("it was asked again"),
        }
    });
    assert_eq!(response.await.status(), StatusCode::TOO_EARLY);
}
