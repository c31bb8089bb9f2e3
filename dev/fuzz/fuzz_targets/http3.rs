//! HTTP/3 of a tunnel: whatever comes on a stream means the same however it is cut, and messages
//! mean the same after writing and reading them again.

#![no_main]

use anabranch_masque::control::{Event, Peer, Unidirectional};
use anabranch_masque::stream::{Item, Reader};
use anabranch_masque::{
    Error, Extensions, Field, ProxyStatus, Request, Response, Templates, qpack,
};
use anabranch_wire::Side;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

/// More than any section that the reader lets through.
const ANY_SIZE: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    let Some(([kind, step], bytes)) = input.split_first_chunk() else {
        return;
    };
    let side = if kind & 1 == 0 {
        Side::Server
    } else {
        Side::Client
    };
    let is_finished = kind & 2 != 0;
    let size = usize::from(step % 16) + 1;
    let pieces: Vec<Bytes> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
    let whole = [Bytes::copy_from_slice(bytes)];
    if kind & 4 == 0 {
        let (items, error) = request_stream(side, &whole, is_finished);
        assert_eq!(
            request_stream(side, &pieces, is_finished),
            (items.clone(), error)
        );
        for item in items {
            if let Item::Head(fields) = item {
                head(side, fields);
            }
        }
    } else {
        let read = control_stream(side, &whole);
        assert_eq!(control_stream(side, &pieces), read);
        if let Some(error) = read.1 {
            assert!(error.is_connection());
        }
    }
});

/// The items of a stream, with pieces of payload put together, and how it broke.
fn request_stream(side: Side, pieces: &[Bytes], is_finished: bool) -> (Vec<Item>, Option<Error>) {
    let (mut reader, mut items) = (Reader::new(side), Vec::new());
    let mut read = |reader: &mut Reader| loop {
        match reader.poll() {
            Ok(None) => break None,
            Ok(Some(Item::Data(more))) => {
                assert!(!more.is_empty());
                match items.last_mut() {
                    Some(Item::Data(data)) => *data = [&data[..], &more[..]].concat().into(),
                    _ => items.push(Item::Data(more)),
                }
            }
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

/// The events of a unidirectional stream, and how it broke.
fn control_stream(side: Side, pieces: &[Bytes]) -> (Vec<Event>, Option<Error>) {
    let (mut stream, mut peer) = (Unidirectional::new(), Peer::new(side));
    let mut events = Vec::new();
    for piece in pieces {
        stream.push(piece.clone());
        loop {
            match stream.poll(&mut peer) {
                Ok(None) => break,
                Ok(Some(event)) => events.push(event),
                Err(error) => return (events, Some(error)),
            }
        }
    }
    (events, None)
}

fn head(side: Side, fields: Vec<Field>) {
    let again = qpack::decode(&qpack::encode(&fields).into(), ANY_SIZE);
    assert_eq!(again.as_ref(), Ok(&fields));
    if side.is_client() {
        if let Ok(response) = Response::from_fields(fields) {
            let _ = ProxyStatus::read(&response.headers);
            let _ = response.opens_capsules();
            assert_eq!(Response::from_fields(response.to_fields()), Ok(response));
        }
        return;
    }
    let Ok(request) = Request::from_fields(fields) else {
        return;
    };
    let _ = Extensions::read(&request.headers);
    let templates = Templates::of_proxy("proxy.example").expect("an authority");
    match templates.read(&request.line) {
        Ok(ask) => assert_eq!(templates.read(&templates.request(&ask)), Ok(ask)),
        Err(refusal) => assert!((400..600).contains(&refusal.status())),
    }
    assert_eq!(Request::from_fields(request.to_fields()), Ok(request));
}
