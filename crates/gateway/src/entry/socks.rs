//! SOCKS5 (RFC 1928), the server's side, without authentication: who may reach the listener may use
//! it.

use super::{Asked, Wanted};
use crate::refusal::Refusal;
use anabranch_masque::{Host, Target};
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The first byte of a client that speaks it.
pub(super) const VERSION: u8 = 5;

const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const ASSOCIATE: u8 = 3;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
const SUCCEEDED: u8 = 0;
const NO_SUCH_ADDRESS_TYPE: u8 = 8;

/// Reads greeting and request of a client whose first byte was not taken yet. A client that cannot
/// be served was told so; then there is nothing.
pub(super) async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
) -> io::Result<Option<Asked>> {
    if socket.read_u8().await? != VERSION {
        return Ok(None);
    }
    let mut methods = [0; 255];
    let count = usize::from(socket.read_u8().await?);
    socket.read_exact(&mut methods[..count]).await?;
    if !methods[..count].contains(&NO_AUTHENTICATION) {
        socket.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Ok(None);
    }
    socket.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let mut head = [0; 4];
    socket.read_exact(&mut head).await?;
    let [version, command, _, kind] = head;
    if version != VERSION {
        return Ok(None);
    }
    let Some(host) = host(socket, kind).await? else {
        reply(socket, NO_SUCH_ADDRESS_TYPE).await?;
        return Ok(None);
    };
    let port = socket.read_u16().await?;
    if command == ASSOCIATE {
        // The address is often wrong behind a translator; that of this connection counts.
        return Ok(Some(Asked::Association { port }));
    }
    if command != CONNECT {
        reply(socket, Refusal::Unsupported.socks()).await?;
        return Ok(None);
    }
    let target = match host.parse::<Host>() {
        Ok(host) if port != 0 => Target { host, port },
        _ => {
            reply(socket, Refusal::BadTarget.socks()).await?;
            return Ok(None);
        }
    };
    let early = Bytes::new();
    Ok(Some(Asked::Connection(Wanted { target, early })))
}

/// The text of an address or name; nothing for a type that does not exist.
async fn host<S: AsyncRead + Unpin>(socket: &mut S, kind: u8) -> io::Result<Option<String>> {
    Ok(Some(match kind {
        IPV4 => {
            let mut bytes = [0; 4];
            socket.read_exact(&mut bytes).await?;
            std::net::Ipv4Addr::from(bytes).to_string()
        }
        IPV6 => {
            let mut bytes = [0; 16];
            socket.read_exact(&mut bytes).await?;
            std::net::Ipv6Addr::from(bytes).to_string()
        }
        NAME => {
            let mut bytes = [0; 255];
            let length = usize::from(socket.read_u8().await?);
            socket.read_exact(&mut bytes[..length]).await?;
            // What is no name of a host is refused as a target.
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        }
        _ => return Ok(None),
    }))
}

/// Tells the client how its request ended.
pub(super) async fn answer<S: AsyncWrite + Unpin>(
    socket: &mut S,
    result: Result<(), Refusal>,
) -> io::Result<()> {
    let code = result.map_or_else(Refusal::socks, |()| SUCCEEDED);
    reply(socket, code).await
}

async fn reply<S: AsyncWrite + Unpin>(socket: &mut S, code: u8) -> io::Result<()> {
    // The address we connect from is one of the far end, which clients have no use for.
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    reply_at(socket, code, nowhere).await
}

async fn reply_at<S: AsyncWrite + Unpin>(
    socket: &mut S,
    code: u8,
    at: SocketAddr,
) -> io::Result<()> {
    let mut bytes = vec![VERSION, code, 0];
    put_target(&mut bytes, &at.into());
    socket.write_all(&bytes).await
}

/// Tells a client where its datagrams are taken.
pub(super) async fn associated<S: AsyncWrite + Unpin>(
    socket: &mut S,
    at: SocketAddr,
) -> io::Result<()> {
    reply_at(socket, SUCCEEDED, at).await
}

/// Appends the type of an address, the address or name, and a port.
fn put_target(out: &mut Vec<u8>, target: &Target) {
    match &target.host {
        Host::V4(ip) => {
            out.push(IPV4);
            out.extend_from_slice(&ip.octets());
        }
        Host::V6(ip) => {
            out.push(IPV6);
            out.extend_from_slice(&ip.octets());
        }
        Host::Name(name) => {
            // A name of the domain name system has 253 bytes at most.
            out.push(NAME);
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
        }
    }
    out.extend_from_slice(&target.port.to_be_bytes());
}

/// What precedes a datagram from this target to a client.
pub(crate) fn datagram_header(from: &Target) -> Vec<u8> {
    let mut header = vec![0, 0, 0];
    put_target(&mut header, from);
    header
}

