//! One socket and all connections over it, in one task: a loop as in quiche's own programs.
//!
//! Unlike theirs it does not ask every connection after every datagram: deadlines are sorted, and
//! those with something to do are listed. Datagrams pass the kernel in batches (GSO and GRO), by
//! the sockets of `anabranch-net`. Pacing is left to the kernel, which does none on loopback.

use super::streams::{Application, Question};
use anabranch_interop::SERVER_NAME;
use anabranch_net::sockets::{Outgoing, RecvBatch, SendError, Socket};
use bytes::Bytes;
use quiche::{ConnectionId, Error, Header, RecvInfo, Type};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

/// The most bytes of a burst, as in quiche's own programs: a large UDP payload.
const BURST: usize = 65_507;
/// Sleep is this long while nothing has a deadline.
const FOREVER: Duration = Duration::from_secs(3600);

/// What the client's tasks want of it.
pub(super) enum Command {
    /// A connection to this server; its number when it is established.
    Connect(SocketAddr, oneshot::Sender<u64>),
    /// So many bytes over this connection; how many came.
    Ask(u64, usize, oneshot::Sender<usize>),
    /// The end of this connection.
    Close(u64),
}

/// Makes the buffers of streams, so that an answer is sent without a copy.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers;

impl quiche::BufFactory for Buffers {
    type Buf = Bytes;
    type DgramBuf = Vec<u8>;

    fn buf_from_slice(bytes: &[u8]) -> Bytes {
        Bytes::copy_from_slice(bytes)
    }

    fn dgram_buf_from_slice(bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
}

pub(super) type Connection = quiche::Connection<Buffers>;

struct Peer<A> {
    connection: Connection,
    application: A,
    /// What datagrams for it are addressed to.
    ids: Vec<ConnectionId<'static>>,
    deadline: Option<Instant>,
    is_listed: bool,
}

/// A client or a server, by what it does with its connections.
pub(super) struct Endpoint<A> {
    socket: Socket,
    config: quiche::Config,
    commands: mpsc::UnboundedReceiver<Command>,
    peers: HashMap<u64, Box<Peer<A>>>,
    routes: HashMap<ConnectionId<'static>, u64>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Connections that may have something to send or to read.
    listed: VecDeque<u64>,
    /// How many connections there were.
    count: u64,
    /// How many connection IDs were made up.
    ids: u64,
    buffer: Box<[u8]>,
}

impl<A: Application> Endpoint<A> {
    pub(super) fn new(
        socket: Socket,
        config: quiche::Config,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        Self {
            socket,
            config,
            commands,
            peers: HashMap::new(),
            routes: HashMap::new(),
            deadlines: BTreeSet::new(),
            listed: VecDeque::new(),
            count: 0,
            ids: 0,
            buffer: vec![0; BURST].into(),
        }
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    pub(super) async fn run(mut self) {
        let mut batch = RecvBatch::new();
        let mut sleep = pin!(tokio::time::sleep(FOREVER));
        loop {
            poll_fn(|cx| self.poll_input(cx, &mut batch, sleep.as_mut())).await;
            self.receive(&mut batch);
            self.expire(Instant::now());
            // Who has more than one burst waits until the others had theirs, and until what has
            // come meanwhile is read.
            for _ in 0..self.listed.len() {
                let id = self.listed.pop_front().expect("as many as were counted");
                self.serve(id).await;
            }
            self.set_alarm(sleep.as_mut());
        }
    }

    /// Waits for datagrams, commands or a deadline; not at all if there is something to do.
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        batch: &mut RecvBatch,
        sleep: Pin<&mut Sleep>,
    ) -> Poll<()> {
        let received = self.socket.poll_recv(cx, batch);
        let mut is_awake = received.map(Result::unwrap).is_ready();
        while let Poll::Ready(Some(command)) = self.commands.poll_recv(cx) {
            self.obey(command);
        }
        is_awake |= sleep.poll(cx).is_ready() || !self.listed.is_empty();
        if is_awake {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Connect(remote, reply) => {
                let id = self.make_id();
                let local = self.local_addr();
                let config = &mut self.config;
                let connection = quiche::connect_with_buffer_factory(
                    Some(SERVER_NAME),
                    &id,
                    local,
                    remote,
                    config,
                );
                let id = self.add(connection.unwrap(), vec![id]);
                self.with(id, |peer| peer.application.on_connect(id, reply));
            }
            Command::Ask(id, bytes, reply) => {
                let question = Question::new(bytes, reply);
                self.with(id, |peer| peer.application.on_question(question));
            }
            Command::Close(id) => self.with(id, |peer| {
                // One that is closed already is closed.
                let _ = peer.connection.close(true, 0, b"");
            }),
        }
    }

    /// Does something to a connection, unless it is gone, after which it may have something to do.
    fn with(&mut self, id: u64, change: impl FnOnce(&mut Peer<A>)) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        change(peer);
        if !std::mem::replace(&mut peer.is_listed, true) {
            self.listed.push_back(id);
        }
    }

    fn add(&mut self, connection: Connection, ids: Vec<ConnectionId<'static>>) -> u64 {
        self.count += 1;
        self.routes
            .extend(ids.iter().map(|id| (id.clone(), self.count)));
        let peer = Peer {
            connection,
            application: A::default(),
            ids,
            deadline: None,
            is_listed: false,
        };
        self.peers.insert(self.count, Box::new(peer));
        self.count
    }

