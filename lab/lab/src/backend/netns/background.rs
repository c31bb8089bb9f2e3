//! Background traffic between the same ends as in the simulator, sent by threads of this process
//! whose sockets are in the namespaces of the hosts at these ends.
//!
//! All TCP connections use one small protocol: a header of 16 bytes gives the lengths of the
//! request, header included, and of the answer. Then both follow, and the next request.

use super::network::Net;
use crate::backend::drawn;
use crate::results::Shared;
use crate::scenario::{BackgroundKind, Scenario, Way};
use anabranch_proto::time::Instant as Virtual;
use anabranch_sim::tcp::{Demand, Exchange, Once};
use anabranch_testbed::Node;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Ports of the first piece, at its first and at its second end; no flow uses these.
const PORTS: [u16; 2] = [20_000, 30_000];

/// How often a waiting thread checks whether the run is over.
const LOOK: Duration = Duration::from_millis(100);

/// The shortest request: just its header.
const HEADER: u64 = 16;

/// The length of a request or answer that never ends.
const ENDLESS: u64 = u64::MAX;

const CHUNK: usize = 64 << 10;

/// One piece of traffic, ready to begin.
#[derive(Debug)]
pub(super) struct Piece {
    kind: BackgroundKind,
    way: Way,
    index: usize,
    seed: u64,
    /// The nodes at its ends, in the scenario's order.
    nodes: [Node; 2],
    sockets: [SocketAddr; 2],
    start: Duration,
    end: Duration,
    /// Bytes that have reached the end it sends to.
    got: AtomicU64,
}

/// What the threads share.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) begin: Instant,
    pub(super) over: AtomicBool,
}

impl Clock {
    fn is_over(&self, end: Duration) -> bool {
        self.over.load(Ordering::Relaxed) || self.begin.elapsed() >= end
    }

