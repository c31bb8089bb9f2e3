//! Windows, buffers, and what waits for them.

use super::*;

/// Bytes of one packet in the worked examples of the third paper.
const PACKET: u64 = 1000;

/// A bulk sender and a receiver with a shared buffer of eleven packets (16 KB).
struct Bulk {
    sender: Streams,
    receiver: Streams,
    id: StreamId,
    /// Packets sent, by TSN from 1 on.
    sent: Vec<(Vec<u8>, SentFrames)>,
    /// What the receiver answered to a TSN besides the acknowledgement.
    answers: Vec<Vec<u8>>,
}

impl Bulk {
    fn new() -> Self {
        let limits = Limits {
            send_buffer: 1 << 20,
            ..limits()
        };
        let limits = limits.with_shared_receive_buffer(11 * PACKET);
        let mut sender = side(Side::Client, &limits);
        let id = sender.open(Dir::Uni).unwrap();
        Self {
            sender,
            receiver: side(Side::Server, &limits),
            id,
            sent: vec![Default::default()],
            answers: vec![Vec::new(); 100],
        }
    }

    /// The credit of the sender in packets.
    fn credit(&self) -> u64 {
        let credit = self.sender.backlog().credit;
        assert_eq!(credit % PACKET, 0);
        credit / PACKET
    }

    fn send(&mut self, count: u64) {
        for _ in 0..count {
            while self.sender.backlog().unsent < PACKET {
                put(&mut self.sender, self.id, PACKET as usize);
            }
            let sender = &mut self.sender;
            let (bytes, out, sent) =
                written(2000, |frames| sender.write_data(frames, A, 0, PACKET));
            assert_eq!(bytes, PACKET);
            self.sent.push((out, sent));
        }
    }

    /// The receiver gets a packet, its application reads what it can, and the answer is kept.
    fn receive(&mut self, tsn: usize) {
        handle(&mut self.receiver, &self.sent[tsn].0).unwrap();
        while let Ok(Some(_)) = self.receiver.read(self.id, 1 << 20) {}
        let receiver = &mut self.receiver;
        let ((), out, _) = written(1000, |frames| receiver.write_control(frames));
        self.answers[tsn] = out;
    }

    /// The acknowledgement of a packet arrives.
    fn acknowledge(&mut self, tsn: usize) {
        for frame in self.sent[tsn].1.clone() {
            self.sender.on_acked(&frame);
        }
        handle(&mut self.sender, &self.answers[tsn]).unwrap();
    }

    /// Acknowledgement, credit before sending, packets sent.
    fn expect(&mut self, rows: &[(usize, u64, u64)]) {
        for (tsn, credit, count) in rows {
            self.acknowledge(*tsn);
            assert_eq!(self.credit(), *credit, "after the acknowledgement of {tsn}");
            self.send(*count);
        }
    }
}

#[test]
fn credit_is_the_peer_rwnd_of_the_third_paper_when_losses_block() {
    let mut bulk = Bulk::new();
    assert_eq!(bulk.credit(), 11);
    bulk.send(4);
    assert_eq!(bulk.credit(), 7);
    // 3 and 4 are lost.
    bulk.receive(1);
    bulk.receive(2);
    bulk.expect(&[(1, 8, 2), (2, 7, 2)]);
    for tsn in 5..=8 {
        bulk.receive(tsn);
    }
    bulk.expect(&[(5, 5, 2), (6, 3, 2), (7, 1, 1), (8, 0, 0)]);
    for tsn in 9..=13 {
        bulk.receive(tsn);
        bulk.expect(&[(tsn, 0, 0)]);
    }
    assert_eq!(bulk.sent.len() - 1, 13);
    let refused = bulk.sender.write(bulk.id, &mut Bytes::from_static(b"x"));
    assert_eq!(refused, Err(WriteError::Blocked));
    assert_eq!(bulk.sender.blockade(), Some(Blockade::ReceiveWindow));
}

