//! UDP payloads or IP packets of one request, as both nodes carry them (RFC 9298, RFC 9484): in
//! QUIC datagrams, or in capsules for peers that take no others.
//!
//! ```text
//! socket ── Sender ──> datagrams, capsules ══> peer
//! socket <── Receiver ── datagrams, capsules <══ peer
//! ```

mod large;
mod order;
mod relay;
mod remotes;
mod ways;

pub(crate) use relay::{Activity, Sink, Source, each, relay, send_all};
pub(crate) use remotes::{Gone, Nobody, Remote, Remotes};

use crate::ip::LEAST_V6;
use crate::records::Tally;
use crate::session::datagrams::{Arrived, Datagrams, Sequence};
use crate::session::{Broken, Incoming, Outgoing, data};
use crate::treatment;
use anabranch_masque::capsule::{self, Capsule, NumberBits, put_datagram_header};
use anabranch_masque::contexts::Context;
use anabranch_masque::stream::Item;
use anabranch_masque::{Code, Contexts, Error, Extensions, Protocol};
use anabranch_net::error::SendDatagramError;
use anabranch_tunnel::Treatment;
use bytes::Bytes;
use large::Large;
use order::Order;
use remotes::Counted;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use ways::{Ways, closes};

/// Capsules that are owed to the peer: as many answers as it may have contexts, and some.
const MAX_OWED: usize = 1024;

/// Payloads that go with a request, before its answer: as many as a first window has packets.
const MAX_FIRST: usize = 10;

/// Datagrams that overtook the registration of their context.
const MAX_EARLY: usize = 64;

/// What our nodes can do beyond RFC 9298.
pub(crate) const OURS: Extensions = Extensions {
    numbers: true,
    repair: true,
    bind: true,
};

/// The same beyond RFC 9484.
pub(crate) const OF_IP: Extensions = Extensions {
    bind: false,
    ..OURS
};

/// A UDP payload, or an IP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payload {
    /// Whom it came from or is for; none if that is the request's target.
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) bytes: Bytes,
}

impl Payload {
    /// One of the request's target, or for it.
    pub(crate) fn of_target(bytes: Bytes) -> Self {
        let remote = None;
        Self { remote, bytes }
    }

    /// Whether it came from the request's target, or is for it.
    pub(crate) fn is_of_target(&self) -> bool {
        self.remote.is_none()
    }
}

/// The bytes of payloads together.
pub(crate) fn length(payloads: &[Payload]) -> usize {
    payloads.iter().map(|payload| payload.bytes.len()).sum()
}

/// The most bytes in front of a payload behind the number of the stream: a context, a number, and a
/// remote end.
const LONGEST_HEADER: usize = 8 + 8 + 19;

/// Payloads of up to this size always pass: QUIC within the tunnel takes it for granted (RFC 9000,
/// section 14). Where they fit no datagram, as on paths that were not probed yet, they go in
/// capsules.
const ALWAYS: usize = LEAST_V6 as usize;

/// The longest payload of a link of 1,500 bytes. Flows that [mean it](Large) have such ones carried
/// in capsules, too.
const MEANT: usize = 1500 - 28;

/// Payloads so far, as the node sees them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Into the tunnel.
    pub(crate) sent: AtomicU64,
    /// Out of the tunnel.
    pub(crate) received: AtomicU64,
    /// In either direction: too large for a path, or more than somebody took.
    pub(crate) dropped: AtomicU64,
    /// Of those into the tunnel: they could not leave in time.
    pub(crate) expired: AtomicU64,
    /// Out of the tunnel, after those before them had been waited for, and for how long.
    pub(crate) held: AtomicU64,
    pub(crate) held_us: AtomicU64,
}

