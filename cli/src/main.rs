//! `anabranch`: moves files over several network paths at once.

use std::process::ExitCode;

fn main() -> ExitCode {
    anabranch_cli::main(anabranch_cli::Names::default())
}
