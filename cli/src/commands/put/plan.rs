//! Which files to send, and the name each of them gets. Nothing here touches the network.

use super::claims;
use crate::args::Put;
use crate::failure::{Failure, Outcome};
use crate::files::MAX_DEPTH;
use crate::files::naming::is_safe;
use crate::files::root::is_part;
use crate::output;
use crate::url::ServerUrl;
use anabranch_proto::error::printable;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// One file to send.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) local: PathBuf,
    pub(super) url: ServerUrl,
    /// The directory that the user named, if the file was found below it.
    pub(super) below: Option<PathBuf>,
    /// The server has just made the file's directory, so it is empty.
    pub(super) is_new: bool,
}

/// What to send.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Directories that must exist; their parents are made with them.
    pub(super) directories: Vec<ServerUrl>,
    pub(super) jobs: Vec<Job>,
    /// Files that cannot be sent, already reported.
    pub(super) failed: u64,
    is_single: bool,
}

/// A directory not yet looked into.
struct Pending {
    /// The directory that the user named.
    root: PathBuf,
    local: PathBuf,
    url: ServerUrl,
    depth: usize,
}

impl Plan {
    /// # Errors
    ///
    /// Something that the user named cannot be sent, or two would get the same name.
    pub(super) fn new(args: &Put) -> Outcome<Self> {
        let several = args.files.len() > 1;
        if several && args.url.file_name().is_some() {
            let what = format!("several files cannot all be {}", args.url.request_path());
            return Err(Failure::usage(what).hint("end the URL in a slash: they keep their names"));
        }
        let mut plan = Self {
            is_single: !several && !args.recursive,
            ..Self::default()
        };
        let mut targets = BTreeSet::new();
        let mut places = Vec::new();
        for local in &args.files {
            let is_directory = look(local, args.recursive)?;
            let target = target(&args.url, local)?;
            if !targets.insert(target.path.clone()) {
                let what = format!(
                    "{} cannot become {}: another one does",
                    local.display(),
                    target.request_path()
                );
                return Err(Failure::usage(what).hint("send it by a command of its own"));
            }
            if is_directory {
                plan.walk(local.clone(), directory(target), &mut places);
            } else {
                plan.jobs.push(Job {
                    local: local.clone(),
                    url: target,
                    below: None,
                    is_new: false,
                });
            }
        }
        claims::check(&plan.jobs, &places)?;
        if args.recursive {
            plan.directories.extend(parent(&args.url));
        }
        Ok(plan)
    }

    /// The file, if there is only one.
    pub(super) fn single(&self) -> Option<&Job> {
        self.jobs.first().filter(|_| self.is_single)
    }

    /// Finds everything in a directory and below; adds each directory and its place to `places`.
    /// Symbolic links are not followed: they may lead anywhere.
    fn walk(&mut self, local: PathBuf, url: ServerUrl, places: &mut Vec<(PathBuf, ServerUrl)>) {
        let depth = url.path.matches('/').count();
        let mut pending = vec![Pending {
            root: local.clone(),
            local,
            url,
            depth,
        }];
        while let Some(directory) = pending.pop() {
            places.push((directory.local.clone(), directory.url.clone()));
            let entries = match list(&directory) {
                Ok(entries) => entries,
                Err(why) => {
                    self.fail(&directory.local, &why);
                    continue;
                }
            };
            let before = pending.len();
            for entry in entries {
                if let Err(why) = self.add(&entry, &directory, &mut pending) {
                    self.fail(&directory.local.join(entry.file_name()), &why);
                }
            }
            // A directory with subdirectories is made along with them.
            if pending.len() == before {
                self.directories.push(directory.url);
            }
        }
    }

    fn add(
        &mut self,
        entry: &DirEntry,
        directory: &Pending,
        pending: &mut Vec<Pending>,
    ) -> Result<(), String> {
        let kind = entry.file_type().map_err(|error| error.to_string())?;
        let local = directory.local.join(entry.file_name());
        if !kind.is_dir() && !kind.is_file() {
            let kind = if kind.is_symlink() {
                "a symbolic link"
            } else {
                "no file"
            };
            let local = printable(&local.display().to_string());
            output::say(format!("note: {local}: not sent: {kind}"));
            return Ok(());
        }
        let name = entry.file_name();
        let name = name.to_str().ok_or(NOT_UTF_8)?;
        if !is_safe(name) {
            return Err("control characters in its name".into());
        }
        if is_part(name.as_bytes()) {
            return Err("the server keeps unfinished uploads under names like this".into());
        }
        let mut url = directory.url.clone();
        url.path.push_str(name);
        if kind.is_file() {
            let below = Some(directory.root.clone());
            self.jobs.push(Job {
                local,
                url,
                below,
                is_new: false,
            });
        } else if directory.depth + 1 >= MAX_DEPTH {
            return Err(format!(
                "more than {MAX_DEPTH} directories within each other"
            ));
        } else {
            url.path.push('/');
            let depth = directory.depth + 1;
            pending.push(Pending {
                root: directory.root.clone(),
                local,
                url,
                depth,
            });
        }
        Ok(())
    }

    fn fail(&mut self, local: &Path, why: &str) {
        let local = printable(&local.display().to_string());
        output::say(format!("error: {local}: not sent: {why}"));
        self.failed += 1;
    }
}

