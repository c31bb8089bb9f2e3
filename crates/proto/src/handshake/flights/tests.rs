//! When the handshake probes, and what it repeats.

use super::*;
use crate::config::TransportConfig;
use crate::datagram::{SocketId, Tuple};
use crate::handshake::tests::{Pair, client_config, server_config};
use crate::path::route::Route;
use crate::path::state::PathOptions;

fn path(rng: &mut Rng) -> Path {
    let tuple = Tuple {
        socket: SocketId(0),
        local: None,
        remote: "192.0.2.1:4433".parse().unwrap(),
    };
    let (config, now) = (TransportConfig::default(), Instant::ZERO);
    let mut route = Route::new(&config, rng, now, PathId::ZERO, tuple, 0);
    route.lift_amplification_limit();
    let space = PacketSpace::new(rng);
    Path::new(PathId::ZERO, space, route, PathOptions::default(), now)
}

#[test]
fn a_client_probes_ever_later_although_nothing_is_in_flight() {
    let mut rng = Rng::from_seed([1; 32]);
    let (mut flights, path) = (Flights::new(&mut rng), path(&mut rng));
    let Pair { client, server } = Pair::new(&client_config(), &server_config());
    assert_eq!(flights.deadline(&server, Some(&path)), None);
    let pto = path.route().rtt().pto_base();
    let first = Instant::ZERO + pto;
    assert_eq!(flights.deadline(&client, Some(&path)), Some(first));
    assert_eq!(flights.probe(Instant::ZERO, &client, &path), None, "early");
    let probe = flights.probe(first, &client, &path);
    assert_eq!(probe, Some((Level::Initial, Vec::new())));
    assert_eq!(flights.wanted(first, &client, &path)[..], [Level::Initial]);
    assert_eq!(flights.deadline(&client, Some(&path)), None, "it is owed");
    flights.probes_owed = [0; 2];
    let second = Some(Instant::ZERO + pto * 2);
    assert_eq!(flights.deadline(&client, Some(&path)), second);
    flights.on_acked(Level::Initial, Side::Client);
    assert_eq!(flights.deadline(&client, Some(&path)), second, "no proof");
    flights.on_acked(Level::Handshake, Side::Client);
    assert_eq!(flights.deadline(&client, Some(&path)), Some(first));
}

#[test]
fn a_space_is_closed_once_and_owes_nothing_more() {
    let mut rng = Rng::from_seed([1; 32]);
    let mut flights = Flights::new(&mut rng);
    flights.probes_owed = [2; 2];
    assert!(!flights.have_heard());
    assert!(flights.close(Level::Initial).is_some());
    assert!(flights.close(Level::Initial).is_none());
    assert!(flights.have_heard() && !flights.are_over());
    assert_eq!(flights.probes_owed, [0, 2]);
    assert!(flights.restart().is_none(), "too late for a Retry");
    assert!(flights.close(Level::Handshake).is_some() && flights.are_over());
    assert!(flights.space(Level::OneRtt).is_none());
}
