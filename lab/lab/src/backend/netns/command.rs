//! A run by third-party programs, as a contender file describes them.

use super::network::{Net, Refusal};
use super::{Broken, Conduct};
use crate::contender::{Contender, Figures, Process, Program, Terms, scratch};
use crate::results::{Outcome, Status};
use crate::scenario::Scenario;
use std::path::Path;
use std::time::{Duration, Instant};

/// The server's port.
const PORT: u16 = 4500;

/// How often a program is checked.
const LOOK: Duration = Duration::from_millis(20);

/// How long a server may take to print its figures once the client has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// The first thing in a scenario that the program cannot do; `None` if there is none.
pub(super) fn refusal(scenario: &Scenario) -> Option<String> {
    scenario.transport.command.as_ref()?.refusal(scenario)
}

/// Both programs of a run; they end when dropped.
#[derive(Debug)]
pub(super) struct Programs {
    server: Process,
    client: Option<Process>,
    folder: tempfile::TempDir,
}

impl Programs {
    /// Starts the server and waits until it is ready.
    pub(super) fn prepare(net: &Net<'_>, conduct: &Conduct, seed: u64) -> Result<Self, Broken> {
        let contender = contender(net.scenario);
        let folder = scratch().map_err(|error| Refusal::Failed(error.to_string()))?;
        let server = start(net, &contender.server, 1, folder.path(), seed)?;
        let mut programs = Self {
            server,
            client: None,
            folder,
        };
        loop {
            let ready = contender.is_ready(&mut programs.server);
            if ready.map_err(Refusal::Failed)? {
                return Ok(programs);
            }
            if conduct.is_aborted() {
                return Err(Broken::Off);
            }
            std::thread::sleep(LOOK);
        }
    }

    pub(super) fn start(&mut self, net: &Net<'_>, seed: u64) -> Result<(), Refusal> {
        let program = &contender(net.scenario).client;
        self.client = Some(start(net, program, 0, self.folder.path(), seed)?);
        Ok(())
    }

    /// Waits for the client to end and reads how much was transferred.
    pub(super) fn outcome(
        &mut self,
        scenario: &Scenario,
        conduct: &Conduct,
    ) -> Result<Outcome, Broken> {
        let contender = contender(scenario);
        let client = self.client.as_mut().expect("the client was started");
        let status = loop {
            if conduct.is_aborted() {
                return Err(Broken::Off);
            }
            if let Some(status) = client.ended().map_err(Refusal::Failed)? {
                break status;
            }
            if client.began().elapsed() > scenario.stop {
                return Ok(Outcome {
                    status: Status::Timeout,
                    reason: "cut off at the limit of time".to_owned(),
                    ..Outcome::default()
                });
            }
            std::thread::sleep(LOOK);
        };
        let took = client.began().elapsed();
        if !status.success() {
            let words = client.last_words();
            let what = format!("the client of `{}` ended: {status}{words}", contender.name);
            return Err(Refusal::Failed(what).into());
        }
        let figures = self.figures(contender)?;
        Ok(figures.outcome(scenario, took))
    }

    fn figures(&mut self, contender: &Contender) -> Result<Figures, Broken> {
        let client = self.client.as_ref().expect("the client was started");
        let teller = if contender.measure.at_server {
            &self.server
        } else {
            client
        };
        let since = Instant::now();
        loop {
            match contender.measure.figures(&teller.output()) {
                Ok(figures) => return Ok(figures),
                // The client has ended, so its output is complete.
                Err(what) if !contender.measure.at_server || since.elapsed() > LAST_WORDS => {
                    let name = &contender.name;
                    let what = format!("`{name}`: {what}{}", teller.last_words());
                    return Err(Refusal::Failed(what).into());
                }
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }
}

fn contender(scenario: &Scenario) -> &Contender {
    let command = scenario.transport.command.as_ref();
    command.expect("a contender of this kind has its file")
}

/// Starts a program in the namespace of a host; 0 is the client's.
fn start(
    net: &Net<'_>,
    program: &Program,
    node: usize,
    folder: &Path,
    seed: u64,
) -> Result<Process, Refusal> {
    let used = &net.scenario.transport.paths;
    let pairs = used.iter().map(|path| {
        let [client, server] = net.ends(*path);
        (client, server)
    });
    let interface = |path: &usize| {
        let path = &net.scenario.network.paths[*path];
        let link = [path.client_link, path.server_link][node];
        net.layout.interface(link).to_owned()
    };
    let interfaces = used.iter().map(interface).collect();
    let terms = Terms::of(net.scenario, pairs.collect(), interfaces, PORT, seed);
    let whose = ["client", "server"][node];
    let make = |name: &str| net.nodes[node].command(name);
    Process::start(program, &terms, folder, whose, make).map_err(Refusal::Failed)
}
