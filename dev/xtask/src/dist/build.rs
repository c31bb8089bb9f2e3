//! Builds the command for one machine, linked by the toolchain's own linker against its own copy of
//! musl. What that takes besides Rust is the target's standard library and a C compiler for it,
//! since `ring` is partly C and assembly.

use super::elf;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A machine that the command is built for.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) triple: &'static str,
    /// What Debian calls it.
    pub(super) debian: &'static str,
    /// What containers call it.
    pub(super) oci: &'static str,
    /// C compilers for it, the best first.
    compilers: &'static [&'static str],
    /// Debian's packages of one of them.
    packages: &'static str,
}

pub(super) const TARGETS: [Target; 2] = [
    Target {
        triple: "x86_64-unknown-linux-musl",
        debian: "amd64",
        oci: "amd64",
        // The last one compiles against the headers of another libc: what `ring` needs of them is
        // the same in both.
        compilers: &["musl-gcc", "x86_64-linux-musl-gcc", "x86_64-linux-gnu-gcc"],
        packages: "musl-tools",
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        debian: "arm64",
        oci: "arm64",
        compilers: &["aarch64-linux-musl-gcc", "aarch64-linux-gnu-gcc"],
        packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    },
];

impl Target {
    /// What this machine lacks to build for it, with what brings it.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !self.has_library() {
            let triple = self.triple;
            missing.push(format!(
                "there is no standard library: `rustup target add {triple}`"
            ));
        }
        if self.compiler().is_none() {
            let (names, packages) = (self.compilers.join(", "), self.packages);
            missing.push(format!(
                "there is no C compiler for it, none of {names}: on Debian `apt-get install \
                 {packages}`; or name one in {}",
                self.cc_variable()
            ));
        }
        missing
    }

    /// Builds it, and returns the program once it is sure that nothing is loaded when it starts.
    pub(super) fn build(&self, root: &Path) -> Result<Vec<u8>, String> {
        let triple = self.triple;
        let compiler = self.compiler().ok_or("the compiler is gone")?;
        crate::say(&format!("dist: {triple}, C by {compiler}"));
        let words = "rustc --locked --profile dist --package anabranch-cli --no-default-features \
                     --bin anabranch --target";
        let upper = triple.replace('-', "_").to_uppercase();
        let mut cargo = crate::cargo();
        cargo
            .current_dir(root)
            .args(words.split_whitespace())
            .arg(triple)
            // Cargo keeps the symbols of a package that has a level of its own in the profile.
            .args(["--", "-C", "strip=symbols"])
            .env(format!("CARGO_TARGET_{upper}_LINKER"), "rust-lld")
            .env(self.cc_variable(), compiler);
        let status = cargo
            .status()
            .map_err(|error| format!("cannot run cargo: {error}"))?;
        if !status.success() {
            return Err(format!("{triple}: cargo ended with {status}"));
        }
        let path = self.built(root);
        let content = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        elf::check(&content).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(content)
    }

    /// Where cargo puts the program.
    pub(super) fn built(&self, root: &Path) -> PathBuf {
        let given = std::env::var_os("CARGO_TARGET_DIR");
        let target = given.map_or_else(|| root.join("target"), |given| root.join(given));
        target.join(self.triple).join("dist/anabranch")
    }

    /// Whether the toolchain has its standard library.
    fn has_library(&self) -> bool {
        let asked = crate::rustc()
            .args(["--print", "target-libdir", "--target", self.triple])
            .output();
        asked.is_ok_and(|output| {
            let path = String::from_utf8_lossy(&output.stdout);
            output.status.success() && Path::new(path.trim()).is_dir()
        })
    }

    /// The environment variable in which `cc` finds the compiler.
    fn cc_variable(&self) -> String {
        format!("CC_{}", self.triple.replace('-', "_"))
    }

    /// The C compiler: the one that the environment names, else one that runs.
    fn compiler(&self) -> Option<String> {
        let named = std::env::var(self.cc_variable()).ok();
        let runs = |name: &&&str| {
            let mut command = Command::new(name);
            command
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.status().is_ok_and(|it| it.success())
        };
        let found = || self.compilers.iter().find(runs);
        named.or_else(|| found().map(|name| (*name).to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_brings_it() {
        let target = Target {
            triple: "none-such-musl",
            debian: "none",
            oci: "none",
            compilers: &["no-such-compiler"],
            packages: "a-package",
        };
        let missing = target.missing();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].contains("`rustup target add none-such-musl`"));
        let second = &missing[1];
        assert!(
            second.contains("a-package") && second.contains("CC_none_such_musl"),
            "{second}"
        );
    }
}
