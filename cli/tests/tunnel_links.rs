//! A tunnel over several links: what one connection of an application gets out of them, and what
//! it notices when they are cut.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use anabranch_testbed::{Rate, resumed};
use common::figures::{content_rate, mbit};
use common::process::Process;
use common::translator::Translator;
use common::{Family, Lab, PROGRAM, files::noise, judge, measured};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

const END: Duration = Duration::from_secs(120);

/// Where the near end listens, in the namespace of the client.
const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

/// The server's address, by every link.
const SERVER: &str = "10.99.0.1";

/// A service of the server, which the far end is allowed to lead to.
const SERVICE: &str = "10.99.0.1:8000";

/// The server's address that a translator knows, and the translator's own before it.
const BEHIND_TRANSLATOR: &str = "10.101.0.2";
const OUTER: [&str; 2] = ["10.101.0.1", "10.101.0.3"];

/// Links, and a tunnel over all of them.
struct Tunnel {
    lab: Lab,
    service: TcpListener,
    near: Process,
    far: Process,
}

impl Tunnel {
    fn over(name: &str, rates: &[Rate]) -> Option<Self> {
        Some(Self::within(Lab::new(name, rates)?, &[]))
    }

    /// The first of two links is behind a translator, which reaches the far end at this address.
    fn behind_translator(name: &str, rates: &[Rate; 2]) -> Option<(Self, Translator)> {
        let lab = Lab::behind_gateways(name, rates)?;
        let gateway = &lab.gateways[0];
        let run = |words: &[&str]| gateway.run("ip", words).unwrap();
        run(&["address", "add", "10.99.0.1/32", "dev", "lo"]);
        let uplink = run(&["-o", "route", "get", BEHIND_TRANSLATOR]);
        let uplink = uplink.split_once(" dev ").unwrap().1;
        let uplink = uplink.split_whitespace().next().unwrap();
        run(&["address", "add", &format!("{}/24", OUTER[1]), "dev", uplink]);
        let [inner, far] = [SERVER, BEHIND_TRANSLATOR].map(|ip| format!("{ip}:4434"));
        let (inner, far) = (inner.parse().unwrap(), far.parse().unwrap());
        let translator = Translator::start(gateway, inner, far, OUTER[0]);
        let listen = ["--listen", BEHIND_TRANSLATOR, "--advertise", SERVER];
        Some((Self::within(lab, &listen), translator))
    }

    /// Starts both ends in a network, with further options of the far end.
    fn within(lab: Lab, more: &[&str]) -> Self {
        let links = lab.links.len();
        let mut command = common::program(&lab.server);
        let state = lab.path("far");
        command
            .args([
                "tunnel",
                "serve",
                "--listen",
                SERVER,
                "--allow",
                "10.99.0.1,8000",
            ])
            .args(more)
            .arg("--state")
            .arg(&state)
            .env("XDG_RUNTIME_DIR", &state);
        let mut far = Process::start(&mut command, &lab.directory);
        let url = far.first_line();
        let mut command = common::program(&lab.client);
        let state = lab.path("near");
        command
            .args(["tunnel", "join", &url, "--state"])
            .arg(&state);
        command.env("XDG_RUNTIME_DIR", &state);
        for at in 0..links {
            command.args(["--path", &format!("path{at}")]);
        }
        let near = Process::start(command.arg("-v"), &lab.directory);
        let service = lab
            .server
            .enter(|| TcpListener::bind(SERVICE))
            .unwrap()
            .unwrap();
        let tunnel = Self {
            lab,
            service,
            near,
            far,
        };
        for at in 0..links {
            tunnel.hear(&format!("path{at} (10.{}.0.1): up", at + 1));
        }
        tunnel
    }

    /// Waits until the near end has said this.
    fn hear(&self, words: &str) {
        self.hear_times(words, 1);
    }

