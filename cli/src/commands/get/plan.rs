//! Which files to fetch, and where each of them goes. Nothing here touches the network.

use super::claims::Claims;
use crate::args::Get;
use crate::failure::{Failure, Outcome};
use crate::files::naming::is_safe;
use crate::url::ServerUrl;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Where a file goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A file of this name.
    File(PathBuf),
    /// Stdout.
    Stdout,
}

/// One file to fetch.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) url: ServerUrl,
    pub(super) place: Place,
}

/// What `-o` means.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Output {
    /// Everything goes into this directory under its own name.
    Into(PathBuf),
    /// The one file gets this name.
    Named(PathBuf),
    Stdout,
}

/// What the user asked for.
#[derive(Debug)]
pub(super) struct Plan {
    urls: Vec<ServerUrl>,
    output: Output,
    recursive: bool,
}

impl Plan {
    /// # Errors
    ///
    /// The options contradict each other.
    pub(super) fn new(args: &Get) -> Outcome<Self> {
        let several = args.urls.len() > 1 || args.recursive;
        let output = output(args.output.as_deref(), several)?;
        if output == Output::Stdout {
            if args.recursive {
                let failure = Failure::usage("a directory cannot go to stdout");
                return Err(failure.hint("say `-o DIR`, or leave out `-r`"));
            }
            if args.moving.report.json {
                let failure = Failure::usage("the file and `--json` would both go to stdout");
                return Err(failure.hint("say `-o FILE`, or leave out `--json`"));
            }
        }
        let directory = args.urls.iter().find(|url| url.file_name().is_none());
        if let Some(url) = directory.filter(|_| !args.recursive) {
            if args.urls.len() > 1 {
                let what = format!("{} is a directory", url.request_path());
                let hint = "list it by a command of its own, or fetch it with `-r`";
                return Err(Failure::usage(what).hint(hint));
            }
            if args.output.is_some() {
                let what = "the URL names a directory, which is listed on stdout: no `-o`";
                let hint = "append the name of a file to the URL, or fetch it with `-r`";
                return Err(Failure::usage(what).hint(hint));
            }
        }
        let mut urls = args.urls.clone();
        // The sort is stable: it keeps the order within a server.
        let rank = |url: &ServerUrl| args.urls.iter().position(|one| one.is_same_server(url));
        urls.sort_by_cached_key(rank);
        let plan = Self {
            urls,
            output,
            recursive: args.recursive,
        };
        plan.claims()?;
        Ok(plan)
    }

    /// The names that the requested files will get.
    ///
    /// # Errors
    ///
    /// Two of them get in each other's way.
    pub(super) fn claims(&self) -> Outcome<Claims> {
        let mut claims = Claims::default();
        for url in &self.urls {
            let target = match (&self.output, url.file_name()) {
                (Output::Stdout, _) => continue,
                _ if self.recursive => self.directory(url),
                (_, None) => continue,
                (Output::Named(path), _) => path.clone(),
                (Output::Into(directory), Some(name)) => directory.join(name),
            };
            claims.claim(&target).map_err(|why| {
                let what = format!(
                    "{} cannot go to {}: {why}",
                    url.request_path(),
                    target.display()
                );
                Failure::usage(what).hint("fetch it by a command of its own, to another place")
            })?;
        }
        Ok(claims)
    }

    /// All URLs.
    pub(super) fn urls(&self) -> &[ServerUrl] {
        &self.urls
    }

    /// The URLs of each server.
    pub(super) fn by_server(&self) -> impl Iterator<Item = &[ServerUrl]> {
        self.urls.chunk_by(ServerUrl::is_same_server)
    }

    /// Whether there is only one URL.
    pub(super) fn is_single(&self) -> bool {
        self.urls.len() == 1
    }

