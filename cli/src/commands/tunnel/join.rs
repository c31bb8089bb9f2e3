//! `anabranch tunnel join`: the near end.

use super::file::{Faults, Settings};
use super::keeping::{self, Keeping};
use super::reload::{self, Reloaded, Reloading};
use super::{answer, capture, control, directory, ip, metrics, name, sending, service};
use crate::args::tunnel::Join;
use crate::commands::interrupted;
use crate::commands::serve::{cannot_listen, raise_file_limit};
use crate::failure::{Failure, Outcome};
use crate::join::FarEnd;
use crate::links;
use crate::output;
use crate::qlog;
use crate::session::{explain, look_up};
use crate::url::ServerUrl;
use anabranch_gateway::Entry;
use anabranch_gateway::control::{Answer, Order};
use anabranch_gateway::entry::capture::OURS;
use anabranch_gateway::entry::links::Links;
use anabranch_gateway::entry::{Entrance, Failed, Far, Invited, News};
use anabranch_gateway::identity::Kept;
use anabranch_net::engine::ClientConfig;
use anabranch_net::{Connection, Endpoint, PathManager, PathsConfig, Target};
use anabranch_schedulers::Names;
use anabranch_tunnel::Classes;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What links with a cap have carried, in the directory of keys and credentials.
const CARRIED: &str = "links.json";

/// Runs the command, with the settings of a file if `reloading` has one.
pub(super) async fn run(
    args: &Join,
    names: &Names,
    quiet: bool,
    reloading: Option<Reloading<'_>>,
) -> Outcome {
    raise_file_limit();
    let keeping = Keeping::open(ip::is_wanted(args).then_some(keeping::NEAR));
    let mut interrupted = pin!(interrupted());
    let url = args.far_end()?;
    let far_end = if args.capture.is_empty() {
        None
    } else {
        capture::check(args).await?;
        tokio::select! {
            target = capture::far_end(url.server(), quiet) => Some(target),
            () = &mut interrupted => return Ok(()),
        }
    };
    let endpoint = endpoint(args)?;
    let line = Line::new(args, url.server(), far_end.clone(), &endpoint, names)?;
    let line = Arc::new(line);
    let far = far(args, url, &line, quiet)?;
    let metrics = metrics::bind(args.metrics, quiet).await?;
    let bound = Entry::bind(&args.addresses(), far).await;
    let entry = bound.map_err(|error| cannot_listen(&error))?;
    let mut entry = entry.with_links(Arc::clone(&line.links));
    entry.set_classes(Classes::new(args.classes.clone()));
    let mut capturing = None;
    if let Some(tun) = ip::device(args, &keeping).await? {
        if let Some(far_end) = &far_end {
            let (capture, doors) = capture::start(args, far_end, tun.carried()).await?;
            entry = entry.with_doors(doors);
            capturing = Some(capture);
        }
        entry = entry.with_tun(tun);
    }
    let entry = Arc::new(entry);
    let control = control("near");
    introduce(args, &entry.local_addrs(), quiet);
    let (line, node) = (&*line, &*entry);
    let reloader = reloading.as_ref().map(|it| Reloader::new(it, line, node));
    let obey = async |order| match order {
        Order::Reload => reload::answer(reloader.as_ref(), Reloader::reload),
        Order::Status => Answer::Status(Box::new(entry.status().await)),
        Order::Flows { called, most } => {
            Answer::Flows(Box::new(entry.flows(called.as_deref(), most).await))
        }
        _ => Answer::Refused("this is a near end: the far end knows its clients".into()),
    };
    let ended = tokio::select! {
        failed = entry.run() => Err(final_failure(&failed)),
        () = answer(control, obey) => Ok(()),
        () = metrics::serve(metrics, || entry.glance()) => Ok(()),
        () = service::attend(&endpoint, || entry.glance()) => Ok(()),
        () = reload::on_signal(reloader.as_ref(), Reloader::reload) => Ok(()),
        failure = capture::unguarded(capturing.as_mut()) => Err(failure),
        () = interrupted => Ok(()),
    };
    service::stopping();
    entry.close();
    line.links.save();
    endpoint.say_goodbye().await;
    if let Some(capturing) = capturing {
        capture::stop(capturing, args, keeping.outlives(&ended), quiet).await;
    }
    ended
}

/// The links and their rules. What those with a cap have carried is kept beside the identity.
fn links(args: &Join) -> Outcome<Arc<Links>> {
    let wanted = args.links();
    let file = match directory(&args.place) {
        Ok(directory) => Some(directory.join(CARRIED)),
        Err(failure) if wanted.iter().any(|one| one.rule.cap.is_some()) => return Err(failure),
        Err(_) => None,
    };
    let links = Links::open(file, wanted).map_err(Failure::failed)?;
    if args.no_quarantine {
        links.trust();
    }
    Ok(Arc::new(links))
}

