//! Where each file goes, and what is refused before anything is sent.

use super::*;
use crate::args::{Cli, Command};
use clap::Parser;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

fn plan(here: &Path, line: &str) -> Outcome<Plan> {
    let line = line.replace("URL", "anabranch://host");
    let words = line.split(' ').map(|word| match word.strip_prefix("./") {
        Some(name) => here.join(name).display().to_string(),
        None => word.to_owned(),
    });
    let words = ["anabranch".to_owned(), "put".into()]
        .into_iter()
        .chain(words);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Put(put) => Plan::new(&put),
        _ => panic!("not put"),
    }
}

fn urls<'a>(urls: impl IntoIterator<Item = &'a ServerUrl>) -> Vec<String> {
    let mut paths: Vec<String> = urls.into_iter().map(ServerUrl::request_path).collect();
    paths.sort();
    paths
}

fn names(plan: &Plan) -> Vec<String> {
    urls(plan.jobs.iter().map(|job| &job.url))
}

fn tree() -> tempfile::TempDir {
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name);
    fs::create_dir_all(at("tree/sub/empty")).unwrap();
    fs::create_dir(at("other")).unwrap();
    for name in ["file", "tree/a", "tree/sub/b c", "other/file"] {
        fs::write(at(name), name).unwrap();
    }
    here
}

#[test]
fn names_are_kept_where_the_url_ends_in_a_slash() {
    let here = tree();
    let here = here.path();
    assert_eq!(names(&plan(here, "./file URL/").unwrap()), ["/file"]);
    assert_eq!(names(&plan(here, "./file URL/d/").unwrap()), ["/d/file"]);
    assert_eq!(names(&plan(here, "./file URL/d/x").unwrap()), ["/d/x"]);
    assert_eq!(
        names(&plan(here, "./file URL/d/..").unwrap()),
        ["/d/../file"]
    );
    let both = plan(here, "./file ./tree/a URL").unwrap();
    assert_eq!(names(&both), ["/a", "/file"]);
    assert!(both.directories.is_empty() && both.single().is_none());
}

#[test]
fn a_directory_goes_with_all_that_is_in_it() {
    let here = tree();
    for (line, below) in [
        ("-r ./tree URL/", "/tree"),
        ("-r ./tree/ URL", "/tree"),
        ("-r ./tree URL/x", "/x"),
        ("-r ./tree URL/d/e/", "/d/e/tree"),
        ("-r ./tree/sub/.. URL/d/", "/d"),
        ("-r ./tree/sub/.. URL/", ""),
    ] {
        let plan = plan(here.path(), line).unwrap();
        let at = |name: &str| format!("{below}/{name}");
        assert_eq!(names(&plan), [at("a"), at("sub/b%20c")], "{line}");
        let made = urls(&plan.directories);
        assert!(made.contains(&at("sub/empty/")), "{line}: {made:?}");
        assert!(!made.contains(&"/".to_owned()), "{line}: {made:?}");
    }
}

#[test]
fn what_cannot_all_be_sent_is_refused_before_anything_is() {
    let here = tree();
    for (line, word) in [
        ("./tree URL/", "put -r"),
        ("./file ./tree URL/", "put -r"),
        ("./file ./other/file URL/", "another one"),
        ("-r ./file ./tree URL/x", "slash"),
        ("./missing URL/", "cannot read"),
        ("/dev/null URL/", "not a file"),
    ] {
        let refused = plan(here.path(), line).unwrap_err();
        assert!(matches!(refused, Failure::Usage(_)), "{line}");
        let report = refused.report().unwrap();
        assert!(report.contains(word), "{line}: {report}");
    }
}

#[test]
fn no_two_files_get_one_name_on_the_server() {
    let here = tree();
    let at = |name: &str| here.path().join(name);
    fs::create_dir_all(at("deep/tree/a")).unwrap();
    fs::create_dir_all(at("deep/more/tree")).unwrap();
    fs::write(at("deep/more/tree/b"), "").unwrap();
    for (line, ours, theirs) in [
        (
            "-r ./tree/sub/.. ./other/../tree/a URL/",
            "tree/sub/../a",
            "other/../tree/a",
        ),
        ("-r ./tree/a ./tree/sub/.. URL/", "tree/a", "tree/sub/../a"),
        (
            "-r ./other/../deep ./tree/sub/.. ./deep/tree/a URL/",
            "tree/sub/../a",
            "deep/tree/a",
        ),
        ("-r ./file ./deep/../file/../other/. URL/", "file", "other"),
    ] {
        let Err(refused) = plan(here.path(), line) else {
            panic!("{line}");
        };
        assert!(matches!(refused, Failure::Usage(_)), "{line}");
        for name in [ours, theirs] {
            assert!(refused.what().contains(name), "{line}: {refused:?}");
        }
    }
    // Directories that get the same name are merged.
    let both = plan(here.path(), "-r ./deep/more/tree/.. ./tree URL/").unwrap();
    assert_eq!(names(&both), ["/tree/a", "/tree/b", "/tree/sub/b%20c"]);
}

