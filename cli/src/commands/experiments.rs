//! Prints lists of experiments, no wider than the terminal and with all names.

use crate::failure::Outcome;
use crate::output;
use crate::output::table::{Table, lines};
use anabranch_papers::Experiment;

/// The first of an experiment's names.
pub(super) fn name(experiment: &Experiment) -> String {
    experiment.names().into_iter().next().unwrap_or_default()
}

/// Prints a table of experiments, then the other names they go by.
pub(super) fn print(table: Table, experiments: &[Experiment]) -> Outcome {
    let width = output::width();
    output::data(table.within(width))?;
    let names: Vec<Vec<String>> = experiments.iter().map(Experiment::names).collect();
    if names.iter().all(|names| names.len() < 2) {
        return Ok(());
    }
    output::data(format!("\n{}", other_names(&names, width)))
}

/// Every line repeats the experiment's first name, so that a search for any name finds both.
fn other_names(names: &[Vec<String>], width: usize) -> Table {
    let mut table = Table::new(&["experiment", "other names"]);
    let longest = names.iter().filter(|names| names.len() > 1);
    let longest = longest.map(|names| names[0].len()).max().unwrap_or(0);
    let room = width.saturating_sub(longest.max("experiment".len()) + 2);
    for names in names {
        if let [first, others @ ..] = names.as_slice()
            && !others.is_empty()
        {
            for line in lines(&others.join(" "), room) {
                table.row([first.clone(), line]);
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_other_names_says_whose_they_are_and_fits() {
        let names = [
            vec!["alone".to_owned()],
            ["short", "short-A", "short-B", "short-C", "short-D"]
                .map(str::to_owned)
                .to_vec(),
        ];
        let text = other_names(&names, 30).to_string();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "experiment  other names",
                "short       short-A short-B",
                "short       short-C short-D",
            ]
        );
    }
}
