//! Agents on other machines, over a connection of the engine: each side pins the other's key.
//!
//! A laboratory opens one stream for lines and one for the clock. Before each run, the clocks of
//! both machines are compared by a few exchanges. The fastest exchange counts, with half its
//! duration as the error.

use crate::local::{decode, encode};
use crate::machine::clock_ns;
use crate::rules::{Doors, QlogAt, Rules};
use crate::serve::serve;
use anabranch_lab::contender::Contender;
use anabranch_lab::hosts::{Answer, Ask, Host, HostError, MAX_LINE};
use anabranch_lab::machine::Machine;
use anabranch_net::engine::tls::{self, ClientAuth, Fingerprint};
use anabranch_net::engine::{ClientConfig, ConnectionError, ServerConfig, TransportConfig};
use anabranch_net::error::ConnectError;
use anabranch_net::identity::{Identity, provider};
use anabranch_net::sockets::{SocketConfig, wildcard_for};
use anabranch_net::{Connection, Endpoint, RecvStream, SendStream};
use anabranch_schedulers::Names;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

/// The application protocol of agents.
const ALPN: &[u8] = b"anabranch-agent";

/// The name by which laboratories address agents; keys identify them, names do not.
const SERVER_NAME: &str = "agent.lab";

/// The first byte of a stream of lines.
const LINES: u8 = b'l';

/// The first byte of a stream of clock readings.
const CLOCK: u8 = b'c';

/// The number of exchanges that compare two clocks.
const EXCHANGES: usize = 10;

/// How often a silent connection is probed.
const KEEP_ALIVE: Duration = Duration::from_secs(3);

/// How long a silent host is assumed to be alive.
const SILENCE: Duration = Duration::from_secs(15);

/// How long a laboratory waits for its turn: its own last run may take a moment to end.
const TURN: Duration = Duration::from_secs(3);

/// The error code of a connection whose agent was told to end.
const ENDED: u32 = 1;

/// How long an agent may take to answer the first call, or a reading of its clock.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long to try to deliver the end of a connection.
const FAREWELL: Duration = Duration::from_millis(500);

/// Settings of a listening agent.
#[derive(Debug, Clone)]
pub struct Listen {
    /// The address it listens on.
    pub address: SocketAddr,
    /// The agent's own key.
    pub identity: Identity,
    /// The keys of the laboratories it works for.
    pub trusted: Vec<Fingerprint>,
    /// A folder for qlog files; without one, runs that record them are refused.
    pub qlog: Option<PathBuf>,
    /// Ports at which flows are received; the kernel's choice if `None`.
    pub ports: Option<RangeInclusive<u16>>,
    /// The schedulers and congestion controllers that laboratories may name.
    pub names: Arc<Names>,
    /// Third-party programs it may start as servers; a laboratory only names them.
    pub programs: Vec<Contender>,
}

/// Why an agent cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// No laboratory is trusted.
    #[error("no trusted key: expected that of at least one laboratory")]
    Nobody,
    /// The agent's key cannot be used.
    #[error("the agent's key: {0}")]
    Key(String),
    /// The address cannot be bound.
    #[error(transparent)]
    Bind(#[from] io::Error),
}

/// A listening agent.
#[derive(Debug)]
pub struct Service {
    runtime: Runtime,
    endpoint: Endpoint,
    key: Fingerprint,
    address: SocketAddr,
    rules: Rules,
    stop: Stop,
}

/// Ends a [`Service`].
#[derive(Debug, Clone, Default)]
pub struct Stop {
    wanted: Arc<Notify>,
}

impl Stop {
    /// Ends it: current runs are aborted, and their laboratories are told.
    pub fn stop(&self) {
        self.wanted.notify_one();
    }
}

fn transport() -> Arc<TransportConfig> {
    Arc::new(TransportConfig {
        keep_alive: Some(KEEP_ALIVE),
        max_idle_timeout: Some(SILENCE),
        // A connection has only one path.
        max_paths: 0,
        ..TransportConfig::default()
    })
}

