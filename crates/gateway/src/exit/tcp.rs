//! TCP connections of the exit: all addresses of a target raced, of both families (RFC 8305).

use super::allow::Allow;
use super::names::Names;
use crate::refusal::Refusal;
use anabranch_masque::Target;
use anabranch_net::manager::race;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long connecting may take, all addresses together.
const CONNECT: Duration = Duration::from_secs(12);
/// How long one address may take before the next is tried as well.
const STAGGER: Duration = Duration::from_millis(250);
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Connects to the target, if it may be connected to.
pub(super) async fn connect(
    target: &Target,
    names: &Names,
    allow: &Allow,
) -> Result<TcpStream, Refusal> {
    let addresses = names.addresses(target, allow).await?;
    let raced = timeout(CONNECT, connect_first(&in_turns(addresses))).await;
    raced.unwrap_or(Err(Refusal::TimedOut))
}

/// The families in turns, beginning with that of the first address, which the resolver prefers.
fn in_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (first, second): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv4() == first_is_v4);
    let most = first.len().max(second.len());
    let mut turns = Vec::new();
    for at in 0..most {
        turns.extend(first.get(at));
        turns.extend(second.get(at));
    }
    turns.truncate(MAX_ADDRESSES);
    turns
}

/// The first connection that is made. Each address is tried a little later than the one before, or
/// as soon as that failed.
async fn connect_first(addresses: &[SocketAddr]) -> Result<TcpStream, Refusal> {
    let raced = race(addresses, |_| STAGGER, TcpStream::connect).await;
    raced.map(|(_, stream)| stream).map_err(|failures| {
        // The failure that counts is that of the address the resolver prefers.
        let first = failures.iter().min_by_key(|(position, _)| *position);
        first.map_or(Refusal::Unroutable, |(_, error)| refusal(error))
    })
}

/// Why a socket could not be connected.
pub(super) fn refusal(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            Refusal::ConnectionRefused
        }
        io::ErrorKind::TimedOut => Refusal::TimedOut,
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::AddrNotAvailable => Refusal::Unroutable,
        io::ErrorKind::PermissionDenied => Refusal::Prohibited,
        _ => Refusal::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_tried_in_turns() {
        let addresses = [
            "[2001:db8::1]:1",
            "[2001:db8::2]:1",
            "192.0.2.1:1",
            "192.0.2.2:1",
        ];
        let turns = in_turns(addresses.map(|text| text.parse().unwrap()).to_vec());
        let texts: Vec<String> = turns.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [addresses[0], addresses[2], addresses[1], addresses[3]]
        );
    }

    #[tokio::test]
    async fn a_refused_target_is_told_from_a_prohibited_and_an_unknown_one() {
        let allow = Allow::new(vec!["127.0.0.0/8".parse().unwrap()]);
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let names = Names::default();
        let refused = async |text: &str| {
            let target = text.parse().unwrap();
            connect(&target, &names, &allow)
                .await
                .map(|_| ())
                .unwrap_err()
        };
        assert_eq!(
            refused(&address.to_string()).await,
            Refusal::ConnectionRefused
        );
        assert_eq!(refused("[::1]:9").await, Refusal::Prohibited);
        let unknown = refused("no-such-host.invalid:80").await;
        let named = [Refusal::Unresolvable, Refusal::ResolverSilent];
        assert!(named.contains(&unknown), "{unknown:?}");
    }
}
