//! Settings of connections unless told otherwise.
//!
//! The engine's own defaults are complete, and differ from these in two points. The engine knows no
//! scheduler but the plain `min-rtt`; these have the one that is recommended ([`RECOMMENDED`]). And
//! these look for packets as large as Ethernet carries them ([`MtuConfig::ETHERNET`]), where the
//! engine's are as large over IPv4 as over IPv6. The command `anabranch` uses these as well.

use crate::engine::{ClientConfig, ServerConfig, TransportConfig, tls};
use anabranch_proto::path::MtuConfig;
use std::sync::Arc;

pub use anabranch_schedulers::RECOMMENDED;

/// Settings of a connection.
pub fn transport() -> TransportConfig {
    TransportConfig {
        mtu: MtuConfig::ETHERNET,
        ..anabranch_schedulers::transport()
    }
}

/// A client that trusts as `tls` says.
pub fn client(tls: tls::ClientTls) -> ClientConfig {
    ClientConfig {
        transport: shared(),
        ..ClientConfig::new(tls)
    }
}

/// A server of the identity in `tls`.
pub fn server(tls: tls::ServerTls) -> ServerConfig {
    ServerConfig {
        transport: shared(),
        ..ServerConfig::new(tls)
    }
}

fn shared() -> Arc<TransportConfig> {
    Arc::new(transport())
}
