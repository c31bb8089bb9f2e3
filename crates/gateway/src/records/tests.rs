//! What is told of flows, and how many of them.

use super::*;
use tokio::sync::oneshot;

fn about(target: &str, is_udp: bool) -> About {
    About {
        is_udp,
        target: target.parse().unwrap(),
        source: Some(([192, 168, 1, 2], 4000).into()),
        client: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_flow_is_found_by_its_number_its_target_and_its_source() {
    let records = Arc::<Records>::default();
    let flow = records.begin(about("[2001:db8::1]:443", false));
    let _other = records.begin(about("example.org:80", false));
    flow.led_to(([192, 0, 2, 1], 443).into());
    for called in [
        "1",
        "[2001:db8::1]:443",
        "2001:db8::1",
        "192.0.2.1:443",
        "192.0.2.1",
    ] {
        let found = records.show(Some(called), 9, true).await;
        let numbers: Vec<u64> = found.flows.iter().map(|flow| flow.number).collect();
        assert_eq!((numbers, found.open), (vec![1], 2), "{called}");
    }
    assert_eq!(
        records
            .show(Some("192.168.1.2:4000"), 9, true)
            .await
            .flows
            .len(),
        2
    );
    assert!(records.show(Some("3"), 9, true).await.flows.is_empty());
}

#[tokio::test(start_paused = true)]
async fn flows_of_one_port_are_told_together_the_one_that_was_used_last_first() {
    let records = Arc::<Records>::default();
    let alone = records.begin(about("b:1", true));
    let first = records.begin(about("b:2", true));
    first.shares(first.number());
    let found = records.show(Some("b"), 9, true).await;
    assert_eq!(found.flows.len(), 2);
    assert!(
        found.flows.iter().all(|flow| flow.same_port.is_none()),
        "they share with nobody"
    );
    let mut others: Vec<Listed> = (3..=2 + MAX_SAME_PORT as u16)
        .map(|port| records.begin(about(&format!("a:{port}"), true)))
        .collect();
    for other in &others {
        other.shares(first.number());
        other.received(1);
        std::thread::sleep(Duration::from_millis(1));
    }
    others[0].is_of("voice", &Arc::default());
    others[0].sent();
    drop(others.remove(1));
    let numbers = |flows: &[Flow]| flows.iter().map(|flow| flow.number).collect::<Vec<_>>();
    let found = records.show(Some("192.168.1.2:4000"), 9, true).await;
    let told = numbers(&found.flows);
    assert_eq!(told, [alone.number(), others[0].number()]);
    let port = found.flows[1].same_port.as_ref().unwrap();
    assert_eq!(
        (port.open, port.flows.len()),
        (MAX_SAME_PORT, MAX_SAME_PORT)
    );
    assert_eq!(port.flows[0].class.as_deref(), Some("voice"));
    let last = others.last().unwrap().number();
    assert_eq!(numbers(&port.flows)[..2], [others[0].number(), last]);
    let ended = port.flows.iter().filter(|flow| flow.state == Phase::Ended);
    assert_eq!(ended.count(), 1, "what has ended is told, too");
    assert!(
        !numbers(&port.flows).contains(&first.number()),
        "it was used least recently"
    );
    assert!(port.flows.iter().all(|flow| flow.same_port.is_none()));
    let found = records
        .show(Some(&first.number().to_string()), 9, true)
        .await;
    assert_eq!(numbers(&found.flows), [first.number()]);
}

#[tokio::test(start_paused = true)]
async fn the_biggest_come_first_and_no_more_than_asked_for() {
    let records = Arc::<Records>::default();
    let moved = Moved::default();
    let flows: Vec<Listed> = (1..=9)
        .map(|port| records.begin(about(&format!("a:{port}"), false)))
        .collect();
    for (flow, bytes) in flows.iter().zip([1, 9, 3, 4, 5, 6, 7, 8, 2]) {
        let all = &moved;
        Meter { all, record: flow }.outward(bytes);
    }
    let shown = records.show(None, 3, true).await;
    let targets: Vec<&str> = shown.flows.iter().map(|flow| &*flow.target).collect();
    assert_eq!(targets, ["a:2", "a:8", "a:7"]);
    assert_eq!((shown.open, shown.flows[0].down_bytes), (9, 9));
    let far = records.show(None, 1, false).await;
    assert_eq!(
        far.flows[0].up_bytes, 9,
        "what leaves the tunnel there goes up"
    );
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_is_known_for_a_while_with_its_reason_and_bounded() {
    let records = Arc::<Records>::default();
    let flow = records.begin(about("a:1", false));
    flow.ends(&"x".repeat(1000));
    drop(flow);
    let shown = records.show(Some("a:1"), 9, true).await;
    assert_eq!(shown.flows[0].state, Phase::Ended);
    assert_eq!(shown.flows[0].end.as_ref().unwrap().len(), MAX_WORDS);
    for _ in 0..=MAX_ENDED {
        drop(records.begin(about("b:1", false)));
    }
    assert!(records.show(Some("a:1"), 9, true).await.flows.is_empty());
    assert_eq!(records.lock().ended.len(), MAX_ENDED);
}

#[tokio::test(start_paused = true)]
async fn open_flows_beyond_the_bound_are_not_listed_and_leave_nothing() {
    let records = Arc::<Records>::default();
    let flows: Vec<Listed> = (0..=MAX_OPEN)
        .map(|_| records.begin(about("a:1", false)))
        .collect();
    assert_eq!(records.lock().open.len(), MAX_OPEN);
    drop(flows);
    assert!(records.lock().open.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_flow_waits_for_is_told_only_while_it_waits() {
    let records = Arc::<Records>::default();
    let flow = records.begin(about("a:1", false));
    flow.enter(Phase::Open);
    flow.wait_inward(async {}).await;
    assert_eq!(flow.show((0, 0), true).waits_for_tunnel_seconds, None);
    let (room, no_room) = oneshot::channel::<()>();
    let waiting = flow.wait_inward(no_room);
    let look = async {
        tokio::task::yield_now().await;
        let shown = flow.show((0, 0), true);
        assert!(shown.waits_for_tunnel_seconds.is_some());
        assert_eq!(shown.waits_for_socket_seconds, None);
        room.send(()).unwrap();
    };
    let (done, ()) = tokio::join!(waiting, look);
    done.unwrap();
    assert_eq!(flow.show((0, 0), true).waits_for_tunnel_seconds, None);
}

#[test]
fn totals_only_grow_and_tell_flows_that_failed() {
    let records = Arc::<Records>::default();
    let moved = Moved::default();
    let flow = records.begin(about("a:1", true));
    let failed = records.begin(about("b:1", false));
    flow.enter(Phase::Open);
    let all = &moved;
    Meter { all, record: &flow }.inward(5);
    flow.sent();
    let before = records.totals();
    assert_eq!(
        (before.flows.open, before.flows.made, before.flows.failed),
        (2, 1, 0)
    );
    drop((flow, failed));
    let after = records.totals();
    assert_eq!(
        (after.flows.open, after.flows.made, after.flows.failed),
        (0, 1, 1)
    );
    assert_eq!((before.moved, after.moved), ((5, 0), (5, 0)));
    assert_eq!((before.datagrams.up, after.datagrams.up), (1, 1));
}

#[test]
fn waits_copies_and_paths_of_datagrams_are_counted() {
    let record = Record::new(1, about("a:1", true));
    record.held(Duration::from_millis(2));
    record.held(Duration::from_millis(4));
    record.repeated(3);
    for path in 0..20 {
        record.came_by(PathId(path), 10);
    }
    record.came_by(PathId(0), 10);
    let shown = record.show((0, 0), true);
    let datagrams = shown.datagrams.unwrap();
    assert_eq!((datagrams.held, datagrams.copies), (2, 3));
    assert_eq!(datagrams.mean_wait_ms, Some(3.0));
    assert_eq!(datagrams.longest_wait_ms, Some(4.0));
    let bytes: Vec<u64> = shown.paths.iter().map(|path| path.received_bytes).collect();
    assert_eq!(bytes, [20, 10, 10, 10, 10, 10, 10, 130]);
}
