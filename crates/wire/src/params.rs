//! Transport parameters (RFC 9000, section 18; RFC 9221; RFC 9287; RFC 10069;
//! draft-huitema-quic-ts-08; draft-ietf-quic-ack-frequency-14).
//!
//! This module checks everything that follows from a list of parameters alone. Only the engine can
//! check whether the connection IDs match those of the handshake, and whether they allow multipath.

use crate::cid::{ConnectionId, ResetToken};
use crate::code::TransportErrorCode;
use crate::cursor::{Reader, UnexpectedEnd};
use crate::frame::MAX_STREAM_COUNT;
use crate::id::{PathId, Side};
use crate::{MIN_DATAGRAM_SIZE, varint};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

/// Parameter IDs, as registered with IANA, but for the last.
mod id {
    pub(super) const ORIGINAL_DCID: u64 = 0x00;
    pub(super) const MAX_IDLE_TIMEOUT: u64 = 0x01;
    pub(super) const RESET_TOKEN: u64 = 0x02;
    pub(super) const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
    pub(super) const MAX_DATA: u64 = 0x04;
    pub(super) const MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
    pub(super) const MAX_STREAM_DATA_BIDI_REMOTE: u64 = 0x06;
    pub(super) const MAX_STREAM_DATA_UNI: u64 = 0x07;
    pub(super) const MAX_STREAMS_BIDI: u64 = 0x08;
    pub(super) const MAX_STREAMS_UNI: u64 = 0x09;
    pub(super) const ACK_DELAY_EXPONENT: u64 = 0x0a;
    pub(super) const MAX_ACK_DELAY: u64 = 0x0b;
    pub(super) const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
    pub(super) const PREFERRED_ADDRESS: u64 = 0x0d;
    pub(super) const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
    pub(super) const INITIAL_SOURCE_CID: u64 = 0x0f;
    pub(super) const RETRY_SOURCE_CID: u64 = 0x10;
    pub(super) const MAX_DATAGRAM_FRAME_SIZE: u64 = 0x20;
    pub(super) const INITIAL_MAX_PATH_ID: u64 = 0x3e;
    pub(super) const GREASE_QUIC_BIT: u64 = 0x2ab2;
    pub(super) const ENABLE_TIMESTAMP: u64 = 0x7158;
    pub(super) const MIN_ACK_DELAY: u64 = 0xff04_de1b;
    /// Not registered: chosen so that nobody else has it (RFC 9000, section 22.1.2).
    pub(super) const HANDSHAKE_BY_ANY_PATH: u64 = 0x216e_6162;
}

/// Where a server wants to be contacted after the handshake (RFC 9000, section 18.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreferredAddress {
    /// The IPv4 address, if there is one.
    pub ipv4: Option<SocketAddrV4>,
    /// The IPv6 address, if there is one.
    pub ipv6: Option<SocketAddrV6>,
    /// The connection ID to use there, of 1 to 20 bytes: path 0, sequence number 1.
    pub cid: ConnectionId,
    /// The stateless reset token of that connection ID.
    pub reset_token: ResetToken,
}

/// What an endpoint supports with regard to timestamps (draft-huitema-quic-ts-08).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timestamps {
    /// The endpoint wants to receive them.
    Receive,
    /// The endpoint can send them.
    Send,
    /// Both.
    Both,
}

impl Timestamps {
    /// Whether it wants to receive them.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }

    /// Whether it can send them.
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }

    /// The value on the wire.
    const fn value(self) -> u64 {
        match self {
            Self::Receive => 1,
            Self::Send => 2,
            Self::Both => 3,
        }
    }

    fn decode(value: &[u8]) -> Result<Self, &'static str> {
        match integer(value)? {
            1 => Ok(Self::Receive),
            2 => Ok(Self::Send),
            3 => Ok(Self::Both),
            _ => Err("it is not 1, 2 or 3"),
        }
    }
}

