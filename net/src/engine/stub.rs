#![allow(
    missing_docs,
    unused_variables,
    clippy::all,
    clippy::pedantic,
    reason = "stand-in"
)]
use anabranch_proto::datagram::*;
pub use anabranch_proto::error::ConnectionError;
use anabranch_proto::time::Instant;
use anabranch_proto::wire::frame::PathStatus;
use anabranch_proto::wire::*;
use bytes::Bytes;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub u32);
#[derive(Debug)]
pub struct Endpoint;
#[derive(Debug, Default)]
pub struct EndpointConfig {}
#[derive(Debug, Clone, Default)]
pub struct TransportConfig {}
#[derive(Debug, Clone)]
pub struct ClientConfig {}
#[derive(Debug, Clone)]
pub struct ServerConfig {}
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    #[error("x")]
    X,
}
impl Endpoint {
    pub fn new(config: EndpointConfig, seed: [u8; 32]) -> Self {
        Endpoint
    }
    pub fn set_server(&mut self, s: Option<Arc<ServerConfig>>) {}
    pub fn connect(
        &mut self,
        now: Instant,
        config: ClientConfig,
        tuple: Tuple,
        server_name: &str,
    ) -> Result<Handle, ConnectError> {
        todo!()
    }
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        tuple: Tuple,
        ecn: Option<Ecn>,
        data: &mut [u8],
    ) {
    }
    pub fn handle_timeout(&mut self, now: Instant) {}
    pub fn next_timeout(&self) -> Option<Instant> {
        None
    }
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Transmit> {
        None
    }
    pub fn poll_event(&mut self) -> Option<(Handle, Event)> {
        None
    }
    pub fn connection(&self, h: Handle) -> Option<&Connection> {
        None
    }
    pub fn connection_mut(&mut self, h: Handle) -> Option<&mut Connection> {
        None
    }
}
#[derive(Debug)]
pub enum Event {
    Incoming,
    Connected,
    Stream(StreamEvent),
    Path(PathNotice),
    Closed(ConnectionError),
    Drained,
}
#[derive(Debug)]
pub enum StreamEvent {
    Opened { dir: Dir },
    Readable { id: StreamId },
    Writable { id: StreamId },
    Finished { id: StreamId },
    Stopped { id: StreamId, code: u64 },
    Available { dir: Dir },
    DatagramReceived,
    DatagramsUnblocked,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathNotice {
    Capacity,
    Opened {
        id: PathId,
        tuple: Tuple,
    },
    Doubted {
        id: PathId,
    },
    Recovered {
        id: PathId,
        after: std::time::Duration,
    },
    Moved {
        id: PathId,
        tuple: Tuple,
    },
    Abandoned {
        id: PathId,
        code: u64,
        by_peer: bool,
    },
    Discarded {
        id: PathId,
    },
}
#[derive(Debug, Clone, Copy)]
pub struct PathOptions {
    pub status: PathStatus,
    pub weight: u32,
    pub priority: i32,
    pub cost: u32,
}
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenPathError {
    #[error("x")]
    NotYet,
    #[error("x")]
    LimitReached,
    #[error("x")]
    NoCid,
    #[error("x")]
    NoMultipath,
    #[error("x")]
    NotClient,
    #[error("x")]
    Closed,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such path")]
pub struct PathUnknown;
pub enum WriteError {
    Blocked,
    Stopped(u64),
    Closed,
}
pub enum ReadError {
    Blocked,
    Reset(u64),
    Closed,
}
pub enum SendDatagramError {
    TooLarge,
    Unsupported,
    Full,
}
pub struct ClosedStream;
#[derive(Debug, Clone, Default)]
pub struct ConnectionStats {}
#[derive(Debug, Clone)]
pub struct PathStats {
    pub validated: bool,
    pub closing: bool,
    pub tuple: Tuple,
}
#[derive(Debug)]
pub struct Connection;
impl Connection {
    pub fn open(&mut self, dir: Dir) -> Option<StreamId> {
        None
    }
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        None
    }
    pub fn write(&mut self, id: StreamId, data: &mut Bytes) -> Result<usize, WriteError> {
        todo!()
    }
    pub fn finish(&mut self, id: StreamId) -> Result<(), ClosedStream> {
        todo!()
    }
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), ClosedStream> {
        todo!()
    }
    pub fn stop(&mut self, id: StreamId, code: u64) -> Result<(), ClosedStream> {
        todo!()
    }
    pub fn set_priority(&mut self, id: StreamId, p: i32) -> Result<(), ClosedStream> {
        todo!()
    }
    pub fn read(&mut self, id: StreamId, max: usize) -> Result<Option<Bytes>, ReadError> {
        todo!()
    }
    pub fn send_datagram(&mut self, b: Bytes) -> Result<(), SendDatagramError> {
        todo!()
    }
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        todo!()
    }
    pub fn open_path(
        &mut self,
        now: Instant,
        tuple: Tuple,
        options: PathOptions,
    ) -> Result<PathId, OpenPathError> {
        todo!()
    }
    pub fn abandon_path(&mut self, now: Instant, id: PathId, code: u64) -> Result<(), PathUnknown> {
        todo!()
    }
    pub fn set_path_status(&mut self, id: PathId, s: PathStatus) -> Result<(), PathUnknown> {
        todo!()
    }
    pub fn set_path_options(&mut self, id: PathId, s: PathOptions) -> Result<(), PathUnknown> {
        todo!()
    }
    pub fn on_socket_error(&mut self, now: Instant, s: SocketId) {}
    pub fn paths(&self) -> impl Iterator<Item = PathId> {
        std::iter::empty()
    }
    pub fn path_stats(&self, id: PathId) -> Option<PathStats> {
        None
    }
    pub fn stats(&self) -> ConnectionStats {
        todo!()
    }
    pub fn close(&mut self, now: Instant, code: u64, reason: &[u8]) {}
    pub fn side(&self) -> Side {
        todo!()
    }
    pub fn alpn(&self) -> Option<&[u8]> {
        todo!()
    }
    pub fn peer_identity(&self) -> Option<Vec<u8>> {
        todo!()
    }
    pub fn has_multipath(&self) -> bool {
        todo!()
    }
    pub fn server_name(&self) -> &str {
        todo!()
    }
}
