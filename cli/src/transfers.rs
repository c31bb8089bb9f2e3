//! What `get`, `put` and `serve` do, for a program of one's own: the same code, without words on a
//! terminal. Options are those of the command, by the same words; so are messages.
//!
//! ```no_run
//! # async fn example() -> Result<(), anabranch_cli::transfers::Error> {
//! use anabranch_cli::transfers::{self, Get, Options};
//!
//! let options = Options {
//!     paths: vec!["eth0".into(), "wwan0,backup".into()],
//!     ..Options::default()
//! };
//! let (_stop, stopped) = tokio::sync::watch::channel(false);
//! let get = Get { url: "anabranch://192.0.2.1/file".into(), ..Get::default() };
//! let report = transfers::get(&get, &options, &stopped).await?;
//! println!("{report}");
//! # Ok(())
//! # }
//! ```

use crate::args::{self, Moving, Paths, Report, uploads::Uploads};
use crate::commands::serve::{self, Serving};
use crate::commands::{get as getting, put as putting, transfer, tunnel};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::output::units::ByteSize;
use crate::session::{KEEP_ALIVE, explain, look_up};
use crate::trust::{ClientTrust, ServerTrust};
use crate::tuning::{self, Tuning};
use crate::url::ServerUrl;
use anabranch_net::connection::Connection;
use anabranch_net::defaults;
use anabranch_net::endpoint::Endpoint;
use anabranch_net::engine::{ClientConfig, EndpointConfig, ServerConfig, TransportConfig};
use anabranch_net::manager::PathManager;
use anabranch_schedulers::Names;
use clap::Parser;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// What all transfers and connections may be told. What is not given is as with the command.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The words of `--path`, one for each.
    pub paths: Vec<String>,
    /// How long to wait for the server's first answer.
    pub connect_timeout: Option<Duration>,
    /// The words of `--scheduler`.
    pub scheduler: Option<String>,
    /// The words of `--congestion`.
    pub congestion: Option<String>,
    /// The words of `--chunk`.
    pub chunk: Option<String>,
    /// The words of `--limit-rate`, for files.
    pub limit_rate: Option<String>,
    /// Whether timestamps are exchanged.
    pub timestamps: bool,
    /// The directory of the key to show.
    pub identity: Option<PathBuf>,
    /// Authorities (PEM) to believe, for URLs without a pinned key.
    pub ca: Option<PathBuf>,
    /// A directory for qlog files.
    pub qlog: Option<PathBuf>,
    /// The schedulers and congestion controllers there are.
    pub names: Arc<Names>,
}

/// One file to fetch.
#[derive(Debug, Clone, Default)]
pub struct Get {
    /// What `serve` printed, a slash and a name.
    pub url: String,
    /// The file, or the directory it goes into; here under its own name if `None`.
    pub to: Option<PathBuf>,
    /// Whether to replace a file that is here already and differs.
    pub force: bool,
}

/// One file to send.
#[derive(Debug, Clone, Default)]
pub struct Put {
    /// The file.
    pub file: PathBuf,
    /// Its name on the server; the same name if it ends in a slash.
    pub url: String,
    /// Whether to keep a file that the server has.
    pub no_clobber: bool,
}

/// What a server offers.
#[derive(Debug, Clone, Default)]
pub struct Serve {
    /// The directory.
    pub root: PathBuf,
    /// Where to listen; port 4433 of all addresses if empty.
    pub listen: Vec<String>,
    /// Hosts to put into the URL.
    pub advertise: Vec<String>,
    /// Whether uploads are taken.
    pub writable: bool,
    /// Whether clients may not choose how it sends.
    pub fixed_tuning: bool,
}

/// Why something was not done, in the command's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Whose fault it is.
    pub kind: ErrorKind,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Whose fault an [`Error`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no such scheduler or congestion control, or not with these parameters.
    Spec,
    /// It cannot be done as it was asked: the command's exit code 2.
    Usage,
    /// It failed: the command's exit code 1.
    Failed,
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self {
            kind: match &failure {
                Failure::Usage(_) => ErrorKind::Usage,
                Failure::Failed(_) | Failure::PipeClosed => ErrorKind::Failed,
            },
            what: failure.what().to_owned(),
            hint: failure.advice().map(ToOwned::to_owned),
        }
    }
}

/// Says nothing more on stderr, for the rest of the program: what commands tell people goes to the
/// program's log.
pub fn quiet() {
    output::hush();
}

