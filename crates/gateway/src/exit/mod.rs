//! Node B: lets clients in, and makes the connections they ask for.

mod allow;
mod anywhere;
mod bound;
mod guests;
pub mod ip;
mod names;
mod tcp;
mod udp;

pub use allow::{NoRule, Rule};

use crate::identity::{
    ClientId, FileError, INVITATION, NAME, NotAdded, NotRevoked, Refused, Secret, Store, on_disk,
};
use crate::records::{About, Listed, Meter, Records};
use crate::refusal::Refusal;
use crate::relay::relay;
use crate::session::{Broken, Incoming, Outgoing, Session, close};
use crate::status::flow::{Flows, Phase};
use crate::status::{self, Client, Datagrams, Far, Snapshot, Status, Traffic};
use crate::treatment;
use allow::Allow;
use anabranch_masque::{
    Ask, Code, Extensions, Headers, Request, RequestLine, Response, Settings, Target, Templates,
};
use anabranch_net::{Connection, Endpoint};
use guests::{Flow, Guest, Guests};
use ip::Network;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

/// How long a client may take to prove who it is.
const PROOF: Duration = Duration::from_secs(15);
/// How long a request's head may take to arrive.
const HEAD: Duration = Duration::from_secs(15);
/// Requests of one connection by nobody who is let in.
const MAX_FAILURES: u32 = 4;
/// Time between two records of what clients moved.
const RECORD: Duration = Duration::from_secs(60);

/// Time between two looks at whether flows are open still, before it leaves.
const LOOK: Duration = Duration::from_millis(100);

/// The application protocol of all that is served.
const ALPN: &[u8] = b"h3";

/// What an exit permits.
#[derive(Debug, Clone)]
pub struct Permissions {
    /// Targets it reaches besides public addresses.
    pub allow: Vec<Rule>,
    /// Flows of one client at a time.
    pub max_flows: usize,
}

/// Node B.
#[derive(Debug)]
pub struct Exit {
    store: Arc<Store>,
    guests: Guests,
    allow: Arc<Allow>,
    max_flows: usize,
    name: String,
    templates: Templates,
    records: Arc<Records>,
    since: Instant,
    /// What carries packets of IP, if it does.
    network: Option<Network>,
    /// When it ends whatever is open, once it is about to leave.
    leaving: watch::Sender<Option<Instant>>,
}

/// What was seen of a client: bytes up and down, and the paths of its newest connection.
type Seen = BTreeMap<ClientId, ((u64, u64), Snapshot)>;

/// What is known of a connection.
#[derive(Debug)]
struct Visit {
    session: Session,
    /// The first client that proved itself on it.
    guest: OnceCell<Arc<Guest>>,
    failures: AtomicU32,
}

/// Waits until an exit is about to leave.
async fn told(leaving: &mut watch::Receiver<Option<Instant>>) {
    // The sender lives as long as the exit.
    let _ = leaving.wait_for(Option::is_some).await;
}

/// Waits until the deadline, and for ever if there is a guest by then, as one may have proved
/// itself meanwhile.
async fn nobody<T>(guest: &OnceCell<T>, deadline: Instant) {
    sleep_until(deadline).await;
    if guest.initialized() {
        std::future::pending::<()>().await;
    }
}

impl Exit {
    /// An exit that calls itself `name`.
    pub fn new(store: Store, permissions: Permissions, name: &str) -> Self {
        Self {
            store: Arc::new(store),
            guests: Guests::default(),
            allow: Arc::new(Allow::new(permissions.allow)),
            max_flows: permissions.max_flows,
            name: crate::identity::plain_name(name),
            since: Instant::now(),
            templates: crate::templates(),
            records: Arc::default(),
            network: None,
            leaving: watch::Sender::new(None),
        }
    }

