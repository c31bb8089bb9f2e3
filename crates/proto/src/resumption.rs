//! What a client keeps of a connection to begin the next one sooner: the TLS session, the limits
//! that the server had granted (RFC 9000, section 7.4.1), and a token that proves the address.
//!
//! [`ResumptionState`] is a value without behaviour that the application stores where it likes. It
//! is good once (RFC 8446, appendix C.4). Of paths it carries over what they could do, for who
//! sends much (RFC 9959), and nothing that RFC 10069 negotiates.

use crate::congestion::resume::MEMORY_LIFETIME;
use crate::handshake::tls::{ClientTls, SavedSession};
use crate::known_paths::{KnownPath, MAX_KNOWN_PATHS, Recollection};
use crate::time::{Duration, Instant};
use anabranch_wire::Side;
use anabranch_wire::cursor::{Reader, UnexpectedEnd};
use anabranch_wire::params::TransportParameters;
use anabranch_wire::varint;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fmt;

/// What an encoded state begins with; the last byte is the version of the encoding.
const MAGIC: [u8; 5] = *b"ABRS\x02";
/// The version before, which knows one path at most and is the same otherwise: it is read, too.
const FORMER_MAGIC: [u8; 5] = *b"ABRS\x01";
/// Bytes of the checksum that an encoded state ends with.
const CHECKSUM: usize = 8;
/// The longest encoded state, in bytes: a ticket, a few certificates, a token.
pub const MAX_STATE: usize = 64 * 1024;
/// States that one connection leaves at most: so many tickets a server gives and a client keeps,
/// with a token for each. A resumed connection may be over before new tickets come, so that one
/// visit is worth some more.
pub const MAX_STATES: usize = 6;
/// The longest token kept, in bytes: it has to fit into a client's first packet beside a
/// `ClientHello`.
const MAX_TOKEN: usize = 512;
/// The most certificates of a server that are kept.
const MAX_CHAIN: usize = 16;

/// The transport parameters that hold for early data, and no others: what an endpoint declares
/// about one connection, connection IDs and the path limit of RFC 10069 among it, is not
/// remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remembered(TransportParameters);

impl Remembered {
    pub(crate) fn of(params: &TransportParameters) -> Self {
        Self(TransportParameters {
            max_udp_payload_size: params.max_udp_payload_size,
            initial_max_data: params.initial_max_data,
            initial_max_stream_data_bidi_local: params.initial_max_stream_data_bidi_local,
            initial_max_stream_data_bidi_remote: params.initial_max_stream_data_bidi_remote,
            initial_max_stream_data_uni: params.initial_max_stream_data_uni,
            initial_max_streams_bidi: params.initial_max_streams_bidi,
            initial_max_streams_uni: params.initial_max_streams_uni,
            active_connection_id_limit: params.active_connection_id_limit,
            max_datagram_frame_size: params.max_datagram_frame_size,
            ..TransportParameters::default()
        })
    }

    pub(crate) fn params(&self) -> &TransportParameters {
        &self.0
    }

    /// Whether these limits are below those that were granted before.
    pub(crate) fn reduces(&self, granted: &Self) -> bool {
        let (now, before) = (&self.0, &granted.0);
        let pairs = [
            (now.initial_max_data, before.initial_max_data),
            (
                now.initial_max_stream_data_bidi_local,
                before.initial_max_stream_data_bidi_local,
            ),
            (
                now.initial_max_stream_data_bidi_remote,
                before.initial_max_stream_data_bidi_remote,
            ),
            (
                now.initial_max_stream_data_uni,
                before.initial_max_stream_data_uni,
            ),
            (
                now.initial_max_streams_bidi,
                before.initial_max_streams_bidi,
            ),
            (now.initial_max_streams_uni, before.initial_max_streams_uni),
            (
                now.active_connection_id_limit,
                before.active_connection_id_limit,
            ),
            (now.max_datagram_frame_size, before.max_datagram_frame_size),
        ];
        pairs.iter().any(|(now, before)| now < before)
    }
}

/// What the next connection to the same server begins with. It holds secrets: whoever has it can
/// read the early data of that connection, and be the client as far as the server can tell.
#[derive(Clone, PartialEq, Eq)]
pub struct ResumptionState {
    pub(crate) server_name: String,
    pub(crate) session: SavedSession,
    pub(crate) remembered: Remembered,
    /// For the first Initial (RFC 9000, section 8.1.3); empty if the server gave none.
    pub(crate) token: Vec<u8>,
    /// What its paths carried, as far as that is worth knowing.
    pub(crate) paths: Vec<KnownPath>,
}

