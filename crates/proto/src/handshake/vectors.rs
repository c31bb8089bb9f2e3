//! Packet protection against published vectors: RFC 9001, appendix A; the nonce example of the
//! multipath draft; the AEAD vectors that picoquic and rustls share.

use super::tests::{client_config, server_config, unhex};
use super::tls::fixed;
use super::token::retry_integrity_tag;
use super::{Handshake, Level};
use crate::time::Instant;
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit};
use anabranch_wire::{ConnectionId, PathId};
use hmac::{Hmac, Mac};
use rustls::CipherSuite;
use sha2::{Digest, Sha256};

/// RFC 9001, section A.2: the CRYPTO frame of the client's Initial.
const CLIENT_CRYPTO: &str = "\
    060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c\
    00000413011302010000c000000010000e00000b6578616d706c652e636f6dff01000100000a00080006\
    001d0017001800100007000504616c706e000500050100000000003300260024001d00209370b2c9caa4\
    7fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d0010000e040305\
    0306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ff\
    ff07048000ffff0801100104800075300901100f088394c8f03e51570806048000ffff";

/// RFC 9001, section A.3: the payload of the server's Initial.
const SERVER_PAYLOAD: &str = "\
    02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf73988cfc79825df566dc543\
    0b9a045a1200130100002e00330024001d00209d3c940d89690b84d08a60993c144eca684d1081287c83\
    4d5311bcf32bb9da1a002b00020304";

/// RFC 9001, section A.3: the protected packet.
const SERVER_PACKET: &str = "\
    cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69\
    797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73\
    cc3f3bded74b562bfb19fb84022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456\
    cbc42158407dd074ee";

/// RFC 9001, section A.5, and the path vectors made from it.
const CHACHA_SECRET: &str = "9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b";
const CHACHA_PN: u64 = 654_360_564;

fn initial_pair() -> (Handshake, Handshake) {
    let dcid = ConnectionId::new(&unhex("8394c8f03e515708")).unwrap();
    let client = Handshake::client(&client_config(), "localhost", Vec::new(), &dcid, None).unwrap();
    let server = Handshake::server(&server_config(), Vec::new(), &dcid).unwrap();
    (client, server)
}

fn open_initial(receiver: &mut Handshake, packet: &mut [u8], pn_offset: usize) -> (u64, Vec<u8>) {
    let seen = receiver
        .unprotect(Level::Initial, packet, pn_offset)
        .unwrap();
    assert!(seen.reserved_bits_zero);
    let header_len = pn_offset + seen.pn_len;
    let payload = receiver
        .open(
            Instant::ZERO,
            Level::Initial,
            PathId::ZERO,
            seen.pn,
            false,
            packet,
            header_len,
        )
        .unwrap();
    (seen.pn, packet[payload].to_vec())
}

/// HKDF-Expand-Label (RFC 8446, section 7.1) with SHA-256, for outputs of one block.
fn expand_label<const N: usize>(secret: &[u8], label: &str) -> [u8; N] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(&[0, N as u8, 6 + label.len() as u8]);
    mac.update(b"tls13 ");
    mac.update(label.as_bytes());
    mac.update(&[0, 1]);
    let block: [u8; 32] = mac.finalize().into_bytes().into();
    block[..N].try_into().unwrap()
}

#[test]
fn the_clients_initial_of_rfc_9001_is_sealed_and_opened() {
    let (mut client, mut server) = initial_pair();
    let mut plain = unhex("c300000001088394c8f03e5157080000449e00000002");
    plain.extend(unhex(CLIENT_CRYPTO));
    plain.resize(22 + 1162, 0);
    // The packet starts after another one in the same buffer.
    let mut buffer = b"earlier".to_vec();
    buffer.extend(&plain);
    client
        .seal(Level::Initial, PathId::ZERO, 2, &mut buffer, 7, 7 + 18, 4)
        .unwrap();
    assert_eq!(&buffer[..7], b"earlier");
    let mut packet = buffer.split_off(7);
    assert_eq!(packet.len(), 1200);
    let head = unhex("c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11");
    assert_eq!(packet[..32], head);
    let digest: [u8; 32] = Sha256::digest(&packet).into();
    let expected = unhex("73fa0210cb4a5a17dc10b9dc98e5cc359ba1c20fe7c0e93a9e1dcb473c37e097");
    assert_eq!(digest[..], expected);
    assert_eq!(
        open_initial(&mut server, &mut packet, 18),
        (2, plain[22..].to_vec())
    );
}

