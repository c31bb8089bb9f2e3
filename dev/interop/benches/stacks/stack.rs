//! What a stack must offer to be measured, and the stacks.
//!
//! All speak one protocol: a client opens a bidirectional stream, writes the number of bytes it
//! wants (big-endian, 8 bytes) and finishes; the server answers with so many bytes.

mod anabranch;
mod noq;
#[cfg(feature = "quiche")]
mod quiche;
mod quinn;
mod s2n;

use ::anabranch_interop::tls::Certificate;
use ::anabranch_interop::{Trust, tls};
use ::bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

pub(crate) use anabranch::Anabranch;
#[cfg(feature = "aws-lc")]
pub(crate) use anabranch::AwsLc;
pub(crate) use noq::Noq;
#[cfg(feature = "quiche")]
pub(crate) use quiche::Quiche;
pub(crate) use quinn::Quinn;
pub(crate) use s2n::S2n;

const ALPN: &[u8] = b"stacks";
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Bytes handed to a stream at once.
const PIECE: usize = 64 << 10;

/// A server and a client of one implementation in this process.
pub(crate) trait Stack: Sized + Send + Sync + 'static {
    type Connection: Clone + Send + Sync + 'static;

    /// Starts both; connections shall have so many paths.
    fn start(paths: usize) -> Self;

    /// Connects, and waits until all paths can be used.
    fn connect(&self) -> impl Future<Output = Self::Connection> + Send;

    /// Asks for so many bytes on a stream of their own; returns how many came.
    fn ask(connection: &Self::Connection, bytes: usize) -> impl Future<Output = usize> + Send;
}

/// The answer to a request, piece by piece, without a copy.
fn answer(request: &[u8]) -> impl Iterator<Item = Bytes> + Send + use<> {
    static ZEROS: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![0; PIECE]));
    let wanted = u64::from_be_bytes(request.try_into().unwrap());
    let mut left = usize::try_from(wanted).unwrap();
    std::iter::from_fn(move || {
        let length = left.min(PIECE);
        left -= length;
        (length > 0).then(|| ZEROS.slice(..length))
    })
}

fn request(bytes: usize) -> [u8; 8] {
    (bytes as u64).to_be_bytes()
}

/// The TLS settings of the stacks that leave TLS to rustls.
fn rustls_pair() -> (rustls::ServerConfig, rustls::ClientConfig) {
    let certificate = Certificate::generate().unwrap();
    let trust = Trust::Fingerprint(certificate.fingerprint);
    let alpn = [ALPN.to_vec()];
    let server = tls::server_config(&certificate, &alpn).unwrap();
    let client = tls::client_config(&trust, &alpn).unwrap();
    (server, client)
}
