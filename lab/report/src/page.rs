//! One page of all studies, as HTML and as Markdown.

mod runs;
mod setup;
mod tables;

use crate::figures::Figure;
use crate::study::{Agreement, Claim, Study};
use crate::verdict;
use askama::Template;
use runs::RunTable;
use std::path::Path;
use tables::{Cells, Method};

/// A figure with its place on the page.
struct Drawn {
    name: String,
    number: usize,
    title: String,
    /// The caption with links to runs.
    caption: String,
    /// The caption without links.
    plain: String,
    alt: String,
    svg: String,
    files: String,
    /// Whether PNG files were made.
    png: bool,
    command: String,
}

/// The section of a study.
struct Section {
    name: String,
    anchor: String,
    about: Vec<(String, String)>,
    verdict: Vec<String>,
    claims: Vec<Claim>,
    simulated: bool,
    emulated: bool,
    figures: Vec<Drawn>,
    head: Vec<&'static str>,
    rows: Vec<Cells>,
    method: Vec<Method>,
    runs: Vec<RunTable>,
    files: usize,
}

#[derive(Template)]
#[template(path = "page.html")]
struct Html<'a> {
    title: &'a str,
    version: &'a str,
    sections: &'a [Section],
    style: &'a str,
}

#[derive(Template)]
#[template(path = "page.md", escape = "none")]
struct Markdown<'a> {
    title: &'a str,
    version: &'a str,
    sections: &'a [Section],
}

/// The page.
pub(crate) struct Page {
    title: String,
    sections: Vec<Section>,
}

impl Page {
    /// Collects the content; `out` appears in commands, and `png` tells whether there are PNG files
    /// to link to.
    pub(crate) fn of(made: &[(Study, Vec<Figure>)], out: &Path, png: bool) -> Self {
        let mut number = 0;
        let sections: Vec<Section> = made
            .iter()
            .map(|(study, figures)| section(study, figures, (out, png), &mut number))
            .collect();
        let names: Vec<&str> = made.iter().map(|(study, _)| study.name.as_str()).collect();
        let title = match names.as_slice() {
            [] => "Results".to_owned(),
            [one] => format!("Results of {one}"),
            [first, .., last] => format!("Results of {} scenarios, {first} to {last}", names.len()),
        };
        Self { title, sections }
    }

    /// The page as HTML, with everything it needs inside.
    pub(crate) fn html(&self) -> String {
        let html = Html {
            title: &self.title,
            version: env!("CARGO_PKG_VERSION"),
            sections: &self.sections,
            style: include_str!("../templates/page.css"),
        };
        html.render().expect("writing to memory does not fail")
    }

    /// The page as Markdown, with the figures as files beside it.
    pub(crate) fn markdown(&self) -> String {
        let markdown = Markdown {
            title: &self.title,
            version: env!("CARGO_PKG_VERSION"),
            sections: &self.sections,
        };
        markdown.render().expect("writing to memory does not fail")
    }
}

fn section(
    study: &Study,
    figures: &[Figure],
    (out, png): (&Path, bool),
    number: &mut usize,
) -> Section {
    let claims = study.claims();
    let runs: Vec<RunTable> = (0..study.folders.len())
        .map(|at| RunTable::of(study, at))
        .collect();
    let folders: Vec<String> = study
        .folders
        .iter()
        .map(|folder| quoted(&folder.path.display().to_string()))
        .collect();
    let drawn = figures.iter().map(|figure| {
        *number += 1;
        Drawn {
            name: figure.name.clone(),
            number: *number,
            title: figure.title.clone(),
            caption: linked(&figure.caption, study),
            plain: figure.caption.clone(),
            alt: figure.alt.clone(),
            svg: figure.inline(),
            files: format!("plots/{}", figure.name),
            png,
            command: format!(
                "anabranch lab report {} --out {} --only {}",
                folders.join(" "),
                quoted(&out.display().to_string()),
                figure.name
            ),
        }
    });
    let (head, rows) = tables::results(study);
    Section {
        name: study.name.clone(),
        anchor: anchor(&study.name),
        about: study.about(),
        verdict: verdict::lines(study, &claims),
        simulated: claims.iter().any(|claim| claim.simulated.is_some()),
        emulated: claims.iter().any(|claim| claim.emulated.is_some()),
        claims,
        figures: drawn.collect(),
        head,
        rows,
        method: tables::method(study),
        files: runs.iter().map(|table| table.rows.len()).sum(),
        runs,
    }
}

/// Turns run ids in a caption into links to the table of runs, and escapes the rest.
fn linked(caption: &str, study: &Study) -> String {
    let mut html = crate::draw::escaped(caption);
    for (at, folder) in study.folders.iter().enumerate() {
        for part in &folder.parts {
            if part.run_id.len() == 16 && html.contains(&part.run_id) {
                let target = runs::row_anchor(study, at, &part.run_id);
                let link = format!("<a href=\"#{target}\">{}</a>", part.run_id);
                html = html.replace(&format!(" {}", part.run_id), &format!(" {link}"));
            }
        }
    }
    html
}

/// A name as an anchor within the page.
fn anchor(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    name.chars().map(keep).collect()
}

/// A word of a command, quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=@:,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

impl Section {
    /// The CSS class of a claim's row.
    #[allow(clippy::unused_self, reason = "askama calls methods of what it shows")]
    fn class(&self, claim: &Claim) -> &'static str {
        match claim.agree {
            Agreement::Yes => "yes",
            Agreement::No => "no",
            Agreement::Told | Agreement::NotRun => "told",
        }
    }

    fn cell(value: Option<&String>) -> &str {
        value.map_or("–", String::as_str)
    }

    /// The result in the simulator.
    #[allow(clippy::unused_self, reason = "askama calls methods of what it shows")]
    fn in_simulator<'c>(&self, claim: &'c Claim) -> &'c str {
        Self::cell(claim.simulated.as_ref())
    }

    /// The result in real kernels.
    #[allow(clippy::unused_self, reason = "askama calls methods of what it shows")]
    fn in_kernels<'c>(&self, claim: &'c Claim) -> &'c str {
        Self::cell(claim.emulated.as_ref())
    }
}

/// Text escaped for a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_blanks_and_quotes_survive_a_shell() {
        assert_eq!(quoted("a/b-1.toml"), "a/b-1.toml");
        assert_eq!(quoted("my results"), "'my results'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
