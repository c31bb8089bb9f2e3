//! What machines without Rust are given: static, stripped binaries of the command without the
//! laboratory, packages for Debian and images for containers, and their sums as `sha256sum --check`
//! reads them, all in `target/packages`.
//!
//! ```text
//! build    a target -> the program
//! deb, oci the program -> a package, an image
//! archive  their formats
//! licences the notices that each of them has
//! ```

mod archive;
mod build;
mod deb;
mod elf;
mod licences;
mod oci;
#[cfg(test)]
mod openwrt;

use build::{TARGETS, Target};
use deb::Pages;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes that a binary may have.
const MOST_BYTES: usize = 12_000_000;

/// A finished file.
struct Made {
    name: String,
    bytes: usize,
    sum: String,
}

/// Builds for the targets of these names, or for all; returns true if each was built and none is
/// too large.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<bool, String> {
    let known = |word: &&str| TARGETS.iter().any(|target| target.triple == *word);
    if let Some(word) = words.iter().find(|word| !known(word)) {
        let names = TARGETS.map(|target| target.triple).join(", ");
        return Err(format!("no target `{word}`; there are: {names}"));
    }
    let folder = root.join("target/packages");
    let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
    // Sums are of what this call makes: nothing older lies beside it.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(problem)?;
    }
    fs::create_dir_all(&folder).map_err(problem)?;
    let wanted = |target: &&Target| words.is_empty() || words.contains(&target.triple);
    let (mut made, mut good) = (Vec::new(), true);
    let mut pages = None;
    for target in TARGETS.iter().filter(wanted) {
        let missing = target.missing();
        for what in &missing {
            eprintln!("dist: {}: {what}", target.triple);
        }
        if !missing.is_empty() {
            good = false;
            continue;
        }
        let binary = target.build(root)?;
        if binary.len() > MOST_BYTES {
            eprintln!(
                "dist: {}: {} bytes, {MOST_BYTES} are allowed: see `[profile.dist.package]` in \
                 Cargo.toml for what is built for size",
                target.triple,
                binary.len()
            );
            good = false;
            continue;
        }
        pages = pages.or_else(|| ask(&target.built(root)));
        if pages.is_none() {
            let triple = target.triple;
            eprintln!("dist: {triple} does not run here: its package has no manual");
        }
        made.extend(pack(root, &folder, target, &binary, pages.as_ref())?);
    }
    let sums: String = made.iter().map(Made::sum_line).collect();
    fs::write(folder.join("SHA256SUMS"), sums).map_err(problem)?;
    crate::say(table(&made).trim_end());
    Ok(good)
}

/// Writes the program, its package, its image and the licences of what is linked.
fn pack(
    root: &Path,
    folder: &Path,
    target: &Target,
    binary: &[u8],
    pages: Option<&Pages>,
) -> Result<[Made; 4], String> {
    let version = env!("CARGO_PKG_VERSION");
    let notices = licences::notices(root, target.triple)?;
    let package = deb::package(root, target.debian, binary, &notices, pages)?;
    let image = oci::image(target.oci, binary, &notices)?;
    let program = folder.join(format!("anabranch-{version}-{}", target.triple));
    let made = [
        Made::write(&program, binary)?,
        Made::write(
            &folder.join(format!("anabranch_{version}_{}.deb", target.debian)),
            &package,
        )?,
        Made::write(
            &folder.join(format!("anabranch-{version}-{}.oci.tar", target.oci)),
            &image,
        )?,
        Made::write(
            &folder.join(format!("anabranch-{version}-{}.licences", target.triple)),
            notices.as_bytes(),
        )?,
    ];
    let runs = fs::set_permissions(&program, Permissions::from_mode(0o755));
    runs.map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(made)
}

/// What the command says of itself, if it runs on this machine.
fn ask(program: &Path) -> Option<Pages> {
    let ask = |words: &[&str]| {
        let mut command = Command::new(program);
        let output = command.args(words).stderr(Stdio::null()).output().ok()?;
        output.status.success().then_some(output.stdout)
    };
    Some(Pages {
        manual: ask(&["man"])?,
        completions: ask(&["completions", "bash"])?,
    })
}

/// SHA-256 of it, in hexadecimal.
fn hex(content: &[u8]) -> String {
    Sha256::digest(content)
        .iter()
        .fold(String::new(), |mut sum, byte| {
            // Writing to a string cannot fail.
            let _ = write!(sum, "{byte:02x}");
            sum
        })
}

impl Made {
    fn write(path: &Path, content: &[u8]) -> Result<Self, String> {
        fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.file_name().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            bytes: content.len(),
            sum: hex(content),
        })
    }

    fn sum_line(&self) -> String {
        format!("{}  {}\n", self.sum, self.name)
    }
}

fn table(made: &[Made]) -> String {
    let mut text = String::new();
    for made in made {
        let megabytes = made.bytes as f64 / 1e6;
        let _ = writeln!(text, "{megabytes:6.2} MB  target/packages/{}", made.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_not_known_is_refused_with_those_that_are() {
        let error = run(Path::new("/nonexistent"), &["riscv"]).expect_err("no such target");
        assert!(error.contains("x86_64-unknown-linux-musl"), "{error}");
    }

    #[test]
    fn sums_are_as_sha256sum_reads_them() {
        let made = Made {
            name: "anabranch-1-x".into(),
            bytes: 5_250_000,
            sum: "ab".repeat(32),
        };
        assert_eq!(
            made.sum_line(),
            format!("{}  anabranch-1-x\n", "ab".repeat(32))
        );
        assert_eq!(table(&[made]), "  5.25 MB  target/packages/anabranch-1-x\n");
    }
}
