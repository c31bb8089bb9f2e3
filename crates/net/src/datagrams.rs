//! Datagrams: what arrives once, late or not at all (RFC 9221).

use crate::connection::Connection;
use crate::engine::{self, ConnectionError, ReceivedDatagram};
use crate::error::SendDatagramError;
use crate::state::Wait;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

/// What is known of a datagram that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatagramOptions {
    /// A number for the flow it belongs to, which schedulers may keep on one path; 0 means none.
    pub flow: u64,
    /// How long from now it is worth something: if it was not sent by then, it is dropped and
    /// counted. For ever if none.
    pub within: Option<Duration>,
    /// How far behind the fastest path it may arrive: the peer reorders the flow and waits this
    /// long. `None`: any delay. The wrapper `skew` sends it by no slower path.
    pub max_skew: Option<Duration>,
    /// Whether it is sent again when it is lost, if it can then be no later than `max_skew` allows.
    /// It may arrive twice: the peer's application must know datagrams apart.
    pub repair: bool,
    /// Whether its loss costs more than its bytes. Only such datagrams are copied where a scheduler
    /// wants copies, and each copy arrives at the peer's application: it must know them apart.
    pub critical: bool,
    /// The kind of traffic it belongs to, for schedulers, which may steer each kind in its own way:
    /// a number below [`MAX_CLASSES`](anabranch_proto::sched::MAX_CLASSES); 0 unless set. Those of
    /// one class wait for none of another.
    pub class: u8,
    /// What the application calls it, or all that it counts together:
    /// [`expired_datagrams`](Connection::expired_datagrams) tells of those that were dropped.
    pub tag: u64,
}

impl Connection {
    /// Queues a datagram.
    ///
    /// # Errors
    ///
    /// It is too large, the peer does not accept datagrams, the queue is full, or the connection
    /// ended.
    pub fn send_datagram(&self, data: Bytes) -> Result<(), SendDatagramError> {
        self.send_datagram_with(data, DatagramOptions::default())
    }

    /// Queues a datagram of which more is known.
    ///
    /// # Errors
    ///
    /// As [`send_datagram`](Self::send_datagram).
    pub fn send_datagram_with(
        &self,
        data: Bytes,
        options: DatagramOptions,
    ) -> Result<(), SendDatagramError> {
        self.send_datagrams([(data, options)]).map(|_| ())
    }

    /// Queues datagrams until one is refused; tells how many it took. With many this costs far less
    /// than one call each.
    ///
    /// # Errors
    ///
    /// Why the first one was refused. Those after it can be offered again.
    pub fn send_datagrams(
        &self,
        datagrams: impl IntoIterator<Item = (Bytes, DatagramOptions)>,
    ) -> Result<usize, SendDatagramError> {
        let now = self.holder().now();
        let mut taken = 0;
        let result: Result<(), engine::SendDatagramError> =
            self.holder().act(|_, connection| {
                for (data, options) in datagrams {
                    let options = engine::DatagramOptions {
                        flow: options.flow,
                        deadline: options.within.map(|within| now + within),
                        max_skew: options.max_skew,
                        repair: options.repair,
                        critical: options.critical,
                        class: options.class,
                        tag: options.tag,
                    };
                    connection.send_datagram_with(data, options)?;
                    taken += 1;
                }
                Ok(())
            })?;
        match result {
            Err(error) if taken == 0 => Err(SendDatagramError::from(error)),
            _ => Ok(taken),
        }
    }

    /// Queues a datagram, waiting while the queue is full.
    ///
    /// # Errors
    ///
    /// Those of [`send_datagram`](Self::send_datagram), except for the full queue.
    pub async fn send_datagram_wait(&self, data: Bytes) -> Result<(), SendDatagramError> {
        poll_fn(|cx| {
            let poll = self.holder().poll_act(|tracked, connection| {
                match connection.send_datagram(data.clone()) {
                    Err(engine::SendDatagramError::Full) => {
                        tracked.wait(Wait::DatagramOut, cx);
                        Poll::Pending
                    }
                    result => Poll::Ready(result),
                }
            });
            poll.map(|result| result?.map_err(Into::into))
        })
        .await
    }

    /// The largest datagram that the peer takes now, and every path that is in use and whose MTU is
    /// not still searched; in bytes. None if the peer takes none.
    pub fn max_datagram_payload(&self) -> Option<usize> {
        self.holder()
            .look(engine::Connection::max_datagram_payload)?
    }

    /// Waits for a datagram.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub async fn read_datagram(&self) -> Result<Bytes, ConnectionError> {
        poll_fn(|cx| self.poll_read_datagram(cx)).await
    }

    /// Takes a datagram, or arranges a wake-up for when one arrives.
    pub fn poll_read_datagram(&self, cx: &Context<'_>) -> Poll<Result<Bytes, ConnectionError>> {
        self.holder().poll_act(|tracked, connection| {
            if let Some(datagram) = connection.recv_datagram() {
                Poll::Ready(datagram.data)
            } else {
                tracked.wait(Wait::DatagramIn, cx);
                Poll::Pending
            }
        })
    }

    /// Waits for datagrams and appends all there are, `most` at most, to `into`, each with the path
    /// it came by.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub async fn read_datagrams(
        &self,
        most: usize,
        into: &mut Vec<ReceivedDatagram>,
    ) -> Result<(), ConnectionError> {
        poll_fn(|cx| {
            self.holder().poll_act(|tracked, connection| {
                let before = into.len();
                into.extend(std::iter::from_fn(|| connection.recv_datagram()).take(most));
                if into.len() > before || most == 0 {
                    Poll::Ready(())
                } else {
                    tracked.wait(Wait::DatagramIn, cx);
                    Poll::Pending
                }
            })
        })
        .await
    }

    /// Waits until datagrams were dropped because they could not be sent [in
    /// time](DatagramOptions::within); tells how many of each tag since it was asked last,
    /// of 1,024 tags at most. Those that were sent once, and waited to be sent again, are not among
    /// them. Can be cancelled without a loss.
    ///
    /// # Errors
    ///
    /// The connection ended.
    pub async fn expired_datagrams(&self) -> Result<BTreeMap<u64, u64>, ConnectionError> {
        poll_fn(|cx| {
            self.holder().poll_act(|tracked, connection| {
                let expired = connection.take_expired_datagrams();
                if expired.is_empty() {
                    tracked.wait(Wait::DatagramsExpired, cx);
                    return Poll::Pending;
                }
                Poll::Ready(expired)
            })
        })
        .await
    }
}
