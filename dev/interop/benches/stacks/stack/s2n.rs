//! s2n-quic, with s2n-tls.

use super::{ALPN, LOOPBACK, Stack, answer, request};
use anabranch_interop::SERVER_NAME;
use anabranch_interop::tls::Certificate;
use s2n_quic::client::Connect;
use s2n_quic::connection::{Handle, StreamAcceptor};
use s2n_quic::provider::tls::default as s2n_tls;
use s2n_quic::stream::BidirectionalStream;
use std::net::SocketAddr;

pub(crate) struct S2n {
    client: s2n_quic::Client,
    remote: SocketAddr,
}

impl Stack for S2n {
    type Connection = Handle;

    fn start(paths: usize) -> Self {
        assert_eq!(paths, 1, "s2n-quic has no multipath");
        let certificate = Certificate::generate().unwrap();
        let tls = s2n_tls::Server::builder()
            .with_application_protocols([ALPN].iter())
            .and_then(|tls| tls.with_certificate(&certificate.pem, &certificate.key_pem))
            .and_then(s2n_tls::server::Builder::build)
            .unwrap();
        let server = s2n_quic::Server::builder().with_tls(tls).unwrap();
        let mut server = server.with_io(LOOPBACK).unwrap().start().unwrap();
        let remote = server.local_addr().unwrap();
        tokio::spawn(async move {
            while let Some(connection) = server.accept().await {
                let (_, streams) = connection.split();
                tokio::spawn(serve(streams));
            }
        });
        let tls = s2n_tls::Client::builder()
            .with_empty_trust_store()
            .and_then(|tls| tls.with_certificate(&certificate.pem))
            .and_then(|tls| tls.with_application_protocols([ALPN].iter()))
            .and_then(s2n_tls::client::Builder::build)
            .unwrap();
        let client = s2n_quic::Client::builder().with_tls(tls).unwrap();
        let client = client.with_io(LOOPBACK).unwrap().start().unwrap();
        Self { client, remote }
    }

    async fn connect(&self) -> Handle {
        let target = Connect::new(self.remote).with_server_name(SERVER_NAME);
        let mut connection = self.client.connect(target).await.unwrap();
        // Without it, a connection without streams ends after some seconds.
        connection.keep_alive(true).unwrap();
        connection.split().0
    }

    async fn ask(connection: &Handle, bytes: usize) -> usize {
        let mut connection = connection.clone();
        let stream = connection.open_bidirectional_stream().await.unwrap();
        let (mut receive, mut send) = stream.split();
        let request = bytes::Bytes::copy_from_slice(&request(bytes));
        send.send(request).await.unwrap();
        send.finish().unwrap();
        let mut got = 0;
        while let Some(chunk) = receive.receive().await.unwrap() {
            got += chunk.len();
        }
        got
    }
}

async fn serve(mut streams: StreamAcceptor) {
    // An error is the end of the connection.
    while let Ok(Some(stream)) = streams.accept_bidirectional_stream().await {
        tokio::spawn(respond(stream));
    }
}

async fn respond(stream: BidirectionalStream) {
    let (mut receive, mut send) = stream.split();
    let mut request = Vec::new();
    while let Some(piece) = receive.receive().await.unwrap() {
        request.extend_from_slice(&piece);
    }
    for piece in answer(&request) {
        send.send(piece).await.unwrap();
    }
    send.finish().unwrap();
}
