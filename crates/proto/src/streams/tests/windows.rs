//! Receive windows of several connections within one budget.

use super::*;
use proptest::prelude::*;

/// What each connection begins with.
const FIRST: u64 = 3000;

fn growing(reserve: u64) -> Limits {
    Limits {
        receive_window: FIRST,
        max_receive_window: 1 << 20,
        max_stream_receive_window: 1 << 20,
        receive_reserve: reserve,
        send_buffer: 1 << 24,
        max_streams_uni: 100,
        ..limits()
    }
}

/// A peer that sends all it may, and the side that is meant.
struct Pipe {
    sender: Streams,
    receiver: Streams,
    id: StreamId,
    now: Instant,
}

impl Pipe {
    fn new(budget: &ReceiveBudget) -> Self {
        Self::with_reserve(budget, 0)
    }

    fn with_reserve(budget: &ReceiveBudget, reserve: u64) -> Self {
        let limits = growing(reserve);
        let (mut sender, mut receiver) = (side(Side::Client, &limits), side(Side::Server, &limits));
        receiver.charge_windows_to(budget.clone());
        let id = sender.open(Dir::Uni).unwrap();
        let now = Instant::ZERO;
        Self {
            sender,
            receiver,
            id,
            now,
        }
    }

    /// The peer sends up to so many bytes, as far as it may now; the rest it forgets.
    fn send(&mut self, bytes: usize) {
        let bytes = bytes.min(self.sender.backlog().credit as usize);
        let _ = self.sender.write(self.id, &mut Bytes::from(vec![0; bytes]));
        transfer(&mut self.sender, &mut self.receiver);
    }

    fn read(&mut self) {
        read_all(&mut self.receiver, self.id);
        transfer(&mut self.receiver, &mut self.sender);
    }

    /// So much time passes; round trips take 10 ms.
    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.receiver
            .set_tuning(Duration::from_millis(10), self.now);
    }

    /// Sends 100 bytes in a packet that is lost and never sent again: all later bytes of the stream
    /// wait behind the gap.
    fn lose(&mut self) {
        let _ = self.sender.write(self.id, &mut Bytes::from(vec![0; 100]));
        packet(&mut self.sender, A, 1200);
    }

    /// A round trip in which all that the peer may send is read.
    fn pump(&mut self) {
        self.pass(10);
        self.send(1 << 20);
        self.read();
    }

    fn unread(&self) -> u64 {
        self.receiver.inbound.unread()
    }

    fn window(&self) -> u64 {
        self.receiver.stats().receive_window
    }

    /// Bytes promised beyond the first window, and what the budget was asked for them.
    fn promised(&self) -> (u64, u64) {
        self.receiver.inbound.promised()
    }

    /// Whether what it promised is on the account, and no more than the rest of a step beside it.
    fn is_consistent(&self, budget: &ReceiveBudget) -> bool {
        let (promised, held) = self.promised();
        let step = (budget.limit() / 1024).max(1);
        (promised..promised + step).contains(&held)
    }
}

fn pipes<const N: usize>(budget: &ReceiveBudget) -> [Pipe; N] {
    [(); N].map(|()| Pipe::new(budget))
}

#[test]
fn applications_that_stop_reading_hold_the_budget_and_the_first_windows_at_the_most() {
    let held = |budget: u64| {
        let budget = ReceiveBudget::new(budget);
        let mut pipes = pipes::<20>(&budget);
        for _ in 0..40 {
            pipes.iter_mut().for_each(Pipe::pump);
        }
        assert!(budget.promised() <= budget.limit());
        for pipe in &mut pipes {
            pipe.send(2 << 20);
        }
        pipes.iter().map(Pipe::unread).sum::<u64>()
    };
    let most = 100_000 + 20 * FIRST;
    let all = held(100_000);
    assert!((most * 7 / 8..=most).contains(&all), "{all} of {most}");
    assert!(held(u64::MAX) > 100 * most, "nothing else bounds it");
}

#[test]
fn connections_that_go_on_share_the_budget_alike() {
    let budget = ReceiveBudget::new(300_000);
    let mut pipes = pipes::<5>(&budget);
    // They begin one after another.
    for round in 0..300 {
        pipes.iter_mut().take(1 + round / 20).for_each(Pipe::pump);
    }
    let windows: Vec<_> = pipes.iter().map(Pipe::window).collect();
    for window in &windows {
        assert!((50_000..60_000).contains(window), "{windows:?}");
    }
}

