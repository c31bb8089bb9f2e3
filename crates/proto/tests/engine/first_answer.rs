//! How soon a server's first answer is whole.

use crate::pair::{Pair, Way, provider};
use anabranch_proto::config::{ClientConfig, ServerConfig};
use anabranch_proto::tls::{self, KeyPair, ServerResumption};
use anabranch_proto::wire::{Dir, PathId};
use bytes::Bytes;
use rustls::time_provider::DefaultTimeProvider;
use std::sync::Arc;
use std::time::Duration;

const ONE_WAY: Duration = Duration::from_millis(100);

/// A client and a server that can resume their sessions, or cannot.
fn configs(resumption: bool) -> (ClientConfig, ServerConfig) {
    let key = KeyPair::generate(&provider(), [7; 32]).expect("a key");
    let mut server = tls::ServerTls::with_raw_key(provider(), &key).alpn(&[b"test"]);
    if resumption {
        server = server.resumption(ServerResumption {
            clock: Arc::new(DefaultTimeProvider),
            early_data: true,
        });
    }
    let client = tls::ClientTls::pinned(provider(), key.fingerprint()).alpn(&[b"test"]);
    let client = client.resumption(resumption).build().expect("a client");
    let server = server.build().expect("a server");
    (ClientConfig::new(client), ServerConfig::new(server))
}

/// Asks for `length` bytes as soon as the client's handshake is complete; returns how long it takes
/// from then on until all of them are there.
fn first_answer(resumption: bool, length: usize) -> Duration {
    let (client, server) = configs(resumption);
    let mut way = Way::new(0);
    way.delay = ONE_WAY;
    let mut pair = Pair::with_configs(vec![way], client, server);
    let done = pair.run_until(Duration::from_secs(5), |pair| {
        pair.client_conn().is_established()
    });
    assert!(done, "no handshake");
    let began = pair.now;
    let id = pair.client_conn().open(Dir::Bi).expect("a stream");
    let mut question = Bytes::from_static(b"GET /");
    pair.client_conn().write(id, &mut question).expect("credit");
    let mut answer = Some(Bytes::from(vec![b'!'; length]));
    let mut got = 0;
    let whole = pair.run_until(Duration::from_secs(5), |pair| {
        let server = pair.server_handle.is_some().then(|| pair.server_conn());
        if let Some(server) = server
            && server.accept(Dir::Bi) == Some(id)
        {
            let mut answer = answer.take().expect("one request");
            server.write(id, &mut answer).expect("credit");
            server.finish(id).expect("an open stream");
        }
        while got < length
            && let Ok(Some(bytes)) = pair.client_conn().read(id, 1 << 16)
        {
            got += bytes.len();
        }
        got == length
    });
    assert!(whole, "{got} of {length} bytes");
    let took = pair.now.since(began);
    pair.run_for(Duration::from_secs(1));
    let stats = pair.server_conn().path_stats(PathId::ZERO);
    assert_eq!(stats.expect("path 0").mtu, 1452, "probes come later");
    took
}

#[test]
fn an_answer_of_ten_kilobytes_takes_one_round_trip_after_the_handshake() {
    for resumption in [false, true] {
        let took = first_answer(resumption, 10_000);
        assert_eq!(took, 2 * ONE_WAY, "tickets: {resumption}");
    }
}
