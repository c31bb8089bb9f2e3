//! Tokens: who may use them, where, and for how long.

use super::*;
use crate::rng::Rng;
use proptest::prelude::*;

const NOW: Instant = Instant::from_nanos(1 << 60);

/// A token of kind 0x6e with the keys, time, address and random numbers of these tests: its form is
/// another one.
const OTHER_FORM: [u8; 53] = [
    0x6e, 0x46, 0x2b, 0x62, 0x07, 0x54, 0x51, 0x81, 0xdb, 0xd3, 0xad, 0xc8, 0x70, 0xfc, 0xa0, 0x0d,
    0x89, 0x0c, 0xe5, 0x43, 0x02, 0x7a, 0xe2, 0x90, 0x09, 0x61, 0xfd, 0x5e, 0x1c, 0xe2, 0x65, 0x5d,
    0x86, 0xf5, 0xcf, 0xa2, 0xc6, 0xe9, 0x84, 0x2c, 0x5d, 0x6e, 0x17, 0x3a, 0xd5, 0x8e, 0xa0, 0x9f,
    0x35, 0x55, 0x6e, 0x70, 0x1c,
];

fn keys() -> EndpointKeys {
    EndpointKeys::from_seed([1; 32])
}

fn rng() -> Rng {
    Rng::from_seed([2; 32])
}

