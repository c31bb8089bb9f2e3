//! A peer that registers, closes and uses contexts as it likes: no panic, a bounded number of them,
//! and no datagram with more in it than it had.

#![no_main]

use anabranch_masque::capsule::{Capsule, Item, NumberBits, Reader};
use anabranch_masque::contexts::Context;
use anabranch_masque::{Contexts, Extensions, Protocol, datagram, limits};
use anabranch_wire::Side;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;

fuzz_target!(|input: &[u8]| {
    let Some(([kind, ours], bytes)) = input.split_first_chunk() else {
        return;
    };
    let side = if kind & 1 == 0 {
        Side::Server
    } else {
        Side::Client
    };
    let protocol = if kind & 2 == 0 {
        Protocol::Udp
    } else {
        Protocol::Ip
    };
    let extensions = Extensions {
        numbers: kind & 4 == 0,
        repair: kind & 4 == 0,
        bind: kind & 8 == 0,
    };
    let mut contexts = Contexts::new(side, protocol, extensions, kind & 16 == 0);
    let mut reader = Reader::new(protocol);
    reader.push(Bytes::copy_from_slice(bytes));
    let mut ours = *ours;
    while let Ok(Some(item)) = reader.poll() {
        let Item::Capsule(capsule) = item else {
            return;
        };
        if let Capsule::Datagram(payload) = capsule {
            let whole = payload.clone();
            let _ = datagram::split_stream(payload.clone());
            match contexts.read(payload) {
                Ok(Some(received)) => {
                    assert!(received.payload.len() < whole.len());
                    assert!(whole.ends_with(&received.payload));
                    assert!(contexts.find(received.context).is_some());
                }
                Ok(None) => {}
                Err(error) => assert!(!error.is_connection()),
            }
            continue;
        }
        match contexts.on_capsule(&capsule, |remote| remote.port() != 1) {
            Ok(answers) => assert!(answers.len() <= 2),
            Err(error) => assert!(!error.is_connection()),
        }
        act(&mut contexts, &capsule, ours);
        ours = ours.rotate_left(1);
    }
});

/// What our own side does meanwhile. Each step either changes nothing or does what it says.
fn act(contexts: &mut Contexts, capsule: &Capsule, how: u8) {
    let remote = match capsule {
        Capsule::CompressionAssign {
            remote: Some(remote),
            ..
        } => *remote,
        _ => SocketAddr::from(([192, 0, 2, how], 443)),
    };
    let id = u64::from(how >> 4);
    match how % 5 {
        0 => opened(contexts, Contexts::open_any, Context::AnyRemote),
        1 => opened(contexts, |all| all.open(remote), Context::Remote(remote)),
        2 => {
            let bits = NumberBits::Sixteen;
            let numbered = Context::Numbered { payload: id, bits };
            opened(contexts, |all| all.number(id, bits), numbered);
        }
        3 => close(contexts, id),
        _ => {}
    }
    if let Some(id) = contexts.toward(remote) {
        let found = contexts.find(id);
        assert!(
            matches!(found, Some(Context::AnyRemote)) || found == Some(Context::Remote(remote))
        );
    }
    assert!(open(contexts).count() <= limits::CONTEXTS);
}

/// Contexts with low IDs, which are all that a short input opens.
fn open(contexts: &Contexts) -> impl Iterator<Item = (u64, Context)> {
    (1..1024).filter_map(|id| Some((id, contexts.find(id)?)))
}

fn opened(
    contexts: &mut Contexts,
    step: impl FnOnce(&mut Contexts) -> Option<(u64, Capsule)>,
    wanted: Context,
) {
    let before = open(contexts).count();
    match step(contexts) {
        Some((id, _)) => assert_eq!(contexts.find(id), Some(wanted)),
        None => assert_eq!(open(contexts).count(), before),
    }
}

fn close(contexts: &mut Contexts, id: u64) {
    let before: Vec<_> = open(contexts).collect();
    let is_closed = contexts.close(id).is_some();
    let numbers_it =
        |context| matches!(context, Context::Numbered { payload, .. } if payload == id);
    let is_gone = |(own, context)| is_closed && (own == id || numbers_it(context));
    let left = before.into_iter().filter(|open| !is_gone(*open));
    assert!(left.eq(open(contexts)));
}
