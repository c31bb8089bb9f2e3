//! A manager of services as systemd is one: it keeps descriptors that it is given, hands them to
//! the next process and closes them when the service has stopped.

use super::process::Process;
use nix::sys::signal::Signal;
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long anything may take on a machine that is busy with other work.
const END: Duration = Duration::from_secs(60);

/// What a process of the service is started by: what was kept comes from the number 3 on, and the
/// variable names the process that it is for, which stays the same.
const START: &str = r#"export LISTEN_PID=$$; exec "$@" 3<&0 0</dev/null"#;
const START_WITH_TWO: &str = r#"export LISTEN_PID=$$; exec "$@" 3<&0 4</dev/null 0</dev/null"#;

pub struct Manager {
    socket: UnixDatagram,
    at: PathBuf,
    /// Whether it keeps anything.
    keeps: bool,
    /// With their names.
    pub store: Vec<(String, OwnedFd)>,
    /// What it was told.
    pub heard: Vec<String>,
    directory: TempDir,
}

impl Manager {
    pub fn new(keeps: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("notify");
        let socket = UnixDatagram::bind(&at).unwrap();
        socket.set_read_timeout(Some(END)).unwrap();
        Self {
            socket,
            at,
            keeps,
            store: Vec::new(),
            heard: Vec::new(),
            directory,
        }
    }

    /// Starts the service, with what is kept, and waits until it is ready.
    #[track_caller]
    pub fn start(&mut self, command: &Command) -> Process {
        let names: Vec<&str> = self.store.iter().map(|(name, _)| name.as_str()).collect();
        let process = self.start_with(command, &names, START);
        self.hear_until("READY=1");
        process
    }

    /// The same, with a second descriptor by the same name, which is none of a device.
    #[track_caller]
    pub fn start_with_two(&mut self, command: &Command) -> Process {
        let name = self.store[0].0.clone();
        let process = self.start_with(command, &[&name, &name], START_WITH_TWO);
        self.hear_until("READY=1");
        process
    }

    fn start_with(&self, command: &Command, names: &[&str], script: &str) -> Process {
        let mut start = Command::new("sh");
        start.args(["-c", script, "sh"]).arg(command.get_program());
        start.args(command.get_args());
        for (name, value) in command.get_envs() {
            start.env(name, value.unwrap_or_default());
        }
        start.env("NOTIFY_SOCKET", &self.at);
        let input = match self.store.first() {
            Some((_, kept)) => {
                start.env("LISTEN_FDS", names.len().to_string());
                start.env("LISTEN_FDNAMES", names.join(":"));
                kept.try_clone().unwrap().into()
            }
            None => Stdio::null(),
        };
        Process::start_with(&mut start, input, &self.directory)
    }

    /// Hears it out until it says this, and does what it asks for meanwhile.
    #[track_caller]
    pub fn hear_until(&mut self, words: &str) {
        for _ in 0..100 {
            let heard = self.hear();
            let is_it = heard.lines().any(|line| line == words);
            self.heard.push(heard);
            if is_it {
                return;
            }
        }
        panic!("it never says `{words}`, but {:?}", self.heard);
    }

    fn hear(&mut self) -> String {
        let mut buffer = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(&mut buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = retry_on_intr(|| recvmsg(&self.socket, &mut bytes, &mut with, flags));
        let length = received.expect("it says something in time").bytes;
        let mut descriptors = Vec::new();
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let heard = String::from_utf8(buffer[..length].to_vec()).unwrap();
        let name = heard.lines().find_map(|line| line.strip_prefix("FDNAME="));
        let name = name.unwrap_or("stored").to_owned();
        let says = |line: &str| heard.lines().any(|one| one == line);
        if says("FDSTOREREMOVE=1") {
            self.store.retain(|(kept, _)| *kept != name);
        } else if says("FDSTORE=1") && self.keeps {
            let named = descriptors.into_iter().map(|one| (name.clone(), one));
            self.store.extend(named);
        }
        // Everything else is closed, what a barrier has sent, too.
        heard
    }

    /// Ends the service, and starts it again after `pause` has seen what there is meanwhile.
    #[track_caller]
    pub fn restart(
        &mut self,
        service: Process,
        signal: Signal,
        command: &Command,
        pause: impl FnOnce(),
    ) -> Process {
        service.signal(signal);
        service.wait(END);
        pause();
        self.start(command)
    }

    /// Ends the service for good.
    #[track_caller]
    pub fn stop(&mut self, service: Process, signal: Signal) {
        service.signal(signal);
        service.wait(END);
        self.store.clear();
    }
}
