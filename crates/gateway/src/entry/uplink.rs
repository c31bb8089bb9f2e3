//! The connection to the exit: made, made again when it breaks, and handed to flows.
//!
//! ```text
//! Away ──dialled, let in──> Up ──connection ended──> Away, dialled again after a while
//!   └── not let in: the end                             (250 ms, doubled up to 15 s)
//! Up ──the far end is leaving──> Up, on the old connection until the next one stands
//! ```

use super::entrance::{Entrance, Terms, speaks_none};
use crate::identity::Known;
use crate::payloads::{self, OF_IP, Payload};
use crate::records::Record;
use crate::refusal::Refusal;
use crate::relay::Cut;
use crate::session::datagrams::Datagrams;
use crate::session::{Broken, Incoming, Outgoing, Session, close};
use crate::status::{self, flow::Phase};
use anabranch_masque::target::Scope;
use anabranch_masque::{Ask, Code, Extensions, ProxyStatus, Response, Settings, Target};
use anabranch_net::engine::ConnectionError;
use anabranch_net::{Connection, PathManager};
use anabranch_tunnel::Treatment;
use anabranch_tunnel::links::{Cap, Harm, Level, Then, Used};
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long a flow waits for the exit and its answer. The exit gives up earlier by itself.
const OPEN: Duration = Duration::from_secs(30);
/// How long the exit may take to let us in.
const WELCOME: Duration = Duration::from_secs(10);
/// Time before a connection that broke is made again, at first and at most.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Connections that may stand beside the newest one because their far ends are leaving: each has
/// sockets of its own.
const MOST_LEAVING: usize = 3;
/// A connection that lasted this long was a good one: the next pause is short.
const GOOD: Duration = Duration::from_secs(10);

/// Makes a connection to the exit, over all paths.
pub type Dial = Box<dyn Fn() -> Dialling + Send + Sync>;
/// One attempt to make a connection.
pub type Dialling = Pin<Box<dyn Future<Output = Result<(Connection, PathManager), Failed>> + Send>>;

/// Why no connection was made.
#[derive(Debug, Clone)]
pub struct Failed {
    /// What to tell the user.
    pub words: String,
    /// What the user can do; may be empty.
    pub hint: String,
    /// Whether the next attempt would fail as well.
    pub is_final: bool,
}

impl Failed {
    /// The next attempt may do better.
    pub(super) fn not_now(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            hint: String::new(),
            is_final: false,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)?;
        if self.hint.is_empty() {
            return Ok(());
        }
        write!(f, "\n  hint: {}", self.hint)
    }
}

/// What happened to the connection, to be told in a line.
#[derive(Debug, Clone)]
pub enum News {
    /// The connection stands, and the far end has let us in.
    Up {
        /// The far end's name.
        name: String,
        /// What it cannot do that an exit can, in words.
        lacks: Vec<&'static str>,
    },
    /// The far end is about to leave; another connection is made, and flows that are open stay.
    Leaving,
    /// The connection broke; it is being made again.
    Lost(ConnectionError),
    /// The connection could not be made; it is tried again. Told once for each reason.
    NotYet(Failed),
    /// The connection stands, but the far end refuses requests because of who we are. Told once for
    /// each reason.
    Denied(Failed),
    /// Much or all of a link's cap is used up.
    Cap {
        /// What the link is called.
        link: String,
        /// The cap.
        cap: Cap,
        /// What of it is used up.
        used: Used,
    },
    /// A link is put into quarantine, or let out.
    Quarantine {
        /// What the link is called.
        link: String,
        /// What for and for how long; `None` if it is used as before.
        now: Option<(Harm, Duration)>,
    },
    /// Packets of any protocol are carried.
    Packets {
        /// By this device.
        device: String,
        /// From these addresses.
        addresses: Vec<IpAddr>,
    },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { name, lacks } => {
                write!(f, "connected to {name}")?;
                lacks.iter().try_for_each(|it| write!(f, "\n  note: {it}"))
            }
            Self::Leaving => f.write_str("the far end is leaving; connecting again"),
            Self::Lost(reason) => write!(f, "the tunnel broke: {reason}; connecting again"),
            Self::NotYet(Failed { words, hint, .. }) if hint.is_empty() => {
                write!(f, "{words}; trying again")
            }
            Self::NotYet(Failed { words, hint, .. }) => {
                write!(f, "{words}; trying again\n  hint: {hint}")
            }
            Self::Denied(failed) => failed.fmt(f),
            Self::Cap { link, cap, used } => cap_words(f, link, *cap, *used),
            Self::Quarantine { link, now: None } => write!(f, "{link} is used as before"),
            Self::Quarantine {
                link,
                now: Some((harm, left)),
            } => {
                let (why, seconds) = (status::harm(*harm), left.as_secs());
                write!(f, "{link} {why}: a backup for {seconds} s")
            }
            Self::Packets { device, addresses } => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                let addresses = addresses.join(" and ");
                write!(
                    f,
                    "{device} carries packets of any protocol, as {addresses}"
                )
            }
        }
    }
}

