//! noq as a contender of the laboratory: `lab/contenders/noq.toml` runs it.
//!
//! ```text
//! noq_transfer serve ADDRESS:PORT FOLDER
//! noq_transfer get|put BYTES PORT FOLDER CLIENT=SERVER[,CLIENT=SERVER...]
//! ```
//! The server leaves its certificate's fingerprint in the folder. The client opens a path for each
//! pair of addresses, moves the bytes, and says how many arrived and how long that took. Without
//! arguments both ends run here, over two loopback addresses.

use anabranch_interop::noq_peer::{self, Listener};
use anabranch_interop::service::{hex, unhex};
use anabranch_interop::{FetchConfig, FurtherPath, Request, ServeConfig, Trust};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Instant;

/// Paths the server allows.
const PATHS: u32 = 8;

/// The file that holds the fingerprint, in hexadecimal digits.
const KEY: &str = "noq.key";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => both().await,
        ["serve", listen, folder] => serve(listen.parse()?, Path::new(folder)).await,
        ["get", bytes, port, folder, pairs] => {
            let request = Request::Get(bytes.parse()?);
            fetch(request, port.parse()?, Path::new(folder), pairs).await
        }
        ["put", bytes, port, folder, pairs] => {
            let request = Request::Put(bytes.parse()?);
            fetch(request, port.parse()?, Path::new(folder), pairs).await
        }
        _ => Err("expected: serve ADDRESS:PORT FOLDER, or get|put BYTES PORT FOLDER PAIRS".into()),
    }
}

/// Server and client in one process.
async fn both() -> Result<(), Box<dyn Error>> {
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let (server, trust) = (listener.addr(), Trust::Fingerprint(listener.fingerprint()));
    let serving = tokio::spawn(async move { while listener.accept().await.is_some() {} });
    let ends = [1, 2].map(|last| (IpAddr::from([127, 0, 0, last]), server));
    transfer(Request::Get(10_000_000), trust, &ends).await?;
    serving.abort();
    Ok(())
}

fn bind(listen: SocketAddr) -> Result<Listener, Box<dyn Error>> {
    Ok(Listener::bind(&ServeConfig {
        listen,
        max_paths: PATHS,
        ..ServeConfig::default()
    })?)
}

async fn serve(listen: SocketAddr, folder: &Path) -> Result<(), Box<dyn Error>> {
    let listener = bind(listen)?;
    std::fs::write(folder.join(KEY), hex(&listener.fingerprint()))?;
    say(&format!("listening on {}", listener.addr()));
    while listener.accept().await.is_some() {}
    Ok(())
}

async fn fetch(
    request: Request,
    port: u16,
    folder: &Path,
    pairs: &str,
) -> Result<(), Box<dyn Error>> {
    let mut ends = Vec::new();
    for pair in pairs.split(',') {
        let (client, server) = pair.split_once('=').ok_or("expected CLIENT=SERVER")?;
        let server = SocketAddr::new(server.parse::<IpAddr>()?, port);
        ends.push((client.parse::<IpAddr>()?, server));
    }
    let key = unhex(&std::fs::read_to_string(folder.join(KEY))?);
    let trust = Trust::Fingerprint(key.ok_or("the file holds no fingerprint")?);
    transfer(request, trust, &ends).await
}

async fn transfer(
    request: Request,
    trust: Trust,
    ends: &[(IpAddr, SocketAddr)],
) -> Result<(), Box<dyn Error>> {
    let ((local, server), further) = ends.split_first().ok_or("expected a path")?;
    let mut config = FetchConfig::new(*server, trust, request);
    config.local = *local;
    let path = |(local, remote): &(IpAddr, SocketAddr)| FurtherPath {
        local: *local,
        remote: *remote,
    };
    config.further_paths = further.iter().map(path).collect();
    let began = Instant::now();
    let fetched = noq_peer::fetch(&config).await?;
    let seconds = began.elapsed().as_secs_f64();
    say(&format!(
        "moved {} bytes in {seconds} s",
        fetched.answer.len
    ));
    Ok(())
}

#[allow(
    clippy::print_stdout,
    reason = "what it prints is what the laboratory reads"
)]
fn say(line: &str) {
    println!("{line}");
}
