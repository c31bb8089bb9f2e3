//! A client that knows its server by the fingerprint of its key.
//!
//! ```text
//! cargo run -p anabranch-net --example client 127.0.0.1:4433 FINGERPRINT
//! ```

#![allow(clippy::print_stdout, reason = "it shows what came")]

use anabranch_net::engine::tls;
use anabranch_net::identity::provider;
use anabranch_net::{Endpoint, PathsConfig, Target, defaults};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(fingerprint)) = (arguments.next(), arguments.next()) else {
        return Err("usage: client ADDRESS FINGERPRINT, as `server` prints them".into());
    };
    let tls = tls::ClientTls::pinned(provider(), fingerprint.parse()?);
    let config = defaults::client(tls.alpn(&[b"echo"]).build()?);
    let target = Target {
        name: "localhost".into(),
        remotes: vec![address.parse()?],
    };
    let endpoint = Endpoint::client()?;
    let paths = PathsConfig::default();
    let (connection, _paths) = endpoint.connect(&target, config, &paths).await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(b"hello").await?;
    send.finish()?;
    let answer = receive.read_to_end(100).await?;
    println!("{}", String::from_utf8_lossy(&answer));
    connection.close(0, b"");
    endpoint.wait_idle().await;
    Ok(())
}
