//! Questions to nodes that run, and `anabranch tunnel status`, `clients` and `invite`.

use super::{reload, show};
use crate::args::tunnel::{self as args, Clients, ClientsDo, Drain, Node};
use crate::commands::interrupted;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::trust::state_directory;
use anabranch_gateway::control::{self, Answer, Order};
use anabranch_gateway::status::Status;
use futures_util::future::join_all;
use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Where nodes of this user have their sockets.
pub(super) fn directory() -> Outcome<PathBuf> {
    // The first is what systemd gives a service, the second what it gives a user.
    let named = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"];
    let runtime = named.into_iter().find_map(std::env::var_os);
    let runtime = runtime.as_deref().and_then(first_directory);
    let directory = runtime.map(|runtime| runtime.join("anabranch"));
    let directory = directory.or_else(|| Some(state_directory()?.join("run")));
    directory.ok_or_else(|| {
        let failure = Failure::usage("there is no directory for control sockets");
        failure.hint("set XDG_RUNTIME_DIR, or HOME")
    })
}

/// The first directory of those that a service may have, with `:` between them.
fn first_directory(list: &OsStr) -> Option<PathBuf> {
    let first = std::env::split_paths(list).next();
    first.filter(|path| path.is_absolute())
}

/// Shows what all nodes do, once or until interrupted.
pub(super) async fn status(args: &args::Status) -> Outcome {
    let watching = async {
        loop {
            tell(args).await?;
            if !args.watch {
                return Ok(());
            }
        }
    };
    tokio::select! {
        ended = watching => ended,
        () = interrupted() => Ok(()),
    }
}

/// What all nodes do.
pub(crate) async fn statuses(node: &Node) -> Outcome<Vec<Status>> {
    let answers = ask_all(node, &Order::Status).await?;
    if answers.is_empty() {
        return Err(nobody("no end of a tunnel runs here"));
    }
    let statuses = answers.into_iter().map(|answer| match answer {
        Answer::Status(status) => Ok(*status),
        other => Err(unexpected(other)),
    });
    statuses.collect()
}

async fn tell(args: &args::Status) -> Outcome {
    let statuses = statuses(&args.node).await?;
    if args.json {
        return statuses.iter().try_for_each(output::json);
    }
    let screens: Vec<String> = statuses.iter().map(show::screen).collect();
    let is_screen = args.watch && std::io::stdout().is_terminal();
    let clear = if is_screen { CLEAR } else { "" };
    output::data(format!("{clear}{}", screens.join("\n\n")))
}

/// Lists clients, lets one in, or lets one in no more.
pub(super) async fn clients(args: &Clients) -> Outcome {
    let order = match &args.what {
        Some(ClientsDo::Add { name }) => Order::Add { name: name.clone() },
        Some(ClientsDo::Revoke { client }) => Order::Revoke {
            client: client.clone(),
        },
        Some(ClientsDo::List) | None => Order::Clients,
    };
    match ask_far_end(&args.node, &order).await? {
        Answer::Clients(clients) if args.json => output::json(&clients),
        Answer::Clients(clients) if clients.is_empty() => {
            output::say("nobody was let in so far");
            Ok(())
        }
        Answer::Clients(clients) => output::data(show::clients(&clients)),
        Answer::Added(added) if args.json => output::json(&added),
        Answer::Added(added) => {
            output::data(added.credential.as_str())?;
            output::say(format!(
                "{} is let in as {} with this credential, which is shown this once: a client \
                 sends `authorization: Bearer CREDENTIAL`",
                added.id, added.name
            ));
            Ok(())
        }
        Answer::Revoked(id) => {
            output::say(format!("{id} is let in no more"));
            Ok(())
        }
        other => Err(unexpected(other)),
    }
}

/// Prints a URL that lets one more machine in.
pub(super) async fn invite(node: &Node) -> Outcome {
    match ask_far_end(node, &Order::Invite).await? {
        Answer::Invitation(url) => output::data(url),
        other => Err(unexpected(other)),
    }
}

/// Lets the far end leave.
pub(super) async fn drain(args: &Drain) -> Outcome {
    let seconds = args.seconds;
    match ask_far_end(&args.node, &Order::Drain { seconds }).await? {
        Answer::Draining { open } => {
            output::say(format!(
                "its clients are told; it ends with the last of {open} open flows, after \
                 {seconds} s at the latest"
            ));
            Ok(())
        }
        other => Err(unexpected(other)),
    }
}

/// Makes nodes that run by a configuration read it again.
pub(super) async fn reload(node: &Node) -> Outcome {
    let answers = ask_all(node, &Order::Reload).await?;
    let (mut refusal, mut is_done) = (None, false);
    for answer in answers {
        match answer {
            Answer::Reloaded { applied, restart } => {
                is_done = true;
                for line in reload::words(&applied, &restart) {
                    output::say(line);
                }
            }
            other => refusal = Some(unexpected(other)),
        }
    }
    match refusal {
        Some(failure) if !is_done => Err(failure),
        Some(failure) => {
            failure.tell_of("not reloaded");
            Ok(())
        }
        None if is_done => Ok(()),
        None => Err(nobody("no end of a tunnel runs here")),
    }
}

async fn ask_far_end(node: &Node, order: &Order) -> Outcome<Answer> {
    let mut nodes = nodes(node)?;
    // Near ends cannot be asked this.
    nodes.retain(|one| node.control.is_some() || is_far(one.path()));
    match nodes.as_slice() {
        [one] => ask(one, order)
            .await?
            .ok_or_else(|| nobody("no far end runs here")),
        [] => Err(nobody("no far end runs here")),
        several => {
            let names: Vec<String> = several
                .iter()
                .map(|it| it.path().display().to_string())
                .collect();
            let failure = Failure::usage("several far ends run here");
            Err(failure.hint(format!("name one with `--control`: {}", names.join(", "))))
        }
    }
}

fn is_far(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("tunnel-far-"))
}

pub(super) async fn ask_all(node: &Node, order: &Order) -> Outcome<Vec<Answer>> {
    let nodes = nodes(node)?;
    // At the same time: each measures for a second, and they are compared.
    let answers = join_all(nodes.iter().map(|node| ask(node, order))).await;
    let answers: Outcome<Vec<Option<Answer>>> = answers.into_iter().collect();
    Ok(answers?.into_iter().flatten().collect())
}

fn nodes(node: &Node) -> Outcome<Vec<control::Node>> {
    match &node.control {
        Some(path) => Ok(vec![control::Node::named(path.clone())]),
        None => Ok(control::nodes(&directory()?)),
    }
}

async fn ask(node: &control::Node, order: &Order) -> Outcome<Option<Answer>> {
    let answered = node.ask(order).await;
    answered.map_err(|error| Failure::io(node.path().display(), &error))
}

pub(super) fn nobody(words: &str) -> Failure {
    Failure::failed(words).hint(
        "`anabranch tunnel serve` and `join` are found by the user that started them, with the \
         same XDG_RUNTIME_DIR; others by `--control SOCKET`",
    )
}

pub(super) fn unexpected(answer: Answer) -> Failure {
    match answer {
        Answer::Refused(words) => Failure::failed(words),
        other => Failure::failed(format!("the node answered something else: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_directories_of_a_service_the_first_is_used() {
        let first = |list: &str| first_directory(OsStr::new(list));
        assert_eq!(first("/run/a:/run/b"), Some("/run/a".into()));
        assert_eq!(first("/run/a"), Some("/run/a".into()));
        assert_eq!((first(""), first("run/a")), (None, None));
    }
}
