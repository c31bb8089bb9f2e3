//! `anabranch tunnel serve`: the far end.

use super::keeping::{self, Keeping};
use super::reload::{self, Reloading};
use super::{answer, control, directory, fleet, ip, metrics, name, sending, service};
use crate::args::tunnel::Serve;
use crate::commands::interrupted;
use crate::commands::serve::{RESET_LABEL, Setup, bind, raise_file_limit, reachable};
use crate::failure::{Failure, Outcome};
use crate::join::{JoinUrl, PORT};
use crate::output;
use crate::qlog;
use crate::session::H3_NO_ERROR;
use crate::trust::ServerTrust;
use crate::url::ServerUrl;
use anabranch_gateway::Exit;
use anabranch_gateway::control::{Added, Answer, Order};
use anabranch_gateway::exit::Permissions;
use anabranch_gateway::identity::{Secret, Store};
use anabranch_net::Endpoint;
use anabranch_net::engine::{EndpointConfig, ServerConfig};
use anabranch_proto::tls::Fingerprint;
use anabranch_schedulers::Names;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long clients have to learn that the far end is leaving.
const FAREWELL: Duration = Duration::from_secs(1);

/// Connections from one IPv4 address or one /64 of IPv6: customers of some networks share one.
const FROM_ONE_ADDRESS: usize = 250;

/// Runs the command, with the settings of a file if `reloading` has one.
pub(super) async fn run(
    args: &Serve,
    names: &Names,
    quiet: bool,
    reloading: Option<Reloading<'_>>,
) -> Outcome {
    raise_file_limit();
    let keeping = Keeping::open((!args.ip.is_empty()).then_some(keeping::FAR));
    let directory = directory(&args.place)?;
    let store = Store::open(&directory).map_err(usage)?;
    let (endpoint, pin) = endpoint(args, names, &directory)?;
    let metrics = metrics::bind(args.metrics, quiet).await?;
    let hosts = match args.advertise.as_slice() {
        [] => reachable(&endpoint.local_addrs()).await?,
        hosts => hosts.to_vec(),
    };
    let permissions = Permissions {
        allow: args.allow.clone(),
        max_flows: args.max_flows as usize,
    };
    let mut exit = Exit::new(store, permissions, &name(args.name.as_deref()));
    let mut undo = None;
    if let Some((network, undoing)) = ip::start(args, &keeping).await? {
        exit = exit.with_network(network);
        undo = Some(undoing);
    }
    let exit = Arc::new(exit);
    let server = ServerUrl {
        pin: Some(pin),
        hosts,
        path: String::new(),
    };
    let url = |invitation| JoinUrl {
        server: server.clone(),
        pin,
        invitation: Some(invitation),
    };
    let interrupted = interrupted();
    let control = control("far");
    output::data(url(exit.invite().await.map_err(Failure::failed)?))?;
    if !quiet {
        output::say("this URL lets one machine in, within a week: anabranch tunnel join URL");
        if undo.is_some() {
            output::say(ip::words(args));
        }
    }
    let obey = async |order| obey(&exit, order, &url, reloading.as_ref()).await;
    let ended = tokio::select! {
        () = exit.run(&endpoint) => Ok(()),
        () = answer(control, obey) => Ok(()),
        () = metrics::serve(metrics, || exit.glance()) => Ok(()),
        () = service::attend(&endpoint, || exit.glance()) => Ok(()),
        () = reload::on_signal(reloading.as_ref(), Reloading::compare) => Ok(()),
        () = exit.drained() => Ok(()),
        failure = ip::unguarded(undo.as_mut()) => Err(failure),
        () = interrupted => Ok(()),
    };
    service::stopping();
    endpoint.close(H3_NO_ERROR, b"the far end was stopped");
    let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
    exit.record().await;
    if let Some(undo) = undo {
        ip::stop(undo, keeping.outlives(&ended)).await;
    }
    ended
}

/// Carries out what another command asks for. `url` is that of an invitation.
async fn obey(
    exit: &Arc<Exit>,
    order: Order,
    url: &impl Fn(Secret) -> JoinUrl,
    reloading: Option<&Reloading<'_>>,
) -> Answer {
    match order {
        Order::Status => Answer::Status(Box::new(exit.status().await)),
        Order::Flows { called, most } => {
            Answer::Flows(Box::new(exit.flows(called.as_deref(), most).await))
        }
        Order::Clients => Answer::Clients(exit.clients()),
        Order::Invite => match exit.invite().await {
            Ok(invitation) => Answer::Invitation(url(invitation).to_string()),
            Err(error) => Answer::Refused(error.to_string()),
        },
        Order::Add { name } => match exit.add(&name).await {
            Ok((id, credential)) => Answer::Added(Added {
                id: id.to_string(),
                name,
                credential,
            }),
            Err(error) => Answer::Refused(error.to_string()),
        },
        Order::Revoke { client } => match exit.revoke(&client).await {
            Ok(id) => Answer::Revoked(id.to_string()),
            Err(error) => Answer::Refused(error.to_string()),
        },
        Order::Reload => reload::answer(reloading, Reloading::compare),
        Order::Drain { seconds } => Answer::Draining {
            open: exit.drain(Duration::from_secs(seconds.into())),
        },
    }
}

/// Where clients are waited for, and by which key they know it.
fn endpoint(args: &Serve, names: &Names, directory: &Path) -> Outcome<(Endpoint, Fingerprint)> {
    let settings = EndpointConfig {
        cids: fleet::connection_ids(&args.fleet)?,
        ..EndpointConfig::default()
    };
    let trust = ServerTrust {
        // A certificate comes in the place of the key.
        identity: args.cert.is_none().then(|| directory.to_owned()),
        cert: args.cert.clone(),
        key: args.key.clone(),
        // What is read early could be read again: each request makes a connection somewhere.
        no_early_data: true,
        ..ServerTrust::default()
    };
    let (tls, key) = trust.config(&["localhost"])?;
    let mut transport = sending(&args.tuning, names, anabranch_gateway::far_transport())?;
    let qlog = args.qlog.as_deref();
    transport.observer = qlog.map(qlog::into_directory).transpose()?;
    let mut config = ServerConfig::new(tls);
    config.transport = Arc::new(transport);
    config.max_connections_per_address = FROM_ONE_ADDRESS;
    let secret = key.derive_secret(RESET_LABEL);
    let setup = Setup {
        server: config,
        endpoint: settings,
        workers: args.workers,
    };
    let endpoint = bind(&setup, secret, (&args.listen, PORT))?;
    Ok((endpoint, key.fingerprint()))
}

fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::usage(error).hint("another place for keys and credentials is given with `--state DIR`")
}
