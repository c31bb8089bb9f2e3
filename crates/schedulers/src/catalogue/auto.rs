//! What to use without knowing the links: the policy that loses least often to the better of them.
//!
//! Today that is the lowest RTT first, with the end of a transfer and what holds up the peer's
//! credit repeated where they come sooner (`reinject+tail+min-rtt`). What is measured to be better
//! takes its place under the same name, so there is nothing to set: `docs/auto.md` has the measure
//! and how the engine helps.

use crate::wrappers::{reinject, tail};
use anabranch_proto::sched::{Entry, MinRtt};

pub(crate) const ENTRY: Entry = Entry {
    name: crate::RECOMMENDED,
    summary: "needs no choice: the lowest RTT first, repairs where they come sooner",
    params: &[],
    build: |_| Ok(reinject::around(tail::around(Box::new(MinRtt)))),
};

#[cfg(test)]
mod tests {
    use crate::tests::{built, idle, path};
    use anabranch_proto::sched::{PathView, SendView};

    const PARTS: &str = "reinject+tail+min-rtt";

    fn answers(spec: &str, view: &SendView<'_>) -> String {
        format!("{:?}", built(spec).select(view))
    }

    #[test]
    fn auto_is_what_it_is_said_to_be_made_of() {
        let copyable = |path: PathView| PathView {
            copyable: true,
            ..path
        };
        let free = [copyable(path(0, 10, 9)), path(1, 90, 1)];
        let same = [copyable(path(0, 10, 9)), path(1, 10, 1)];
        for paths in [&free, &same] {
            for blocked in [false, true] {
                let mut view = idle(paths);
                view.backlog.blocked = blocked;
                assert_eq!(answers("auto", &view), answers(PARTS, &view));
            }
        }
        assert!(answers("auto", &idle(&free)).contains("Copy"));
        let auto = built("auto");
        assert!(auto.wants_copies() && auto.wants_copies_while_blocked());
    }
}