#[test]
fn credit_is_the_peer_rwnd_of_the_third_paper_when_a_slow_path_blocks() {
    let mut bulk = Bulk::new();
    bulk.send(4);
    for tsn in 1..=4 {
        bulk.receive(tsn);
    }
    bulk.expect(&[(1, 8, 2), (2, 7, 2)]);
    for tsn in 5..=8 {
        bulk.receive(tsn);
    }
    bulk.expect(&[(3, 6, 2), (4, 5, 2)]);
    bulk.expect(&[(5, 4, 2), (6, 3, 2), (7, 2, 2), (8, 1, 1)]);
    assert_eq!(bulk.credit(), 0);
    assert_eq!(bulk.sent.len() - 1, 19);
}

#[test]
fn a_window_that_is_its_own_maximum_never_grows() {
    let limits = limits().with_shared_receive_buffer(16 * 1024);
    let mut server = side(Side::Server, &limits);
    let id = peer_stream(Dir::Uni, 0);
    let mut now = Instant::ZERO;
    for round in 0..400 {
        now += Duration::from_micros(10);
        server.set_tuning(Duration::from_millis(100), now);
        receive(&mut server, frame(id, round * 1000, 1000, false)).unwrap();
        server.read(id, 5000).unwrap();
        let ((), _, sent) = written(1000, |frames| server.write_control(frames));
        assert_eq!(sent.len(), 2, "credit of stream and connection, each time");
    }
    assert_eq!(server.stats().receive_window, 16 * 1024);
}

fn sent_packets(release: Release) -> (Streams, StreamId, Vec<SentFrames>) {
    let limits = Limits {
        release,
        ..limits()
    };
    let mut client = side(Side::Client, &limits);
    let id = client.open(Dir::Uni).unwrap();
    put(&mut client, id, 2000);
    let send = |_| written(2000, |frames| client.write_data(frames, A, 0, 500)).2;
    let sent = (0..4).map(send).collect();
    (client, id, sent)
}

#[test]
fn acknowledged_bytes_leave_the_send_buffer_at_once_or_in_order() {
    for (release, held) in [(Release::Acknowledged, 500), (Release::InOrder, 2000)] {
        let (mut client, _, sent) = sent_packets(release);
        for frames in &sent[1..] {
            client.on_acked(&frames[0]);
        }
        assert_eq!(client.ready.totals().held, held);
        assert_eq!(client.backlog().unacked, 500);
        client.on_acked(&sent[0][0]);
        assert_eq!(client.ready.totals().held, 0);
    }
}

#[test]
fn the_hole_is_the_oldest_range_under_way_with_the_paths_it_took() {
    let (mut client, id, sent) = sent_packets(Release::Acknowledged);
    client.on_acked(&sent[1][0]);
    let hole = client.hole().unwrap();
    assert_eq!((hole.id, hole.start, hole.length), (id, 0, 500));
    assert!(hole.ever.is_empty());
    assert!(Streams::carried(&sent[0][0], &hole) > 0);
    assert_eq!(Streams::carried(&sent[2][0], &hole), 0);
    assert_eq!(client.frame_of(&hole, 1200), Some(sent[0][0]));
    let frame = client.frame_of(&hole, 300).unwrap();
    let (bytes, _, copied) = written(2000, |frames| client.write_copy(frames, A, B, &[frame]));
    assert_eq!(bytes, 300);
    let hole = client.hole().unwrap();
    assert_eq!(hole.length, 300);
    assert!(hole.ever.contains(A) && hole.ever.contains(B) && hole.live.len() == 2);
    client.on_lost(&sent[0][0], A);
    let hole = client.hole().expect("the copy is under way");
    assert_eq!((hole.ever.len(), hole.live.len()), (2, 1));
    client.on_lost(&copied[0], B);
    assert_eq!(client.hole(), None, "it is queued again");
}