    /// Waits until `at`, and returns whether the run still goes on.
    fn wait_until(&self, at: Duration, end: Duration) -> bool {
        loop {
            if self.is_over(end) {
                return false;
            }
            let left = at.saturating_sub(self.begin.elapsed());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

/// All background traffic of a run.
pub(super) fn pieces(net: &Net<'_>, scenario: &Scenario, seed: u64) -> Vec<Piece> {
    let all = scenario.background.iter().enumerate();
    all.map(|(index, one)| {
        let socket = |side: usize| {
            let end = one.ends[side];
            let address = net.layout.own(end.node, end.link);
            SocketAddr::new(address.into(), PORTS[side] + index as u16)
        };
        Piece {
            kind: one.kind.clone(),
            way: one.way,
            index,
            seed,
            nodes: one.ends.map(|end| net.nodes[end.node].clone()),
            sockets: [0, 1].map(socket),
            start: drawn::background_start(scenario, index, seed),
            end: one.stop.unwrap_or(scenario.stop),
            got: AtomicU64::new(0),
        }
    })
    .collect()
}

impl Piece {
    /// Starts its threads. Listening sockets exist before this returns.
    pub(super) fn start<'s, 'e: 's>(
        &'e self,
        scope: &'s Scope<'s, 'e>,
        clock: &'e Clock,
    ) -> Result<(), String> {
        match self.kind {
            BackgroundKind::Udp { rate, size } => self.udp(scope, clock, rate, size),
            BackgroundKind::Tcp { congestion } => {
                let demand = match self.way {
                    Way::Forward => Exchange::upload(ENDLESS),
                    Way::Backward => Exchange::download(ENDLESS),
                };
                let demand = Box::new(Once::new(demand));
                self.tcp(scope, clock, 0, demand, congestion.name())
            }
            BackgroundKind::Web { size, pause } => {
                // The end that reads is the one that sends requests.
                let asker = usize::from(self.way == Way::Forward);
                let demand = drawn::reader(self.index, size, pause, self.seed);
                self.tcp(scope, clock, asker, Box::new(demand), "cubic")
            }
        }
    }

    /// What it got until now, `over` after the run began.
    pub(super) fn outcome(&self, over: Duration) -> Shared {
        let time = self.end.min(over).saturating_sub(self.start);
        Shared::new(self.kind.name(), self.got.load(Ordering::Relaxed), time)
    }

    /// A side has received bytes of an application.
    fn count(&self, side: usize, bytes: usize) {
        if side == usize::from(self.way == Way::Forward) {
            self.got.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    fn failed(&self, what: impl std::fmt::Display) -> String {
        format!("background {}: {what}", self.index + 1)
    }

    fn udp<'s, 'e: 's>(
        &'e self,
        scope: &'s Scope<'s, 'e>,
        clock: &'e Clock,
        rate: u64,
        size: u64,
    ) -> Result<(), String> {
        let from = usize::from(self.way == Way::Backward);
        let bind = |side: usize| {
            let bound = self.nodes[side].enter(|| UdpSocket::bind(self.sockets[side]));
            let bound = bound.map_err(|error| self.failed(error))?;
            bound.map_err(|error| self.failed(error))
        };
        let (source, sink) = (bind(from)?, bind(1 - from)?);
        let prepared = source
            .connect(self.sockets[1 - from])
            .and_then(|()| sink.set_read_timeout(Some(LOOK)));
        prepared.map_err(|error| self.failed(error))?;
        scope.spawn(move || {
            let mut buffer = [0; 2048];
            while !clock.over.load(Ordering::Relaxed) {
                // A timeout does not matter.
                if let Ok(bytes) = sink.recv(&mut buffer) {
                    self.count(1 - from, bytes);
                }
            }
        });
        let interval = Duration::from_secs_f64(size as f64 * 8.0 / rate as f64);
        scope.spawn(move || {
            let packet = vec![0; size as usize];
            let mut at = self.start;
            while clock.wait_until(at, self.end) {
                // A packet lost to a full queue or an interface that is down is meant to be lost.
                let _ = source.send(&packet);
                at += interval;
            }
        });
        Ok(())
    }

    fn tcp<'s, 'e: 's>(
        &'e self,
        scope: &'s Scope<'s, 'e>,
        clock: &'e Clock,
        asker: usize,
        demand: Box<dyn Demand + Send>,
        congestion: &'static str,
    ) -> Result<(), String> {
        let far = 1 - asker;
        let listen = || -> io::Result<TcpListener> {
            let listener = TcpListener::bind(self.sockets[far])?;
            SockRef::from(&listener).set_tcp_congestion(congestion.as_bytes())?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = self.nodes[far].enter(listen);
        let listener = listener.map_err(|error| self.failed(error))?;
        let listener = listener.map_err(|error| self.failed(error))?;
        scope.spawn(move || {
            while !clock.over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        // A broken connection counts as ended: the next one may come.
                        let _ = self.answer(far, stream, clock);
                    }
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        scope.spawn(move || {
            if clock.wait_until(self.start, self.end) {
                // A link that stays down ends this traffic; how the flows cope is what the run
                // measures.
                let _ = self.nodes[asker].enter(|| self.ask(asker, clock, demand, congestion));
            }
        });
        Ok(())
    }

    fn ask(
        &self,
        asker: usize,
        clock: &Clock,
        mut demand: Box<dyn Demand + Send>,
        congestion: &str,
    ) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_congestion(congestion.as_bytes())?;
        socket.set_reuse_address(true)?;
        socket.bind(&self.sockets[asker].into())?;
        let patience = Duration::from_secs(60).min(self.end);
        socket.connect_timeout(&self.sockets[1 - asker].into(), patience)?;
        let mut stream = patient(TcpStream::from(socket))?;
        loop {
            let now = Virtual::ZERO + clock.begin.elapsed();
            let Some((at, exchange)) = demand.next(now) else {
                return Ok(());
            };
            if !clock.wait_until(at.since(Virtual::ZERO), self.end) {
                return Ok(());
            }
            let request = exchange.request.max(HEADER);
            let mut header = [0; HEADER as usize];
            header[..8].copy_from_slice(&request.to_be_bytes());
            header[8..].copy_from_slice(&exchange.response.to_be_bytes());
            let over = || clock.is_over(self.end);
            let whole = write(&mut stream, &header, &over)?
                && send(&mut stream, request - HEADER, &over)?
                && self.take(asker, &mut stream, exchange.response, &over)?;
            if !whole {
                return Ok(());
            }
        }
    }

    fn answer(&self, side: usize, stream: TcpStream, clock: &Clock) -> io::Result<()> {
        let mut stream = patient(stream)?;
        let over = || clock.over.load(Ordering::Relaxed);
        loop {
            let mut header = [0; HEADER as usize];
            if !fill(&mut stream, &mut header, &over)? {
                return Ok(());
            }
            let (request, response) = header.split_at(8);
            let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| (n << 8) | u64::from(*byte));
            let (request, response) = (number(request), number(response));
            let whole = self.take(side, &mut stream, request.saturating_sub(HEADER), &over)?
                && send(&mut stream, response, &over)?;
            if !whole {
                return Ok(());
            }
        }
    }

    /// Reads so many bytes; false if the other side or the run ended first.
    fn take(
        &self,
        side: usize,
        stream: &mut TcpStream,
        bytes: u64,
        over: &dyn Fn() -> bool,
    ) -> io::Result<bool> {
        let mut buffer = vec![0; CHUNK];
        let mut left = bytes;
        while left > 0 {
            if over() {
                return Ok(false);
            }
            let most = left.min(CHUNK as u64) as usize;
            match stream.read(&mut buffer[..most]) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    left -= count as u64;
                    self.count(side, count);
                }
                Err(error) if waits(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// A stream whose reads and writes time out, so that its thread can check whether the run is over.
fn patient(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))?;
    Ok(stream)
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Reads until `buffer` is full; false if the other side or the run ended first.
fn fill(stream: &mut TcpStream, buffer: &mut [u8], over: &dyn Fn() -> bool) -> io::Result<bool> {
    let mut at = 0;
    while at < buffer.len() {
        match stream.read(&mut buffer[at..]) {
            Ok(0) => return Ok(false),
            Ok(count) => at += count,
            Err(error) if waits(&error) && !over() => {}
            Err(error) if waits(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn send(stream: &mut TcpStream, bytes: u64, over: &dyn Fn() -> bool) -> io::Result<bool> {
    let buffer = vec![0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let most = left.min(CHUNK as u64) as usize;
        if over() || !write(stream, &buffer[..most], over)? {
            return Ok(false);
        }
        left -= most as u64;
    }
    Ok(true)
}

fn write(stream: &mut TcpStream, bytes: &[u8], over: &dyn Fn() -> bool) -> io::Result<bool> {
    let mut at = 0;
    while at < bytes.len() {
        match stream.write(&bytes[at..]) {
            Ok(count) => at += count,
            Err(error) if waits(&error) && !over() => {}
            Err(error) if waits(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
