//! Datagrams that are sent again.

use super::*;

fn ms(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A datagram of this one byte, which may be 50 ms late.
fn send(streams: &mut Streams, byte: u8, repair: bool) {
    let options = DatagramOptions {
        deadline: Some(ms(1000)),
        max_skew: Some(Duration::from_millis(50)),
        repair,
        ..DatagramOptions::default()
    };
    let data = Bytes::copy_from_slice(&[byte]);
    streams.send_datagram_with(data, options).unwrap();
}

/// The bytes of the datagrams in a packet, and its record.
fn sent(streams: &mut Streams, bytes: u64) -> (Vec<u8>, SentFrames) {
    let (_, out, sent) = written(1000, |frames| {
        streams.write_datagrams(frames, ClassSet::ALL, bytes, None)
    });
    let mut reader = Reader::new(&out);
    let mut found = Vec::new();
    while !reader.is_empty() {
        if let Frame::Datagram { data } = decode(&mut reader).unwrap().1 {
            found.push(data[0]);
        }
    }
    (found, sent)
}

fn lose(streams: &mut Streams, sent: &SentFrames) {
    sent.iter().for_each(|frame| streams.on_lost(frame, A));
}

#[test]
fn what_is_lost_goes_again_before_what_came_later() {
    let mut client = client();
    client.set_clock(ms(10));
    (1..=4).for_each(|byte| send(&mut client, byte, true));
    let (first, lost) = sent(&mut client, 1);
    let (second, also) = sent(&mut client, 2);
    assert_eq!((first, second), (vec![1], vec![2, 3]));
    client.set_clock(ms(59));
    lose(&mut client, &also);
    lose(&mut client, &lost);
    // Little time is left for them, so that they have a decision of their own.
    assert_eq!(sent(&mut client, 10).0, [1, 2, 3]);
    assert_eq!(sent(&mut client, 10).0, [4]);
    let stats = client.stats();
    assert_eq!((stats.datagrams_repaired, stats.datagrams_lost), (3, 0));
}

#[test]
fn what_would_be_too_late_or_has_arrived_or_is_not_wanted_again_is_not_sent_again() {
    let mut client = client();
    client.set_clock(ms(10));
    (1..=3).for_each(|byte| send(&mut client, byte, byte != 3));
    let (_, late) = sent(&mut client, 1);
    let (_, arrived) = sent(&mut client, 1);
    let (_, plain) = sent(&mut client, 1);
    arrived.iter().for_each(|frame| client.on_acked(frame));
    lose(&mut client, &arrived);
    lose(&mut client, &plain);
    client.set_clock(ms(60));
    lose(&mut client, &late);
    assert!(!client.has_datagrams());
    assert_eq!(client.stats().datagrams_lost, 3);
}

#[test]
fn what_is_on_a_silent_path_goes_again_once() {
    let mut client = client();
    send(&mut client, 1, true);
    let (_, record) = sent(&mut client, 1);
    assert_eq!(client.reinject(&record[0], A), 0, "no stream bytes");
    assert_eq!(client.reinject(&record[0], A), 0);
    lose(&mut client, &record);
    let (again, record) = sent(&mut client, 10);
    assert_eq!(again, [1]);
    // It is too late once it has waited too long for its turn, too.
    client.set_clock(ms(30));
    lose(&mut client, &record);
    client.set_clock(ms(50));
    assert!(sent(&mut client, 10).0.is_empty());
    assert_eq!(client.stats().datagrams_expired, 1);
}
