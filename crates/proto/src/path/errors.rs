//! Why a path cannot be opened, moved or given up.

/// Why a path cannot be opened now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenPathError {
    /// Paths can be opened once the handshake is complete.
    #[error("the handshake is not complete yet")]
    NotYet,
    /// One side does not speak the multipath extension.
    #[error("multipath was not negotiated")]
    NoMultipath,
    /// As many paths are open as this side or the peer allows.
    #[error("as many paths are open as both sides allow")]
    LimitReached,
    /// The peer has not issued a connection ID for the next path yet.
    #[error("the peer has not issued a connection ID for the next path yet")]
    NoCid,
    /// The server allows no other path to the address of the handshake
    /// (`disable_active_migration`).
    #[error("the server forbids further paths to its address")]
    Forbidden,
    /// Only clients open paths.
    #[error("only the client opens paths")]
    NotClient,
    /// The connection is over.
    #[error("the connection is closed")]
    Closed,
}

/// Why a path cannot be moved to another route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MigrateError {
    /// Only clients move.
    #[error("only the client moves a path")]
    NotClient,
    /// The handshake is not confirmed, or the connection is over.
    #[error("the connection is not ready")]
    NotYet,
    /// The server forbids it (`disable_active_migration`).
    #[error("the server forbids migration")]
    Forbidden,
    /// No such path is open.
    #[error("no such path is open")]
    NoSuchPath,
    /// The peer has not issued a spare connection ID.
    #[error("the peer has not issued a spare connection ID")]
    NoCid,
}

/// Why a path cannot be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AbandonPathError {
    /// The path is not open.
    #[error("no such path is open")]
    Unknown,
    /// No other path is known to work: close the connection instead.
    #[error("no other path is known to work")]
    LastPath,
}

/// The path is not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such path is open")]
pub struct PathUnknown;
