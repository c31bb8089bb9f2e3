//! Does what was ordered once enough bytes have passed, and again until it is permitted.

use crate::Outcome;
use crate::options::{Action, Options, Step};
use crate::report::say;
use anabranch_net::engine::{PathNotice, PathOptions};
use anabranch_net::sockets::SocketConfig;
use anabranch_net::{Connection, Endpoint, Notice};
use anabranch_proto::wire::PathId;
use anabranch_proto::wire::frame::PathStatus;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often it looks whether it is time.
const TICK: Duration = Duration::from_millis(1);
/// How long a path may take to open.
const OPENING: Duration = Duration::from_secs(20);

/// The steps of one connection, being done.
#[derive(Debug)]
pub(crate) struct Actions {
    tasks: Vec<JoinHandle<()>>,
    opened: watch::Receiver<usize>,
    /// Paths that the request waits for.
    wanted: usize,
}

impl Actions {
    pub(crate) fn start(options: &Options, endpoint: &Endpoint, connection: &Connection) -> Self {
        let first = |step: &&Step| step.at == 0 && matches!(step.action, Action::Open(_));
        let wanted = options.steps.iter().filter(first).count();
        let (count, opened) = watch::channel(0);
        let mut notices = connection.path_notices();
        let counting = tokio::spawn(async move {
            while let Some(notice) = notices.next().await {
                if let Notice::Path(PathNotice::Opened { .. }) = notice {
                    count.send_modify(|count| *count += 1);
                }
            }
        });
        let doing = tokio::spawn(perform_all(
            options.steps.clone(),
            options.paths.clone(),
            endpoint.clone(),
            connection.clone(),
        ));
        Self {
            tasks: vec![counting, doing],
            opened,
            wanted,
        }
    }

    /// Waits for the paths that were to be opened first.
    pub(crate) async fn paths_opened(&self) -> Outcome<()> {
        let mut opened = self.opened.clone();
        let wanted = self.wanted;
        let opening = opened.wait_for(|&count| count >= wanted);
        match tokio::time::timeout(OPENING, opening).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(format!("no path opened within {OPENING:?}").into()),
        }
    }

    pub(crate) fn stop(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn perform_all(
    mut steps: Vec<Step>,
    paths: Vec<(IpAddr, SocketAddr)>,
    endpoint: Endpoint,
    connection: Connection,
) {
    while !steps.is_empty() {
        let streams = connection.stats().streams;
        let passed = streams.bytes_sent.max(streams.bytes_received);
        steps.retain(|step| {
            let is_done = step.at <= passed && perform(step.action, &paths, &endpoint, &connection);
            if is_done {
                say(&format!("did {:?} at {passed}", step.action));
            }
            !is_done
        });
        tokio::time::sleep(TICK).await;
    }
}

/// Whether it could be done; what is not permitted now may be later.
fn perform(
    action: Action,
    paths: &[(IpAddr, SocketAddr)],
    endpoint: &Endpoint,
    connection: &Connection,
) -> bool {
    match action {
        Action::Open(at) => open(paths[at], endpoint, connection),
        Action::Abandon(id) => connection.abandon_path(PathId(id), 0_u32).is_ok(),
        Action::Backup(id) => {
            let status = PathStatus::Backup;
            connection.set_path_status(PathId(id), status).is_ok()
        }
        Action::Available(id) => {
            let status = PathStatus::Available;
            connection.set_path_status(PathId(id), status).is_ok()
        }
        Action::Keys => connection.update_keys().is_ok(),
    }
}

fn open(path: (IpAddr, SocketAddr), endpoint: &Endpoint, connection: &Connection) -> bool {
    let (local, remote) = path;
    let Ok(socket) = endpoint.add_socket(&SocketConfig::path(local, None)) else {
        return false;
    };
    let opened = connection.open_path(socket, remote, PathOptions::default());
    if opened.is_err() {
        endpoint.remove_socket(socket);
    }
    opened.is_ok()
}
