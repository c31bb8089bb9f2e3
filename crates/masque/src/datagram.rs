//! HTTP datagrams in QUIC DATAGRAM frames (RFC 9297, section 2.1).
//!
//! ```text
//! quarter stream ID | context ID | what the context says
//! ```

#[cfg(doc)]
use crate::contexts::Context;
use crate::error::{Code, Error, connection};
use crate::ip;
use anabranch_wire::cursor::Reader;
use anabranch_wire::varint;
use bytes::{Buf as _, Bytes};
use std::net::SocketAddr;

/// The largest stream ID that a request can have: QUIC's largest that is a multiple of four.
pub const MAX_REQUEST_STREAM: u64 = varint::MAX - 3;

/// Appends the number of a request's stream, which is a multiple of four.
pub fn put_stream(out: &mut Vec<u8>, stream_id: u64) {
    varint::put(out, stream_id / 4);
}

/// Bytes that [`put_stream`] appends.
pub const fn stream_size(stream_id: u64) -> usize {
    varint::size(stream_id / 4)
}

/// Appends the ID of a context, which is at most 2^62 - 1.
pub fn put_context(out: &mut Vec<u8>, context: u64) {
    varint::put(out, context);
}

/// Appends a remote end, as datagrams of [`Context::AnyRemote`] name it.
pub fn put_remote(out: &mut Vec<u8>, remote: SocketAddr) {
    ip::put_socket(out, remote);
}

/// Takes a QUIC DATAGRAM frame apart: the request's stream, and what is for it.
///
/// # Errors
/// Of the connection: no request can have this stream.
pub fn split_stream(mut datagram: Bytes) -> Result<(u64, Bytes), Error> {
    let mut reader = Reader::new(&datagram);
    let reason = "a datagram is too short to name its request";
    let quarter = reader.varint();
    let quarter = quarter.map_err(|_| connection(Code::DATAGRAM_ERROR, reason))?;
    if quarter > MAX_REQUEST_STREAM / 4 {
        let reason = "a datagram names a stream that cannot be";
        return Err(connection(Code::DATAGRAM_ERROR, reason));
    }
    let read = datagram.len() - reader.remaining();
    datagram.advance(read);
    Ok((quarter * 4, datagram))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;
    use crate::{Contexts, Extensions, Protocol};
    use anabranch_wire::Side;
    use proptest::prelude::*;

    fn code(text: &str) -> Code {
        let error = split_stream(hex(text).into()).unwrap_err();
        assert!(error.is_connection());
        error.code()
    }

    #[test]
    fn a_datagram_names_its_stream_by_a_quarter_of_its_number() {
        let split = split_stream(hex("4040 00 abcd").into());
        assert_eq!(split, Ok((256, Bytes::from(hex("00 abcd")))));
        assert_eq!(split_stream(hex("01").into()), Ok((4, Bytes::new())));
    }

    #[test]
    fn a_datagram_without_a_possible_stream_closes_the_connection() {
        for text in ["", "40", "d000000000000000", "ffffffffffffffff"] {
            assert_eq!(code(text), Code::DATAGRAM_ERROR, "{text}");
        }
        let last = split_stream(hex("cfffffffffffffff").into());
        assert_eq!(last, Ok((MAX_REQUEST_STREAM, Bytes::new())));
    }

    #[test]
    fn a_datagram_is_written_part_by_part() {
        let mut out = Vec::new();
        put_stream(&mut out, 256);
        put_context(&mut out, 64);
        put_remote(&mut out, "192.0.2.1:443".parse().unwrap());
        assert_eq!(out, hex("4040 4040 04 c0000201 01bb"));
        out.clear();
        put_remote(&mut out, "[2001:db8::1]:53".parse().unwrap());
        let wanted = "06 20010db8000000000000000000000001 0035";
        assert_eq!(out, hex(wanted));
    }

    #[test]
    fn what_is_written_of_a_bound_socket_is_read_again() {
        let bind = Extensions {
            bind: true,
            ..Extensions::default()
        };
        let mut client = Contexts::new(Side::Client, Protocol::Udp, bind, false);
        let (context, _) = client.open_any().unwrap();
        for remote in ["192.0.2.1:443", "[2001:db8::1]:53"] {
            let remote = remote.parse().unwrap();
            let mut out = Vec::new();
            put_context(&mut out, context);
            put_remote(&mut out, remote);
            out.extend_from_slice(b"payload");
            let received = client.read(out.into()).unwrap().unwrap();
            assert_eq!(received.remote, Some(remote));
            assert_eq!(&received.payload[..], b"payload");
        }
    }

    proptest! {
        #[test]
        fn a_stream_and_its_payload_come_back(
            quarter in 0..=varint::MAX / 4,
            payload in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut out = Vec::new();
            put_stream(&mut out, quarter * 4);
            prop_assert_eq!(out.len(), stream_size(quarter * 4));
            out.extend_from_slice(&payload);
            prop_assert_eq!(split_stream(out.into()), Ok((quarter * 4, payload.into())));
        }
    }
}
