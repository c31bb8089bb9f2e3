//! Datagrams (RFC 9221): a lost one is not sent again, and none waits for another.
//!
//! ```text
//! cargo run -p anabranch-net --example datagrams
//! ```

#![allow(clippy::print_stdout, reason = "it shows what came")]

use anabranch_net::engine::tls;
use anabranch_net::identity::provider;
use anabranch_net::{Endpoint, Identity, PathsConfig, Target, defaults};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let identity = Identity::generate()?;
    let tls = identity.server(&["localhost"])?.alpn(&[b"ticks"]).build()?;
    let server = Endpoint::server(defaults::server(tls), &["127.0.0.1:0".parse()?])?;
    let target = Target {
        name: "localhost".into(),
        remotes: server.local_addrs(),
    };
    tokio::spawn(async move {
        let connection = server.accept().await.expect("a client");
        while let Ok(datagram) = connection.read_datagram().await {
            let _ = connection.send_datagram(datagram);
        }
    });

    let tls = tls::ClientTls::pinned(provider(), identity.fingerprint());
    let config = defaults::client(tls.alpn(&[b"ticks"]).build()?);
    let client = Endpoint::client()?;
    let paths = PathsConfig::default();
    let (connection, _paths) = client.connect(&target, config, &paths).await?;
    for tick in 0..3_u8 {
        let datagram = vec![tick; 100].into();
        connection.send_datagram_wait(datagram).await?;
        let answer = connection.read_datagram().await?;
        println!("tick {} came back, {} bytes", answer[0], answer.len());
    }
    Ok(())
}
