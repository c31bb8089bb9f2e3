//! Panels in rows and columns under a common legend.

use super::legend::{self, Sample};
use super::panel::{ABOVE, Around, BELOW, Panel, TITLE};
use super::{NARROW, Plot, Svg};

/// Panels in rows and columns, or in one column where there is little room.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    /// The panels, row by row.
    pub(crate) panels: Vec<Panel>,
    /// The number of columns where there is room.
    pub(crate) columns: usize,
    /// The legend.
    pub(crate) legend: Vec<(usize, String, Sample)>,
    /// Height over width of a panel's axes.
    pub(crate) aspect: f64,
}

const GAP: f64 = 14.0;
const MARGIN: f64 = 2.0;

impl Grid {
    /// A grid with one panel.
    pub(crate) fn one(panel: Panel, legend: Vec<(usize, String, Sample)>) -> Self {
        Self {
            panels: vec![panel],
            columns: 1,
            legend,
            aspect: 0.45,
        }
    }

    /// A legend of lines.
    pub(crate) fn lines<'a>(
        names: impl Iterator<Item = (usize, &'a str)>,
        marked: bool,
    ) -> Vec<(usize, String, Sample)> {
        names
            .map(|(series, name)| (series, name.to_owned(), Sample::Line { marked }))
            .collect()
    }

    /// A legend of patches.
    pub(crate) fn patches<'a>(
        names: impl Iterator<Item = (usize, &'a str)>,
    ) -> Vec<(usize, String, Sample)> {
        names
            .map(|(series, name)| (series, name.to_owned(), Sample::Patch))
            .collect()
    }
}

impl Plot for Grid {
    fn draw(&self, id: &str, width: f64) -> Svg {
        let columns = if width < NARROW {
            1
        } else {
            self.columns.clamp(1, self.panels.len().max(1))
        };
        let mut svg = Svg::new(id, width, 0.0);
        let room = width - 2.0 * MARGIN;
        let top = legend::draw(&mut svg, (MARGIN, 4.0), room, &self.legend) + 4.0;
        // Two passes: the numbers on the axes depend on the height, which follows from the width
        // they leave.
        let guess = width / columns as f64 * self.aspect;
        let numbers = self.panels.iter().map(|panel| panel.left(guess));
        let numbers = numbers.fold(0.0, f64::max);
        let title = TITLE;
        let left = MARGIN + title + numbers;
        let each = (width - left - 14.0 - (columns - 1) as f64 * (numbers + GAP)) / columns as f64;
        let height = (each * self.aspect).max(58.0);
        let rows = self.panels.len().div_ceil(columns);
        let mut y = top;
        for row in 0..rows {
            let last = row + 1 == rows;
            y += ABOVE;
            for column in 0..columns {
                let at = row * columns + column;
                let Some(panel) = self.panels.get(at) else {
                    break;
                };
                let around = Around {
                    x_title: last || at + columns >= self.panels.len(),
                    y_title: column == 0,
                };
                let x = left + column as f64 * (each + numbers + GAP);
                panel.draw(&mut svg, (x, y), (each, height), around);
            }
            y += height + BELOW + 3.0;
        }
        svg.set_height(y + TITLE);
        svg
    }
}