/// Takes a client's datagram apart: whom it is for, and its payload. `None` for fragments, which
/// nobody has to take, and for what is no such datagram.
pub(crate) fn datagram(datagram: &Bytes) -> Option<(Target, Bytes)> {
    let (&[_, _, fragment, kind], rest) = datagram.split_first_chunk()?;
    if fragment != 0 {
        return None;
    }
    let (host, rest) = match kind {
        IPV4 => {
            let (ip, rest) = rest.split_first_chunk::<4>()?;
            (Host::V4((*ip).into()), rest)
        }
        IPV6 => {
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            (Host::V6((*ip).into()), rest)
        }
        NAME => {
            let (length, rest) = rest.split_first()?;
            let (name, rest) = rest.split_at_checked(usize::from(*length))?;
            (std::str::from_utf8(name).ok()?.parse().ok()?, rest)
        }
        _ => return None,
    };
    let (port, payload) = rest.split_first_chunk()?;
    let port = u16::from_be_bytes(*port);
    let target = (port != 0).then_some(Target { host, port })?;
    Some((target, datagram.slice_ref(payload)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    /// What is wanted, and what the client was told.
    async fn ask(bytes: &[u8]) -> (Option<String>, Vec<u8>) {
        let (mut client, mut server) = duplex(1024);
        client.write_all(bytes).await.unwrap();
        let wanted = read(&mut server).await.unwrap();
        drop(server);
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.unwrap();
        let asked = wanted.map(|asked| match asked {
            Asked::Connection(wanted) => wanted.target.to_string(),
            Asked::Association { port } => format!("association, {port}"),
        });
        (asked, told)
    }

    #[tokio::test]
    async fn addresses_and_names_are_asked_for() {
        let asked = |rest: &[u8]| [&[5, 2, 2, 0, 5, 1, 0], rest].concat();
        for (rest, target) in [
            (&[1, 192, 0, 2, 1, 0, 80][..], "192.0.2.1:80"),
            (&[3, 4, b'h', b'.', b'a', b'b', 1, 187], "h.ab:443"),
            (
                &[4, 32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 53],
                "[2001:db8::1]:53",
            ),
        ] {
            let wanted = (Some(target.to_owned()), vec![5, 0]);
            assert_eq!(ask(&asked(rest)).await, wanted);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_done_is_told_with_its_code() {
        let told = async |bytes: &[u8]| {
            let (wanted, told) = ask(bytes).await;
            assert_eq!(wanted, None);
            told
        };
        assert_eq!(told(&[5, 1, 2]).await, [5, 0xff]);
        assert!(told(&[4, 1, 0, 80, 1, 2, 3, 4, 0]).await.is_empty());
        let code = async |request: &[u8]| told(&[&[5, 1, 0], request].concat()).await[3];
        assert_eq!(code(&[5, 2, 0, 1, 1, 2, 3, 4, 0, 80]).await, 7, "BIND");
        assert_eq!(code(&[5, 1, 0, 9, 1, 2, 3, 4, 0, 80]).await, 8);
        assert_eq!(code(&[5, 1, 0, 1, 1, 2, 3, 4, 0, 0]).await, 1, "port 0");
        assert_eq!(code(&[5, 1, 0, 3, 2, b' ', b'x', 0, 80]).await, 1);
    }

    #[tokio::test]
    async fn an_association_is_asked_for_with_or_without_the_client_s_port() {
        for (port, text) in [([0, 0], "association, 0"), ([4, 1], "association, 1025")] {
            let asked = [&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0][..], &port].concat();
            assert_eq!(ask(&asked).await, (Some(text.to_owned()), vec![5, 0]));
        }
        let (mut client, mut server) = duplex(64);
        let at = "127.0.0.1:4242".parse().unwrap();
        associated(&mut server, at).await.unwrap();
        drop(server);
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.unwrap();
        assert_eq!(told, [5, 0, 0, 1, 127, 0, 0, 1, 0x10, 0x92]);
    }

    #[test]
    fn datagrams_name_their_target_and_come_back_with_it() {
        for text in ["192.0.2.1:53", "[2001:db8::1]:443", "dns.example:53"] {
            let target: Target = text.parse().unwrap();
            let mut bytes = datagram_header(&target);
            bytes.extend_from_slice(b"payload");
            let (read, payload) = datagram(&bytes.into()).unwrap();
            assert_eq!((read, &payload[..]), (target, &b"payload"[..]));
        }
    }

    #[test]
    fn fragments_and_what_is_no_datagram_of_socks_are_nothing() {
        let refused = |bytes: &[u8]| {
            let read = datagram(&Bytes::copy_from_slice(bytes));
            assert_eq!(read, None, "{bytes:?}");
        };
        refused(&[]);
        refused(&[0, 0, 1, 1, 192, 0, 2, 1, 0, 53, 7]);
        refused(&[0, 0, 0, 1, 192, 0, 2, 1, 0]);
        refused(&[0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 7]);
        refused(&[0, 0, 0, 2, 192, 0, 2, 1, 0, 53, 7]);
        refused(&[0, 0, 0, 3, 9, b'a', 0, 53]);
        refused(&[0, 0, 0, 3, 1, b' ', 0, 53]);
        refused(&[
            0, 0, 0, 4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        ]);
    }

    #[tokio::test]
    async fn a_client_that_breaks_off_is_an_error() {
        let (mut client, mut server) = duplex(64);
        client.write_all(&[5, 1, 0, 5, 1]).await.unwrap();
        drop(client);
        assert!(read(&mut server).await.is_err());
    }
}
