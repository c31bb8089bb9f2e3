//! What systemd is told by the ends of a tunnel, with a socket of ours in its place; and metrics.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use anabranch_testbed::resumed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

/// A manager of services, and an end of a tunnel that it has started.
struct Service {
    socket: UnixDatagram,
    child: Child,
    stderr: BufReader<ChildStderr>,
    first_line: String,
    _directory: TempDir,
}

impl Service {
    /// Starts one that has to give a sign of life every two seconds.
    fn start(words: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("notify");
        let socket = UnixDatagram::bind(&at).unwrap();
        socket.set_read_timeout(Some(END)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_anabranch"))
            .arg("tunnel")
            .args(words)
            .arg("--state")
            .arg(directory.path())
            .env("XDG_RUNTIME_DIR", directory.path())
            .env("NOTIFY_SOCKET", &at)
            .env("WATCHDOG_USEC", "2000000")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first_line = String::new();
        if words[0] == "serve" {
            let mut stdout = BufReader::new(child.stdout.take().unwrap());
            stdout.read_line(&mut first_line).unwrap();
        }
        Self {
            socket,
            stderr: BufReader::new(child.stderr.take().unwrap()),
            first_line: first_line.trim().to_owned(),
            child,
            _directory: directory,
        }
    }

    /// What it says next.
    #[track_caller]
    fn hear(&self) -> String {
        let mut buffer = [0; 4096];
        let length = resumed(|| self.socket.recv(&mut buffer)).expect("it says something in time");
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// Hears it out until it says this, for a bounded number of messages.
    #[track_caller]
    fn hear_until(&self, words: &str) -> String {
        let mut heard = String::new();
        for _ in 0..40 {
            heard = self.hear();
            if heard.contains(words) {
                return heard;
            }
        }
        panic!("it never says `{words}`, but {heard}");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Where its metrics are.
    fn metrics(&mut self) -> u16 {
        let mut line = String::new();
        while !line.starts_with("metrics on http://") {
            line.clear();
            assert!(
                self.stderr.read_line(&mut line).unwrap() > 0,
                "it says where metrics are"
            );
        }
        let port = line.split(':').nth(2).unwrap().split('/').next().unwrap();
        port.parse().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer to a request.
fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(END)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn both_ends_tell_when_they_are_ready_what_they_do_and_that_they_live() {
    let far = Service::start(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(far.hear(), "READY=1\n");
    assert_eq!(far.hear(), "WATCHDOG=1\nSTATUS=listening, 0 connected\n");
    let near = Service::start(&["join", &far.first_line, "--listen", "127.0.0.1:0"]);
    assert_eq!(near.hear(), "READY=1\n");
    let told = near.hear_until("STATUS=connected to ");
    assert!(told.starts_with("WATCHDOG=1\n"), "{told}");
    far.hear_until("STATUS=listening, 1 connected");
    near.signal(Signal::SIGINT);
    near.hear_until("STOPPING=1");
}

#[test]
fn one_that_does_nothing_any_more_gives_no_sign_of_life() {
    let far = Service::start(&["serve", "--listen", "127.0.0.1:0"]);
    far.hear_until("WATCHDOG=1");
    far.signal(Signal::SIGSTOP);
    // What it said before that.
    far.socket.set_nonblocking(true).unwrap();
    while far.socket.recv(&mut [0; 4096]).is_ok() {}
    far.socket.set_nonblocking(false).unwrap();
    far.socket
        .set_read_timeout(Some(Duration::from_secs(3)))
        .unwrap();
    // It may have said something on the way into its sleep.
    let late = (0..3).take_while(|_| resumed(|| far.socket.recv(&mut [0; 4096])).is_ok());
    assert!(late.count() < 3);
    far.socket.set_read_timeout(Some(END)).unwrap();
    far.signal(Signal::SIGCONT);
    far.hear_until("WATCHDOG=1");
}

#[test]
fn metrics_and_health_follow_what_the_tunnel_does() {
    let mut far = Service::start(&["serve", "--listen", "127.0.0.1:0", "--metrics", ":0"]);
    let at_far = far.metrics();
    assert!(get(at_far, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    let words = [
        "join",
        &far.first_line,
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        ":0",
    ];
    let mut near = Service::start(&words);
    let at_near = near.metrics();
    near.hear_until("STATUS=connected to ");
    let page = get(at_near, "/metrics");
    assert!(page.contains("\nanabranch_healthy 1\n"), "{page}");
    assert!(
        page.contains("\nanabranch_path_state{path=\"any\",state=\"open\"} 1\n"),
        "{page}"
    );
    assert!(get(at_near, "/healthz").contains("\r\n\r\nconnected to "));
    assert!(get(at_far, "/metrics").contains("\nanabranch_clients_connected 1\n"));
    far.signal(Signal::SIGINT);
    near.hear_until("STATUS=not connected: ");
    let told = get(at_near, "/healthz");
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    assert!(told.contains("\r\n\r\nnot connected: "), "{told}");
}