/// Fetches a file; returns what `get --json` writes. Once `stop` is set, it ends, and keeps what
/// it has for the next time.
///
/// # Errors
///
/// [`Error`]
pub async fn get(
    what: &Get,
    options: &Options,
    stop: &watch::Receiver<bool>,
) -> Result<String, Error> {
    let url: ServerUrl = word("url", &what.url)?;
    let Some(name) = url.file_name() else {
        let failure = Failure::usage(format!("{} is a directory", url.request_path()));
        return Err(failure.hint("append the name of a file to the URL").into());
    };
    let args = args::Get {
        output: Some(what.to.clone().unwrap_or_else(|| name.into())),
        urls: vec![url],
        recursive: false,
        force: what.force,
        moving: options.moving()?,
    };
    let kept = Kept::default();
    let tell = |done: &transfer::Transfer| kept.keep(done);
    getting::fetch(&args, &options.names, true, &tell, stop).await?;
    kept.take()
}

/// Sends a file; returns what `put --json` writes. Once `stop` is set, it ends; the server keeps
/// what it has for the next time.
///
/// # Errors
///
/// [`Error`]
pub async fn put(
    what: &Put,
    options: &Options,
    stop: &watch::Receiver<bool>,
) -> Result<String, Error> {
    let args = args::Put {
        files: vec![what.file.clone()],
        url: word("url", &what.url)?,
        recursive: false,
        no_clobber: what.no_clobber,
        moving: options.moving()?,
    };
    let kept = Kept::default();
    let tell = |done: &transfer::Transfer| kept.keep(done);
    putting::send(&args, &options.names, true, &tell, set(stop.clone())).await?;
    kept.take()
}

/// A server of files.
#[derive(Debug)]
pub struct Server {
    serving: Serving,
}

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// [`Error`]
    pub async fn start(what: &Serve, options: &Options) -> Result<Self, Error> {
        // What is not said is as the command line has it.
        let command = ["anabranch", "serve"];
        let parsed = args::Cli::try_parse_from(command).map_err(Failure::usage)?;
        let args::Command::Serve(usual) = parsed.command else {
            return Err(Failure::usage("there is no command `serve`").into());
        };
        let mut listen = Vec::new();
        for text in &what.listen {
            listen.push(args::listen_address(text).map_err(|error| said("listen", error))?);
        }
        let args = args::Serve {
            root: what.root.clone(),
            listen,
            advertise: words("advertise", &what.advertise)?,
            uploads: Uploads {
                writable: what.writable,
                ..usual.uploads
            },
            trust: ServerTrust {
                identity: options.identity.clone(),
                ..ServerTrust::default()
            },
            tuning: options.tuning()?,
            fixed_tuning: what.fixed_tuning,
            report: options.report(),
            ..usual
        };
        let serving = Serving::start(&args, &options.names).await?;
        Ok(Self { serving })
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        self.serving.url.to_string()
    }

    /// Serves until `stop` is set.
    pub async fn run(self, stop: &watch::Receiver<bool>) {
        self.serving.run(true, false, set(stop.clone())).await;
    }
}

/// A connection speaking the caller's own protocol, with the endpoint and path manager it depends
/// on.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub connection: Connection,
    /// Opens paths as interfaces come and go.
    pub manager: PathManager,
    /// Its sockets.
    pub endpoint: Endpoint,
}

/// Connects to a server that speaks the protocol `alpn`.
///
/// # Errors
///
/// [`Error`]
pub async fn connect(url: &str, alpn: &str, options: &Options) -> Result<Dialled, Error> {
    let url: ServerUrl = word("url", url)?;
    let trust = options.trust();
    let tls = trust.config_for(&url, &[alpn.as_bytes()])?;
    let mut config = ClientConfig::new(tls);
    config.transport = Arc::new(options.transport()?);
    let target = look_up(&url).await?;
    let endpoint = Endpoint::client().map_err(|error| Failure::io("no socket", &error))?;
    let connected = endpoint
        .connect(&target, config, &options.paths()?.config())
        .await;
    let (connection, manager) =
        connected.map_err(|error| explain(&url, &error, trust.fingerprint()))?;
    Ok(Dialled {
        connection,
        manager,
        endpoint,
    })
}