/// Bytes that are not a state this version can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The state was made by another version, or is something else.
    #[error("not the resumption state of this version")]
    Version,
    /// The state was cut short or changed.
    #[error("the resumption state is damaged")]
    Damaged,
}

impl From<UnexpectedEnd> for StateError {
    fn from(_: UnexpectedEnd) -> Self {
        Self::Damaged
    }
}

impl ResumptionState {
    /// The name the server was called by.
    pub fn server_name(&self) -> &str {
        &self.server_name
    }

    /// How long the state is good, counted from when it was
    /// [taken](crate::Connection::take_resumption).
    pub fn lifetime(&self) -> Duration {
        self.session.lifetime()
    }

    /// Whether it proves the client's address, as a state does if the server gave tokens enough. To
    /// others a server sends at most three times what it got until it heard of them again (RFC
    /// 9000, section 8.1).
    pub fn has_token(&self) -> bool {
        !self.token.is_empty()
    }

    /// Whether a client with this configuration may use it for this server. A state made under
    /// other pins, roots or another identity is of no use, nor would it be trusted.
    pub fn fits(&self, config: &ClientTls, server_name: &str) -> bool {
        self.server_name == server_name && self.session.trust == config.trust_digest()
    }

    /// Forgets what paths carried, all of them. A client calls it that comes from other networks
    /// than it had when the state was taken, and knows: otherwise only addresses, RTT and losses
    /// tell.
    pub fn forget_path(&mut self) {
        self.paths.clear();
    }

    /// Itself, if [`decode`](Self::decode) takes it: of a server with a chain of certificates
    /// without end, say, nothing is kept.
    pub(crate) fn if_storable(self) -> Option<Self> {
        Self::decode(&self.encode()).ok()
    }

    /// The state as bytes, to be kept where nobody else can read them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let session = &self.session;
        let mut params = Vec::new();
        self.remembered.params().encode(&mut params, Side::Server);
        put(&mut out, self.server_name.as_bytes());
        out.extend_from_slice(&session.trust);
        out.extend_from_slice(&session.suite.to_be_bytes());
        for part in [
            &session.alpn,
            &session.ticket,
            &session.key,
            &params,
            &self.token,
        ] {
            put(&mut out, part);
        }
        varint::put(&mut out, session.chain.len() as u64);
        session.chain.iter().for_each(|part| put(&mut out, part));
        // Last, as many as there are.
        for path in &self.paths {
            put(&mut out, &path.encode());
        }
        let checksum = checksum(&out);
        out.extend_from_slice(&checksum);
        out
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let is_known = [MAGIC, FORMER_MAGIC].iter().any(|it| bytes.starts_with(it));
        if bytes.len() > MAX_STATE || !is_known {
            return Err(StateError::Version);
        }
        let (body, sum) = bytes.split_at(bytes.len() - CHECKSUM.min(bytes.len()));
        let body = body.get(MAGIC.len()..).ok_or(StateError::Damaged)?;
        if checksum(&bytes[..MAGIC.len() + body.len()]) != sum {
            return Err(StateError::Damaged);
        }
        let mut reader = Reader::new(body);
        let name = reader.length_prefixed()?.to_vec();
        let trust = reader.array()?;
        let suite = reader.u16()?;
        let mut part = || Ok::<_, StateError>(reader.length_prefixed()?.to_vec());
        let (alpn, ticket, key) = (part()?, part()?, part()?);
        let (params, token) = (part()?, part()?);
        let params = TransportParameters::decode(&params, Side::Server);
        let count = reader.varint()?;
        if count > MAX_CHAIN as u64 {
            return Err(StateError::Damaged);
        }
        let chain = (0..count)
            .map(|_| Ok(reader.length_prefixed()?.to_vec()))
            .collect::<Result<_, StateError>>()?;
        let mut paths = Vec::new();
        while !reader.is_empty() && paths.len() < MAX_KNOWN_PATHS {
            let path = KnownPath::decode(reader.length_prefixed()?);
            paths.push(path.ok_or(StateError::Damaged)?);
        }
        let session = SavedSession {
            trust,
            suite,
            alpn,
            ticket,
            key,
            chain,
        };
        if !reader.is_empty() || !session.is_plausible() {
            return Err(StateError::Damaged);
        }
        Ok(Self {
            server_name: String::from_utf8(name).map_err(|_| StateError::Damaged)?,
            session,
            remembered: Remembered::of(&params.map_err(|_| StateError::Damaged)?),
            token,
            paths,
        })
    }
}