#[test]
fn bytes_travel_on_no_more_paths_than_allowed() {
    let limits = Limits {
        max_copies: 2,
        ..limits()
    };
    let (mut client, id) = with_stream_within(&limits, 500);
    let (_, _, sent) = written(2000, |frames| client.write_data(frames, A, 0, 500));
    let copy = |client: &mut Streams, path| {
        written(2000, |frames| client.write_copy(frames, A, path, &sent)).0
    };
    assert_eq!(copy(&mut client, B), 500);
    assert_eq!(copy(&mut client, B), 0, "once on each path");
    assert_eq!(copy(&mut client, C), 0, "two are under way");
    let frame = SentFrame::Stream {
        id,
        start: 0,
        length: 500,
        fin: false,
    };
    client.on_lost(&frame, A);
    assert_eq!(copy(&mut client, C), 500);
    client.on_acked(&frame);
    assert_eq!(
        copy(&mut client, PathId(3)),
        0,
        "a late acknowledgement ends it"
    );
}

#[test]
fn the_blockade_is_named_only_when_nothing_can_be_sent() {
    let mut client = client();
    let id = client.open(Dir::Uni).unwrap();
    assert_eq!(client.blockade(), None);
    put(&mut client, id, 2500);
    assert_eq!(client.blockade(), None, "there is data to send");
    packet(&mut client, A, 5000);
    assert_eq!(client.blockade(), None, "nobody wants to write");
    let refused = client.write(id, &mut Bytes::from_static(b"x"));
    assert_eq!(refused, Err(WriteError::Blocked));
    assert_eq!(client.blockade(), Some(Blockade::ReceiveWindow));
    client.on_max_stream_data(id, 100_000).unwrap();
    assert_eq!(client.blockade(), None);
    client.on_max_data(100_000);
    put(&mut client, id, 100_000);
    packet(&mut client, A, 5000);
    let refused = client.write(id, &mut Bytes::from_static(b"x"));
    assert_eq!(refused, Err(WriteError::Blocked));
    assert_eq!(client.blockade(), Some(Blockade::SendBuffer));
}

#[test]
fn what_may_wait_unsent_is_limited_for_each_stream_by_itself() {
    let limits = Limits {
        stream_unsent: 500,
        ..limits()
    };
    let mut client = side(Side::Client, &limits);
    let [one, other] = [(); 2].map(|()| client.open(Dir::Bi).unwrap());
    assert_eq!(put(&mut client, one, 900), 500);
    let more = client.write(one, &mut pattern(one, 500, 1));
    assert_eq!(more, Err(WriteError::Blocked));
    assert_eq!(
        put(&mut client, other, 900),
        500,
        "the other stream has its own"
    );
    assert_eq!(client.stats().blocked_by_send_buffer, 0);
    let mut sent = 0;
    while events(&mut client).is_empty() {
        sent += packet(&mut client, A, 120).0.len();
        assert!(sent < 1200, "its writer is told before all has left");
    }
    assert!(put(&mut client, one, 900) > 250, "and gets no crumbs");
}

#[test]
fn more_may_wait_unsent_where_more_is_under_way() {
    let limits = Limits {
        stream_unsent: 100,
        ..limits()
    };
    let mut client = side(Side::Client, &limits);
    let id = client.open(Dir::Bi).unwrap();
    let mut under_way = 0;
    while under_way < 1600 {
        let wanted = 1600 - under_way;
        under_way += put(&mut client, id, wanted);
        while !packet(&mut client, A, 1000).1.is_empty() {}
    }
    assert_eq!(put(&mut client, id, 2000), 400);
}

/// A sender and a receiver of streams that nobody reads, and of one that is read.
struct Stalled {
    sender: Streams,
    receiver: Streams,
}

impl Stalled {
    /// Windows of 2000 bytes a stream and of 3000 bytes for all.
    fn new(reserve: u64) -> Self {
        let limits = Limits {
            receive_reserve: reserve,
            send_buffer: 1 << 20,
            max_streams_uni: 100,
            ..limits()
        };
        Self {
            sender: side(Side::Client, &limits),
            receiver: side(Side::Server, &limits),
        }
    }

