//! Whom a server takes: how many connections an address has, and which tokens are used up.

use super::Endpoint;
use super::Handle;
use crate::handshake::token::{NEW_TOKEN_LIFETIME, TokenId};
use crate::known_paths::{LastResumed, Turn};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// `NEW_TOKEN` tokens remembered as used; beyond it the oldest ones are given up, used or not.
const MAX_SPENT: usize = 16_384;

/// The `NEW_TOKEN` tokens that were used. Each is good once (RFC 9000, section 8.1.4): whoever has
/// seen one could otherwise spend a day claiming an address that it names.
#[derive(Debug, Default)]
pub(super) struct SpentTokens {
    spent: BTreeSet<TokenId>,
    /// Tokens issued up to then count as used: which of them were is forgotten.
    forgotten: Option<Instant>,
}

impl SpentTokens {
    pub(super) fn is_spent(&self, token: TokenId) -> bool {
        let is_forgotten = self.forgotten.is_some_and(|until| token.issued <= until);
        is_forgotten || self.spent.contains(&token)
    }

    pub(super) fn spend(&mut self, now: Instant, token: TokenId) {
        self.spent.insert(token);
        // In the order in which they were issued: those that have expired by now come first.
        while let Some(first) = self.spent.first() {
            let is_over = now.since(first.issued) > NEW_TOKEN_LIFETIME;
            if !is_over && self.spent.len() <= MAX_SPENT {
                break;
            }
            if !is_over {
                self.forgotten = self.forgotten.max(Some(first.issued));
            }
            self.spent.pop_first();
        }
    }
}

/// What a network gives to one customer at least: an IPv4 address or a /64 of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin(pub(super) [u8; 16]);

impl From<SocketAddr> for Origin {
    fn from(address: SocketAddr) -> Self {
        address.ip().into()
    }
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => {
                let mut network = [0; 16];
                network[..8].copy_from_slice(&ip.octets()[..8]);
                network
            }
        })
    }
}

/// A server's connection, counted for where it came from.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    origin: Origin,
    /// Whether the client showed that it is at that address.
    proven: bool,
    /// Where else it was, and where its further paths may resume.
    guest_at: Vec<Origin>,
}

/// Connections of one origin.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    all: usize,
    /// Those whose address is proven: nobody else can have made them.
    proven: usize,
    /// Connections from elsewhere whose further paths may resume here.
    guests: usize,
    /// When one of all these last began with what an earlier one saw of the path; none if none
    /// ever could.
    resumed: Option<LastResumed>,
}

/// What a client is told that asks for one more connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Welcome,
    /// The address has enough connections: the client has to prove that it is its own.
    ProveAddress,
    Refused,
}

/// Connections by origin.
#[derive(Debug, Default)]
pub(super) struct Crowds(BTreeMap<Origin, Crowd>);

impl Crowds {
    /// Whether one more may come from `origin`. Somebody who forges an address makes its owner
    /// prove it, and keeps it out of nothing.
    pub(super) fn admit(&self, origin: Origin, proven: bool, most: usize) -> Admission {
        let crowd = self.0.get(&origin);
        let (all, known) = crowd.map_or((0, 0), |crowd| (crowd.all, crowd.proven));
        match proven {
            true if known >= most => Admission::Refused,
            false if all >= most => Admission::ProveAddress,
            _ => Admission::Welcome,
        }
    }

    pub(super) fn enter(&mut self, origin: Origin, proven: bool) -> Counted {
        let crowd = self.0.entry(origin).or_default();
        crowd.all += 1;
        crowd.proven += usize::from(proven);
        Counted {
            origin,
            proven,
            guest_at: Vec::new(),
        }
    }

    pub(super) fn prove(&mut self, counted: &mut Counted) {
        if !std::mem::replace(&mut counted.proven, true)
            && let Some(crowd) = self.0.get_mut(&counted.origin)
        {
            crowd.proven += 1;
        }
    }

    /// The turn of a connection that has a memory of a path to `at` which was issued then. It is
    /// for one path at a time: if another one begins so first, all that was issued until then is
    /// refused as long as somebody lives who may, or all that an address ever collected would be
    /// sent there at once (RFC 9959, section 3.2). As many as may be from there at all, `most`, may
    /// have paths to there that resume.
    pub(super) fn turn(
        &mut self,
        counted: &mut Counted,
        at: Origin,
        issued: Instant,
        most: usize,
    ) -> Option<Turn> {
        let is_new = at != counted.origin && !counted.guest_at.contains(&at);
        let crowd = self.0.get(&at);
        let others = crowd.map_or(0, |crowd| crowd.all + crowd.guests);
        if is_new && others >= most {
            return None;
        }
        let resumed = crowd.and_then(|crowd| crowd.resumed.clone());
        let resumed = resumed.unwrap_or_default();
        let turn = resumed.turn(issued)?;
        let crowd = self.0.entry(at).or_default();
        crowd.resumed = Some(resumed);
        if is_new {
            counted.guest_at.push(at);
            crowd.guests += 1;
        }
        Some(turn)
    }