fn cid(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

fn remote() -> SocketAddr {
    "192.0.2.7:4433".parse().unwrap()
}

/// A `NEW_TOKEN` token for these addresses that says nothing of paths.
fn plain(addresses: &[IpAddr]) -> Vec<u8> {
    let entries: Vec<_> = addresses.iter().map(|address| (*address, None)).collect();
    keys().seal_new_token(NOW, &entries, &mut rng())
}

/// Two addresses of a client.
fn addresses() -> [IpAddr; 2] {
    ["192.0.2.7", "2001:db8::1"].map(|text| text.parse().unwrap())
}

fn retry_token() -> Vec<u8> {
    keys().seal_retry(
        NOW,
        remote(),
        &cid(b"original"),
        &cid(b"chosen"),
        &mut rng(),
    )
}

#[test]
fn a_retry_token_yields_the_original_connection_id_where_it_was_sent() {
    let token = retry_token();
    let later = NOW + RETRY_LIFETIME;
    let opened = keys().open_retry(later, &token, remote(), &cid(b"chosen"));
    assert_eq!(opened, Ok(cid(b"original")));
    let mapped = "[::ffff:192.0.2.7]:4433".parse().unwrap();
    assert!(
        keys()
            .open_retry(NOW, &token, mapped, &cid(b"chosen"))
            .is_ok()
    );
}

#[test]
fn a_retry_token_is_bound_to_address_port_connection_id_endpoint_and_time() {
    let token = retry_token();
    let open = |now, from: &str, dcid: &[u8]| {
        keys().open_retry(now, &token, from.parse().unwrap(), &cid(dcid))
    };
    let invalid = Err(TokenError::Invalid);
    assert_eq!(open(NOW, "192.0.2.8:4433", b"chosen"), invalid);
    assert_eq!(open(NOW, "192.0.2.7:4434", b"chosen"), invalid);
    assert_eq!(open(NOW, "192.0.2.7:4433", b"chosem"), invalid);
    let other = EndpointKeys::from_seed([9; 32]);
    assert_eq!(
        other.open_retry(NOW, &token, remote(), &cid(b"chosen")),
        invalid
    );
    let late = NOW + RETRY_LIFETIME + Duration::from_nanos(1);
    assert_eq!(
        open(late, "192.0.2.7:4433", b"chosen"),
        Err(TokenError::Expired)
    );
    let before = NOW - Duration::from_nanos(1);
    assert_eq!(
        open(before, "192.0.2.7:4433", b"chosen"),
        Err(TokenError::Expired)
    );
}

#[test]
fn a_new_token_serves_the_addresses_it_names_for_its_lifetime() {
    let addresses = addresses();
    let token = plain(&addresses);
    let end = NOW + NEW_TOKEN_LIFETIME;
    for address in &addresses {
        let opened = keys().open_new_token(end, &token, *address);
        assert_eq!(opened.map(|token| token.id.issued), Ok(NOW));
    }
    let other = "192.0.2.8".parse().unwrap();
    assert_eq!(
        keys().open_new_token(NOW, &token, other),
        Err(TokenError::Invalid)
    );
    let late = end + Duration::from_nanos(1);
    assert_eq!(
        keys().open_new_token(late, &token, addresses[0]),
        Err(TokenError::Expired)
    );
}

#[test]
fn memories_are_told_to_each_address_that_is_named_its_own_first_for_an_hour() {
    let [one, two] = addresses();
    let memory = |bytes| PathMemory::new(bytes, Duration::from_millis(200)).unwrap();
    let known = |address, memory| KnownPath {
        ends: Ends::new(address, None),
        memory,
    };
    let both = [known(one, memory(1 << 20)), known(two, memory(1 << 22))];
    let entries = both.map(|path| (path.ends.remote(), Some(path.memory)));
    let token = keys().seal_new_token(NOW, &entries, &mut rng());
    let told = |now, address| keys().open_new_token(now, &token, address);
    let told = |now, address| told(now, address).map(|token| token.paths);
    let end = NOW + MEMORY_LIFETIME;
    assert_eq!(told(end, one), Ok(both.to_vec()));
    let [first, second] = both;
    assert_eq!(told(end, two), Ok(vec![second, first]));
    let late = end + Duration::from_nanos(1);
    assert_eq!(told(late, one), Ok(vec![]), "still of use otherwise");
    let stranger = "192.0.2.8".parse().unwrap();
    assert_eq!(told(NOW, stranger), Err(TokenError::Invalid));
}

#[test]
fn nobody_sees_from_a_token_whether_an_address_in_it_has_a_memory() {
    let memory = PathMemory::new(1 << 20, Duration::from_millis(200));
    let with = keys().seal_new_token(NOW, &[(remote().ip(), memory)], &mut rng());
    assert_eq!(plain(&[remote().ip()]).len(), with.len());
}

#[test]
fn a_token_of_another_form_is_of_no_use_and_no_error() {
    let opened = keys().open_new_token(NOW, &OTHER_FORM, remote().ip());
    assert_eq!(opened, Err(TokenError::Invalid));
    let retry = keys().open_retry(NOW, &OTHER_FORM, remote(), &cid(b""));
    assert_eq!(retry, Err(TokenError::NotRetry), "nobody is refused for it");
}

#[test]
fn what_is_sealed_is_a_time_and_whole_addresses_with_memories() {
    let mut content = NOW.as_nanos().to_be_bytes().to_vec();
    content.extend_from_slice(&address_bytes(remote().ip()));
    for (rest, told) in [
        (&[][..], None),
        (&[0; 8][..], Some(0)),
        (&[1; 8], Some(1)),
        (&[1; 7], None),
        (&[1; 9], None),
        (&[1; 24], None),
        (&[1; 32], Some(2)),
    ] {
        let token = keys().seal(NEW_TOKEN, &[], &[&content, rest].concat(), &mut rng());
        let opened = keys().open_new_token(NOW, &token, remote().ip());
        assert_eq!(opened.ok().map(|token| token.paths.len()), told);
    }
    let none = keys().seal(NEW_TOKEN, &[], &content[..8], &mut rng());
    let opened = keys().open_new_token(NOW, &none, remote().ip());
    assert_eq!(opened, Err(TokenError::Invalid));
}

#[test]
fn kinds_of_tokens_cannot_be_mistaken_for_each_other() {
    let mut new = plain(&[remote().ip()]);
    let open = |token: &[u8]| keys().open_retry(NOW, token, remote(), &cid(b""));
    assert_eq!(open(&new), Err(TokenError::NotRetry));
    assert_eq!(open(b""), Err(TokenError::NotRetry));
    new[0] = RETRY;
    assert_eq!(open(&new), Err(TokenError::Invalid));
    let token = retry_token();
    assert_eq!(
        keys().open_new_token(NOW, &token, remote().ip()),
        Err(TokenError::Invalid)
    );
}

#[test]
fn a_new_token_names_a_bounded_number_of_addresses() {
    let addresses: Vec<IpAddr> = (0..100).map(|n| IpAddr::from([10, 0, 0, n])).collect();
    let token = plain(&addresses);
    // It has to fit into a first packet, and other clients may keep no long ones.
    assert!(token.len() <= 160, "{} bytes", token.len());
    let open = |index: usize| keys().open_new_token(NOW, &token, addresses[index]);
    assert!(open(MAX_KNOWN_PATHS - 1).is_ok());
    assert_eq!(open(MAX_KNOWN_PATHS), Err(TokenError::Invalid));
}

#[test]
fn reset_tokens_depend_on_seed_and_connection_id_alone() {
    let token = keys().reset_token(&cid(b"cid"));
    assert_eq!(token, keys().reset_token(&cid(b"cid")));
    assert_ne!(token, keys().reset_token(&cid(b"dic")));
    assert_ne!(
        token,
        EndpointKeys::from_seed([3; 32]).reset_token(&cid(b"cid"))
    );
}

proptest! {
    #[test]
    fn no_bytes_but_the_sealed_ones_open(at in 0_usize..100, bit in 0_u8..8, cut in 0_usize..100) {
        let mut token = retry_token();
        let open = |token: &[u8]| keys().open_retry(NOW, token, remote(), &cid(b"chosen"));
        prop_assert!(open(&token).is_ok());
        let cut = cut % token.len();
        prop_assert!(open(&token[..cut]).is_err());
        let at = at % token.len();
        token[at] ^= 1 << bit;
        prop_assert!(open(&token).is_err());
    }

    #[test]
    fn a_new_token_says_what_was_sealed(
        entries in prop::collection::vec((any::<[u8; 16]>(), any::<[u8; 8]>()), 1..8),
        at: prop::sample::Index,
    ) {
        let entry = |&(bytes, memory): &([u8; 16], [u8; 8])| {
            (address(bytes), PathMemory::decode(memory))
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let token = keys().seal_new_token(NOW, &entries, &mut rng());
        let named = &entries[..entries.len().min(MAX_KNOWN_PATHS)];
        let own = named[at.index(named.len())].0;
        let opened = keys().open_new_token(NOW, &token, own);
        let paths = opened.map(|token| token.paths).unwrap_or_default();
        let told: Vec<_> = paths.iter().map(|path| (path.ends.remote(), path.memory)).collect();
        let meant = named.iter().filter_map(|(address, memory)| Some((*address, (*memory)?)));
        let (mut first, others): (Vec<_>, Vec<_>) = meant.partition(|(address, _)| *address == own);
        first.extend(others);
        prop_assert_eq!(told, first);
    }

    #[test]
    fn arbitrary_bytes_are_refused(token in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(keys().open_retry(NOW, &token, remote(), &cid(b"chosen")).is_err());
        let opened = keys().open_new_token(NOW, &token, remote().ip());
        prop_assert_eq!(opened, Err(TokenError::Invalid));
    }
}

#[test]
fn a_reset_secret_outlives_the_seed_and_changes_nothing_else() {
    let lives = [[1; 32], [2; 32]];
    let [mut old, mut new] = lives.map(EndpointKeys::from_seed);
    assert_ne!(
        old.reset_token(&cid(b"a path")),
        new.reset_token(&cid(b"a path"))
    );
    for keys in [&mut old, &mut new] {
        keys.set_reset_secret([9; 32]);
    }
    assert_eq!(
        old.reset_token(&cid(b"a path")),
        new.reset_token(&cid(b"a path"))
    );
    let token = old.seal_new_token(NOW, &[(remote().ip(), None)], &mut rng());
    assert!(old.open_new_token(NOW, &token, remote().ip()).is_ok());
    assert!(new.open_new_token(NOW, &token, remote().ip()).is_err());
}
