//! Builds the programs a campaign runs.

use super::part::Part;
use anabranch_testbed::Testbed;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What cargo-fuzz passes to the compiler, without the sanitizer.
const COVERAGE: &str = "--cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The names of the fuzz targets, from their files.
pub(super) fn names(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("dev/fuzz/fuzz_targets");
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(said)? {
        let path = entry.map_err(said)?.path();
        if path.extension().is_some_and(|it| it == "rs")
            && let Some(name) = path.file_stem()
        {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The commit of the tree, and whether the tree has changed since.
pub(super) fn commit(root: &Path) -> String {
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty", "--exclude=*"])
        .current_dir(root)
        .output();
    match described {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

/// Builds the programs of the chosen parts.
pub(super) fn parts(
    root: &Path,
    folder: &Path,
    chosen: &[String],
    sanitizer: bool,
) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut targets = None;
    for name in chosen {
        if name == "flap"
            && let Err(error) = Testbed::new("soak")
        {
            eprintln!("soak: flap is left out: {error}");
            continue;
        }
        parts.push(match name.as_str() {
            "engine" => Part::Worlds {
                name: "engine",
                program: worlds_program(root, folder, "anabranch-schedulers", "connections")?,
                folder: root.join("crates/schedulers"),
                variables: "ANABRANCH",
                replay: "cargo test --workspace --locked --test connections random_worlds_settle",
            },
            "simulator" => Part::Worlds {
                name: "simulator",
                program: worlds_program(root, folder, "anabranch-sim", "anabranch_sim")?,
                folder: root.join("lab/sim"),
                variables: "ANABRANCH_SIM",
                replay: "cargo test --workspace --locked --lib random_worlds_settle",
            },
            "flap" => Part::Flap {
                program: flap_program(root)?,
                folder: root.join("cli"),
            },
            target => {
                let (programs, checked) = match &targets {
                    Some(built) => built,
                    None => targets.insert(fuzz_programs(root, folder, sanitizer)?),
                };
                Part::Fuzz {
                    name: target.to_owned(),
                    program: programs.join(target),
                    seeds: root.join("dev/fuzz/seeds").join(target),
                    sanitizer: *checked,
                }
            }
        });
    }
    if parts.is_empty() {
        return Err("nothing is left to run".to_owned());
    }
    Ok(parts)
}

/// Builds the random worlds of a package: optimised, which makes a world four times as quick, but
/// with the assertions and the overflow checks of a debug build. `target` is the test program they
/// are in.
fn worlds_program(
    root: &Path,
    folder: &Path,
    package: &str,
    target: &str,
) -> Result<PathBuf, String> {
    let mut command = crate::cargo();
    command
        .args(["test", "--release", "--package", package])
        .arg("--target-dir")
        .arg(folder.join("worlds"))
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true");
    if target == "connections" {
        command.args(["--test", target]);
    } else {
        command.arg("--lib");
    }
    test_program(root, command, target)
}

/// Builds the test of links that flap, which calls the command as it was built beside it: for the
/// whole workspace, since cargo would choose other features for a single package and compile
/// everything again.
fn flap_program(root: &Path) -> Result<PathBuf, String> {
    let mut command = crate::cargo();
    command.args(["test", "--workspace", "--test", "failover"]);
    test_program(root, command, "failover")
}

/// Builds a test program with `command` and returns its path.
fn test_program(root: &Path, mut command: Command, target: &str) -> Result<PathBuf, String> {
    eprintln!("soak: building the tests of {target}");
    let output = command
        .args(["--locked", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("the tests of {target} do not build"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    executable(&text, target).ok_or_else(|| format!("cargo built no test program of {target}"))
}

/// The test program of a target, from cargo's messages.
pub(super) fn executable(messages: &str, target: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        if message["profile"]["test"] != true || message["target"]["name"] != target {
            return None;
        }
        Some(PathBuf::from(message["executable"].as_str()?))
    })
}

/// Builds all fuzz targets; returns their folder, and whether they use the address sanitizer.
fn fuzz_programs(root: &Path, folder: &Path, sanitizer: bool) -> Result<(PathBuf, bool), String> {
    let nightly = sanitizer && has_nightly(root);
    if sanitizer && !nightly {
        eprintln!("soak: no nightly compiler: fuzz targets have no address sanitizer");
    }
    let how = if nightly { "nightly" } else { "stable" };
    eprintln!("soak: building the fuzz targets ({how})");
    let host = host(root, nightly)?;
    let mut flags = COVERAGE.to_owned();
    if nightly {
        flags.push_str(" -Zsanitizer=address");
    }
    let target = folder.join(how);
    let mut command = if nightly {
        // The cargo that runs this program belongs to the stable toolchain; rustup's cargo can
        // select the other one.
        let mut command = Command::new("cargo");
        command.arg("+nightly").env_remove("RUSTC");
        command.env_remove("RUSTUP_TOOLCHAIN");
        command
    } else {
        crate::cargo()
    };
    let status = command
        .args(["build", "--quiet", "--release", "--locked"])
        .args(["--manifest-path", "dev/fuzz/Cargo.toml", "--target", &host])
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTFLAGS", flags)
        .current_dir(root)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("the fuzz targets do not build; they need a C++ compiler".to_owned());
    }
    Ok((target.join(host).join("release"), nightly))
}

fn rustc_plus_nightly() -> Command {
    let mut command = Command::new("rustc");
    command.arg("+nightly").env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn has_nightly(root: &Path) -> bool {
    let mut command = rustc_plus_nightly();
    let output = command.arg("--version").current_dir(root).output();
    output.is_ok_and(|output| output.status.success())
}

fn host(root: &Path, nightly: bool) -> Result<String, String> {
    let mut command = if nightly {
        rustc_plus_nightly()
    } else {
        crate::rustc()
    };
    let output = command.arg("-vV").current_dir(root).output();
    let output = output.map_err(|error| format!("rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc does not say what machine it is for".to_owned())
}
