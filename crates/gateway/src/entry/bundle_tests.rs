//! What flows of one port are to each other.

use super::*;
use crate::UDP_IDLE;
use crate::entry::owner;
use crate::entry::policy::{Beginning, Policy};
use anabranch_tunnel::class::Transport;

/// No wait lasts longer: time is virtual.
const END: Duration = Duration::from_secs(600);

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(END, future).await.expect("an end of the wait")
}

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

fn remote(number: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], number))
}

async fn class() -> Classed {
    let host = remote(1);
    let beginning = Beginning {
        transport: Transport::Udp,
        host,
        socket: owner::Socket::tcp(host, host),
        dscp: None,
    };
    let policy = Policy::default();
    policy.classify(beginning, &host.into()).await
}

async fn first(bundle: &Arc<Bundle>) -> First {
    match bundle.role(&target("192.0.2.9:9")).await {
        Role::First(first) => first,
        _ => panic!("there is none yet"),
    }
}

/// A flow that is to be a branch.
async fn branching() -> Branching {
    let activity = Arc::new(Activity::new(UDP_IDLE));
    Branching::new(&class().await, &record(), &activity)
}

fn record() -> Arc<Record> {
    Record::unlisted()
}

async fn is_alone(bundle: &Arc<Bundle>, text: &str) -> bool {
    matches!(bundle.role(&target(text)).await, Role::Alone)
}

#[tokio::test(start_paused = true)]
async fn further_targets_wait_for_the_first_and_take_its_place_if_it_is_refused() {
    let bundle = Arc::<Bundle>::default();
    let refused = first(&bundle).await;
    let asking = Arc::clone(&bundle);
    let next = tokio::spawn(async move { asking.role(&target("192.0.2.2:2")).await });
    tokio::task::yield_now().await;
    drop(refused);
    let Role::First(granted) = soon(next).await.unwrap() else {
        panic!("it is the first now");
    };
    let (_trunk, _waiting) = granted.share(&record(), None);
    let role = bundle.role(&target("192.0.2.3:3")).await;
    assert!(matches!(role, Role::Branch(_, it) if it == SocketAddr::from(([192, 0, 2, 3], 3))));
    drop(granted);
    first(&bundle).await;
}

#[tokio::test(start_paused = true)]
async fn questions_to_resolvers_and_those_that_waited_long_go_alone() {
    let bundle = Arc::<Bundle>::default();
    assert!(is_alone(&bundle, "192.0.2.1:53").await);
    let one = first(&bundle).await;
    for target in ["192.0.2.2:2", "a.example:99"] {
        let since = Instant::now();
        assert!(is_alone(&bundle, target).await);
        assert_eq!(since.elapsed(), JOIN);
    }
    let (_trunk, _waiting) = one.share(&record(), None);
    assert!(is_alone(&bundle, "a.example:53").await);
    assert!(is_alone(&bundle, "192.0.2.1:53").await);
}

#[tokio::test(start_paused = true)]
async fn a_name_joins_the_others_unless_what_it_leads_to_is_carried_or_was_refused_already() {
    let bundle = Arc::<Bundle>::default();
    let one = first(&bundle).await;
    let (_, waiting) = one.share(&record(), None);
    let Role::Named(trunk) = bundle.role(&target("a.example:99")).await else {
        panic!("it is one of them once its address is known");
    };
    assert!(trunk.can_carry(remote(7)));
    let attached = trunk.attach(remote(7), branching().await);
    assert!(!trunk.can_carry(remote(7)), "another flow has it");
    drop(attached);
    assert!(trunk.can_carry(remote(7)));
    Heard(Arc::clone(&trunk)).closed(remote(7), false);
    assert!(!trunk.can_carry(remote(7)));
    drop(waiting);
    assert!(!trunk.can_carry(remote(8)), "the first has ended");
}

#[tokio::test(start_paused = true)]
async fn a_far_end_that_binds_nothing_is_not_asked_again_while_the_first_flow_lasts() {
    let bundle = Arc::<Bundle>::default();
    let one = first(&bundle).await;
    one.stay_apart();
    assert!(is_alone(&bundle, "192.0.2.2:2").await);
    drop(one);
    first(&bundle).await;
}

