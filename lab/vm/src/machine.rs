//! Starts a guest, reads its console, and retrieves its results.

use crate::Error;
use crate::control::Control;
use crate::image::{ENDED, Image, STARTED};
use crate::kernel::Kernel;
use crate::programs::{find, last_lines, require};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, BufWriter, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// With hardware acceleration a guest prints its first line within two seconds. If it is silent for
/// longer, it stays silent, as it may on machines that are guests themselves.
const FIRST_WORD: Duration = Duration::from_secs(20);
/// The limit for a guest in software, on a busy machine.
const FIRST_WORD_SOFTWARE: Duration = Duration::from_secs(300);

/// Room for results; the file behind it only takes the space that was written.
const DISK_BYTES: u64 = 4 << 30;
/// The longest line of a console that is kept.
const MAX_LINE: u64 = 64 * 1024;
/// How many of the last lines are shown if it fails.
const LAST_LINES: usize = 20;
/// A machine that does not stop when told to is killed after this time.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often its end is checked for.
const LOOK_END: Duration = Duration::from_millis(20);
/// How often a request to stop is checked for.
const LOOK: Duration = Duration::from_millis(200);

/// The kernel parameter that tells the guest its acceleration, such as `anabranch.vm=tcg`.
pub const PARAMETER: &str = "anabranch.vm";

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acceleration {
    /// The [remembered](Kernel::remembered) one; otherwise KVM if it works here, otherwise software
    /// emulation.
    #[default]
    Auto,
    /// The processor (KVM).
    Hardware,
    /// Software, which works everywhere. The guest's clock counts its instructions, one a
    /// nanosecond, and jumps while it sleeps. What is measured inside does not depend on how busy
    /// the machine outside is; the time it takes outside may be longer or shorter.
    Software,
}

impl Acceleration {
    /// Its name in qemu.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Hardware => "kvm",
            Self::Software => "tcg",
        }
    }

    /// The acceleration of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Auto, Self::Hardware, Self::Software]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

/// Settings of a virtual machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The guest's processors. In software it has one, because its clock can only count the
    /// instructions of one.
    pub processors: u32,
    /// The guest's memory in MiB, which includes the image.
    pub memory_mib: u32,
    /// What executes its instructions.
    pub acceleration: Acceleration,
    /// How long its command may run before it is stopped, by the clock outside.
    pub limit: Duration,
    /// Stops it earlier.
    pub control: Control,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            processors: 2,
            memory_mib: 1536,
            acceleration: Acceleration::Auto,
            limit: Duration::from_secs(3600),
            control: Control::default(),
        }
    }
}

/// The result of a guest.
#[derive(Debug)]
pub struct End {
    /// The exit code of its command; 1 if its results are incomplete.
    pub code: i32,
    /// The acceleration that was used.
    pub acceleration: Acceleration,
    results: TempDir,
    lost: Option<String>,
}

impl End {
    /// The contents of [`RESULTS`](crate::RESULTS); removed when this is dropped.
    pub fn results(&self) -> &Path {
        self.results.path()
    }

    /// Why some of the results could not be retrieved, if so.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }
}

/// Why a guest did not start.
enum Start {
    /// It printed nothing; another acceleration may work.
    Silent(Error),
    /// Trying again is pointless.
    Failed(Error),
}