    /// Waits until the near end has said this so often.
    fn hear_times(&self, words: &str, times: usize) {
        let started = Instant::now();
        while self.near.stderr().matches(words).count() < times {
            assert!(
                started.elapsed() < END,
                "`{words}` is not in: {}",
                self.near.stderr()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks the near end.
    fn ask(&self, words: &[&str]) -> std::process::Output {
        self.ask_end("near", words)
    }

    /// Asks the end `near` or `far`.
    fn ask_end(&self, end: &str, words: &[&str]) -> std::process::Output {
        let host = match end {
            "near" => &self.lab.client,
            _ => &self.lab.server,
        };
        let mut command = common::program(host);
        command
            .args(words)
            .env("XDG_RUNTIME_DIR", self.lab.path(end));
        command.output().unwrap()
    }

    /// A connection through the tunnel: its two ends.
    fn connect(&self) -> (TcpStream, TcpStream) {
        let mut stream = self
            .lab
            .client
            .enter(|| TcpStream::connect(PROXY))
            .unwrap()
            .unwrap();
        stream.set_read_timeout(Some(END)).unwrap();
        write!(stream, "CONNECT {SERVICE} HTTP/1.1\r\n\r\n").unwrap();
        let accepted = self.service.accept().unwrap().0;
        let mut answer = [0; 39];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 Connection established\r\n\r\n");
        (stream, accepted)
    }
}

/// A UDP flow from the client to the service through the tunnel.
struct Association {
    /// It lasts as long as this.
    _control: TcpStream,
    host: UdpSocket,
    service: UdpSocket,
}

/// What precedes the payload of each datagram to and from the service: an IPv4 address and a port.
const TO_SERVICE: [u8; 10] = [0, 0, 0, 1, 10, 99, 0, 1, 0x1f, 0x40];

impl Association {
    fn open(tunnel: &Tunnel) -> Self {
        let service = tunnel.lab.server.enter(|| UdpSocket::bind(SERVICE));
        let (mut control, host) = tunnel
            .lab
            .client
            .enter(|| {
                let control = TcpStream::connect(PROXY).unwrap();
                (control, UdpSocket::bind("127.0.0.1:0").unwrap())
            })
            .unwrap();
        control.set_read_timeout(Some(END)).unwrap();
        control
            .write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0])
            .unwrap();
        let mut reply = [0; 12];
        control.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..10], [5, 0, 5, 0, 0, 1, 127, 0, 0, 1]);
        let port = u16::from_be_bytes([reply[10], reply[11]]);
        host.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        host.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let service = service.unwrap().unwrap();
        service.set_read_timeout(Some(END)).unwrap();
        Self {
            _control: control,
            host,
            service,
        }
    }

    /// Sends numbers to the service, one every 20 ms, which sends them back; `at` is called with
    /// each before it is sent. Returns those that came back, in their order, and the longest time
    /// between two of them.
    fn numbers(&self, count: u32, mut at: impl FnMut(u32)) -> (Vec<u32>, Duration) {
        let echoing = echo(self.service.try_clone().unwrap());
        let host = self.host.try_clone().unwrap();
        let hearing = thread::spawn(move || {
            let (mut numbers, mut gap) = (Vec::new(), Duration::ZERO);
            let (mut last, mut buffer) = (Instant::now(), [0; 2048]);
            // Two seconds of silence are the end.
            while let Ok(length) = resumed(|| host.recv(&mut buffer)) {
                assert_eq!(buffer[..10], TO_SERVICE, "{length}");
                if !numbers.is_empty() {
                    gap = gap.max(last.elapsed());
                }
                last = Instant::now();
                numbers.push(u32::from_be_bytes(buffer[10..14].try_into().unwrap()));
            }
            (numbers, gap)
        });
        for number in 0..count {
            at(number);
            let payload = [&number.to_be_bytes()[..], &[0; 156]].concat();
            self.host
                .send(&[&TO_SERVICE[..], &payload].concat())
                .unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        let heard = hearing.join().unwrap();
        // An empty datagram of its own ends the service.
        let end = self.service.local_addr().unwrap();
        self.service.send_to(&[], end).unwrap();
        echoing.join().unwrap();
        heard
    }
}

/// Round trips of datagrams, one every 20 ms or as soon as the one before is back, to whoever sends
/// them back: the median and the 99th percentile. `before` precedes each payload.
fn round_trips(socket: &UdpSocket, before: &[u8], count: u32) -> (Duration, Duration) {
    let mut buffer = [0; 2048];
    let mut times: Vec<Duration> = (0..count)
        .map(|number| {
            let payload = [before, &number.to_be_bytes()].concat();
            let started = Instant::now();
            socket.send(&payload).unwrap();
            // A lost one counts as long as it was waited for.
            while let Ok(length) = resumed(|| socket.recv(&mut buffer)) {
                if buffer[..length] == payload {
                    break;
                }
            }
            let took = started.elapsed();
            thread::sleep(Duration::from_millis(20).saturating_sub(took));
            took
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    (at(0.5), at(0.99))
}

/// Sends back what comes, until an empty datagram does.
fn echo(service: UdpSocket) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((length @ 1.., from)) = resumed(|| service.recv_from(&mut buffer)) {
            service.send_to(&buffer[..length], from).unwrap();
        }
    })
}

