//! One of several far ends behind one address: the connection IDs by which a balancer knows it.

use crate::args::tunnel::{Fleet, hexadecimal};
use crate::failure::{Failure, Outcome};
use anabranch_net::engine::{CidFormat, Routable};
use std::path::Path;
use std::sync::Arc;

/// Random octets of each connection ID: as many as it has without a number. A server draws them
/// anew each time, and they have to differ.
const NONCE: usize = 8;

/// What the connection IDs of a far end look like.
pub(super) fn connection_ids(fleet: &Fleet) -> Outcome<CidFormat> {
    let Some(server_id) = &fleet.server_id else {
        return Ok(CidFormat::default());
    };
    let key = fleet.lb_key.as_deref().map(key).transpose()?;
    let rotation = fleet.lb_rotation.unwrap_or_default();
    let routable = Routable::new(rotation, &server_id.0, NONCE, key).map_err(Failure::usage)?;
    Ok(CidFormat::Routable(Arc::new(routable)))
}

/// Reads a key. What is in the file is for no log.
fn key(file: &Path) -> Outcome<[u8; 16]> {
    let wrong = |why: &str| Failure::usage(format!("{}: {why}", file.display()));
    let hint = "`openssl rand -hex 16` makes one";
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| wrong(&error.to_string()).hint(hint))?;
    let octets = hexadecimal(text.trim()).and_then(|octets| octets.try_into().ok());
    octets.ok_or_else(|| wrong("expected a key of 32 hexadecimal digits").hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::tunnel::ServerId;
    use std::fs;

    #[test]
    fn a_key_is_a_file_of_32_digits_and_a_wrong_one_is_named_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        fs::write(&file, "00112233445566778899aabbccddeeff\n").unwrap();
        assert_eq!(key(&file).unwrap()[15], 0xff);
        for text in ["001122", "00112233445566778899aabbccddeefg", ""] {
            fs::write(&file, text).unwrap();
            let failure = key(&file).unwrap_err();
            assert!(
                failure.what().contains("key: expected"),
                "{}",
                failure.what()
            );
            assert!(text.is_empty() || !failure.what().contains(text));
        }
    }

    #[test]
    fn without_a_number_connection_ids_are_as_ever_and_with_one_they_are_longer_by_it() {
        let length = |octets: Option<usize>| {
            let fleet = Fleet {
                server_id: octets.map(|octets| ServerId(vec![1; octets])),
                lb_key: None,
                lb_rotation: Some(6),
            };
            connection_ids(&fleet).unwrap().length()
        };
        assert_eq!([None, Some(1), Some(11)].map(length), [8, 10, 20]);
    }
}
