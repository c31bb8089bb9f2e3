//! `anabranch tunnel new`, `check` and `up`: a node by a file.

use super::file::{Configuration, Faults, Settings, template};
use super::reload::Reloading;
use super::{join, serve};
use crate::args::tunnel::New;
use crate::failure::{Failure, Outcome};
use crate::output;
use anabranch_net::interfaces;
use anabranch_schedulers::Names;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a commented configuration.
pub(super) fn new(args: &New, quiet: bool) -> Outcome {
    let url = args.url.as_ref().map(ToString::to_string);
    let text = template(args.far, url.as_deref());
    let Some(file) = &args.file else {
        return output::raw(text.as_bytes());
    };
    // The URL lets somebody in.
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(file);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let failure = Failure::usage(format!("{} is there already", file.display()));
            failure.hint("give another name, or edit it")
        }
        _ => Failure::io(file.display(), &error),
    })?;
    if !quiet {
        let next = if args.far || url.is_some() {
            format!("anabranch tunnel up {}", file.display())
        } else {
            "put the URL into it that `anabranch tunnel serve` printed".to_owned()
        };
        output::say(format!("wrote {}; next: {next}", file.display()));
    }
    Ok(())
}

/// Tells all that is wrong with a configuration.
pub(super) async fn check(file: &Path, names: &Names, quiet: bool) -> Outcome {
    // Where they cannot be listed, `up` says so.
    let interfaces = interfaces::list().await.ok();
    match Configuration::read_on(file, names, interfaces.as_deref()) {
        Ok(_) => {
            if !quiet {
                output::say(format!("{}: nothing is wrong", file.display()));
            }
            Ok(())
        }
        Err(faults) => Err(Failure::failed(all(&faults))),
    }
}

/// Runs by a configuration.
pub(super) async fn up(file: &Path, names: &Names, quiet: bool) -> Outcome {
    let read = Configuration::read(file, names);
    let configuration = read.map_err(|faults| Failure::usage(all(&faults)))?;
    let reloading = Some(Reloading {
        configuration: &configuration,
        names,
    });
    match &configuration.settings {
        Settings::Near(args) => join::run(args, names, quiet, reloading).await,
        Settings::Far(args) => serve::run(args, names, quiet, reloading).await,
    }
}

fn all(faults: &Faults) -> String {
    faults.lines().join("\nerror: ")
}
