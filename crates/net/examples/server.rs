//! An echo server. It stops when its standard input ends.
//!
//! ```text
//! cargo run -p anabranch-net --example server 127.0.0.1:4433
//! ```

#![allow(clippy::print_stdout, reason = "it shows what came")]

use anabranch_net::{Connection, Endpoint, Identity, defaults};
use std::error::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:0".into());
    // A new key for each run; `Identity::load_or_create` keeps one.
    let identity = Identity::generate()?;
    let tls = identity.server(&["localhost"])?.alpn(&[b"echo"]).build()?;
    let endpoint = Endpoint::server(defaults::server(tls), &[address.parse()?])?;
    println!("{} {}", endpoint.local_addrs()[0], identity.fingerprint());
    let mut input = tokio::io::stdin();
    loop {
        tokio::select! {
            Some(connection) = endpoint.accept() => {
                tokio::spawn(serve(connection));
            }
            _ = input.read_u8() => return Ok(()),
        }
    }
}

/// Echoes each stream until the client leaves.
async fn serve(connection: Connection) {
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            tokio::io::copy(&mut receive, &mut send).await?;
            send.shutdown().await
        });
    }
}