/// What an endpoint declares about itself during the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportParameters {
    /// Destination connection ID of the client's first packet. Servers only.
    pub original_dcid: Option<ConnectionId>,
    /// Idle time-out in milliseconds; 0 for none.
    pub max_idle_timeout_ms: u64,
    /// Stateless reset token of the handshake's connection ID. Servers only.
    pub reset_token: Option<ResetToken>,
    /// The largest UDP payload accepted, in bytes; at least 1200.
    pub max_udp_payload_size: u64,
    /// Initial limit on the bytes of all streams together.
    pub initial_max_data: u64,
    /// Initial limit on the bytes of bidirectional streams that the sender of the parameter opens.
    pub initial_max_stream_data_bidi_local: u64,
    /// Initial limit on the bytes of bidirectional streams that the receiver of the parameter
    /// opens.
    pub initial_max_stream_data_bidi_remote: u64,
    /// Initial limit on the bytes of unidirectional streams.
    pub initial_max_stream_data_uni: u64,
    /// Bidirectional streams the receiver of the parameter may open initially; up to 2^60.
    pub initial_max_streams_bidi: u64,
    /// Unidirectional streams the receiver of the parameter may open initially; up to 2^60.
    pub initial_max_streams_uni: u64,
    /// Binary exponent of the unit of delays in acknowledgements, in microseconds; up to 20.
    pub ack_delay_exponent: u64,
    /// The longest deliberate delay of acknowledgements in milliseconds; below 2^14.
    pub max_ack_delay_ms: u64,
    /// Whether the peer must not migrate away from the handshake's server address.
    pub disable_active_migration: bool,
    /// The address to move to after the handshake. Servers only.
    pub preferred_address: Option<PreferredAddress>,
    /// The number of connection IDs the sender of the parameter stores per path; at least 2.
    pub active_connection_id_limit: u64,
    /// Source connection ID of the sender's first packet.
    pub initial_source_cid: Option<ConnectionId>,
    /// Source connection ID of the Retry packet. Servers only.
    pub retry_source_cid: Option<ConnectionId>,
    /// The largest DATAGRAM frame accepted, in bytes including its type and length; 0 for none (RFC
    /// 9221, section 3).
    pub max_datagram_frame_size: u64,
    /// Whether packets with a fixed bit of 0 are accepted (RFC 9287).
    pub grease_quic_bit: bool,
    /// The highest path ID the sender of the parameter maintains; `None` without multipath (RFC
    /// 10069).
    pub initial_max_path_id: Option<PathId>,
    /// The shortest delay of acknowledgements that may be requested, in microseconds
    /// (draft-ietf-quic-ack-frequency).
    pub min_ack_delay_us: Option<u64>,
    /// What the sender of the parameter does with timestamps; `None` without the extension.
    pub enable_timestamp: Option<Timestamps>,
    /// Whether Handshake packets are read wherever they come from, so that a client may repeat them
    /// by further paths when the first one fails. Servers only; peers of other makes skip it.
    pub handshake_by_any_path: bool,
}

impl Default for TransportParameters {
    /// The meaning of an empty list of parameters.
    fn default() -> Self {
        Self {
            original_dcid: None,
            max_idle_timeout_ms: 0,
            reset_token: None,
            max_udp_payload_size: 65527,
            initial_max_data: 0,
            initial_max_stream_data_bidi_local: 0,
            initial_max_stream_data_bidi_remote: 0,
            initial_max_stream_data_uni: 0,
            initial_max_streams_bidi: 0,
            initial_max_streams_uni: 0,
            ack_delay_exponent: 3,
            max_ack_delay_ms: 25,
            disable_active_migration: false,
            preferred_address: None,
            active_connection_id_limit: 2,
            initial_source_cid: None,
            retry_source_cid: None,
            max_datagram_frame_size: 0,
            grease_quic_bit: false,
            initial_max_path_id: None,
            min_ack_delay_us: None,
            enable_timestamp: None,
            handshake_by_any_path: false,
        }
    }
}

/// Why a list of parameters is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamsError {
    /// The ID of the invalid parameter; `None` if the list ends before an ID is complete.
    pub parameter: Option<u64>,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl ParamsError {
    /// The code to close the connection with.
    pub const fn code(&self) -> TransportErrorCode {
        TransportErrorCode::TRANSPORT_PARAMETER_ERROR
    }
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parameter {
            Some(id) => {
                write!(
                    f,
                    "transport parameter {} ({id:#x}): {}",
                    name(id),
                    self.problem
                )
            }
            None => write!(f, "transport parameters: {}", self.problem),
        }
    }
}

impl std::error::Error for ParamsError {}

