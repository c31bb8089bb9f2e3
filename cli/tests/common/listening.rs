//! Servers that tests start themselves.

#![allow(unreachable_pub, reason = "each test file includes it")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// Starts `serve` and waits until it prints its URL.
pub fn start(command: &mut Command) -> (Child, String) {
    let mut process = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    let mut lines = BufReader::new(process.stdout.take().unwrap());
    lines.read_line(&mut url).unwrap();
    // Keeps the pipe open, so that the server can write to it later.
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    (process, url.trim().to_owned())
}
