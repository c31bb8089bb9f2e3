//! A third-party program as the server of a run, if the agent was started with it.

use anabranch_lab::contender::{Contender, Figures, Process, Terms, scratch};
use anabranch_lab::hosts::{Answer, HostReport, Ready};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// How often the program is checked.
const LOOK: Duration = Duration::from_millis(20);

/// How long it may take to print its figures once the client has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Starts the program, reports when it is ready, and ends it when told to. Then it reports the
/// program's figures, if they are read here.
pub(crate) async fn run(
    contender: Contender,
    terms: Terms,
    stop: oneshot::Receiver<()>,
    answers: mpsc::UnboundedSender<Answer>,
) {
    let answer = match carry(&contender, &terms, stop, &answers).await {
        Ok(report) => Answer::Done(Box::new(report)),
        Err(why) => Answer::Failed(why),
    };
    // Fails only if the laboratory is gone.
    let _ = answers.send(answer);
}

async fn carry(
    contender: &Contender,
    terms: &Terms,
    mut stop: oneshot::Receiver<()>,
    answers: &mpsc::UnboundedSender<Answer>,
) -> Result<HostReport, String> {
    let folder = scratch().map_err(|error| format!("no folder for a program: {error}"))?;
    let make = |name: &str| Command::new(name);
    let mut server = Process::start(&contender.server, terms, folder.path(), "server", make)?;
    while !contender.is_ready(&mut server)? {
        tokio::select! {
            _ = &mut stop => return Ok(HostReport::default()),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    let listens = terms
        .pairs
        .iter()
        .map(|(_, server)| SocketAddr::new(*server, terms.port));
    let ready = Ready {
        listens: listens.collect(),
        key: None,
    };
    let _ = answers.send(Answer::Ready(ready));
    loop {
        tokio::select! {
            _ = &mut stop => break,
            () = tokio::time::sleep(LOOK) => {}
        }
        match server.ended()? {
            // Some servers end with their client.
            Some(status) if !status.success() => {
                let (name, words) = (&contender.name, server.last_words());
                return Err(format!("the server of `{name}` ended: {status}{words}"));
            }
            _ => {}
        }
    }
    let mut report = HostReport::default();
    if contender.measure.at_server {
        let figures = figures(contender, &server).await?;
        report.received_bytes = figures.bytes;
        report.last_byte_s = figures.seconds;
    }
    Ok(report)
}

async fn figures(contender: &Contender, server: &Process) -> Result<Figures, String> {
    let since = Instant::now();
    loop {
        match contender.measure.figures(&server.output()) {
            Ok(figures) => return Ok(figures),
            Err(what) if since.elapsed() > LAST_WORDS => {
                let (name, words) = (&contender.name, server.last_words());
                return Err(format!("`{name}`: {what}{words}"));
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}
