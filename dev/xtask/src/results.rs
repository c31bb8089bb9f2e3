//! The pages of results beside the papers' scenarios, extracted from a report.
//!
//! `anabranch lab report ... --out PAGE` produces a text with every figure, table and run. From
//! this, a page keeps what a reader of the repository looks for: the claims, two figures and all
//! means.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Which figures a page shows: the first two of these that exist. The last three are of experiments
/// that ran in one world only.
const FIGURES: [&str; 10] = [
    "netns-crossover",
    "netns-map",
    "netns-sweep",
    "sim-sweep",
    "agreement",
    "netns-time",
    "sim-time",
    "map",
    "sweep",
    "time",
];

/// The number of figures on a page.
const SHOWN: usize = 2;

/// What follows this is left out of a page: it is in the report, and the page gives the command for
/// a report.
const END: &str = "\n### Method\n";

/// One experiment's page.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    name: String,
    text: String,
    /// The files it shows, relative to the report's folder.
    files: Vec<String>,
}

/// Writes a page for each experiment in a report, with its figures and their data.
pub(crate) fn write(root: &Path, report: &Path) -> Result<bool, String> {
    let file = report.join("report.md");
    let text = fs::read_to_string(&file).map_err(|error| {
        let hint = "give the folder that `anabranch lab report ... --out` made";
        format!("{}: {error}: {hint}", file.display())
    })?;
    for page in pages(&text) {
        let place = place(&page.name);
        let folder = root.join(&place);
        fs::create_dir_all(folder.join("plots")).map_err(|error| error.to_string())?;
        forget(&folder, &page.name)?;
        for name in &page.files {
            let copied = fs::copy(report.join(name), folder.join(name));
            copied.map_err(|error| format!("{name}: {error}"))?;
        }
        let to = folder.join(format!("{}.md", page.name));
        fs::write(&to, &page.text).map_err(|error| format!("{}: {error}", to.display()))?;
        crate::say(&format!("{place}/{}.md", page.name));
    }
    Ok(true)
}

/// Where an experiment's results lie: beside the scenarios of its paper, which is the first word of
/// its name.
fn place(experiment: &str) -> String {
    let paper = experiment.split('-').next().unwrap_or(experiment);
    format!("lab/papers/{paper}/results")
}

/// Removes the files that an earlier version of the page showed.
fn forget(folder: &Path, page: &str) -> Result<(), String> {
    for kind in FIGURES {
        for end in ["-178mm.svg", ".csv"] {
            let path = folder.join(format!("plots/{page}-{kind}{end}"));
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", path.display()));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn pages(report: &str) -> Vec<Page> {
    let sections = report.split("\n## ").skip(1);
    let sections = sections.filter(|section| section.contains(END));
    sections.map(page).collect()
}

fn page(section: &str) -> Page {
    let (name, rest) = section.split_once('\n').unwrap_or((section, ""));
    let rest = rest.split(END).next().unwrap_or_default();
    let (before, figures) = rest.split_once("\n### Figures\n").unwrap_or((rest, ""));
    let (figures, after) = figures
        .split_once("\n### ")
        .map_or((figures, String::new()), |(figures, after)| {
            (figures, format!("\n### {after}"))
        });
    let chosen = choose(name, figures);
    let files = chosen.iter().flat_map(|figure| files_of(figure)).collect();
    let mut text = format!("# {name}\n{}\n", before.trim_end());
    if !chosen.is_empty() {
        text += "\n### Figures\n";
    }
    for figure in chosen {
        text.extend(["\n", &unnumbered(figure.trim()), "\n"]);
    }
    text += &after;
    Page {
        name: name.to_owned(),
        text: format!("{}\n", text.replace("\n### ", "\n## ").trim_end()),
        files,
    }
}

/// The figures to show, each an image with its caption.
fn choose<'a>(name: &str, figures: &'a str) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    let starts: Vec<usize> = figures.match_indices("![").map(|(at, _)| at).collect();
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(figures.len());
        all.push(&figures[*start..end]);
    }
    let wanted = FIGURES.iter().filter_map(|kind| {
        let file = format!("(plots/{name}-{kind}-178mm.svg)");
        all.iter().find(|figure| figure.contains(&file)).copied()
    });
    wanted.take(SHOWN).collect()
}

