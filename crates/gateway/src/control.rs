//! How a running node is asked and told: lines of JSON on a Unix socket that its user alone may
//! open. One order and one answer a connection.

use crate::identity::Secret;
use crate::status::flow::Flows;
use crate::status::{Client, Status};
use anabranch_net::identity::private_directory;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

/// The longest line, in bytes: a far end with many clients shows much.
const MAX_LINE: u64 = 64 << 20;
/// How long a line may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions that are answered at a time; others wait.
const AT_A_TIME: usize = 16;
/// Time before the next question is taken where the system has no more descriptors.
const EXHAUSTED: Duration = Duration::from_millis(100);
/// How the names of sockets end.
const EXTENSION: &str = "sock";

/// What a node is asked or told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Order {
    /// Show what the node does.
    Status,
    /// Show its flows.
    Flows {
        /// Only flows of this number, target or source; without it, the biggest ones.
        called: Option<String>,
        /// The most flows to show.
        most: usize,
    },
    /// List the clients that were let in.
    Clients,
    /// Invite one more client.
    Invite,
    /// Let in a client that cannot use an invitation.
    Add {
        /// How it is to be called.
        name: String,
    },
    /// Read the configuration again.
    Reload,
    /// Tell clients to connect anew, and end with the last flow.
    Drain {
        /// How long flows may go on.
        seconds: u32,
    },
    /// Revoke a client.
    Revoke {
        /// Its number or name.
        client: String,
    },
}

/// What a node answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What the node does.
    Status(Box<Status>),
    /// Its flows.
    Flows(Box<Flows>),
    /// The clients that were let in.
    Clients(Vec<Client>),
    /// A URL that lets one machine in.
    Invitation(String),
    /// The client that was added.
    Added(Added),
    /// The node is draining: its clients were told that it leaves.
    Draining {
        /// How many flows are open.
        open: usize,
    },
    /// The number of the client that was revoked.
    Revoked(String),
    /// What reading its configuration again came to, in the names of its keys.
    Reloaded {
        /// What holds now.
        applied: Vec<String>,
        /// What holds once it is started again.
        restart: Vec<String>,
    },
    /// Why the order was not carried out.
    Refused(String),
}

/// A client that was added.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Added {
    /// The client's number.
    pub id: String,
    /// The client's name.
    pub name: String,
    /// The credential that the client shows. It is told this once.
    pub credential: Secret,
}

/// A node's socket. Its file goes with it.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// A socket in a directory, named after what the node is; others may be there.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub fn bind(directory: &Path, node: &str) -> io::Result<Self> {
        private_directory(directory)?;
        let name = format!("tunnel-{node}-{}", process::id());
        // The socket gets its name once it answers: one that does not answer is taken for a
        // leftover.
        let new = directory.join(format!("{name}.new"));
        // An earlier process with the same number may have left it.
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        let path = directory.join(format!("{name}.{EXTENSION}"));
        fs::rename(&new, &path)?;
        Ok(Self { listener, path })
    }

    /// Answers for as long as it is polled, several at a time.
    pub async fn serve(&self, answer: impl AsyncFn(Order) -> Answer) {
        let mut attended = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(ended) = attended.next() => {
                    if let Err(error) = ended {
                        tracing::debug!("a question broke off: {error}");
                    }
                }
                stream = self.accept(), if attended.len() < AT_A_TIME => {
                    attended.push(attend(stream, &answer));
                }
            }
        }
    }

    async fn accept(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => {
                    tracing::warn!("no question can be taken: {error}");
                    sleep(EXHAUSTED).await;
                }
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

async fn attend(mut stream: UnixStream, answer: &impl AsyncFn(Order) -> Answer) -> io::Result<()> {
    let order = timeout(PATIENCE, read_line(&mut stream)).await??;
    let answer = match serde_json::from_str(&order) {
        Ok(order) => answer(order).await,
        Err(error) => Answer::Refused(format!("no order: {error}")),
    };
    timeout(PATIENCE, write_line(&mut stream, &answer)).await?
}

/// A node that may be asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    path: PathBuf,
    /// Whether `nodes` found the socket by its name: if nobody answers on it, it is a leftover.
    is_ours: bool,
}

