//! `anabranch lab agent`: one end of each run, for the lab that started it or for labs on other
//! machines.

use crate::args::lab::Agent;
use crate::commands::{interrupted, serve};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::trust::own_identity;
use crate::url::Host;
use anabranch_agent::{Listen, ListenError, Service};
use anabranch_lab::contender::Contender;
use anabranch_net::engine::tls::Fingerprint;
use anabranch_schedulers::Names;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;

/// Runs the command. Must not be called within a runtime: an agent has its own, on one thread.
pub(crate) fn run(args: &Agent, names: &Arc<Names>, quiet: bool) -> Outcome {
    if let Some(address) = args.listen {
        return listen(args, address, names, quiet);
    }
    if let Some(relay) = &args.relay {
        let relayed = anabranch_agent::relay(relay);
        return relayed.map_err(|error| Failure::io("the relay", &error));
    }
    let served = anabranch_agent::serve_stdio(Arc::clone(names));
    served.map_err(|error| Failure::io("the agent's input or output broke", &error))
}

fn listen(args: &Agent, address: SocketAddr, names: &Arc<Names>, quiet: bool) -> Outcome {
    let identity = own_identity(args.identity.as_deref())?;
    let programs = args.contender.iter().map(|file| Contender::load(file));
    let programs = programs.collect::<Result<Vec<_>, _>>();
    let service = Service::bind(&Listen {
        address,
        identity,
        trusted: args.trust.clone(),
        qlog: args.qlog.clone(),
        ports: args.ports.as_ref().map(|ports| ports.0.clone()),
        names: Arc::clone(names),
        programs: programs.map_err(Failure::usage)?,
    });
    let service = service.map_err(|error| {
        let hint = match &error {
            ListenError::Nobody => "`anabranch lab key` on the other machine prints its key",
            ListenError::Key(_) => "choose another directory with `--identity DIR`",
            ListenError::Bind(_) => {
                "`--listen` takes an address of this machine and a free port, as :4433"
            }
        };
        Failure::usage(format!("cannot listen: {error}")).hint(hint)
    })?;
    let (stop, key, bound) = (service.stopper(), service.key(), service.address());
    let serving = thread::spawn(move || service.run());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::io("cannot start", &error))?;
    let told = runtime.block_on(async {
        tell(key, bound, quiet).await?;
        interrupted().await;
        Ok(())
    });
    stop.stop();
    let ended = serving.join();
    told.and(ended.map_err(|_| Failure::failed("the agent broke down: this is a mistake in it")))
}

/// Prints the argument for `--peer`, once for each address at which this machine may be reached.
async fn tell(key: Fingerprint, bound: SocketAddr, quiet: bool) -> Outcome {
    let mut hosts = serve::reachable(&[bound]).await?;
    // Loopback addresses are kept only if there are no others: an agent may listen on one for
    // trials.
    let is_loopback = |host: &Host| {
        let ip = host.name.parse::<IpAddr>();
        ip.is_ok_and(|ip| ip.is_loopback())
    };
    if !hosts.iter().all(is_loopback) {
        hosts.retain(|host| !is_loopback(host));
    }
    for host in hosts {
        output::data(format!("{key}@{host}"))?;
    }
    if !quiet {
        output::say(
            "waiting for laboratories; give one of these lines to `lab run --backend host --peer`, \
             end with Ctrl-C",
        );
    }
    Ok(())
}
