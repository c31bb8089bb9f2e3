//! Clients that take data and acknowledge nothing, so that a server keeps it (row 41).

use super::admission::{Client, Server};
use crate::raw::route;
use anabranch_proto::datagram::Tuple;
use anabranch_proto::event::Event;
use anabranch_proto::streams::{StreamEvent, WriteError};
use anabranch_proto::time::Instant;
use anabranch_proto::wire::{Dir, Side, StreamId};
use anabranch_proto::{Connection, Handle};
use bytes::Bytes;
use std::time::Duration;

/// What the server may keep, in bytes.
const BUDGET: usize = 1_000_000;

/// A download at a server.
struct Download {
    client: Client,
    /// The server's connection, and its stream.
    at: (Handle, StreamId),
    left: Bytes,
    /// Bytes the client has read.
    got: usize,
}

fn server() -> Server {
    Server::new(|config| config.send_budget = BUDGET as u64)
}

/// A client from the `n`-th address has asked for so many bytes; nothing is written yet.
fn ask(server: &mut Server, n: u16, length: usize) -> Download {
    let mut client = server.client(n, b"");
    let connection = client.endpoint.connection_mut(client.handle);
    let connection = connection.expect("a connection");
    let id = connection.open(Dir::Bi).expect("a stream");
    connection
        .write(id, &mut Bytes::from_static(b"?"))
        .expect("credit");
    server.exchange(&mut client);
    let handles = server.endpoint.connections().map(|(handle, _)| handle);
    let handle = handles.max().expect("a connection");
    let connection = server.endpoint.connection_mut(handle).expect("it is there");
    assert_eq!(connection.accept(Dir::Bi), Some(id));
    Download {
        client,
        at: (handle, id),
        left: Bytes::from(vec![7; length]),
        got: 0,
    }
}

impl Download {
    /// The server writes what it can; returns how much that was.
    fn write(&mut self, server: &mut Server) -> usize {
        let (handle, id) = self.at;
        let Some(connection) = server.endpoint.connection_mut(handle) else {
            return 0;
        };
        let before = self.left.len();
        while !self.left.is_empty() {
            match connection.write(id, &mut self.left) {
                Ok(_) => {}
                Err(WriteError::Blocked) => break,
                Err(error) => panic!("{error}"),
            }
        }
        before - self.left.len()
    }

    /// The client reads what is there.
    fn read(&mut self) {
        let connection = self.client.endpoint.connection_mut(self.client.handle);
        let connection = connection.expect("a connection");
        while let Ok(Some(bytes)) = connection.read(self.at.1, 1 << 20) {
            self.got += bytes.len();
        }
    }

    /// A datagram of the server arrives, if it is for this client.
    fn deliver(&mut self, to: &Tuple, now: Instant, bytes: &mut [u8]) {
        if *to == self.client.at {
            let from = route(Side::Client, 1);
            self.client.endpoint.handle_datagram(now, from, None, bytes);
        }
    }

    /// Both ends work for a while.
    fn go_on(&mut self, server: &mut Server) {
        self.write(server);
        server.exchange(&mut self.client);
        self.read();
    }

    fn is_closed(&self, server: &Server) -> bool {
        let connection = server.endpoint.connection(self.at.0);
        connection.is_none_or(Connection::is_closed)
    }
}

#[test]
fn what_silent_clients_make_a_server_keep_is_bounded_for_all_of_them() {
    let mut server = server();
    let mut silent: Vec<_> = (1..=8).map(|n| ask(&mut server, n, BUDGET)).collect();
    let taken: Vec<_> = silent
        .iter_mut()
        .map(|one| one.write(&mut server))
        .collect();
    assert!(taken.iter().sum::<usize>() <= BUDGET, "{taken:?}");
    // The first one, alone, left a quarter.
    assert!(taken[0] <= BUDGET * 3 / 4 && taken[1] > 0, "{taken:?}");
    // What ends gives back what it held.
    for one in &silent {
        let connection = server.endpoint.connection_mut(one.at.0);
        connection.expect("it is there").close(server.now, 0, b"");
    }
    let mut next = ask(&mut server, 9, BUDGET);
    assert!(next.write(&mut server) >= BUDGET / 2);
}

#[test]
fn a_client_that_acknowledges_takes_the_place_of_one_that_does_not() {
    let mut server = server();
    let mut silent: Vec<_> = (1..=3).map(|n| ask(&mut server, n, BUDGET)).collect();
    let mut good = ask(&mut server, 9, 300_000);
    for one in &mut silent {
        one.write(&mut server);
    }
    assert_eq!(good.write(&mut server), 0, "nothing is left");
    let began = server.now;
    while good.got < 300_000 {
        good.go_on(&mut server);
        let waited = server.now.since(began);
        let closed = silent.iter().filter(|one| one.is_closed(&server)).count();
        assert_eq!(closed > 0, waited >= Duration::from_secs(10), "{waited:?}");
        assert!(waited < Duration::from_secs(15), "{} bytes", good.got);
    }
    let closed: Vec<_> = silent.iter().map(|one| one.is_closed(&server)).collect();
    assert_eq!(closed, [true, false, false], "the one that held most");
}

#[test]
fn nobody_waits_for_room_that_others_do_not_take() {
    let mut server = server();
    let mut large: Vec<_> = (1..=2).map(|n| ask(&mut server, n, BUDGET)).collect();
    let mut small: Vec<_> = (3..=40).map(|n| ask(&mut server, n, 100)).collect();
    let taken = large.iter_mut().map(|one| one.write(&mut server));
    assert_eq!(taken.sum::<usize>(), BUDGET);
    for one in &mut small {
        assert_eq!(one.write(&mut server), 0);
    }
    let began = server.now;
    let connection = server.endpoint.connection_mut(large[1].at.0);
    connection.expect("it is there").close(server.now, 0, b"");
    while small.iter().any(|one| one.got < 100) {
        let told: Vec<_> = std::iter::from_fn(|| server.endpoint.poll_event()).collect();
        for one in &mut small {
            let writable = Event::Stream(StreamEvent::Writable { id: one.at.1 });
            if told.contains(&(one.at.0, writable)) {
                assert_eq!(one.write(&mut server), 100);
            }
        }
        server.now += Duration::from_millis(1);
        server.endpoint.handle_timeout(server.now);
        let mut bytes = Vec::new();
        while let Some(transmit) = server.endpoint.poll_transmit(server.now, 1, &mut bytes) {
            for one in &mut small {
                one.deliver(&transmit.tuple, server.now, &mut bytes);
            }
            bytes.clear();
        }
        small.iter_mut().for_each(Download::read);
        assert!(server.now.since(began) < Duration::from_secs(1));
    }
}

#[test]
fn clients_that_acknowledge_share_what_there_is_and_none_is_closed() {
    let mut server = server();
    let mut clients: Vec<_> = (1..=6).map(|n| ask(&mut server, n, 600_000)).collect();
    let began = server.now;
    while clients.iter().any(|one| one.got < 600_000) {
        for one in &mut clients {
            one.write(&mut server);
        }
        let ends = clients.iter_mut().map(|one| &mut one.client);
        server.exchange_with(&mut ends.collect::<Vec<_>>());
        for one in &mut clients {
            one.read();
            assert!(!one.is_closed(&server));
        }
        assert!(server.now.since(began) < Duration::from_secs(60));
    }
}