/// What the tunnel adds to a round trip: idle, and while it is full in both directions.
#[test]
fn a_ping_beside_transfers_that_fill_the_tunnel_stays_quick() {
    const PINGS: u32 = 200;
    measured("tunnel, ping under load", || {
        let tunnel = Tunnel::over("tunnel-ping", &[Rate::mbit(20); 2])?;
        let association = Association::open(&tunnel);
        let echoing = echo(association.service.try_clone().unwrap());
        let direct = tunnel
            .lab
            .client
            .enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        let direct = direct.unwrap();
        direct.connect(SERVICE).unwrap();
        direct
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        let beside = round_trips(&direct, &[], PINGS);
        let idle = round_trips(&association.host, &TO_SERVICE, PINGS);
        let (up, down) = (tunnel.connect(), tunnel.connect());
        let busy = [up, (down.1, down.0)].map(upload);
        thread::sleep(Duration::from_millis(500));
        let full = round_trips(&association.host, &TO_SERVICE, PINGS);
        for (draining, filling) in busy {
            draining.join().unwrap();
            filling.join().unwrap();
        }
        let end = association.service.local_addr().unwrap();
        association.service.send_to(&[], end).unwrap();
        echoing.join().unwrap();
        let words = format!(
            "median and 99th percentile: {beside:.2?} beside the tunnel, {idle:.2?} through it, \
             {full:.2?} while it is full"
        );
        eprintln!("{words}");
        // A queue of what the links lack would be some hundred milliseconds.
        let bound = idle.0.mul_f64(1.5) + Duration::from_millis(30);
        Some(judge(&[(full.0 < bound, words)]))
    });
}

/// Sends `length` bytes from one end to the other, and calls `during` after each megabyte that
/// arrived. Returns how long it took.
fn transfer(
    from: TcpStream,
    to: TcpStream,
    length: usize,
    mut during: impl FnMut(usize),
) -> Duration {
    let mut megabytes = 0;
    transfer_and_hear(from, to, length, |got| {
        if got / 1_000_000 > megabytes {
            megabytes = got / 1_000_000;
            during(megabytes);
        }
    })
}

/// The same, with a call whenever something arrived, with all that has so far.
fn transfer_and_hear(
    mut from: TcpStream,
    mut to: TcpStream,
    length: usize,
    mut heard: impl FnMut(usize),
) -> Duration {
    let data = noise(length);
    let expected = data.clone();
    let sending = thread::spawn(move || {
        from.write_all(&data).unwrap();
        from
    });
    let (started, mut got) = (Instant::now(), Vec::with_capacity(length));
    let mut buffer = vec![0; 64 << 10];
    while got.len() < length {
        let count = resumed(|| to.read(&mut buffer)).unwrap();
        assert!(count > 0, "it ended after {} bytes", got.len());
        got.extend_from_slice(&buffer[..count]);
        heard(got.len());
    }
    let took = started.elapsed();
    assert!(got == expected, "the same bytes in the same order");
    drop(sending.join().unwrap());
    took
}

#[test]
fn one_connection_gets_nearly_the_sum_of_two_links_each_way() {
    let length = 12_000_000;
    for direction in ["down", "up"] {
        measured(&format!("tunnel, {direction}"), || {
            let tunnel = Tunnel::over("tunnel-sum", &[Rate::mbit(20); 2])?;
            let (host, service) = tunnel.connect();
            let (from, to) = match direction {
                "down" => (service, host),
                _ => (host, service),
            };
            let took = transfer(from, to, length, |_| {});
            let rate = length as f64 * 8.0 / took.as_secs_f64();
            let sum = content_rate(40e6, 1452.0, Family::V4);
            eprintln!("{direction}: {} of {}", mbit(rate), mbit(sum));
            let words = format!("{} of {}", mbit(rate), mbit(sum));
            Some(judge(&[(rate > 0.9 * sum, words)]))
        });
    }
}

#[test]
fn a_connection_survives_the_cut_of_each_link_in_turn() {
    let Some(mut tunnel) = Tunnel::over("tunnel-cuts", &[Rate::mbit(20); 2]) else {
        return;
    };
    let (host, service) = tunnel.connect();
    let lab = &mut tunnel.lab;
    transfer(service, host, 16_000_000, |megabytes| match megabytes {
        3 => lab.set_up(0, false),
        6 => lab.set_up(0, true),
        10 => lab.set_up(1, false),
        13 => lab.set_up(1, true),
        _ => {}
    });
}

