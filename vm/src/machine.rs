//! Starting a guest, listening to it, fetching what it left.

use crate::Error;
use crate::image::{ENDED, Image, STARTED};
use crate::kernel::Kernel;
use crate::programs::{last_lines, require};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A guest whose processor is this one's says its first word within two seconds; more is silence
/// for ever, as on machines that are guests themselves.
const FIRST_WORD: Duration = Duration::from_secs(20);
/// The same in software on a busy machine.
const FIRST_WORD_SOFTWARE: Duration = Duration::from_secs(300);

/// Room for results; the file behind it takes no more than what was written.
const DISK_BYTES: u64 = 4 << 30;
/// The longest line of a console that is kept.
const MAX_LINE: u64 = 64 * 1024;
/// Lines of its end that are told when it fails.
const LAST_LINES: usize = 20;

/// Who executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acceleration {
    /// The processor if that works here, else software.
    #[default]
    Auto,
    /// The processor (KVM).
    Hardware,
    /// Software: works everywhere, some ten times slower.
    Software,
}

/// A virtual machine to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Its processors.
    pub processors: u32,
    /// Its memory in MiB; the image lies in it.
    pub memory_mib: u32,
    /// Who executes its instructions.
    pub acceleration: Acceleration,
    /// It is stopped after this time.
    pub limit: Duration,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            processors: 2,
            memory_mib: 1536,
            acceleration: Acceleration::Auto,
            limit: Duration::from_secs(3600),
        }
    }
}

/// What a guest came to.
#[derive(Debug)]
pub struct End {
    /// The exit code of its command.
    pub code: i32,
    /// Who executed its instructions in the end.
    pub acceleration: Acceleration,
    results: TempDir,
}

impl End {
    /// What it left in [`RESULTS`](crate::RESULTS); gone with this object.
    pub fn results(&self) -> &Path {
        self.results.path()
    }
}

/// Why a guest did not start.
enum Start {
    /// It never said a word: another way of executing it may do.
    Silent(Error),
    /// It is of no use to try again.
    Failed(Error),
}

impl Machine {
    /// Runs a guest to its end. `line` gets each line it writes, without line end.
    ///
    /// # Errors
    /// [`Error::Missing`] without qemu, [`Error::Guest`] if it stops before its command ends,
    /// [`Error::TimedOut`] at its limit.
    pub fn run(
        &self,
        kernel: &Kernel,
        image: &Image,
        line: &mut dyn FnMut(&str),
    ) -> Result<End, Error> {
        let qemu = require("qemu-system-x86_64", "qemu-system-x86")?;
        let work = TempDir::with_prefix("anabranch-vm-").map_err(Error::system("no room"))?;
        let files = Files::make(work.path(), kernel, image)?;
        let ways: &[Acceleration] = match self.acceleration {
            Acceleration::Auto => &[Acceleration::Hardware, Acceleration::Software],
            Acceleration::Hardware => &[Acceleration::Hardware],
            Acceleration::Software => &[Acceleration::Software],
        };
        let mut silent = None;
        for &way in ways {
            match self.attempt(&qemu, kernel, &files, way, line) {
                Ok(code) => {
                    return Ok(End {
                        code,
                        acceleration: way,
                        results: files.results()?,
                    });
                }
                Err(Start::Failed(error)) => return Err(error),
                Err(Start::Silent(error)) => silent = Some(error),
            }
        }
        Err(silent.expect("there is at least one way"))
    }

    fn attempt(
        &self,
        qemu: &Path,
        kernel: &Kernel,
        files: &Files,
        way: Acceleration,
        line: &mut dyn FnMut(&str),
    ) -> Result<i32, Start> {
        if way == Acceleration::Hardware && !Path::new("/dev/kvm").exists() {
            let reason = std::io::Error::new(std::io::ErrorKind::NotFound, "there is none");
            return Err(Start::Silent(Error::system("/dev/kvm")(reason)));
        }
        let mut command = self.command(qemu, kernel, files, way);
        let mut guest = Guest::start(&mut command).map_err(Start::Failed)?;
        let patience = match way {
            Acceleration::Software => FIRST_WORD_SOFTWARE,
            _ => FIRST_WORD,
        };
        let first = Instant::now() + patience.min(self.limit);
        if !guest.wait_for_start(first) {
            return Err(Start::Silent(guest.error("did not start")));
        }
        let until = Instant::now() + self.limit;
        guest.follow(until, self.limit, line).map_err(Start::Failed)
    }