fn cap_words(f: &mut fmt::Formatter<'_>, link: &str, cap: Cap, used: Used) -> fmt::Result {
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let (all, until) = (megabytes(cap.bytes), cap.renewal(used));
    let then = match cap.then {
        _ if cap.level(used) != Level::UsedUp => {
            let used = megabytes(used.bytes);
            return write!(
                f,
                "{link} has carried {used} MB of {all} MB; the count begins anew on {until}"
            );
        }
        Then::Never => "not used",
        Then::Backup => "a backup",
    };
    write!(f, "{link} has carried its {all} MB: {then} until {until}")
}

/// What an entry needs to get to its exit.
pub struct Far {
    /// Makes a connection.
    pub dial: Dial,
    /// Lets us in there.
    pub entrance: Entrance,
    /// Hears the news.
    pub tell: Box<dyn Fn(&News) + Send + Sync>,
}

/// A connection that stands.
#[derive(Debug, Clone)]
pub(crate) struct Up {
    pub(crate) session: Session,
    pub(crate) manager: PathManager,
    pub(crate) since: Instant,
    /// What the far end can do.
    terms: Arc<Terms>,
    /// Counts the connections.
    pub(crate) number: u64,
}

/// The connection, whether there is one or not.
pub(crate) struct Uplink {
    far: Far,
    state: watch::Sender<Option<Up>>,
    /// What kept the connection from standing last.
    trouble: Mutex<Option<String>>,
}

impl Uplink {
    pub(crate) fn new(far: Far) -> Self {
        Self {
            far,
            state: watch::Sender::new(None),
            trouble: Mutex::default(),
        }
    }

    /// The connection that stands now.
    pub(crate) fn current(&self) -> Option<Up> {
        self.state.borrow().clone()
    }

