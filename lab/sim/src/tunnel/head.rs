//! What a stream begins with: what it carries, where to, and how that is treated on the way back.

use anabranch_proto::time::Duration;
use anabranch_tunnel::Treatment;
use anabranch_tunnel::class::Steering;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of a head.
pub(super) const LENGTH: usize = 18;

/// Numbers of protocols (RFC 5237).
const TCP: u8 = 6;
const UDP: u8 = 17;

const COPIES: u8 = 1;
const DEADLINE: u8 = 2;
const WAIT: u8 = 4;
const LIGHT: u8 = 8;

/// What a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carried {
    /// The bytes of a connection.
    Tcp,
    /// Nothing: the datagrams of a flow belong to it.
    Udp,
}

/// The head of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) carried: Carried,
    pub(super) treatment: Treatment,
    pub(super) target: SocketAddrV4,
}

impl Head {
    pub(super) fn encode(&self) -> Vec<u8> {
        let treatment = &self.treatment;
        let protocol = match self.carried {
            Carried::Tcp => TCP,
            Carried::Udp => UDP,
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(treatment.copies, COPIES)
            | flag(treatment.deadline.is_some(), DEADLINE)
            | flag(treatment.wait.is_some(), WAIT)
            | flag(treatment.light, LIGHT);
        let mut head = vec![protocol];
        head.extend(self.target.ip().octets());
        head.extend(self.target.port().to_be_bytes());
        let [.., priority] = treatment.priority.to_be_bytes();
        head.extend([treatment.class(), priority, flags]);
        for time in [treatment.deadline, treatment.wait] {
            let micros = time.unwrap_or_default().as_micros();
            let micros = u32::try_from(micros).unwrap_or(u32::MAX);
            head.extend(micros.to_be_bytes());
        }
        head
    }

    /// `None` if it is for something else.
    pub(super) fn decode(head: &[u8; LENGTH]) -> Option<Self> {
        let [
            protocol,
            a,
            b,
            c,
            d,
            high,
            low,
            class,
            priority,
            flags,
            times @ ..,
        ] = *head;
        let [d0, d1, d2, d3, w0, w1, w2, w3] = times;
        let time = |flag: u8, micros: [u8; 4]| {
            let time = Duration::from_micros(u32::from_be_bytes(micros).into());
            (flags & flag != 0).then_some(time)
        };
        let carried = match protocol {
            TCP => Carried::Tcp,
            UDP => Carried::Udp,
            _ => return None,
        };
        let treatment = Treatment {
            steering: Steering::ALL.into_iter().find(|one| one.class() == class),
            priority: i32::from(priority.cast_signed()),
            light: flags & LIGHT != 0,
            deadline: time(DEADLINE, [d0, d1, d2, d3]),
            wait: time(WAIT, [w0, w1, w2, w3]),
            copies: flags & COPIES != 0,
        };
        let ip = Ipv4Addr::new(a, b, c, d);
        let target = SocketAddrV4::new(ip, u16::from_be_bytes([high, low]));
        Some(Self {
            carried,
            treatment,
            target,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_what_it_was_made_of() {
        let target = SocketAddrV4::new(Ipv4Addr::new(10, 0, 7, 1), 5004);
        let everything = Treatment {
            steering: Some(Steering::Redundant),
            deadline: Some(Duration::from_millis(100)),
            wait: Some(Duration::ZERO),
            copies: true,
            priority: -7,
            light: true,
        };
        let both = [Treatment::default(), everything];
        let heads = both.map(|treatment| {
            [Carried::Tcp, Carried::Udp].map(|carried| Head {
                carried,
                treatment,
                target,
            })
        });
        for head in heads.into_iter().flatten() {
            let bytes: [u8; LENGTH] = head.encode().try_into().unwrap();
            assert_eq!(Head::decode(&bytes), Some(head));
        }
        assert_eq!(Head::decode(&[0; LENGTH]), None);
    }
}
