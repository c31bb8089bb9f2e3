//! The file system that the guest starts with.

use crate::Error;
use crate::archive::Archive;
use crate::kernel::Kernel;
use crate::programs::{find, libraries, require};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The guest's folder whose contents remain after it has stopped.
pub const RESULTS: &str = "/results";

/// The line that the guest prints before it runs its command. The machine waits for it.
pub(crate) const STARTED: &str = "@vm started";
/// The line that it prints afterwards, followed by the command's exit code.
pub(crate) const ENDED: &str = "@vm ended ";

/// The disk through which results are returned, and the modules it needs.
const DISK: &str = "/dev/vda";
const DISK_MODULES: [&str; 2] = ["virtio_pci", "virtio_blk"];

/// The guest's file system, and the command it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    command: Vec<String>,
    /// Files of this machine, by their guest paths.
    files: BTreeMap<String, PathBuf>,
    /// Generated files, by their guest paths.
    texts: BTreeMap<String, Vec<u8>>,
    /// Guest paths of modules, in loading order.
    load: Vec<String>,
}

impl Image {
    /// A guest that runs `command` and stops. The first word must be one of its
    /// [programs](Self::program).
    pub fn new<S: AsRef<str>>(command: &[S]) -> Self {
        Self {
            command: command
                .iter()
                .map(|word| word.as_ref().to_owned())
                .collect(),
            files: BTreeMap::new(),
            texts: BTreeMap::new(),
            load: Vec::new(),
        }
    }

    /// Replaces the guest's command.
    #[must_use]
    pub fn command<S: AsRef<str>>(mut self, command: &[S]) -> Self {
        self.command = command
            .iter()
            .map(|word| word.as_ref().to_owned())
            .collect();
        self
    }

    /// Whether a file of this name was added.
    pub fn holds(&self, guest: &str) -> bool {
        self.files.contains_key(guest) || self.texts.contains_key(guest)
    }

    /// Adds a program of this machine, given by name or path, with its libraries. The guest finds
    /// it by its name.
    ///
    /// # Errors
    /// [`Error::System`] if there is none.
    pub fn program(self, program: &str) -> Result<Self, Error> {
        let name = Path::new(program).file_name().unwrap_or_default();
        let guest = format!("/bin/{}", name.to_string_lossy());
        self.program_at(&guest, program)
    }

    /// Does what [`Self::program`] does, but under another name in the guest.
    ///
    /// # Errors
    /// [`Error::System`] if there is none.
    pub fn program_at(mut self, guest: &str, program: &str) -> Result<Self, Error> {
        let missing = || std::io::Error::new(std::io::ErrorKind::NotFound, "not found");
        let file = find(program)
            .ok_or_else(missing)
            .map_err(Error::system(format!("program `{program}`")))?;
        for library in libraries(&file)? {
            self.files.insert(guest_path(&library), library);
        }
        self.files.insert(guest.to_owned(), file);
        Ok(self)
    }

