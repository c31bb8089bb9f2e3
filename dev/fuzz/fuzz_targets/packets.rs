//! A datagram splits into packets that lie within it, and the clear fields of each survive writing.

#![no_main]

use anabranch_wire::ConnectionId;
use anabranch_wire::header::{self, Header, LongType};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((cid_len, datagram)) = input.split_first() else {
        return;
    };
    let cid_len = usize::from(cid_len % 21);
    let mut rest = datagram;
    while let Ok(packet) = header::parse(rest, cid_len) {
        let packet_len = check(rest, &packet, cid_len);
        assert!(0 < packet_len && packet_len <= rest.len());
        rest = &rest[packet_len..];
    }
});

/// Checks one packet at the front of `bytes`; returns its length.
fn check(bytes: &[u8], packet: &Header<'_>, cid_len: usize) -> usize {
    match *packet {
        Header::Initial {
            dcid,
            scid,
            token,
            pn_offset,
            packet_len,
            ..
        } => {
            let fields = (dcid, scid, token);
            check_long(bytes, LongType::Initial, fields, pn_offset, packet_len);
            packet_len
        }
        Header::Long {
            kind,
            dcid,
            scid,
            pn_offset,
            packet_len,
            ..
        } => {
            check_long(bytes, kind, (dcid, scid, &[]), pn_offset, packet_len);
            packet_len
        }
        Header::Short {
            dcid,
            pn_offset,
            packet_len,
        } => {
            assert_eq!((pn_offset, packet_len), (1 + cid_len, bytes.len()));
            check_short(bytes, dcid, cid_len);
            packet_len
        }
        Header::Retry {
            dcid,
            scid,
            token,
            integrity_tag,
            ..
        } => {
            check_retry(bytes, (dcid, scid, token), integrity_tag);
            bytes.len()
        }
        Header::VersionNegotiation {
            dcid,
            scid,
            versions,
        } => {
            let offered: Vec<u32> = header::versions(versions).collect();
            let mut out = Vec::new();
            header::put_version_negotiation(&mut out, dcid, scid, &offered, bytes[0]);
            assert_eq!(out[1..], bytes[1..]);
            bytes.len()
        }
        Header::Unsupported {
            version,
            dcid,
            scid,
        } => {
            assert!(version > 1);
            assert_eq!(&bytes[6..][..dcid.len()], dcid);
            assert_eq!(&bytes[7 + dcid.len()..][..scid.len()], scid);
            bytes.len()
        }
    }
}

/// Writes a Retry packet again; the low bits of its first byte are arbitrary.
fn check_retry(bytes: &[u8], fields: (ConnectionId, ConnectionId, &[u8]), tag: [u8; 16]) {
    let (dcid, scid, token) = fields;
    let mut out = Vec::new();
    header::put_retry(&mut out, &dcid, &scid, token);
    out.extend(tag);
    assert_eq!(out[1..], bytes[1..]);
}

/// Writes a short header again: it differs at most in the reserved bits.
fn check_short(bytes: &[u8], dcid: ConnectionId, cid_len: usize) {
    assert_eq!(dcid.as_slice(), &bytes[1..=cid_len]);
    let pn_len = header::pn_len_from_first_byte(bytes[0]);
    let mut out = Vec::new();
    let spin = bytes[0] & header::SPIN_BIT != 0;
    let key_phase = bytes[0] & header::KEY_PHASE_BIT != 0;
    header::put_short(&mut out, &dcid, spin, key_phase, 0, pn_len);
    assert_eq!(out[0], bytes[0] & !header::SHORT_RESERVED_BITS);
}

/// Writes the same header again: it differs at most in the encoding of its lengths.
fn check_long(
    bytes: &[u8],
    kind: LongType,
    (dcid, scid, token): (ConnectionId, ConnectionId, &[u8]),
    pn_offset: usize,
    packet_len: usize,
) {
    assert!(pn_offset <= packet_len);
    let pn_len = header::pn_len_from_first_byte(bytes[0]);
    let mut out = Vec::new();
    let written = header::put_long(&mut out, kind, &dcid, &scid, token, 0, pn_len);
    assert_eq!(out[0], bytes[0] & !header::LONG_RESERVED_BITS);
    let payload = packet_len - pn_offset;
    if payload < pn_len || payload > header::LongHeader::MAX_LENGTH {
        return;
    }
    out.truncate(written.pn_offset);
    out.extend(&bytes[pn_offset..packet_len]);
    let end = out.len();
    written.set_length(&mut out, end);
    let (mut again, mut expected) = (parsed(&out), parsed(bytes));
    // The lengths may have been in a longer form than the one written.
    for packet in [&mut again, &mut expected] {
        if let Header::Initial {
            pn_offset,
            packet_len,
            ..
        }
        | Header::Long {
            pn_offset,
            packet_len,
            ..
        } = packet
        {
            *packet_len -= *pn_offset;
            *pn_offset = 0;
        }
    }
    assert_eq!(again, expected);
}

fn parsed(bytes: &[u8]) -> Header<'_> {
    header::parse(bytes, 0).expect("parsed before")
}