    /// Checks that the files can be put where they belong, before any request is sent.
    ///
    /// # Errors
    ///
    /// A directory cannot be written, or its name belongs to a file.
    pub(super) fn check_targets(&self, urls: &[ServerUrl]) -> Outcome {
        if self.recursive {
            return Ok(());
        }
        for url in urls.iter().filter(|url| url.file_name().is_some()) {
            let Place::File(target) = self.job(url).place else {
                continue;
            };
            if target.is_dir() {
                let what = format!("{} is a directory", target.display());
                return Err(Failure::usage(what).hint("say where to put the file with `-o FILE`"));
            }
            let parent = target.parent().filter(|one| !one.as_os_str().is_empty());
            let is_missing = |parent: &&Path| !self.is_to_be_made(parent) && !parent.is_dir();
            if let Some(parent) = parent.filter(is_missing) {
                let what = format!("there is no directory {}", parent.display());
                return Err(Failure::usage(what).hint("make it, or choose another with `-o`"));
            }
        }
        Ok(())
    }

    fn is_to_be_made(&self, directory: &Path) -> bool {
        matches!(&self.output, Output::Into(path) if path == directory)
    }

    /// Makes the directory that everything goes into.
    ///
    /// # Errors
    ///
    /// It cannot be made.
    pub(super) fn prepare(&self) -> Outcome {
        match &self.output {
            Output::Into(directory) => make(directory, directory),
            Output::Named(_) | Output::Stdout => Ok(()),
        }
    }

    /// The job for the file at a URL.
    pub(super) fn job(&self, url: &ServerUrl) -> Job {
        let name = url.file_name().unwrap_or_default();
        let place = match &self.output {
            Output::Stdout => Place::Stdout,
            Output::Named(path) => Place::File(path.clone()),
            Output::Into(directory) => Place::File(directory.join(name)),
        };
        Job {
            url: url.clone(),
            place,
        }
    }

    /// The local directory for the content of the directory at a URL.
    pub(super) fn directory(&self, url: &ServerUrl) -> PathBuf {
        let (Output::Into(base) | Output::Named(base)) = &self.output else {
            return PathBuf::new();
        };
        // The root of the server has no name.
        let name = url.path.trim_end_matches('/').rsplit('/').next();
        match name {
            Some(name) if is_safe(name) => base.join(name),
            _ => base.clone(),
        }
    }
}

/// What `-o` means; `several` files need a directory.
fn output(given: Option<&Path>, several: bool) -> Outcome<Output> {
    let Some(path) = given else {
        return Ok(Output::Into(PathBuf::new()));
    };
    if path == Path::new("-") {
        return Ok(Output::Stdout);
    }
    let says_directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if says_directory || several || path.is_dir() {
        if path.exists() && !path.is_dir() {
            let what = format!("{} is not a directory", path.display());
            return Err(Failure::usage(what).hint("several files need a directory: `-o DIR/`"));
        }
        return Ok(Output::Into(path.into()));
    }
    Ok(Output::Named(path.into()))
}