    /// Carries packets of IP, too.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        // Nobody else has it yet.
        if let Some(allow) = Arc::get_mut(&mut self.allow) {
            allow.forbid(network.prefixes());
        }
        self.network = Some(network);
        self
    }

    /// An invitation for one client.
    ///
    /// # Errors
    ///
    /// The store cannot be written.
    pub async fn invite(&self) -> Result<Secret, FileError> {
        let store = Arc::clone(&self.store);
        on_disk(move || store.invite()).await
    }

    /// Lets a client in that cannot use an invitation, and returns what it is to show.
    ///
    /// # Errors
    ///
    /// The name is none or taken, or that cannot be written down.
    pub async fn add(&self, name: &str) -> Result<(ClientId, Secret), NotAdded> {
        let (store, name) = (Arc::clone(&self.store), name.to_owned());
        on_disk(move || store.add(&name)).await
    }

    /// Closes everything a client has open, given by number or name, and admits it no more.
    ///
    /// # Errors
    ///
    /// Not exactly one client matches, or the store cannot be written.
    pub async fn revoke(self: &Arc<Self>, called: &str) -> Result<ClientId, NotRevoked> {
        let (exit, called) = (Arc::clone(self), called.to_owned());
        // Together: who gave up waiting has still revoked and expelled it.
        on_disk(move || {
            let id = exit.store.revoke(&called)?;
            exit.guests.expel(&id);
            Ok(id)
        })
        .await
    }

    /// Tells all clients, and those that come later, that it is about to leave: they connect anew,
    /// to wherever they are led. Open flows may go on for `at_most`. Returns how many there are.
    pub fn drain(&self, at_most: Duration) -> usize {
        self.leaving.send_replace(Some(Instant::now() + at_most));
        self.guests.open()
    }

    /// Waits until it was told to leave and has nothing open any more, or has waited long enough.
    pub async fn drained(&self) {
        let mut leaving = self.leaving.subscribe();
        told(&mut leaving).await;
        let is_due = || self.leaving.borrow().is_some_and(|at| at <= Instant::now());
        loop {
            // First, so that clients hear of it.
            sleep(LOOK).await;
            if self.guests.open() == 0 || is_due() {
                return;
            }
        }
    }

    /// Who was let in.
    pub fn clients(&self) -> Vec<Client> {
        let seen = self.look();
        self.describe(&seen, &seen)
    }

    /// The far end's status; rates are measured for a second.
    pub async fn status(&self) -> Status {
        let (before, moved) = (self.look(), self.records.totals().moved);
        sleep(status::MEASURED).await;
        let clients = self.describe(&before, &self.look());
        self.show(clients, Some(moved))
    }

    /// The status without rates, for callers that ask again and again.
    pub fn glance(&self) -> Status {
        self.show(self.clients(), None)
    }

    /// `before` is what flows had moved a while ago, if rates are to be told.
    fn show(&self, clients: Vec<Client>, before: Option<(u64, u64)>) -> Status {
        let totals = self.records.totals();
        // What goes into the tunnel here goes down.
        let up_down = |(inward, outward)| (outward, inward);
        let before = before.unwrap_or(totals.moved);
        Status::Far(Far {
            flows: totals.flows,
            traffic: Traffic::between(up_down(before), up_down(totals.moved)),
            datagrams: totals.datagrams.turned(),
            name: self.name.clone(),
            running_seconds: self.since.elapsed().as_secs(),
            clients,
        })
    }

    fn look(&self) -> Seen {
        let look = |(id, client): (ClientId, crate::identity::Client)| {
            let guest = self.guests.find(&id);
            // What was not written down yet comes on top.
            let (down, up) = guest.as_ref().map_or((0, 0), |guest| guest.moved.so_far());
            let moved = (client.up + up, client.down + down);
            let connections = guest.map(|guest| guest.connections()).unwrap_or_default();
            (id, (moved, status::snapshot(connections.last())))
        };
        self.store.clients().into_iter().map(look).collect()
    }

    fn describe(&self, before: &Seen, after: &Seen) -> Vec<Client> {
        let nothing = ((0, 0), Snapshot::new());
        let describe = |(id, client): (ClientId, crate::identity::Client)| {
            let after = after.get(&id).unwrap_or(&nothing);
            let before = before.get(&id).unwrap_or(after);
            let guest = self.guests.find(&id);
            let open = guest.as_ref().map(|guest| guest.open());
            Client {
                id: id.to_string(),
                name: client.name,
                first_seen: client.first_seen,
                last_seen: client.last_seen,
                datagrams: guest
                    .as_ref()
                    .map(|guest| Datagrams::of_far(&guest.datagrams))
                    .unwrap_or_default(),
                connected: guest.is_some_and(|guest| !guest.connections().is_empty()),
                open: open.unwrap_or_default(),
                traffic: Traffic::between(before.0, after.0),
                paths: status::paths(&before.1, &after.1, None),
            }
        };
        self.store.clients().into_iter().map(describe).collect()
    }

    /// Serves the clients of an endpoint, until it is shut down.
    pub async fn run(self: &Arc<Self>, endpoint: &Endpoint) {
        let recording = async {
            let mut ticks = interval(RECORD);
            loop {
                ticks.tick().await;
                self.record().await;
            }
        };
        let accepting = async {
            while let Some(connection) = endpoint.accept().await {
                tokio::spawn(Arc::clone(self).receive(connection));
            }
        };
        let carrying = async {
            match &self.network {
                Some(network) => network.run().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = accepting => {}
            () = recording => {}
            () = carrying => {}
        }
    }

    /// Writes down what clients moved.
    pub async fn record(self: &Arc<Self>) {
        let exit = Arc::clone(self);
        let saved = on_disk(move || {
            if exit.guests.settle(&exit.store) {
                exit.store.save()
            } else {
                Ok(())
            }
        });
        if let Err(error) = saved.await {
            tracing::warn!("what clients moved cannot be written down: {error}");
        }
    }

    async fn receive(self: Arc<Self>, connection: Connection) {
        if connection.alpn().as_deref() != Some(ALPN) {
            return close(
                &connection,
                Code::VERSION_FALLBACK,
                "only HTTP/3 is spoken here",
            );
        }
        let deadline = Instant::now() + PROOF;
        let started = Session::start_by(deadline, connection, Settings::OURS).await;
        let Ok(session) = started else { return };
        let visit = Arc::new(Visit {
            session,
            guest: OnceCell::new(),
            failures: AtomicU32::new(0),
        });
        let (exit, counted) = (Arc::clone(&self), Arc::clone(&visit));
        tokio::spawn(async move { exit.count_expired(&counted).await });
        let mut leaving = self.leaving.subscribe();
        let mut has_told = false;
        loop {
            tokio::select! {
                request = visit.session.accept() => match request {
                    Ok((outgoing, incoming)) => {
                        let (exit, visit) = (Arc::clone(&self), Arc::clone(&visit));
                        tokio::spawn(async move { exit.answer(&visit, outgoing, incoming).await });
                    }
                    Err(_) => return,
                },
                () = told(&mut leaving), if !has_told => {
                    has_told = true;
                    visit.session.leave();
                }
                () = nobody(&visit.guest, deadline) => {
                    let reason = "nobody proved who this is";
                    return close(visit.session.connection(), Code::EXCESSIVE_LOAD, reason);
                }
            }
        }
    }

    /// Counts the datagrams that could not leave in time, until the connection ends.
    async fn count_expired(&self, visit: &Visit) {
        let all = || Some(Arc::clone(&visit.guest.get()?.datagrams));
        let connection = visit.session.connection().clone();
        self.records.count_expired(connection, all).await;
    }

    /// The connections of all clients.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> Vec<Connection> {
        let clients = self.store.clients().into_iter();
        let here = clients.filter_map(|(id, _)| self.guests.find(&id));
        here.flat_map(|guest| guest.connections()).collect()
    }

    /// Answers a request, whatever it is.
    async fn answer(&self, visit: &Visit, mut outgoing: Outgoing, mut incoming: Incoming) {
        let Ok(head) = timeout(HEAD, incoming.head()).await else {
            // Nothing was done for it: RFC 9114, section 4.1.1.
            outgoing.reset(Code::REQUEST_REJECTED);
            return incoming.stop(Code::REQUEST_REJECTED);
        };
        let read = head.and_then(|head| {
            let request = Request::from_fields(head);
            request.map_err(|error| incoming.refuse(error))
        });
        let request = match read {
            Ok(request) => request,
            Err(broken) => return outgoing.reset(broken.code()),
        };
        if !matches!(request.line, RequestLine::Extended { .. }) {
            visit.session.without_datagrams(&mut incoming);
        }
        if let Err(broken) = self.serve(visit, request, outgoing, incoming).await {
            tracing::debug!("a request ended early: {broken}");
        }
    }

    async fn serve(
        &self,
        visit: &Visit,
        request: Request,
        mut outgoing: Outgoing,
        incoming: Incoming,
    ) -> Result<(), Broken> {
        let guest = match self.recognise(visit, &request.headers).await {
            Ok(guest) => guest,
            Err(refusal) => {
                outgoing.answer(incoming, &refusal.response()).await?;
                if visit.failures.fetch_add(1, Ordering::Relaxed) >= MAX_FAILURES {
                    let reason = "too many requests by nobody who is let in";
                    close(visit.session.connection(), Code::EXCESSIVE_LOAD, reason);
                }
                return Ok(());
            }
        };
        let is_join = matches!(
            &request.line,
            RequestLine::Other { path, .. } if path == crate::JOIN_PATH
        );
        let response = match self.templates.read(&request.line) {
            Ok(Ask::Connect(target)) => {
                outgoing.treat(&treatment::read(&request.headers));
                return self.connect(&guest, &target, outgoing, incoming).await;
            }
            Ok(Ask::Udp(target)) => {
                let ends = (outgoing, incoming);
                let offered = Extensions::read(&request.headers);
                let how = (offered, treatment::read(&request.headers));
                return self.associate(visit, &guest, target, how, ends).await;
            }
            Ok(Ask::Ip(scope)) => {
                let ends = (outgoing, incoming);
                let offered = Extensions::read(&request.headers);
                return self.carry_ip(visit, &guest, scope, offered, ends).await;
            }
            Ok(Ask::Tcp(_)) => Refusal::Unsupported.response(),
            Err(_) if is_join => Response {
                status: 200,
                headers: Headers::new().with(NAME, self.name.clone()),
            },
            Err(refusal) => Refusal::from(refusal).response(),
        };
        outgoing.answer(incoming, &response).await
    }

    /// Who sends a request. A connection belongs to the first client that proves itself on it.
    async fn recognise(&self, visit: &Visit, headers: &Headers) -> Result<Arc<Guest>, Refusal> {
        let credential = credential(headers).ok_or(Refusal::Unauthenticated)?;
        let invitation = headers
            .text(INVITATION)
            .and_then(|text| text.parse::<Secret>().ok());
        let id = match (self.store.authenticate(&credential), invitation) {
            (Some(id), _) => id,
            (None, Some(invitation)) => {
                let name = headers.text(NAME).unwrap_or_default();
                self.let_in(invitation, credential, name).await?
            }
            (None, None) => return Err(Refusal::Unauthenticated),
        };
        let enter = || async {
            let connection = visit.session.connection();
            let entered = self.guests.enter(&id, connection, &self.store);
            entered.ok_or(Refusal::Unauthenticated)
        };
        let guest = visit.guest.get_or_try_init(enter).await?;
        if guest.id == id {
            Ok(Arc::clone(guest))
        } else {
            Err(Refusal::Unauthenticated)
        }
    }

    /// Lets a client in that was invited. It is written down before anybody is told.
    async fn let_in(
        &self,
        invitation: Secret,
        credential: Secret,
        name: &str,
    ) -> Result<ClientId, Refusal> {
        let (store, name) = (Arc::clone(&self.store), name.to_owned());
        let redeemed = on_disk(move || store.redeem(&invitation, &credential, &name)).await;
        redeemed.map_err(|refused| {
            match refused {
                Refused::Unknown => tracing::info!("not let in: {refused}"),
                Refused::Full | Refused::File(_) => tracing::warn!("not let in: {refused}"),
            }
            refused.into()
        })
    }

    async fn connect(
        &self,
        guest: &Arc<Guest>,
        target: &Target,
        mut outgoing: Outgoing,
        incoming: Incoming,
    ) -> Result<(), Broken> {
        let Some(flow) = Flow::begin(guest, self.max_flows) else {
            let response = Refusal::TooMany.response();
            return outgoing.answer(incoming, &response).await;
        };
        let record = self.enlist(guest, target, false);
        let connected = tokio::select! {
            connected = tcp::connect(target, &guest.names, &self.allow) => connected,
            broken = outgoing.given_up() => return Err(broken),
        };
        let socket = match connected {
            Ok(socket) => socket,
            Err(refusal) => {
                record.ends(&refusal);
                tracing::debug!("{target}: {refusal}");
                return outgoing.answer(incoming, &refusal.response()).await;
            }
        };
        outgoing.head(&Response::new(200).to_fields()).await?;
        if let Ok(remote) = socket.peer_addr() {
            record.led_to(remote);
        }
        record.enter(Phase::Open);
        let meter = Meter {
            all: flow.moved(),
            record: &record,
        };
        if let Err(cut) = relay(socket, outgoing, incoming, meter).await {
            tracing::debug!("{target}: {cut}");
        }
        Ok(())
    }

    /// A flow begins, and is listed until its end.
    fn enlist(&self, guest: &Guest, target: &Target, is_udp: bool) -> Listed {
        let listed = self.records.begin(About {
            is_udp,
            target: target.clone(),
            source: None,
            client: Some(guest.id.to_string()),
        });
        listed.enter(Phase::Target);
        listed
    }

    /// The flows of this number or target, or the biggest ones; measured for a second.
    pub async fn flows(&self, called: Option<&str>, most: usize) -> Flows {
        let mut flows = self.records.show(called, most, false).await;
        flows.explain(|flow| {
            let is_its = |guest: &Arc<Guest>| Some(guest.id.to_string()) == flow.client;
            self.guests.find_by(is_its)?.connections().pop()
        });
        flows
    }
}

/// What a request shows: `Bearer`, for this server or, as clients that know only proxies have it,
/// for a proxy.
fn credential(headers: &Headers) -> Option<Secret> {
    let shown = headers.text("authorization");
    let shown = shown.or_else(|| headers.text("proxy-authorization"))?;
    let (scheme, secret) = shown.split_once(' ')?;
    let secret = scheme.eq_ignore_ascii_case("bearer").then_some(secret)?;
    secret.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_proved_itself_while_that_was_waited_for_may_stay_idle() {
        let deadline = Instant::now() + PROOF;
        let (known, unknown) = (OnceCell::new(), OnceCell::<u8>::new());
        nobody(&unknown, deadline).await;
        assert_eq!(Instant::now(), deadline);
        let deadline = Instant::now() + PROOF;
        let proved = async {
            sleep(PROOF / 2).await;
            known.set(1).unwrap();
            sleep(10 * PROOF).await;
        };
        tokio::select! {
            () = nobody(&known, deadline) => panic!("it was taken for nobody"),
            () = proved => {}
        }
    }
}
