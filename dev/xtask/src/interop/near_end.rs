//! The near end of a tunnel at a proxy of others, and applications that use it.

use super::cases::{Bench, PATIENCE, ensure};
use super::far_end::Folder;
use super::process::Running;
use anabranch_testbed::resumed;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long a socket waits: everything here takes milliseconds.
const WAIT: Duration = Duration::from_secs(20);
/// Datagrams under way at a time: the queue of some peers takes 32.
const WINDOW: u32 = 16;
/// Bytes of the longest of them.
const LONGEST: u32 = 1_100;
/// Before the port where applications are served.
const SERVES: &str = "SOCKS5 and HTTP CONNECT on ";

/// One that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct NearEnd {
    proxy: SocketAddr,
    // Ended before the folder of its socket goes.
    running: Running,
    sockets: Folder,
}

impl NearEnd {
    /// At the proxy of this URL.
    pub(crate) fn start(bench: &Bench<'_>, url: &str, options: &[&str]) -> Result<Self, String> {
        let mut near = Self::begin(bench, url, &bench.ours.cert, options)?;
        near.running.tells("connected to ")?;
        Ok(near)
    }

    /// One that believes this authority, and need not come to anything.
    pub(crate) fn begin(
        bench: &Bench<'_>,
        url: &str,
        ca: &Path,
        options: &[&str],
    ) -> Result<Self, String> {
        let command = Command::new(&bench.ours.anabranch);
        Self::begin_by(bench, command, url, ca, options)
    }

    /// By this command, which runs ours on some host.
    pub(crate) fn begin_by(
        bench: &Bench<'_>,
        mut command: Command,
        url: &str,
        ca: &Path,
        options: &[&str],
    ) -> Result<Self, String> {
        command
            .args(["tunnel", "join", url])
            .arg("--ca")
            .arg(ca)
            .args(options);
        Self::run(bench, 0, &mut command)
    }

    /// One of several, by its number.
    pub(crate) fn begin_another(bench: &Bench<'_>, number: u16, url: &str) -> Result<Self, String> {
        let mut command = Command::new(&bench.ours.anabranch);
        command.args(["tunnel", "join", url]);
        // Others are known by their pin.
        if url.starts_with("https:") {
            command.arg("--ca").arg(&bench.ours.cert);
        }
        Self::run(bench, number, &mut command)
    }

    fn run(bench: &Bench<'_>, number: u16, command: &mut Command) -> Result<Self, String> {
        let sockets = Folder::new("near", number)?;
        let mut name = "our-near-end".to_owned();
        let mut state = bench.root.clone();
        if number > 0 {
            name = format!("{name}-{number}");
            state.push(&name);
        }
        command
            .args(["--listen", "127.0.0.1:0"])
            .arg("--state")
            .arg(state)
            .env("XDG_RUNTIME_DIR", sockets.path());
        let mut running = bench.start(&name, command)?;
        running.tells(SERVES)?;
        let told = running.told();
        let mut lines = told.lines();
        let proxy = lines.find_map(|line| line.strip_prefix(SERVES)?.parse().ok());
        Ok(Self {
            proxy: proxy.ok_or("our near end says no port")?,
            running,
            sockets,
        })
    }

    /// Where it serves hosts, and its process.
    pub(crate) fn port_and_process(&self) -> String {
        format!("{} {}", self.proxy.port(), self.running.process())
    }

    /// Waits until it says this.
    pub(crate) fn tells(&mut self, words: &str) -> Result<(), String> {
        self.running.tells(words)
    }

    /// What `tunnel why` says of a flow.
    pub(crate) fn why(&self, bench: &Bench<'_>, flow: &str) -> Result<String, String> {
        let mut command = Command::new(&bench.ours.anabranch);
        command
            .args(["tunnel", "why", flow])
            .env("XDG_RUNTIME_DIR", self.sockets.path());
        let mut asked = bench.start("our-question", &mut command)?;
        asked.succeeds(PATIENCE)?;
        Ok(asked.said())
    }

