//! Out-of-order transmission for in-order arrival: each packet to the path that delivers it first,
//! its wait in that path's queue included.
//!
//! After Yang, Wang and Amer (WAINA 2014). A packet may be queued for a path whose window is full:
//! it then waits one RTT for each window of packets before it; a pacer, which the original does not
//! know, adds its intervals. Our engine has no such queue; the
//! data is left to the path ([`Booked`]), one window of it at most, and slower paths
//! send what follows. If all that is unsent is left to full paths, the others wait as they would
//! with a queue, but no longer than an acknowledgement takes.

use crate::catalogue::delivery_delay::least_delay;
use crate::toolkit::units::{FOREVER, nanos, paced, packet, time_for};
use crate::toolkit::{Booked, Delays, Patience, send_behind, skip_limit};
use anabranch_proto::path::MAX_OPEN_PATHS;
use anabranch_proto::sched::{
    Choice, Entry, PathEvent, PathView, Reason, Scheduler, SendView, UnitKind,
};
use anabranch_proto::wire::PathId;

pub(crate) const ENTRY: Entry = Entry {
    name: "otias",
    summary: "the earliest arrival, the wait for a full window included",
    params: &[],
    build: |_| Ok(Box::new(Otias::default())),
};

/// Chooses the earliest arrival, queues included.
#[derive(Debug, Default)]
pub(crate) struct Otias {
    booked: Booked,
    patience: Patience,
}

impl Otias {
    /// The next packet to the path that delivers it first. What falls to full paths is left to
    /// them, up to the point where their wait grows.
    fn place(&mut self, view: &SendView<'_>, delays: &Delays) -> Option<Choice> {
        // The queue of a path has two stretches of equal wait: its room, and its window. A pacer
        // makes them shorter, but then a path that can send is next.
        for _ in 0..3 * MAX_OPEN_PATHS {
            let mut open: Option<Coming<'_>> = None;
            let mut full: Option<Coming<'_>> = None;
            for path in view.candidates() {
                let (queue, can_send) = (self.queue(path), path.can_send(view.now));
                if !can_send && !has_window(path, queue) {
                    continue;
                }
                let arrival = arrival(view, delays, path, queue);
                let coming = Coming {
                    path,
                    queue,
                    arrival,
                };
                let least = if can_send { &mut open } else { &mut full };
                if least.is_none_or(|least| coming.key() < least.key()) {
                    *least = Some(coming);
                }
            }
            let open = open?;
            let Some(best) = full.filter(|full| full.key() < open.key()) else {
                return Some(self.send(view, open.path));
            };
            let margin = open.arrival.saturating_sub(best.arrival);
            let left = view.backlog.unsent.saturating_sub(self.booked.total());
            if left == 0 {
                return None;
            }
            let packets = level(best.path, best.queue).min(paced_packets(best.path, margin));
            let bytes = packets.saturating_mul(packet(best.path));
            self.booked.push(best.path.id, bytes.min(left));
        }
        None
    }

    /// Packets left to `path`. Most paths have none, and for those nothing is divided.
    fn queue(&self, path: &PathView) -> u64 {
        match self.booked.of(path.id) {
            0 => 0,
            bytes => bytes / packet(path),
        }
    }

    fn send(&mut self, view: &SendView<'_>, path: &PathView) -> Choice {
        self.patience.end();
        let ahead = self.booked.total();
        if ahead > skip_limit(view, path) {
            self.booked.clear();
            return Choice::send(path.id, Reason::EarliestArrival);
        }
        send_behind(path.id, ahead, Reason::EarliestArrival)
    }
}

/// When one more packet would arrive by a path, behind those that are left to it.
#[derive(Debug, Clone, Copy)]
struct Coming<'a> {
    path: &'a PathView,
    queue: u64,
    arrival: u64,
}

impl Coming<'_> {
    fn key(&self) -> (u64, PathId) {
        (self.arrival, self.path.id)
    }
}

/// Whether less than a window of packets is left to `path`.
fn has_window(path: &PathView, queue: u64) -> bool {
    let needed = queue
        .checked_add(1)
        .and_then(|next| next.checked_mul(packet(path)));
    needed.is_some_and(|needed| needed <= path.congestion_window)
}

/// Nanoseconds until one more packet would arrive by `path` behind `queue` packets.
fn arrival(view: &SendView<'_>, delays: &Delays, path: &PathView, queue: u64) -> u64 {
    let Some(forward) = delays.forward(path) else {
        return FOREVER;
    };
    if queue == 0 && path.can_send(view.now) {
        return forward;
    }
    let interval = interval(path);
    let paced = paced(path, view.now).saturating_add(queue.saturating_mul(interval));
    let wait = windows_before(path, queue).saturating_mul(nanos(path.smoothed_rtt));
    forward.saturating_add(wait.max(paced)).min(FOREVER - 1)
}

/// Nanoseconds between two packets of a paced path.
fn interval(path: &PathView) -> u64 {
    match path.pacing_rate {
        0 => 0,
        rate => time_for(packet(path), rate),
    }
}

/// How many packets the pacer delays by `margin` and no more; at least one.
fn paced_packets(path: &PathView, margin: u64) -> u64 {
    let packets = margin.checked_div(interval(path));
    packets.map_or(u64::MAX, |packets| packets.saturating_add(1))
}

/// Free congestion window, in packets.
fn room(path: &PathView) -> u64 {
    match (path.room(), packet(path)) {
        (room, packet) if room < packet => 0,
        (room, packet) => room / packet,
    }
}

