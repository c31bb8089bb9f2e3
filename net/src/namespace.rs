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

/// A second network namespace, next to the test's own, in which a task runs.
pub(crate) struct Elsewhere {
    thread: nix::unistd::Pid,
}

impl Elsewhere {
    /// Runs `task` in a new namespace until the test ends. The task begins once `prepare` has run,
    /// which may connect the two namespaces.
    pub(crate) fn start<F: Future<Output = ()>>(
        prepare: impl FnOnce(&Self),
        task: impl FnOnce() -> F + Send + 'static,
    ) -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("namespace");
            tell.send(nix::unistd::gettid()).expect("the test waits");
            wait.recv().expect("the test prepares");
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("runtime").block_on(task());
        });
        let elsewhere = Self {
            thread: told.recv().expect("the thread starts"),
        };
        prepare(&elsewhere);
        go.send(()).expect("the thread waits");
        elsewhere
    }

    /// What `ip link set DEV netns` wants to hear.
    pub(crate) fn name(&self) -> String {
        self.thread.to_string()
    }

    /// Runs `ip` there.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        let namespace = format!("--net=/proc/{}/ns/net", self.thread);
        run(Command::new("nsenter").arg(namespace).arg("ip"), arguments)
    }
}

/// Runs `ip` with these arguments in the thread's namespace and returns what it printed.
pub(crate) fn ip(arguments: &str) -> String {
    run(&mut Command::new("ip"), arguments)
}

fn run(command: &mut Command, arguments: &str) -> String {
    let output = command
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