impl Service {
    /// Binds the address.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn bind(listen: &Listen) -> Result<Self, ListenError> {
        if listen.trusted.is_empty() {
            return Err(ListenError::Nobody);
        }
        let tls = tls::ServerTls::with_raw_key(provider(), listen.identity.key())
            .alpn(&[ALPN])
            .client_auth(ClientAuth::Pinned(listen.trusted.clone()))
            .build();
        let tls = tls.map_err(|error| ListenError::Key(error.to_string()))?;
        let mut config = ServerConfig::new(tls);
        config.transport = transport();
        let runtime = crate::runtime()?;
        let endpoint = {
            let _inside = runtime.enter();
            Endpoint::server(config, &[listen.address])?
        };
        let address = endpoint.local_addrs().first().copied();
        Ok(Self {
            runtime,
            key: listen.identity.fingerprint(),
            address: address.unwrap_or(listen.address),
            endpoint,
            rules: Rules {
                qlog: match &listen.qlog {
                    Some(folder) => QlogAt::Under(folder.clone()),
                    None => QlogAt::Nowhere,
                },
                doors: Doors {
                    ports: listen.ports.clone(),
                    called_from_afar: true,
                },
                names: Arc::clone(&listen.names),
                programs: listen.programs.clone(),
                may_call: false,
                // Takes a while, so it is done now and never while a laboratory waits.
                machine: Arc::new(OnceLock::from(Machine::examine())),
            },
            stop: Stop::default(),
        })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The key that laboratories have to pin.
    pub fn key(&self) -> Fingerprint {
        self.key
    }

    /// A handle that ends it from another thread.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves laboratories, one at a time, until it is told to end.
    pub fn run(self) {
        let busy = Arc::new(Mutex::new(()));
        self.runtime.block_on(async {
            let mut laboratories = JoinSet::new();
            loop {
                tokio::select! {
                    connection = self.endpoint.accept() => match connection {
                        Some(connection) => {
                            let busy = Arc::clone(&busy);
                            laboratories.spawn(attend(connection, busy, self.rules.clone()));
                        }
                        None => break,
                    },
                    Some(_) = laboratories.join_next(), if !laboratories.is_empty() => {}
                    () = self.stop.wanted.notified() => break,
                }
            }
            self.endpoint.close(ENDED, b"the agent was told to end");
            laboratories.shutdown().await;
            // Fails only if laboratories are gone.
            let _ = tokio::time::timeout(FAREWELL, self.endpoint.wait_idle()).await;
        });
    }
}

/// Listens and serves laboratories for as long as the process lives.
///
/// # Errors
/// See [`ListenError`].
pub fn listen(listen: &Listen) -> Result<(), ListenError> {
    Service::bind(listen)?.run();
    Ok(())
}

/// Serves one laboratory. Its runs end when its connection does.
async fn attend(connection: Connection, busy: Arc<Mutex<()>>, rules: Rules) {
    let mut streams = JoinSet::new();
    loop {
        let (send, mut receive) = tokio::select! {
            opened = connection.accept_bi() => match opened {
                Ok(stream) => stream,
                Err(_) => return,
            },
            // Finished tasks are removed, or they would fill the memory in a long campaign.
            Some(_) = streams.join_next(), if !streams.is_empty() => continue,
        };
        let (busy, rules) = (Arc::clone(&busy), rules.clone());
        streams.spawn(async move {
            match receive.read_u8().await {
                Ok(LINES) => match tokio::time::timeout(TURN, busy.lock_owned()).await {
                    // The laboratory notices a broken stream by itself.
                    Ok(_turn) => drop(serve(receive, send, rules).await),
                    Err(_) => refuse(send).await,
                },
                Ok(CLOCK) => tell_time(send, receive).await,
                _ => {}
            }
        });
    }
}

async fn refuse(mut send: SendStream) {
    let answer = Answer::Failed("this agent works for another laboratory just now".to_owned());
    if let Ok(mut line) = serde_json::to_vec(&answer) {
        line.push(b'\n');
        // If the line is lost, the end of the stream still arrives.
        let _ = send.write_all(&line).await;
        let _ = send.finish();
        let _ = send.stopped().await;
    }
}

/// Answers each byte with the time.
async fn tell_time(mut send: SendStream, mut receive: RecvStream) {
    while receive.read_u8().await.is_ok() {
        if send.write_all(&clock_ns().to_be_bytes()).await.is_err() {
            return;
        }
    }
}

