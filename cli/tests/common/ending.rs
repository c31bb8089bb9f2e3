//! Waits for programs under test that should end by themselves.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a client may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(300);

/// Runs a program to its end, with no input.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    ended(piped.stdin(Stdio::null()).spawn().unwrap())
}

/// Waits for a program to end by itself, and kills one that does not.
#[track_caller]
pub fn ended(child: Child) -> Output {
    let pid = Pid::from_raw(child.id().cast_signed());
    let (send, recv) = mpsc::channel();
    thread::spawn(move || send.send(child.wait_with_output()));
    if let Ok(output) = recv.recv_timeout(END) {
        return output.unwrap();
    }
    let _ = kill(pid, Signal::SIGKILL);
    panic!("process {pid} does not end in {END:?}");
}