/// The entries of a directory, by name. If it has become a symbolic link since it was found, or now
/// lies behind one, it is not read.
fn list(directory: &Pending) -> Result<Vec<DirEntry>, String> {
    let opened = open_below(&directory.root, &directory.local, OFlag::O_DIRECTORY);
    let opened = opened.map_err(|error| match error {
        Errno::ELOOP | Errno::ENOTDIR => BEHIND_A_LINK.into(),
        error => io::Error::from(error).to_string(),
    })?;
    let listed = fs::read_dir(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let listed = listed.and_then(Iterator::collect);
    let mut entries: Vec<DirEntry> = listed.map_err(|error| error.to_string())?;
    entries.sort_by_key(DirEntry::file_name);
    Ok(entries)
}

const BEHIND_A_LINK: &str = "it is behind a symbolic link now";
const NOT_UTF_8: &str = "its name is no UTF-8 text, which no URL of ours can tell";

/// Opens a file to be sent. One found in a directory may have become a symbolic link since then, or
/// may now lie behind one: it is not opened. One that the user named may be a link.
///
/// # Errors
///
/// It is not a file, or cannot be read.
pub(super) fn open(job: &Job) -> Outcome<File> {
    match &job.below {
        None => open_named(&job.local),
        Some(root) => {
            let opened = open_below(root, &job.local, OFlag::empty());
            let opened = opened.map_err(|error| match error {
                Errno::ELOOP | Errno::ENOTDIR => {
                    let local = job.local.display();
                    Failure::failed(format!("{local}: not sent: {BEHIND_A_LINK}"))
                }
                error => unreadable(&job.local, &error.into()),
            });
            only_file(&job.local, File::from(opened?))
        }
    }
}

/// Opens a file that the user named.
fn open_named(local: &Path) -> Outcome<File> {
    let mut options = File::options();
    // Without O_NONBLOCK, opening a FIFO would wait for a writer.
    let options = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file = options
        .open(local)
        .map_err(|error| unreadable(local, &error))?;
    only_file(local, file)
}

/// Opens one name of the path after the other, so that none of them can be a link.
fn open_below(root: &Path, local: &Path, last: OFlag) -> Result<OwnedFd, Errno> {
    let inner = local.strip_prefix(root).map_err(|_| Errno::ENOENT)?;
    let flags = OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let on_the_way = flags | OFlag::O_PATH | OFlag::O_DIRECTORY;
    let mut at = nix::fcntl::open(root, on_the_way, Mode::empty())?;
    let mut names = inner.components().peekable();
    while let Some(name) = names.next() {
        let flags = match names.peek() {
            Some(_) => on_the_way,
            None => flags | OFlag::O_RDONLY | last,
        };
        let flags = flags | OFlag::O_NOFOLLOW;
        at = openat(at.as_fd(), name.as_os_str(), flags, Mode::empty())?;
    }
    Ok(at)
}

fn only_file(local: &Path, file: File) -> Outcome<File> {
    let metadata = file.metadata();
    let metadata = metadata.map_err(|error| unreadable(local, &error))?;
    if metadata.is_file() {
        Ok(file)
    } else {
        Err(Failure::usage(format!("{} is not a file", local.display())))
    }
}

/// Checks that something the user named can be sent; returns whether it is a directory.
fn look(local: &Path, recursive: bool) -> Outcome<bool> {
    let found = fs::metadata(local).map_err(|error| unreadable(local, &error))?;
    if !found.is_dir() {
        return open_named(local).map(|_| false);
    }
    if recursive {
        let listed = fs::read_dir(local);
        return listed
            .map(|_| true)
            .map_err(|error| unreadable(local, &error));
    }
    let what = format!("{} is a directory", local.display());
    Err(Failure::usage(what).hint("send it with all that is in it by `put -r`"))
}

fn unreadable(local: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", local.display()))
}

/// The URL for something that the user named. A URL that ends in a slash gets its name appended.
/// `.` and `..` have no name: their content goes there.
fn target(url: &ServerUrl, local: &Path) -> Outcome<ServerUrl> {
    if url.file_name().is_some() {
        return Ok(url.clone());
    }
    let mut target = directory(url.clone());
    if let Some(name) = local.file_name() {
        let name = name.to_str().ok_or_else(|| {
            let failure = Failure::usage(format!("{}: {NOT_UTF_8}", local.display()));
            failure.hint("append another name to the URL")
        })?;
        target.path.push_str(name);
    }
    Ok(target)
}

/// The URL with a slash at the end, as a directory has it.
fn directory(mut url: ServerUrl) -> ServerUrl {
    if !url.path.is_empty() && !url.path.ends_with('/') {
        url.path.push('/');
    }
    url
}

/// The directory that a URL names, or that holds what it names; `None` for the server's root.
fn parent(url: &ServerUrl) -> Option<ServerUrl> {
    let mut parent = url.clone();
    match url.file_name() {
        Some(name) => parent.path.truncate(url.path.len() - name.len()),
        None => parent = directory(parent),
    }
    (!parent.path.trim_matches('/').is_empty()).then_some(parent)
}

#[cfg(test)]
mod tests;