impl fmt::Debug for ResumptionState {
    /// Without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumptionState")
            .field("server_name", &self.server_name)
            .field("lifetime", &self.lifetime())
            .finish_non_exhaustive()
    }
}

/// The tokens that a server gave a client for later connections (RFC 9000, section 8.1.3).
#[derive(Debug, Default)]
pub(crate) struct Tokens(VecDeque<Vec<u8>>);

impl Tokens {
    /// Keeps the newest ones. One that comes again was sent again.
    pub(crate) fn add(&mut self, token: &[u8]) {
        if token.len() > MAX_TOKEN || self.0.iter().any(|known| known == token) {
            return;
        }
        if self.0.len() == MAX_STATES {
            self.0.pop_front();
        }
        self.0.push_back(token.to_vec());
    }

    /// The one that [`take`](Self::take) would take.
    pub(crate) fn newest(&self) -> Option<&[u8]> {
        self.0.back().map(Vec::as_slice)
    }

    /// The newest one: each is for one connection.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.0.pop_back()
    }
}

/// How a client is to resume.
#[derive(Debug, Clone)]
pub struct Resume {
    /// The state of an earlier connection to the same server; to be used for one connection only.
    pub state: ResumptionState,
    /// How long ago it was taken.
    pub age: Duration,
    /// Whether what the application sends may go before the handshake ends, where an attacker can
    /// have the server read it twice.
    pub early_data: bool,
}

impl Resume {
    /// What the earlier connection saw of its paths, as far as that still counts.
    pub(crate) fn recollection(&self, now: Instant) -> Recollection {
        let left = MEMORY_LIFETIME.checked_sub(self.age);
        left.map_or_else(Recollection::default, |left| {
            Recollection::new(self.state.paths.clone(), now + left)
        })
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&digest[..CHECKSUM]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::PathMemory;
    use crate::known_paths::Ends;
    use proptest::prelude::*;

    fn state() -> ResumptionState {
        let params = TransportParameters {
            initial_max_data: 1000,
            initial_max_streams_bidi: 7,
            initial_max_path_id: Some(anabranch_wire::PathId(7)),
            ack_delay_exponent: 10,
            ..TransportParameters::default()
        };
        let mut ticket = vec![4, 0, 0, 12];
        ticket.extend([0, 0, 0x0e, 0x10, 1, 2, 3, 4, 0, 0, 0, 0]);
        ResumptionState {
            server_name: "example.net".into(),
            session: SavedSession {
                trust: [3; 32],
                suite: 0x1301,
                alpn: b"h3".to_vec(),
                ticket,
                key: vec![9; 32],
                chain: vec![vec![1, 2, 3]],
            },
            remembered: Remembered::of(&params),
            token: vec![5; 40],
            paths: Vec::new(),
        }
    }

    fn ends(remote: &str, local: Option<&str>) -> Ends {
        let address = |text: &str| text.parse().unwrap();
        Ends::new(address(remote), local.map(address))
    }

    /// A state that knows what the paths between these ends carried.
    fn knowing(ends: &[Ends]) -> ResumptionState {
        let memory = PathMemory::new(1 << 20, Duration::from_millis(200)).unwrap();
        let known = |ends: &Ends| KnownPath {
            ends: *ends,
            memory,
        };
        ResumptionState {
            paths: ends.iter().map(known).collect(),
            ..state()
        }
    }

    #[test]
    fn a_state_survives_being_written_and_read() {
        let state = state();
        assert_eq!(ResumptionState::decode(&state.encode()), Ok(state));
    }

    #[test]
    fn paths_are_known_again_for_an_hour() {
        let both = [ends("192.0.2.7", None), ends("192.0.2.7", Some("10.0.0.1"))];
        let mut state = knowing(&both);
        assert_eq!(ResumptionState::decode(&state.encode()), Ok(state.clone()));
        let hour = Duration::from_secs(3600);
        let known = |state: &ResumptionState, ends: &Ends, age| {
            let resume = Resume {
                state: state.clone(),
                age,
                early_data: false,
            };
            let memory = resume.recollection(Instant::ZERO).take(Instant::ZERO, ends);
            assert!(memory.is_none_or(|(_, until)| until == Instant::ZERO + hour - age));
            memory.is_some()
        };
        let late = hour + Duration::from_nanos(1);
        for ends in &both {
            assert!(known(&state, ends, hour));
            assert!(!known(&state, ends, late));
        }
        assert!(!known(&state, &ends("192.0.2.8", None), hour));
        state.forget_path();
        assert!(both.iter().all(|ends| !known(&state, ends, hour)));
    }

    #[test]
    fn what_is_no_path_is_damage() {
        let there = ends("192.0.2.7", None);
        let good = knowing(&[there]).encode();
        let whole = &good[..good.len() - CHECKSUM];
        let before = whole.len() - knowing(&[there]).paths[0].encode().len() - 1;
        let with = |path: &[u8]| {
            let mut bytes = whole[..before].to_vec();
            put(&mut bytes, path);
            bytes.extend(checksum(&bytes));
            ResumptionState::decode(&bytes)
        };
        assert!(with(&whole[before + 1..]).is_ok());
        for path in [&[][..], &[1; 23], &[1; 25], &[1; 39], &[1; 41], &[0; 24]] {
            assert_eq!(with(path), Err(StateError::Damaged), "{path:?}");
        }
    }

    #[test]
    fn more_paths_than_are_kept_are_damage() {
        let path = |n: u8| ends(&format!("192.0.2.{n}"), None);
        let read = |count: u8| {
            let all: Vec<_> = (0..count).map(path).collect();
            ResumptionState::decode(&knowing(&all).encode()).map(|state| state.paths.len())
        };
        assert_eq!(read(MAX_KNOWN_PATHS as u8), Ok(MAX_KNOWN_PATHS));
        assert_eq!(read(MAX_KNOWN_PATHS as u8 + 1), Err(StateError::Damaged));
    }

    #[test]
    fn a_state_of_the_version_before_is_read() {
        let state = knowing(&[ends("192.0.2.7", Some("10.0.0.1"))]);
        let mut former = state.encode();
        former.truncate(former.len() - CHECKSUM);
        former[..MAGIC.len()].copy_from_slice(&FORMER_MAGIC);
        former.extend(checksum(&former));
        assert_eq!(ResumptionState::decode(&former), Ok(state));
    }

    #[test]
    fn nothing_about_paths_and_acknowledgements_is_remembered() {
        let state = ResumptionState::decode(&state().encode()).expect("it was just written");
        let params = state.remembered.params();
        assert_eq!(params.initial_max_path_id, None);
        assert_eq!(params.ack_delay_exponent, 3);
        assert_eq!(params.initial_max_data, 1000);
        assert_eq!(state.lifetime(), Duration::from_secs(3600));
    }

    #[test]
    fn a_state_of_another_version_and_a_damaged_one_are_told_apart() {
        let good = state().encode();
        let mut newer = good.clone();
        newer[4] = 3;
        assert_eq!(ResumptionState::decode(&newer), Err(StateError::Version));
        for at in MAGIC.len()..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(ResumptionState::decode(&bad), Err(StateError::Damaged));
            let short = ResumptionState::decode(&good[..at]);
            assert_eq!(short, Err(StateError::Damaged));
        }
    }

