//! A kernel and its modules, unpacked from a distribution's package.

use crate::Error;
use crate::machine::Acceleration;
use crate::programs::{output, require};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The package that depends on the current kernel for virtual machines, which is small and has few
/// drivers.
const PACKAGE: &str = "linux-image-cloud-amd64";

/// The file in a kernel's folder that remembers the acceleration that works.
const REMEMBERED: &str = "acceleration";

/// A kernel to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    folder: PathBuf,
    release: String,
    /// Modules by name: the file of each, then those it depends on, as paths below `modules()`.
    modules: BTreeMap<String, Vec<String>>,
    /// The names of modules that are built in.
    builtin: Vec<String>,
}

impl Kernel {
    /// Where kernels are kept: `anabranch/kernel` in the user's cache.
    ///
    /// # Errors
    /// [`Error::System`] if there is neither `XDG_CACHE_HOME` nor `HOME`.
    pub fn default_folder() -> Result<PathBuf, Error> {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "HOME is not set");
        cache
            .map(|cache| cache.join("anabranch").join("kernel"))
            .ok_or(missing)
            .map_err(Error::system("no place for kernels"))
    }

    /// Fetches the distribution's kernel for virtual machines and unpacks it into `folder`, which
    /// is replaced only if everything went well. Nothing is installed on this machine.
    ///
    /// # Errors
    /// [`Error::Missing`] where the package tools are not those of Debian, [`Error::Failed`] with
    /// what they say.
    pub fn prepare(folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<Self, Error> {
        let apt_get = require("apt-get", "apt")?;
        let apt_cache = require("apt-cache", "apt")?;
        let depmod = require("depmod", "kmod")?;
        progress("looking for the current kernel package");
        let depends = output(&apt_cache, &["depends", PACKAGE])?;
        let package = dependency(&depends).ok_or_else(|| Error::Failed {
            command: format!("apt-cache depends {PACKAGE}"),
            output: "it names no kernel; `apt-get update` may help".to_owned(),
        })?;
        let parent = folder.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent)
            .map_err(Error::system(format!("cannot make {}", parent.display())))?;
        // Beside its destination, to be moved there in one step.
        let work = tempfile::Builder::new()
            .prefix(".kernel-")
            .tempdir_in(parent)
            .map_err(Error::system(format!("no room in {}", parent.display())))?;
        progress(&format!("fetching {package}"));
        let file = download(&apt_get, package, work.path())?;
        progress("unpacking");
        let tree = work.path().join("tree");
        unpack(&file, &tree)?;
        let release = release(&tree)?;
        output(
            &depmod,
            &["-b".as_ref(), tree.as_os_str(), release.as_ref()],
        )?;
        Self::find(&tree)?;
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(Error::system(format!(
                "cannot replace {}",
                folder.display()
            )))?;
        }
        std::fs::rename(&tree, folder)
            .map_err(Error::system(format!("cannot make {}", folder.display())))?;
        Self::find(folder)
    }

    /// The kernel unpacked in `folder`: `boot/vmlinuz-*` and `lib/modules/*` with `modules.dep`.
    ///
    /// # Errors
    /// [`Error::NoKernel`] if there is no such folder, [`Error::NotAKernel`] if it holds something
    /// else.
    pub fn find(folder: &Path) -> Result<Self, Error> {
        if !folder.is_dir() {
            return Err(Error::NoKernel(folder.to_owned()));
        }
        let release = release(folder)?;
        let modules = folder.join("lib/modules").join(&release);
        let read = |name: &str| {
            std::fs::read_to_string(modules.join(name)).map_err(|reason| Error::NotAKernel {
                folder: folder.to_owned(),
                reason: format!("lib/modules/{release}/{name}: {reason}"),
            })
        };
        let dependencies = read("modules.dep")?;
        let builtin = read("modules.builtin")?;
        Ok(Self {
            folder: folder.to_owned(),
            modules: dependencies.lines().filter_map(module).collect(),
            builtin: builtin.lines().filter_map(module_name).collect(),
            release,
        })
    }

    /// Its release, as printed by `uname -r`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The folder it was found in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The acceleration that works on this machine, if that has been tried.
    pub fn remembered(&self) -> Option<Acceleration> {
        let text = std::fs::read_to_string(self.folder.join(REMEMBERED)).ok()?;
        Acceleration::from_name(text.trim())
    }

    /// Remembers the acceleration that works, so that others need not be tried each time.
    ///
    /// # Errors
    /// [`Error::System`] if it cannot be written.
    pub fn remember(&self, way: Acceleration) -> Result<(), Error> {
        let file = self.folder.join(REMEMBERED);
        let written = std::fs::write(&file, format!("{}\n", way.name()));
        written.map_err(Error::system(format!("cannot write {}", file.display())))
    }

    /// The file to start.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder
            .join("boot")
            .join(format!("vmlinuz-{}", self.release))
    }

    /// Whether it has a module, loadable or built in.
    pub fn has(&self, module: &str) -> bool {
        self.builtin.iter().any(|name| name == module) || self.modules.contains_key(module)
    }

    /// The files of a module and those it depends on, in loading order; empty if it is built in.
    pub(crate) fn files(&self, module: &str) -> Result<Vec<PathBuf>, Error> {
        if self.builtin.iter().any(|name| name == module) {
            return Ok(Vec::new());
        }
        let files = self.modules.get(module).ok_or_else(|| Error::NoModule {
            release: self.release.clone(),
            module: module.to_owned(),
        })?;
        let folder = self.folder.join("lib/modules").join(&self.release);
        // In `modules.dep`, the module to load first comes last.
        Ok(files.iter().rev().map(|file| folder.join(file)).collect())
    }
}

