//! Clients whose data nobody reads, once their receive windows have grown (row 46).

use super::admission::{Client, Server};
use anabranch_proto::config::{EndpointConfig, TransportConfig};
use anabranch_proto::streams::{ReceiveBudget, StreamStats};
use anabranch_proto::wire::{Dir, StreamId};
use anabranch_proto::{Connection, Handle};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// The window of each connection at first, in bytes.
const FIRST: u64 = 20_000;

/// What connections of the server may promise together beyond that.
const BUDGET: u64 = 400_000;

fn server(reserve: u64) -> (Server, ReceiveBudget) {
    let settings = EndpointConfig {
        receive_budget: ReceiveBudget::new(BUDGET),
        ..EndpointConfig::default()
    };
    let budget = settings.receive_budget.clone();
    let server = Server::with(settings, |config| {
        let mut transport = TransportConfig::default();
        let limits = &mut transport.streams;
        (limits.receive_window, limits.stream_receive_window) = (FIRST, FIRST);
        limits.receive_reserve = reserve;
        config.transport = Arc::new(transport);
    });
    (server, budget)
}

/// A client that sends all it may.
struct Upload {
    client: Client,
    /// The server's connection.
    handle: Handle,
    id: StreamId,
}

impl Upload {
    fn new(server: &mut Server, n: u16) -> Self {
        let mut client = server.client(n, b"");
        let connection = client.endpoint.connection_mut(client.handle);
        let id = connection.expect("a connection").open(Dir::Bi);
        let handles = server.endpoint.connections().map(|(handle, _)| handle);
        let handle = handles.max().expect("a connection");
        Self {
            client,
            handle,
            id: id.expect("a stream"),
        }
    }

    fn write(&mut self) {
        let connection = self.client.endpoint.connection_mut(self.client.handle);
        let connection = connection.expect("a connection");
        let _ = connection.write(self.id, &mut Bytes::from(vec![7; 1 << 20]));
    }

    /// The server's application reads all that is there.
    fn read(&self, server: &mut Server) {
        while let Some(Ok(Some(_))) = server.endpoint.read(self.handle, self.id, 1 << 20) {}
    }

    fn stats(&self, server: &Server) -> StreamStats {
        let connection = server.endpoint.connection(self.handle);
        connection.expect("it is there").stats().streams
    }

    fn close(&mut self, server: &mut Server) {
        let connection = server.endpoint.connection_mut(self.handle);
        let now = server.now;
        connection.expect("it is there").close(now, 0, b"");
    }
}

fn go_on(server: &mut Server, uploads: &mut [Upload]) {
    uploads.iter_mut().for_each(Upload::write);
    let clients = uploads.iter_mut().map(|upload| &mut upload.client);
    server.exchange_with(&mut clients.collect::<Vec<_>>());
}

#[test]
fn what_applications_leave_unread_is_bounded_for_all_connections_together() {
    let (mut server, budget) = server(0);
    let mut uploads: Vec<_> = (1..=12).map(|n| Upload::new(&mut server, n)).collect();
    for _ in 0..12 {
        go_on(&mut server, &mut uploads);
        for upload in &uploads {
            upload.read(&mut server);
        }
    }
    let grown = |upload: &Upload| upload.stats(&server).receive_window > FIRST + 10_000;
    assert!(uploads.iter().all(grown));
    for _ in 0..5 {
        go_on(&mut server, &mut uploads);
    }
    let unread = |upload: &Upload| {
        let stats = upload.stats(&server);
        stats.bytes_received - stats.bytes_delivered
    };
    let unread: u64 = uploads.iter().map(unread).sum();
    let most = BUDGET + 12 * FIRST;
    assert!(
        (most * 3 / 4..=most).contains(&unread),
        "{unread} of {most}"
    );
    for upload in &mut uploads {
        upload.close(&mut server);
    }
    while server.endpoint.connections().any(|_| true) {
        server.now += Duration::from_secs(1);
        server.endpoint.handle_timeout(server.now);
        while server.endpoint.poll_event().is_some() {}
    }
    assert_eq!(budget.promised(), 0, "what ends gives back what it held");
}

#[test]
fn a_client_that_others_left_no_room_is_told_when_they_have_ended() {
    let (mut server, budget) = server(1 << 20);
    let mut others: Vec<_> = (1..=5).map(|n| Upload::new(&mut server, n)).collect();
    for _ in 0..12 {
        go_on(&mut server, &mut others);
        for upload in &others {
            upload.read(&mut server);
        }
    }
    assert!(budget.promised() > BUDGET / 2);
    // It was read much of, and then nothing any more.
    let mut last = [Upload::new(&mut server, 9)];
    for _ in 0..12 {
        go_on(&mut server, &mut last);
        last[0].read(&mut server);
    }
    let received = |server: &Server, last: &Upload| last.stats(server).bytes_received;
    let mut before = 0;
    while received(&server, &last[0]) > before {
        before = received(&server, &last[0]);
        let client = &mut last[0].client;
        let connection = client.endpoint.connection_mut(client.handle);
        let id = connection.expect("a connection").open(Dir::Bi);
        last[0].id = id.expect("a stream");
        go_on(&mut server, &mut last);
    }
    assert!(before > 0);
    for upload in &mut others {
        upload.close(&mut server);
    }
    go_on(&mut server, &mut last);
    let more = received(&server, &last[0]) - before;
    assert!(more >= FIRST / 2, "{more} bytes");
    let connection = server.endpoint.connection(last[0].handle);
    assert!(!connection.is_none_or(Connection::is_closed));
}