    #[test]
    fn a_reduction_of_any_limit_is_noticed() {
        let full = Remembered::of(&TransportParameters {
            initial_max_data: 5,
            max_datagram_frame_size: 5,
            ..TransportParameters::default()
        });
        let none = Remembered::of(&TransportParameters::default());
        assert!(none.reduces(&full) && !full.reduces(&none) && !full.reduces(&full));
    }

    #[test]
    fn a_state_that_could_not_be_read_again_is_not_handed_out() {
        assert_eq!(state().if_storable(), Some(state()));
        let mut long = state();
        long.session.chain = vec![vec![1]; MAX_CHAIN + 1];
        assert_eq!(long.if_storable(), None);
        let mut large = state();
        large.token = vec![5; MAX_STATE];
        assert_eq!(large.if_storable(), None);
    }

    #[test]
    fn few_tokens_are_kept_each_once_and_none_that_fills_a_packet() {
        let mut tokens = Tokens::default();
        for token in 0..100_u8 {
            tokens.add(&[token]);
            tokens.add(&[token]);
        }
        tokens.add(&[7; MAX_TOKEN + 1]);
        assert_eq!(tokens.newest(), Some(&[99][..]));
        let taken: Vec<_> = std::iter::from_fn(|| tokens.take()).collect();
        let newest: Vec<_> = (0..MAX_STATES as u8).map(|back| vec![99 - back]).collect();
        assert_eq!(taken, newest);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_with_a_right_checksum_do_not_panic(
            body in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(body);
            let sum = checksum(&bytes);
            bytes.extend(sum);
            if let Ok(state) = ResumptionState::decode(&bytes) {
                prop_assert_eq!(ResumptionState::decode(&state.encode()), Ok(state));
            }
        }
    }
}
