//! A constant window: what the analytic models of the literature assume. It does not react to
//! congestion, so it is for simulations and for links that nobody else uses.

use super::registry::Entry;
use super::window::InitialWindow;
use super::{AckEvent, CongestionEvent, Controller, Member};
use crate::time::Instant;

pub(super) const ENTRY: Entry = Entry {
    name: "constant",
    summary: "a window that never changes: for simulations and links of one's own",
    params: &[InitialWindow::DOC],
    build: |params, init| {
        Ok(Box::new(Constant {
            mds: u64::from(init.max_datagram_size),
            window: InitialWindow::take(params)?,
        }))
    },
};

#[derive(Debug)]
struct Constant {
    mds: u64,
    window: InitialWindow,
}

impl Controller for Constant {
    fn on_ack(&mut self, _event: &AckEvent, _group: &[Member]) {}

    fn on_congestion(&mut self, _event: &CongestionEvent, _group: &[Member]) {}

    fn is_coupled(&self) -> bool {
        false
    }

    fn on_mtu(&mut self, max_datagram_size: u16) {
        self.mds = u64::from(max_datagram_size);
    }

    fn restart(&mut self, _now: Instant) {}

    fn window(&self) -> u64 {
        self.window.bytes(self.mds)
    }

    fn ssthresh(&self) -> u64 {
        self.window()
    }

    fn phase(&self) -> &'static str {
        "constant"
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ack, at, controller, loss};

    #[test]
    fn nothing_changes_a_constant_window_but_the_size_of_packets() {
        let mut constant = controller("constant:initial-window=7");
        constant.on_ack(&ack(10, 5, 1200), &[]);
        constant.on_congestion(&loss(20, 15, 1200), &[]);
        constant.restart(at(30));
        assert_eq!((constant.window(), constant.phase()), (8400, "constant"));
        constant.on_mtu(1400);
        assert_eq!(constant.window(), 9800);
    }
}
