//! What is sent next, on which path, and what is sent again.

use super::*;

fn streams_in(sent: &SentFrames) -> Vec<StreamId> {
    let id = |frame: &SentFrame| match *frame {
        SentFrame::Stream { id, .. } => Some(id),
        _ => None,
    };
    sent.iter().filter_map(id).collect()
}

fn write_at(client: &mut Streams, path: PathId, limit: usize, skip: u64) -> SentFrames {
    written(limit, |frames| {
        client.write_data(frames, path, skip, u64::MAX)
    })
    .2
}

fn stream(id: StreamId, start: u64, length: u32) -> SentFrame {
    SentFrame::Stream {
        id,
        start,
        length,
        fin: false,
    }
}

#[test]
fn streams_of_one_priority_take_turns() {
    let mut client = client();
    let ids = [0; 3].map(|_| client.open(Dir::Uni).unwrap());
    for id in ids {
        put(&mut client, id, 500);
    }
    let order: Vec<_> = (0..6)
        .flat_map(|_| streams_in(&write_at(&mut client, A, 100, 0)))
        .collect();
    assert_eq!(order, [ids, ids].concat());
}

#[test]
fn a_higher_priority_goes_first_whenever_it_is_set() {
    let mut client = client();
    let ids = [0; 3].map(|_| client.open(Dir::Uni).unwrap());
    client.set_priority(ids[1], 5).unwrap();
    for id in ids {
        put(&mut client, id, 100);
    }
    client.set_priority(ids[2], 7).unwrap();
    client.set_priority(ids[0], -1).unwrap();
    let order = streams_in(&write_at(&mut client, A, 1200, 0));
    assert_eq!(order, [ids[2], ids[1], ids[0]]);
}

#[test]
fn a_packet_ends_where_its_limit_is_or_leaves_the_rest_usable() {
    for limit in 90..140 {
        let (mut client, id) = with_stream(100);
        let (_, mut out, sent) = written(limit, |frames| client.write_data(frames, A, 0, u64::MAX));
        let mut server = server();
        // What follows must be readable: only a frame that fills the packet has no length.
        if out.len() < limit {
            out.push(0x01);
        }
        let mut reader = Reader::new(&out);
        while !reader.is_empty() {
            if let Frame::Stream(frame) = decode(&mut reader).unwrap().1 {
                server.on_stream(&frame).unwrap();
            }
        }
        let SentFrame::Stream { length, .. } = sent[0] else {
            panic!("one stream frame")
        };
        assert!(out.len() <= limit);
        assert_eq!(read_all(&mut server, id), pattern(id, 0, length as usize));
        assert!(length == 100 || out.len() == limit, "{limit}: {length}");
    }
}

#[test]
fn no_splinter_of_a_frame_is_written() {
    let (mut client, _) = with_stream(1000);
    assert!(write_at(&mut client, A, 20, 0).is_empty());
    assert_eq!(client.backlog().unsent, 1000);
}

#[test]
fn skipped_bytes_are_left_for_another_path() {
    let (mut client, id) = with_stream(1000);
    let far = write_at(&mut client, A, 203, 600);
    assert_eq!(far[..], [stream(id, 600, 199)]);
    assert_eq!(client.backlog().unsent, 801);
    assert_eq!(client.backlog().credit, 3000 - 799);
    let near = write_at(&mut client, B, 10_000, 0);
    assert_eq!(near[..], [stream(id, 0, 600), stream(id, 799, 201)]);
    assert_eq!(client.backlog().credit, 2000);
}

#[test]
fn skipping_passes_over_whole_streams() {
    let mut client = client();
    let ids = [0; 3].map(|_| client.open(Dir::Uni).unwrap());
    for id in ids {
        put(&mut client, id, 100);
    }
    assert_eq!(
        write_at(&mut client, A, 1200, 150)[..],
        [stream(ids[1], 50, 50), stream(ids[2], 0, 100)]
    );
    assert!(write_at(&mut client, A, 1200, 150).is_empty());
}

#[test]
fn a_path_takes_no_more_stream_bytes_than_it_is_given() {
    let (mut client, id) = with_stream(1000);
    let (bytes, _, sent) = written(1200, |frames| client.write_data(frames, A, 0, 300));
    assert_eq!(bytes, 300);
    assert_eq!(sent[..], [stream(id, 0, 300)]);
}

