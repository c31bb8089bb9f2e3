//! s2n-quic: single path, a stack of its own down to TLS, which is s2n-tls.

use std::net::SocketAddr;

use s2n_quic::client::Connect;
use s2n_quic::provider::tls::default as s2n_tls;

use crate::tls::Certificate;
use crate::{Error, FetchConfig, Fetched, SERVER_NAME, ServeConfig, Server, Trust, service};

const PEER: &str = "s2n-quic";

/// Starts a server.
///
/// # Errors
/// [`Error::Setup`] if the socket or the configuration is refused; [`Error::Unsupported`] for
/// multipath and Retry.
#[allow(
    clippy::unused_async,
    reason = "the endpoint needs a runtime around it; all doors agree"
)]
pub async fn serve(config: &ServeConfig) -> Result<Server, Error> {
    let setup = |reason: String| Error::Setup { peer: PEER, reason };
    if config.max_paths > 0 {
        return Err(Error::Unsupported {
            peer: PEER,
            what: "multipath",
        });
    }
    if config.retry {
        return Err(Error::Unsupported {
            peer: PEER,
            what: "Retry on demand",
        });
    }
    let certificate = Certificate::generate()?;
    let tls = s2n_tls::Server::builder()
        .with_application_protocols(&config.alpn)
        .and_then(|tls| tls.with_certificate(&certificate.pem, &certificate.key_pem))
        .and_then(s2n_tls::server::Builder::build)
        .map_err(|e| setup(e.to_string()))?;
    let server = s2n_quic::Server::builder()
        .with_tls(tls)
        .map_err(|e| setup(e.to_string()))?;
    let server = server
        .with_io(config.listen)
        .map_err(|e| setup(e.to_string()))?;
    let mut server = server.start().map_err(|e| setup(e.to_string()))?;
    let addr = server.local_addr().map_err(|e| setup(e.to_string()))?;
    let task = tokio::spawn(async move {
        while let Some(mut connection) = server.accept().await {
            tokio::spawn(async move {
                while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
                    let (receive, send) = stream.split();
                    // A client that goes away early is no failure of the server.
                    tokio::spawn(async move { service::answer(receive, send).await });
                }
            });
        }
    });
    Ok(Server {
        addr,
        certificate,
        task,
    })
}

/// Connects, makes the request and says what came back.
///
/// # Errors
/// Which step failed and what s2n-quic said; [`Error::Unsupported`] for further paths, trust by
/// fingerprint and key updates.
pub async fn fetch(config: &FetchConfig) -> Result<Fetched, Error> {
    let setup = |reason: String| Error::Setup { peer: PEER, reason };
    let connect = |reason: String| Error::Connect { peer: PEER, reason };
    let transfer = |reason: String| Error::Transfer { peer: PEER, reason };
    let unsupported = |what| Err(Error::Unsupported { peer: PEER, what });
    if !config.further_paths.is_empty() {
        return unsupported("multipath");
    }
    if config.key_update {
        return unsupported("key update on demand");
    }
    let Trust::Certificate(der) = &config.trust else {
        return unsupported("trust by fingerprint");
    };
    let tls = s2n_tls::Client::builder()
        .with_empty_trust_store()
        .and_then(|tls| tls.with_certificate(pem(der)))
        .and_then(|tls| tls.with_application_protocols(&config.alpn))
        .and_then(s2n_tls::client::Builder::build)
        .map_err(|e| setup(e.to_string()))?;
    let client = s2n_quic::Client::builder()
        .with_tls(tls)
        .map_err(|e| setup(e.to_string()))?;
    let local = SocketAddr::new(config.local, 0);
    let client = client.with_io(local).map_err(|e| setup(e.to_string()))?;
    let mut client = client.start().map_err(|e| setup(e.to_string()))?;
    let target = Connect::new(config.server).with_server_name(SERVER_NAME);
    let mut connection = client
        .connect(target)
        .await
        .map_err(|e| connect(e.to_string()))?;
    let stream = connection.open_bidirectional_stream().await;
    let (receive, send) = stream.map_err(|e| transfer(e.to_string()))?.split();
    let answer = service::ask(config.request, receive, send).await;
    let answer = answer.map_err(|e| transfer(e.to_string()))?;
    drop(connection);
    client
        .wait_idle()
        .await
        .map_err(|e| transfer(e.to_string()))?;
    Ok(Fetched {
        answer,
        multipath: false,
        paths: Vec::new(),
    })
}

/// s2n-tls reads certificates as PEM only.
fn pem(der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    // 48 bytes are one line of 64 characters.
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let mut word = [0; 3];
            word[..group.len()].copy_from_slice(group);
            let word = u32::from_be_bytes([0, word[0], word[1], word[2]]);
            for at in 0..4 {
                let sextet = (word >> (18 - 6 * at)) & 63;
                let padding = at > group.len();
                text.push(if padding {
                    '='
                } else {
                    char::from(ALPHABET[sextet as usize])
                });
            }
        }
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::pem;
    use crate::tls::Certificate;

    #[test]
    fn a_certificate_turns_into_the_text_its_maker_writes() {
        let certificate = Certificate::generate().unwrap();
        assert_eq!(pem(&certificate.der), certificate.pem.replace("\r\n", "\n"));
    }
}
