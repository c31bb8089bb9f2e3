//! Processes in namespaces, each of which is killed by its own process id.

use std::process::{Child, Command, Output, Stdio};

use crate::{Error, shell};

/// A process of a testbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(usize);

/// Every process that a testbed started; an entry is empty once its output was taken.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    children: Vec<Option<Child>>,
}

impl Processes {
    pub(crate) fn spawn(&mut self, mut command: Command) -> Result<ProcessId, Error> {
        let line = shell::command_line(&command);
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .map_err(|reason| Error::Spawn {
                command: line,
                reason,
            })?;
        self.children.push(Some(child));
        Ok(ProcessId(self.children.len() - 1))
    }

    fn slot(&mut self, id: ProcessId) -> Result<&mut Option<Child>, Error> {
        self.children
            .get_mut(id.0)
            .ok_or_else(|| Error::Foreign(format!("process {}", id.0)))
    }

    pub(crate) fn is_running(&mut self, id: ProcessId) -> Result<bool, Error> {
        let Some(child) = self.slot(id)? else {
            return Ok(false);
        };
        let status = child.try_wait();
        let status = status.map_err(|reason| Error::System {
            what: "wait".to_owned(),
            reason,
        })?;
        Ok(status.is_none())
    }

    pub(crate) fn kill(&mut self, id: ProcessId) -> Result<(), Error> {
        if let Some(child) = self.slot(id)? {
            end(child);
        }
        Ok(())
    }

    pub(crate) fn wait(&mut self, id: ProcessId) -> Result<Output, Error> {
        let taken = || Error::Foreign(format!("process {}, waited for before,", id.0));
        let child = self.slot(id)?.take().ok_or_else(taken)?;
        let output = child.wait_with_output();
        output.map_err(|reason| Error::System {
            what: "wait".to_owned(),
            reason,
        })
    }

    pub(crate) fn kill_all(&mut self) {
        for child in self.children.iter_mut().flatten() {
            end(child);
        }
    }
}

/// `ip netns exec` becomes the program it runs, so this ends the program itself.
fn end(child: &mut Child) {
    // Both fail only if the process has ended and was reaped.
    let _ = child.kill();
    let _ = child.wait();
}
