//! One host: a network namespace and ways to act in it.

use std::fs::File;
use std::process::Command;

use nix::sched::{CloneFlags, setns};

use crate::{Error, shell};

/// A host of a testbed. It is only a name: clones are the same host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    name: String,
    namespace: String,
}

impl Node {
    pub(crate) fn new(name: &str, namespace: String) -> Self {
        Self {
            name: name.to_owned(),
            namespace,
        }
    }

    /// The name given to [`crate::Testbed::node`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name for `ip netns`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A command that will run in the namespace.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]);
        command
    }

    /// Runs a program in the namespace until it ends, and returns what it printed.
    ///
    /// # Errors
    /// [`Error::Failed`] with what it wrote to standard error.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        shell::output(self.command(program).args(arguments))
    }

    /// Runs `ip` commands in one process in the namespace. Each line is a command without the word
    /// `ip`. It stops at the first failure.
    ///
    /// # Errors
    /// [`Error::Failed`] with the command that failed and what the kernel said.
    pub fn ip(&self, commands: &[String]) -> Result<String, Error> {
        self.batch("ip", commands)
    }

    /// Runs commands as [`Self::ip`] does, but of `tc`.
    ///
    /// # Errors
    /// [`Error::Failed`] with the command that failed and what the kernel said.
    pub fn tc(&self, commands: &[String]) -> Result<String, Error> {
        self.batch("tc", commands)
    }

    fn batch(&self, program: &str, commands: &[String]) -> Result<String, Error> {
        let input = commands.join("\n") + "\n";
        shell::feed(program, &["-n", &self.namespace, "-batch", "-"], &input)
    }

    /// Sets a variable of the host's network, named by its path below `/proc/sys/net`, such as
    /// `ipv4/ip_forward`.
    ///
    /// # Errors
    /// [`Error::System`] if there is no such variable or the value does not suit it.
    pub fn set_sysctl(&self, path: &str, value: &str) -> Result<(), Error> {
        let file = format!("/proc/sys/net/{path}");
        let written = self.enter(|| std::fs::write(&file, value))?;
        written.map_err(|reason| Error::System {
            what: format!("cannot write `{value}` to {file} of {}", self.name),
            reason,
        })
    }

    /// Reads a variable of the host's network, named as for [`Self::set_sysctl`].
    ///
    /// # Errors
    /// [`Error::System`] if there is no such variable.
    pub fn sysctl(&self, path: &str) -> Result<String, Error> {
        let file = format!("/proc/sys/net/{path}");
        let read = self.enter(|| std::fs::read_to_string(&file))?;
        read.map(|text| text.trim().to_owned())
            .map_err(|reason| Error::System {
                what: format!("cannot read {file} of {}", self.name),
                reason,
            })
    }

    /// Runs `work` on a separate thread in the namespace and waits for it. Sockets that it opens
    /// belong to this host, wherever they are used later.
    ///
    /// # Errors
    /// [`Error::System`] if the namespace cannot be entered.
    ///
    /// # Panics
    /// If `work` does, with its message.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let path = format!("/run/netns/{}", self.namespace);
        let failed = |reason| Error::System {
            what: format!("cannot enter {path}"),
            reason,
        };
        let namespace = File::open(&path).map_err(failed)?;
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                setns(namespace, CloneFlags::CLONE_NEWNET)?;
                Ok(work())
            });
            match inside.join() {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(errno)) => {
                    let errno: nix::errno::Errno = errno;
                    Err(failed(errno.into()))
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}
