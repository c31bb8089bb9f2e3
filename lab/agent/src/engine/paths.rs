//! The paths of a connection: opened at their times, opened again after a loss, and used as the
//! scenario says.

use super::Host;
use crate::ledger::Ledger;
use anabranch_lab::engine::path_options;
use anabranch_lab::hosts::HostPath;
use anabranch_net::engine::{MigrateError, OpenPathError, PathNotice, PathOptions, PathStats};
use anabranch_net::{Connection, Notice, PathNotices};
use anabranch_proto::datagram::{SocketId, Tuple};
use anabranch_proto::wire::{PathId, TransportErrorCode};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long after it was abandoned a path is opened again.
const REOPEN: Duration = Duration::from_secs(1);

/// How long to wait for a spare connection ID of the peer's before trying again to migrate.
const SPARE_CID: Duration = Duration::from_millis(100);

/// The code with which a path is abandoned when its address is gone.
const PATH_UNSTABLE: TransportErrorCode = TransportErrorCode::PATH_UNSTABLE_OR_POOR;

/// One path that a client keeps open.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Its socket, which is replaced when its address changes.
    pub(super) socket: watch::Receiver<SocketId>,
    pub(super) remote: SocketAddr,
    pub(super) options: PathOptions,
    pub(super) opens: Duration,
    /// The path's ID if it is open already, as the first one is.
    pub(super) open: Option<PathId>,
}

/// Opens a path and keeps it open until the connection ends.
pub(super) async fn keep_open(connection: Connection, mut plan: Plan, ledger: Arc<Ledger>) {
    let mut notices = connection.path_notices();
    let mut current = plan.open;
    if let Some(id) = current {
        set_options(&connection, id, plan.options);
    } else {
        ledger.wait_until(plan.opens).await;
    }
    if connection.established().await.is_err() {
        return;
    }
    loop {
        let id = loop {
            if let Some(id) = current.take() {
                break id;
            }
            let socket = *plan.socket.borrow_and_update();
            match connection.open_path(socket, plan.remote, plan.options) {
                Ok(id) => break id,
                Err(error) if is_final(error) => return,
                Err(_) => {
                    if !room(&mut notices).await {
                        return;
                    }
                }
            }
        };
        let wait = tokio::select! {
            more = lost(&connection, &mut notices, id) => {
                if !more {
                    return;
                }
                REOPEN
            }
            Ok(()) = plan.socket.changed() => {
                current = replace(&connection, &mut notices, &mut plan, id).await;
                Duration::ZERO
            }
        };
        tokio::time::sleep(wait).await;
    }
}

fn is_final(error: OpenPathError) -> bool {
    matches!(
        error,
        OpenPathError::NoMultipath
            | OpenPathError::Forbidden
            | OpenPathError::NotClient
            | OpenPathError::Closed
    )
}

/// Waits until a path is abandoned. False if the connection has ended.
async fn lost(connection: &Connection, notices: &mut PathNotices, id: PathId) -> bool {
    loop {
        match notices.next().await {
            Some(Notice::Path(PathNotice::Abandoned { id: lost, .. })) if lost == id => {
                return true;
            }
            Some(Notice::Missed) if connection.path_stats(id).is_none() => return true,
            Some(_) => {}
            None => return false,
        }
    }
}

