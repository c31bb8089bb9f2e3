//! Puts peers below `target/interop`, in pinned versions, once; and builds our own end.

use super::Shop;
use super::process::finish;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Installing anything takes at most this.
const PATIENCE: Duration = Duration::from_secs(600);
/// Compiling all of ours, on a slow machine.
const BUILD: Duration = Duration::from_secs(3600);

/// A peer's programs.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    pub(crate) client: PathBuf,
    pub(crate) server: PathBuf,
}

/// Our end.
#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) anabranch: PathBuf,
    pub(crate) our_end: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Builds the command and the test program as the tests do, so that nothing is compiled twice, and
/// makes a certificate.
pub(crate) fn our_end(shop: &Shop) -> Result<Ours, String> {
    let mut build = crate::cargo();
    build.current_dir(&shop.root).args([
        "build",
        "--workspace",
        "--bins",
        "--examples",
        "--locked",
        "--quiet",
    ]);
    finish(&shop.cache, "build", &mut build, BUILD)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let debug = shop.root.join(target).join("debug");
    let ours = Ours {
        anabranch: debug.join("anabranch"),
        our_end: debug.join("examples/our_end"),
        cert: shop.cache.join("cert.pem"),
        key: shop.cache.join("key.pem"),
    };
    let mut make = Command::new(&ours.our_end);
    make.arg("certificate").arg(&ours.cert).arg(&ours.key);
    finish(&shop.cache, "certificate", &mut make, PATIENCE)?;
    Ok(ours)
}

/// Whether a program can be started.
pub(crate) fn has(program: &str) -> bool {
    find(program).is_some()
}

/// Where a program is. Servers of packages lie in folders that not every user's path has.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let further = ["/usr/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(further)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Installs Debian packages, if any of these files or programs is missing.
pub(crate) fn debian(shop: &Shop, wanted: &[(&str, &str)]) -> Result<(), String> {
    let is_missing = |thing: &str| !has(thing) && !Path::new(thing).exists();
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|(thing, _)| is_missing(thing))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let what = missing.join(" ");
    if !has("apt-get") || !is_root() {
        return Err(format!("install {what}"));
    }
    let mut update = Command::new("apt-get");
    update.args(["update", "-qq"]);
    finish(&shop.cache, "apt-update", &mut update, PATIENCE)?;
    let mut install = Command::new("apt-get");
    install
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "-qq", "-y", "--no-install-recommends"])
        .args(&missing);
    finish(&shop.cache, "apt-install", &mut install, PATIENCE)
        .map_err(|error| format!("cannot install {what}: {error}"))
}

fn is_root() -> bool {
    let asked = Command::new("id").arg("-u").stdin(Stdio::null()).output();
    asked.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// A Python of our own. Returns its program.
pub(crate) fn python(shop: &Shop) -> Result<PathBuf, String> {
    let folder = shop.cache.join("python");
    let program = folder.join("bin/python");
    if program.exists() && folder.join("bin/pip").exists() {
        return Ok(program);
    }
    debian(shop, &[("python3", "python3")])?;
    let make = || {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&folder);
        finish(&shop.cache, "venv", &mut make, PATIENCE)
    };
    if make().is_err() {
        // Debian has the module in a package of its own.
        debian(shop, &[("/usr/share/doc/python3-venv", "python3-venv")])?;
        make()?;
    }
    Ok(program)
}

/// Builds the program in Go that is in the folder `name` of the peers. Returns it.
pub(crate) fn go(shop: &Shop, name: &str) -> Result<PathBuf, String> {
    if !has("go") {
        return Err("install Go 1.21 or newer".to_owned());
    }
    let program = shop.cache.join(name).join("peer");
    let mut build = Command::new("go");
    build
        .current_dir(shop.peers.join(name))
        // Hashes are those of go.sum; modules can be deleted with `target`.
        .args([
            "build",
            "-mod=readonly",
            "-modcacherw",
            "-buildvcs=false",
            "-o",
        ])
        .arg(&program)
        .arg(".")
        // An older Go gets the one that go.mod names.
        .env("GOTOOLCHAIN", "auto")
        .env("GOMODCACHE", shop.cache.join("go/modules"))
        .env("GOCACHE", shop.cache.join("go/cache"));
    step(shop, name, &mut build)?;
    Ok(program)
}

/// Runs `work` unless it has been run for this very list of what is pinned.
pub(crate) fn once(
    shop: &Shop,
    pins: &Path,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let text = fs::read_to_string(pins).map_err(|e| format!("{}: {e}", pins.display()))?;
    let folder = pins.parent().and_then(Path::file_name).unwrap_or_default();
    let stamp = shop.cache.join(format!("{}.installed", folder.display()));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == text) {
        return Ok(());
    }
    work()?;
    fs::write(&stamp, text).map_err(|e| format!("{}: {e}", stamp.display()))
}

/// A step of an installation.
pub(crate) fn step(shop: &Shop, name: &str, command: &mut Command) -> Result<(), String> {
    finish(&shop.cache, name, command, PATIENCE)
}
