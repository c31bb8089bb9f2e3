//! One stream over two paths, and what each of them carried.
//!
//! ```text
//! cargo run -p anabranch-net --example two-paths
//! ```

#![allow(clippy::print_stdout, reason = "it shows what came")]

use anabranch_net::engine::tls;
use anabranch_net::identity::provider;
use anabranch_net::{Endpoint, Identity, PathsConfig, Target, defaults};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let identity = Identity::generate()?;
    let tls = identity.server(&["localhost"])?.alpn(&[b"bulk"]).build()?;
    let server = Endpoint::server(defaults::server(tls), &["127.0.0.1:0".parse()?])?;
    let remotes = server.local_addrs();
    let serving = tokio::spawn(async move {
        let connection = server.accept().await.expect("a client");
        let mut stream = connection.accept_uni().await.expect("a stream");
        let data = stream.read_to_end(20_000_000).await.expect("all of it");
        data.len()
    });

    let tls = tls::ClientTls::pinned(provider(), identity.fingerprint());
    let config = defaults::client(tls.alpn(&[b"bulk"]).build()?);
    // In real use these name interfaces, such as "eth0" and "wwan*", or "auto" for all of them.
    let paths = PathsConfig {
        specs: vec!["127.0.0.2".parse()?, "127.0.0.3".parse()?],
        ..PathsConfig::default()
    };
    let target = Target {
        name: "localhost".into(),
        remotes,
    };
    let client = Endpoint::client()?;
    let (connection, _manager) = client.connect(&target, config, &paths).await?;
    connection.wait_for_paths(2).await?;
    let mut stream = connection.open_uni().await?;
    stream.write_all(&vec![7; 20_000_000]).await?;
    stream.finish()?;
    println!("{} bytes arrived", serving.await?);
    for (id, path) in connection.paths() {
        println!("path {id} carried {} bytes", path.counters.sent_bytes);
    }
    Ok(())
}