/// Opens a path from the new socket and abandons the old one once that works. Without multipath,
/// the only path migrates (RFC 9000, section 9). Returns the path to keep, if any.
async fn replace(
    connection: &Connection,
    notices: &mut PathNotices,
    plan: &mut Plan,
    old: PathId,
) -> Option<PathId> {
    loop {
        let socket = *plan.socket.borrow_and_update();
        match connection.open_path(socket, plan.remote, plan.options) {
            Ok(new) => {
                opened(connection, notices, new).await;
                // It may have ended by itself, and the last working path cannot be abandoned.
                let _ = connection.abandon_path(old, PATH_UNSTABLE);
                return Some(new).filter(|new| connection.path_stats(*new).is_some());
            }
            Err(OpenPathError::NoMultipath) => {
                let to = Tuple {
                    socket,
                    local: None,
                    remote: plan.remote,
                };
                match connection.migrate_path(old, to) {
                    Err(MigrateError::NoCid) => tokio::time::sleep(SPARE_CID).await,
                    // If it cannot migrate, it stays and times out by itself.
                    Ok(()) | Err(_) => return Some(old),
                }
            }
            Err(error) if is_final(error) => return Some(old),
            Err(_) => {
                if !room(notices).await {
                    return Some(old);
                }
            }
        }
    }
}

/// Waits until a path can be opened that could not be before. False if the connection has ended.
async fn room(notices: &mut PathNotices) -> bool {
    loop {
        match notices.next().await {
            Some(Notice::Path(PathNotice::Capacity) | Notice::Missed) => return true,
            Some(_) => {}
            None => return false,
        }
    }
}

/// Waits until a path works or is abandoned.
async fn opened(connection: &Connection, notices: &mut PathNotices, id: PathId) {
    loop {
        match notices.next().await {
            Some(Notice::Path(PathNotice::Opened { id: one, .. })) if one == id => return,
            Some(Notice::Path(PathNotice::Abandoned { id: one, .. })) if one == id => return,
            Some(Notice::Missed) => match connection.path_stats(id) {
                Some(stats) if !stats.validated => {}
                _ => return,
            },
            Some(_) => {}
            None => return,
        }
    }
}

/// Applies the options of the server's job to the paths that a client opens, until the connection
/// ends.
pub(super) async fn follow(connection: Connection, host: Arc<Host>) {
    let mut notices = connection.path_notices();
    for (id, stats) in connection.paths() {
        use_as_planned(&connection, &host, id, &stats.tuple);
    }
    while let Some(notice) = notices.next().await {
        match notice {
            Notice::Path(PathNotice::Opened { id, tuple }) => {
                use_as_planned(&connection, &host, id, &tuple);
            }
            Notice::Path(_) => {}
            Notice::Missed => {
                for (id, stats) in connection.paths() {
                    use_as_planned(&connection, &host, id, &stats.tuple);
                }
            }
        }
    }
}

fn use_as_planned(connection: &Connection, host: &Host, id: PathId, tuple: &Tuple) {
    let index = host.index_of(id, tuple);
    set_options(connection, id, path_options(host.job.paths[index].usage));
}

fn set_options(connection: &Connection, id: PathId, options: PathOptions) {
    if options != PathOptions::default() {
        // The path may be gone again; a notice reports that.
        let _ = connection.with_engine(|engine| engine.set_path_options(id, options));
    }
}

/// The index in the job of one of the engine's paths: by socket and remote address, by either, else
/// in turn.
pub(super) fn index_of(
    paths: &[HostPath],
    sockets: &[Vec<SocketId>],
    id: PathId,
    tuple: &Tuple,
) -> usize {
    let remote = tuple.remote.ip().to_canonical();
    let is_far = |index: &usize| paths[*index].remote == remote;
    let is_near = |index: &usize| sockets[*index].contains(&tuple.socket);
    let mut all = 0..paths.len();
    let both = all.clone().find(|index| is_far(index) && is_near(index));
    let only = |of: &dyn Fn(&usize) -> bool| {
        let mut found = (0..paths.len()).filter(|index| of(index));
        found.next().filter(|_| found.next().is_none())
    };
    both.or_else(|| only(&is_far))
        .or_else(|| only(&is_near))
        .or_else(|| all.nth(id.0 as usize))
        .unwrap_or(paths.len() - 1)
}

/// The index in the job of the path that these counters belong to.
pub(super) fn index_of_stats(host: &Host, stats: &PathStats) -> usize {
    host.index_of(stats.id, &stats.tuple)
}
