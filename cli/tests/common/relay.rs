//! A way to a server on the loopback interface that goes silent after so many bytes, so that a
//! transfer stands still in the middle however fast the machine is.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How often a relay without traffic looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// The largest UDP payload.
const MAX_DATAGRAM: usize = 65_535;

/// A running relay; it stops when dropped.
pub(crate) struct Relay {
    /// Where the client sends to.
    pub(crate) addr: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Relay {
    /// Forwards so many bytes, both directions together, and nothing after.
    pub(crate) fn start(server: SocketAddr, bytes: u64) -> Self {
        let socket = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            socket.set_read_timeout(Some(LOOK)).expect("a time-out");
            socket
        };
        let (near, far) = (socket(), socket());
        far.connect(server).expect("the server's address");
        let addr = near.local_addr().expect("an address");
        let over = Arc::new(AtomicBool::new(false));
        let left = Arc::new(AtomicU64::new(bytes));
        let client = Arc::new(Mutex::new(None));
        let clone = |socket: &UdpSocket| socket.try_clone().expect("another handle");
        {
            let (near, far, client) = (clone(&near), clone(&far), Arc::clone(&client));
            let (over, left) = (Arc::clone(&over), Arc::clone(&left));
            thread::spawn(move || {
                forward(&near, &left, &over, |from, datagram| {
                    *client.lock().expect("no panic") = Some(from);
                    let _ = far.send(datagram);
                });
            });
        }
        let ended = Arc::clone(&over);
        thread::spawn(move || {
            forward(&far, &left, &ended, |_, datagram| {
                if let Some(to) = *client.lock().expect("no panic") {
                    let _ = near.send_to(datagram, to);
                }
            });
        });
        Self { addr, over }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Passes what `socket` receives on. A datagram that cannot be sent is a lost one.
fn forward(
    socket: &UdpSocket,
    left: &AtomicU64,
    over: &AtomicBool,
    mut pass: impl FnMut(SocketAddr, &[u8]),
) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    while !over.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let spend = |left: u64| left.checked_sub(length as u64);
        let spent = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
        if spent.is_ok() {
            pass(from, &buffer[..length]);
        }
    }
}