/// An agent on another machine.
#[derive(Debug)]
pub struct Remote {
    name: String,
    /// Present until this is dropped.
    runtime: Option<Runtime>,
    endpoint: Endpoint,
    connection: Connection,
    lines: SendStream,
    answers: Receiver<io::Result<String>>,
    clock: (SendStream, RecvStream),
    /// How far its clock is ahead of ours, and the error, in nanoseconds.
    ahead: Option<(i64, u64)>,
}

impl Remote {
    /// Calls the agent at an address, which must have this key, and shows it our key.
    ///
    /// # Errors
    /// There is no answer, or the agent has another key.
    pub fn connect(
        name: &str,
        address: SocketAddr,
        key: Fingerprint,
        identity: &Identity,
    ) -> Result<Self, HostError> {
        let failed = |why: String| HostError::Unreachable {
            host: name.to_owned(),
            why: format!("{address}: {why}"),
        };
        // An agent answers a key that it does not trust with a TLS alert.
        let lost = |reason: &ConnectionError| match reason {
            ConnectionError::PeerClosed(error) if error.code.tls_alert().is_some() => {
                HostError::Ended {
                    host: name.to_owned(),
                    why: format!("{address}: {reason}"),
                }
            }
            _ => failed(reason.to_string()),
        };
        let tls = tls::ClientTls::pinned(provider(), key)
            .alpn(&[ALPN])
            .identity(tls::Identity::RawKey(identity.key().clone()))
            .build();
        let mut config = ClientConfig::new(tls.map_err(|error| failed(error.to_string()))?);
        config.transport = transport();
        // Runs on a thread of its own, so that the connection stays alive between requests.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        let (say, answers) = channel();
        let parts = runtime.block_on(async {
            let calling = call(address, config);
            let called = tokio::time::timeout(PATIENCE, calling)
                .await
                .map_err(|_| failed(format!("no answer within {} s", PATIENCE.as_secs())))?;
            // Our handshake is complete before the agent checks our key, so it may end the
            // connection before or after we know that it was established.
            let (endpoint, connection) = called.map_err(|error| match error {
                ConnectError::Handshake(reason) => lost(&reason),
                other => failed(other.to_string()),
            })?;
            let opened = async {
                let lines = open(&connection, LINES).await?;
                Ok::<_, String>((lines, open(&connection, CLOCK).await?))
            };
            let ((lines, receive), clock) = opened.await.map_err(|why| {
                let reason = connection.close_reason();
                reason.map_or_else(|| failed(why), |reason| lost(&reason))
            })?;
            tokio::spawn(forward(receive, say));
            Ok::<_, HostError>((endpoint, connection, lines, clock))
        });
        let (endpoint, connection, lines, clock) = parts?;
        Ok(Self {
            name: name.to_owned(),
            runtime: Some(runtime),
            endpoint,
            connection,
            lines,
            answers,
            clock,
            ahead: None,
        })
    }

    /// How far its clock (`CLOCK_MONOTONIC`) is ahead of ours, and the error, both in nanoseconds;
    /// `None` before the first run is prepared.
    pub fn clock(&self) -> Option<(i64, u64)> {
        self.ahead
    }

    fn ended(&self, error: &dyn std::fmt::Display) -> HostError {
        let reason = self.connection.close_reason();
        HostError::Ended {
            host: self.name.clone(),
            why: reason.map_or_else(|| error.to_string(), |reason| reason.to_string()),
        }
    }

    /// Asks for a description of its machine.
    ///
    /// # Errors
    /// It does not answer, works for another laboratory, or is too old for this request.
    pub fn machine(&mut self) -> Result<Machine, HostError> {
        self.ask(Ask::Hello)?;
        match self.answer(PATIENCE)? {
            Answer::Machine(machine) => Ok(*machine),
            Answer::Failed(why) => Err(HostError::Unreachable {
                host: self.name.clone(),
                why,
            }),
            other => Err(HostError::Garbled {
                host: self.name.clone(),
                why: format!("expected what machine it is, not {other:?}"),
            }),
        }
    }

