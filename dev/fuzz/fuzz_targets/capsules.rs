//! Capsules mean the same however they are cut, and after writing and reading them again.

#![no_main]

use anabranch_masque::capsule::{Capsule, Item, Reader};
use anabranch_masque::{Error, Protocol};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(([kind, step], bytes)) = input.split_first_chunk() else {
        return;
    };
    let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Ip][usize::from(kind % 3)];
    let is_finished = kind & 0x80 != 0;
    let size = usize::from(step % 16) + 1;
    let pieces: Vec<Bytes> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
    let (items, error) = read(protocol, &[Bytes::copy_from_slice(bytes)], is_finished);
    assert_eq!(read(protocol, &pieces, is_finished), (items.clone(), error));
    if let Some(error) = error {
        assert!(!error.is_connection());
    }
    for item in items {
        if let Item::Capsule(capsule) = item {
            again(protocol, capsule);
        }
    }
});

/// The items of a stream, with pieces of payload put together, and how it broke.
fn read(protocol: Protocol, pieces: &[Bytes], is_finished: bool) -> (Vec<Item>, Option<Error>) {
    let (mut reader, mut items) = (Reader::new(protocol), Vec::new());
    let mut read = |reader: &mut Reader| loop {
        match reader.poll() {
            Ok(None) => break None,
            Ok(Some(Item::Payload(more))) => match items.last_mut() {
                Some(Item::Payload(data)) => *data = [&data[..], &more[..]].concat().into(),
                _ => items.push(Item::Payload(more)),
            },
            Ok(Some(item)) => items.push(item),
            Err(error) => break Some(error),
        }
    };
    let mut error = None;
    for piece in pieces {
        reader.push(piece.clone());
        error = error.or(read(&mut reader));
    }
    if is_finished {
        reader.finish();
        error = error.or(read(&mut reader));
    }
    (items, error)
}

fn again(protocol: Protocol, capsule: Capsule) {
    let mut out = Vec::new();
    capsule.encode(&mut out);
    let items = vec![Item::Capsule(capsule), Item::End];
    assert_eq!(read(protocol, &[out.into()], true), (items, None));
}
