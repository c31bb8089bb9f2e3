//! A run by programs that a contender file describes.

use super::network::{Net, Refusal};
use super::{Broken, Netns};
use crate::contender::{Contender, Figures, PathUse, Place, Program};
use crate::results::{Outcome, Status};
use crate::scenario::{Flow, FlowKind, Scenario, Way};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server's port.
const PORT: u16 = 4500;

/// How often a program is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long a server may take to tell its figures once the client has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How much of what a program said last is told.
const TAIL: usize = 400;

/// The folder both programs see, within that of the run.
const SHARED: &str = "shared";

/// The most of a program's output that is read.
const MOST_OUTPUT: u64 = 64 << 20;

/// What of a scenario the program cannot do; `None` if it can do all.
pub(super) fn refusal(scenario: &Scenario) -> Option<String> {
    let contender = scenario.transport.command.as_ref()?;
    let [flow] = scenario.flows.as_slice() else {
        return Some("programs carry one flow".to_owned());
    };
    if contender.paths == PathUse::One && scenario.transport.paths.len() > 1 {
        let what = format!(
            "`{}` uses one path: give it one by `paths`, or say paths = \"all\" in its file",
            contender.name
        );
        return Some(what);
    }
    let [time, bytes] = contender.amounts;
    let amount = match flow.kind {
        FlowKind::BulkTime(_) => time,
        FlowKind::BulkBytes(_) => bytes,
        _ => return Some("programs carry bulk flows only".to_owned()),
    };
    if !amount || !contender.ways[usize::from(flow.way == Way::Backward)] {
        let what = format!(
            "`{}` cannot do this: see its contender file",
            contender.name
        );
        return Some(what);
    }
    let started_late = flow.start.to > Duration::ZERO || flow.warm_up > Duration::ZERO;
    started_late.then(|| "programs begin at once and are not warmed up".to_owned())
}

/// Both programs of a run; they end when dropped.
#[derive(Debug)]
pub(super) struct Programs {
    server: Running,
    client: Option<Running>,
    folder: tempfile::TempDir,
}

#[derive(Debug)]
struct Running {
    name: String,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
    began: Instant,
}