#[test]
fn lost_bytes_go_before_fresh_ones_and_name_their_carriers() {
    let (mut client, id) = with_stream(1000);
    let first = write_at(&mut client, A, 100, 0);
    client.on_lost(&first[0], A);
    let unit = client.next_unit();
    assert_eq!(
        (unit.kind, unit.carried_by.iter().collect::<Vec<_>>()),
        (UnitKind::Retransmission, vec![A])
    );
    assert_eq!(client.backlog().retransmit, 98);
    let again = write_at(&mut client, B, 300, 0);
    assert_eq!(again[0], first[0]);
    assert!(matches!(again[1], SentFrame::Stream { start: 98, .. }));
    client.on_lost(&again[0], B);
    let carried = client.next_unit().carried_by;
    assert!(carried.contains(A) && carried.contains(B));
    assert_eq!(client.stats().bytes_retransmitted, 98);
    assert_eq!(client.live.len(), 1);
    assert_eq!(id.index(), 0);
}

#[test]
fn bytes_a_path_lost_itself_are_left_to_others_behind_those_it_did_not() {
    let (mut client, id) = with_stream(200);
    let (on_a, on_b) = (
        write_at(&mut client, A, 102, 0),
        write_at(&mut client, B, 200, 0),
    );
    client.on_lost(&on_a[0], A);
    client.on_lost(&on_b[0], B);
    let again = write_at(&mut client, B, 1200, 0);
    assert_eq!(again[..], on_a[..]);
    assert_eq!(streams_in(&write_at(&mut client, B, 1200, 0)), [id]);
}

#[test]
fn an_acknowledged_original_cancels_its_retransmission() {
    let (mut client, _) = with_stream(100);
    let sent = write_at(&mut client, A, 1200, 0);
    client.on_lost(&sent[0], A);
    client.on_acked(&sent[0]);
    assert_eq!(
        client.backlog(),
        Backlog {
            credit: 2900,
            send_window: 2900,
            ..Backlog::default()
        }
    );
    assert!(write_at(&mut client, B, 1200, 0).is_empty());
    assert!(!client.is_unacked(&sent[0]));
}

#[test]
fn bytes_of_a_doubtful_path_are_queued_once() {
    let (mut client, _) = with_stream(100);
    let sent = write_at(&mut client, A, 1200, 0);
    assert_eq!(client.reinject(&sent[0], A), 100);
    assert_eq!(client.reinject(&sent[0], A), 0);
    let again = write_at(&mut client, B, 1200, 0);
    assert_eq!(again[..], sent[..]);
    assert_eq!(client.reinject(&sent[0], A), 0);
    client.on_lost(&sent[0], A);
    assert_eq!(
        client.backlog().retransmit,
        0,
        "the other path still carries them"
    );
    client.on_lost(&again[0], B);
    assert_eq!(client.backlog().retransmit, 100);
}

#[test]
fn a_copy_spares_the_retransmission_unless_it_is_lost_too() {
    let (mut client, _) = with_stream(100);
    let sent = write_at(&mut client, A, 1200, 0);
    assert!(client.is_copyable(&sent[0], B));
    let (bytes, _, copy) = written(1200, |frames| client.write_copy(frames, A, B, &sent));
    assert_eq!((bytes, &copy[..]), (100, &sent[..]));
    assert!(!client.is_copyable(&sent[0], B));
    let (bytes, _, _) = written(1200, |frames| client.write_copy(frames, A, B, &sent));
    assert_eq!(bytes, 0);
    client.on_lost(&sent[0], A);
    assert_eq!(client.next_unit().kind, UnitKind::Idle);
    client.on_lost(&copy[0], B);
    assert_eq!(client.next_unit().kind, UnitKind::Retransmission);
}

#[test]
fn a_path_may_copy_what_it_lost_and_another_repairs() {
    let (mut client, _) = with_stream(100);
    let sent = write_at(&mut client, A, 1200, 0);
    client.on_lost(&sent[0], A);
    let again = write_at(&mut client, B, 1200, 0);
    assert!(client.is_copyable(&again[0], A));
    let (_, _, copy) = written(1200, |frames| client.write_copy(frames, B, A, &again));
    assert!(!client.is_copyable(&again[0], A), "it is under way there");
    client.on_lost(&copy[0], A);
    assert!(client.is_copyable(&again[0], A), "that one was lost too");
}

