//! A run carried out by agents at both ends, from the request to get ready until both have
//! reported.

use super::refusal::{Broken, Refusal};
use crate::hosts::{Answer, Ask, Host, HostError, HostReport, Job, Ready};
use std::time::{Duration, Instant};

/// How long an agent may take to get ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How long to wait for each agent's next line before turning to the other one.
const LISTEN: Duration = Duration::from_millis(20);

/// How long the second agent may run on after the first has ended.
const SECOND: Duration = Duration::from_secs(10);

/// How long agents may run past the scenario's limit before they are told to stop, and how long
/// they then have to do so.
const GRACE: Duration = Duration::from_secs(10);

/// The agents of a run, the client's first.
#[derive(Debug)]
pub(super) struct Agents {
    hosts: [Box<dyn Host>; 2],
}

impl Agents {
    pub(super) fn new(client: Box<dyn Host>, server: Box<dyn Host>) -> Self {
        Self {
            hosts: [client, server],
        }
    }

    /// Gets both agents ready, the server first, and returns where the server can be reached.
    pub(super) fn prepare(&mut self, client: Job, server: Job) -> Result<Ready, Refusal> {
        let told = ready(self.hosts[1].as_mut(), server)?;
        ready(self.hosts[0].as_mut(), client)?;
        Ok(told)
    }

    /// Starts both agents.
    pub(super) fn start(&mut self, told: Ready) -> Result<(), Refusal> {
        let [client, server] = &mut self.hosts;
        server.ask(Ask::Start(None))?;
        Ok(client.ask(Ask::Start(Some(told)))?)
    }

    /// Gives back the agents once a run is over, the client's first.
    pub(super) fn into_hosts(self) -> [Box<dyn Host>; 2] {
        self.hosts
    }

    /// Waits for both reports, the client's first.
    pub(super) fn reports(
        &mut self,
        is_aborted: &dyn Fn() -> bool,
        stop: Duration,
    ) -> Result<[HostReport; 2], Broken> {
        let begin = Instant::now();
        let mut reports: [Option<HostReport>; 2] = [None, None];
        let mut first_ended: Option<Instant> = None;
        let mut told_to_stop: Option<Instant> = None;
        loop {
            if is_aborted() {
                return Err(Broken::Off);
            }
            for (host, report) in self.hosts.iter_mut().zip(&mut reports) {
                if report.is_none() {
                    *report = listen(host.as_mut())?;
                }
            }
            if reports.iter().any(Option::is_some) {
                first_ended.get_or_insert_with(Instant::now);
            }
            reports = match reports {
                [Some(client), Some(server)] => return Ok([client, server]),
                other => other,
            };
            let overdue = begin.elapsed() > stop + GRACE
                || first_ended.is_some_and(|ended| ended.elapsed() > SECOND);
            if overdue && told_to_stop.is_none() {
                told_to_stop = Some(Instant::now());
                for (host, report) in self.hosts.iter_mut().zip(&reports) {
                    if report.is_none() {
                        host.ask(Ask::Stop)?;
                    }
                }
            }
            if told_to_stop.is_some_and(|told| told.elapsed() > GRACE) {
                let silent = self.hosts.iter().zip(&reports);
                let silent = silent.filter(|(_, report)| report.is_none());
                let names: Vec<&str> = silent.map(|(host, _)| host.name()).collect();
                let what = format!("{} did not end when told to", names.join(" and "));
                return Err(Refusal::Failed(what).into());
            }
        }
    }
}

fn ready(host: &mut dyn Host, job: Job) -> Result<Ready, Refusal> {
    host.ask(Ask::Prepare(Box::new(job)))?;
    match host.answer(READY_WITHIN)? {
        Answer::Ready(told) => Ok(told),
        Answer::Failed(why) => Err(Refusal::of_agent(host.name(), &why)),
        other => {
            let what = format!("{}: not ready, but {other:?}", host.name());
            Err(Refusal::Failed(what))
        }
    }
}

fn listen(host: &mut dyn Host) -> Result<Option<HostReport>, Broken> {
    match host.answer(LISTEN) {
        Ok(Answer::Done(report)) => Ok(Some(*report)),
        Ok(Answer::Failed(why)) => Err(Refusal::of_agent(host.name(), &why).into()),
        Ok(Answer::Machine(_) | Answer::Ready(_) | Answer::Progress(_))
        | Err(HostError::Silent { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