impl Programs {
    /// Starts the server and waits until it is ready.
    pub(super) fn prepare(net: &Net<'_>, netns: &Netns, seed: u64) -> Result<Self, Broken> {
        let contender = contender(net.scenario);
        let folder = tempfile::Builder::new().prefix("anabranch-lab-").tempdir();
        let folder = folder.map_err(|error| Refusal::Failed(error.to_string()))?;
        let shared = fs::create_dir(folder.path().join(SHARED));
        shared.map_err(|error| Refusal::Failed(error.to_string()))?;
        let server = start(net, &contender.server, 1, folder.path(), seed)?;
        let mut programs = Self {
            server,
            client: None,
            folder,
        };
        let Some(ready) = &contender.ready else {
            return Ok(programs);
        };
        while !programs.server.said(ready) {
            if netns.is_aborted() {
                return Err(Broken::Off);
            }
            if let Some(status) = programs.server.ended()? {
                let words = programs.server.last_words();
                let what = format!("the server of `{}` ended: {status}{words}", contender.name);
                return Err(Refusal::Failed(what).into());
            }
            if programs.server.began.elapsed() > contender.ready_within {
                let what = format!(
                    "the server of `{}` did not say `{ready}` within {:?}{}",
                    contender.name,
                    contender.ready_within,
                    programs.server.last_words()
                );
                return Err(Refusal::Failed(what).into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(programs)
    }

    pub(super) fn start(&mut self, net: &Net<'_>, seed: u64) -> Result<(), Refusal> {
        let program = &contender(net.scenario).client;
        self.client = Some(start(net, program, 0, self.folder.path(), seed)?);
        Ok(())
    }

    /// Waits for the client's end and reads what was moved.
    pub(super) fn outcome(
        &mut self,
        scenario: &Scenario,
        netns: &Netns,
    ) -> Result<Outcome, Broken> {
        let contender = contender(scenario);
        let client = self.client.as_mut().expect("the client was started");
        let status = loop {
            if netns.is_aborted() {
                return Err(Broken::Off);
            }
            if let Some(status) = client.ended()? {
                break status;
            }
            if client.began.elapsed() > scenario.stop {
                return Ok(Outcome {
                    status: Status::Timeout,
                    reason: "cut off at the limit of time".to_owned(),
                    ..Outcome::default()
                });
            }
            std::thread::sleep(LOOK);
        };
        let took = client.began.elapsed();
        if !status.success() {
            let words = client.last_words();
            let what = format!("the client of `{}` ended: {status}{words}", contender.name);
            return Err(Refusal::Failed(what).into());
        }
        let figures = self.figures(contender)?;
        Ok(result(scenario, figures, took))
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
                // The client has ended: its output is whole.
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

fn result(scenario: &Scenario, figures: Figures, took: Duration) -> Outcome {
    let seconds = figures.seconds.unwrap_or(took.as_secs_f64());
    let wanted = match scenario.flows[0].kind {
        FlowKind::BulkBytes(bytes) => Some(bytes),
        _ => None,
    };
    let short = wanted.filter(|wanted| figures.bytes < *wanted);
    Outcome {
        status: match short {
            Some(_) => Status::Failed,
            None => Status::Ok,
        },
        reason: short.map_or_else(String::new, |wanted| {
            format!("it moved {} bytes of {wanted}", figures.bytes)
        }),
        bytes: figures.bytes,
        completion_s: wanted.map(|_| seconds),
        goodput_bps: (seconds > 0.0).then(|| figures.bytes as f64 * 8.0 / seconds),
        ..Outcome::default()
    }
}

fn start(
    net: &Net<'_>,
    program: &Program,
    node: usize,
    folder: &Path,
    seed: u64,
) -> Result<Running, Refusal> {
    let fill = |place: Place| filled(net, place, node, folder, seed);
    let mut words = program.command.iter().map(|word| word.filled(&fill));
    let name = words.next().expect("a command has a program");
    let mut command: Command = net.nodes[node].command(&name);
    command.args(words);
    for (key, value) in &program.env {
        command.env(key, value.filled(&fill));
    }
    let whose = ["client", "server"][node];
    let (output, errors) = (
        folder.join(format!("{whose}.out")),
        folder.join(format!("{whose}.err")),
    );
    let failed = |error: io::Error| Refusal::Failed(format!("cannot start `{name}`: {error}"));
    command
        // Ctrl-C is for the laboratory, which lets a run end first.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(File::create(&output).map_err(failed)?)
        .stderr(File::create(&errors).map_err(failed)?);
    let child = command.spawn().map_err(failed)?;
    Ok(Running {
        name,
        child,
        output,
        errors,
        began: Instant::now(),
    })
}

fn filled(net: &Net<'_>, place: Place, node: usize, folder: &Path, seed: u64) -> String {
    let used = &net.scenario.transport.paths;
    let flow: &Flow = &net.scenario.flows[0];
    let list = |end: usize| {
        let all: Vec<String> = used
            .iter()
            .map(|path| net.ends(*path)[end].to_string())
            .collect();
        all.join(",")
    };
    let interface = |path: &usize| {
        let path = &net.scenario.network.paths[*path];
        let link = [path.client_link, path.server_link][node];
        net.layout.interface(link).to_owned()
    };
    match place {
        Place::Server => net.ends(used[0])[1].to_string(),
        Place::Client => net.ends(used[0])[0].to_string(),
        Place::Servers => list(1),
        Place::Clients => list(0),
        Place::Pairs => {
            let pair = |path: &usize| {
                let [client, server] = net.ends(*path);
                format!("{client}={server}")
            };
            used.iter().map(pair).collect::<Vec<_>>().join(",")
        }
        Place::Interfaces => used.iter().map(interface).collect::<Vec<_>>().join(","),
        Place::Port => PORT.to_string(),
        Place::Bytes => match flow.kind {
            FlowKind::BulkBytes(bytes) => bytes.to_string(),
            _ => "0".to_owned(),
        },
        Place::Seconds => match flow.kind {
            FlowKind::BulkTime(time) => time.as_secs_f64().to_string(),
            _ => "0".to_owned(),
        },
        Place::Direction => match flow.way {
            Way::Forward => "upload".to_owned(),
            Way::Backward => "download".to_owned(),
        },
        Place::Seed => seed.to_string(),
        Place::Folder => folder.join(SHARED).display().to_string(),
    }
}

impl Running {
    fn ended(&mut self) -> Result<Option<std::process::ExitStatus>, Refusal> {
        let failed = |error: io::Error| Refusal::Failed(format!("`{}`: {error}", self.name));
        self.child.try_wait().map_err(failed)
    }

    fn output(&self) -> String {
        read(&self.output)
    }

    fn said(&self, text: &str) -> bool {
        let has = |file: &Path| read(file).lines().any(|line| line.contains(text));
        has(&self.output) || has(&self.errors)
    }

    /// What it said last, to be put after a message.
    fn last_words(&self) -> String {
        let (errors, output) = (read(&self.errors), self.output());
        let words = [errors.trim(), output.trim()]
            .into_iter()
            .find(|words| !words.is_empty());
        let Some(words) = words else {
            return "; it said nothing".to_owned();
        };
        let skipped = words.chars().count().saturating_sub(TAIL);
        let tail: String = words.chars().skip(skipped).collect();
        format!("; it said: {}", tail.replace('\n', " | "))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(file: &Path) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    // What cannot be read was not said.
    let _ = File::open(file).and_then(|file| file.take(MOST_OUTPUT).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
