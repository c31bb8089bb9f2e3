//! HTTP/3 on one connection, as both nodes speak it: settings exchanged, requests on streams.
//!
//! The rules are those of `anabranch-masque`; here its readers get the bytes, and what they refuse
//! ends the stream or the connection.

pub(crate) mod datagrams;

use anabranch_masque::control::{Event, Peer, Unidirectional, goaway, preface};
use anabranch_masque::stream::{Item, Reader, data_header_size, headers, put_data_header};
use anabranch_masque::{Code, Error, Field, Request, Response, Settings};
use anabranch_net::engine::ConnectionError;
use anabranch_net::error::{ReadError, WriteError};
use anabranch_net::{Connection, RecvStream, SendStream};
use anabranch_proto::wire::{ErrorCode, Side};
use anabranch_tunnel::class::{LightPriority, Treatment};
use bytes::Bytes;
use datagrams::{Datagrams, Hub, NoDatagrams, deliver};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

/// The most bytes that are taken from a stream at a time.
const PIECE: usize = 64 << 10;

/// Why a request came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Broken {
    /// The peer ended one or both directions of the stream.
    #[error("the peer gave it up: {0}")]
    GivenUp(Code),
    /// The peer broke the rules.
    #[error(transparent)]
    Rules(#[from] Error),
    /// The stream has ended already.
    #[error("it has ended")]
    Ended,
    /// The connection ended.
    #[error(transparent)]
    Lost(#[from] ConnectionError),
}

impl Broken {
    /// What the peer is told about its request.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Rules(error) => error.code(),
            _ => Code::REQUEST_CANCELLED,
        }
    }
}

impl From<WriteError> for Broken {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::GivenUp(Code(code)),
            WriteError::Closed => Self::Ended,
            WriteError::Connection(error) => Self::Lost(error),
        }
    }
}

impl From<ReadError> for Broken {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::GivenUp(Code(code)),
            ReadError::Closed => Self::Ended,
            ReadError::Connection(error) => Self::Lost(error),
        }
    }
}

/// Every code of HTTP/3 fits a frame.
fn wire(code: Code) -> ErrorCode {
    ErrorCode::new(code.0).unwrap_or(ErrorCode::MAX)
}

/// A DATA frame of these bytes, one after the other.
pub(crate) fn data(parts: &[&[u8]]) -> Bytes {
    let length = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(data_header_size(length) + length);
    put_data_header(&mut frame, length);
    for part in parts {
        frame.extend_from_slice(part);
    }
    frame.into()
}

/// Closes a connection with a code of HTTP/3.
pub(crate) fn close(connection: &Connection, code: Code, reason: &str) {
    connection.close(wire(code), reason.as_bytes());
}

/// The highest stream of a request: a GOAWAY that names it refuses none (RFC 9114, section 5.2).
const LAST_REQUEST: u64 = (1 << 62) - 4;

/// What a peer said of itself so far.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    settings: Option<Settings>,
    /// It is about to leave.
    is_leaving: bool,
}

/// HTTP/3 on a connection. Clones speak on the same one.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    connection: Connection,
    ours: Settings,
    peer: watch::Receiver<Told>,
    /// We are about to leave.
    leaving: Arc<Notify>,
    hub: Arc<Hub>,
}

impl Session {
    /// Says our settings, and attends to what the peer says beside its requests. That goes on until
    /// the connection is closed.
    pub(crate) async fn start(connection: Connection, ours: Settings) -> Result<Self, Broken> {
        let mut control = connection.open_uni().await?;
        control.write_bytes(preface(&ours).into()).await?;
        let (told, peer) = watch::channel(Told::default());
        let leaving = Arc::<Notify>::default();
        let attending = attend(connection.clone(), control, Arc::clone(&leaving), told);
        tokio::spawn(attending);
        let hub = Arc::<Hub>::default();
        tokio::spawn(deliver(connection.clone(), Arc::clone(&hub)));
        Ok(Self {
            connection,
            ours,
            peer,
            leaving,
            hub,
        })
    }

