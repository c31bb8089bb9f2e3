//! Who lets whom in: certificates and keys on both sides, in processes of their own over loopback.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/ending.rs"]
mod ending;
#[path = "common/listening.rs"]
mod listening;

use quinn::crypto::rustls::QuicClientConfig;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

/// Minutes for what takes a moment, since the machine may be busy with something else.
const END: Duration = Duration::from_secs(180);

/// A directory with a certificate authority, certificates from it for the server and for a client,
/// and files to serve.
struct Place {
    directory: TempDir,
    server_certificate: CertificateDer<'static>,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("root")).unwrap();
        fs::write(path("root/file"), content()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        fs::write(path("ca.pem"), root.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let sign = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params =
                CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            fs::write(path(&format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(path(&format!("{name}.key")), key.serialize_pem()).unwrap();
            certificate.der().clone()
        };
        let server_certificate = sign("server");
        sign("client");
        Self {
            directory,
            server_certificate,
        }
    }

    /// Starts a server that shows a certificate.
    fn serve(&self, options: &[&str]) -> Server {
        let usual = ["serve", "--listen", "127.0.0.1:0", "--root", "root"];
        let certificate = ["--cert", "server.pem", "--key", "server.key"];
        let mut command = Command::new(PROGRAM);
        let command = command.current_dir(self.directory.path()).args(usual);
        let (process, url) = listening::start(command.args(certificate).args(options));
        let address = url.rsplit_once('@').unwrap().1.parse().unwrap();
        Server {
            process,
            url,
            address,
        }
    }

    fn get(&self, url: &str, options: &[&str]) -> Output {
        let _ = fs::remove_file(self.directory.path().join("got"));
        let mut get = Command::new(PROGRAM);
        get.current_dir(self.directory.path())
            .args(["get", &format!("{url}/file"), "-o", "got"])
            .args(options)
            .env("XDG_STATE_HOME", self.directory.path().join("state"));
        ending::output(&mut get)
    }

    #[track_caller]
    fn assert_got(&self, output: &Output) {
        assert!(output.status.success(), "{}", stderr(output));
        assert_eq!(read(&self.directory.path().join("got")), content());
    }

    /// The key that a client shows with `--identity ID`, for `--client-pin`.
    fn fingerprint(&self, identity: &str) -> String {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--identity", identity];
        let mut command = Command::new(PROGRAM);
        let command = command.current_dir(self.directory.path()).args(serve);
        let (mut process, url) = listening::start(command);
        process.kill().unwrap();
        process.wait().unwrap();
        let pin = url.strip_prefix("anabranch://").unwrap();
        pin.split_once('@').unwrap().0.to_owned()
    }
}

struct Server {
    process: Child,
    url: String,
    address: SocketAddr,
}

impl Server {
    /// The URL without the key: the server has to prove its identity by its certificate.
    fn url_without_pin(&self) -> String {
        format!("anabranch://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn content() -> Vec<u8> {
    (0..=u8::MAX).cycle().take(600_000).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_refused(output: &Output, words: &[&str]) {
    let stderr = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "`{word}` is missing: {stderr}");
    }
}

#[test]
fn a_server_is_believed_by_its_certificate_or_by_its_pinned_key() {
    let place = Place::new();
    let server = place.serve(&[]);
    place.assert_got(&place.get(&server.url, &[]));
    place.assert_got(&place.get(&server.url_without_pin(), &["--ca", "ca.pem"]));
    // An authority unrelated to the server.
    let strange = Place::new();
    let ca = strange.directory.path().join("ca.pem");
    let output = place.get(&server.url_without_pin(), &["--ca", ca.to_str().unwrap()]);
    assert_refused(&output, &["pins no key", "--ca FILE"]);
}

#[test]
fn a_server_with_client_ca_lets_in_clients_with_a_certificate_of_it_and_tells_others_what_to_do() {
    let place = Place::new();
    let server = place.serve(&["--client-ca", "ca.pem"]);
    let known = ["--cert", "client.pem", "--key", "client.key"];
    place.assert_got(&place.get(&server.url, &known));
    let nameless = place.get(&server.url, &[]);
    assert_refused(
        &nameless,
        &["hint:", "--client-ca", "--cert FILE --key FILE"],
    );
    let raw = place.get(&server.url, &["--identity", "somebody"]);
    assert_refused(&raw, &["hint:", "--client-ca", "--cert FILE --key FILE"]);
    let strange = Place::new();
    let path = |name: &str| strange.directory.path().join(name);
    let (cert, key) = (path("client.pem"), path("client.key"));
    let strange = [
        "--cert",
        cert.to_str().unwrap(),
        "--key",
        key.to_str().unwrap(),
    ];
    let strange = place.get(&server.url, &strange);
    assert_refused(&strange, &["hint:", "--client-ca"]);
}

#[test]
fn a_server_with_client_pin_lets_in_clients_with_that_key_and_tells_others_what_to_do() {
    let place = Place::new();
    let server = place.serve(&["--client-pin", &place.fingerprint("somebody")]);
    place.assert_got(&place.get(&server.url, &["--identity", "somebody"]));
    let nameless = place.get(&server.url, &[]);
    assert_refused(&nameless, &["hint:", "--identity DIR"]);
    // The key that the server has to be given to let this client in too.
    let key = place.fingerprint("somebody-else");
    let other = place.get(&server.url, &["--identity", "somebody-else"]);
    assert_refused(&other, &["hint:", "--client-pin", &key]);
}

#[test]
fn half_of_an_identity_is_a_mistake_in_usage() {
    let place = Place::new();
    let url = "anabranch://localhost:1";
    for options in [
        &["--cert", "client.pem"][..],
        &["--key", "client.key"],
        &[
            "--cert",
            "client.pem",
            "--key",
            "client.key",
            "--identity",
            "i",
        ],
        &["--cert", "client.pem", "--key", "missing.key"],
        &["--cert", "ca.pem", "--key", "client.pem"],
    ] {
        let output = place.get(url, options);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
}

/// Connects with quinn, which knows nothing of multipath, and `hq-interop`.
async fn quinn_client(place: &Place, server: &Server) -> quinn::Connection {
    let mut roots = rustls::RootCertStore::empty();
    let ca = read(&place.directory.path().join("ca.pem"));
    let pem = <CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(&ca);
    roots.add(pem.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"hq-interop".to_vec()];
    let crypto = QuicClientConfig::try_from(tls).unwrap();
    let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connecting = endpoint.connect_with(config, server.address, "localhost");
    connecting.unwrap().await.unwrap()
}

/// Sends an HTTP/0.9 request, which is one line; the answer is everything up to the end of the
/// stream.
async fn ask(connection: &quinn::Connection, line: &str) -> Result<Vec<u8>, quinn::ReadToEndError> {
    let (mut send, mut recv) = connection.open_bi().await.unwrap();
    send.write_all(line.as_bytes()).await.unwrap();
    send.finish().unwrap();
    recv.read_to_end(10_000_000).await
}

#[tokio::test]
async fn another_stack_fetches_by_http_0_9() {
    let place = Place::new();
    let server = place.serve(&[]);
    let fetching = async {
        let connection = quinn_client(&place, &server).await;
        let whole = ask(&connection, "GET /file\r\n").await.unwrap();
        assert!(whole == content(), "{} bytes", whole.len());
        // Several at a time, more than the server handles at a time.
        let many = (0..20).map(|_| ask(&connection, "GET /file\r\n"));
        for answer in futures_util::future::join_all(many).await {
            assert!(answer.unwrap() == content());
        }
        for wrong in [
            "GET /missing\r\n",
            "GET /../server.key\r\n",
            "PUT /file\r\n",
        ] {
            let refused = ask(&connection, wrong).await;
            let reset = quinn::ReadError::Reset(1_u32.into());
            assert_eq!(refused, Err(quinn::ReadToEndError::Read(reset)), "{wrong}");
        }
        // None of these has harmed the connection.
        assert!(ask(&connection, "GET /file\r\n").await.is_ok());
        let der = connection.peer_identity().unwrap();
        let chain = der.downcast::<Vec<CertificateDer<'static>>>().unwrap();
        assert_eq!(chain[0], place.server_certificate);
    };
    tokio::time::timeout(END, fetching).await.expect("in time");
}
