//! A network namespace per test: an empty network that disappears with the thread it was made on.

use std::future::Future;
use std::process::Command;

/// Runs `test` in a new network namespace, or not at all where namespaces may not be made.
pub(crate) fn in_namespace<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::spawn(move || {
        if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
            eprintln!("skipped: no network namespace ({error})");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("runtime").block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these arguments in the thread's namespace and returns what it printed.
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("ip runs");
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
