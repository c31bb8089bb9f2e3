//! What a client kept of an earlier connection is read whatever became of it, and a server answers
//! whatever a client resumes with: a state that was changed is refused, or costs a full handshake.
//!
//! The first byte chooses what the rest is. Bytes of a state with a right checksum; or changes to a
//! real state, each of a place, a length and what stands there instead, with which a connection is
//! resumed.

#![no_main]

#[path = "../../../crates/proto/tests/engine/pair/mod.rs"]
#[allow(dead_code, reason = "other targets use the rest")]
mod pair;

use anabranch_proto::config::{ClientConfig, ServerConfig};
use anabranch_proto::resumption::{Resume, ResumptionState};
use anabranch_proto::tls::{self, KeyPair, ServerResumption, TimeProvider, UnixTime};
use anabranch_proto::wire::Dir;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pair::{Pair, Way, provider};
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What a state begins and ends with.
const MAGIC: &[u8] = b"ABRS\x02";
const CHECKSUM: usize = 8;

/// What the client sends as soon as it can.
const EARLY: &[u8] = b"GET /";

/// A wall clock that stands still.
#[derive(Debug)]
struct Noon;

impl TimeProvider for Noon {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            1_700_000_000,
        )))
    }
}

/// A server that keeps its sessions, and a client.
fn house() -> (ClientConfig, ServerConfig) {
    let key = KeyPair::generate(&provider(), [7; 32]).expect("a key");
    let server = tls::ServerTls::with_raw_key(provider(), &key)
        .alpn(&[b"test"])
        .resumption(ServerResumption {
            clock: Arc::new(Noon),
            early_data: true,
        });
    let client = tls::ClientTls::pinned(provider(), key.fingerprint())
        .alpn(&[b"test"])
        .resumption(true);
    (
        ClientConfig::new(client.build().expect("a client")),
        ServerConfig::new(server.build().expect("a server")),
    )
}

fn connect(house: &(ClientConfig, ServerConfig), resume: Option<Resume>) -> Pair {
    let client = ClientConfig {
        resume,
        ..house.0.clone()
    };
    Pair::with_configs(vec![Way::new(0)], client, house.1.clone())
}

/// The encoded state that a connection leaves behind. The server forgets it, as far as these
/// clients are concerned, once one of them has resumed: a ticket is good once.
fn visit(house: &(ClientConfig, ServerConfig)) -> Vec<u8> {
    let mut pair = connect(house, None);
    pair.connect();
    pair.run_for(Duration::from_millis(100));
    let state = pair.client_conn().take_resumption().expect("a ticket");
    state.encode()
}

fn sealed(body: &[u8]) -> Vec<u8> {
    let digest: [u8; 32] = Sha256::digest(body).into();
    [body, &digest[..CHECKSUM]].concat()
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    if choice % 4 > 0 {
        let bytes = sealed(&[MAGIC, rest].concat());
        if let Ok(state) = ResumptionState::decode(&bytes) {
            let again = ResumptionState::decode(&state.encode());
            assert_eq!(again.as_ref(), Ok(&state));
            assert!(state.lifetime() <= Duration::from_secs(u64::from(u32::MAX)));
        }
        return;
    }
    static HOUSE: OnceLock<(ClientConfig, ServerConfig)> = OnceLock::new();
    let house = HOUSE.get_or_init(house);
    let mut state = visit(house);
    state.truncate(state.len() - CHECKSUM);
    for change in rest.chunks_exact(4) {
        let [high, low, length, byte] = change else {
            unreachable!("four bytes each")
        };
        let at = usize::from(*high) << 8 | usize::from(*low);
        let at = MAGIC.len() + at % (state.len() - MAGIC.len());
        let end = (at + usize::from(length % 8)).min(state.len());
        state[at..end].fill(*byte);
    }
    let Ok(state) = ResumptionState::decode(&sealed(&state)) else {
        return;
    };
    resume(house, state);
});

/// Either the connection is there and what was sent early arrives, or it ends with a reason.
fn resume(house: &(ClientConfig, ServerConfig), state: ResumptionState) {
    let resume = Resume {
        state,
        age: Duration::ZERO,
        early_data: true,
    };
    let mut pair = connect(house, Some(resume));
    let sent = pair.client_conn().open(Dir::Bi).and_then(|id| {
        let mut data = Bytes::from_static(EARLY);
        let written = pair.client_conn().write(id, &mut data).is_ok() && data.is_empty();
        (written && pair.client_conn().finish(id).is_ok()).then_some(id)
    });
    let over = |pair: &mut Pair| {
        let closed = pair
            .client_events
            .iter()
            .any(|(_, event)| matches!(event, anabranch_proto::Event::Closed(_)));
        let established = pair
            .side(false)
            .is_some_and(|client| client.is_established());
        closed || established && sent.is_none_or(|id| pair.finished.contains(&id))
    };
    assert!(pair.run_until(Duration::from_secs(20), over));
}
