//! A separate host for each test: an empty network namespace, with further ones beside it.

use anabranch_testbed::{Node, Testbed};
use std::future::Future;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What usually takes the kernel a moment gets a minute, in case the machine is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `test` in a new host, or skips it where [`Testbed::require`] finds that none can be
/// created.
pub(crate) fn in_namespace<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send) {
    let Some(mut bed) = Testbed::require("net") else {
        return;
    };
    let here = bed.node("here").expect("a namespace");
    // The test sets up the loopback interface itself: in an empty host it is down.
    here.run("ip", &["link", "set", "lo", "down"])
        .expect("down");
    here.enter(|| block_on(test())).expect("a host of ours");
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("runtime").block_on(work)
}

/// A second host, next to the test's own, in which a task runs.
pub(crate) struct Elsewhere {
    node: Node,
    _bed: Testbed,
}

impl Elsewhere {
    /// Runs `task` in a new host until the test ends. The task starts after `prepare`, which may
    /// connect the two hosts.
    pub(crate) fn start<F: Future<Output = ()>>(
        prepare: impl FnOnce(&Self),
        task: impl FnOnce() -> F + Send + 'static,
    ) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("there{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut bed = Testbed::new(&name).expect("as many namespaces as the test wants");
        let node = bed.node("there").expect("a namespace");
        let elsewhere = Self { node, _bed: bed };
        prepare(&elsewhere);
        let node = elsewhere.node.clone();
        // It ends with the test program: nothing joins the thread.
        std::thread::spawn(move || node.enter(|| block_on(task())));
        elsewhere
    }

    /// The name for `ip link set DEV netns`.
    pub(crate) fn name(&self) -> &str {
        self.node.namespace()
    }

    /// Runs `ip` in that host.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let output = self.node.run("ip", &words);
        output.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until both ends of a link from here have a carrier: before that, the kernel silently
    /// drops what is sent.
    pub(crate) fn wait_for_carriers(&self, here: &str, there: &str) {
        wait_for_carrier(here, || ip(&format!("link show dev {here}")));
        wait_for_carrier(there, || self.ip(&format!("link show dev {there}")));
    }
}

/// Runs `ip` with these arguments in the thread's namespace and returns what it printed.
pub(crate) fn ip(arguments: &str) -> String {
    let mut command = Command::new("ip");
    let output = command.args(arguments.split_whitespace()).output();
    let output = output.expect("ip runs");
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until an interface of the thread's namespace has a carrier.
pub(crate) fn wait_until_up(interface: &str) {
    wait_for_carrier(interface, || ip(&format!("link show dev {interface}")));
}

/// The kernel reports a carrier some time after the other end came up.
fn wait_for_carrier(interface: &str, show: impl Fn() -> String) {
    wait_for(interface, || show().contains(" state UP "));
}

/// Waits for something the kernel does asynchronously.
pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