    /// Adds all files below a folder of this machine, if it exists.
    ///
    /// # Errors
    /// [`Error::System`] if it cannot be listed.
    pub fn folder(mut self, guest: &str, host: &Path) -> Result<Self, Error> {
        if !host.is_dir() {
            return Ok(self);
        }
        let failed = || Error::system(format!("cannot list {}", host.display()));
        for entry in std::fs::read_dir(host).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let guest = format!("{guest}/{name}");
            // A link that leads nowhere is left out.
            if path.is_dir() {
                self = self.folder(&guest, &path)?;
            } else if path.is_file() {
                self = self.file(&guest, &path);
            }
        }
        Ok(self)
    }

    /// Adds a file of this machine.
    #[must_use]
    pub fn file(mut self, guest: &str, host: &Path) -> Self {
        self.files.insert(guest.to_owned(), host.to_owned());
        self
    }

    /// Adds a file with the given content.
    #[must_use]
    pub fn text(mut self, guest: &str, content: impl Into<Vec<u8>>) -> Self {
        self.texts.insert(guest.to_owned(), content.into());
        self
    }

    /// Loads modules, and those they depend on, before the command runs.
    ///
    /// # Errors
    /// [`Error::NoModule`] if the kernel has one of them neither as a module nor built in.
    pub fn modules(mut self, kernel: &Kernel, modules: &[&str]) -> Result<Self, Error> {
        for module in modules {
            for file in kernel.files(module)? {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let guest = format!("/modules/{name}");
                if !self.load.contains(&guest) {
                    self.files.insert(guest.clone(), file);
                    self.load.push(guest);
                }
            }
        }
        Ok(self)
    }

    /// Writes the image in the kernel's format.
    pub(crate) fn write(&self, kernel: &Kernel, out: impl Write) -> Result<(), Error> {
        let shell = require("busybox", "busybox-static")?;
        if !libraries(&shell)?.is_empty() {
            return Err(Error::Missing {
                program: "busybox (without shared libraries)".to_owned(),
                package: "busybox-static",
            });
        }
        require("insmod", "kmod")?;
        let whole = self
            .clone()
            .program("insmod")?
            .modules(kernel, &DISK_MODULES)?;
        let mut archive = Archive::new(out);
        let failed = || Error::system("cannot write the guest's file system");
        let paths = whole.files.keys().chain(whole.texts.keys());
        for folder in folders(paths.map(String::as_str)) {
            archive.directory(&folder).map_err(failed())?;
        }
        archive.device("/dev/console", (5, 1)).map_err(failed())?;
        archive.link("/bin/sh", "/bin/busybox").map_err(failed())?;
        let files = whole
            .files
            .iter()
            .map(|(guest, host)| (guest.as_str(), host));
        for (guest, host) in files.chain([("/bin/busybox", &shell)]) {
            let read = || Error::system(format!("cannot read {}", host.display()));
            let content = std::fs::read(host).map_err(read())?;
            let mode = std::fs::metadata(host)
                .map_err(read())?
                .permissions()
                .mode();
            archive.file(guest, mode, &content).map_err(failed())?;
        }
        for (guest, content) in &whole.texts {
            archive.file(guest, 0o644, content).map_err(failed())?;
        }
        let init = whole.init();
        archive
            .file("/init", 0o755, init.as_bytes())
            .map_err(failed())?;
        archive.finish().map_err(failed()).map(drop)
    }

    /// The guest's first process. Programs that were added take precedence over busybox's own of
    /// the same name.
    fn init(&self) -> String {
        let mut script = String::from(
            "#!/bin/busybox sh\n\
             export PATH=/bin:/busybox HOME=/ TERM=dumb\n\
             /bin/busybox --install -s /busybox\n\
             mount -t proc proc /proc\n\
             mount -t sysfs sys /sys\n\
             mount -t devtmpfs dev /dev\n\
             mkdir -p /dev/net /run /tmp\n\
             mount -t tmpfs tmp /tmp\n\
             mount -t tmpfs run /run\n\
             ip link set lo up\n\
             stty -echo </dev/console\n",
        );
        let modules = self.load.iter().map(|module| quoted(module));
        script.extend(modules.map(|file| format!("insmod {file} || echo cannot load {file}\n")));
        let words: Vec<String> = self.command.iter().map(|word| quoted(word)).collect();
        // Any line from outside makes the loop interrupt the command. The command keeps the pid of
        // the shell that becomes it, and the pid is written before STARTED is printed. Its output
        // goes through a pipe, so that it does not take the console for a terminal. The script
        // waits for its last output, but not for what it left running.
        script
            + &format!(
                "mkfifo /run/said\n\
             cat /run/said & said=$!\n\
             while read -r word; do kill -INT \"$(cat /run/command)\"; done </dev/console &\n\
             sh -c 'echo $$ >/run/command; echo {STARTED}; \
             exec \"$0\" \"$@\"' {} </dev/null >/run/said 2>&1\n\
             code=$?\n\
             for try in 1 2 3 4 5 6 7 8 9; do kill -0 $said 2>/dev/null || break; sleep 0.1; done\n\
             tar -C {RESULTS} -cf {DISK} . || {{ echo results are lost; code=1; }}\n\
             sync\n\
             echo \"{ENDED}$code\"\n\
             poweroff -f\n",
                words.join(" ")
            )
    }
}

/// The path of a library in the guest: where its program looks for it.
fn guest_path(library: &Path) -> String {
    library.to_string_lossy().into_owned()
}

/// All parent folders of these paths, and those that every guest has, parents first.
fn folders<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let always = [
        "/bin", "/busybox", "/dev", "/etc", "/proc", "/sys", "/tmp", "/run", RESULTS,
    ];
    let mut all: BTreeSet<String> = always.iter().map(ToString::to_string).collect();
    for path in paths {
        let above = Path::new(path).ancestors().skip(1);
        let named = above.filter(|folder| folder.parent().is_some());
        all.extend(named.map(|folder| folder.to_string_lossy().into_owned()));
    }
    all
}

/// A word quoted for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_reaches_the_guest_word_by_word() {
        let image = Image::new(&["echo", "it's", "$HOME; reboot", ""]);
        let init = image.init();
        assert!(
            init.contains(r"'echo' 'it'\''s' '$HOME; reboot' '' </dev/null"),
            "{init}"
        );
    }

    #[test]
    fn whom_to_interrupt_is_known_before_anybody_is_told_of_a_start() {
        let init = Image::new(&["true"]).init();
        let place = |text: &str| init.find(text).unwrap_or_else(|| panic!("{text}: {init}"));
        assert!(place(">/run/command") < place(STARTED), "{init}");
        assert!(place("</dev/console &") < place(STARTED), "{init}");
    }

    #[test]
    fn results_that_do_not_fit_make_the_command_fail() {
        let init = Image::new(&["true"]).init();
        let packed = init.lines().find(|line| line.starts_with("tar ")).unwrap();
        assert!(packed.contains("code=1"), "{packed}");
    }

    #[test]
    fn every_folder_of_a_file_comes_before_it() {
        let all: Vec<String> = folders(["/lib/x86/libc.so"].into_iter())
            .into_iter()
            .collect();
        let place = |name: &str| all.iter().position(|folder| folder == name).unwrap();
        assert!(place("/lib") < place("/lib/x86"));
        assert!(!all.contains(&"/".to_owned()), "{all:?}");
    }

    #[test]
    fn a_program_that_is_not_here_is_named() {
        let error = Image::new(&["x"]).program("no-such-program").unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