/// The registered name of a parameter, or `unknown`.
pub const fn name(parameter: u64) -> &'static str {
    match parameter {
        id::ORIGINAL_DCID => "original_destination_connection_id",
        id::MAX_IDLE_TIMEOUT => "max_idle_timeout",
        id::RESET_TOKEN => "stateless_reset_token",
        id::MAX_UDP_PAYLOAD_SIZE => "max_udp_payload_size",
        id::MAX_DATA => "initial_max_data",
        id::MAX_STREAM_DATA_BIDI_LOCAL => "initial_max_stream_data_bidi_local",
        id::MAX_STREAM_DATA_BIDI_REMOTE => "initial_max_stream_data_bidi_remote",
        id::MAX_STREAM_DATA_UNI => "initial_max_stream_data_uni",
        id::MAX_STREAMS_BIDI => "initial_max_streams_bidi",
        id::MAX_STREAMS_UNI => "initial_max_streams_uni",
        id::ACK_DELAY_EXPONENT => "ack_delay_exponent",
        id::MAX_ACK_DELAY => "max_ack_delay",
        id::DISABLE_ACTIVE_MIGRATION => "disable_active_migration",
        id::PREFERRED_ADDRESS => "preferred_address",
        id::ACTIVE_CONNECTION_ID_LIMIT => "active_connection_id_limit",
        id::INITIAL_SOURCE_CID => "initial_source_connection_id",
        id::RETRY_SOURCE_CID => "retry_source_connection_id",
        id::MAX_DATAGRAM_FRAME_SIZE => "max_datagram_frame_size",
        id::INITIAL_MAX_PATH_ID => "initial_max_path_id",
        id::GREASE_QUIC_BIT => "grease_quic_bit",
        id::ENABLE_TIMESTAMP => "enable_timestamp",
        id::MIN_ACK_DELAY => "min_ack_delay",
        id::HANDSHAKE_BY_ANY_PATH => "handshake_by_any_path",
        _ => "unknown",
    }
}

impl TransportParameters {
    /// Appends the parameters that `side` sends: without those at their default and, for the
    /// client, without those that only servers send.
    ///
    /// # Panics
    /// If a number exceeds 2^62 − 1.
    pub fn encode(&self, out: &mut Vec<u8>, side: Side) {
        let default = Self::default();
        let mut integer = |parameter, value: u64, default: u64| {
            if value != default {
                put_integer(out, parameter, value);
            }
        };
        integer(
            id::MAX_IDLE_TIMEOUT,
            self.max_idle_timeout_ms,
            default.max_idle_timeout_ms,
        );
        integer(
            id::MAX_UDP_PAYLOAD_SIZE,
            self.max_udp_payload_size,
            default.max_udp_payload_size,
        );
        integer(id::MAX_DATA, self.initial_max_data, 0);
        integer(
            id::MAX_STREAM_DATA_BIDI_LOCAL,
            self.initial_max_stream_data_bidi_local,
            0,
        );
        integer(
            id::MAX_STREAM_DATA_BIDI_REMOTE,
            self.initial_max_stream_data_bidi_remote,
            0,
        );
        integer(id::MAX_STREAM_DATA_UNI, self.initial_max_stream_data_uni, 0);
        integer(id::MAX_STREAMS_BIDI, self.initial_max_streams_bidi, 0);
        integer(id::MAX_STREAMS_UNI, self.initial_max_streams_uni, 0);
        integer(
            id::ACK_DELAY_EXPONENT,
            self.ack_delay_exponent,
            default.ack_delay_exponent,
        );
        integer(
            id::MAX_ACK_DELAY,
            self.max_ack_delay_ms,
            default.max_ack_delay_ms,
        );
        integer(
            id::ACTIVE_CONNECTION_ID_LIMIT,
            self.active_connection_id_limit,
            default.active_connection_id_limit,
        );
        integer(id::MAX_DATAGRAM_FRAME_SIZE, self.max_datagram_frame_size, 0);
        self.encode_optional(out);
        if side.is_server() {
            self.encode_server_only(out);
        }
    }

    fn encode_optional(&self, out: &mut Vec<u8>) {
        let optional = [
            (
                id::INITIAL_MAX_PATH_ID,
                self.initial_max_path_id.map(|path| u64::from(path.0)),
            ),
            (id::MIN_ACK_DELAY, self.min_ack_delay_us),
            (
                id::ENABLE_TIMESTAMP,
                self.enable_timestamp.map(Timestamps::value),
            ),
        ];
        for (parameter, value) in optional {
            if let Some(value) = value {
                put_integer(out, parameter, value);
            }
        }
        if self.disable_active_migration {
            put_bytes(out, id::DISABLE_ACTIVE_MIGRATION, &[]);
        }
        if self.grease_quic_bit {
            put_bytes(out, id::GREASE_QUIC_BIT, &[]);
        }
        if let Some(cid) = &self.initial_source_cid {
            put_bytes(out, id::INITIAL_SOURCE_CID, cid.as_slice());
        }
    }

