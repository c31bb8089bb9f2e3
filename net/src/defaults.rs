//! Settings of connections unless told otherwise.
//!
//! The engine's own defaults are complete but for one thing: the engine knows no scheduler but the
//! plain `min-rtt`. These have the one that is recommended ([`RECOMMENDED`]), which is what
//! the command `anabranch` uses as well.

use crate::engine::{ClientConfig, ServerConfig, TransportConfig, tls};
use std::sync::Arc;

pub use anabranch_schedulers::{RECOMMENDED, transport};

/// A client that trusts as `tls` says.
pub fn client(tls: tls::ClientConfig) -> ClientConfig {
    ClientConfig {
        transport: shared(),
        ..ClientConfig::new(tls)
    }
}

/// A server of the identity in `tls`.
pub fn server(tls: tls::ServerConfig) -> ServerConfig {
    ServerConfig {
        transport: shared(),
        ..ServerConfig::new(tls)
    }
}

fn shared() -> Arc<TransportConfig> {
    Arc::new(transport())
}
