//! A program of others under way: its output in files, itself gone when dropped.

use super::{Program, Terms};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// How much of what a program said last is told.
const TAIL: usize = 400;

/// The folder both programs see, within that of the run.
const SHARED: &str = "shared";

/// The most of a program's output that is read.
const MOST_OUTPUT: u64 = 64 << 20;

/// A folder for what programs of a run say, gone when dropped.
///
/// # Errors
/// What the system says.
pub fn scratch() -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("anabranch-lab-").tempdir()
}

/// A program that was started.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
    began: Instant,
}

impl Process {
    /// Starts a program as `whose` (`client` or `server`), with what it says kept in `folder`.
    /// `make` turns its name into a command, perhaps within a namespace.
    ///
    /// # Errors
    /// It cannot be started; the text says which one.
    pub fn start(
        program: &Program,
        terms: &Terms,
        folder: &Path,
        whose: &str,
        make: impl FnOnce(&str) -> Command,
    ) -> Result<Self, String> {
        let shared = folder.join(SHARED);
        let fill = |place| terms.filled(place, &shared);
        let mut words = program.command.iter().map(|word| word.filled(&fill));
        let name = words.next().expect("a command has a program");
        let mut command = make(&name);
        command.args(words);
        for (key, value) in &program.env {
            command.env(key, value.filled(&fill));
        }
        let output = folder.join(format!("{whose}.out"));
        let errors = folder.join(format!("{whose}.err"));
        let mut spawn = || {
            fs::create_dir_all(&shared)?;
            command
                // Ctrl-C is for the laboratory, which lets a run end first.
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(File::create(&output)?)
                .stderr(File::create(&errors)?)
                .spawn()
        };
        let child = spawn().map_err(|error| format!("cannot start `{name}`: {error}"))?;
        Ok(Self {
            name,
            child,
            output,
            errors,
            began: Instant::now(),
        })
    }

    /// When it was started.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        let failed = |error: io::Error| format!("`{}`: {error}", self.name);
        self.child.try_wait().map_err(failed)
    }

    /// What it wrote to standard output so far.
    pub fn output(&self) -> String {
        read(&self.output)
    }

    /// Whether a line of its output or errors has this text.
    pub fn said(&self, text: &str) -> bool {
        let has = |file: &Path| read(file).lines().any(|line| line.contains(text));
        has(&self.output) || has(&self.errors)
    }

    /// What it said last, to be put after a message.
    pub fn last_words(&self) -> String {
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

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(file: &Path) -> String {
    let mut bytes = Vec::new();
    // What cannot be read was not said.
    let _ = File::open(file).and_then(|file| file.take(MOST_OUTPUT).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
