//! The classes there are without a word of configuration.
//!
//! Ports that are registered for what they are here, and not the wide ranges from which programs
//! take any (RTP has none of its own: a class for 16384 to 32767 would have much that is no voice).

use super::{Class, Match, REST, Transport, Treatment};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Code points of voice: EF (RFC 3246) and VOICE-ADMIT (RFC 5865).
const VOICE_DSCP: [u8; 2] = [46, 44];

/// STUN and TURN, by which browsers and Teams have their media relayed, SIP, IAX2, Zoom, Google
/// Meet, `TeamSpeak`, Mumble.
const VOICE: [RangeInclusive<u16>; 7] = [
    3478..=3481,
    5060..=5061,
    4569..=4569,
    8801..=8810,
    19302..=19309,
    9987..=9987,
    64738..=64738,
];

/// Xbox, Steam, Source, Minecraft.
const GAME: [RangeInclusive<u16>; 4] = [3074..=3074, 4380..=4380, 27000..=27100, 19132..=19133];
/// Minecraft's other edition.
const GAME_TCP: [RangeInclusive<u16>; 1] = [25565..=25565];

/// SSH, telnet, remote desktops.
const SHELL_TCP: [RangeInclusive<u16>; 4] = [22..=22, 23..=23, 3389..=3389, 5900..=5909];
/// mosh.
const SHELL_UDP: [RangeInclusive<u16>; 1] = [60000..=61000];

/// DNS, by itself and over TLS and QUIC, and the time.
const NAMES: [RangeInclusive<u16>; 3] = [53..=53, 853..=853, 123..=123];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn class(name: &str, matches: Vec<Match>, treatment: Treatment) -> Class {
    Class {
        name: name.to_owned(),
        matches,
        treatment,
    }
}

fn ports(transport: Option<Transport>, ports: &[RangeInclusive<u16>]) -> Match {
    Match {
        transport,
        ports: ports.to_vec(),
        ..Match::default()
    }
}

/// All of them. The last one has no conditions.
pub(super) fn classes() -> Vec<Class> {
    let [tcp, udp] = [Some(Transport::Tcp), Some(Transport::Udp)];
    let nothing = Treatment::default();
    let marked = Match {
        dscp: VOICE_DSCP.to_vec(),
        ..Match::default()
    };
    vec![
        class(
            "voice",
            vec![marked, ports(udp, &VOICE)],
            Treatment {
                deadline: Some(ms(100)),
                wait: Some(ms(20)),
                ..nothing
            },
        ),
        class(
            "game",
            vec![ports(udp, &GAME), ports(tcp, &GAME_TCP)],
            Treatment {
                priority: 1,
                light: true,
                deadline: Some(ms(80)),
                wait: Some(ms(10)),
                ..nothing
            },
        ),
        class(
            "shell",
            vec![ports(tcp, &SHELL_TCP), ports(udp, &SHELL_UDP)],
            Treatment {
                priority: 2,
                light: true,
                wait: Some(ms(10)),
                ..nothing
            },
        ),
        // Each question has an answer by itself: there is no order to wait for.
        class(
            "names",
            vec![ports(None, &NAMES)],
            Treatment {
                priority: 3,
                light: true,
                wait: Some(ms(0)),
                ..nothing
            },
        ),
        class(
            REST,
            Vec::new(),
            Treatment {
                wait: Some(ms(100)),
                ..nothing
            },
        ),
    ]
}