    /// One that nobody else has; here nobody would guess it either.
    fn make_id(&mut self) -> ConnectionId<'static> {
        self.ids += 1;
        let mut bytes = vec![0; quiche::MAX_CONN_ID_LEN];
        bytes[..8].copy_from_slice(&self.ids.to_be_bytes());
        bytes.into()
    }

    fn receive(&mut self, batch: &mut RecvBatch) {
        let to = self.local_addr();
        for datagram in batch.datagrams() {
            let from = datagram.remote;
            let header = Header::from_slice(datagram.data, quiche::MAX_CONN_ID_LEN).unwrap();
            let id = match self.routes.get(&header.dcid) {
                Some(&id) => id,
                None if A::ACCEPTS && header.ty == Type::Initial => self.accept(&header, from),
                // Of a connection that is gone.
                None => continue,
            };
            self.with(id, |peer| {
                // After an error it has its end to send.
                let _ = peer.connection.recv(datagram.data, RecvInfo { from, to });
            });
        }
    }

    fn accept(&mut self, first: &Header<'static>, from: SocketAddr) -> u64 {
        let id = self.make_id();
        let to = self.local_addr();
        let accepted = quiche::accept_with_buf_factory(&id, None, to, from, &mut self.config);
        // Until it knows its ID, the client uses one that it made up.
        self.add(accepted.unwrap(), vec![id, first.dcid.clone()])
    }

    fn expire(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.deadlines.first()
            && at <= now
        {
            self.deadlines.pop_first();
            self.with(id, |peer| {
                peer.deadline = None;
                peer.connection.on_timeout();
            });
        }
    }

    /// Lets a connection read, write and send one burst.
    async fn serve(&mut self, id: u64) {
        let Some(mut peer) = self.peers.remove(&id) else {
            return;
        };
        peer.is_listed = false;
        let Peer {
            connection,
            application,
            ids,
            ..
        } = &mut *peer;
        application.advance(connection, &mut self.buffer);
        // As many connection IDs as the other end may want.
        while connection.is_established() && connection.scids_left() > 0 {
            let spare = self.make_id();
            connection.new_scid(&spare, 0, false).unwrap();
            self.routes.insert(spare.clone(), id);
            ids.push(spare);
        }
        let may_have_more = send_burst(&self.socket, connection, &mut self.buffer).await;
        if connection.is_closed() {
            self.forget(id, &peer);
            return;
        }
        let deadline = connection.timeout_instant();
        if deadline != peer.deadline {
            let old = std::mem::replace(&mut peer.deadline, deadline);
            old.map(|at| self.deadlines.remove(&(at, id)));
            deadline.map(|at| self.deadlines.insert((at, id)));
        }
        // Closed while a part of its handshake has to be sent again, quiche would make packets of
        // the handshake, without that part, for as long as it is asked.
        if may_have_more && peer.connection.local_error().is_none() {
            peer.is_listed = true;
            self.listed.push_back(id);
        }
        self.peers.insert(id, peer);
    }

    fn forget(&mut self, id: u64, peer: &Peer<A>) {
        for id in &peer.ids {
            self.routes.remove(id);
        }
        peer.deadline.map(|at| self.deadlines.remove(&(at, id)));
    }

    /// The next deadline; the alarm may come too early, which costs less than to move it each time.
    fn set_alarm(&self, sleep: Pin<&mut Sleep>) {
        let first = self.deadlines.first().map(|&(at, _)| at.into());
        let first = first.unwrap_or_else(|| tokio::time::Instant::now() + FOREVER);
        if sleep.is_elapsed() || first < sleep.deadline() {
            sleep.reset(first);
        }
    }
}

/// Sends as many packets as congestion control would let go at once, in one call. Returns whether
/// there may be more.
async fn send_burst(socket: &Socket, connection: &mut Connection, buffer: &mut [u8]) -> bool {
    let size = connection.max_send_udp_payload_size();
    let most = connection.send_quantum().min(buffer.len()) / size * size;
    let (mut filled, mut remote, mut is_done) = (0, None, false);
    while filled < most {
        match connection.send(&mut buffer[filled..most]) {
            Ok((length, info)) => {
                remote = Some(info.to);
                filled += length;
                // Only the last one of a batch may be shorter.
                if length < size {
                    break;
                }
            }
            Err(Error::Done) => {
                is_done = true;
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    if let Some(remote) = remote {
        send(socket, remote, size, &buffer[..filled]).await;
    }
    !is_done
}

async fn send(socket: &Socket, remote: SocketAddr, size: usize, mut contents: &[u8]) {
    loop {
        let outgoing = Outgoing {
            remote,
            local: None,
            ecn: None,
            segment_size: Some(size),
            contents,
        };
        match socket.try_send(&outgoing) {
            Ok(()) => return,
            Err((sent, SendError::Blocked)) => contents = &contents[sent..],
            Err((_, error)) => panic!("{error:?}"),
        }
        poll_fn(|cx| socket.poll_writable(cx)).await.unwrap();
    }
}
