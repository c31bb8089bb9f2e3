//! A translator of addresses whose mapping changes, as those of operators do: from one moment to
//! the next a client's packets come from another port, and what is sent to the old one is lost.
//!
//! ```text
//! client ──> 10.99.0.1:4434 │ gateway │ a port of now ──> 10.101.0.2:4434, server
//!                           │         │ ports of before <── nobody reads them
//! ```
//! It is a program, so that no kernel has to be able to translate.

use anabranch_testbed::{Node, resumed};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How soon threads notice that they are to end.
const LOOK: Duration = Duration::from_millis(50);

/// What all threads know.
struct Shared {
    /// Where the client believes the server is.
    inner: UdpSocket,
    client: Mutex<Option<SocketAddr>>,
    /// The mapping of now is the last one. Others stay open, so that no ICMP tells of their end.
    mappings: Mutex<Vec<Arc<UdpSocket>>>,
    is_over: AtomicBool,
}

impl Shared {
    fn mapping(&self) -> Arc<UdpSocket> {
        Arc::clone(self.mappings.lock().unwrap().last().unwrap())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Passes on what the client sends, by the mapping of now.
    fn outwards(&self) {
        let mut buffer = [0; 2048];
        while !self.is_over() {
            let Ok((length, from)) = resumed(|| self.inner.recv_from(&mut buffer)) else {
                continue;
            };
            *self.client.lock().unwrap() = Some(from);
            // A link that is full or down loses it.
            let _ = self.mapping().send(&buffer[..length]);
        }
    }

    /// Passes on what comes for a mapping, as long as it is that of now.
    fn inwards(&self, mapping: &Arc<UdpSocket>) {
        let mut buffer = [0; 2048];
        while !self.is_over() && Arc::ptr_eq(mapping, &self.mapping()) {
            let Ok(length) = resumed(|| mapping.recv(&mut buffer)) else {
                continue;
            };
            let client = *self.client.lock().unwrap();
            // What comes while the mapping changes is lost as well.
            if let Some(client) = client.filter(|_| Arc::ptr_eq(mapping, &self.mapping())) {
                let _ = self.inner.send_to(&buffer[..length], client);
            }
        }
    }
}

/// A translator in a gateway. Ends when it is dropped.
pub struct Translator {
    node: Node,
    shared: Arc<Shared>,
    server: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Translator {
    /// Takes in what the gateway gets for `inner`, an address that it has itself, and sends it on
    /// to `server` from `outer`.
    pub fn start(node: &Node, inner: SocketAddr, server: SocketAddr, outer: &str) -> Self {
        let socket = node.enter(|| UdpSocket::bind(inner)).unwrap().unwrap();
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let shared = Arc::new(Shared {
            inner: socket,
            client: Mutex::default(),
            mappings: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let mut translator = Self {
            node: node.clone(),
            shared: Arc::clone(&shared),
            server,
            threads: Vec::new(),
        };
        translator.remap(outer);
        translator
            .threads
            .push(thread::spawn(move || shared.outwards()));
        translator
    }

    /// From now on the client's packets come from another port, of this address; returns which.
    pub fn remap(&mut self, outer: &str) -> SocketAddr {
        let server = self.server;
        let bind = || {
            let socket = UdpSocket::bind((outer, 0))?;
            socket.connect(server)?;
            std::io::Result::Ok(socket)
        };
        let socket = Arc::new(self.node.enter(bind).unwrap().unwrap());
        socket.set_read_timeout(Some(LOOK)).unwrap();
        let address = socket.local_addr().unwrap();
        self.shared
            .mappings
            .lock()
            .unwrap()
            .push(Arc::clone(&socket));
        let shared = Arc::clone(&self.shared);
        self.threads
            .push(thread::spawn(move || shared.inwards(&socket)));
        address
    }
}

impl Drop for Translator {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in it has been printed.
            let _ = thread.join();
        }
    }
}
