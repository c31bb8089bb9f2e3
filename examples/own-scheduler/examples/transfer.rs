//! A real transfer over two real UDP paths, placed by a scheduler that the engine knows nothing of.
//!
//! `cargo run --package own-scheduler --example transfer`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use anabranch_net::engine::{ClientConfig, ServerConfig, TransportConfig, tls};
use anabranch_net::identity::{Identity, provider};
use anabranch_net::{Endpoint, PathsConfig, Target};
use anabranch_proto::sched::SchedulerFactory;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

const BYTES: usize = 20_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The client sends, so the client's scheduler decides.
    let scheduler = "cheapest:limit-ms=80".parse()?;
    let scheduler = SchedulerFactory::new(&own_scheduler::registry(), &scheduler)?;
    let transport = TransportConfig {
        scheduler,
        ..TransportConfig::default()
    };

    let identity = Identity::generate()?;
    let tls = identity
        .server(&["localhost"])?
        .alpn(&[b"example"])
        .build()?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Endpoint::server(ServerConfig::new(tls), &[any])?;
    let target = Target {
        name: "localhost".into(),
        remotes: server.local_addrs(),
    };
    let receiver = tokio::spawn(async move {
        let connection = server.accept().await.ok_or("nobody came")?;
        let mut stream = connection
            .accept_uni()
            .await
            .map_err(|error| error.to_string())?;
        let mut got = 0;
        while let Some(piece) = stream
            .read_chunk(usize::MAX)
            .await
            .map_err(|e| e.to_string())?
        {
            got += piece.len();
        }
        Ok::<_, String>(got)
    });

    let tls = tls::ClientTls::pinned(provider(), identity.fingerprint());
    let mut config = ClientConfig::new(tls.alpn(&[b"example"]).build()?);
    config.transport = Arc::new(transport);
    let specs = vec!["127.0.0.1".parse()?, "127.0.0.2,cost=5".parse()?];
    let paths = PathsConfig {
        specs,
        ..PathsConfig::default()
    };
    let client = Endpoint::client()?;
    let (connection, _manager) = client.connect(&target, config, &paths).await?;
    let mut stream = connection.open_uni().await?;
    stream.write_all(&vec![7; BYTES]).await?;
    stream.finish()?;
    let got = receiver.await??;
    for (id, path) in connection.paths() {
        let sent = path.counters.sent_bytes as f64 / 1e6;
        println!("path {id} to {}: {sent:.1} MB sent", path.tuple.remote);
    }
    for (reason, count) in connection.stats().scheduler.reasons {
        println!("{count:>6} decisions: {reason:?}");
    }
    println!("{got} of {BYTES} bytes arrived");
    if got == BYTES {
        Ok(())
    } else {
        Err("bytes are missing".into())
    }
}
