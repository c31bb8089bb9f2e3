//! Both ends of a tunnel as processes of their own, and clients of its proxy.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use crate::ending;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch");

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

/// How long the last words of a process that has ended may take to be read.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A connection that waits for nothing for ever.
pub fn limited(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(END)).unwrap();
    stream.set_write_timeout(Some(END)).unwrap();
    stream
}

/// Closes a connection so that the other end sees a reset.
pub fn reset(stream: TcpStream) {
    let socket = socket2::Socket::from(stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

/// Connects to `host:port` by SOCKS5, or returns the reply code as text.
pub fn connect_socks(proxy: SocketAddr, target: &str) -> Result<TcpStream, String> {
    let mut stream = limited(TcpStream::connect(proxy).unwrap());
    let (host, port) = target.rsplit_once(':').unwrap();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port: u16 = port.parse().unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    stream.read_exact(&mut method).unwrap();
    assert_eq!(method, [5, 0]);
    let mut request = vec![5, 1, 0, 3, host.len() as u8];
    request.extend_from_slice(host.as_bytes());
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    match reply[1] {
        0 => Ok(stream),
        code => Err(code.to_string()),
    }
}

/// Connects to `host:port` by HTTP, or returns the answer.
pub fn connect_http(proxy: SocketAddr, target: &str) -> Result<TcpStream, String> {
    let mut stream = limited(TcpStream::connect(proxy).unwrap());
    write!(
        stream,
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
    )
    .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let mut head = String::from_utf8(head).unwrap();
    if head.starts_with("HTTP/1.1 200 ") {
        return Ok(stream);
    }
    stream.read_to_string(&mut head).unwrap();
    Err(head)
}

/// A process whose stderr is read while it runs. Killed at the end.
struct Running {
    child: Child,
    said: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let said = Arc::<Mutex<String>>::default();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let saying = Arc::clone(&said);
        let reader = thread::spawn(move || {
            let mut line = String::new();
            while let Ok(1..) = lines.read_line(&mut line) {
                saying.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Self {
            child,
            said,
            reader,
        }
    }

    /// Everything that it said. It has ended, but its last words may still be on their way to the
    /// reader. What children of it say that live on is not waited for.
    fn last_words(&self) -> String {
        let started = Instant::now();
        while !self.reader.is_finished() && started.elapsed() < LAST_WORDS {
            thread::sleep(Duration::from_millis(5));
        }
        self.said.lock().unwrap().clone()
    }

    /// Waits for words on stderr; returns all of them.
    #[track_caller]
    fn wait_for(&self, words: &str) -> String {
        let started = Instant::now();
        loop {
            let said = self.said.lock().unwrap().clone();
            if said.contains(words) {
                return said;
            }
            assert!(started.elapsed() < END, "`{words}` is not in: {said}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to end and waits until it has.
    #[track_caller]
    fn stop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return assert!(status.success(), "{status}: {}", self.last_words());
            }
            assert!(started.elapsed() < END, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tunnel(state: &TempDir, command: &str) -> Command {
    let mut tunnel = Command::new(PROGRAM);
    tunnel
        .args(["tunnel", command, "--state"])
        .arg(state.path())
        .env("XDG_RUNTIME_DIR", state.path());
    tunnel
}

/// A command such as `status`, carried out where nodes of this state directory run.
pub fn ask(state: &TempDir, words: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command
        .arg("tunnel")
        .args(words)
        .env("XDG_RUNTIME_DIR", state.path());
    ending::output(&mut command)
}

/// A far end that leads to 127.0.0.1.
pub struct Far {
    state: TempDir,
    running: Running,
    pub url: String,
}

impl Far {
    pub fn start(options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), 0, options)
    }

    pub fn start_in(state: TempDir, port: u16, options: &[&str]) -> Self {
        let mut command = tunnel(&state, "serve");
        command
            .args([
                "--listen",
                &format!("127.0.0.1:{port}"),
                "--allow",
                "127.0.0.1",
            ])
            .args(options)
            .stdout(Stdio::piped());
        let mut running = Running::start(&mut command);
        let mut url = String::new();
        let mut lines = BufReader::new(running.child.stdout.take().unwrap());
        lines.read_line(&mut url).unwrap();
        assert!(
            url.contains("/join/"),
            "{url}{}",
            running.said.lock().unwrap()
        );
        Self {
            state,
            running,
            url: url.trim().to_owned(),
        }
    }

    pub fn port(&self) -> u16 {
        let host = self.url.split_once('@').unwrap().1;
        let port = host.split_once('/').unwrap().0.rsplit_once(':').unwrap().1;
        port.parse().unwrap()
    }

    /// Where it keeps what it remembers.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Waits for words on its stderr.
    #[track_caller]
    pub fn wait_for(&self, words: &str) -> String {
        self.running.wait_for(words)
    }

    /// A command about it, such as `clients`, carried out where it runs.
    pub fn ask(&self, words: &[&str]) -> Output {
        ask(&self.state, words)
    }

    /// Kills it and starts it again.
    pub fn restart(mut self) -> Self {
        let port = self.port();
        self.running.child.kill().unwrap();
        self.running.child.wait().unwrap();
        Self::start_in(self.state, port, &[])
    }

    /// Ends it: its URL, what it keeps, and its port.
    pub fn leave(mut self) -> (String, TempDir, u16) {
        self.running.stop();
        let port = self.port();
        (self.url, self.state, port)
    }

    pub fn stop(mut self) {
        self.running.stop();
    }
}

/// A near end.
pub struct Near {
    state: TempDir,
    running: Running,
    pub proxy: SocketAddr,
}

impl Near {
    pub fn join(far: &Far) -> Self {
        Self::join_in(tempfile::tempdir().unwrap(), &far.url, &[])
    }

    /// Starts it and waits until it is let in.
    pub fn join_in(state: TempDir, url: &str, options: &[&str]) -> Self {
        let near = Self::start(state, url, options);
        near.wait_for("connected to");
        near
    }

    pub fn start(state: TempDir, url: &str, options: &[&str]) -> Self {
        let mut command = tunnel(&state, "join");
        command.args([url, "--listen", "127.0.0.1:0"]).args(options);
        let running = Running::start(command.stdout(Stdio::null()));
        let said = running.wait_for("SOCKS5 and HTTP CONNECT on ");
        let proxy = said
            .lines()
            .find_map(|line| line.strip_prefix("SOCKS5 and HTTP CONNECT on "));
        Self {
            // The last of them, if a test asked for one more.
            proxy: proxy.unwrap().rsplit(", ").next().unwrap().parse().unwrap(),
            state,
            running,
        }
    }

    /// How one ends that is not let in.
    pub fn refused(url: &str) -> Output {
        Self::refused_with(url, &[])
    }

    /// The same with options.
    pub fn refused_with(url: &str, options: &[&str]) -> Output {
        let state = tempfile::tempdir().unwrap();
        let mut command = tunnel(&state, "join");
        ending::output(command.args([url, "--listen", "127.0.0.1:0"]).args(options))
    }

    pub fn wait_for(&self, words: &str) -> String {
        self.running.wait_for(words)
    }

    /// A command about it, such as `status`, carried out where it runs.
    pub fn ask(&self, words: &[&str]) -> Output {
        ask(&self.state, words)
    }

    /// How it ends by itself.
    #[track_caller]
    pub fn ended(mut self) -> (Option<i32>, String) {
        let started = Instant::now();
        loop {
            if let Some(status) = self.running.child.try_wait().unwrap() {
                return (status.code(), self.running.last_words());
            }
            assert!(started.elapsed() < END, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it: what it keeps.
    pub fn stop(mut self) -> TempDir {
        self.running.stop();
        self.state
    }
}