#[test]
fn what_was_not_worth_a_copy_is_after_a_loss_and_losses_are_counted() {
    let limits = Limits {
        max_copies: 2,
        ..limits()
    };
    let (mut client, _) = with_stream_within(&limits, 100);
    let sent = write_at(&mut client, A, 1200, 0);
    let (_, _, copy) = written(1200, |frames| client.write_copy(frames, A, B, &sent));
    assert!(!client.is_copyable(&sent[0], C), "two paths carry it");
    let before = client.losses();
    client.on_lost(&copy[0], B);
    assert!(client.is_copyable(&sent[0], C));
    assert!(client.losses() > before, "whoever looked has to look again");
    let before = client.losses();
    client.reinject(&sent[0], A);
    assert!(client.losses() > before);
}

#[test]
fn a_copy_cut_short_leaves_the_rest_to_be_copied() {
    let (mut client, id) = with_stream(1000);
    let sent = write_at(&mut client, A, 1200, 0);
    for (limit, start) in [(502, 0), (1200, 500)] {
        let (_, _, copy) = written(limit, |frames| client.write_copy(frames, A, B, &sent));
        assert_eq!(copy[..], [stream(id, start, 500)]);
    }
}

#[test]
fn the_end_of_a_stream_alone_is_worth_a_packet() {
    let (mut client, id) = with_stream(100);
    write_at(&mut client, A, 1200, 0);
    client.finish(id).unwrap();
    assert_eq!(
        (client.backlog().unsent, client.next_unit().kind),
        (1, UnitKind::Fresh)
    );
    let sent = write_at(&mut client, A, 1200, 0);
    assert_eq!(
        sent[..],
        [SentFrame::Stream {
            id,
            start: 100,
            length: 0,
            fin: true
        }]
    );
    client.on_lost(&sent[0], A);
    assert_eq!(
        (client.backlog().retransmit, client.backlog().unsent),
        (1, 0)
    );
    assert_eq!(write_at(&mut client, A, 1200, 0)[..], sent[..]);
}

#[test]
fn datagrams_go_before_fresh_stream_data_and_behind_lost() {
    let (mut client, _) = with_stream(1000);
    client.send_datagram(Bytes::from_static(b"now")).unwrap();
    assert_eq!(client.next_unit().kind, UnitKind::Datagram);
    let sent = write_at(&mut client, A, 100, 0);
    client.on_lost(&sent[0], A);
    assert_eq!(client.next_unit().kind, UnitKind::Retransmission);
    let mut server = server();
    transfer(&mut client, &mut server);
    assert!(events(&mut server).contains(&StreamEvent::DatagramReceived));
    let received = server.recv_datagram().unwrap();
    assert_eq!(&received.data[..], b"now");
}

#[test]
fn an_oversized_datagram_is_refused_with_the_size_that_fits() {
    let mut client = client();
    let max = client.max_datagram_payload().unwrap();
    let refused = client.send_datagram(Bytes::from(vec![0; max + 1]));
    assert_eq!(refused, Err(SendDatagramError::TooLarge { max }));
    client.send_datagram(Bytes::from(vec![0; max])).unwrap();
    let mut server = server();
    transfer(&mut client, &mut server);
    assert_eq!(server.recv_datagram().map(|it| it.data.len()), Some(max));
}

#[test]
fn a_stream_beyond_its_limit_after_a_refusal_does_not_mute_the_others() {
    let mut client = client();
    let ids = [0; 2].map(|_| client.open(Dir::Uni).unwrap());
    assert_eq!(put(&mut client, ids[0], 2_000), 2_000);
    assert_eq!(put(&mut client, ids[1], 500), 500);
    write_at(&mut client, A, 1200, 0);
    let mut params = TransportParameters::default();
    Limits::default().announce(&mut params);
    params.initial_max_stream_data_uni = 1_000;
    client.restart(&params).unwrap();
    client.on_peer_params(&params);
    assert_eq!(client.backlog().unsent, 1_500);
    let mut sent = [0; 2];
    while client.has_unsent() {
        for frame in write_at(&mut client, A, 600, 0) {
            let SentFrame::Stream { id, length, .. } = frame else {
                panic!("{frame:?}")
            };
            sent[usize::from(id == ids[1])] += length;
        }
    }
    assert_eq!(sent, [1_000, 500]);
    assert!(client.settle_control(), "the peer is told that it blocks");
    client.on_max_stream_data(ids[0], 5_000).unwrap();
    assert_eq!(client.backlog().unsent, 1_000);
}
