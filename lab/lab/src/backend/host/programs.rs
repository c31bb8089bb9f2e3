//! A run by third-party programs. The client is started here, the server by the peer's agent, if
//! that was given the same contender file.

use super::{Broken, RealHosts, Refusal, Road};
use crate::contender::{Contender, Figures, Place, Process, Terms, scratch};
use crate::hosts::{Answer, Ask, Host, HostError, Serving};
use crate::plan::Run;
use crate::results::{Outcome, Status};
use crate::scenario::Scenario;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often both programs are checked.
const LOOK: Duration = Duration::from_millis(20);

/// How long an agent may take to start or end a program, beyond the time the program itself takes.
const PATIENCE: Duration = Duration::from_secs(15);

/// The first thing in a scenario that its program cannot do between two machines; `None` if there
/// is none.
pub(super) fn refusal(scenario: &Scenario) -> Option<String> {
    let contender = scenario.transport.command.as_ref()?;
    let shares = [&contender.server, &contender.client]
        .iter()
        .any(|program| program.has(Place::Folder));
    if shares {
        let what = format!(
            "`{}` exchanges files in {{folder}}, which two machines do not share",
            contender.name
        );
        return Some(what);
    }
    contender.refusal(scenario)
}

/// Carries a run out.
pub(super) fn carry_out(hosts: &RealHosts, run: &Run) -> Result<Outcome, Broken> {
    let scenario = &*run.scenario;
    let contender = scenario.transport.command.as_deref();
    let contender = contender.expect("a contender of this kind has its file");
    let roads = hosts.used(scenario)?;
    let pairs: Vec<(IpAddr, IpAddr)> = roads.iter().map(|road| (road.local, road.remote)).collect();
    let mut terms = Terms::of(scenario, pairs, Vec::new(), 0, run.seed);
    let mut far = hosts.call()?;
    let serving = Serving {
        contender: contender.name.clone(),
        terms: terms.clone(),
    };
    terms.port = match begin(far.as_mut(), serving, contender.ready_within + PATIENCE) {
        Ok(port) => port,
        Err(refusal @ Refusal::Unsupported(_)) => {
            hosts.keep(far);
            return Err(refusal.into());
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let name = |road: &&Road| road.interface.clone();
    terms.interfaces = roads.iter().map(name).collect();
    let outcome = client(hosts, scenario, contender, &terms, far.as_mut())?;
    hosts.keep(far);
    Ok(outcome)
}

/// Has the peer start its program, and returns the port it listens on.
fn begin(far: &mut dyn Host, serving: Serving, within: Duration) -> Result<u16, Refusal> {
    far.ask(Ask::Serve(Box::new(serving)))?;
    match far.answer(within)? {
        Answer::Ready(ready) if !ready.listens.is_empty() => Ok(ready.listens[0].port()),
        Answer::Failed(why) => Err(Refusal::of_agent(far.name(), &why)),
        other => {
            let what = format!("{}: not ready, but {other:?}", far.name());
            Err(Refusal::Failed(what))
        }
    }
}

fn client(
    hosts: &RealHosts,
    scenario: &Scenario,
    contender: &Contender,
    terms: &Terms,
    far: &mut dyn Host,
) -> Result<Outcome, Broken> {
    let folder = scratch().map_err(|error| Refusal::Failed(error.to_string()))?;
    let make = |name: &str| Command::new(name);
    let started = Process::start(&contender.client, terms, folder.path(), "client", make);
    let mut client = started.map_err(Refusal::Failed)?;
    let status = loop {
        if hosts.conduct.is_aborted() {
            return Err(Broken::Off);
        }
        if let Some(status) = client.ended().map_err(Refusal::Failed)? {
            break Some(status);
        }
        if client.began().elapsed() > scenario.stop {
            break None;
        }
        match far.answer(LOOK) {
            Ok(Answer::Failed(why)) => return Err(Refusal::of_agent(far.name(), &why).into()),
            Ok(_) | Err(HostError::Silent { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let took = client.began().elapsed();
    let told = end(far);
    let Some(status) = status else {
        told?;
        return Ok(Outcome {
            status: Status::Timeout,
            reason: "cut off at the limit of time".to_owned(),
            ..Outcome::default()
        });
    };
    if !status.success() {
        let (name, words) = (&contender.name, client.last_words());
        let what = format!("the client of `{name}` ended: {status}{words}");
        return Err(Refusal::Failed(what).into());
    }
    let at_server = told?;
    let figures = if contender.measure.at_server {
        at_server
    } else {
        let figures = contender.measure.figures(&client.output());
        figures.map_err(|what| {
            let (name, words) = (&contender.name, client.last_words());
            Refusal::Failed(format!("`{name}`: {what}{words}"))
        })?
    };
    Ok(figures.outcome(scenario, took))
}

/// Ends the peer's program and returns its figures, if its output is read.
fn end(far: &mut dyn Host) -> Result<Figures, Refusal> {
    far.ask(Ask::Stop)?;
    let since = Instant::now();
    loop {
        match far.answer(PATIENCE.saturating_sub(since.elapsed()))? {
            Answer::Done(report) => {
                return Ok(Figures {
                    bytes: report.received_bytes,
                    seconds: report.last_byte_s,
                });
            }
            Answer::Failed(why) => return Err(Refusal::of_agent(far.name(), &why)),
            _ => {}
        }
    }
}
