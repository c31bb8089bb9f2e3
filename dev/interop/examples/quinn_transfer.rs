//! quinn as a contender of the laboratory, alone or within a tunnel that it knows nothing of:
//! `lab/contenders/quinn.toml` and `quinn-by-tunnel.toml` run it.
//!
//! ```text
//! quinn_transfer serve ADDRESS:PORT FOLDER
//! quinn_transfer put BYTES ADDRESS:PORT FOLDER FROM
//! ```
//! The server leaves its certificate's fingerprint in the folder. The client says how many bytes
//! arrived and how long that took. Its congestion control is CUBIC, as quinn has it, or what
//! `INNER_CONGESTION` says: `cubic` or `bbr`. Without arguments both ends run here, over loopback.

use anabranch_interop::service::{hex, unhex};
use anabranch_interop::{Request, SERVER_NAME, ServeConfig, Trust, quinn_peer, service, tls};
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, TransportConfig};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The file that holds the fingerprint, in hexadecimal digits.
const KEY: &str = "quinn.key";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => both().await,
        ["serve", listen, folder] => serve(listen.parse()?, Path::new(folder)).await,
        ["put", bytes, server, folder, from] => {
            let key = unhex(&std::fs::read_to_string(Path::new(folder).join(KEY))?);
            let trust = Trust::Fingerprint(key.ok_or("the file holds no fingerprint")?);
            put(bytes.parse()?, trust, (from.parse()?, server.parse()?)).await
        }
        _ => Err("expected: serve ADDRESS:PORT FOLDER, or put BYTES SERVER FOLDER FROM".into()),
    }
}

/// Server and client in one process.
async fn both() -> Result<(), Box<dyn Error>> {
    let server = quinn_peer::serve(&ServeConfig::default()).await?;
    let trust = Trust::Fingerprint(server.fingerprint());
    let ends = (IpAddr::from([127, 0, 0, 1]), server.addr());
    put(10_000_000, trust, ends).await
}

async fn serve(listen: SocketAddr, folder: &Path) -> Result<(), Box<dyn Error>> {
    let config = ServeConfig {
        listen,
        ..ServeConfig::default()
    };
    let server = quinn_peer::serve(&config).await?;
    std::fs::write(folder.join(KEY), hex(&server.fingerprint()))?;
    say(&format!("listening on {}", server.addr()));
    std::future::pending().await
}

async fn put(
    bytes: u64,
    trust: Trust,
    (from, server): (IpAddr, SocketAddr),
) -> Result<(), Box<dyn Error>> {
    let crypto = tls::client_config(&trust, &ServeConfig::default().alpn)?;
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(crypto)?));
    let mut transport = TransportConfig::default();
    match std::env::var("INNER_CONGESTION").as_deref() {
        Ok("bbr") => {
            transport.congestion_controller_factory(Arc::new(BbrConfig::default()));
        }
        Ok("cubic") | Err(_) => {
            transport.congestion_controller_factory(Arc::new(CubicConfig::default()));
        }
        Ok(other) => return Err(format!("no congestion control is called {other}").into()),
    }
    client.transport_config(Arc::new(transport));
    let endpoint = Endpoint::client(SocketAddr::new(from, 0))?;
    let began = Instant::now();
    let connection = endpoint.connect_with(client, server, SERVER_NAME)?.await?;
    let (send, receive) = connection.open_bi().await?;
    let answer = service::ask(Request::Put(bytes), receive, send).await?;
    let seconds = began.elapsed().as_secs_f64();
    say(&format!("moved {} bytes in {seconds} s", answer.len));
    let stats = connection.stats().path;
    say(&format!(
        "{} packets lost of {}, {} congestion events",
        stats.lost_packets, stats.sent_packets, stats.congestion_events
    ));
    connection.close(0_u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(())
}

#[allow(
    clippy::print_stdout,
    reason = "what it prints is what the laboratory reads"
)]
fn say(line: &str) {
    println!("{line}");
}