    /// A connection by SOCKS5, or the code of its refusal.
    fn connect(&self, target: &str) -> io::Result<Result<TcpStream, u8>> {
        let (stream, code, _) = self.greet(1, &header(target)?[3..])?;
        Ok(if code == 0 { Ok(stream) } else { Err(code) })
    }

    /// Sends a request of SOCKS5; returns its connection, the code of the answer and its port.
    fn greet(&self, command: u8, target: &[u8]) -> io::Result<(TcpStream, u8, u16)> {
        let mut stream = TcpStream::connect(self.proxy)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&[&[5, 1, 0, 5, command, 0][..], target].concat())?;
        let mut reply = [0; 12];
        stream.read_exact(&mut reply)?;
        Ok((stream, reply[3], u16::from_be_bytes([reply[10], reply[11]])))
    }

    /// That a target is refused with this code of SOCKS5.
    pub(crate) fn ensure_refused(&self, target: &str, code: u8) -> Result<(), String> {
        match self.connect(target).map_err(|e| e.to_string())? {
            Ok(_) => Err(format!("{target} was reached")),
            Err(told) => ensure(told == code, || format!("{target}: {told}, not {code}")),
        }
    }

    /// Sends a file to a target that sends it back, and ends that as it ends this.
    pub(crate) fn echo_file(&self, file: &Path, into: &Path) -> Result<(), String> {
        let moved = || -> io::Result<Result<(), u8>> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let target = listener.local_addr()?.to_string();
            let serving = thread::spawn(move || -> io::Result<()> {
                let (mut stream, _) = listener.accept()?;
                let mut back = stream.try_clone()?;
                io::copy(&mut stream, &mut back)?;
                back.shutdown(Shutdown::Write)
            });
            let mut stream = match self.connect(&target)? {
                Ok(stream) => stream,
                Err(code) => return Ok(Err(code)),
            };
            let content = std::fs::read(file)?;
            let mut sending = stream.try_clone()?;
            let sending = thread::spawn(move || -> io::Result<()> {
                sending.write_all(&content)?;
                sending.shutdown(Shutdown::Write)
            });
            let mut back = Vec::new();
            stream.read_to_end(&mut back)?;
            for one in [sending, serving] {
                one.join()
                    .map_err(|_| io::Error::other("a thread panicked"))??;
            }
            std::fs::write(into, back)?;
            Ok(Ok(()))
        };
        let moved = moved().map_err(|e| format!("TCP: {e}"))?;
        moved.map_err(|code| format!("TCP is refused by {code}"))
    }

    /// Sends so many datagrams to each of so many targets of this host, called by a name or not,
    /// and has all of them back, in their order.
    pub(crate) fn echo(
        &self,
        at: IpAddr,
        name: &str,
        targets: u32,
        count: u32,
    ) -> Result<(), String> {
        let exchanged = || -> io::Result<()> {
            let mut ports = Vec::new();
            for _ in 0..targets {
                ports.push(echo_at(UdpSocket::bind((at, 0))?)?);
            }
            let association = Association::open(self)?;
            for port in ports {
                let asked = if name.contains(':') {
                    format!("[{name}]:{port}")
                } else {
                    format!("{name}:{port}")
                };
                association.exchange(&asked, SocketAddr::new(at, port), count)?;
            }
            Ok(())
        };
        exchanged().map_err(|e| format!("UDP: {e}"))
    }

    /// Sends a datagram to a target from which nothing comes back.
    pub(crate) fn send(&self, target: &str) -> Result<Association, String> {
        let sent = || -> io::Result<Association> {
            let association = Association::open(self)?;
            association.send(target, b"is anybody there?")?;
            Ok(association)
        };
        sent().map_err(|e| format!("UDP: {e}"))
    }
}