/// Listens for connections of the protocol `alpn`; returns the URL for clients too. Without an
/// address, it is a port of the loopback interface.
///
/// # Errors
///
/// [`Error`]
pub async fn listen(
    addresses: &[String],
    alpn: &str,
    options: &Options,
) -> Result<(Endpoint, String), Error> {
    let mut listen = Vec::new();
    for text in addresses {
        listen.push(args::listen_address(text).map_err(|error| said("addresses", error))?);
    }
    if listen.is_empty() {
        listen.push(([127, 0, 0, 1], 0).into());
    }
    let trust = ServerTrust {
        identity: options.identity.clone(),
        ..ServerTrust::default()
    };
    let (tls, key) = trust.config_for(&["localhost"], &[alpn.as_bytes()])?;
    let mut server = ServerConfig::new(tls);
    server.transport = Arc::new(options.transport()?);
    let setup = serve::Setup {
        server,
        endpoint: EndpointConfig::default(),
        workers: None,
    };
    let bound = serve::open(setup, &key, &listen, &[]).await?;
    Ok((bound.0, bound.1.to_string()))
}

/// What the ends of tunnels on this machine do, each as `tunnel status --json` writes it: the one
/// at this control socket, or all of this user.
///
/// # Errors
///
/// [`Error`]
pub async fn tunnels(control: Option<PathBuf>) -> Result<Vec<String>, Error> {
    let found = tunnel::ask::statuses(&args::tunnel::Node { control }).await?;
    let texts = found.iter().map(|status| {
        let text = serde_json::to_string(status);
        text.map_err(|error| Failure::failed(error).into())
    });
    texts.collect()
}

impl Options {
    fn moving(&self) -> Result<Moving, Error> {
        Ok(Moving {
            limit_rate: self.limit()?,
            paths: self.paths()?,
            tuning: self.tuning()?,
            timestamps: self.timestamps,
            trust: self.trust(),
            report: self.report(),
        })
    }

    fn paths(&self) -> Outcome<Paths> {
        Ok(Paths {
            specs: words("paths", &self.paths)?,
            per_interface: 1,
            connect_timeout: self.connect_timeout.unwrap_or(Duration::from_secs(10)),
        })
    }

    /// What it asks for, every name of it known.
    fn tuning(&self) -> Result<Tuning, Error> {
        let spec = |error: Failure| Error {
            kind: ErrorKind::Spec,
            ..error.into()
        };
        let parsed = || {
            Ok(Tuning {
                scheduler: given("scheduler", self.scheduler.as_deref())?,
                congestion: given("congestion", self.congestion.as_deref())?,
                chunk: None,
            })
        };
        let mut tuning: Tuning = parsed().map_err(spec)?;
        tuning.resolve(&self.names).map_err(spec)?;
        let chunk = self.chunk.as_deref().map(tuning::chunk).transpose();
        tuning.chunk = chunk.map_err(|error| said("chunk", error))?;
        Ok(tuning)
    }

    fn transport(&self) -> Result<TransportConfig, Error> {
        let mut transport = TransportConfig {
            keep_alive: Some(KEEP_ALIVE),
            timestamps: self.timestamps,
            ..defaults::transport()
        };
        self.tuning()?
            .resolve(&self.names)?
            .configure(&mut transport);
        let qlog = self.qlog.as_deref();
        transport.observer = qlog.map(crate::qlog::into_directory).transpose()?;
        Ok(transport)
    }

    fn limit(&self) -> Outcome<Option<ByteSize>> {
        let rate = self.limit_rate.as_deref().map(args::rate).transpose();
        rate.map_err(|error| said("limit_rate", error))
    }

    fn trust(&self) -> ClientTrust {
        ClientTrust {
            ca: self.ca.clone(),
            identity: self.identity.clone(),
            ..ClientTrust::default()
        }
    }

    fn report(&self) -> Report {
        Report {
            json: false,
            qlog: self.qlog.clone(),
        }
    }
}

fn said(option: &str, error: impl Display) -> Failure {
    Failure::usage(format!("{option}: {error}"))
}

fn word<T: FromStr<Err: Display>>(option: &str, text: &str) -> Outcome<T> {
    text.parse().map_err(|error| said(option, error))
}

fn words<T: FromStr<Err: Display>>(option: &str, texts: &[String]) -> Outcome<Vec<T>> {
    texts.iter().map(|text| word(option, text)).collect()
}

fn given<T: FromStr<Err: Display>>(option: &str, text: Option<&str>) -> Outcome<Option<T>> {
    text.map(|text| word(option, text)).transpose()
}

/// Completes once `stop` is set; never if nobody can set it any more.
async fn set(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What a transfer reported.
#[derive(Debug, Default)]
struct Kept(Mutex<Option<String>>);

impl Kept {
    fn keep(&self, done: &transfer::Transfer) -> Outcome {
        let text = serde_json::to_string(done).map_err(Failure::failed)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        Ok(())
    }

    fn take(&self) -> Result<String, Error> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || Failure::failed("it ended without a report").into();
        kept.take().ok_or_else(missing)
    }
}