#[test]
fn a_connection_has_its_first_window_where_nothing_is_left() {
    let mut pipe = Pipe::new(&ReceiveBudget::new(0));
    for round in 1..=40 {
        pipe.pump();
        let delivered = pipe.receiver.stats().bytes_delivered;
        // The first window of the stream is smaller.
        assert!(delivered >= round * 2000, "{delivered} after {round}");
        assert_eq!((pipe.window(), pipe.promised()), (FIRST, (0, 0)));
    }
    pipe.send(1 << 20);
    assert_eq!(pipe.unread(), FIRST);
}

#[test]
fn windows_that_are_not_used_shrink_once_others_need_the_room() {
    let budget = ReceiveBudget::new(300_000);
    let [mut idle, mut busy] = pipes::<2>(&budget);
    (0..30).for_each(|_| idle.pump());
    let promised = idle.promised().0;
    assert!(promised > 100_000, "{promised}");
    (0..30).for_each(|_| busy.pump());
    let before = busy.window();
    // It says little from time to time.
    for count in 1..=400 {
        idle.pass(200);
        idle.send(250);
        idle.read();
        // Measured over some seconds, the first of which began with what was fast.
        if count >= 25 {
            assert_eq!(idle.window(), FIRST);
            // The peer is not told of anything new, as it has more than that.
            assert_eq!(idle.promised().0, promised - count * 250);
        }
    }
    (0..30).for_each(|_| busy.pump());
    assert!(
        busy.window() > before + 30_000,
        "{before} grew to {}",
        busy.window()
    );
    (0..30).for_each(|_| idle.pump());
    assert!(idle.window() > 80_000, "it grows again: {}", idle.window());
}

#[test]
fn a_client_that_uploads_in_bursts_keeps_its_window() {
    let budget = ReceiveBudget::new(300_000);
    let [mut bursts, mut other] = pipes::<2>(&budget);
    for _ in 0..60 {
        bursts.pump();
        other.pump();
    }
    assert!(bursts.receiver.inbound.is_tight());
    let before = bursts.window();
    assert!(before > 80_000, "{before}");
    for _ in 0..20 {
        bursts.pass(4000);
        for _ in 0..20 {
            bursts.pump();
            let now = bursts.window();
            assert!(now >= before * 9 / 10, "{before} fell to {now}");
        }
    }
}

#[test]
fn windows_that_are_not_used_stay_while_nobody_needs_the_room() {
    let mut idle = Pipe::new(&ReceiveBudget::new(1 << 30));
    (0..30).for_each(|_| idle.pump());
    let window = idle.window();
    assert_eq!(window, 1 << 20);
    for _ in 0..200 {
        idle.pass(2000);
        idle.send(1000);
        idle.read();
    }
    assert_eq!(idle.window(), window);
}

#[test]
fn a_connection_grows_once_its_neighbours_have_ended() {
    let budget = ReceiveBudget::new(300_000);
    let mut pipes = pipes::<6>(&budget);
    for _ in 0..60 {
        pipes.iter_mut().for_each(Pipe::pump);
    }
    let [mut last, others @ ..] = pipes;
    let before = last.window();
    assert!(before < 60_000, "{before}");
    drop(others);
    (0..30).for_each(|_| last.pump());
    assert!(last.window() > 140_000, "{}", last.window());
}

#[test]
fn streams_that_are_stopped_or_reset_give_back_what_was_not_read() {
    let budget = ReceiveBudget::new(300_000);
    for is_stopped in [true, false] {
        let mut pipe = Pipe::new(&budget);
        (0..30).for_each(|_| pipe.pump());
        pipe.send(60_000);
        let (before, size) = (budget.promised(), pipe.receiver.stats().bytes_received);
        if is_stopped {
            pipe.receiver.stop(pipe.id, 1.into()).unwrap();
        } else {
            pipe.receiver.on_reset_stream(pipe.id, 1, size).unwrap();
        }
        assert!(pipe.unread() == 0 && budget.promised() <= before - 59_000);
    }
}