/// The files that a figure links to.
fn files_of(figure: &str) -> Vec<String> {
    let links = figure.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split_once(')'));
    let files = links.map(|(file, _)| file.to_owned());
    files.filter(|file| file.starts_with("plots/")).collect()
}

/// Removes the figure's number, which means nothing if only two of many are shown.
fn unnumbered(figure: &str) -> String {
    let Some((before, rest)) = figure.split_once("**Figure ") else {
        return figure.to_owned();
    };
    match rest.split_once(". ") {
        Some((number, caption)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{before}**{caption}")
        }
        _ => figure.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
# Results of two

anabranch 0.1.0.

## nitk

goodput

1. 9 runs.

### Claims

| claim |
|---|

### Figures

![gain](plots/nitk-sim-gain-178mm.svg)

**Figure 1. Gain (sim).** Boxes. [CSV](plots/nitk-sim-gain.csv)

![rates](plots/nitk-netns-time-178mm.svg)

**Figure 2. Rates (netns).** Lines. [CSV](plots/nitk-netns-time.csv)

![points](plots/nitk-agreement-178mm.svg)

**Figure 3. Both.** Points.

### Results

| world |
|---|

### Method

much

## bth-paths

nothing but text

### Method
";

    #[test]
    fn a_page_has_claims_two_figures_and_the_means() {
        let pages = pages(REPORT);
        let expected = "\
# nitk

goodput

1. 9 runs.

## Claims

| claim |
|---|

## Figures

![points](plots/nitk-agreement-178mm.svg)

**Both.** Points.

![rates](plots/nitk-netns-time-178mm.svg)

**Rates (netns).** Lines. [CSV](plots/nitk-netns-time.csv)

## Results

| world |
|---|
";
        assert_eq!(pages[0].text, expected);
        let files = [
            "plots/nitk-agreement-178mm.svg",
            "plots/nitk-netns-time-178mm.svg",
            "plots/nitk-netns-time.csv",
        ];
        assert_eq!(pages[0].files, files);
    }

    #[test]
    fn an_experiment_without_figures_has_a_page_too() {
        let pages = pages(REPORT);
        assert_eq!(pages.len(), 2);
        assert_eq!(pages[1].text, "# bth-paths\n\nnothing but text\n");
        assert_eq!(pages[1].files, Vec::<String>::new());
    }
    #[test]
    fn what_a_page_showed_before_goes_and_what_others_show_stays() {
        let root = tempfile::tempdir().unwrap();
        let report = tempfile::tempdir().unwrap();
        let plots = root.path().join("lab/papers/nitk/results/plots");
        fs::create_dir_all(&plots).unwrap();
        fs::create_dir(report.path().join("plots")).unwrap();
        fs::write(report.path().join("report.md"), REPORT).unwrap();
        for file in &pages(REPORT)[0].files {
            fs::write(report.path().join(file), "new").unwrap();
        }
        let old = ["nitk-sim-sweep.csv", "nitk-netns-time.csv"];
        let others = ["nitk-two-sim-sweep.csv", "nitk-two-netns-time.csv"];
        for file in old.iter().chain(&others) {
            fs::write(plots.join(file), "old").unwrap();
        }
        assert_eq!(write(root.path(), report.path()), Ok(true));
        let is_there = |file: &&str| plots.join(file).exists();
        assert_eq!(old.map(|file| is_there(&file)), [false, true]);
        assert!(others.iter().all(is_there));
        let shown = fs::read_to_string(plots.join("nitk-netns-time.csv")).unwrap();
        assert_eq!(shown, "new");
    }
}