#[test]
fn the_servers_initial_of_rfc_9001_is_sealed_and_opened() {
    let (mut client, mut server) = initial_pair();
    let mut packet = unhex("c1000000010008f067a5502a4262b50040750001");
    packet.extend(unhex(SERVER_PAYLOAD));
    server
        .seal(Level::Initial, PathId::ZERO, 1, &mut packet, 0, 18, 2)
        .unwrap();
    assert_eq!(packet, unhex(SERVER_PACKET));
    assert_eq!(
        open_initial(&mut client, &mut packet, 18),
        (1, unhex(SERVER_PAYLOAD))
    );
}

#[test]
fn the_retry_of_rfc_9001_carries_its_tag() {
    let retry = unhex("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba");
    let (body, tag) = retry.split_last_chunk::<16>().unwrap();
    let dcid = ConnectionId::new(&unhex("8394c8f03e515708")).unwrap();
    assert_eq!(retry_integrity_tag(&dcid, body), *tag);
    let other = ConnectionId::new(&unhex("8394c8f03e515709")).unwrap();
    assert_ne!(retry_integrity_tag(&other, body), *tag);
}

#[test]
fn the_chacha20_packet_of_rfc_9001_is_sealed_and_opened_on_each_path() {
    let keys = fixed::keys(
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        &unhex(CHACHA_SECRET),
    );
    let cases = [
        (0, "4cfe4189655e5cd55c41f69080575d7999c25a5bfb"),
        (1, "50b3b597fd625181f437d28926c29c961ca448bc88"),
        (3, "4b12ceaccc28ac6be04d623997f23ee26485ba3432"),
        (u32::MAX, "546099586a2cc25f67fa4a165f90c051cba7773efd"),
    ];
    for (path, expected) in cases {
        let path = PathId(path);
        let header = unhex("4200bff4");
        let mut payload = [0x01];
        let tag = keys
            .local
            .packet
            .seal(path, CHACHA_PN, &header, &mut payload)
            .unwrap();
        let mut packet = [&header[..], &payload, &tag].concat();
        assert!(keys.local.header.protect(&mut packet, 1));
        assert_eq!(packet, unhex(expected), "path {path}");
        assert!(keys.remote.header.unprotect(&mut packet, 1));
        assert_eq!(packet[..4], header);
        let opened = keys
            .remote
            .packet
            .open(path, CHACHA_PN, &header, &mut packet[4..]);
        assert_eq!((opened, packet[4]), (Some(1), 0x01));
    }
}

#[test]
fn a_packet_does_not_open_on_another_path() {
    let keys = fixed::keys(
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        &unhex(CHACHA_SECRET),
    );
    let mut payload = *b"payload";
    let tag = keys
        .local
        .packet
        .seal(PathId(1), 9, b"header", &mut payload)
        .unwrap();
    let sealed = [&payload[..], &tag].concat();
    for path in [0, 2, u32::MAX] {
        let opened = keys
            .remote
            .packet
            .open(PathId(path), 9, b"header", &mut sealed.clone());
        assert_eq!(opened, None);
    }
}

