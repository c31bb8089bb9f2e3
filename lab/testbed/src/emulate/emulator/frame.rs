//! Which frames a link carries.

use crate::emulate::ETHERNET_BYTES;

const IPV4: [u8; 2] = [0x08, 0x00];
const ARP: [u8; 2] = [0x08, 0x06];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// The first bytes of frames to IPv6 multicast groups (RFC 2464, section 7).
const IPV6_MULTICAST: [u8; 2] = [0x33, 0x33];
/// All routers, and the routers that receive multicast listener reports (RFC 3810, section 5.2.14).
const ROUTERS: [[u8; 4]; 2] = [[0, 0, 0, 2], [0, 0, 0, 0x16]];

/// Whether a link carries a frame.
///
/// It carries IP, and ARP for hosts that change their hardware addresses, as bonds do. It does not
/// carry router solicitations and multicast listener reports: no router is there to receive them,
/// and since they are sent at unpredictable times, they would disturb a loss process that counts
/// packets. Nor does it carry anything else, such as LLDP or spanning tree frames.
pub(crate) fn is_carried(frame: &[u8]) -> bool {
    let Some((header, _)) = frame.split_at_checked(ETHERNET_BYTES as usize) else {
        return false;
    };
    let kind = [header[12], header[13]];
    let to_routers = header[..2] == IPV6_MULTICAST && ROUTERS.iter().any(|r| header[2..6] == *r);
    kind == IPV4 || kind == ARP || (kind == IPV6 && !to_routers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(destination: [u8; 6], kind: [u8; 2]) -> Vec<u8> {
        let mut frame = destination.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1]);
        frame.extend(kind);
        frame.extend([0; 40]);
        frame
    }

    #[test]
    fn ip_and_arp_are_carried_and_chatter_is_not() {
        let host = [2, 0, 0, 0, 0, 2];
        for kind in [IPV4, IPV6, ARP] {
            assert!(is_carried(&frame(host, kind)));
        }
        let lldp = [0x88, 0xcc];
        assert!(!is_carried(&frame(host, lldp)));
        assert!(!is_carried(&frame([0x33, 0x33, 0, 0, 0, 0x16], IPV6)));
        assert!(is_carried(&frame([0x33, 0x33, 0xff, 0, 0, 0x02], IPV6)));
        assert!(!is_carried(&[0; 13]));
    }
}