    /// Compares the clocks.
    fn compare(&mut self) -> Result<(), HostError> {
        let (send, receive) = &mut self.clock;
        let exchanges = async {
            let mut best: Option<(u64, i64)> = None;
            for _ in 0..EXCHANGES {
                let before = clock_ns();
                send.write_all(&[CLOCK]).await.map_err(io::Error::from)?;
                let theirs = receive.read_u64().await?;
                let after = clock_ns();
                let took = after.saturating_sub(before);
                let middle = before + took / 2;
                let ahead = theirs.wrapping_sub(middle) as i64;
                if best.is_none_or(|(least, _)| took < least) {
                    best = Some((took, ahead));
                }
            }
            io::Result::Ok(best)
        };
        let compared = self
            .runtime
            .as_ref()
            .expect("it is there until the drop")
            .block_on(async { tokio::time::timeout(PATIENCE, exchanges).await });
        match compared {
            Ok(Ok(best)) => {
                self.ahead = best.map(|(took, ahead)| (ahead, took.div_ceil(2)));
                Ok(())
            }
            Ok(Err(error)) => Err(self.ended(&error)),
            Err(_) => Err(HostError::Silent {
                host: self.name.clone(),
                waited: PATIENCE,
            }),
        }
    }
}

async fn call(
    address: SocketAddr,
    config: ClientConfig,
) -> Result<(Endpoint, Connection), ConnectError> {
    let unbound = |error| ConnectError::Socket {
        place: wildcard_for(address).to_string(),
        error,
    };
    let endpoint = Endpoint::client().map_err(unbound)?;
    let socket = SocketConfig::path(wildcard_for(address), None);
    let socket = endpoint.add_socket(&socket).map_err(unbound)?;
    let connecting = endpoint.connect_over(socket, address, SERVER_NAME, config);
    Ok((endpoint.clone(), connecting.await?))
}

async fn open(connection: &Connection, kind: u8) -> Result<(SendStream, RecvStream), String> {
    let opened = connection.open_bi().await;
    let (mut send, receive) = opened.map_err(|error| error.to_string())?;
    let sent = send.write_all(&[kind]).await;
    sent.map_err(|error| error.to_string())?;
    Ok((send, receive))
}

/// Passes on the lines that an agent sends.
async fn forward(receive: RecvStream, say: std::sync::mpsc::Sender<io::Result<String>>) {
    let mut receive = BufReader::new(receive);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut receive).take(MAX_LINE as u64 + 1);
        let read = bounded.read_until(b'\n', &mut line).await;
        let line = match read {
            Ok(0) => return,
            Ok(_) if line.pop() == Some(b'\n') => String::from_utf8(line).map_err(io::Error::other),
            Ok(_) => Err(io::Error::other("half a line, or one that is too long")),
            Err(error) => Err(error),
        };
        let over = line.is_err();
        if say.send(line).is_err() || over {
            return;
        }
    }
}

impl Host for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&mut self, ask: Ask) -> Result<(), HostError> {
        if matches!(ask, Ask::Prepare(_)) {
            self.compare()?;
        }
        let line = encode(&self.name, &ask)?;
        let runtime = self.runtime.as_ref().expect("it is there until the drop");
        let written = runtime.block_on(self.lines.write_all(&line));
        written.map_err(|error| self.ended(&error))
    }

    fn answer(&mut self, timeout: Duration) -> Result<Answer, HostError> {
        let line = match self.answers.recv_timeout(timeout) {
            Ok(Ok(line)) => line,
            Ok(Err(error)) => return Err(self.ended(&error)),
            Err(RecvTimeoutError::Timeout) => {
                return Err(HostError::Silent {
                    host: self.name.clone(),
                    waited: timeout,
                });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended(&"")),
        };
        let mut answer = decode(&self.name, &line)?;
        if let Answer::Done(report) = &mut answer {
            (report.clock_ahead_ns, report.clock_error_ns) = self.ahead.unzip();
        }
        Ok(answer)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.connection.close(0, b"");
        let (runtime, endpoint) = (self.runtime.take(), self.endpoint.clone());
        let Some(runtime) = runtime else { return };
        // On a thread of its own, since this may be dropped in a task, which must not block.
        let farewell = thread::spawn(move || {
            // The agent may be gone.
            let _ = runtime
                .block_on(async { tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await });
        });
        // Its result does not matter, not even a panic.
        let _ = farewell.join();
    }
}
