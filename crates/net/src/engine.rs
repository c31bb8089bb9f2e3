//! The engine's names that this crate's interface is made of, gathered from `anabranch-proto`.

pub use anabranch_proto::cid_format::{CidFormat, Routable, RoutableError, Share};
pub use anabranch_proto::config::{
    AckFrequency, AckReturn, ClientConfig, EndpointConfig, IncomingPolicy, RetryPolicy,
    ServerConfig, TransportConfig,
};
pub use anabranch_proto::congestion::ControllerFactory;
pub use anabranch_proto::connection::{
    AbandonPathError, ConnectionStats, MigrateError, OpenPathError, PathStats, PathUnknown,
};
pub use anabranch_proto::connection::{Connection, KeyUpdateRefused};
pub use anabranch_proto::connection::{DelayDifference, DelayMethod};
pub use anabranch_proto::datagram::{SocketId, Tuple};
pub use anabranch_proto::endpoint::AcceptError;
pub use anabranch_proto::error::ConnectionError;
pub use anabranch_proto::event::PathNotice;
pub use anabranch_proto::path::PathOptions;
pub use anabranch_proto::resumption::{Resume, ResumptionState, StateError};
pub use anabranch_proto::streams::{ReceiveBudget, ReceivedDatagram};
pub use anabranch_proto::tls;
pub use anabranch_proto::wire::frame::PathStatus;
pub use anabranch_proto::wire::{PathId, Side, StreamId, TransportErrorCode};

// Not exported: this crate has types of its own under most of these names.
pub(crate) use anabranch_proto::endpoint::{ConnectError, Endpoint, Handle, Incoming};
pub(crate) use anabranch_proto::event::Event;
pub(crate) use anabranch_proto::streams::{
    DatagramOptions, ReadError, SendDatagramError, StreamEvent, WriteError,
};
