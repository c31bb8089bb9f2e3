//! This engine as one end of a connection with a foreign program: what `cargo xtask interop` puts
//! where the `anabranch` command has no words for it.
//!
//! ```text
//! our_end serve CERT KEY LISTEN[,LISTEN..] [OPTION..]
//! our_end get|put BYTES SERVER LOCAL|IFACE CERT [--path LOCAL=SERVER].. [OPTION..]
//! our_end certificate CERT KEY
//!   --at BYTES:ACTION[:N]   open:N (the N-th --path), abandon:ID, backup:ID, available:ID, keys
//!   --uplink IFACE          the path manager's care for this interface, instead of --path
//!   --retry  --scheduler SPEC
//! ```
//! One connection, requests as in `anabranch_interop::service`. Actions happen once, when so many
//! stream bytes have passed here; with `open` at 0 the request waits for the path. What happened
//! goes to standard output, one fact a line. Exit code 0 if the content was right.

mod actions;
mod options;
mod report;

use actions::Actions;
use anabranch_interop::{ALPN, Answer, SERVER_NAME, service, tls::Certificate, tls::fingerprint};
use anabranch_net::engine::{ClientConfig, RetryPolicy, ServerConfig, tls};
use anabranch_net::identity::provider;
use anabranch_net::manager::{PathsConfig, STAGGER, Target};
use anabranch_net::sockets::SocketConfig;
use anabranch_net::{Connection, Endpoint};
use options::{Ends, Options};
use report::Report;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// After this a connection that has not ended is a failure.
const PATIENCE: Duration = Duration::from_secs(60);
/// For what is over but has to be told to the other side.
const FAREWELL: Duration = Duration::from_secs(5);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options = match options::parse(&words) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("our_end: {problem}; the head of its main.rs says what it takes");
            return ExitCode::from(2);
        }
    };
    match tokio::time::timeout(PATIENCE, run(options)).await {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::from(1),
        Ok(Err(problem)) => {
            eprintln!("our_end: {problem}");
            ExitCode::from(1)
        }
        Err(_) => {
            eprintln!("our_end: not over after {PATIENCE:?}");
            ExitCode::from(1)
        }
    }
}

async fn run(options: Options) -> Outcome<bool> {
    match &options.ends {
        Ends::Server { .. } => serve(&options).await,
        Ends::Client { .. } => fetch(&options).await,
        Ends::Certificate { cert, key } => {
            let made = Certificate::generate()?;
            std::fs::write(cert, made.pem)?;
            std::fs::write(key, made.key_pem)?;
            Ok(true)
        }
    }
}

/// Answers the requests of one connection.
async fn serve(options: &Options) -> Outcome<bool> {
    let Ends::Server { cert, key, listen } = &options.ends else {
        return Err("no server".into());
    };
    let tls = tls::ServerTls::with_certificates(provider(), vec![cert.clone()], key)?;
    let mut config = ServerConfig::new(tls.alpn(&[ALPN]).build()?);
    config.transport = Arc::new(options.transport()?);
    if options.retry {
        config.retry = RetryPolicy::Always;
    }
    let endpoint = Endpoint::server(config, listen)?;
    report::say(&format!("listening {}", endpoint.local_addrs()[0]));
    let connection = endpoint.accept().await.ok_or("nobody came")?;
    let report = Report::follow(&connection);
    let actions = Actions::start(options, &endpoint, &connection);
    while let Ok((send, receive)) = connection.accept_bi().await {
        // A client that goes away early shows in what it says itself.
        let _ = service::answer(receive, send).await;
    }
    actions.stop();
    report.print(&connection);
    Ok(true)
}

/// Makes one request.
async fn fetch(options: &Options) -> Outcome<bool> {
    let Ends::Client { request, .. } = &options.ends else {
        return Err("no client".into());
    };
    let endpoint = Endpoint::client()?;
    let connection = connect(options, &endpoint).await?;
    let report = Report::follow(&connection);
    let actions = Actions::start(options, &endpoint, &connection);
    actions.paths_opened().await?;
    let (send, receive) = connection.open_bi().await?;
    let answer = service::ask(*request, receive, send).await;
    actions.stop();
    let is_intact = answer
        .as_ref()
        .is_ok_and(|a| *a == Answer::expected(*request));
    report.print(&connection);
    connection.close(0_u32, b"done");
    // The peer's word is not needed for the result.
    let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
    let answer = answer?;
    report::say(&format!(
        "content {} intact {}",
        answer.len,
        u8::from(is_intact)
    ));
    Ok(is_intact)
}

async fn connect(options: &Options, endpoint: &Endpoint) -> Outcome<Connection> {
    let Ends::Client {
        server,
        local,
        cert,
        ..
    } = &options.ends
    else {
        return Err("no client".into());
    };
    let pin = fingerprint(cert).ok_or("the certificate cannot be read")?;
    let tls = tls::ClientTls::pinned_certificate(provider(), tls::Fingerprint(pin));
    let mut config = ClientConfig::new(tls.alpn(&[ALPN]).build()?);
    config.transport = Arc::new(options.transport()?);
    if !options.uplinks.is_empty() {
        let target = Target::lookup(&server.ip().to_string(), server.port()).await?;
        let paths = PathsConfig {
            specs: options.uplinks.clone(),
            // The peers' programs serve one connection: no second one may begin beside it.
            spread: STAGGER,
            ..PathsConfig::default()
        };
        return Ok(endpoint.connect(&target, config, &paths).await?.0);
    }
    let socket = endpoint.add_socket(&SocketConfig::path(*local, None))?;
    let connecting = endpoint.connect_over(socket, *server, SERVER_NAME, config);
    Ok(connecting.await?)
}