/// How many RTTs a packet waits behind `queue` packets: the division rounds up, or short queues
/// would cost nothing.
fn windows_before(path: &PathView, queue: u64) -> u64 {
    match queue.checked_sub(room(path)) {
        None => 0,
        // One packet is never more than a window.
        Some(0) => 1,
        Some(over) => {
            let window = (path.congestion_window / packet(path)).max(1);
            over.saturating_add(1).div_ceil(window)
        }
    }
}

/// How many packets more the queue takes at the same wait; never 0.
fn level(path: &PathView, queue: u64) -> u64 {
    let room = room(path);
    let window = (path.congestion_window / packet(path)).max(1);
    if queue < room {
        room - queue
    } else {
        window.saturating_sub(queue).max(1)
    }
}

impl Scheduler for Otias {
    fn select(&mut self, view: &SendView<'_>) -> Choice {
        let delays = Delays::of(view);
        if view.unit.kind != UnitKind::Fresh || view.ready().next().is_none() {
            return least_delay(view, &delays);
        }
        self.booked.truncate(view.backlog.unsent);
        let choice = match self.booked.serve(view) {
            Some(choice) => choice,
            None => match self.place(view, &delays) {
                Some(choice) => choice,
                None => return self.booked.wait(view, &mut self.patience),
            },
        };
        self.patience.end();
        choice
    }

    fn on_event(&mut self, event: &PathEvent) {
        self.patience.on_event(event);
        self.booked.on_event(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, fresh};
    use anabranch_proto::sched::Decision;
    use anabranch_proto::time::Duration;
    use anabranch_proto::wire::PathId;

    fn path(id: u32, rtt_ms: u64, window: u64, in_flight: u64) -> PathView {
        PathView {
            smoothed_rtt: Duration::from_millis(rtt_ms),
            congestion_window: window * 1000,
            bytes_in_flight: in_flight * 1000,
            max_datagram_size: 1000,
            ..PathView::new(id)
        }
    }

    fn ms(paths: &[PathView], at: usize, queue: u64) -> u64 {
        let view = fresh(paths);
        arrival(&view, &Delays::of(&view), &paths[at], queue) / 1_000_000
    }

    #[test]
    fn a_queue_costs_an_rtt_per_window_begun() {
        let paths = [path(0, 40, 10, 10), path(1, 100, 10, 0)];
        assert_eq!([0, 9, 10].map(|queue| ms(&paths, 0, queue)), [60, 60, 100]);
        assert_eq!([0, 9, 10].map(|queue| ms(&paths, 1, queue)), [50, 50, 150]);
        let choice = Otias::default().select(&fresh(&paths));
        assert_eq!(choice, Choice::send(PathId(1), Reason::EarliestArrival));
    }

    #[test]
    fn a_window_of_data_is_left_to_a_full_path_that_is_still_faster() {
        let paths = [path(0, 20, 10, 10), path(1, 100, 10, 0)];
        let mut otias = Otias::default();
        for _ in 0..3 {
            let behind = Decision::SendAt {
                path: PathId(1),
                skip: 10_000,
            };
            assert_eq!(otias.select(&fresh(&paths)).decision, behind);
        }
        let opened = [path(0, 20, 10, 8), path(1, 100, 10, 3)];
        assert_eq!(
            otias.select(&fresh(&opened)),
            Choice::send(PathId(0), Reason::Planned)
        );
        otias.on_event(&PathEvent::Doubted { path: PathId(0) });
        let choice = otias.select(&fresh(&opened[1..]));
        assert_eq!(choice.decision, Decision::Send(PathId(1)), "owned again");
    }

    #[test]
    fn what_a_full_path_delivers_first_is_waited_for_and_not_for_ever() {
        let paths = [path(0, 20, 10, 10), path(1, 100, 10, 0)];
        let mut otias = Otias::default();
        let mut ask = |ms| {
            let mut view = fresh(&paths);
            view.now = at(ms);
            view.backlog.unsent = 5000;
            otias.select(&view)
        };
        assert_eq!(ask(0), Choice::hold_until(at(20), Reason::WaitForBetter));
        assert_eq!(ask(19), Choice::hold_until(at(20), Reason::WaitForBetter));
        assert_eq!(ask(20).decision, Decision::Send(PathId(1)));
    }

    #[test]
    fn a_paced_path_is_left_what_it_delivers_first() {
        let paced = PathView {
            pacing_rate: 1_000_000,
            pacer_ready: at(1),
            ..path(0, 20, 100, 0)
        };
        let paths = [paced, path(1, 100, 10, 0)];
        // Packets leave at 1, 2, 3 ... ms and take 10 ms; one that leaves now on the other takes
        // 50.
        let behind = Decision::SendAt {
            path: PathId(1),
            skip: 40_000,
        };
        assert_eq!(Otias::default().select(&fresh(&paths)).decision, behind);
    }

    #[test]
    fn measured_delays_take_the_place_of_half_rtts() {
        let forward = |us, path| PathView {
            forward_delay_us: Some(us),
            ..path
        };
        let paths = [
            forward(90_000, path(0, 100, 10, 0)),
            forward(10_000, path(1, 100, 10, 0)),
        ];
        assert_eq!(
            Otias::default().select(&fresh(&paths)).decision,
            Decision::Send(PathId(1))
        );
    }
}
