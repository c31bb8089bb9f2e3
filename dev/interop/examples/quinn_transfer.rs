//! quinn as a contender of the laboratory, alone or within a tunnel that it knows nothing of:
//! `lab/contenders/quinn.toml` and `quinn-by-tunnel.toml` run it.
//!
//! ```text
//! quinn_transfer serve ADDRESS:PORT FOLDER
//! quinn_transfer put BYTES ADDRESS:PORT FOLDER FROM
//! ```
//! The server leaves its certificate's fingerprint in the folder. The client says how many bytes
//! arrived and how long that took. Its congestion control is CUBIC, as quinn has it, or what
//! `INNER_CONGESTION` says: `cubic` or `bbr`.

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
        [] => Ok(()),
        ["serve", listen, folder] => serve(listen.parse()?, Path::new(folder)).await,
        ["put", bytes, server, folder, from] => {
            let ends = (from.parse()?, server.parse()?);
            put(bytes.parse()?, ends, Path::new(folder)).await
        }
        _ => Err("expected: serve ADDRESS:PORT FOLDER, or put BYTES SERVER FOLDER FROM".into()),
    }
}

async fn serve(listen: SocketAddr, folder: &Path) -> Result<(), Box<dyn Error>> {
    let config = ServeConfig {
        listen,
        ..ServeConfig::default()
    };
    let server = quinn_peer::serve(&config).await?;
    let digits = server.fingerprint().map(|byte| format!("{byte:02x}"));
    std::fs::write(folder.join(KEY), digits.concat())?;
    say(&format!("listening on {}", server.addr()));
    std::future::pending().await
}

async fn put(
    bytes: u64,
    (from, server): (IpAddr, SocketAddr),
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let trust = Trust::Fingerprint(fingerprint(&std::fs::read_to_string(folder.join(KEY))?)?);
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

fn fingerprint(digits: &str) -> Result<[u8; 32], Box<dyn Error>> {
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        let pair = digits.get(2 * at..2 * at + 2);
        *byte = u8::from_str_radix(pair.ok_or("the key is too short")?, 16)?;
    }
    Ok(bytes)
}

#[allow(
    clippy::print_stdout,
    reason = "what it prints is what the laboratory reads"
)]
fn say(line: &str) {
    println!("{line}");
}
