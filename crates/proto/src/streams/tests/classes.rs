//! Streams and datagrams of several classes: what may be sent of each, and that it is sent alone.

use super::*;
use crate::sched::{MAX_CLASSES, Unit};
use proptest::prelude::*;

fn of_class(class: u8) -> DatagramOptions {
    DatagramOptions {
        class,
        ..DatagramOptions::default()
    }
}

/// Writes fresh data of these classes; returns the streams in the packet.
fn write_fresh(streams: &mut Streams, of: ClassSet, length: u64) -> Vec<StreamId> {
    let (_, _, sent) = written(1200, |frames| {
        streams.write_fresh_data(frames, of, 0, length)
    });
    let id = |frame: &SentFrame| match *frame {
        SentFrame::Stream { id, .. } => Some(id),
        _ => None,
    };
    sent.iter().filter_map(id).collect()
}

/// Bytes of a stream that wait to be sent.
fn left_of(streams: &Streams, id: StreamId) -> usize {
    let send = streams.live[&id].send.as_ref().unwrap();
    let load = send.load_now();
    (load.above + load.free) as usize
}

#[test]
fn a_class_is_found_behind_all_that_waits_of_others() {
    let mut client = client();
    let ids = [0, 1, 2].map(|class| {
        let id = client.open(Dir::Uni).unwrap();
        client.set_class(id, class).unwrap();
        put(&mut client, id, 300);
        id
    });
    for class in [0, 0, 2, 1] {
        let data = Bytes::from(vec![class; 10]);
        client.send_datagram_with(data, of_class(class)).unwrap();
    }
    assert_eq!(client.waiting_classes(), [0, 1, 2].into_iter().collect());
    let unit = client.next_unit_of(ClassSet::of(2));
    assert_eq!((unit.kind, unit.class), (UnitKind::Datagram, 2));
    assert_eq!(client.next_unit().class, 0, "the oldest datagram");
    let of = ClassSet::of(2);
    let write = |frames: &mut Frames<'_>| client.write_datagrams(frames, of, u64::MAX, None);
    let (_, _, sent) = written(1200, write);
    assert_eq!(sent.len(), 1);
    let unit = client.next_unit_of(of);
    assert_eq!((unit.kind, unit.class), (UnitKind::Fresh, 2));
    assert_eq!(write_fresh(&mut client, of, 1000), [ids[2]]);
    assert_eq!(client.next_unit_of(of).kind, UnitKind::Idle);
    assert_eq!(client.unacked_classes(), of);
    assert_eq!(client.waiting_classes(), [0, 1].into_iter().collect());
}

#[test]
fn what_is_repeated_keeps_the_class_of_its_stream() {
    let mut client = client();
    let [plain, voice] = [0, 5].map(|class| {
        let id = client.open(Dir::Uni).unwrap();
        client.set_class(id, class).unwrap();
        put(&mut client, id, 100);
        id
    });
    let (_, sent) = packet(&mut client, A, 1200);
    for frame in &sent {
        client.on_lost(frame, A);
    }
    let unit = |client: &Streams, class| client.next_unit_of(ClassSet::of(class));
    for class in [0, 5] {
        let Unit {
            kind, class: of, ..
        } = unit(&client, class);
        assert_eq!((kind, of), (UnitKind::Retransmission, class));
    }
    client.set_class(plain, 3).unwrap();
    assert_eq!(unit(&client, 0).kind, UnitKind::Idle);
    assert_eq!(unit(&client, 3).kind, UnitKind::Retransmission);
    let of = ClassSet::of(5);
    let write = |frames: &mut Frames<'_>| client.write_lost_data(frames, of, B, u64::MAX);
    let (_, _, sent) = written(1200, write);
    assert!(sent.iter().all(|frame| client.is_of(frame, 5)));
    assert_eq!(client.class_of(voice), Some(5));
    assert_eq!(client.waiting_classes(), ClassSet::of(3));
}

#[test]
fn a_number_beyond_the_highest_class_stands_for_it() {
    let mut client = client();
    let id = client.open(Dir::Uni).unwrap();
    assert!(!client.has_classes());
    client.set_class(id, u8::MAX).unwrap();
    assert_eq!(client.class_of(id), Some(MAX_CLASSES as u8 - 1));
    assert!(client.has_classes());
}

proptest! {
    #[test]
    fn each_class_sends_what_the_model_says(
        ops in prop::collection::vec((0..6u8, 0..4usize, 0..8u8, 1..90usize), 1..80),
    ) {
        let mut client = client();
        let ids = [(); 4].map(|()| client.open(Dir::Uni).unwrap());
        let mut model = [(0_u8, 0_usize, 0_usize); 4];
        for (op, at, class, length) in ops {
            let (_, unsent, unacked) = &mut model[at];
            match op {
                0 => {
                    client.set_class(ids[at], class).unwrap();
                    model[at].0 = class;
                }
                1 => client.set_priority(ids[at], i32::from(class) - 4).unwrap(),
                2 | 3 if *unsent + *unacked + length < 700 => {
                    let taken = put(&mut client, ids[at], length);
                    prop_assert_eq!(taken, length);
                    *unsent += length;
                }
                _ => {
                    let sent = write_fresh(&mut client, ClassSet::of(class), length as u64);
                    let waits = |entry: &&(u8, usize, usize)| entry.0 == class && entry.1 > 0;
                    prop_assert_eq!(sent.is_empty(), model.iter().filter(waits).count() == 0);
                    for (id, entry) in ids.iter().zip(&mut model) {
                        let left = left_of(&client, *id);
                        prop_assert!(left == entry.1 || entry.0 == class, "another class");
                        entry.2 += entry.1 - left;
                        entry.1 = left;
                    }
                }
            }
            let waiting = model.iter().filter(|entry| entry.1 > 0);
            let waiting: ClassSet = waiting.map(|entry| entry.0).collect();
            prop_assert_eq!(client.waiting_classes(), waiting);
            let unacked = model.iter().filter(|entry| entry.2 > 0);
            let unacked: ClassSet = unacked.map(|entry| entry.0).collect();
            prop_assert_eq!(client.unacked_classes(), unacked);
            for class in 0..8 {
                let unit = client.next_unit_of(ClassSet::of(class));
                prop_assert_eq!(unit.kind == UnitKind::Fresh, waiting.contains(class));
                prop_assert!(unit.kind == UnitKind::Idle || unit.class == class);
            }
        }
    }
}
