//! IP packets: headers are read or refused, and what is answered is itself a packet about which
//! nothing is said.

#![no_main]

use anabranch_masque::ip::{Packet, Undeliverable, error_message, protocol};
use libfuzzer_sys::fuzz_target;
use std::net::IpAddr;

fuzz_target!(|bytes: &[u8]| {
    let Ok(packet) = Packet::read(bytes) else {
        return;
    };
    assert!(
        packet
            .payload()
            .is_none_or(|payload| payload.len() <= bytes.len() - 20)
    );
    let _ = (packet.ports(), packet.quoted(), packet.dscp(), packet.ecn());
    let from: IpAddr = match packet.source() {
        IpAddr::V4(_) => [192, 0, 2, 1].into(),
        IpAddr::V6(_) => [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(),
    };
    let is_icmp_v6 = packet.source().is_ipv6() && packet.protocol() == protocol::ICMPV6;
    let kind = packet.payload().and_then(|payload| payload.first());
    let is_redirect = is_icmp_v6 && kind == Some(&137);
    for why in [
        Undeliverable::TooBig { mtu: 1280 },
        Undeliverable::NoRoute,
        Undeliverable::WrongSource,
    ] {
        let Some(message) = error_message(&packet, from, why) else {
            continue;
        };
        assert!(message.len() <= 1280 && !packet.is_icmp_error() && !is_redirect);
        let answer = Packet::read(&message).expect("a message is a packet");
        assert_eq!(
            (answer.source(), answer.destination()),
            (from, packet.source())
        );
        assert!(answer.is_icmp_error() && error_message(&answer, from, why).is_none());
    }
});