    /// As many bytes as go on a stream; they are read if somebody `reads`.
    fn fill(&mut self, bytes: usize, reads: bool) -> usize {
        let (sender, receiver) = (&mut self.sender, &mut self.receiver);
        let id = sender.open(Dir::Uni).unwrap();
        let (mut written, mut arrived) = (0, 0);
        for _ in 0..bytes {
            let mut rest = pattern(id, written as u64, bytes - written);
            written += sender.write(id, &mut rest).unwrap_or(0);
            let before = receiver.stats().bytes_received;
            transfer(sender, receiver);
            arrived += (receiver.stats().bytes_received - before) as usize;
            if reads {
                read_all(receiver, id);
            }
            transfer(receiver, sender);
        }
        arrived
    }
}

#[test]
fn streams_that_nobody_reads_do_not_stop_the_others() {
    let mut stalled = Stalled::new(9000);
    assert_eq!(stalled.fill(20_000, true), 20_000);
    for _ in 0..5 {
        assert_eq!(stalled.fill(5000, false), 2000, "its own window");
    }
    assert_eq!(stalled.fill(20_000, true), 20_000);
    // Little is left, less than an eighth of the window.
    assert_eq!(stalled.fill(1700, false), 1700);
    assert_eq!(stalled.fill(20_000, true), 20_000);
    let mut without = Stalled::new(0);
    assert_eq!(without.fill(5000, false), 2000);
    assert_eq!(without.fill(5000, false), 1000, "the connection's window");
    assert_eq!(without.fill(5000, true), 0);
}

#[test]
fn what_nobody_reads_is_no_more_than_the_window_and_the_reserve() {
    let mut stalled = Stalled::new(9000);
    assert_eq!(stalled.fill(20_000, true), 20_000);
    let held: usize = (0..50).map(|_| stalled.fill(5000, false)).sum();
    assert_eq!(held, 3000 + 9000);
    let code = code(receive(
        &mut stalled.receiver,
        frame(peer_stream(Dir::Uni, 60), 0, 1, false),
    ));
    assert_eq!(code, TransportErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn a_peer_of_whom_nothing_was_read_gets_the_window_alone() {
    let mut stranger = Stalled::new(9000);
    let held: usize = (0..50).map(|_| stranger.fill(5000, false)).sum();
    assert_eq!(held, 3000);
    let mut known = Stalled::new(9000);
    assert_eq!(known.fill(1500, true), 1500);
    let held: usize = (0..50).map(|_| known.fill(5000, false)).sum();
    assert_eq!(held, 3000 + 1500);
}

#[test]
fn a_window_grows_to_two_thirds_of_what_others_have_left() {
    let limits = Limits {
        receive_window: 1 << 20,
        max_receive_window: 1 << 20,
        receive_reserve: 1 << 10,
        max_stream_receive_window: 1 << 20,
        ..limits()
    };
    let grown = |unread: usize| {
        let mut server = side(Side::Server, &limits);
        for other in 1..3 {
            let id = peer_stream(Dir::Uni, other);
            receive(&mut server, frame(id, 0, unread, false)).unwrap();
        }
        let (id, mut now) = (peer_stream(Dir::Uni, 0), Instant::ZERO);
        for round in 0..4000 {
            now += Duration::from_micros(10);
            server.set_tuning(Duration::from_millis(100), now);
            receive(&mut server, frame(id, round * 1000, 1000, false)).unwrap();
            server.read(id, 5000).unwrap();
            written(1000, |frames| server.write_control(frames));
        }
        server.live[&id].recv.as_ref().unwrap().grant.window()
    };
    let all = (1 << 20) + (1 << 10);
    assert!((all * 2 / 3 - 1000..=all * 2 / 3).contains(&grown(0)));
    let rest = all - 4000;
    assert!((rest * 2 / 3 - 1000..=rest * 2 / 3).contains(&grown(2000)));
}
