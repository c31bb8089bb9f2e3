//! Events to wait for, and streams that act when so much has passed.

use super::soon_over;
use anabranch_interop::Request;
use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Everything of a kind that has happened so far.
#[derive(Debug)]
pub(crate) struct Watched<T>(pub(crate) Arc<Mutex<Vec<T>>>);

impl<T: Clone + Debug> Watched<T> {
    /// Waits until something of this description has happened.
    pub(crate) async fn wait(&self, what: &str, is_it: impl Fn(&T) -> bool) {
        let is_late = soon_over();
        while self.count(&is_it) == 0 {
            assert!(!is_late(), "in vain for {what}; seen: {:?}", self.all());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    /// How many things of this description have happened.
    pub(crate) fn count(&self, is_it: impl Fn(&T) -> bool) -> usize {
        self.all().iter().filter(|&seen| is_it(seen)).count()
    }
}

type Action = Box<dyn FnOnce() + Send>;

/// One direction of a stream that does something when so many bytes have passed.
pub(crate) struct Tripwire<S> {
    inner: S,
    left: u64,
    action: Option<Action>,
}

impl<S> Tripwire<S> {
    fn passed(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes as u64);
        if self.left == 0
            && let Some(action) = self.action.take()
        {
            action();
        }
    }
}

impl Tripwire<()> {
    /// Puts the wire across the direction the content of `request` takes.
    pub(crate) fn pair<R, W>(
        request: Request,
        after: u64,
        action: impl FnOnce() + Send + 'static,
        receive: R,
        send: W,
    ) -> (Tripwire<R>, Tripwire<W>) {
        let action: Option<Action> = Some(Box::new(action));
        let (on_receive, on_send) = match request {
            Request::Get(_) => (action, None),
            Request::Put(_) => (None, action),
        };
        let receive = Tripwire {
            inner: receive,
            left: after,
            action: on_receive,
        };
        let send = Tripwire {
            inner: send,
            left: after,
            action: on_send,
        };
        (receive, send)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tripwire<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let poll = Pin::new(&mut this.inner).poll_read(cx, buffer);
        this.passed(buffer.filled().len() - before);
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tripwire<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.inner).poll_write(cx, data);
        if let Poll::Ready(Ok(taken)) = &poll {
            this.passed(*taken);
        }
        poll
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}