    /// The same, but a peer that has not let us say our settings by then loses the connection: it
    /// may allow us no streams.
    pub(crate) async fn start_by(
        deadline: Instant,
        connection: Connection,
        ours: Settings,
    ) -> Result<Self, Broken> {
        let starting = timeout_at(deadline, Self::start(connection.clone(), ours));
        starting.await.unwrap_or_else(|_| {
            let reason = "our settings could not be said";
            close(&connection, Code::EXCESSIVE_LOAD, reason);
            Err(Broken::Ended)
        })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What the peer says about itself: waits until it does.
    pub(crate) async fn settings(&self) -> Result<Settings, ConnectionError> {
        let mut peer = self.peer.clone();
        tokio::select! {
            Ok(told) = peer.wait_for(|told| told.settings.is_some()) => {
                Ok(told.settings.unwrap_or_default())
            }
            reason = self.connection.closed() => Err(reason),
        }
    }

    /// Tells the peer that we are about to leave, and refuse nothing until then.
    pub(crate) fn leave(&self) {
        self.leaving.notify_one();
    }

    /// Waits until the peer says that it is about to leave; for ever if the connection ends first.
    pub(crate) async fn left(&self) {
        let mut peer = self.peer.clone();
        if peer.wait_for(|told| told.is_leaving).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether HTTP datagrams are carried in QUIC's, if the peer has these settings.
    pub(crate) fn has_datagrams(&self, peer: &Settings) -> bool {
        let both = self.ours.h3_datagram && peer.h3_datagram;
        both && self.connection.max_datagram_payload().is_some()
    }

    /// Sends a request's head. What follows it may be sent at once, but no datagrams.
    pub(crate) async fn request(&self, request: &Request) -> Result<(Outgoing, Incoming), Broken> {
        let (send, recv) = self.connection.open_bi().await?;
        let (outgoing, mut incoming) = self.begin(request, send, recv).await?;
        self.without_datagrams(&mut incoming);
        Ok((outgoing, incoming))
    }

    /// Sends the head of a request that takes datagrams, and misses none of them.
    pub(crate) async fn request_with_datagrams(
        &self,
        request: &Request,
    ) -> Result<(Outgoing, Incoming, Datagrams), Broken> {
        let (send, recv) = self.connection.open_bi().await?;
        let datagrams = self.datagrams(send.id().0);
        let (outgoing, incoming) = self.begin(request, send, recv).await?;
        Ok((outgoing, incoming, datagrams))
    }

    async fn begin(
        &self,
        request: &Request,
        send: SendStream,
        recv: RecvStream,
    ) -> Result<(Outgoing, Incoming), Broken> {
        let mut outgoing = Outgoing::new(send);
        outgoing.head(&request.to_fields()).await?;
        Ok((outgoing, self.incoming(recv, Side::Client)))
    }

    /// The datagrams for and from the request on this stream.
    pub(crate) fn datagrams(&self, stream: u64) -> Datagrams {
        self.hub.open(&self.connection, stream)
    }

    /// A request that means nothing by datagrams: if one comes for it, it is ended.
    pub(crate) fn without_datagrams(&self, incoming: &mut Incoming) {
        let stream = incoming.stream.id().0;
        incoming.no_datagrams = Some(self.hub.refuse(stream));
    }

    /// The next request of the peer, of which nothing was read.
    pub(crate) async fn accept(&self) -> Result<(Outgoing, Incoming), ConnectionError> {
        let (send, recv) = self.connection.accept_bi().await?;
        Ok((Outgoing::new(send), self.incoming(recv, Side::Server)))
    }

    fn incoming(&self, stream: RecvStream, side: Side) -> Incoming {
        Incoming {
            stream,
            reader: Reader::new(side),
            connection: self.connection.clone(),
            no_datagrams: None,
            is_over: false,
        }
    }
}

/// Reads the streams that the peer opens in one direction, and holds our control stream, which
/// lasts as long as the connection.
async fn attend(
    connection: Connection,
    mut control: SendStream,
    leaving: Arc<Notify>,
    told: watch::Sender<Told>,
) {
    let peer = Arc::new(Mutex::new(Peer::new(connection.side().peer())));
    let is_client = connection.side().is_client();
    loop {
        let (code, reason) = tokio::select! {
            stream = connection.accept_uni() => {
                let Ok(stream) = stream else { return };
                let told = told.clone();
                tokio::spawn(listen(connection.clone(), stream, Arc::clone(&peer), told));
                continue;
            }
            () = leaving.notified() => {
                // An error is noticed below.
                let _ = control.write_bytes(goaway(LAST_REQUEST).into()).await;
                continue;
            }
            // RFC 9114, section 6.1: requests are a client's.
            stream = connection.accept_bi(), if is_client => match stream {
                Ok(_) => (Code::STREAM_CREATION_ERROR, "a server opened a stream of a request"),
                Err(_) => return,
            },
            stopped = control.stopped() => match stopped {
                Ok(Some(_)) => (Code::CLOSED_CRITICAL_STREAM, "the control stream was stopped"),
                Ok(None) | Err(_) => return,
            },
        };
        return close(&connection, code, reason);
    }
}

async fn listen(
    connection: Connection,
    mut stream: RecvStream,
    peer: Arc<Mutex<Peer>>,
    told: watch::Sender<Told>,
) {
    let mut reader = Unidirectional::new();
    let result = loop {
        match stream.read_chunk(PIECE).await {
            Ok(Some(piece)) => reader.push(piece),
            Ok(None) | Err(ReadError::Reset(_)) => break reader.finish(),
            Err(ReadError::Closed | ReadError::Connection(_)) => return,
        }
        let mut peer = peer.lock().unwrap_or_else(PoisonError::into_inner);
        match drain(&mut reader, &mut peer, &told) {
            Ok(true) => {}
            Ok(false) => {
                let _ = stream.stop(wire(Code::STREAM_CREATION_ERROR));
                return;
            }
            Err(error) => break Err(error),
        }
    };
    if let Err(error) = result {
        close(&connection, error.code(), error.reason());
    }
}

/// Reads what came; returns whether more is of interest.
fn drain(
    reader: &mut Unidirectional,
    peer: &mut Peer,
    told: &watch::Sender<Told>,
) -> Result<bool, Error> {
    while let Some(event) = reader.poll(peer)? {
        match event {
            Event::Settings(settings) => told.send_modify(|told| told.settings = Some(settings)),
            Event::GoAway(_) => told.send_modify(|told| told.is_leaving = true),
            Event::Unknown => return Ok(false),
        }
    }
    Ok(true)
}

/// The sending side of a request stream. If it is dropped before its end, the request is cancelled.
#[derive(Debug)]
pub(crate) struct Outgoing {
    stream: SendStream,
    /// Where its priority holds only while it carries little, since when.
    light: Option<Box<(Instant, LightPriority)>>,
    is_over: bool,
}

impl Outgoing {
    fn new(stream: SendStream) -> Self {
        Self {
            stream,
            light: None,
            is_over: false,
        }
    }

    /// Is sent before others or behind them, and steered as its class is.
    pub(crate) fn treat(&mut self, treatment: &Treatment) {
        let light = LightPriority::of(treatment);
        self.light = light.map(|light| Box::new((Instant::now(), light)));
        // An error means that it has ended.
        if treatment.priority != 0 {
            let _ = self.stream.set_priority(treatment.priority);
        }
        if treatment.class() != 0 {
            let _ = self.stream.set_class(treatment.class());
        }
    }

    /// Counts `bytes`, and changes the priority if it holds only while the stream carries little.
    fn weigh(&mut self, bytes: usize) {
        if let Some(light) = &mut self.light
            && let Some(priority) = light.1.carry(bytes, light.0.elapsed())
        {
            let _ = self.stream.set_priority(priority);
        }
    }

    /// The number of its stream.
    pub(crate) fn id(&self) -> u64 {
        self.stream.id().0
    }

    /// Sends a field section.
    pub(crate) async fn head(&mut self, fields: &[Field]) -> Result<(), Broken> {
        self.write(headers(fields).into()).await
    }

    /// Answers a request, and nothing follows. What else it carries is of no interest.
    pub(crate) async fn answer(
        mut self,
        mut request: Incoming,
        response: &Response,
    ) -> Result<(), Broken> {
        self.head(&response.to_fields()).await?;
        self.finish();
        request.stop(Code::NO_ERROR);
        Ok(())
    }

    /// Sends frames, as much of them at a time as there is room for.
    pub(crate) async fn write(&mut self, frames: Bytes) -> Result<(), Broken> {
        self.weigh(frames.len());
        Ok(self.stream.write_bytes(frames).await?)
    }

    /// Nothing more follows.
    pub(crate) fn finish(&mut self) {
        self.is_over = true;
        // An error means that it had ended already.
        let _ = self.stream.finish();
    }

    /// Gives the stream up.
    pub(crate) fn reset(&mut self, code: Code) {
        self.is_over = true;
        let _ = self.stream.reset(wire(code));
    }

    /// Waits until the peer wants no more; for ever if it wants all of it.
    pub(crate) async fn given_up(&mut self) -> Broken {
        match self.stream.stopped().await {
            Ok(Some(code)) => Broken::GivenUp(Code(code)),
            Ok(None) => std::future::pending().await,
            Err(error) => Broken::Lost(error),
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if !self.is_over {
            self.reset(Code::REQUEST_CANCELLED);
        }
    }
}

/// The receiving side of a request stream. If it is dropped before its end, the peer is told to
/// send no more.
#[derive(Debug)]
pub(crate) struct Incoming {
    stream: RecvStream,
    reader: Reader,
    connection: Connection,
    /// Where datagrams are against the rules.
    no_datagrams: Option<NoDatagrams>,
    is_over: bool,
}

impl Incoming {
    /// The next part of the message. Behind its end there is none.
    pub(crate) async fn next(&mut self) -> Result<Item, Broken> {
        if self.is_over {
            return Err(Broken::Ended);
        }
        loop {
            match self.reader.poll() {
                Ok(Some(item)) => {
                    self.is_over |= item == Item::End;
                    return Ok(item);
                }
                Ok(None) => {}
                Err(error) => return Err(self.refuse(error)),
            }
            let piece = match &self.no_datagrams {
                None => self.stream.read_chunk(PIECE).await,
                Some(none) => tokio::select! {
                    piece = self.stream.read_chunk(PIECE) => piece,
                    error = none.broken() => return Err(self.refuse(error)),
                },
            };
            match piece {
                Ok(Some(piece)) => self.reader.push(piece),
                Ok(None) => self.reader.finish(),
                Err(error) => {
                    self.is_over = true;
                    return Err(error.into());
                }
            }
        }
    }

    /// The field section that begins the message.
    pub(crate) async fn head(&mut self) -> Result<Vec<Field>, Broken> {
        match self.next().await? {
            Item::Head(fields) => Ok(fields),
            // The reader gives no data before a head, and no end either.
            Item::Data(_) | Item::End => Err(Broken::Ended),
        }
    }

    /// The response to a request of ours, without those that announce it.
    pub(crate) async fn response(&mut self) -> Result<Response, Broken> {
        loop {
            let fields = self.head().await?;
            let response = Response::from_fields(fields).map_err(|error| self.refuse(error))?;
            if !response.is_interim() {
                return Ok(response);
            }
        }
    }

    /// Ends what the peer broke the rules of.
    pub(crate) fn refuse(&mut self, error: Error) -> Broken {
        if error.is_connection() {
            close(&self.connection, error.code(), error.reason());
        }
        self.stop(error.code());
        Broken::Rules(error)
    }

    /// Tells the peer to send no more.
    pub(crate) fn stop(&mut self, code: Code) {
        if !std::mem::replace(&mut self.is_over, true) {
            // An error means that everything has come.
            let _ = self.stream.stop(wire(code));
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.stop(Code::REQUEST_CANCELLED);
    }
}
