//! Proves that the engine does not depend on an operating system: it compiles for
//! wasm32-unknown-unknown.
//!
//! There are three ways, tried in this order; the last line of output says which one was used.
//!
//! 1. The toolchain has the target's standard library: a plain `cargo check`.
//! 2. Debian's `rustc-web` and `rust-web-src` are available from apt: they are unpacked below
//!    `target`, never installed, and first build the standard library for the target.
//! 3. Otherwise the dependency graph for the target is searched for crates that call an operating
//!    system. That is weaker, and the last line says so. `ANABRANCH_REQUIRE_WASM=1` makes it fail.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TARGET: &str = "wasm32-unknown-unknown";
/// The crates for which this must hold.
const PACKAGES: &[&str] = &[
    "anabranch-wire",
    "anabranch-proto",
    "anabranch-schedulers",
    "anabranch-link",
];
/// Debian's packages with a compiler and the matching source of the standard library.
const DEBIAN: &[&str] = &["rustc-web", "rust-web-src", "libstd-rust-web-dev"];
/// Crates whose purpose is to call an operating system.
const CALLS_THE_SYSTEM: &[&str] = &[
    "errno",
    "getrandom",
    "libc",
    "mio",
    "nix",
    "ring",
    "rustix",
    "socket2",
    "tokio",
    "windows-sys",
];

/// Runs the strongest check possible on this machine; returns true if it passed.
pub(crate) fn check(root: &Path) -> Result<bool, String> {
    if has_target() {
        let passed = run_check(root, |_| {})?;
        crate::say(&format!(
            "wasm: {} by cargo check for {TARGET}",
            verdict(passed)
        ));
        return Ok(passed);
    }
    match debian_toolchain(root) {
        Ok(toolchain) => {
            let passed = run_check(root, |command| toolchain.apply(command))?;
            let how = "by cargo check with Debian's compiler and a standard library built here";
            crate::say(&format!("wasm: {} {how}", verdict(passed)));
            Ok(passed)
        }
        Err(reason) => {
            eprintln!("wasm: {TARGET} is not installed (`rustup target add {TARGET}`)");
            eprintln!("wasm: nor is Debian's toolchain to be had: {reason}");
            let passed = check_graph(root)?;
            let how = "by the dependency graph only, NOTHING WAS COMPILED for the target";
            crate::say(&format!("wasm: {} {how}", verdict(passed)));
            Ok(passed && std::env::var_os("ANABRANCH_REQUIRE_WASM").is_none_or(|v| v != "1"))
        }
    }
}

fn verdict(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

/// Whether the current toolchain has the target's standard library.
fn has_target() -> bool {
    let asked = crate::rustc()
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    let Ok(output) = asked else { return false };
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let Ok(entries) = fs::read_dir(folder) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
}

fn run_check(root: &Path, adjust: impl FnOnce(&mut Command)) -> Result<bool, String> {
    let mut command = crate::cargo();
    command
        .current_dir(root)
        .args(["check", "--locked", "--target", TARGET]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    adjust(&mut command);
    let status = command
        .status()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    Ok(status.success())
}

/// An unpacked compiler, with the source of its standard library.
struct Toolchain {
    folder: PathBuf,
    libraries: PathBuf,
}

impl Toolchain {
    fn apply(&self, command: &mut Command) {
        command
            .arg("-Zbuild-std=std,panic_abort")
            // A folder of its own, because two compilers cannot share artefacts.
            .arg("--target-dir")
            .arg(self.folder.join("build"))
            .env("RUSTC", self.folder.join("usr/bin/rustc"))
            // Building the standard library is an unstable feature of cargo; the result is only
            // inspected.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env_remove("RUSTC_WRAPPER")
            .env_remove("RUSTFLAGS");
    }
}

/// Downloads and unpacks Debian's toolchain, once.
fn debian_toolchain(root: &Path) -> Result<Toolchain, String> {
    let folder = root.join("target/wasm-toolchain");
    let tuple = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries = folder.join("usr/lib").join(tuple);
    let toolchain = Toolchain {
        folder: folder.clone(),
        libraries,
    };
    let done = folder.join("complete");
    if done.exists() {
        return Ok(toolchain);
    }
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let packages = debian_packages()?;
    let mut download = Command::new("apt-get");
    download
        .current_dir(&folder)
        .args(["download", "-qq"])
        .args(&packages);
    quietly(&mut download)?;
    for entry in fs::read_dir(&folder).map_err(|e| e.to_string())?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            quietly(Command::new("dpkg").arg("-x").arg(&path).arg(&folder))?;
            fs::remove_file(&path).map_err(|e| e.to_string())?;
        }
    }
    fs::write(&done, packages.join("\n")).map_err(|e| e.to_string())?;
    Ok(toolchain)
}

/// The packages to download: those of Debian, and the two shared libraries they need, whose names
/// contain versions.
fn debian_packages() -> Result<Vec<String>, String> {
    let mut packages: BTreeSet<String> = DEBIAN.iter().map(|name| (*name).to_owned()).collect();
    let mut ask = Command::new("apt-cache");
    ask.args([
        "depends",
        "--recurse",
        "--important",
        "--no-suggests",
        "rustc-web",
    ]);
    let output = ask
        .output()
        .map_err(|e| format!("cannot run apt-cache: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let wanted = |name: &&str| name.starts_with("libstd-rust-web-") || name.starts_with("libllvm");
    packages.extend(text.lines().filter(wanted).map(str::to_owned));
    if packages.len() < DEBIAN.len() + 2 {
        return Err("apt knows no rustc-web here".to_owned());
    }
    Ok(packages.into_iter().collect())
}

fn quietly(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// Searches the crates that the packages would link for the target for ones that call an operating
/// system.
fn check_graph(root: &Path) -> Result<bool, String> {
    let mut passed = true;
    for package in PACKAGES {
        let mut command = crate::cargo();
        command
            .current_dir(root)
            .args(["tree", "--locked", "--target", TARGET, "--package"]);
        command.args([
            package, "--edges", "normal", "--prefix", "none", "--format", "{p}",
        ]);
        let output = command
            .output()
            .map_err(|e| format!("cannot run cargo tree: {e}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        for name in offenders(&String::from_utf8_lossy(&output.stdout)) {
            crate::say(&format!(
                "{package}: depends on `{name}`, which calls the system"
            ));
            passed = false;
        }
    }
    Ok(passed)
}

/// The crates in the output of `cargo tree`, one per line, that call the system.
fn offenders(listing: &str) -> BTreeSet<&str> {
    let names = listing
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| CALLS_THE_SYSTEM.contains(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_calls_the_system_is_found_in_the_graph() {
        let clean = "anabranch-wire v0.1.0 (x)\nbytes v1.12.1\nlibcrux v0.1.0\n";
        assert!(offenders(clean).is_empty());
        let tainted = format!("{clean}socket2 v0.6.5\nlibc v0.2.191 (*)\nlibc v0.2.191\n");
        assert_eq!(
            offenders(&tainted).into_iter().collect::<Vec<_>>(),
            ["libc", "socket2"]
        );
    }
}
