//! SETTINGS (RFC 9114, section 7.2.4), with those of RFC 9220 and RFC 9297.

use crate::error::{Code, Error, connection};
use crate::limits;
use anabranch_wire::cursor::Reader;
use anabranch_wire::varint;

const MAX_FIELD_SECTION_SIZE: u64 = 0x06;
/// RFC 9220; the number is that of RFC 8441.
const ENABLE_CONNECT_PROTOCOL: u64 = 0x08;
/// RFC 9297, section 2.1.1.
const H3_DATAGRAM: u64 = 0x33;
/// One of those that mean nothing, so that peers stay used to unknown ones (section 7.2.4.1).
const RESERVED: u64 = 0x21;

/// What one side says about itself at the start of a connection.
///
/// Settings of QPACK are missing because they have their default values: the dynamic table has no
/// room, so no field section ever waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// A server takes requests with `:protocol` (extended CONNECT).
    pub connect_protocol: bool,
    /// HTTP datagrams are read from QUIC DATAGRAM frames.
    pub h3_datagram: bool,
    /// The largest header section that is read, by the count of RFC 9114, section 4.2.2.
    pub max_field_section_size: Option<u64>,
}

impl Settings {
    /// What this crate can do.
    pub const OURS: Self = Self {
        connect_protocol: true,
        h3_datagram: true,
        max_field_section_size: Some(limits::FIELD_SECTION_BYTES as u64),
    };

    /// Appends the payload of a SETTINGS frame. Values are at most 2^62 - 1.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |identifier, value| {
            varint::put(out, identifier);
            varint::put(out, value);
        };
        if let Some(size) = self.max_field_section_size {
            put(MAX_FIELD_SECTION_SIZE, size.min(varint::MAX));
        }
        if self.connect_protocol {
            put(ENABLE_CONNECT_PROTOCOL, 1);
        }
        if self.h3_datagram {
            put(H3_DATAGRAM, 1);
        }
        put(RESERVED, 0);
    }

    /// Reads the payload of a SETTINGS frame.
    ///
    /// # Errors
    /// Of the connection: settings that break off, occur twice, come from HTTP/2 or have a value
    /// they cannot have.
    pub fn decode(payload: &[u8]) -> Result<Self, Error> {
        let refuse = |reason| Err(connection(Code::SETTINGS_ERROR, reason));
        let mut settings = Self::default();
        let mut seen = Vec::new();
        let mut reader = Reader::new(payload);
        while !reader.is_empty() {
            let (Ok(identifier), Ok(value)) = (reader.varint(), reader.varint()) else {
                let reason = "SETTINGS end within a setting";
                return Err(connection(Code::FRAME_ERROR, reason));
            };
            seen.push(identifier);
            match identifier {
                MAX_FIELD_SECTION_SIZE => settings.max_field_section_size = Some(value),
                ENABLE_CONNECT_PROTOCOL => settings.connect_protocol = flag(value)?,
                H3_DATAGRAM => settings.h3_datagram = flag(value)?,
                0x00 | 0x02..=0x05 => return refuse("a setting of HTTP/2"),
                _ => {}
            }
        }
        seen.sort_unstable();
        if seen.windows(2).any(|pair| pair[0] == pair[1]) {
            return refuse("a setting occurs twice");
        }
        Ok(settings)
    }
}

fn flag(value: u64) -> Result<bool, Error> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(connection(
            Code::SETTINGS_ERROR,
            "a setting that is 0 or 1 has another value",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;
    use proptest::prelude::*;

    fn code(text: &str) -> Option<Code> {
        Settings::decode(&hex(text)).err().map(|error| error.code())
    }

    #[test]
    fn unknown_settings_are_ignored_and_missing_ones_have_defaults() {
        let read = Settings::decode(&hex("01 5000 07 10 21 00 33 01 c000000000abcdef 07"));
        let wanted = Settings {
            h3_datagram: true,
            ..Settings::default()
        };
        assert_eq!(read, Ok(wanted));
        assert_eq!(Settings::decode(&[]), Ok(Settings::default()));
    }

    #[test]
    fn settings_that_no_peer_may_send_close_the_connection() {
        for text in [
            "33 02",
            "08 02",
            "33 01 33 01",
            "21 00 21 00",
            "06 00 4006 00",
            "00 00",
            "02 00",
            "03 01",
            "04 01",
            "05 01",
        ] {
            assert_eq!(code(text), Some(Code::SETTINGS_ERROR), "{text}");
        }
        for text in ["33", "06 40", "80000000"] {
            assert_eq!(code(text), Some(Code::FRAME_ERROR), "{text}");
        }
    }

    proptest! {
        #[test]
        fn settings_come_back_as_they_were_written(
            connect_protocol: bool,
            h3_datagram: bool,
            size in prop::option::of(0..=varint::MAX),
        ) {
            let settings = Settings { connect_protocol, h3_datagram, max_field_section_size: size };
            let mut out = Vec::new();
            settings.encode(&mut out);
            prop_assert_eq!(Settings::decode(&out), Ok(settings));
        }

        #[test]
        fn any_bytes_are_settings_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Err(error) = Settings::decode(&bytes) {
                prop_assert!(error.is_connection());
            }
        }
    }
}
