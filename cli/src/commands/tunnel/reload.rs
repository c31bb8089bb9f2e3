//! Settings of a node that change while it runs, because its configuration did.

use super::file::{Configuration, Faults};
use crate::output;
use anabranch_gateway::control::Answer;
use anabranch_schedulers::Names;
use tokio::signal::unix::{SignalKind, signal};

/// By what a node runs, and what it needs to read that again.
pub(super) struct Reloading<'a> {
    pub(super) configuration: &'a Configuration,
    pub(super) names: &'a Names,
}

/// What reading it again came to, in the names of keys.
#[derive(Debug, Default)]
pub(super) struct Reloaded {
    /// What holds now.
    pub(super) applied: Vec<String>,
    /// What holds once the node is started again.
    pub(super) restart: Vec<String>,
}

impl Reloading<'_> {
    /// The configuration as it is now, and what of it needs a restart.
    pub(super) fn read(&self) -> Result<(Configuration, Reloaded), Faults> {
        let new = Configuration::read(&self.configuration.file, self.names)?;
        let reloaded = Reloaded {
            applied: Vec::new(),
            restart: self.configuration.differences(&new),
        };
        Ok((new, reloaded))
    }

    /// For a node of which nothing changes while it runs.
    pub(super) fn compare(&self) -> Result<Reloaded, Faults> {
        self.read().map(|(_, reloaded)| reloaded)
    }
}

/// Reads it again for somebody who asks for that.
pub(super) fn answer<R>(
    reloading: Option<&R>,
    reload: impl FnOnce(&R) -> Result<Reloaded, Faults>,
) -> Answer {
    let Some(reloading) = reloading else {
        let words = "a node that was started by options has no configuration to read again: \
                     `anabranch tunnel up FILE` runs by one";
        return Answer::Refused(words.into());
    };
    match reload(reloading) {
        Ok(Reloaded { applied, restart }) => Answer::Reloaded { applied, restart },
        Err(faults) => Answer::Refused(faults.lines().join("\nerror: ")),
    }
}

/// Reads it again whenever the process is told to; for ever. Without a configuration the signal
/// ends the process, as it does any other.
pub(super) async fn on_signal<R>(
    reloading: Option<&R>,
    reload: impl Fn(&R) -> Result<Reloaded, Faults>,
) {
    let heard = reloading.map(|reloading| (reloading, signal(SignalKind::hangup())));
    let Some((reloading, Ok(mut hangup))) = heard else {
        return std::future::pending().await;
    };
    while hangup.recv().await.is_some() {
        match reload(reloading) {
            Ok(Reloaded { applied, restart }) => {
                for line in words(&applied, &restart) {
                    output::say(line);
                }
            }
            Err(faults) => {
                for line in faults.lines() {
                    output::say(format!("error: {line}"));
                }
                output::say("nothing was changed");
            }
        }
    }
}

/// What came of it, for a person.
pub(super) fn words(applied: &[String], restart: &[String]) -> Vec<String> {
    if applied.is_empty() && restart.is_empty() {
        return vec!["nothing has changed".into()];
    }
    let mut lines = Vec::new();
    if !applied.is_empty() {
        lines.push(format!("changed: {}", applied.join(", ")));
    }
    if !restart.is_empty() {
        lines.push(format!("holds after a restart: {}", restart.join(", ")));
    }
    lines
}