#[test]
fn a_udp_flow_goes_on_in_order_and_once_when_a_link_is_cut() {
    const CUT: u32 = 100;
    /// A second later.
    const SETTLED: u32 = CUT + 50;
    const ALL: u32 = 300;
    let Some(mut tunnel) = Tunnel::over("tunnel-udp", &[Rate::mbit(20); 2]) else {
        return;
    };
    let association = Association::open(&tunnel);
    let lab = &mut tunnel.lab;
    let (numbers, gap) = association.numbers(ALL, |number| {
        if number == CUT {
            lab.set_up(0, false);
        }
    });
    let lost = ALL as usize - numbers.len();
    eprintln!("{lost} of {ALL} lost, {gap:?} between two of them at most");
    let mut once = numbers.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), numbers.len(), "each once");
    let later: Vec<u32> = numbers.into_iter().filter(|n| *n >= SETTLED).collect();
    let all: Vec<u32> = (SETTLED..ALL).collect();
    assert_eq!(later, all, "all of them, in order");
}

/// The mapping changes under a download and a flow of datagrams, so the server's packets go to a
/// port that nobody reads until the client's next packet came by the new one.
#[test]
fn flows_go_on_while_the_translator_of_a_link_changes_its_mapping_again_and_again() {
    const NUMBERS: u32 = 500;
    const EVERY: u32 = 80;
    /// Some 100 ms are usual; a machine that is busy adds to that.
    const SILENCE: Duration = Duration::from_secs(1);
    let rates = [Rate::mbit(20); 2];
    let Some((tunnel, mut translator)) = Tunnel::behind_translator("tunnel-nat", &rates) else {
        return;
    };
    let association = Association::open(&tunnel);
    let (host, service) = tunnel.connect();
    let downloading = thread::spawn(move || download(service, host, 32_000_000));
    let mut mapping = None;
    let (numbers, gap) = association.numbers(NUMBERS, |number| {
        if number % EVERY == EVERY / 2 {
            let times = number / EVERY;
            mapping = Some(translator.remap(OUTER[times as usize % 2]));
        }
    });
    let silence = downloading.join().unwrap();
    let lost = NUMBERS as usize - numbers.len();
    eprintln!("silent for {silence:.0?} at most; {lost} numbers lost, {gap:.0?} between two");
    assert!(
        silence < SILENCE && gap < SILENCE,
        "{silence:?} and {gap:?}"
    );
    assert!(lost < 25, "{lost} lost");
    let once: BTreeSet<u32> = numbers.iter().copied().collect();
    assert_eq!(once.len(), numbers.len(), "each once");
    let shown = |end: &str, words: &[&str]| {
        let asked = tunnel.ask_end(end, words);
        serde_json::from_slice::<serde_json::Value>(&asked.stdout).unwrap()
    };
    let near = shown("near", &["tunnel", "status", "--json"]);
    let counts = &near["connections"];
    assert_eq!((&counts["made"], &counts["failed"]), (&2.into(), &0.into()));
    let mapping = mapping.unwrap().to_string();
    // A path without traffic moves with its next question.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let far = shown("far", &["tunnel", "paths", "--json"]);
        let remotes = far["paths"].as_array().unwrap().iter();
        let mut remotes = remotes.map(|path| path["remote"].as_str().unwrap());
        if remotes.any(|remote| remote == mapping) {
            break;
        }
        assert!(Instant::now() < end, "{mapping}: {far}");
        thread::sleep(Duration::from_millis(200));
    }
    let said = tunnel.near.stderr();
    assert_eq!(said.matches("path0 (10.1.0.1): up").count(), 1, "{said}");
}

/// Sends so many bytes from one end to the other; returns the longest time without any.
fn download(from: TcpStream, to: TcpStream, length: usize) -> Duration {
    let (mut last, mut silence) = (None::<Instant>, Duration::ZERO);
    transfer_and_hear(from, to, length, |_| {
        let now = Instant::now();
        silence = silence.max(last.map_or(Duration::ZERO, |last| now - last));
        last = Some(now);
    });
    silence
}

