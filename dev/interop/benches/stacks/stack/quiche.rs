//! quiche, which leaves sockets and timers to those who use it: here `endpoint`.
//!
//! What has no default in quiche is as in the client and server of its own repository.

mod endpoint;
mod streams;

use super::{ALPN, LOOPBACK, Stack};
use anabranch_interop::tls::Certificate;
use anabranch_net::sockets::{Socket, SocketConfig};
use boring::pkey::PKey;
use boring::ssl::{SslContextBuilder, SslMethod};
use boring::x509::X509;
use endpoint::{Command, Endpoint};
use std::net::SocketAddr;
use std::sync::Arc;
use streams::{Client, Server};
use tokio::sync::{mpsc, oneshot};

/// The longest datagram either way: quiche asks for no larger ones by itself.
const DATAGRAM: usize = 1350;

/// Its `BoringSSL` exchanges keys by X25519 with ML-KEM unless it may use X25519 alone.
pub(crate) struct Quiche<const X25519: bool = false> {
    client: mpsc::UnboundedSender<Command>,
    remote: SocketAddr,
    /// A server gets no commands; without a sender its channel would be at its end.
    _server: mpsc::UnboundedSender<Command>,
}

/// A connection of the client, which ends when the last handle is dropped.
pub(crate) struct Handle {
    client: mpsc::UnboundedSender<Command>,
    id: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The client may be gone before.
        let _ = self.client.send(Command::Close(self.id));
    }
}

impl<const X25519: bool> Stack for Quiche<X25519> {
    type Connection = Arc<Handle>;

    fn start(paths: usize) -> Self {
        assert_eq!(paths, 1, "quiche has no multipath");
        let certificate = Certificate::generate().unwrap();
        let (unused, commands) = mpsc::unbounded_channel();
        let server = Endpoint::<Server>::new(socket(), server_config(&certificate), commands);
        let remote = server.local_addr();
        tokio::spawn(server.run());
        let (client, commands) = mpsc::unbounded_channel();
        let mut config = client_config(&certificate);
        if X25519 {
            config.set_curves_list("X25519").unwrap();
        }
        tokio::spawn(Endpoint::<Client>::new(socket(), config, commands).run());
        Self {
            client,
            remote,
            _server: unused,
        }
    }

    async fn connect(&self) -> Arc<Handle> {
        let (reply, established) = oneshot::channel();
        let command = Command::Connect(self.remote, reply);
        self.client.send(command).ok().unwrap();
        let id = established.await.unwrap();
        let client = self.client.clone();
        Arc::new(Handle { client, id })
    }

    async fn ask(connection: &Arc<Handle>, bytes: usize) -> usize {
        let (reply, answered) = oneshot::channel();
        let command = Command::Ask(connection.id, bytes, reply);
        connection.client.send(command).ok().unwrap();
        answered.await.unwrap()
    }
}

fn socket() -> Socket {
    Socket::bind(&SocketConfig::listen(LOOPBACK)).unwrap()
}

fn server_config(certificate: &Certificate) -> quiche::Config {
    let mut tls = SslContextBuilder::new(SslMethod::tls()).unwrap();
    let shown = X509::from_der(&certificate.der).unwrap();
    tls.set_certificate(&shown).unwrap();
    let key = PKey::private_key_from_pem(certificate.key_pem.as_bytes()).unwrap();
    tls.set_private_key(&key).unwrap();
    config(tls)
}

fn client_config(certificate: &Certificate) -> quiche::Config {
    let mut tls = SslContextBuilder::new(SslMethod::tls()).unwrap();
    let trusted = X509::from_der(&certificate.der).unwrap();
    tls.cert_store_mut().add_cert(trusted).unwrap();
    let mut config = config(tls);
    config.verify_peer(true);
    config
}

/// Windows, streams, time-out and sizes are those of `quiche-client` and `quiche-server` unless
/// told otherwise; all else is what quiche begins with.
fn config(tls: SslContextBuilder) -> quiche::Config {
    let version = quiche::PROTOCOL_VERSION;
    let mut config = quiche::Config::with_boring_ssl_ctx_builder(version, tls).unwrap();
    config.set_application_protos(&[ALPN]).unwrap();
    config.set_max_idle_timeout(30_000);
    config.set_max_recv_udp_payload_size(DATAGRAM);
    config.set_max_send_udp_payload_size(DATAGRAM);
    config.set_initial_max_data(10_000_000);
    config.set_max_connection_window(24 << 20);
    config.set_initial_max_stream_data_bidi_local(1_000_000);
    config.set_initial_max_stream_data_bidi_remote(1_000_000);
    config.set_initial_max_stream_data_uni(1_000_000);
    config.set_max_stream_window(16 << 20);
    config.set_initial_max_streams_bidi(100);
    config.set_initial_max_streams_uni(100);
    config.set_active_connection_id_limit(2);
    config.set_disable_active_migration(true);
    config
}
