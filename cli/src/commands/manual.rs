//! `anabranch man` and `anabranch completions`: generated from the same definition as the help.

use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::output;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io;
use std::path::Path;

/// Writes the manual as one page with a section for each command. It cites no other page, since
/// there may be none installed.
pub(crate) fn man() -> Outcome {
    let page = page().map_err(|error| Failure::io("cannot write the manual", &error))?;
    output::raw(&page)
}

fn page() -> io::Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    let man = Man::new(command.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    options_and_more(&command, &mut page)?;
    man.render_version_section(&mut page)?;
    for sub in commands(&command) {
        section(sub, "anabranch", &mut page)?;
    }
    Ok(page)
}

/// One command and its subcommands.
fn section(command: &Command, parents: &str, page: &mut Vec<u8>) -> io::Result<()> {
    let name = format!("{parents} {}", command.get_name());
    page.extend_from_slice(format!(".SH \"{}\"\n", name.to_uppercase()).as_bytes());
    let about = command.get_about().map(ToString::to_string);
    page.extend_from_slice(format!("{}\n.PP\n", about.unwrap_or_default()).as_bytes());
    Man::new(command.clone()).render_synopsis_section(page)?;
    options_and_more(command, page)?;
    for sub in commands(command) {
        section(sub, &name, page)?;
    }
    Ok(())
}

fn options_and_more(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone());
    if command.get_arguments().any(|one| !one.is_hide_set()) {
        man.render_options_section(page)?;
    }
    if command.get_after_help().is_some() || command.get_after_long_help().is_some() {
        man.render_extra_section(page)?;
    }
    Ok(())
}

fn commands(command: &Command) -> impl Iterator<Item = &Command> {
    let shown = |sub: &&Command| sub.get_name() != "help" && !sub.is_hide_set();
    command.get_subcommands().filter(shown)
}

/// Writes a page for each command into a directory, so that every cited page is there.
pub(crate) fn pages(directory: &Path) -> Outcome {
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| {
        let what = format!(
            "cannot write manual pages to {}: {error}",
            directory.display()
        );
        Failure::usage(what)
    })
}

/// Writes a shell's completion script.
pub(crate) fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "anabranch", &mut script);
    output::raw(&script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    /// The pages that a page cites, as `anabranch-get`.
    fn cited(page: &str) -> BTreeSet<String> {
        let plain = page
            .replace("\\-", "-")
            .replace("\\fR", "")
            .replace("\\fB", "");
        let words = plain.split(|c: char| c.is_whitespace() || c == ',');
        let names = words.filter_map(|word| word.split_once("(1)"));
        names.map(|(name, _)| name.to_owned()).collect()
    }

    fn has_empty_heading(page: &str) -> bool {
        let lines: Vec<&str> = page.lines().filter(|line| !line.is_empty()).collect();
        let heading = |line: &str| line.starts_with(".SH EXTRA");
        let pairs = lines.windows(2);
        let mut empty = pairs.filter(|pair| heading(pair[0]) && pair[1].starts_with(".SH"));
        empty.next().is_some() || lines.last().is_some_and(|line| heading(line))
    }

    #[test]
    fn each_page_that_is_cited_is_written() {
        let directory = tempfile::tempdir().unwrap();
        pages(&directory.path().join("man1")).unwrap();
        let names: BTreeSet<String> = fs::read_dir(directory.path().join("man1"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut citations = BTreeSet::new();
        for name in &names {
            let page = fs::read_to_string(directory.path().join("man1").join(name)).unwrap();
            assert!(!has_empty_heading(&page), "{name}");
            citations.extend(cited(&page));
        }
        assert!(citations.contains("anabranch-get"), "{citations:?}");
        assert!(names.contains("anabranch-tunnel-join.1"), "{names:?}");
        for name in citations {
            assert!(names.contains(&format!("{name}.1")), "{name}: {names:?}");
        }
    }

    #[test]
    fn the_single_page_cites_no_other_and_has_no_empty_heading() {
        let page = String::from_utf8(page().unwrap()).unwrap();
        assert!(cited(&page).is_empty(), "{:?}", cited(&page));
        assert!(!has_empty_heading(&page));
        for heading in ["ANABRANCH GET", "ANABRANCH TUNNEL JOIN"] {
            assert!(page.contains(&format!(".SH \"{heading}\"")), "{heading}");
        }
    }
}