impl Counts {
    pub(crate) fn lose(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn hold(&self, time: Duration) {
        self.held.fetch_add(1, Ordering::Relaxed);
        let micros = time.as_micros() as u64;
        self.held_us.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Payloads for the target of a request that has no answer yet, as its stream carries them: in
/// capsules of context 0, which needs no agreement (RFC 9298, section 4).
pub(crate) fn early(payloads: &[Payload]) -> Bytes {
    if payloads.is_empty() {
        return Bytes::new();
    }
    let mut capsules = Vec::new();
    for Payload { bytes, .. } in payloads {
        put_datagram_header(&mut capsules, 1 + bytes.len());
        capsules.push(0);
        capsules.extend_from_slice(bytes);
    }
    data(&[&capsules])
}

/// The payloads that a source has already, without waiting: those that may go [early], and the
/// rest. If the source has ended, it says so again when it is asked next.
pub(crate) async fn at_once(source: &mut impl Source) -> io::Result<(Vec<Payload>, Vec<Payload>)> {
    let mut payloads = Vec::new();
    tokio::select! {
        biased;
        received = source.receive(&mut payloads) => drop(received?),
        () = std::future::ready(()) => {}
    }
    let is_late = |(at, one): (usize, &Payload)| at >= MAX_FIRST || one.bytes.len() > ALWAYS;
    let late = payloads.iter().enumerate().position(is_late);
    let behind = payloads.split_off(late.unwrap_or(payloads.len()));
    Ok((payloads, behind))
}

/// What both directions know of their request.
#[derive(Debug)]
struct Shared {
    datagrams: Datagrams,
    contexts: Mutex<Contexts>,
    /// Answers to capsules of the peer.
    owed: Mutex<Vec<Capsule>>,
    is_owed: Notify,
    counted: Counted,
}

impl Shared {
    fn owed(&self) -> MutexGuard<'_, Vec<Capsule>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn contexts(&self) -> MutexGuard<'_, Contexts> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is read of capsules that are not about contexts: returns what is to be answered.
pub(crate) type Heed = Box<dyn FnMut(Capsule) -> Vec<Capsule> + Send + Sync>;

/// What a request carries besides payloads.
pub(crate) struct Talk {
    protocol: Protocol,
    bits: NumberBits,
    /// What is said first.
    first: Vec<Capsule>,
    heed: Heed,
    /// Who decides about remote ends other than the target.
    remotes: Arc<dyn Remotes>,
    /// Whether contexts are registered for those that we send to.
    opens: bool,
    /// How payloads are carried, unless they are of a remote end with a treatment of its own.
    treatment: Treatment,
}

impl Talk {
    /// For UDP: nothing but contexts for other remote ends. The client of a request `opens` them.
    pub(crate) fn of_udp(treatment: Treatment, remotes: Arc<dyn Remotes>, opens: bool) -> Self {
        Self {
            treatment,
            protocol: Protocol::Udp,
            bits: order::BITS,
            first: Vec::new(),
            heed: Box::new(|_| Vec::new()),
            remotes,
            opens,
        }
    }

    /// For IP: addresses and routes.
    pub(crate) fn of_ip(first: Vec<Capsule>, heed: Heed) -> Self {
        Self {
            treatment: Treatment::default(),
            protocol: Protocol::Ip,
            bits: order::IP_BITS,
            first,
            heed,
            remotes: Arc::new(Nobody),
            opens: false,
        }
    }
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Talk")
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

/// Bytes in front of an IP packet in our datagrams, behind the number of the stream.
pub(crate) fn ip_overhead(agreed: Extensions) -> usize {
    // Either side's first context has a number of one byte.
    let numbers = if agreed.numbers {
        order::IP_BITS.bytes()
    } else {
        0
    };
    1 + numbers
}

/// Both directions of a request whose answer was a success. `in_datagrams` says whether the peer
/// takes QUIC datagrams.
pub(crate) fn split(
    (outgoing, incoming, datagrams): (Outgoing, Incoming, Datagrams),
    mut contexts: Contexts,
    in_datagrams: bool,
    tally: Tally,
    talk: Talk,
) -> (Sender, Receiver) {
    let treatment = talk.treatment;
    let repaired = contexts.are_repaired();
    // Capsules come in order anyway.
    let bits = in_datagrams.then_some(talk.bits);
    let mut owed = Vec::new();
    let ways = Ways::begin(&mut contexts, bits, (talk.opens, treatment), &mut owed);
    owed.extend(talk.first);
    let shared = Arc::new(Shared {
        datagrams,
        contexts: Mutex::new(contexts),
        owed: Mutex::new(owed),
        is_owed: Notify::new(),
        counted: Counted {
            tally,
            remotes: talk.remotes,
        },
    });
    let sender = Sender {
        outgoing,
        shared: Arc::clone(&shared),
        in_datagrams,
        repaired,
        ways,
        treatment,
        protocol: talk.protocol,
        large: Large::default(),
        header: Vec::with_capacity(LONGEST_HEADER),
    };
    let receiver = Receiver {
        incoming,
        capsules: capsule::Reader::new(talk.protocol),
        heed: talk.heed,
        shared,
        arrived: Vec::new(),
        early: VecDeque::new(),
        order: Order::new(),
        repaired,
        treatment,
    };
    (sender, receiver)
}

/// What became of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Fate {
    /// It is on its way. If not, it is too large, too much waits, or there is no context for its
    /// remote end.
    is_sent: bool,
    /// The longest payload that fits a datagram, where this one is longer and need not pass.
    most: Option<usize>,
}

impl Fate {
    const SENT: Self = Self {
        is_sent: true,
        most: None,
    };
}

/// The direction into the tunnel.
#[derive(Debug)]
pub(crate) struct Sender {
    outgoing: Outgoing,
    shared: Arc<Shared>,
    in_datagrams: bool,
    /// Those with numbers are sent again when they are lost.
    repaired: bool,
    ways: Ways,
    treatment: Treatment,
    protocol: Protocol,
    large: Large,
    /// What precedes the payload that is being sent.
    header: Vec<u8>,
}

impl Sender {
    /// Sends a payload, unless it is too large or there is no context for its remote end.
    ///
    /// # Errors
    ///
    /// The request has ended.
    #[cfg(test)]
    pub(crate) async fn send(&mut self, payload: &Payload) -> Result<(), Broken> {
        let found = self.find(payload.remote);
        self.send_found(payload, found.as_ref()).await.map(|_| ())
    }

    /// Sends a payload whose remote end [was looked for](Self::find).
    ///
    /// # Errors
    ///
    /// The request has ended.
    async fn send_found(
        &mut self,
        payload: &Payload,
        found: Option<&Remote>,
    ) -> Result<Fate, Broken> {
        let Payload { remote, bytes } = payload;
        let own = found.and_then(|found| found.treatment);
        let treatment = own.unwrap_or(self.treatment);
        let way = {
            let mut contexts = self.shared.contexts();
            let mut owed = self.shared.owed();
            self.ways.to(*remote, own, &mut contexts, &mut owed)
        };
        // What the peer has to know of it goes first.
        self.answer().await?;
        let Some(mut way) = way else {
            self.shared.counted.lose(1, *remote);
            return Ok(Fate::default());
        };
        self.header.clear();
        way.put_header(&mut self.header);
        let sent = self.in_datagrams.then(|| {
            let record = self.shared.counted.number(*remote, found);
            self.send_datagram((bytes, record), self.sequence(&way), &treatment)
        });
        let mut fate = Fate::SENT;
        if let Some(Err(SendDatagramError::TooLarge { max })) = sent
            && bytes.len() > ALWAYS
        {
            self.large.note(bytes.len(), Instant::now());
            fate.most = Some(max.max(ALWAYS));
        }
        match sent {
            Some(Ok(())) => {}
            None => self.send_capsule(bytes).await?,
            Some(Err(SendDatagramError::TooLarge { .. })) if self.is_carried(bytes.len()) => {
                self.send_capsule(bytes).await?;
            }
            Some(Err(SendDatagramError::Connection(reason))) => return Err(reason.into()),
            Some(Err(_)) => {
                self.shared.counted.lose(1, *remote);
                fate.is_sent = false;
                return Ok(fate);
            }
        }
        // The number is used up only now: the peer would wait for one that is not sent.
        self.ways.advance(*remote, way);
        self.shared.counted.sent(*remote, found);
        Ok(fate)
    }

    /// Whether a payload of this length that fits no datagram is carried in a capsule.
    fn is_carried(&self, length: usize) -> bool {
        let is_udp = self.protocol == Protocol::Udp;
        length <= ALWAYS || is_udp && length <= MEANT && self.large.is_meant()
    }

    fn sequence(&self, way: &ways::Way) -> Sequence {
        match (way.is_numbered(), self.repaired) {
            (false, _) => Sequence::None,
            (true, false) => Sequence::Numbered,
            (true, true) => Sequence::Repaired,
        }
    }

    /// Where it is too large, the error has what a payload may have.
    fn send_datagram(
        &self,
        (payload, record): (&[u8], u64),
        sequence: Sequence,
        treatment: &Treatment,
    ) -> Result<(), SendDatagramError> {
        let datagrams = &self.shared.datagrams;
        let mut datagram = datagrams.begin(self.header.len() + payload.len());
        datagram.extend_from_slice(&self.header);
        let before = datagram.len();
        datagram.extend_from_slice(payload);
        let sent = datagrams.send(datagram, record, sequence, treatment);
        sent.map_err(|error| match error {
            SendDatagramError::TooLarge { max } => {
                let max = max.saturating_sub(before);
                SendDatagramError::TooLarge { max }
            }
            error => error,
        })
    }

    /// The remote end, unless that is the target or no flow.
    fn find(&self, remote: Option<SocketAddr>) -> Option<Remote> {
        self.shared.counted.find(remote)
    }

    async fn send_capsule(&mut self, payload: &[u8]) -> Result<(), Broken> {
        let mut before = Vec::with_capacity(16);
        put_datagram_header(&mut before, self.header.len() + payload.len());
        let capsule = data(&[&before, &self.header, payload]);
        self.outgoing.write(capsule).await
    }

    /// Nothing is sent to or taken from a remote end any more, unless it is opened again.
    ///
    /// # Errors
    ///
    /// The request has ended.
    pub(crate) async fn close(&mut self, remote: SocketAddr) -> Result<(), Broken> {
        {
            let mut contexts = self.shared.contexts();
            let mut owed = self.shared.owed();
            self.ways.close(remote, &mut contexts, &mut owed);
        }
        self.answer().await
    }

    /// Waits until there is something to [`answer`](Self::answer), or the peer has given up.
    ///
    /// # Errors
    ///
    /// The peer has given up.
    pub(crate) async fn attend(&mut self) -> Result<(), Broken> {
        tokio::select! {
            () = self.shared.is_owed.notified() => Ok(()),
            broken = self.outgoing.given_up() => Err(broken),
        }
    }

    /// Answers what the peer said of its contexts.
    pub(crate) async fn answer(&mut self) -> Result<(), Broken> {
        let owed = std::mem::take(&mut *self.shared.owed());
        if owed.is_empty() {
            return Ok(());
        }
        let mut capsules = Vec::new();
        for one in owed {
            one.encode(&mut capsules);
        }
        self.outgoing.write(data(&[&capsules])).await
    }

    #[cfg(test)]
    pub(crate) fn is_numbered(&self) -> bool {
        self.ways.target().is_some_and(ways::Way::is_numbered)
    }

    /// Nothing more is sent.
    pub(crate) fn finish(&mut self) {
        self.outgoing.finish();
    }

    /// Gives the request up.
    pub(crate) fn reset(&mut self, code: Code) {
        self.outgoing.reset(code);
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The direction out of the tunnel.
pub(crate) struct Receiver {
    incoming: Incoming,
    capsules: capsule::Reader,
    heed: Heed,
    shared: Arc<Shared>,
    arrived: Vec<Arrived>,
    /// Datagrams of contexts that nobody has registered yet.
    early: VecDeque<Arrived>,
    order: Order,
    /// The peer sends again what was lost of those with numbers.
    repaired: bool,
    treatment: Treatment,
}

impl Receiver {
    /// Waits for payloads and appends them; returns whether there can be more.
    ///
    /// # Errors
    ///
    /// The request broke, or the peer broke its rules: it is to be reset with the code.
    pub(crate) async fn receive(&mut self, into: &mut Vec<Payload>) -> Result<bool, Broken> {
        let before = into.len();
        while into.len() == before {
            tokio::select! {
                // Registrations before what needs them.
                biased;
                item = self.incoming.next() => match item? {
                    Item::Data(bytes) => {
                        self.capsules.push(bytes);
                        self.on_capsules(into)?;
                    }
                    Item::End => {
                        self.capsules.finish();
                        self.on_capsules(into)?;
                        return Ok(false);
                    }
                    // A tunnel has no other field sections: the reader refuses them.
                    Item::Head(_) => {}
                },
                dropped = self.shared.datagrams.arrive(&mut self.arrived) => {
                    self.shared.counted.lose(dropped, None);
                    // The buffer comes back, as the next ones need it.
                    let mut arrived = std::mem::take(&mut self.arrived);
                    for one in arrived.drain(..) {
                        self.on_datagram(one, into)?;
                    }
                    self.arrived = arrived;
                    if self.order.is_used() {
                        let delays = self.shared.datagrams.delays();
                        self.order.set_delays(delays, &self.shared.counted, into);
                    }
                }
                () = until(self.order.deadline()) => self.order.give_up(&self.shared.counted, into),
            }
        }
        self.shared.counted.received(&into[before..]);
        Ok(true)
    }

    fn on_capsules(&mut self, into: &mut Vec<Payload>) -> Result<(), Broken> {
        loop {
            let capsule = match self.capsules.poll() {
                Ok(Some(capsule::Item::Capsule(capsule))) => capsule,
                // Other items are of connect-tcp.
                Ok(Some(_)) => continue,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.incoming.refuse(error)),
            };
            if let Capsule::Datagram(bytes) = capsule {
                self.on_datagram(Arrived { path: None, bytes }, into)?;
                continue;
            }
            let answers = self.on_context(&capsule);
            let mut answers = answers.map_err(|error| self.incoming.refuse(error))?;
            answers.extend((self.heed)(capsule));
            self.owe(answers)?;
            for arrived in std::mem::take(&mut self.early) {
                self.on_datagram(arrived, into)?;
            }
        }
    }

    /// Takes a capsule that may be about contexts, and tells who decides about remote ends.
    fn on_context(&mut self, capsule: &Capsule) -> Result<Vec<Capsule>, Error> {
        let remotes = &self.shared.counted.remotes;
        let mut contexts = self.shared.contexts();
        let closed = closes(capsule, &contexts);
        let answers = contexts.on_capsule(capsule, |remote| remotes.allows(remote))?;
        if let Capsule::ContextClass { context, class } = capsule
            && let Some(Context::Remote(remote)) = contexts.find(*context)
        {
            remotes.treat(remote, treatment::read_text(class));
        }
        // One that was allowed, but for which there are too many contexts, is closed at once.
        let refused = match *capsule {
            Capsule::CompressionAssign { context, remote } => {
                let refused = remote.filter(|_| contexts.find(context).is_none());
                refused.map(|remote| (remote, false))
            }
            _ => None,
        };
        if let Some((remote, was_open)) = closed.or(refused) {
            remotes.closed(remote, was_open);
        }
        // Contexts that we have closed ourselves end without a word of the peer: what there was of
        // them goes with the next one that is opened or closed.
        let is_change = matches!(
            capsule,
            Capsule::CompressionAssign { .. } | Capsule::CompressionAck { .. }
        );
        if closed.is_some() || is_change {
            self.order
                .forget(|context| contexts.find(context).is_none());
        }
        Ok(answers)
    }

    fn owe(&mut self, answers: Vec<Capsule>) -> Result<(), Broken> {
        if answers.is_empty() {
            return Ok(());
        }
        let mut owed = self.shared.owed();
        owed.extend(answers);
        let is_too_much = owed.len() > MAX_OWED;
        drop(owed);
        if is_too_much {
            let reason = "more contexts were registered than answers were read";
            let code = Code::EXCESSIVE_LOAD;
            return Err(self.incoming.refuse(Error::Stream { code, reason }));
        }
        self.shared.is_owed.notify_one();
        Ok(())
    }

    fn on_datagram(&mut self, arrived: Arrived, into: &mut Vec<Payload>) -> Result<(), Broken> {
        let read = self.shared.contexts().read(arrived.bytes.clone());
        let Some(received) = read.map_err(|error| self.incoming.refuse(error))? else {
            self.early.push_back(arrived);
            if self.early.len() > MAX_EARLY {
                self.early.pop_front();
                self.shared.counted.lose(1, None);
            }
            return Ok(());
        };
        let (remote, bytes) = (received.remote, received.payload);
        let counted = &self.shared.counted;
        let found = counted.find(remote);
        if let Some(path) = arrived.path {
            counted.came_by(path, bytes.len(), remote, found.as_ref());
        }
        let payload = Payload { remote, bytes };
        match received.number {
            Some(number) => {
                let treatment = found.and_then(|found| found.treatment);
                let grace = treatment.unwrap_or(self.treatment).grace(self.repaired);
                let from = (received.context, arrived.path);
                self.order.take(grace, from, number, payload, counted, into);
            }
            None => into.push(payload),
        }
        Ok(())
    }

    /// The remote end, unless that is the target or no flow.
    fn find(&self, remote: Option<SocketAddr>) -> Option<Remote> {
        self.shared.counted.find(remote)
    }

    #[cfg(test)]
    pub(crate) fn was_numbered(&self) -> bool {
        self.order.is_used()
    }

    /// How many number spaces are kept in order.
    #[cfg(test)]
    pub(crate) fn spaces(&self) -> usize {
        self.order.spaces()
    }

    /// Nothing more is read.
    pub(crate) fn stop(&mut self, code: Code) {
        self.incoming.stop(code);
    }
}
