//! Errors of the asynchronous handles.

pub use crate::netlink::NetlinkError;

use crate::engine::{self, ConnectionError};
use std::io;

/// Why nothing more can be written to a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The peer stopped reading.
    #[error("the peer stopped reading the stream: code {0:#x}")]
    Stopped(u64),
    /// This side finished or reset it.
    #[error("the stream is finished or reset already")]
    Closed,
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// Why nothing more can be read from a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The peer gave the stream up.
    #[error("the peer reset the stream: code {0:#x}")]
    Reset(u64),
    /// This side stopped reading, or has already read the end.
    #[error("the stream has ended already")]
    Closed,
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// Why a stream could not be read to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadToEndError {
    /// The stream is longer than the caller's limit.
    #[error("the stream is longer than {0} bytes")]
    TooLong(usize),
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a buffer could not be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadExactError {
    /// The stream ended first; this many bytes were read.
    #[error("the stream ended after {0} bytes")]
    EndedAfter(usize),
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a datagram could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendDatagramError {
    /// The datagram does not fit into a packet, or is longer than the peer accepts.
    #[error("the datagram is larger than {max} bytes")]
    TooLarge {
        /// The largest payload currently possible.
        max: usize,
    },
    /// The peer does not accept datagrams.
    #[error("the peer does not support datagrams")]
    Unsupported,
    /// The queue is full.
    #[error("the queue of datagrams is full")]
    Full,
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

impl From<engine::SendDatagramError> for SendDatagramError {
    fn from(error: engine::SendDatagramError) -> Self {
        match error {
            engine::SendDatagramError::TooLarge { max } => Self::TooLarge { max },
            engine::SendDatagramError::Unsupported => Self::Unsupported,
            engine::SendDatagramError::Full => Self::Full,
        }
    }
}

/// Why a key update was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyUpdateError {
    /// It is too early for a key update.
    #[error(transparent)]
    Refused(engine::KeyUpdateRefused),
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// Why no keying material was exported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The handshake is not complete, or that much cannot be had.
    #[error("the handshake is not complete, or too many bytes are asked for")]
    Unavailable,
    /// The connection ended.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// Why a connection was not established.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("cannot find the address of {name}: {error}")]
    Lookup {
        /// The name.
        name: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// No interface can carry a path at the moment.
    #[error("no path to try: {0}")]
    NoPath(String),
    /// A socket could not be bound.
    #[error("cannot bind a socket to {place}: {error}")]
    Socket {
        /// The address or interface.
        place: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The engine refused to start the connection.
    #[error(transparent)]
    Start(#[from] engine::ConnectError),
    /// The handshake failed.
    #[error(transparent)]
    Handshake(#[from] ConnectionError),
    /// No answer came in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    TimedOut(std::time::Duration),
    /// All paths were tried, and all failed.
    #[error("{}", attempts(.0))]
    AllFailed(Vec<(String, ConnectError)>),
    /// The interfaces cannot be listed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    EndpointClosed,
}

fn attempts(attempts: &[(String, ConnectError)]) -> String {
    let lines: Vec<String> = attempts
        .iter()
        .map(|(place, error)| format!("from {place}: {error}"))
        .collect();
    lines.join("; ")
}

impl From<WriteError> for io::Error {
    fn from(error: WriteError) -> Self {
        let kind = match &error {
            WriteError::Stopped(_) => io::ErrorKind::ConnectionReset,
            WriteError::Closed => io::ErrorKind::NotConnected,
            WriteError::Connection(error) => kind_of(error),
        };
        Self::new(kind, error)
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Reset(_) => io::ErrorKind::ConnectionReset,
            ReadError::Closed => io::ErrorKind::NotConnected,
            ReadError::Connection(error) => kind_of(error),
        };
        Self::new(kind, error)
    }
}

fn kind_of(error: &ConnectionError) -> io::ErrorKind {
    match error {
        ConnectionError::TimedOut => io::ErrorKind::TimedOut,
        ConnectionError::LocallyClosed => io::ErrorKind::NotConnected,
        ConnectionError::Reset => io::ErrorKind::ConnectionReset,
        _ => io::ErrorKind::ConnectionAborted,
    }
}
