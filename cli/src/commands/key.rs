//! `anabranch key`: the fingerprint by which servers know this machine.

use crate::args::Key;
use crate::failure::Outcome;
use crate::output;
use crate::trust::{identity_directory, own_identity};

/// Runs the command; makes a key if there is none.
pub(crate) fn run(args: &Key, quiet: bool) -> Outcome {
    let directory = identity_directory(args.identity.as_deref())?;
    let fingerprint = own_identity(Some(&directory))?.fingerprint();
    let directory = directory.display().to_string();
    if args.json {
        let fingerprint = fingerprint.to_string();
        return output::json(&serde_json::json!({
            "fingerprint": fingerprint,
            "identity": directory,
        }));
    }
    output::data(fingerprint)?;
    if !quiet {
        output::say(format!(
            "a server lets this machine in with `--client-pin` and this fingerprint; show the key \
             to it with `--identity {directory}`"
        ));
    }
    Ok(())
}