/// The nodes that have a control socket in this directory.
pub fn nodes(directory: &Path) -> Vec<Node> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("tunnel-"))
            && path.extension().is_some_and(|it| it == EXTENSION)
            && is_socket(path)
    };
    let ours = |path| Node {
        path,
        is_ours: true,
    };
    let mut all: Vec<Node> = paths.filter(is_one).map(ours).collect();
    all.sort();
    all
}

impl Node {
    /// The node of a socket that somebody named.
    pub fn named(path: PathBuf) -> Self {
        Self {
            path,
            is_ours: false,
        }
    }

    /// Its socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends `order`. `None` if the node is gone; then removes its socket, unless the user named
    /// it.
    ///
    /// # Errors
    ///
    /// The node cannot be asked, or its answer cannot be read.
    pub async fn ask(&self, order: &Order) -> io::Result<Option<Answer>> {
        let mut stream = match UnixStream::connect(&self.path).await {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if !is_socket(&self.path) {
                    return Err(io::Error::other("this is no socket"));
                }
                if self.is_ours {
                    let _ = fs::remove_file(&self.path);
                }
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        write_line(&mut stream, order).await?;
        let line = timeout(PATIENCE, read_line(&mut stream)).await??;
        Ok(Some(serde_json::from_str(&line)?))
    }
}

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| it.file_type().is_socket())
}

async fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(MAX_LINE));
    reader.read_line(&mut line).await?;
    if line.ends_with('\n') {
        Ok(line)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

async fn write_line(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_node_is_asked_by_its_user_alone_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let control = Control::bind(directory.path(), "far").unwrap();
        let node = nodes(directory.path()).remove(0);
        let mode = node.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let order = Order::Revoke {
            client: "van".into(),
        };
        let answered = tokio::select! {
            answered = node.ask(&order) => answered.unwrap(),
            () = control.serve(async |order| Answer::Refused(format!("{order:?}"))) => None,
        };
        let words = r#"Revoke { client: "van" }"#;
        assert!(matches!(answered, Some(Answer::Refused(told)) if told == words));
        drop(control);
        assert!(nodes(directory.path()).is_empty());
    }

    #[tokio::test]
    async fn the_socket_of_a_node_that_was_killed_is_cleared_away() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tunnel-near-1.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let node = nodes(directory.path()).remove(0);
        assert!(node.ask(&Order::Status).await.unwrap().is_none());
        assert!(nodes(directory.path()).is_empty() && !path.exists());
    }

    #[tokio::test]
    async fn what_somebody_names_is_never_removed_nor_what_is_no_socket() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("other.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let named = Node::named(socket.clone());
        assert!(named.ask(&Order::Status).await.unwrap().is_none());
        let file = directory.path().join("tunnel-near-1.sock");
        fs::write(&file, "precious").unwrap();
        assert_eq!(nodes(directory.path()), []);
        for is_ours in [true, false] {
            let path = file.clone();
            let error = Node { path, is_ours }
                .ask(&Order::Status)
                .await
                .unwrap_err();
            assert_eq!(error.to_string(), "this is no socket");
        }
        assert!(socket.exists() && fs::read(&file).unwrap() == b"precious");
    }

    #[tokio::test]
    async fn who_connects_and_asks_nothing_keeps_nobody_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let control = Control::bind(directory.path(), "far").unwrap();
        let node = nodes(directory.path()).remove(0);
        let silent = UnixStream::connect(node.path()).await.unwrap();
        let answered = tokio::select! {
            answered = node.ask(&Order::Clients) => answered.unwrap(),
            () = control.serve(async |_| Answer::Clients(Vec::new())) => None,
        };
        assert!(matches!(answered, Some(Answer::Clients(_))), "{answered:?}");
        let still_open = silent.try_read(&mut [0]).unwrap_err();
        assert_eq!(still_open.kind(), io::ErrorKind::WouldBlock);
    }
}
