//! Payloads between something that has sockets and a request, until either ends.
//!
//! ```text
//! nothing either way for long            -->    FIN
//! nothing more to be sent                -->    FIN
//! an error of the socket                 -->    both directions reset: H3_CONNECT_ERROR
//! FIN, reset, a broken rule, a lost connection  <--  nothing more is carried
//! ```

use super::{Payload, Receiver, Remote, Sender, length};
use crate::records::Meter;
use crate::relay::Cut;
use crate::udp;
use anabranch_masque::Code;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Where payloads for the tunnel come from.
pub(crate) trait Source {
    /// Waits for payloads and appends them; returns whether there can be more. To be cancelled
    /// without a loss.
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool>;

    /// A remote end, other than the target, that is gone; `None` if there is no other.
    fn gone(&mut self) -> Option<SocketAddr> {
        None
    }

    /// A payload for the remote end, or the target, fits no datagram; one of `most` bytes does.
    fn too_large(&mut self, _remote: Option<SocketAddr>, _most: usize) {}
}

impl<S: Source> Source for &mut S {
    async fn receive(&mut self, into: &mut Vec<Payload>) -> io::Result<bool> {
        (**self).receive(into).await
    }

    fn gone(&mut self) -> Option<SocketAddr> {
        (**self).gone()
    }

    fn too_large(&mut self, remote: Option<SocketAddr>, most: usize) {
        (**self).too_large(remote, most);
    }
}

/// Where payloads out of the tunnel go to.
pub(crate) trait Sink {
    /// Where the payload has a remote end, that is another one than the target.
    async fn send(&mut self, payload: Payload) -> io::Result<()>;

    /// Several that [can be sent with one call](udp::runs).
    async fn send_run(&mut self, run: &[Payload]) -> io::Result<()> {
        each(self, run).await
    }
}

/// Hands payloads over one by one.
pub(crate) async fn each(sink: &mut (impl Sink + ?Sized), run: &[Payload]) -> io::Result<()> {
    for payload in run {
        sink.send(payload.clone()).await?;
    }
    Ok(())
}

impl<S: Sink> Sink for &mut S {
    async fn send(&mut self, payload: Payload) -> io::Result<()> {
        (**self).send(payload).await
    }

    async fn send_run(&mut self, run: &[Payload]) -> io::Result<()> {
        (**self).send_run(run).await
    }
}

/// Hands all payloads over, as many at a time as can be sent with one call.
pub(crate) async fn send_all(payloads: &[Payload], sink: &mut impl Sink) -> io::Result<()> {
    for run in udp::runs(payloads) {
        sink.send_run(run).await?;
    }
    Ok(())
}

/// When something was last carried, and for how long nothing may be.
#[derive(Debug)]
pub(crate) struct Activity {
    last: Mutex<Instant>,
    idle: Duration,
}

impl Activity {
    /// Begins now, and is over when nothing was carried for `idle`.
    pub(crate) fn new(idle: Duration) -> Self {
        Self {
            last: Mutex::new(Instant::now()),
            idle,
        }
    }

    /// Begins now, and is not over even if nothing is carried.
    pub(crate) fn lasting() -> Self {
        const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
        Self::new(YEARS)
    }

    pub(crate) fn note(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn over(&self) {
        loop {
            let last = self.last();
            if last.elapsed() >= self.idle {
                return;
            }
            sleep_until(last + self.idle).await;
        }
    }
}

/// Carries payloads both ways until one side ends or nothing happens any more.
///
/// # Errors
///
/// What broke. The peer was told.
pub(crate) async fn relay(
    mut source: impl Source,
    mut sink: impl Sink,
    (mut sender, mut receiver): (Sender, Receiver),
    meter: Meter<'_>,
    activity: &Activity,
) -> Result<(), Cut> {
    let ended = tokio::select! {
        ended = outward(&mut receiver, &mut sink, meter, activity) => ended,
        ended = inward(&mut source, &mut sender, meter, activity) => ended,
        () = activity.over() => Ok(()),
    };
    let code = match &ended {
        Ok(()) => {
            sender.finish();
            Code::NO_ERROR
        }
        Err(Cut::Socket(_) | Cut::Deaf) => Code::CONNECT_ERROR,
        // Payloads are carried only once their request was granted.
        Err(Cut::Refused(_)) => Code::REQUEST_CANCELLED,
        Err(Cut::Stream(broken)) => broken.code(),
    };
    if ended.is_err() {
        sender.reset(code);
    }
    receiver.stop(code);
    ended
}

/// Where a payload is counted: with its remote end, if that is a flow of its own. Whoever hands the
/// payload over counts its bytes in the record.
fn of<'a>(meter: Meter<'a>, found: Option<&'a Remote>) -> Meter<'a> {
    match found {
        None => meter,
        Some(Remote { record, moved, .. }) => Meter {
            all: moved.as_deref().unwrap_or(meter.all),
            record,
        },
    }
}

async fn outward(
    receiver: &mut Receiver,
    sink: &mut impl Sink,
    meter: Meter<'_>,
    activity: &Activity,
) -> Result<(), Cut> {
    let (mut payloads, mut goes_on) = (Vec::new(), true);
    while goes_on {
        goes_on = receiver.receive(&mut payloads).await?;
        for run in udp::runs(&payloads) {
            let remote = run.first().and_then(|first| first.remote);
            let found = receiver.find(remote);
            let Meter { all, record } = of(meter, found.as_ref());
            let bytes = length(run);
            all.add_outward(bytes);
            if remote.is_none() {
                record.carried_out(bytes);
            }
            record.wait_outward(sink.send_run(run)).await?;
        }
        payloads.clear();
        activity.note();
    }
    Ok(())
}

async fn inward(
    source: &mut impl Source,
    sender: &mut Sender,
    meter: Meter<'_>,
    activity: &Activity,
) -> Result<(), Cut> {
    let (mut payloads, mut goes_on) = (Vec::new(), true);
    while goes_on {
        sender.answer().await?;
        tokio::select! {
            more = source.receive(&mut payloads) => goes_on = more?,
            attended = sender.attend() => attended?,
        }
        while let Some(remote) = source.gone() {
            sender.close(remote).await?;
        }
        let mut is_active = false;
        for payload in payloads.drain(..) {
            let found = sender.find(payload.remote);
            let Meter { all, record } = of(meter, found.as_ref());
            let sent = sender.send_found(&payload, found.as_ref());
            // What is dropped is counted as dropped alone.
            let fate = record.wait_inward(sent).await?;
            if fate.is_sent {
                let bytes = payload.bytes.len();
                all.add_inward(bytes);
                if payload.remote.is_none() || found.is_some() {
                    record.carried_in(bytes);
                }
            }
            if let Some(most) = fate.most {
                source.too_large(payload.remote, most);
            }
            is_active = true;
        }
        if is_active {
            activity.note();
        }
    }
    Ok(())
}
