//! Tables for people: columns as wide as they must be, numbers to the right.

use std::fmt;

/// A table that is printed when it is complete.
#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table. A heading that starts with `>` makes its column flush right.
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

    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles: Vec<&str> = self
            .head
            .iter()
            .map(|title| title.trim_start_matches('>'))
            .collect();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(titles[column].chars().count())
        };
        let widths: Vec<usize> = (0..titles.len()).map(width).collect();
        let line = |cells: &[&str]| {
            let mut text = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = cells.get(column).copied().unwrap_or_default();
                let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
                let gap = if column == 0 { "" } else { "  " };
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
    fn missing_cells_are_empty_and_leave_no_trailing_space() {
        let mut table = Table::new(&["a", "b"]);
        table.row(["x".into()]);
        assert_eq!(table.to_string(), "a  b\nx");
    }
}
