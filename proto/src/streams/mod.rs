//! Streams, flow control and datagrams.