    fn encode_server_only(&self, out: &mut Vec<u8>) {
        if let Some(cid) = &self.original_dcid {
            put_bytes(out, id::ORIGINAL_DCID, cid.as_slice());
        }
        if let Some(cid) = &self.retry_source_cid {
            put_bytes(out, id::RETRY_SOURCE_CID, cid.as_slice());
        }
        if let Some(token) = &self.reset_token {
            put_bytes(out, id::RESET_TOKEN, &token.0);
        }
        if let Some(preferred) = &self.preferred_address {
            preferred.encode(out);
        }
        if self.handshake_by_any_path {
            put_bytes(out, id::HANDSHAKE_BY_ANY_PATH, &[]);
        }
    }

    /// Reads the parameters that `sender` sent.
    ///
    /// Unknown parameters are skipped; a duplicate parameter, known or not, is an error.
    pub fn decode(bytes: &[u8], sender: Side) -> Result<Self, ParamsError> {
        let mut params = Self::default();
        let mut seen = Vec::new();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let parameter = reader.varint().map_err(|_| ParamsError {
                parameter: None,
                problem: "the list ends early",
            })?;
            let failed = |problem| ParamsError {
                parameter: Some(parameter),
                problem,
            };
            let value = reader
                .length_prefixed()
                .map_err(|_| failed("the list ends within its value"))?;
            if sender.is_client() && is_server_only(parameter) {
                return Err(failed("only servers send it"));
            }
            params.decode_one(parameter, value).map_err(failed)?;
            seen.push(parameter);
        }
        seen.sort_unstable();
        if let Some(twice) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ParamsError {
                parameter: Some(twice[0]),
                problem: "it comes twice",
            });
        }
        if params
            .min_ack_delay_us
            .is_some_and(|min| min > params.max_ack_delay_ms * 1000)
        {
            let problem = "it exceeds max_ack_delay";
            return Err(ParamsError {
                parameter: Some(id::MIN_ACK_DELAY),
                problem,
            });
        }
        Ok(params)
    }

    fn decode_one(&mut self, parameter: u64, value: &[u8]) -> Result<(), &'static str> {
        match parameter {
            id::ORIGINAL_DCID => self.original_dcid = Some(cid(value)?),
            id::MAX_IDLE_TIMEOUT => self.max_idle_timeout_ms = integer(value)?,
            id::RESET_TOKEN => {
                let token = value.try_into().map_err(|_| "it is not of 16 bytes")?;
                self.reset_token = Some(ResetToken(token));
            }
            id::MAX_UDP_PAYLOAD_SIZE => {
                self.max_udp_payload_size = within(
                    value,
                    MIN_DATAGRAM_SIZE as u64..=varint::MAX,
                    "it is below 1200",
                )?;
            }
            id::MAX_DATA => self.initial_max_data = integer(value)?,
            id::MAX_STREAM_DATA_BIDI_LOCAL => {
                self.initial_max_stream_data_bidi_local = integer(value)?;
            }
            id::MAX_STREAM_DATA_BIDI_REMOTE => {
                self.initial_max_stream_data_bidi_remote = integer(value)?;
            }
            id::MAX_STREAM_DATA_UNI => self.initial_max_stream_data_uni = integer(value)?,
            id::MAX_STREAMS_BIDI => self.initial_max_streams_bidi = stream_count(value)?,
            id::MAX_STREAMS_UNI => self.initial_max_streams_uni = stream_count(value)?,
            id::ACK_DELAY_EXPONENT => {
                self.ack_delay_exponent = within(value, 0..=20, "it exceeds 20")?;
            }
            id::MAX_ACK_DELAY => {
                self.max_ack_delay_ms = within(value, 0..=(1 << 14) - 1, "it is 2^14 or more")?;
            }
            id::DISABLE_ACTIVE_MIGRATION => self.disable_active_migration = flag(value)?,
            id::PREFERRED_ADDRESS => {
                self.preferred_address = Some(PreferredAddress::decode(value)?);
            }
            id::ACTIVE_CONNECTION_ID_LIMIT => {
                self.active_connection_id_limit = within(value, 2..=varint::MAX, "it is below 2")?;
            }
            id::INITIAL_SOURCE_CID => self.initial_source_cid = Some(cid(value)?),
            id::RETRY_SOURCE_CID => self.retry_source_cid = Some(cid(value)?),
            id::MAX_DATAGRAM_FRAME_SIZE => self.max_datagram_frame_size = integer(value)?,
            id::GREASE_QUIC_BIT => self.grease_quic_bit = flag(value)?,
            id::INITIAL_MAX_PATH_ID => {
                let path = within(value, 0..=u32::MAX.into(), "it exceeds 2^32 - 1")?;
                self.initial_max_path_id = Some(PathId(path as u32));
            }
            id::MIN_ACK_DELAY => self.min_ack_delay_us = Some(integer(value)?),
            id::ENABLE_TIMESTAMP => self.enable_timestamp = Some(Timestamps::decode(value)?),
            id::HANDSHAKE_BY_ANY_PATH => self.handshake_by_any_path = flag(value)?,
            _ => {}
        }
        Ok(())
    }
}

