//! Runs a local program under another kernel, one that has what this machine's kernel lacks.
//!
//! ```text
//! kernel     a distribution's kernel package, fetched and unpacked once
//! image      an initramfs: the program, the tools it calls, the libraries of both, modules
//! machine    qemu with that kernel and image; its console by line, its results as a folder
//! ```
//!
//! The guest has no disk of its own and no network. Whatever it creates is lost when it stops,
//! except for the folder of results. It starts in seconds, even without hardware acceleration. In
//! that case its clock counts its own instructions, so that it measures what a machine with a
//! thousand million instructions a second would, however slow or busy the machine around it is.
//!
//! ```no_run
//! use anabranch_vm::{Image, Kernel, Machine};
//! # fn main() -> Result<(), anabranch_vm::Error> {
//! let kernel = Kernel::find(&Kernel::default_folder()?)?;
//! let image = Image::new(&["uname", "-r"])
//!     .program("uname")?
//!     .modules(&kernel, &["bonding"])?;
//! let end = Machine::default().run(&kernel, &image, &mut |line| println!("{line}"))?;
//! assert_eq!(end.code, 0);
//! # Ok(())
//! # }
//! ```

mod archive;
mod control;
mod image;
mod kernel;
mod machine;
mod programs;

#[cfg(test)]
mod tests;

pub use control::Control;
pub use image::{Image, RESULTS};
pub use kernel::Kernel;
pub use machine::{Acceleration, End, Machine, PARAMETER};
pub use programs::{Requirement, requirements};

use std::path::PathBuf;

/// Why a virtual machine could not be started, or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A required program is not installed.
    #[error(
        "`{program}` is not installed: `apt-get install {package}` puts it on a Debian machine"
    )]
    Missing {
        /// The program.
        program: String,
        /// The Debian package it comes in.
        package: &'static str,
    },
    /// No kernel has been prepared.
    #[error("there is no kernel in {}: prepare one first", .0.display())]
    NoKernel(PathBuf),
    /// A folder holds something that is not a kernel with its modules.
    #[error("{} is not an unpacked kernel package: {reason}", folder.display())]
    NotAKernel {
        /// The folder.
        folder: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The kernel has no module of this name, not even built in.
    #[error("kernel {release} has no module `{module}`")]
    NoModule {
        /// The kernel's release.
        release: String,
        /// The module.
        module: String,
    },
    /// A program ran and failed.
    #[error("`{command}` failed: {output}")]
    Failed {
        /// The command line.
        command: String,
        /// The end of its output.
        output: String,
    },
    /// A file or process of this machine could not be used.
    #[error("{what}: {reason}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        reason: std::io::Error,
    },
    /// The guest stopped before its command ended.
    #[error("the virtual machine {what}; the end of its console:\n{console}")]
    Guest {
        /// What happened instead.
        what: String,
        /// Its last lines.
        console: String,
    },
    /// It was stopped on request.
    #[error("the virtual machine was stopped")]
    Stopped,
    /// The guest ran for longer than it was allowed to.
    #[error(
        "the virtual machine was stopped after {seconds} s; the end of its console:\n{console}"
    )]
    TimedOut {
        /// The time limit.
        seconds: u64,
        /// Its last lines.
        console: String,
    },
}

impl Error {
    fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |reason| Self::System { what, reason }
    }
}