fn download(apt_get: &Path, package: &str, folder: &Path) -> Result<PathBuf, Error> {
    // apt writes to its working directory.
    let env = require("env", "coreutils")?;
    let folder_flag = format!("--chdir={}", folder.display());
    let words = [
        folder_flag.as_ref(),
        apt_get.as_os_str(),
        "--option=APT::Sandbox::User=root".as_ref(),
        "--quiet=2".as_ref(),
        "download".as_ref(),
        package.as_ref(),
    ];
    output(&env, &words)?;
    let listing = std::fs::read_dir(folder)
        .map_err(Error::system(format!("cannot list {}", folder.display())))?;
    let mut files = listing.flatten().map(|entry| entry.path());
    files
        .find(|file| file.extension().is_some_and(|end| end == "deb"))
        .ok_or_else(|| Error::Failed {
            command: format!("apt-get download {package}"),
            output: "it left no package".to_owned(),
        })
}

fn unpack(package: &Path, folder: &Path) -> Result<(), Error> {
    let dpkg_deb = require("dpkg-deb", "dpkg")?;
    let words = [
        "--extract".as_ref(),
        package.as_os_str(),
        folder.as_os_str(),
    ];
    output(&dpkg_deb, &words).map(drop)
}

/// The one release below `lib/modules` that has a kernel in `boot`.
fn release(folder: &Path) -> Result<String, Error> {
    let wrong = |reason: String| Error::NotAKernel {
        folder: folder.to_owned(),
        reason,
    };
    let listing = std::fs::read_dir(folder.join("lib/modules"))
        .map_err(|reason| wrong(format!("lib/modules: {reason}")))?;
    let mut releases: Vec<String> = listing
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|release| folder.join(format!("boot/vmlinuz-{release}")).is_file())
        .collect();
    releases.sort();
    releases
        .pop()
        .ok_or_else(|| wrong("no kernel in boot with modules in lib/modules".to_owned()))
}

/// The first package that this package depends on.
fn dependency(listing: &str) -> Option<&str> {
    let mut lines = listing.lines().map(str::trim);
    lines.find_map(|line| line.strip_prefix("Depends: "))
}

/// A line of `modules.dep`: `kernel/net/a.ko: kernel/net/b.ko kernel/net/c.ko`.
fn module(line: &str) -> Option<(String, Vec<String>)> {
    let (file, needs) = line.split_once(':')?;
    let files = std::iter::once(file).chain(needs.split_whitespace());
    Some((module_name(file)?, files.map(str::to_owned).collect()))
}

/// `kernel/net/sch-netem.ko.xz` is the module `sch_netem`.
fn module_name(file: &str) -> Option<String> {
    let name = file.rsplit('/').next()?;
    let (name, _) = name.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_its_name_with_what_it_needs() {
        let (name, files) = module("kernel/net/x-y.ko.xz: kernel/a.ko kernel/b.ko").unwrap();
        assert_eq!(name, "x_y");
        assert_eq!(
            files,
            ["kernel/net/x-y.ko.xz", "kernel/a.ko", "kernel/b.ko"]
        );
        assert_eq!(module("not a module"), None);
    }

    #[test]
    fn the_current_kernel_is_what_the_package_depends_on() {
        let listing = "linux-image-cloud-amd64\n  Depends: linux-image-6.1-cloud\n  Suggests: x\n";
        assert_eq!(dependency(listing), Some("linux-image-6.1-cloud"));
        assert_eq!(dependency("N: Unable to locate package\n"), None);
    }

    #[test]
    fn a_kernel_is_found_with_its_modules_in_loading_order() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Kernel::find(&folder.path().join("none")).unwrap_err();
        assert!(
            missing.to_string().contains("prepare one first"),
            "{missing}"
        );
        let empty = Kernel::find(folder.path()).unwrap_err();
        assert!(matches!(empty, Error::NotAKernel { .. }), "{empty}");
        let modules = folder.path().join("lib/modules/6.1-x");
        std::fs::create_dir_all(&modules).unwrap();
        std::fs::create_dir_all(folder.path().join("boot")).unwrap();
        std::fs::write(folder.path().join("boot/vmlinuz-6.1-x"), "").unwrap();
        std::fs::write(
            modules.join("modules.dep"),
            "k/bonding.ko: k/tls.ko\nk/tls.ko:\n",
        )
        .unwrap();
        std::fs::write(modules.join("modules.builtin"), "kernel/net/tcp_cubic.ko\n").unwrap();
        let kernel = Kernel::find(folder.path()).unwrap();
        assert_eq!(kernel.release(), "6.1-x");
        assert!(kernel.has("bonding") && kernel.has("tcp_cubic") && !kernel.has("sch_netem"));
        let order = kernel.files("bonding").unwrap();
        assert_eq!(
            order,
            [modules.join("k/tls.ko"), modules.join("k/bonding.ko")]
        );
        assert_eq!(kernel.files("tcp_cubic").unwrap(), Vec::<PathBuf>::new());
        let missing = kernel.files("sch_netem").unwrap_err().to_string();
        assert_eq!(missing, "kernel 6.1-x has no module `sch_netem`");
    }
}