impl PreferredAddress {
    fn encode(&self, out: &mut Vec<u8>) {
        let ipv4 = self
            .ipv4
            .unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let ipv6 = self
            .ipv6
            .unwrap_or(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0));
        varint::put(out, id::PREFERRED_ADDRESS);
        // Two addresses with their ports, the length byte, the connection ID and the token.
        varint::put(out, (4 + 2 + 16 + 2 + 1 + self.cid.len() + 16) as u64);
        out.extend_from_slice(&ipv4.ip().octets());
        out.extend_from_slice(&ipv4.port().to_be_bytes());
        out.extend_from_slice(&ipv6.ip().octets());
        out.extend_from_slice(&ipv6.port().to_be_bytes());
        out.push(self.cid.len() as u8);
        out.extend_from_slice(self.cid.as_slice());
        out.extend_from_slice(&self.reset_token.0);
    }

    fn decode(value: &[u8]) -> Result<Self, &'static str> {
        let mut reader = Reader::new(value);
        let preferred = Self::read(&mut reader).map_err(|_| "it ends early")?;
        if !reader.is_empty() {
            return Err("it is longer than its fields");
        }
        let (ipv4, ipv6, cid_bytes, reset_token) = preferred;
        let cid = cid(cid_bytes)?;
        if cid.is_empty() {
            return Err("its connection ID is empty");
        }
        // All zeros mean that there is no address of that family.
        let ipv4 = (!ipv4.ip().is_unspecified() || ipv4.port() != 0).then_some(ipv4);
        let ipv6 = (!ipv6.ip().is_unspecified() || ipv6.port() != 0).then_some(ipv6);
        Ok(Self {
            ipv4,
            ipv6,
            cid,
            reset_token,
        })
    }

    fn read<'a>(
        reader: &mut Reader<'a>,
    ) -> Result<(SocketAddrV4, SocketAddrV6, &'a [u8], ResetToken), UnexpectedEnd> {
        let ipv4 = SocketAddrV4::new(reader.array::<4>()?.into(), reader.u16()?);
        let ipv6 = SocketAddrV6::new(reader.array::<16>()?.into(), reader.u16()?, 0, 0);
        let cid_len = reader.u8()?;
        Ok((
            ipv4,
            ipv6,
            reader.bytes(usize::from(cid_len))?,
            ResetToken(reader.array()?),
        ))
    }
}

const fn is_server_only(parameter: u64) -> bool {
    matches!(
        parameter,
        id::ORIGINAL_DCID
            | id::RESET_TOKEN
            | id::PREFERRED_ADDRESS
            | id::RETRY_SOURCE_CID
            | id::HANDSHAKE_BY_ANY_PATH
    )
}

/// Appends an integer in its shortest encoding: noq rejects longer ones.
fn put_integer(out: &mut Vec<u8>, parameter: u64, value: u64) {
    varint::put(out, parameter);
    varint::put(out, varint::size(value) as u64);
    varint::put(out, value);
}

fn put_bytes(out: &mut Vec<u8>, parameter: u64, value: &[u8]) {
    varint::put(out, parameter);
    varint::put(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn integer(value: &[u8]) -> Result<u64, &'static str> {
    let mut reader = Reader::new(value);
    match reader.varint() {
        Ok(integer) if reader.is_empty() => Ok(integer),
        _ => Err("it is not one integer"),
    }
}

fn within(
    value: &[u8],
    range: std::ops::RangeInclusive<u64>,
    otherwise: &'static str,
) -> Result<u64, &'static str> {
    let value = integer(value)?;
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(otherwise)
    }
}

fn stream_count(value: &[u8]) -> Result<u64, &'static str> {
    within(value, 0..=MAX_STREAM_COUNT, "it exceeds 2^60 streams")
}

fn flag(value: &[u8]) -> Result<bool, &'static str> {
    if value.is_empty() {
        Ok(true)
    } else {
        Err("it has a value")
    }
}

fn cid(value: &[u8]) -> Result<ConnectionId, &'static str> {
    ConnectionId::new(value).ok_or("its connection ID exceeds 20 bytes")
}

#[cfg(test)]
mod tests;