/// Makes `directory`, which is `root` or below it. Nothing below the root may be a symbolic link,
/// which could lead elsewhere.
///
/// # Errors
///
/// It cannot be made, or something else has its name.
pub(super) fn make(root: &Path, directory: &Path) -> Outcome {
    let fail = |path: &Path, error: &io::Error| {
        Failure::usage(format!(
            "cannot make the directory {}: {error}",
            path.display()
        ))
    };
    if !root.as_os_str().is_empty() && !root.is_dir() {
        if root.exists() {
            let what = format!("{} is here already, and no directory", root.display());
            return Err(Failure::usage(what).hint("choose another place with `-o DIR`"));
        }
        fs::create_dir_all(root).map_err(|error| fail(root, &error))?;
    }
    let below = directory.strip_prefix(root).unwrap_or(directory);
    let mut path = root.to_owned();
    for part in below.components() {
        let Component::Normal(name) = part else {
            let what = format!("{} is not below {}", directory.display(), root.display());
            return Err(Failure::failed(what));
        };
        path.push(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let found = fs::symlink_metadata(&path).map_err(|error| fail(&path, &error))?;
                if !found.is_dir() {
                    let what = format!("{} is here already, and no directory", path.display());
                    return Err(Failure::failed(what));
                }
            }
            made => made.map_err(|error| fail(&path, &error))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn plan(line: &str) -> Outcome<Plan> {
        let line = line.replace("URL", "anabranch://host");
        match Cli::try_parse_from(format!("anabranch get {line}").split(' '))
            .unwrap()
            .command
        {
            Command::Get(get) => Plan::new(&get),
            _ => panic!("not get"),
        }
    }

    fn places(plan: &Plan) -> Vec<String> {
        let place = |url| match plan.job(url).place {
            Place::File(path) => path.display().to_string(),
            Place::Stdout => "-".into(),
        };
        plan.urls.iter().map(place).collect()
    }

    #[test]
    fn the_target_may_be_a_file_a_directory_or_stdout() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path().display();
        assert_eq!(places(&plan("URL/f").unwrap()), ["f"]);
        assert_eq!(places(&plan("URL/f -o -").unwrap()), ["-"]);
        assert_eq!(
            places(&plan(&format!("URL/f -o {here}/g")).unwrap()),
            [format!("{here}/g")]
        );
        assert_eq!(
            places(&plan(&format!("URL/f -o {here}")).unwrap()),
            [format!("{here}/f")]
        );
        let new = format!("{here}/new/");
        let plan = plan(&format!("URL/d/f -o {new}")).unwrap();
        assert_eq!(places(&plan), [format!("{new}f")]);
        plan.check_targets(plan.urls()).unwrap();
        assert!(!directory.path().join("new").exists());
        plan.prepare().unwrap();
        assert!(directory.path().join("new").is_dir());
    }

    #[test]
    fn several_files_go_into_a_directory_and_never_into_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "x").unwrap();
        let refused = plan(&format!("URL/a URL/b -o {}", file.display())).unwrap_err();
        assert!(refused.what().contains("not a directory"), "{refused:?}");
        let into = directory.path().join("in").display().to_string();
        let both = plan(&format!("URL/a URL/b -o {into}")).unwrap();
        assert_eq!(places(&both), [format!("{into}/a"), format!("{into}/b")]);
        assert!(
            plan("URL/a URL/d/")
                .unwrap_err()
                .what()
                .contains("directory")
        );
        assert!(plan("URL/d/ -o x").unwrap_err().what().contains("listed"));
        assert!(
            plan("-r URL/d/ -o -")
                .unwrap_err()
                .what()
                .contains("stdout")
        );
        assert!(
            plan("URL/d -o - --json")
                .unwrap_err()
                .what()
                .contains("--json")
        );
    }

    #[test]
    fn each_server_is_asked_once_for_all_its_files() {
        let plan = plan("URL/a anabranch://other/b URL/c").unwrap();
        let groups: Vec<usize> = plan.by_server().map(<[ServerUrl]>::len).collect();
        assert_eq!(groups, [2, 1]);
        assert_eq!(places(&plan), ["a", "c", "b"]);
    }

    #[test]
    fn a_directory_keeps_its_name_and_the_root_has_none() {
        let found = |line| {
            let plan = plan(line).unwrap();
            let found = plan.urls.iter().map(|url| plan.directory(url));
            found.collect::<Vec<_>>()
        };
        assert_eq!(
            found("-r URL/a/b/ URL/c URL/ -o /out"),
            ["/out/b", "/out/c", "/out"].map(PathBuf::from)
        );
        assert_eq!(found("-r URL/a/.. -o /out"), [PathBuf::from("/out")]);
    }

    #[test]
    fn two_urls_for_one_name_are_refused_before_anything_is_done() {
        for line in [
            "URL/a URL/d/a",
            "URL/a anabranch://other/a",
            "URL/a URL/a.part",
            "URL/a.part.etag URL/a",
            "-r URL/d/a URL/e/a/",
        ] {
            let refused = plan(line).unwrap_err();
            assert!(matches!(refused, Failure::Usage(_)), "{line}: {refused:?}");
        }
        plan("URL/a URL/a.etag").unwrap();
    }

    #[test]
    fn a_file_in_the_place_of_a_directory_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let failure = make(file.path(), file.path()).unwrap_err();
        assert!(failure.what().contains("no directory"), "{failure:?}");
    }

    #[test]
    fn nothing_is_made_behind_a_link_or_outside() {
        let directory = tempfile::tempdir().unwrap();
        let (root, outside) = (
            directory.path().join("root"),
            directory.path().join("outside"),
        );
        fs::create_dir(&outside).unwrap();
        make(&root, &root.join("a/b")).unwrap();
        assert!(root.join("a/b").is_dir());
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        make(&root, &root.join("link/x")).unwrap_err();
        make(&root, &root.join("a/../../outside/x")).unwrap_err();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}