    fn command(&self, qemu: &Path, kernel: &Kernel, files: &Files, way: Acceleration) -> Command {
        let mut command = Command::new(qemu);
        let accelerated = match way {
            Acceleration::Software => ["-accel", "tcg,thread=multi", "-cpu", "max"],
            _ => ["-accel", "kvm", "-cpu", "host"],
        };
        command
            .args(accelerated)
            .args(["-smp", &self.processors.to_string()])
            .args(["-m", &self.memory_mib.to_string()])
            .args(["-nodefaults", "-no-reboot", "-display", "none"])
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(kernel.image())
            .arg("-initrd")
            .arg(&files.image)
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .arg("-drive")
            .arg(format!(
                "if=virtio,format=raw,file={}",
                files.disk.display()
            ));
        command
    }
}

/// The files a guest is started with.
struct Files {
    image: PathBuf,
    disk: PathBuf,
}

impl Files {
    fn make(folder: &Path, kernel: &Kernel, image: &Image) -> Result<Self, Error> {
        let files = Self {
            image: folder.join("image"),
            disk: folder.join("disk"),
        };
        let failed = || Error::system(format!("cannot write to {}", folder.display()));
        let out = std::fs::File::create(&files.image).map_err(failed())?;
        image.write(kernel, BufWriter::new(out))?;
        let disk = std::fs::File::create(&files.disk).map_err(failed())?;
        disk.set_len(DISK_BYTES).map_err(failed())?;
        Ok(files)
    }

    fn results(&self) -> Result<TempDir, Error> {
        let folder = TempDir::with_prefix("anabranch-vm-").map_err(Error::system("no room"))?;
        let failed = || Error::system("cannot unpack what the virtual machine left");
        let disk = std::fs::File::open(&self.disk).map_err(failed())?;
        let mut archive = tar::Archive::new(disk);
        archive.unpack(folder.path()).map_err(failed())?;
        Ok(folder)
    }
}

/// A guest that runs; stopped when dropped.
struct Guest {
    process: Child,
    lines: Receiver<String>,
    /// The end of what it wrote, and of what qemu complained.
    console: Vec<String>,
}

impl Guest {
    fn start(command: &mut Command) -> Result<Self, Error> {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::system("cannot start qemu"))?;
        let (sender, lines) = channel();
        let (out, complaints) = (process.stdout.take(), process.stderr.take());
        let complaining = sender.clone();
        std::thread::spawn(move || pass_on(out, &|line| sender.send(line).is_ok()));
        std::thread::spawn(move || pass_on(complaints, &|line| complaining.send(line).is_ok()));
        Ok(Self {
            process,
            lines,
            console: Vec::new(),
        })
    }

    fn next(&mut self, until: Instant) -> Result<String, RecvTimeoutError> {
        let wait = until.saturating_duration_since(Instant::now());
        let line = self.lines.recv_timeout(wait)?;
        if self.console.len() == LAST_LINES {
            self.console.remove(0);
        }
        self.console.push(line.clone());
        Ok(line)
    }

    fn wait_for_start(&mut self, until: Instant) -> bool {
        while let Ok(line) = self.next(until) {
            if line.ends_with(STARTED) {
                return true;
            }
        }
        false
    }

    /// Passes lines on until the command has ended; returns its exit code.
    fn follow(
        &mut self,
        until: Instant,
        limit: Duration,
        pass: &mut dyn FnMut(&str),
    ) -> Result<i32, Error> {
        loop {
            match self.next(until) {
                Ok(line) => {
                    if let Some(code) = line.strip_prefix(ENDED) {
                        // It powers off by itself; what it wrote is on its disk already.
                        return code
                            .trim()
                            .parse()
                            .map_err(|_| self.error("ended with no exit code"));
                    }
                    pass(&line);
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::TimedOut {
                        seconds: limit.as_secs(),
                        console: self.tail(),
                    });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.error("stopped before its command ended"));
                }
            }
        }
    }

    fn tail(&self) -> String {
        last_lines(&self.console.join("\n"), LAST_LINES)
    }

    fn error(&self, what: &str) -> Error {
        Error::Guest {
            what: what.to_owned(),
            console: self.tail(),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            // qemu then writes back what its disk holds, unlike when it is killed.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.process.wait();
    }
}

/// Reads lines until the other end closes or nobody wants them.
fn pass_on(stream: Option<impl Read>, send: &dyn Fn(String) -> bool) {
    let Some(stream) = stream else { return };
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = stream.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        if !send(text.trim_end_matches(['\n', '\r']).to_owned()) {
            return;
        }
    }
}