#[test]
fn the_multipath_vectors_of_picoquic_and_rustls_are_met() {
    // Byte 25 is a slip that was frozen into the vector.
    let mut secret: Vec<u8> = (0..32).collect();
    secret[25] = 0x23;
    assert_eq!(
        expand_label::<16>(&secret, "quic key")[..],
        unhex("1a2503df288ed5bede6a178443e5105d")
    );
    assert_eq!(
        expand_label::<12>(&secret, "quic iv")[..],
        unhex("9ec42e41d1624b96299ac09d")
    );
    let keys = fixed::keys(CipherSuite::TLS13_AES_128_GCM_SHA256, &secret);
    let cases = [
        "01f44a1b39a1db478013094e51a0b4c68aa37e6b085fe4ad26acc6b7412a096e\
         e7fec207871633517df19104ccb93742223fffa4ca7e1a85d777f1",
        "fd24c32d68c0e9bdfd31277dbcb517bb588f9f3eaa7fe7178be3dbfc25405e54\
         fceb5751bfdc3c0b758268ceceda9a7a650cc23c8c2a05d914b420",
        "7b8be8348819c98ffa595727253f00d2dce3ba8cb7fb0dcb0674cc64a6402bb9\
         ae55d4a3f28d18a63ee4bb89f81f987ef0974f33fd822b72adeafe",
    ];
    for (path, expected) in (0..).zip(cases) {
        let mut text = *b"The quick brown fox jumps over the lazy dog";
        let tag = keys
            .local
            .packet
            .seal(PathId(path), 12345, b"This is a test", &mut text);
        assert_eq!(
            [&text[..], &tag.unwrap()].concat(),
            unhex(expected),
            "path {path}"
        );
    }
}

#[test]
fn the_nonce_is_that_of_the_multipath_example() {
    let iv: [u8; 12] = unhex("6b26114b9cba2b63a9e8dd4f").try_into().unwrap();
    let nonce: [u8; 12] = unhex("6b2611489cba2b63a9e8097e").try_into().unwrap();
    let mut sealed = *b"payload";
    let tag = fixed::aes_256_key([7; 32], iv)
        .seal(PathId(3), 54321, b"aad", &mut sealed)
        .unwrap();
    let mut expected = *b"payload";
    let expected_tag: [u8; 16] = Aes256Gcm::new(&[7; 32].into())
        .encrypt_inout_detached(&nonce.into(), b"aad", InOutBuf::from(&mut expected[..]))
        .unwrap()
        .into();
    assert_eq!((sealed, tag), (expected, expected_tag));
}

#[test]
fn updated_keys_derive_from_the_secret_as_rfc_9001_says() {
    // The derivation used below meets the vectors ...
    let vectors = [
        (
            "b8767708f8772358a6ea9fc43e4add2c961b3f5287a6d1467ee0aeab33724dbf",
            "42cac8c91cd5eb40682e432edf2d2be9f41a52ca6b22d8e6cdb1e8aca9061fce",
        ),
        (
            "42dc972140e0f2e39845b767613439dc6758ca43259b878506824eb1e438d855",
            "eb7f5e2a123f407db499e361cae590d4d992e14b7ace03c244e0422115b6d38a",
        ),
        (
            CHACHA_SECRET,
            "1223504755036d556342ee9361d253421a826c9ecdf3c7148684b36b714881f9",
        ),
    ];
    for (secret, next) in vectors {
        assert_eq!(
            expand_label::<32>(&unhex(secret), "quic ku")[..],
            unhex(next)
        );
    }
    // ... and yields the keys that a connection uses after its updates.
    let (mut client, secret) = super::tests::client_with_logged_secret();
    let mut secret: [u8; 32] = secret.try_into().unwrap();
    for generation in 1..=3 {
        secret = expand_label(&secret, "quic ku");
        let expected = fixed::keys(CipherSuite::TLS13_AES_128_GCM_SHA256, &secret);
        let keys = client.one_rtt.as_mut().unwrap();
        keys.force_update();
        assert_eq!(keys.generation(), generation);
        let mut sealed = *b"payload";
        let tag = keys
            .seal(PathId(1), generation, b"header", &mut sealed)
            .unwrap();
        let mut sealed = [&sealed[..], &tag].concat();
        let opened = expected
            .remote
            .packet
            .open(PathId(1), generation, b"header", &mut sealed);
        assert_eq!((opened, &sealed[..7]), (Some(7), &b"payload"[..]));
    }
}
