//! noq's connections, seen as ours are.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

use crate::ours::watched::{Tripwire, Watched};
use crate::ours::{self, loopback, soon};
use anabranch_interop::noq_peer::{self, Listener};
use anabranch_interop::{Answer, Request, ServeConfig, service};
use futures_util::StreamExt;
use noq::{Connection, PathEvent, PathId, PathStats};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// Paths noq allows unless a test says otherwise.
pub(crate) const PATHS: u32 = 4;

/// A server of noq's with multipath.
pub(crate) fn listen() -> Listener {
    let config = ServeConfig {
        max_paths: PATHS,
        ..ServeConfig::default()
    };
    Listener::bind(&config).unwrap()
}

/// Our client and noq's end of its connection.
pub(crate) struct ToNoq {
    pub(crate) listener: Listener,
    pub(crate) client: ours::Client,
    pub(crate) theirs: Connection,
    pub(crate) events: Watched<PathEvent>,
}

impl ToNoq {
    pub(crate) async fn connect() -> Self {
        Self::connect_over(listen(), None).await
    }

    /// The first path leads to `first` instead of the listener, if there is one.
    pub(crate) async fn connect_over(listener: Listener, first: Option<SocketAddr>) -> Self {
        let server = first.unwrap_or(listener.addr());
        let connecting = ours::Client::connect(server, listener.fingerprint());
        let (client, theirs) = soon(async { tokio::join!(connecting, listener.accept()) }).await;
        let theirs = theirs.unwrap();
        assert!(client.connection.has_multipath());
        assert!(theirs.is_multipath_enabled());
        let events = watch(&theirs);
        Self {
            listener,
            client,
            theirs,
            events,
        }
    }

    /// A path from this loopback address to the listener.
    pub(crate) fn path_from(&self, last: u8) -> anabranch_interop::FurtherPath {
        anabranch_interop::FurtherPath {
            local: loopback(last),
            remote: self.listener.addr(),
        }
    }
}

/// A server of ours that sends on its paths in turn.
fn in_turn() -> ours::Server {
    ours::Server::start(ours::Setup {
        transport: ours::in_turn(),
        ..ours::Setup::default()
    })
}

/// noq's client and our end of its connection.
pub(crate) struct FromNoq {
    pub(crate) server: ours::Server,
    pub(crate) client: noq_peer::Client,
    pub(crate) events: Watched<PathEvent>,
    pub(crate) ours: anabranch_net::Connection,
    pub(crate) notices: Watched<anabranch_net::engine::PathNotice>,
}

impl FromNoq {
    pub(crate) async fn connect() -> Self {
        Self::connect_with(in_turn(), None, None).await
    }

    /// noq's congestion window on each path stays at `window` bytes.
    pub(crate) async fn connect_narrowly(window: u64) -> Self {
        Self::connect_with(in_turn(), None, Some(window)).await
    }

    /// The first path leads to `first` instead of the server, if there is one.
    pub(crate) async fn connect_over(server: ours::Server, first: Option<SocketAddr>) -> Self {
        Self::connect_with(server, first, None).await
    }

    async fn connect_with(
        mut server: ours::Server,
        first: Option<SocketAddr>,
        congestion_window: Option<u64>,
    ) -> Self {
        let mut config = server.ask(Request::Get(0));
        config.server = first.unwrap_or(server.addr);
        config.congestion_window = congestion_window;
        let connecting = noq_peer::Client::connect(&config, PATHS);
        let (client, ours) = soon(async { tokio::join!(connecting, server.accepted()) }).await;
        let client = client.unwrap();
        assert!(client.connection.is_multipath_enabled());
        assert!(ours.has_multipath());
        let (events, notices) = (watch(&client.connection), ours::watch(&ours));
        Self {
            server,
            client,
            events,
            ours,
            notices,
        }
    }

    /// Opens a path from this loopback address.
    pub(crate) async fn open_path(&self, last: u8, status: noq::PathStatus) -> noq::Path {
        let further = self.server.path_from(last);
        let opening = self.client.open_path(further, status, usize::from(last));
        soon(opening).await.unwrap()
    }

    pub(crate) async fn ask(&self, request: Request) -> Answer {
        self.ask_and(request, u64::MAX, || ()).await
    }

    /// Makes a request and does something when so many bytes of content have passed noq.
    pub(crate) async fn ask_and(
        &self,
        request: Request,
        after: u64,
        action: impl FnOnce() + Send + 'static,
    ) -> Answer {
        let (send, receive) = self.client.connection.open_bi().await.unwrap();
        let (receive, send) = Tripwire::pair(request, after, action, receive, send);
        soon(service::ask(request, receive, send)).await.unwrap()
    }
}

/// Collects what happens to the paths of a connection of noq's.
pub(crate) fn watch(connection: &Connection) -> Watched<PathEvent> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut events, into) = (connection.path_events(), Arc::clone(&seen));
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let Ok(event) = event {
                into.lock().unwrap().push(event);
            }
        }
    });
    Watched(seen)
}

/// What noq knows of a path that exists.
pub(crate) fn path(connection: &Connection, id: u32) -> PathStats {
    connection
        .path_stats(PathId::from(id))
        .expect("an open path")
}

/// The number of a path ID, which noq does not tell.
pub(crate) fn number(id: PathId) -> u32 {
    let is_it = |&number: &u32| PathId::from(number) == id;
    (0..1000).find(is_it).expect("no test opens so many paths")
}

pub(crate) fn is_established(id: u32) -> impl Fn(&PathEvent) -> bool {
    move |event| matches!(event, PathEvent::Established { id: at, .. } if *at == PathId::from(id))
}

pub(crate) fn is_abandoned(id: u32) -> impl Fn(&PathEvent) -> bool {
    move |event| matches!(event, PathEvent::Abandoned { id: at, .. } if *at == PathId::from(id))
}

pub(crate) fn is_discarded(id: u32) -> impl Fn(&PathEvent) -> bool {
    move |event| matches!(event, PathEvent::Discarded { id: at, .. } if *at == PathId::from(id))
}

/// Whether noq was told this status of a path.
pub(crate) fn is_status(id: u32, status: noq::PathStatus) -> impl Fn(&PathEvent) -> bool {
    move |event| match event {
        PathEvent::RemoteStatus {
            id: at,
            status: told,
            ..
        } => *at == PathId::from(id) && *told == status,
        _ => false,
    }
}
