//! Tables for people: columns only as wide as needed, numbers aligned right.

use std::fmt;

/// The space between columns.
const GAP: &str = "  ";

/// A table that is printed when it is complete.
#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table. A heading that starts with `>` aligns its column right.
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Breaks cells between words so that no line has more than `width` characters, if words are
    /// short enough. The first column stays whole: readers look for its names.
    pub(crate) fn within(mut self, width: usize) -> Self {
        let widths = self.widths_within(width);
        let rows = std::mem::take(&mut self.rows);
        let rows = rows.iter().flat_map(|row| broken(row, &widths));
        self.rows = rows.collect();
        self
    }

    /// Column widths that fit. Narrows columns one character at a time, where it breaks the fewest
    /// cells.
    fn widths_within(&self, width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.head.len()).map(|at| self.width(at)).collect();
        let least = |at: usize| {
            let words = self.cells(at).flat_map(|cell| cell.split(' ')).map(length);
            words.max().unwrap_or(0).max(length(self.title(at)))
        };
        let least: Vec<usize> = (0..self.head.len()).map(least).collect();
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width {
            let more_lines = |at: usize| {
                let lines = |room: usize| {
                    let lines = self.cells(at).map(|cell| length(cell).div_ceil(room));
                    lines.sum::<usize>()
                };
                lines(widths[at] - 1) - lines(widths[at])
            };
            let narrower = (1..widths.len()).filter(|at| widths[*at] > least[*at].max(1));
            let cheapest = narrower.min_by_key(|at| (more_lines(*at), usize::MAX - widths[*at]));
            let Some(at) = cheapest else { break };
            widths[at] -= 1;
        }
        widths
    }

    fn title(&self, column: usize) -> &'static str {
        self.head[column].trim_start_matches('>')
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        let rows = self.rows.iter();
        rows.filter_map(move |row| row.get(column).map(String::as_str))
    }

    /// The width of the widest cell or of the title.
    fn width(&self, column: usize) -> usize {
        let widest = self.cells(column).map(length).max().unwrap_or(0);
        widest.max(length(self.title(column)))
    }

    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles: Vec<&str> = (0..self.head.len()).map(|at| self.title(at)).collect();
        let widths: Vec<usize> = (0..titles.len()).map(|at| self.width(at)).collect();
        let line = |cells: &[&str]| {
            let mut text = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = cells.get(column).copied().unwrap_or_default();
                let pad = " ".repeat(width.saturating_sub(length(cell)));
                let gap = if column == 0 { "" } else { GAP };
                let right = self.head[column].starts_with('>');
                text += gap;
                text += &if right {
                    pad + cell
                } else {
                    cell.to_owned() + &pad
                };
            }
            text.truncate(text.trim_end().len());
            text
        };
        f.write_str(&line(&titles))?;
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            write!(f, "\n{}", line(&cells))?;
        }
        Ok(())
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Splits a row into rows whose cells are no wider than their columns.
fn broken(row: &[String], widths: &[usize]) -> Vec<Vec<String>> {
    let cells = row.iter().zip(widths);
    let cells: Vec<Vec<String>> = cells.map(|(cell, width)| lines(cell, *width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let line = |at: usize| {
        let pieces = cells.iter().map(|lines| lines.get(at).cloned());
        pieces.map(Option::unwrap_or_default).collect()
    };
    (0..height).map(line).collect()
}

/// The words of a text in lines of at most `width` characters; a longer word gets its own line.
pub(crate) fn lines(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if length(line) + 1 + length(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["name", ">rate"]);
        table.row(["a".into(), "1".into()]);
        table.row(["longer".into(), "12345".into()]);
        assert_eq!(
            table.to_string(),
            "name     rate\na           1\nlonger  12345"
        );
    }

    #[test]
    fn cells_are_broken_where_it_takes_the_fewest_lines() {
        let mut table = Table::new(&["name", "about", "where"]);
        table.row(["one-long-name".into(), "a few words".into(), "here".into()]);
        let last = "there, or somewhere else";
        table.row(["two".into(), "a few more".into(), last.into()]);
        let natural = table.to_string();
        let text = table.within(44).to_string();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "name           about        where",
                "one-long-name  a few words  here",
                "two            a few more   there, or",
                "                            somewhere else",
            ]
        );
        let words = |text: &str| {
            let words = text.split_whitespace().map(str::to_owned);
            words.collect::<Vec<String>>()
        };
        assert_eq!(words(&text), words(&natural));
    }

    #[test]
    fn a_table_that_fits_stays_and_words_are_never_broken() {
        let table = || {
            let mut table = Table::new(&["name", "about"]);
            table.row(["a-name".into(), "words indivisible".into()]);
            table
        };
        assert_eq!(table().within(25).to_string(), table().to_string());
        assert_eq!(
            table().within(3).to_string(),
            "name    about\na-name  words\n        indivisible"
        );
    }

    #[test]
    fn missing_cells_are_empty_and_leave_no_trailing_space() {
        let mut table = Table::new(&["a", "b"]);
        table.row(["x".into()]);
        assert_eq!(table.to_string(), "a  b\nx");
    }
}