impl Machine {
    /// Runs a guest until it stops. `line` gets each line it prints, without the line end.
    ///
    /// # Errors
    /// [`Error::Missing`] without qemu, [`Error::Guest`] if it stops before its command ends,
    /// [`Error::TimedOut`] at its limit, [`Error::Stopped`] if its [`Control`] stopped it.
    pub fn run(
        &self,
        kernel: &Kernel,
        image: &Image,
        line: &mut dyn FnMut(&str),
    ) -> Result<End, Error> {
        let qemu = require("qemu-system-x86_64", "qemu-system-x86")?;
        let work = TempDir::with_prefix("anabranch-vm-").map_err(Error::system("no room"))?;
        let files = Files::make(work.path(), kernel, image)?;
        let wanted = match self.acceleration {
            Acceleration::Auto => kernel.remembered().unwrap_or_default(),
            given => given,
        };
        let ways: &[Acceleration] = match wanted {
            Acceleration::Auto => &[Acceleration::Hardware, Acceleration::Software],
            Acceleration::Hardware => &[Acceleration::Hardware],
            Acceleration::Software => &[Acceleration::Software],
        };
        let mut silent = None;
        for &way in ways {
            match self.attempt(&qemu, kernel, &files, way, line) {
                Ok(code) => {
                    let (results, lost) = files.results()?;
                    if let Some(why) = &lost {
                        line(&format!("results are lost: {why}"));
                    }
                    return Ok(End {
                        code: if lost.is_some() { 1 } else { code },
                        acceleration: way,
                        results,
                        lost,
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
        let mut guest = Guest::start(&mut command, &self.control).map_err(Start::Failed)?;
        let patience = match way {
            Acceleration::Software => FIRST_WORD_SOFTWARE,
            _ => FIRST_WORD,
        };
        let first = Instant::now() + patience;
        if !guest.wait_for_start(first) {
            if self.control.is_stopped() {
                return Err(Start::Failed(Error::Stopped));
            }
            return Err(Start::Silent(guest.error("did not start")));
        }
        self.control.attach(guest.process.stdin.take());
        let until = Instant::now() + self.limit;
        guest.follow(until, self.limit, line).map_err(Start::Failed)
    }

    fn command(&self, qemu: &Path, kernel: &Kernel, files: &Files, way: Acceleration) -> Command {
        // The machine must neither outlive this process nor receive its Ctrl-C.
        let mut command = match find("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "TERM"]).arg(qemu);
                command
            }
            None => Command::new(qemu),
        };
        command.process_group(0);
        let (accelerated, processors): (&[&str], u32) = match way {
            Acceleration::Software => (
                &[
                    "-accel",
                    "tcg,thread=single",
                    "-icount",
                    "shift=0,sleep=off",
                    "-rtc",
                    "clock=vm",
                    "-cpu",
                    "max",
                ],
                1,
            ),
            _ => (&["-accel", "kvm", "-cpu", "host"], self.processors),
        };
        command
            .args(accelerated)
            .args(["-smp", &processors.to_string()])
            .args(["-m", &self.memory_mib.to_string()])
            .args(["-nodefaults", "-no-reboot", "-display", "none"])
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(kernel.image())
            .arg("-initrd")
            .arg(&files.image)
            .arg("-append")
            .arg(format!(
                "console=ttyS0 quiet panic=-1 {PARAMETER}={}",
                way.name()
            ))
            .arg("-drive")
            .arg(format!(
                "if=virtio,format=raw,cache=unsafe,file={}",
                files.disk.display()
            ));
        command
    }
}

/// The files that a guest is started with.
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

    /// The guest's results, and what went wrong with the rest.
    fn results(&self) -> Result<(TempDir, Option<String>), Error> {
        let folder = TempDir::with_prefix("anabranch-vm-").map_err(Error::system("no room"))?;
        let failed = || Error::system("cannot unpack what the virtual machine left");
        let disk = std::fs::File::open(&self.disk).map_err(failed())?;
        let mut archive = tar::Archive::new(disk);
        let entries = archive.entries().map_err(failed())?;
        let lost = unpack(entries, folder.path());
        Ok((folder, lost))
    }
}

/// Unpacks complete entries. The last entry of an archive that did not fit on its disk is
/// incomplete. Returns what is wrong with the rest.
fn unpack<R: Read>(entries: tar::Entries<'_, R>, folder: &Path) -> Option<String> {
    for entry in entries {
        let mut entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Some(error.to_string()),
        };
        if let Err(error) = entry.unpack_in(folder) {
            // An incomplete file must not be mistaken for a complete one.
            if let Ok(path) = entry.path() {
                let _ = std::fs::remove_file(folder.join(path));
            }
            return Some(error.to_string());
        }
    }
    None
}

/// A running guest, which is stopped when dropped.
struct Guest {
    process: Child,
    lines: Receiver<String>,
    /// The end of its output and of qemu's error messages.
    console: Vec<String>,
    control: Control,
}

impl Guest {
    fn start(command: &mut Command, control: &Control) -> Result<Self, Error> {
        let mut process = command
            .stdin(Stdio::piped())
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
            control: control.clone(),
        })
    }

    /// Its next line. A request to stop is reported as a timeout.
    fn next(&mut self, until: Instant) -> Result<String, RecvTimeoutError> {
        let line = loop {
            let wait = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(wait.min(LOOK)) {
                Err(RecvTimeoutError::Timeout) if wait > LOOK && !self.control.is_stopped() => {}
                other => break other?,
            }
        };
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

    /// Passes lines on until the command ends; returns its exit code.
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
                        // It powers off by itself; its results are on the disk already.
                        return code
                            .trim()
                            .parse()
                            .map_err(|_| self.error("ended with no exit code"));
                    }
                    pass(&line);
                }
                Err(RecvTimeoutError::Timeout) if self.control.is_stopped() => {
                    return Err(Error::Stopped);
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
        self.control.attach(None);
        if let Ok(pid) = i32::try_from(self.process.id()) {
            // On SIGTERM, unlike when it is killed, qemu writes back the contents of its disk.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let until = Instant::now() + FAREWELL;
        while matches!(self.process.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                let _ = self.process.kill();
                let _ = self.process.wait();
                return;
            }
            std::thread::sleep(LOOK_END);
        }
    }
}

/// Reads lines until the stream ends or the receiver is gone.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_does_not_hear_is_killed() {
        let name = "a_machine_that_does_not_hear_is_killed";
        if !anabranch_testbed::Need::VirtualMachine.programs(name, &["sh", "sleep"]) {
            return;
        }
        let mut command = Command::new("sh");
        let script = format!("trap '' TERM; echo '{STARTED}'; while :; do sleep 1; done");
        command.args(["-c", &script]);
        let mut guest = Guest::start(&mut command, &Control::default()).unwrap();
        assert!(guest.wait_for_start(Instant::now() + Duration::from_secs(300)));
        let (done, dropped) = channel();
        std::thread::spawn(move || {
            drop(guest);
            done.send(())
        });
        assert_eq!(dropped.recv_timeout(Duration::from_secs(300)), Ok(()));
    }

    #[test]
    fn of_results_that_were_cut_off_what_is_whole_comes_back() {
        let mut packed = tar::Builder::new(Vec::new());
        for name in ["out/first", "out/second"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(2000);
            header.set_mode(0o644);
            let content = [b'x'; 2000];
            packed.append_data(&mut header, name, &content[..]).unwrap();
        }
        let whole = packed.into_inner().unwrap();
        let lost = |bytes: &[u8], folder: &Path| {
            let mut archive = tar::Archive::new(bytes);
            unpack(archive.entries().unwrap(), folder)
        };
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(lost(&whole, folder.path()), None);
        assert!(folder.path().join("out/second").is_file());
        let folder = tempfile::tempdir().unwrap();
        // Two headers of 512 bytes, the first file's content, half of the second's.
        assert!(lost(&whole[..4000], folder.path()).is_some());
        assert!(folder.path().join("out/first").is_file());
        assert!(!folder.path().join("out/second").exists());
    }
}