    pub(super) fn leave(&mut self, counted: &Counted) {
        self.change(counted.origin, |crowd| {
            crowd.all -= 1;
            crowd.proven -= usize::from(counted.proven);
        });
        for at in &counted.guest_at {
            self.change(*at, |crowd| crowd.guests -= 1);
        }
    }

    /// Changes a crowd, and forgets it if nobody is left of it.
    fn change(&mut self, at: Origin, change: impl FnOnce(&mut Crowd)) {
        if let Some(crowd) = self.0.get_mut(&at) {
            change(crowd);
            if crowd.all + crowd.guests == 0 {
                self.0.remove(&at);
            }
        }
    }
}

impl Endpoint {
    /// A server's connection is no longer one of those whose handshake is under way.
    pub(super) fn handshake_ends(&mut self, handle: Handle) {
        self.handshaking.remove(&handle);
        if let Some(member) = self.connections.get_mut(&handle)
            && member.connection.is_established()
            && let Some(counted) = &mut member.counted
        {
            self.crowds.prove(counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn token(issued: u64, nonce: u8) -> TokenId {
        TokenId {
            issued: Instant::from_nanos(issued),
            nonce: [nonce; 12],
        }
    }

    const ONE: Origin = Origin([1; 16]);
    const TWO: Origin = Origin([2; 16]);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// Whether a path begins at once with what was issued then.
    fn resumes(
        crowds: &mut Crowds,
        now: Instant,
        counted: &mut Counted,
        to: Origin,
        issued: Instant,
        most: usize,
    ) -> bool {
        let turn = crowds.turn(counted, to, issued, most);
        turn.is_some_and(|turn| turn.take(now))
    }

    #[test]
    fn of_what_an_address_collected_one_memory_at_a_time_is_used() {
        let mut crowds = Crowds::default();
        let mut first = crowds.enter(ONE, true);
        assert!(resumes(&mut crowds, at(10), &mut first, ONE, at(1), 9));
        let mut second = crowds.enter(ONE, true);
        assert!(
            !resumes(&mut crowds, at(11), &mut second, ONE, at(2), 9),
            "it was issued before the first began"
        );
        assert!(
            resumes(&mut crowds, at(20), &mut second, ONE, at(15), 9),
            "this one tells how the first went"
        );
        let mut elsewhere = crowds.enter(TWO, true);
        assert!(resumes(&mut crowds, at(21), &mut elsewhere, TWO, at(2), 9));
        for counted in [first, second] {
            crowds.leave(&counted);
        }
        let mut third = crowds.enter(ONE, true);
        assert!(
            resumes(&mut crowds, at(22), &mut third, ONE, at(2), 9),
            "nobody of it is left"
        );
    }

    /// Addresses of handshakes come cheap to who has a network of its own: what counts is where the
    /// paths go.
    #[test]
    fn nor_are_more_used_by_further_paths_of_connections_from_elsewhere() {
        let mut crowds = Crowds::default();
        let mut first = crowds.enter(ONE, true);
        let victim = Origin([9; 16]);
        assert!(resumes(&mut crowds, at(10), &mut first, victim, at(1), 9));
        assert!(
            !resumes(&mut crowds, at(10), &mut first, victim, at(1), 9),
            "once for each customer's network"
        );
        let mut second = crowds.enter(TWO, true);
        assert!(!resumes(&mut crowds, at(11), &mut second, victim, at(2), 9));
        let mut local = crowds.enter(victim, true);
        assert!(!resumes(&mut crowds, at(12), &mut local, victim, at(3), 9));
        crowds.leave(&local);
        assert!(
            !resumes(&mut crowds, at(13), &mut second, victim, at(2), 9),
            "the first one lives, and may have its path"
        );
        crowds.leave(&first);
        assert!(resumes(&mut crowds, at(14), &mut second, victim, at(2), 9));
        crowds.leave(&second);
        assert!(crowds.0.is_empty());
    }

    /// A client that was behind a shared address once keeps nobody there from resuming.
    #[test]
    fn who_is_elsewhere_takes_a_turn_when_its_path_begins() {
        let mut crowds = Crowds::default();
        let mut guest = crowds.enter(TWO, true);
        let turn = crowds.turn(&mut guest, ONE, at(5), 9).expect("room");
        let mut local = crowds.enter(ONE, true);
        assert!(resumes(&mut crowds, at(10), &mut local, ONE, at(2), 9));
        assert!(!turn.take(at(11)), "somebody else was first");
        let turn = crowds.turn(&mut guest, ONE, at(12), 9).expect("it is one");
        assert!(turn.take(at(13)));
        assert!(!resumes(&mut crowds, at(14), &mut local, ONE, at(12), 9));
        crowds.leave(&local);
        crowds.leave(&guest);
        assert!(crowds.0.is_empty());
    }

    #[test]
    fn those_who_may_resume_from_elsewhere_are_as_many_as_may_be_there() {
        let mut crowds = Crowds::default();
        let victim = Origin([9; 16]);
        let local = crowds.enter(victim, true);
        let guests = (0..3).map(|n| {
            let mut guest = crowds.enter(Origin([n; 16]), true);
            let now = at(10 + 2 * u64::from(n));
            let issued = at(9 + 2 * u64::from(n));
            resumes(&mut crowds, now, &mut guest, victim, issued, 3)
        });
        assert_eq!(guests.collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(crowds.admit(victim, true, 2), Admission::Welcome);
        crowds.leave(&local);
    }

    #[test]
    fn a_token_is_good_once() {
        let (mut spent, now) = (SpentTokens::default(), Instant::from_nanos(9));
        assert!(!spent.is_spent(token(5, 1)));
        spent.spend(now, token(5, 1));
        assert!(spent.is_spent(token(5, 1)));
        assert!(!spent.is_spent(token(5, 2)));
        assert!(!spent.is_spent(token(6, 1)));
    }

    #[test]
    fn tokens_beyond_what_is_remembered_are_given_up_oldest_first() {
        let mut spent = SpentTokens::default();
        let count = MAX_SPENT as u64 + 10;
        let now = Instant::from_nanos(count);
        (0..count).for_each(|issued| spent.spend(now, token(issued, 1)));
        assert_eq!(spent.spent.len(), MAX_SPENT);
        // Used or not.
        assert!(spent.is_spent(token(9, 1)) && spent.is_spent(token(9, 2)));
        assert!(spent.is_spent(token(10, 1)) && !spent.is_spent(token(10, 2)));
    }

    #[test]
    fn tokens_that_expired_are_forgotten_for_their_time_says_enough() {
        let mut spent = SpentTokens::default();
        spent.spend(Instant::from_nanos(5), token(5, 1));
        let later = Instant::from_nanos(6) + NEW_TOKEN_LIFETIME + Duration::from_secs(1);
        spent.spend(later, token(later.as_nanos(), 1));
        assert_eq!(spent.spent.len(), 1);
        assert_eq!(spent.forgotten, None);
    }

    #[test]
    fn networks_count_as_one_origin_as_far_as_one_customer_gets_them() {
        let origin = |text: &str| Origin::from(text.parse::<SocketAddr>().expect("an address"));
        assert_eq!(origin("192.0.2.1:1"), origin("192.0.2.1:2"));
        assert_ne!(origin("192.0.2.1:1"), origin("192.0.2.2:1"));
        assert_eq!(origin("192.0.2.1:1"), origin("[::ffff:192.0.2.1]:1"));
        assert_eq!(origin("[2001:db8::1]:1"), origin("[2001:db8::f:0:0:1]:1"));
        assert_ne!(origin("[2001:db8::1]:1"), origin("[2001:db8:0:1::1]:1"));
    }

    #[test]
    fn forged_sources_make_the_owner_prove_its_address_and_no_more() {
        let mut crowds = Crowds::default();
        let origin = Origin([1; 16]);
        let mut forged: Vec<_> = (0..3).map(|_| crowds.enter(origin, false)).collect();
        assert_eq!(crowds.admit(origin, false, 3), Admission::ProveAddress);
        assert_eq!(crowds.admit(origin, true, 3), Admission::Welcome);
        assert_eq!(crowds.admit(Origin([2; 16]), false, 3), Admission::Welcome);
        for counted in &mut forged {
            crowds.prove(counted);
        }
        assert_eq!(crowds.admit(origin, true, 3), Admission::Refused);
        crowds.leave(&forged[0]);
        assert_eq!(crowds.admit(origin, true, 3), Admission::Welcome);
        crowds.leave(&forged[1]);
        crowds.leave(&forged[2]);
        assert!(crowds.0.is_empty());
    }
}
