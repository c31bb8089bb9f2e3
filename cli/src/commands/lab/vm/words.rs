//! Translates words and paths between here and the guest.

use super::guest;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The option that leads into the machine.
const IN_VM: &str = "--in-vm";

/// The option that says where results go.
const OUT: &str = "--out";

/// The typed words as the guest gets them: files under their paths inside, results to `out`, and
/// nothing about the machine.
pub(super) fn inside(
    typed: &[String],
    files: &BTreeMap<String, String>,
    out: Option<&str>,
) -> Vec<String> {
    let mut words = Vec::new();
    let mut typed = typed.iter();
    let mut ended = None;
    while let Some(word) = typed.next() {
        let option = ended.is_none();
        match word.as_str() {
            IN_VM if option => continue,
            OUT if option => {
                // Skips its value.
                typed.next();
                continue;
            }
            "--" if option => ended = Some(words.len()),
            other if option && is_given(other, IN_VM) => continue,
            other if option && is_given(other, OUT) => continue,
            _ => {}
        }
        words.push(files.get(word).unwrap_or(word).clone());
    }
    if let Some(out) = out {
        let at = ended.unwrap_or(words.len());
        words.splice(at..at, [OUT.to_owned(), out.to_owned()]);
    }
    words
}

/// Whether a word is `option=value`.
fn is_given(word: &str, option: &str) -> bool {
    word.strip_prefix(option)
        .is_some_and(|rest| rest.starts_with('='))
}

/// A line from inside, with the folders and files named as they are here.
pub(super) fn outside(line: &str, folders: &[(String, PathBuf)]) -> String {
    let mut line = line.to_owned();
    for (inside, folder) in folders {
        line = line.replace(inside.as_str(), &folder.display().to_string());
    }
    line.replace(&format!("{}/", guest::FILES), "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_command_is_the_same_inside_but_for_files_results_and_the_machine() {
        let files = BTreeMap::from([("s.toml".to_owned(), "/host/srv/me/s.toml".to_owned())]);
        let to = |line: &str| inside(&words(line), &files, Some("/results/out")).join(" ");
        assert_eq!(
            to("lab run s.toml --in-vm --out here --runs 2"),
            "lab run /host/srv/me/s.toml --runs 2 --out /results/out"
        );
        assert_eq!(
            to("-q lab run --in-vm=tcg aveiro-lbd --out=there --json"),
            "-q lab run aveiro-lbd --json --out /results/out"
        );
        assert_eq!(
            to("lab run --in-vm -- s.toml --out"),
            "lab run --out /results/out -- /host/srv/me/s.toml --out"
        );
        let validate = inside(&words("lab validate --links both --in-vm"), &files, None);
        assert_eq!(validate.join(" "), "lab validate --links both");
    }

    #[test]
    fn what_is_said_inside_names_what_is_here() {
        let folders = [("/results/out/a".to_owned(), PathBuf::from("mine/a"))];
        assert_eq!(
            outside("results are in /results/out/a", &folders),
            "results are in mine/a"
        );
        assert_eq!(
            outside("error: /host/srv/me/s.toml:3: no", &folders),
            "error: /srv/me/s.toml:3: no"
        );
    }
}