/// What the entry needs to know of the far end.
fn far(args: &Join, far_end: FarEnd, line: &Arc<Line>, quiet: bool) -> Outcome<Far> {
    let line = Arc::clone(line);
    let entrance = match far_end {
        FarEnd::Exit(url) => Entrance::Exit(Invited {
            kept: Kept::in_directory(&directory(&args.place)?),
            server: url.pin.to_string(),
            invitation: url.invitation,
            name: name(args.name.as_deref()),
        }),
        FarEnd::Proxy(url) => Entrance::Proxy(args.foreign.proxy(&url)?),
    };
    Ok(Far {
        dial: Box::new(move || {
            let line = Arc::clone(&line);
            Box::pin(async move { line.dial().await })
        }),
        entrance,
        tell: Box::new(move |news: &News| tell(news, quiet)),
    })
}

/// What of a near end can be changed while it runs.
struct Reloader<'a> {
    reloading: &'a Reloading<'a>,
    line: &'a Line,
    entry: &'a Entry,
}

impl<'a> Reloader<'a> {
    fn new(reloading: &'a Reloading<'a>, line: &'a Line, entry: &'a Entry) -> Self {
        Self {
            reloading,
            line,
            entry,
        }
    }

    /// Reads the configuration again and applies what differs.
    fn reload(&self) -> Result<Reloaded, Faults> {
        let (new, mut reloaded) = self.reloading.read()?;
        let Settings::Near(join) = &new.settings else {
            return Ok(reloaded);
        };
        if self.line.links.set(join.links()) {
            self.line.paths().or_as_routed = join.paths.are_default();
            let specs = self.line.links.specs();
            let applied = self.entry.manager().is_none_or(|it| it.set_specs(specs));
            // With one path that the kernel routes, the others begin with the next connection.
            let list = if applied {
                &mut reloaded.applied
            } else {
                &mut reloaded.restart
            };
            list.push("path".to_owned());
        }
        if self.entry.set_classes(Classes::new(join.classes.clone())) {
            reloaded.applied.push("class".to_owned());
        }
        Ok(reloaded)
    }
}

/// What the program sends itself is marked where traffic is captured or routed into the tunnel, as
/// its own must not be.
fn endpoint(args: &Join) -> Outcome<Endpoint> {
    let mut builder = Endpoint::builder();
    if !args.capture.is_empty() || args.tun.is_some() {
        builder = builder.mark(OURS);
    }
    builder
        .bind()
        .map_err(|error| Failure::io("no socket", &error))
}

fn introduce(args: &Join, listening: &[SocketAddr], quiet: bool) {
    if quiet {
        return;
    }
    let listening: Vec<String> = listening.iter().map(ToString::to_string).collect();
    let listening = listening.join(", ");
    output::say(format!("SOCKS5 and HTTP CONNECT on {listening}"));
    if !args.capture.is_empty() {
        output::say(capture::words(args));
    }
}

/// The way to the far end.
struct Line {
    url: ServerUrl,
    /// Its addresses, if they cannot be looked up later.
    target: Option<Target>,
    config: ClientConfig,
    /// How paths are tried; without any, which are up to the links.
    paths: Mutex<PathsConfig>,
    links: Arc<Links>,
    endpoint: Endpoint,
}

impl Line {
    fn new(
        args: &Join,
        url: &ServerUrl,
        target: Option<Target>,
        endpoint: &Endpoint,
        names: &Names,
    ) -> Outcome<Self> {
        Ok(Self {
            config: configure(args, url, names)?,
            url: url.clone(),
            target,
            paths: Mutex::new(PathsConfig {
                specs: Vec::new(),
                ..args.paths.config()
            }),
            links: links(args)?,
            endpoint: endpoint.clone(),
        })
    }

    fn paths(&self) -> MutexGuard<'_, PathsConfig> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn dial(&self) -> Result<(Connection, PathManager), Failed> {
        let target = match &self.target {
            Some(target) => Ok(target.clone()),
            None => look_up(&self.url).await,
        };
        let target = target.map_err(|failure| failed(&failure))?;
        let mut paths = self.paths().clone();
        paths.specs = self.links.specs();
        let dialling = self.endpoint.connect(&target, self.config.clone(), &paths);
        let connected = dialling.await;
        let (connection, manager) =
            connected.map_err(|error| failed(&explain(&self.url, &error, None)))?;
        links::tell_changes(&manager);
        Ok((connection, manager))
    }
}

/// A link that is down today may be up tomorrow; a key is what it is.
fn failed(failure: &Failure) -> Failed {
    Failed {
        words: failure.what().to_owned(),
        hint: failure.advice().unwrap_or_default().to_owned(),
        is_final: false,
    }
}

/// Why the near end ends.
fn final_failure(failed: &Failed) -> Failure {
    let failure = Failure::failed(&failed.words);
    if failed.hint.is_empty() {
        failure
    } else {
        failure.hint(&failed.hint)
    }
}

fn configure(args: &Join, server: &ServerUrl, names: &Names) -> Outcome<ClientConfig> {
    let mut transport = sending(&args.tuning, names, anabranch_gateway::near_transport())?;
    let qlog = args.qlog.as_deref();
    transport.observer = qlog.map(qlog::into_directory).transpose()?;
    let mut config = ClientConfig::new(args.foreign.trust().config(server)?);
    config.transport = Arc::new(transport);
    Ok(config)
}

fn tell(news: &News, quiet: bool) {
    if !quiet {
        output::say(news);
    }
}