    /// What keeps it from standing, if something does.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.clone()
    }

    fn tell(&self, news: &News) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = match news {
            News::Up { .. } => None,
            News::Lost(reason) => Some(reason.to_string()),
            News::Denied(failed) if trouble.as_ref() == Some(&failed.words) => return,
            News::NotYet(failed) | News::Denied(failed) => Some(failed.words.clone()),
            News::Packets { .. } | News::Cap { .. } | News::Quarantine { .. } | News::Leaving => {
                trouble.take()
            }
        };
        drop(trouble);
        (self.far.tell)(news);
    }

    /// Tells news of what the connection carries.
    pub(super) fn say(&self, news: &News) {
        self.tell(news);
    }

    /// Keeps a connection up until that makes no sense any more; says why.
    pub(crate) async fn keep(&self) -> Failed {
        let mut known = match self.far.entrance.known().await {
            Ok(known) => known,
            Err(failed) => return failed,
        };
        let (mut pause, mut told, mut number) = (PAUSE, String::new(), 0);
        let mut leaving = Vec::new();
        loop {
            number += 1;
            match self.connect(&mut known, number).await {
                Ok(up) => {
                    self.tell(&up.news());
                    told.clear();
                    let since = up.since;
                    self.state.send_replace(Some(up.clone()));
                    if let Some(left) = self.until_over(up).await {
                        leave_beside(&mut leaving, left);
                    }
                    if since.elapsed() >= GOOD {
                        pause = PAUSE;
                    }
                }
                Err(failed) if failed.is_final => return failed,
                Err(failed) => {
                    self.forget_closed();
                    if failed.words != told {
                        told.clone_from(&failed.words);
                        self.tell(&News::NotYet(failed));
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until another connection is needed: this one ended, or its far end is leaving. That
    /// one is returned.
    async fn until_over(&self, up: Up) -> Option<Connection> {
        let connection = up.session.connection().clone();
        tokio::select! {
            reason = connection.closed() => {
                self.state.send_replace(None);
                self.tell(&News::Lost(reason));
                None
            }
            () = up.session.left() => {
                self.tell(&News::Leaving);
                let left = connection.clone();
                // Its paths are managed until it is closed.
                tokio::spawn(async move {
                    connection.closed().await;
                    drop(up);
                });
                Some(left)
            }
        }
    }

    /// A connection whose far end was leaving stands until it is closed.
    fn forget_closed(&self) {
        self.state.send_if_modified(|state| {
            let is_closed = |up: &mut Up| up.session.connection().close_reason().is_some();
            state.take_if(is_closed).is_some()
        });
    }

    /// One attempt, with everything that may let us in.
    async fn connect(&self, known: &mut Vec<Known>, number: u64) -> Result<Up, Failed> {
        let (connection, manager) = (self.far.dial)().await?;
        let entered = timeout(WELCOME, self.enter(&connection, known)).await;
        let silent = || Failed::not_now("the tunnel's far end is silent");
        match entered.unwrap_or_else(|_| Err(silent())) {
            Ok((session, terms)) => Ok(Up {
                session,
                manager,
                since: Instant::now(),
                terms: Arc::new(terms),
                number,
            }),
            Err(failed) => {
                close(&connection, Code::NO_ERROR, "");
                Err(failed)
            }
        }
    }

    async fn enter(
        &self,
        connection: &Connection,
        known: &mut Vec<Known>,
    ) -> Result<(Session, Terms), Failed> {
        let session = Session::start(connection.clone(), Settings::OURS).await;
        let session = session.map_err(|broken| speaks_none(&broken))?;
        let terms = self.far.entrance.enter(&session, known).await?;
        Ok((session, terms))
    }

    /// Asks the exit for a connection to the target. Waits for the exit itself too, but not for
    /// ever; and for its answer no longer than until there is something that may go `ahead` of it.
    pub(super) async fn open<F: Future<Output = ()>>(
        &self,
        target: &Target,
        treatment: &Treatment,
        record: &Record,
        ahead: impl Fn() -> F,
    ) -> Result<Opened, Refusal> {
        let ask = |up: Up| {
            let ahead = ahead();
            async move { up.connect(target, treatment, ahead).await }
        };
        self.ask(ask, record).await
    }

    /// The answer to a request ahead of which something was sent. It is not asked again: nobody
    /// knows whether the target has that.
    pub(super) async fn answer(&self, incoming: &mut Incoming) -> Result<(), Cut> {
        let answered = timeout(OPEN, incoming.response()).await;
        let response = answered.map_err(|_| Refusal::TimedOut)??;
        if response.is_success() {
            return Ok(());
        }
        Err(self.refused(Refusal::of(&response)).into())
    }

    /// Tells of a refusal that lies in who we are.
    fn refused(&self, refusal: Refusal) -> Refusal {
        if refusal == Refusal::Unauthenticated
            && let Some(denied) = self.far.entrance.denied()
        {
            self.tell(&News::Denied(denied));
        }
        refusal
    }

    /// Asks it for what carries UDP; `binds` asks for a socket that carries other targets, too.
    /// What is `early` goes with the request.
    pub(crate) async fn open_udp(
        &self,
        (target, binds): (&Target, bool),
        early: &[Payload],
        treatment: &Treatment,
        record: &Record,
    ) -> Result<Granted, Refusal> {
        let ask = |up: Up| async move { up.associate((target, binds), early, treatment).await };
        self.ask(ask, record).await
    }

    /// Whether payloads and bytes may go ahead of the answer to their request.
    pub(super) fn takes_early(&self) -> bool {
        self.far.entrance.takes_early()
    }

    /// Whether the far end may have sockets that carry many targets.
    pub(super) fn may_bind(&self) -> bool {
        self.far.entrance.offered().bind
    }

    /// Asks on the connection that stands, and on the next one if that was lost meanwhile: no
    /// connection to the target stood yet, and a datagram may come twice.
    async fn ask<T, F>(&self, ask: impl Fn(Up) -> F, record: &Record) -> Result<T, Refusal>
    where
        F: Future<Output = Result<Result<T, Refusal>, Broken>>,
    {
        let (deadline, mut seen) = (Instant::now() + OPEN, 0);
        loop {
            record.enter(Phase::Connection);
            let up = timeout_at(deadline, self.next_up(seen)).await;
            let up = up.map_err(|_| Refusal::NoTunnel)?;
            seen = up.number;
            record.enter(Phase::Target);
            match timeout_at(deadline, ask(up)).await {
                Err(_) => return Err(Refusal::TimedOut),
                Ok(Err(Broken::Lost(_))) => {}
                Ok(Err(_)) => return Err(Refusal::Internal),
                Ok(Ok(result)) => return result.map_err(|refusal| self.refused(refusal)),
            }
        }
    }

    /// The connection that stands, or the next one that does, after number `seen`.
    pub(super) async fn next_up(&self, seen: u64) -> Up {
        let mut state = self.state.subscribe();
        let is_new = |state: &Option<Up>| state.as_ref().is_some_and(|up| up.number > seen);
        let found = state.wait_for(is_new).await.ok().and_then(|up| up.clone());
        match found {
            Some(up) => up,
            // The sender lives as long as this.
            None => std::future::pending().await,
        }
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        if let Some(up) = self.current() {
            close(
                up.session.connection(),
                Code::NO_ERROR,
                "the entry was stopped",
            );
        }
    }
}

/// One more connection stands until its far end closes it. If there are too many, the one before it
/// does no longer: a far end that leaves is asked again and again, and what was open when it began
/// to leave is on the oldest one.
fn leave_beside(leaving: &mut Vec<Connection>, left: Connection) {
    leaving.retain(|connection| connection.close_reason().is_none());
    if leaving.len() >= MOST_LEAVING
        && let Some(before) = leaving.pop()
    {
        close(&before, Code::NO_ERROR, "another one was left since");
    }
    leaving.push(left);
}

impl Up {
    /// What the far end is called.
    pub(crate) fn name(&self) -> &str {
        &self.terms.name
    }

    fn news(&self) -> News {
        let has_multipath = self.session.connection().has_multipath();
        let lacks = [
            (!has_multipath).then_some("it does not speak multipath QUIC: one link is used"),
            (!self.terms.settings.connect_protocol).then_some("it carries TCP alone"),
        ];
        News::Up {
            name: self.name().to_owned(),
            lacks: lacks.into_iter().flatten().collect(),
        }
    }

    async fn connect(
        &self,
        target: &Target,
        treatment: &Treatment,
        ahead: impl Future<Output = ()>,
    ) -> Result<Result<Opened, Refusal>, Broken> {
        let request = self.terms.connect(target, treatment);
        let (mut outgoing, mut incoming) = self.session.request(&request).await?;
        outgoing.treat(treatment);
        let response = tokio::select! {
            biased;
            response = incoming.response() => Some(response?),
            () = ahead => None,
        };
        let refused = response.as_ref().filter(|response| !response.is_success());
        if let Some(response) = refused {
            return Ok(Err(Refusal::of(response)));
        }
        Ok(Ok(Opened {
            is_answered: response.is_some(),
            ends: (outgoing, incoming),
        }))
    }

    async fn associate(
        &self,
        (target, binds): (&Target, bool),
        early: &[Payload],
        treatment: &Treatment,
    ) -> Result<Result<Granted, Refusal>, Broken> {
        let mut offered = self.terms.offered;
        offered.bind &= binds;
        let ask = Ask::Udp(Some(target.clone()));
        self.ask_for(&ask, offered, treatment, early).await
    }

    /// Asks for a tunnel of packets of IP.
    pub(super) async fn ask_for_ip(&self) -> Result<Result<Granted, Refusal>, Broken> {
        let offered = self.terms.offered.and(OF_IP);
        let (ask, treatment) = (Ask::Ip(Scope::ALL), Treatment::default());
        self.ask_for(&ask, offered, &treatment, &[]).await
    }

    async fn ask_for(
        &self,
        ask: &Ask,
        offered: Extensions,
        treatment: &Treatment,
        early: &[Payload],
    ) -> Result<Result<Granted, Refusal>, Broken> {
        let terms = &self.terms;
        let Some(request) = terms.ask(ask, offered, treatment) else {
            return Ok(Err(Refusal::Unsupported));
        };
        let opened = self.session.request_with_datagrams(&request).await?;
        let (mut outgoing, mut incoming, datagrams) = opened;
        outgoing.treat(treatment);
        // Who refuses does not read on: what it says counts, not that nothing could be written.
        let (written, response) =
            tokio::join!(outgoing.write(payloads::early(early)), incoming.response());
        let response = response?;
        if !response.opens_capsules()? {
            return Ok(Err(Refusal::of(&response)));
        }
        written?;
        Ok(Ok(Granted {
            agreed: offered.and(Extensions::read(&response.headers)),
            remote: next_hop(&response),
            in_datagrams: self.session.has_datagrams(&terms.settings),
            ends: (outgoing, incoming, datagrams),
        }))
    }
}

/// A request for a TCP connection that was sent.
#[derive(Debug)]
pub(super) struct Opened {
    /// Whether it was granted. If not, the answer has yet to come.
    pub(super) is_answered: bool,
    pub(super) ends: (Outgoing, Incoming),
}

/// A request for UDP or IP that was granted.
#[derive(Debug)]
pub(crate) struct Granted {
    /// What both ends can do.
    pub(crate) agreed: Extensions,
    /// Where the exit sends to, if it says so.
    pub(crate) remote: Option<SocketAddr>,
    /// Whether it takes QUIC datagrams.
    pub(crate) in_datagrams: bool,
    pub(crate) ends: (Outgoing, Incoming, Datagrams),
}

impl Granted {
    /// It is not needed: all that was wanted is what the exit has said of it.
    pub(crate) fn give_back(self) {
        let (mut outgoing, mut incoming, _) = self.ends;
        outgoing.finish();
        incoming.stop(Code::NO_ERROR);
    }
}

/// The address that the proxy closest to the target sends to.
fn next_hop(response: &Response) -> Option<SocketAddr> {
    let told = ProxyStatus::read(&response.headers).into_iter().next()?;
    told.next_hop?.parse().ok()
}
