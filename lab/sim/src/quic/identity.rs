//! The identities of the endpoints of a world: not secret, but used in the real protocol.

use anabranch_proto::config::{ClientConfig, ServerConfig, TransportConfig};
use anabranch_proto::tls;
use std::sync::Arc;

/// The application protocol that endpoints of a world agree on.
pub const ALPN: &[u8] = b"sim";

/// The name by which clients ask for servers.
pub const SERVER_NAME: &str = "server.sim";

/// Settings for both ends: the server presents an Ed25519 key, which the client pins. Ed25519
/// signatures all have the same size, so the sizes and times of a handshake repeat even though TLS
/// draws its own random numbers.
///
/// # Panics
/// If the provider cannot handle Ed25519, which it can.
pub fn configs(client: TransportConfig, server: TransportConfig) -> (ClientConfig, ServerConfig) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = tls::KeyPair::generate(&provider, [7; 32]).expect("an Ed25519 key");
    let server_tls = tls::ServerTls::with_raw_key(provider.clone(), &key)
        .alpn(&[ALPN])
        .build();
    let client_tls = tls::ClientTls::pinned(provider, key.fingerprint())
        .alpn(&[ALPN])
        .build();
    let mut client_config = ClientConfig::new(client_tls.expect("a client configuration"));
    client_config.transport = Arc::new(client);
    let mut server_config = ServerConfig::new(server_tls.expect("a server configuration"));
    server_config.transport = Arc::new(server);
    (client_config, server_config)
}
