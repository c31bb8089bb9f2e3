//! The notices that the licences of all that is linked ask for: each text once, with the names
//! of the packages that it belongs to.

use crate::metadata::{Metadata, Package};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// How the names of such files begin, in upper case.
const BEGINNINGS: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

const HEAD: &str = "\
anabranch is under the MIT licence or the Apache License 2.0, at your option. Linked with it are
the Rust standard library (MIT or Apache-2.0, the contributors to Rust), musl (MIT, Rich Felker and
others), and the packages named below.
";

/// The notices for what is linked for a machine.
pub(super) fn notices(root: &Path, triple: &str) -> Result<String, String> {
    let linked = linked(root, triple)?;
    let metadata = Metadata::load(root, true)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut silent = Vec::new();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        if metadata.is_member(package) || !linked.contains(&name) {
            continue;
        }
        let found = of(package)?;
        if found.is_empty() {
            let licence = package.license.as_deref().unwrap_or("see its files");
            silent.push(format!("{name} ({licence})"));
        }
        for text in found {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    let own = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| {
        let path = root.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    });
    let [mit, apache] = own;
    let mut all = format!("{HEAD}\n{}\n\n{}\n", mit?.trim_end(), apache?.trim_end());
    for (text, names) in &texts {
        let _ = write!(
            all,
            "\n{}\n{}\n\n{text}\n",
            "-".repeat(70),
            names.join(", ")
        );
    }
    if !silent.is_empty() {
        let _ = write!(
            all,
            "\n{}\nWithout a text of their own: {}\n",
            "-".repeat(70),
            silent.join(", ")
        );
    }
    Ok(all)
}

/// Names and versions of everything in the binary.
fn linked(root: &Path, triple: &str) -> Result<BTreeSet<String>, String> {
    let words = "tree --locked --package anabranch-cli --no-default-features --edges \
                 normal,no-proc-macro \
                 --prefix none --format {p} --target";
    let output = crate::cargo()
        .current_dir(root)
        .args(words.split_whitespace())
        .arg(triple)
        .output()
        .map_err(|error| format!("cannot run cargo tree: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo tree failed: {}", why.trim()));
    }
    Ok(names(&String::from_utf8_lossy(&output.stdout)))
}

/// The names in what `cargo tree` prints: `NAME vVERSION`, and perhaps more.
fn names(tree: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, version) = (words.next()?, words.next()?);
        Some(format!("{name} {}", version.strip_prefix('v')?))
    };
    tree.lines().filter_map(name).collect()
}

/// The texts that a package brings.
fn of(package: &Package) -> Result<Vec<String>, String> {
    let folder = Path::new(&package.manifest_path).parent();
    let folder = folder.ok_or("a package without a folder")?;
    let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(problem)? {
        let entry = entry.map_err(problem)?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_file = entry.file_type().map_err(problem)?.is_file();
        if is_file && BEGINNINGS.iter().any(|start| name.starts_with(start)) {
            let text = fs::read(entry.path()).map_err(problem)?;
            let text = String::from_utf8_lossy(&text).replace('\r', "");
            texts.insert(name, text.trim().to_owned());
        }
    }
    Ok(texts.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_once_however_often_it_is_used() {
        let tree = "a v1.0.0 (/folder)\nb v0.2.1\nb v0.2.1 (*)\n\nc v3.0.0+meta (proc-macro)\n";
        let expected = ["a 1.0.0", "b 0.2.1", "c 3.0.0+meta"];
        assert_eq!(names(tree), expected.map(str::to_owned).into());
    }
}
