//! Agents as processes on this machine, reached over pipes.

use anabranch_lab::hosts::{Answer, Ask, Host, HostError, MAX_LINE};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many bytes of an agent's standard error are kept.
const LAST_WORDS: usize = 4096;

/// How long an agent may take to end after its input has ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// An agent in a process of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct Local {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<io::Result<String>>,
    last_words: Arc<Mutex<Vec<u8>>>,
    /// The thread that reads standard error until it is closed everywhere.
    listener: Option<thread::JoinHandle<()>>,
}

impl Local {
    /// Starts an agent. The command may enter a namespace first.
    ///
    /// # Errors
    /// The command cannot be run.
    pub fn start(name: &str, mut command: Command) -> Result<Self, HostError> {
        let command = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| HostError::Unreachable {
            host: name.to_owned(),
            why: format!(
                "cannot run `{}`: {error}",
                command.get_program().to_string_lossy()
            ),
        })?;
        let (say, lines) = channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let mut output = BufReader::new(output);
                while let Some(line) = read_line(&mut output).transpose() {
                    let over = line.is_err();
                    if say.send(line).is_err() || over {
                        return;
                    }
                }
            });
        }
        let last_words = Arc::new(Mutex::new(Vec::new()));
        let listener = child.stderr.take().map(|mut errors| {
            let kept = Arc::clone(&last_words);
            thread::spawn(move || {
                let mut bytes = [0; 1024];
                while let Ok(count @ 1..) = errors.read(&mut bytes) {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.extend_from_slice(&bytes[..count]);
                    let extra = kept.len().saturating_sub(LAST_WORDS);
                    kept.drain(..extra);
                }
            })
        });
        Ok(Self {
            name: name.to_owned(),
            input: child.stdin.take(),
            child,
            lines,
            last_words,
            listener,
        })
    }

    /// The process id of the agent, or of the command that started it.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ended(&mut self) -> HostError {
        let end = Instant::now() + FAREWELL;
        let status = self.wait(FAREWELL);
        // The last output may still be on its way, and a child that inherited the pipe may keep it
        // open.
        if let Some(listener) = self.listener.take() {
            while !listener.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
        let words = self
            .last_words
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        let why = match status {
            Some(status) if words.is_empty() => status.to_string(),
            Some(status) => format!("{status}: {words}"),
            None => words,
        };
        HostError::Ended {
            host: self.name.clone(),
            why,
        }
    }

    /// Waits for the process to end.
    fn wait(&mut self, timeout: Duration) -> Option<std::process::ExitStatus> {
        let end = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }
}

/// A line without its line end; `None` at the end of the output.
fn read_line(output: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let count = output
        .by_ref()
        .take(MAX_LINE as u64 + 1)
        .read_until(b'\n', &mut line)?;
    if count == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        let what = if count > MAX_LINE {
            format!("a line of more than {MAX_LINE} bytes")
        } else {
            "half a line".to_owned()
        };
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    String::from_utf8(line)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

impl Host for Local {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&mut self, ask: Ask) -> Result<(), HostError> {
        let line = encode(&self.name, &ask)?;
        let written = match &mut self.input {
            Some(input) => input.write_all(&line).and_then(|()| input.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|_| self.ended())
    }

    fn answer(&mut self, timeout: Duration) -> Result<Answer, HostError> {
        match self.lines.recv_timeout(timeout) {
            Ok(Ok(line)) => decode(&self.name, &line),
            Ok(Err(error)) => Err(HostError::Garbled {
                host: self.name.clone(),
                why: error.to_string(),
            }),
            Err(RecvTimeoutError::Timeout) => Err(HostError::Silent {
                host: self.name.clone(),
                waited: timeout,
            }),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.input = None;
        if self.wait(FAREWELL).is_none() {
            // It does not respond. If it has ended by now, that is fine too.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A line to an agent.
pub(crate) fn encode(host: &str, ask: &Ask) -> Result<Vec<u8>, HostError> {
    let line = serde_json::to_vec(ask);
    let mut line = line.map_err(|error| garbled(host, &error))?;
    line.push(b'\n');
    Ok(line)
}

/// A line from an agent.
pub(crate) fn decode(host: &str, line: &str) -> Result<Answer, HostError> {
    serde_json::from_str(line).map_err(|error| garbled(host, &error))
}

fn garbled(host: &str, error: &serde_json::Error) -> HostError {
    HostError::Garbled {
        host: host.to_owned(),
        why: error.to_string(),
    }
}