#[test]
fn what_becomes_a_link_after_it_was_found_is_not_followed() {
    let here = tree();
    let at = |name: &str| here.path().join(name);
    symlink("tree", at("named")).unwrap();
    symlink("file", at("link")).unwrap();
    let plan = plan(here.path(), "-r ./named ./link URL/").unwrap();
    for job in &plan.jobs {
        open(job).unwrap();
    }
    fs::rename(at("tree/a"), at("tree/gone")).unwrap();
    symlink("/etc/passwd", at("tree/a")).unwrap();
    fs::rename(at("tree/sub"), at("gone")).unwrap();
    symlink(at("gone"), at("tree/sub")).unwrap();
    for job in &plan.jobs {
        match open(job) {
            Ok(_) => assert_eq!(job.local, at("link")),
            Err(error) => assert!(error.what().contains("symbolic link"), "{error:?}"),
        }
    }
    assert_eq!(plan.jobs.len(), 3);
}

#[test]
fn a_directory_that_becomes_a_link_after_it_was_found_is_not_looked_into() {
    let here = tree();
    let at = |name: &str| here.path().join(name);
    let found = |local: &str| Pending {
        root: at("tree"),
        local: at(local),
        url: "anabranch://host/tree/".parse().unwrap(),
        depth: 1,
    };
    let names = |listed: Vec<DirEntry>| listed.iter().map(DirEntry::file_name).collect::<Vec<_>>();
    assert_eq!(names(list(&found("tree/sub")).unwrap()), ["b c", "empty"]);
    fs::rename(at("tree/sub"), at("gone")).unwrap();
    symlink(at("gone"), at("tree/sub")).unwrap();
    for behind in ["tree/sub", "tree/sub/empty"] {
        let refused = list(&found(behind)).unwrap_err();
        assert!(refused.contains("symbolic link"), "{refused}");
    }
    // What the user named may be a link.
    symlink("tree", at("named")).unwrap();
    let named = Pending {
        root: at("named"),
        ..found("named")
    };
    assert_eq!(names(list(&named).unwrap()), ["a", "sub"]);
}

#[test]
fn a_pipe_is_not_waited_for() {
    let here = tempfile::tempdir().unwrap();
    let mode = Mode::S_IRUSR;
    nix::unistd::mkfifo(&here.path().join("pipe"), mode).unwrap();
    let refused = plan(here.path(), "./pipe URL/").unwrap_err();
    assert!(refused.what().contains("not a file"), "{refused:?}");
}

#[test]
fn names_that_no_url_tells_are_told_and_keep_no_other() {
    let here = tempfile::tempdir().unwrap();
    let tree = here.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for name in [&b"a"[..], b"\xff", b"x\ny", b".f.0123.part"] {
        fs::write(tree.join(OsStr::from_bytes(name)), "").unwrap();
    }
    symlink("/etc", tree.join("link")).unwrap();
    let plan = plan(here.path(), "-r ./tree URL/").unwrap();
    assert_eq!(names(&plan), ["/tree/a"]);
    assert_eq!(plan.failed, 3);
    let url = "anabranch://host/".parse().unwrap();
    let refused = target(&url, Path::new(OsStr::from_bytes(b"\xff"))).unwrap_err();
    assert!(refused.what().contains("UTF-8"), "{refused:?}");
}

#[test]
fn directories_within_each_other_have_an_end() {
    let here = tempfile::tempdir().unwrap();
    let deep = vec!["d"; MAX_DEPTH + 5].join("/");
    fs::create_dir_all(here.path().join(&deep)).unwrap();
    let plan = plan(here.path(), "-r ./d URL/").unwrap();
    assert_eq!(plan.failed, 1);
    let levels = |url: &ServerUrl| url.path.matches('/').count();
    assert_eq!(
        plan.directories.iter().map(levels).max(),
        Some(MAX_DEPTH - 1)
    );
}
