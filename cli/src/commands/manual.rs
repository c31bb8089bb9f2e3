//! `anabranch man` and `anabranch completions`: made from the same definition as the help.

use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;

/// Writes the manual page: the program's own, and a section for each command.
pub(crate) fn man() -> Outcome {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    let io = |error: std::io::Error| Failure::io("cannot write the manual", &error);
    clap_mangen::Man::new(command.clone())
        .render(&mut page)
        .map_err(io)?;
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        let title = format!("anabranch {}", sub.get_name()).to_uppercase();
        page.extend_from_slice(format!(".SH \"{title}\"\n").as_bytes());
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        page.extend_from_slice(format!("{about}\n.PP\n").as_bytes());
        let man = clap_mangen::Man::new(sub.clone());
        man.render_synopsis_section(&mut page).map_err(io)?;
        man.render_options_section(&mut page).map_err(io)?;
        man.render_extra_section(&mut page).map_err(io)?;
    }
    output::raw(&page)
}

/// Writes a shell's completion script.
pub(crate) fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "anabranch", &mut script);
    output::raw(&script)
}
