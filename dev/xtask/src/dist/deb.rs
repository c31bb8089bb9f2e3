//! A package for Debian and its kin: the command, its manual, completions and services.

use super::archive::{Entry, ar, gzip, tar};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Units in `dist/` that a package has.
const UNITS: [&str; 3] = [
    "anabranch-serve.service",
    "anabranch-tunnel-join.service",
    "anabranch-tunnel-serve.service",
];

/// Another one, of which there is none before somebody names a configuration: scripts leave it
/// alone.
const TEMPLATE: &str = "anabranch-tunnel@.service";

/// Where the units of the tree expect the command, and where the package has it.
const MOVED: (&str, &str) = ("/usr/local/bin/anabranch", "/usr/bin/anabranch");

const AFTER: &str = "\
#!/bin/sh
set -e
# No service is started that nobody asked for; after an update, those that run start again.
if [ \"$1\" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    [ -z \"$2\" ] || systemctl try-restart UNITS || true
fi
";

const BEFORE_REMOVAL: &str = "\
#!/bin/sh
set -e
if [ \"$1\" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now UNITS || true
fi
";

const AFTER_REMOVAL: &str = "\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
";

/// What the command says of itself, the same on every machine.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// The manual, section 1.
    pub(super) manual: Vec<u8>,
    /// Completions for bash.
    pub(super) completions: Vec<u8>,
}

/// The package: `binary` for `architecture`, in Debian's words.
pub(super) fn package(
    root: &Path,
    architecture: &str,
    binary: &[u8],
    notices: &str,
    pages: Option<&Pages>,
) -> Result<Vec<u8>, String> {
    let files = files(root, binary, notices, pages)?;
    let data = gzip(&tar(&with_parents(&files))?)?;
    let kilobytes = files.iter().map(Entry::kilobytes).sum::<usize>();
    let units = UNITS.join(" ");
    let script = |path, text: &str| Entry::program(path, text.replace("UNITS", &units));
    let control = [
        Entry::file("./control", control(architecture, kilobytes)),
        script("./postinst", AFTER),
        script("./prerm", BEFORE_REMOVAL),
        script("./postrm", AFTER_REMOVAL),
    ];
    let control = gzip(&tar(&control)?)?;
    Ok(ar(&[
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", &control),
        ("data.tar.gz", &data),
    ]))
}

/// The file `control`.
fn control(architecture: &str, kilobytes: usize) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "\
Package: anabranch
Version: {version}
Architecture: {architecture}
Maintainer: anabranch maintainers <maintainers@anabranch.invalid>
Installed-Size: {kilobytes}
Section: net
Priority: optional
Suggests: nftables
Description: one stream of data over several networks at once
 Moves files over several links at once, and joins links for applications and
 whole hosts: a proxy here, its far end on a server, and multipath QUIC
 (RFC 10069) between them. A link that falls silent costs some milliseconds.
 .
 This package has the command without its laboratory, as one static program.
"
    )
}

fn files(
    root: &Path,
    binary: &[u8],
    notices: &str,
    pages: Option<&Pages>,
) -> Result<Vec<Entry>, String> {
    let read = |name: &str| {
        let path = root.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let changes = gzip(read("CHANGELOG.md")?.as_bytes())?;
    let mut files = vec![
        Entry::program("./usr/bin/anabranch", binary),
        Entry::file("./usr/share/doc/anabranch/copyright", notices),
        Entry::file("./usr/share/doc/anabranch/changelog.gz", changes),
    ];
    for unit in UNITS.into_iter().chain([TEMPLATE]) {
        let text = installed(&read(&format!("dist/{unit}"))?);
        let path = format!("./usr/lib/systemd/system/{unit}");
        files.push(Entry::file(&path, text));
    }
    if let Some(pages) = pages {
        let manual = gzip(&pages.manual)?;
        files.push(Entry::file("./usr/share/man/man1/anabranch.1.gz", manual));
        let path = "./usr/share/bash-completion/completions/anabranch";
        files.push(Entry::file(path, pages.completions.clone()));
    }
    Ok(files)
}

/// A unit as the package has it: without the lines that say how to install it by hand.
fn installed(unit: &str) -> String {
    let by_hand = |line: &&str| {
        let starts = ["#   install -m 755", "#   install -m 644"];
        starts.iter().any(|start| line.starts_with(start))
    };
    let lines = unit.lines().filter(|line| !by_hand(line));
    let lines = lines.map(|line| line.replace(MOVED.0, MOVED.1) + "\n");
    lines.collect()
}

/// The files, each after the directories it is in.
fn with_parents(files: &[Entry]) -> Vec<Entry> {
    let mut known = BTreeSet::new();
    let mut entries = Vec::new();
    for file in files {
        for (at, _) in file.path().match_indices('/') {
            let directory = &file.path()[..=at];
            if known.insert(directory.to_owned()) {
                entries.push(Entry::directory(directory, 0, 0o755));
            }
        }
        entries.push(file.clone());
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_after_its_directories_and_these_come_once() {
        let files = [Entry::file("./a/b/c", "1"), Entry::file("./a/d", "2")];
        let entries = with_parents(&files);
        let paths: Vec<_> = entries.iter().map(Entry::path).collect();
        assert_eq!(paths, ["./", "./a/", "./a/b/", "./a/b/c", "./a/d"]);
    }

    #[test]
    fn the_services_of_a_package_run_the_command_of_the_package() {
        let root = crate::root();
        for unit in UNITS.into_iter().chain([TEMPLATE]) {
            let text = fs::read_to_string(root.join("dist").join(unit)).expect("a unit");
            let text = installed(&text);
            assert!(text.contains("ExecStart=/usr/bin/anabranch "), "{unit}");
            assert!(!text.contains("/usr/local"), "{unit}");
            assert!(!text.contains("install -m 755"), "{unit}");
        }
    }

    #[test]
    fn no_service_shows_the_url_that_lets_it_in() {
        let place = crate::root().join("dist/anabranch-tunnel-join.service");
        let text = fs::read_to_string(place).expect("a unit");
        let lines: Vec<&str> = text.lines().collect();
        let start = lines.iter().find(|line| line.starts_with("ExecStart="));
        let start = start.expect("a command");
        assert!(
            start.contains(" --url-file ${CREDENTIALS_DIRECTORY}/url ") && !start.contains("URL}"),
            "{start}"
        );
        let credential = "LoadCredential=url:/etc/anabranch/join.url";
        assert!(lines.contains(&credential));
        // What a person reads of it writes that file, for root alone.
        assert!(text.contains("umask 077") && text.contains("> /etc/anabranch/join.url"));
    }

    #[test]
    fn a_package_has_its_three_members() {
        let pages = Pages::default();
        let package = package(&crate::root(), "arm64", b"binary", "", Some(&pages));
        let package = package.expect("files of the tree");
        assert!(package.starts_with(b"!<arch>\ndebian-binary "));
        let members = String::from_utf8_lossy(&package);
        let control = members.find("control.tar.gz").expect("a member");
        assert!(control < members.find("data.tar.gz").expect("a member"));
    }
}