#[test]
fn a_link_that_fails_again_and_again_stands_by() {
    let Some(mut tunnel) = Tunnel::over("tunnel-flapping", &[Rate::mbit(20); 2]) else {
        return;
    };
    let (draining, filling) = upload_for(tunnel.connect(), Duration::from_secs(12));
    for times in 1..=3 {
        tunnel.hear_times("path1 (10.2.0.1): up", times);
        thread::sleep(Duration::from_millis(500));
        tunnel.lab.set_up(1, false);
        tunnel.hear_times("path1 (10.2.0.1): down", times);
        tunnel.lab.set_up(1, true);
    }
    tunnel.hear("path1 fell silent 3 times within a minute: a backup for 30 s");
    tunnel.hear_times("path1 (10.2.0.1): up", 4);
    let asked = tunnel.ask(&["tunnel", "status", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
    let path = |name: &str| {
        let mut paths = shown["paths"].as_array().unwrap().iter();
        paths.find(|path| path["interface"] == name).unwrap()
    };
    assert_eq!(path("path1")["state"], "quarantine", "{shown}");
    let reason = path("path1")["quarantine"]["reason"].as_str().unwrap();
    assert_eq!(reason, "fell silent 3 times within a minute");
    assert_eq!(path("path0")["state"], "open");
    assert!(path("path0")["share"].as_f64().unwrap() > 0.9, "{shown}");
    draining.join().unwrap();
    filling.join().unwrap();
}

/// Longer than connections usually live without a sign of life. With `ANABRANCH_LONG=1`.
#[test]
fn a_connection_outlives_forty_seconds_without_any_link() {
    if !common::is_long() {
        return;
    }
    let Some(mut tunnel) = Tunnel::over("tunnel-outage", &[Rate::mbit(20); 2]) else {
        return;
    };
    let (host, service) = tunnel.connect();
    let lab = &mut tunnel.lab;
    let took = transfer(service, host, 8_000_000, |megabytes| {
        if megabytes == 3 {
            (0..2).for_each(|at| lab.set_up(at, false));
            thread::sleep(Duration::from_secs(40));
            (0..2).for_each(|at| lab.set_up(at, true));
        }
    });
    assert!(took < Duration::from_secs(55), "it went on soon: {took:?}");
}

#[test]
fn busy_uploads_do_not_make_other_connections_wait() {
    // As many as fill what a connection keeps of all streams, were each to use its whole window.
    const UPLOADS: usize = 80;
    measured("tunnel, latency under load", || {
        let tunnel = Tunnel::over("tunnel-busy", &[Rate::mbit(10); 2])?;
        let busy: Vec<_> = (0..UPLOADS).map(|_| upload(tunnel.connect())).collect();
        thread::sleep(Duration::from_secs(2));
        let mut worst = Duration::ZERO;
        for _ in 0..5 {
            let started = Instant::now();
            let (mut host, mut service) = tunnel.connect();
            host.write_all(b"?").unwrap();
            service.read_exact(&mut [0]).unwrap();
            service.write_all(b"!").unwrap();
            host.read_exact(&mut [0]).unwrap();
            worst = worst.max(started.elapsed());
        }
        for (draining, filling) in busy {
            draining.join().unwrap();
            filling.join().unwrap();
        }
        let words = format!(
            "three round trips beside {UPLOADS} uploads took {} ms",
            worst.as_millis()
        );
        eprintln!("{words}");
        Some(judge(&[(worst < Duration::from_millis(600), words)]))
    });
}

/// Sends as much as there is room for, for some seconds: the receiver, then the sender.
fn upload(ends: (TcpStream, TcpStream)) -> (Busy, Busy) {
    upload_for(ends, Duration::from_secs(5))
}

fn upload_for((mut host, mut service): (TcpStream, TcpStream), time: Duration) -> (Busy, Busy) {
    let filling = thread::spawn(move || while host.write_all(&vec![0; 64 << 10]).is_ok() {});
    let draining = thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        let started = Instant::now();
        while started.elapsed() < time {
            assert!(resumed(|| service.read(&mut buffer)).unwrap() > 0);
        }
    });
    (draining, filling)
}

type Busy = thread::JoinHandle<()>;

#[test]
fn many_connections_take_little_memory() {
    const FLOWS: usize = 256;
    let Some(tunnel) = Tunnel::over("tunnel-many", &[Rate::mbit(50); 2]) else {
        return;
    };
    let before = tunnel.near.memory_kib() + tunnel.far.memory_kib();
    let mut flows: Vec<_> = (0..FLOWS).map(|_| tunnel.connect()).collect();
    for (host, service) in &mut flows {
        host.write_all(&vec![1; 1000]).unwrap();
        service.read_exact(&mut vec![0; 1000]).unwrap();
        service.write_all(&vec![2; 10_000]).unwrap();
        host.read_exact(&mut vec![0; 10_000]).unwrap();
    }
    let after = tunnel.near.memory_kib() + tunnel.far.memory_kib();
    let each = (after - before) / FLOWS as u64;
    eprintln!("{FLOWS} connections: {before} KiB, then {after} KiB: {each} KiB each; {PROGRAM}");
    assert!(each <= 128, "{each} KiB each");
}