#[test]
fn a_connection_that_is_over_keeps_what_was_not_read_on_the_account() {
    let budget = ReceiveBudget::new(300_000);
    let mut pipe = Pipe::new(&budget);
    (0..30).for_each(|_| pipe.pump());
    pipe.send(50_000);
    assert!(budget.promised() > 100_000);
    pipe.receiver.expect_no_more();
    let (left, unread) = (budget.promised(), pipe.unread());
    assert!(
        (unread - FIRST..unread).contains(&left),
        "{left} of {unread}"
    );
    read_all(&mut pipe.receiver, pipe.id);
    assert_eq!(budget.promised(), 0);
    assert!(!pipe.receiver.control.max_data, "there is nobody to tell");
}

#[test]
fn a_peer_that_stopped_for_lack_of_room_is_told_of_it_though_nothing_is_read() {
    let budget = ReceiveBudget::new(40_000);
    let mut other = Pipe::new(&budget);
    (0..30).for_each(|_| other.pump());
    let mut pipe = Pipe::with_reserve(&budget, 1 << 20);
    (0..30).for_each(|_| pipe.pump());
    // Nobody reads what goes on further streams, until these hold all.
    while !pipe.receiver.is_short_of_room() {
        let id = pipe.sender.open(Dir::Uni).unwrap();
        let _ = pipe.sender.write(id, &mut Bytes::from(vec![0; 2000]));
        transfer(&mut pipe.sender, &mut pipe.receiver);
        transfer(&mut pipe.receiver, &mut pipe.sender);
    }
    assert!(!pipe.receiver.look_for_room());
    let received = pipe.receiver.stats().bytes_received;
    drop(other);
    assert!(pipe.receiver.look_for_room() && !pipe.receiver.is_short_of_room());
    transfer(&mut pipe.receiver, &mut pipe.sender);
    pipe.send(5000);
    assert!(pipe.receiver.stats().bytes_received >= received + 5000);
}

/// What happens to one of several connections.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send(usize),
    Lose,
    Read(usize),
    Pump,
    Pass(u64),
    Open,
    Reset,
    Stop,
    End,
    Replace,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..30_000_usize).prop_map(Step::Send),
        1 => Just(Step::Lose),
        2 => (1..30_000_usize).prop_map(Step::Read),
        4 => Just(Step::Pump),
        2 => (0..3000_u64).prop_map(Step::Pass),
        1 => Just(Step::Open),
        1 => Just(Step::Reset),
        1 => Just(Step::Stop),
        1 => Just(Step::End),
        1 => Just(Step::Replace),
    ]
}

impl Pipe {
    fn take(&mut self, step: Step, budget: &ReceiveBudget) {
        match step {
            Step::Send(bytes) => self.send(bytes),
            Step::Lose => self.lose(),
            Step::Read(max) => {
                let _ = self.receiver.read(self.id, max);
            }
            Step::Pump => self.pump(),
            Step::Pass(ms) => self.pass(ms),
            // What is on the stream so far is left unread.
            Step::Open => self.id = self.sender.open(Dir::Uni).unwrap_or(self.id),
            Step::Reset => {
                let _ = self.sender.reset(self.id, 1.into());
                transfer(&mut self.sender, &mut self.receiver);
            }
            Step::Stop => {
                let _ = self.receiver.stop(self.id, 1.into());
                transfer(&mut self.receiver, &mut self.sender);
            }
            Step::End => {
                self.receiver.expect_no_more();
                let most = self.unread().saturating_sub(FIRST);
                assert!(self.promised().0 <= most);
                *self = Self::new(budget);
            }
            Step::Replace => *self = Self::new(budget),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_budget_is_the_sum_of_all_accounts(
        limit in prop_oneof![Just(0), 1..2_000_000_u64],
        reserve in prop_oneof![Just(0), 1..100_000_u64],
        steps in prop::collection::vec((0..4_usize, step()), 1..150),
    ) {
        let budget = ReceiveBudget::new(limit);
        let mut pipes = [reserve, 0, reserve, 0].map(|reserve| {
            Pipe::with_reserve(&budget, reserve)
        });
        for (at, step) in steps {
            pipes[at].take(step, &budget);
            prop_assert!(pipes.iter().all(|pipe| pipe.is_consistent(&budget)));
            let held: u64 = pipes.iter().map(|pipe| pipe.promised().1).sum();
            prop_assert_eq!(held, budget.promised());
            prop_assert!(held <= limit);
            let unread: u64 = pipes.iter().map(Pipe::unread).sum();
            prop_assert!(unread <= limit + 4 * FIRST);
        }
        drop(pipes);
        prop_assert_eq!(budget.promised(), 0);
    }
}