/// Datagrams by SOCKS5.
#[derive(Debug)]
pub(crate) struct Association {
    _control: TcpStream,
    socket: UdpSocket,
}

impl Association {
    fn open(near: &NearEnd) -> io::Result<Self> {
        let (control, code, port) = near.greet(3, &[1, 0, 0, 0, 0, 0, 0])?;
        if code != 0 {
            return Err(io::Error::other(format!("no association: {code}")));
        }
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(WAIT))?;
        Ok(Self {
            _control: control,
            socket,
        })
    }

    fn send(&self, target: &str, payload: &[u8]) -> io::Result<()> {
        let datagram = [&header(target)?[..], payload].concat();
        self.socket.send(&datagram).map(|_| ())
    }

    /// Answers come from `from`.
    fn exchange(&self, target: &str, from: SocketAddr, count: u32) -> io::Result<()> {
        let from = header(&from.to_string())?;
        let mut buffer = [0; 2048];
        for begin in (0..count).step_by(WINDOW as usize) {
            let numbers = begin..count.min(begin + WINDOW);
            for number in numbers.clone() {
                self.send(target, &payload(number))?;
            }
            for number in numbers {
                let length = resumed(|| self.socket.recv(&mut buffer)).map_err(|error| {
                    io::Error::other(format!("datagram {number} never comes back: {error}"))
                })?;
                let wanted = [&from[..], &turned(&payload(number))].concat();
                if buffer[..length] != wanted {
                    let what = format!("after {number} datagrams another one came back");
                    return Err(io::Error::other(what));
                }
            }
        }
        Ok(())
    }
}

/// The same for a number each time, and for no other.
fn payload(number: u32) -> Vec<u8> {
    let mut content = number.to_be_bytes().to_vec();
    let length = number * 37 % (LONGEST - 4);
    content.extend((0..length).map(|at| (at * 7 + number) as u8));
    content
}

/// What comes back: nothing else makes that of a payload.
fn turned(payload: &[u8]) -> Vec<u8> {
    payload.iter().map(|byte| !byte).collect()
}

/// Sends back what comes to a socket, turned; returns the port.
pub(crate) fn echo_at(socket: UdpSocket) -> io::Result<u16> {
    let port = socket.local_addr()?.port();
    socket.set_read_timeout(Some(PATIENCE))?;
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length, from)) = resumed(|| socket.recv_from(&mut buffer)) {
            let _ = socket.send_to(&turned(&buffer[..length]), from);
        }
    });
    Ok(port)
}

/// Sends so many datagrams by a socket that is connected, and has all of them back in order.
pub(crate) fn exchange(socket: &UdpSocket, count: u32) -> io::Result<()> {
    socket.set_read_timeout(Some(WAIT))?;
    let mut buffer = [0; 2048];
    for number in 0..count {
        socket.send(&payload(number))?;
        let length = resumed(|| socket.recv(&mut buffer))?;
        if buffer[..length] != turned(&payload(number)) {
            return Err(io::Error::other(format!(
                "another one than {number} came back"
            )));
        }
    }
    Ok(())
}

/// A target in front of a datagram of SOCKS5 (RFC 1928, section 7).
fn header(target: &str) -> io::Result<Vec<u8>> {
    let mut header = vec![0; 3];
    let port = match target.parse() {
        Ok(SocketAddr::V4(it)) => {
            header.push(1);
            header.extend(it.ip().octets());
            it.port()
        }
        Ok(SocketAddr::V6(it)) => {
            header.push(4);
            header.extend(it.ip().octets());
            it.port()
        }
        Err(_) => {
            let (host, port) = target.rsplit_once(':').unwrap_or((target, "0"));
            header.extend([3, host.len() as u8]);
            header.extend(host.as_bytes());
            port.parse().map_err(io::Error::other)?
        }
    };
    header.extend(port.to_be_bytes());
    Ok(header)
}