#[tokio::test(start_paused = true)]
async fn one_branch_too_many_ends_the_one_that_was_used_least_recently() {
    let bundle = Arc::<Bundle>::default();
    let one = first(&bundle).await;
    let (trunk, waiting) = one.share(&record(), None);
    let mut attached = Vec::new();
    for number in 0..MAX_BRANCHES as u16 {
        attached.push(trunk.attach(remote(number), branching().await));
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let _more = trunk.attach(remote(999), branching().await);
    assert_eq!(soon(attached[0].receive()).await, None);
    assert_eq!(attached[0].end(), None, "the far end had no part in it");
    let bytes = Bytes::from_static(b"x");
    assert_eq!(soon(trunk.deliver(remote(1), bytes.clone())).await, None);
    assert_eq!(soon(attached[1].receive()).await, Some(bytes.clone()));
    let returned = soon(trunk.deliver(remote(0), bytes.clone())).await;
    assert_eq!(returned, Some(bytes), "nobody's");
    assert_eq!(trunk.branches().len(), MAX_BRANCHES);
    assert_eq!(trunk.gone.pop(), Some(remote(0)));
    drop(attached.remove(0));
    assert_eq!(trunk.gone.pop(), None, "it is told once");
    drop(attached.remove(0));
    assert_eq!(trunk.gone.pop(), Some(remote(1)));
    drop(one);
    assert_eq!(
        soon(attached[0].receive()).await,
        None,
        "all end with the first"
    );
    drop(waiting);
    assert!(!attached[0].send(Bytes::new()).await);
}

#[tokio::test(start_paused = true)]
async fn what_the_far_end_refuses_goes_alone_for_a_while_and_what_is_deaf_does_not() {
    let bundle = Arc::<Bundle>::default();
    let one = first(&bundle).await;
    let (trunk, _waiting) = one.share(&record(), None);
    let mut attached = trunk.attach(remote(7), branching().await);
    let heard = Heard(Arc::clone(&trunk));
    assert!(!heard.allows(remote(8)));
    heard.closed(remote(7), true);
    assert_eq!(soon(attached.receive()).await, None);
    assert_eq!(attached.end(), Some(End::Deaf));
    let role = bundle.role(&target("192.0.2.1:7")).await;
    assert!(matches!(role, Role::Branch(..)), "it may hear later");
    let mut attached = trunk.attach(remote(7), branching().await);
    heard.closed(remote(7), false);
    assert_eq!(soon(attached.receive()).await, None);
    assert_eq!(attached.end(), Some(End::Refused));
    assert!(is_alone(&bundle, "192.0.2.1:7").await);
    tokio::time::advance(APART).await;
    let role = bundle.role(&target("192.0.2.1:7")).await;
    assert!(matches!(role, Role::Branch(..)));
    for number in 0..2 * MAX_APART as u16 {
        heard.closed(remote(number), false);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert_eq!(bundle.apart().len(), MAX_APART, "the latest are remembered");
    assert!(bundle.is_apart(remote(2 * MAX_APART as u16 - 1)));
}

#[tokio::test]
async fn each_port_of_a_host_has_a_bundle_as_long_as_it_has_flows() {
    let mut bundles = Bundles::default();
    let one = bundles.of(remote(1));
    assert!(Arc::ptr_eq(&one, &bundles.of(remote(1))));
    assert!(!Arc::ptr_eq(&one, &bundles.of(remote(2))));
    for number in 2..5000 {
        bundles.of(remote(number));
    }
    assert!(bundles.of.len() <= 128, "{}", bundles.of.len());
    assert!(Arc::ptr_eq(&one, &bundles.of(remote(1))));
}

/// Keeps what it gets.
#[derive(Default)]
struct Kept(Vec<Payload>);

impl Sink for Kept {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        self.0.push(payload);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn only_addresses_that_were_sent_to_are_heard_from_other_ports_whatever_the_far_end_says() {
    let bundle = Arc::<Bundle>::default();
    let one = first(&bundle).await;
    let (trunk, _waiting) = one.share(&record(), Some(IpAddr::from([192, 0, 2, 9])));
    let mut attached = trunk.attach(remote(7), branching().await);
    let mut sink = ToAll {
        first: Kept::default(),
        trunk,
    };
    let from = ["192.0.2.9:1", "192.0.2.1:7", "192.0.2.1:8", "192.0.2.2:7"];
    for from in from {
        let remote = Some(from.parse().unwrap());
        let bytes = Bytes::from_static(b"x");
        sink.send(Payload { remote, bytes }).await.unwrap();
    }
    let heard = sink.first.0.iter().filter_map(|payload| payload.remote);
    let heard: Vec<String> = heard.map(|remote| remote.to_string()).collect();
    assert_eq!(heard, ["192.0.2.9:1", "192.0.2.1:8"]);
    assert_eq!(
        soon(attached.receive()).await,
        Some(Bytes::from_static(b"x"))
    );
}
