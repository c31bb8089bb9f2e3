//! Maps over two swept values, with a colour and a figure for each combination.

use super::palette::{self, diverging, hexadecimal, readable_on, viridis};
use super::svg::{Anchor, LETTERS, Letters, Stroke, Svg, fitted, width_of};
use super::{NARROW, Plot};

/// One combination.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cell {
    /// The figure in the unit of the colour scale; `None` if there is none.
    pub(crate) value: Option<f64>,
    /// The figure as text.
    pub(crate) text: String,
    /// Whether its interval contains the middle of the scale.
    pub(crate) open: bool,
}

/// One map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Map {
    /// What it shows.
    pub(crate) title: String,
    /// Rows from the bottom up, each from left to right.
    pub(crate) cells: Vec<Vec<Cell>>,
}

/// How figures become colours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ramp {
    /// Linear from the smallest to the largest value, in viridis.
    Even(f64, f64),
    /// Logarithmic around 1, from 1/most to most, with a contour at 1.
    Ratio(f64),
}

impl Ramp {
    fn colour(self, value: f64) -> [u8; 3] {
        match self {
            Self::Even(low, high) => viridis(if high > low {
                (value - low) / (high - low)
            } else {
                0.5
            }),
            Self::Ratio(most) => diverging(0.5 + value.ln() / most.ln() / 2.0),
        }
    }

    /// The value at a position of the key, from 0 to 1.
    fn value(self, share: f64) -> f64 {
        match self {
            Self::Even(low, high) => low + share * (high - low),
            Self::Ratio(most) => ((share - 0.5) * 2.0 * most.ln()).exp(),
        }
    }
}

/// Maps with a common colour scale.
#[derive(Debug, Clone)]
pub(crate) struct Heat {
    /// The maps.
    pub(crate) maps: Vec<Map>,
    /// Titles of the x and y axis, with units.
    pub(crate) titles: (String, String),
    /// Values along the x and y axis.
    pub(crate) values: (Vec<String>, Vec<String>),
    /// The colour scale.
    pub(crate) ramp: Ramp,
    /// What the colours show, with the unit.
    pub(crate) key: String,
}

const CELL_HEIGHT: f64 = 19.0;
const KEY: f64 = 36.0;

/// The position of a map, and the text around it.
struct Place {
    left: f64,
    top: f64,
    cell: f64,
}

impl Plot for Heat {
    fn draw(&self, id: &str, width: f64) -> Svg {
        let mut svg = Svg::new(id, width, 0.0);
        let (across, up) = (self.values.0.len(), self.values.1.len());
        let widest = self.values.1.iter().map(|text| width_of(text, LETTERS));
        let numbers = widest.fold(0.0, f64::max) + 7.0;
        let each = numbers + 18.0 + across as f64 * 26.0 + 8.0;
        let columns = if width < NARROW {
            1
        } else {
            ((width / each) as usize).clamp(1, self.maps.len().clamp(1, 4))
        };
        let room = (width - 4.0) / columns as f64;
        let cell = ((room - numbers - 24.0) / across as f64).min(64.0);
        self.draw_key(&mut svg, (2.0, 3.0), width.min(420.0) - 4.0);
        let tall = 18.0 + up as f64 * CELL_HEIGHT + 34.0;
        for (order, map) in self.maps.iter().enumerate() {
            let (row, column) = (order / columns, order % columns);
            let place = Place {
                left: 2.0 + column as f64 * room + numbers + 15.0,
                top: KEY + row as f64 * tall + 18.0,
                cell,
            };
            self.draw_map(&mut svg, map, &place);
        }
        let rows = self.maps.len().div_ceil(columns);
        svg.set_height(KEY + rows as f64 * tall);
        svg
    }
}

impl Heat {
    fn draw_key(&self, svg: &mut Svg, (x, y): (f64, f64), wide: f64) {
        const STEPS: usize = 48;
        let step = wide / STEPS as f64;
        for at in 0..STEPS {
            let share = (at as f64 + 0.5) / STEPS as f64;
            let colour = hexadecimal(self.ramp.colour(self.ramp.value(share)));
            svg.rectangle((x + at as f64 * step, y), (step + 0.3, 8.0), &colour, 1.0);
        }
        let digits = match self.ramp {
            Ramp::Even(low, high) => super::decimals((high - low) / 4.0),
            Ramp::Ratio(_) => 2,
        };
        for share in [0.0, 0.5, 1.0] {
            let anchor = match share {
                0.0 => Anchor::Start,
                0.5 => Anchor::Middle,
                _ => Anchor::End,
            };
            let text = format!("{:.digits$}", self.ramp.value(share));
            svg.text((x + wide * share, y + 18.0), &text, &Letters::quiet(anchor));
        }
        let text = fitted(&self.key, LETTERS, wide * 0.42);
        let letters = Letters::plain(Anchor::Middle);
        svg.text((x + wide * 0.25, y + 18.0), &text, &letters);
        if matches!(self.ramp, Ramp::Ratio(_)) {
            let text = fitted("line: 1; ≈: interval covers 1", LETTERS, wide * 0.42);
            svg.text(
                (x + wide * 0.75, y + 18.0),
                &text,
                &Letters::quiet(Anchor::Middle),
            );
        }
    }

    fn draw_map(&self, svg: &mut Svg, map: &Map, place: &Place) {
        let up = map.cells.len();
        let wide = place.cell * self.values.0.len() as f64;
        let bottom = place.top + up as f64 * CELL_HEIGHT;
        let corner = |column: usize, row: usize| {
            let x = place.left + column as f64 * place.cell;
            (x, bottom - (row + 1) as f64 * CELL_HEIGHT)
        };
        for (row, cells) in map.cells.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                self.draw_cell(svg, cell, corner(column, row), place.cell);
            }
            let letters = Letters::quiet(Anchor::End);
            let y = bottom - (row as f64 + 0.5) * CELL_HEIGHT + 3.2;
            svg.text((place.left - 4.0, y), &self.values.1[row], &letters);
        }
        if matches!(self.ramp, Ramp::Ratio(_)) {
            draw_contour(svg, map, place, bottom);
        }
        let mut bold = Letters::plain(Anchor::Start);
        bold.bold = true;
        let title = fitted(&map.title, LETTERS * 1.06, wide + 20.0);
        svg.text((place.left, place.top - 6.0), &title, &bold);
        let mut free = f64::NEG_INFINITY;
        for (column, text) in self.values.0.iter().enumerate() {
            let x = place.left + (column as f64 + 0.5) * place.cell;
            let half = width_of(text, LETTERS) / 2.0;
            if x - half > free {
                svg.text((x, bottom + 12.0), text, &Letters::quiet(Anchor::Middle));
                free = x + half + 4.0;
            }
        }
        let middle = Letters::plain(Anchor::Middle);
        svg.text(
            (place.left + wide / 2.0, bottom + 25.0),
            &self.titles.0,
            &middle,
        );
        let upright = Letters {
            upright: true,
            ..middle
        };
        let widest = self.values.1.iter().map(|text| width_of(text, LETTERS));
        let x = place.left - widest.fold(0.0, f64::max) - 9.0;
        let y = f64::midpoint(place.top, bottom);
        let title = fitted(&self.titles.1, LETTERS, bottom - place.top + 30.0);
        svg.text((x, y), &title, &upright);
    }

    fn draw_cell(&self, svg: &mut Svg, cell: &Cell, (x, y): (f64, f64), wide: f64) {
        let size = (wide + 0.2, CELL_HEIGHT + 0.2);
        let Some(value) = cell.value else {
            svg.rectangle((x, y), size, palette::EMPTY, 1.0);
            return;
        };
        let colour = self.ramp.colour(value);
        svg.rectangle((x, y), size, &hexadecimal(colour), 1.0);
        let text = if cell.open {
            format!("≈{}", cell.text)
        } else {
            cell.text.clone()
        };
        let letters = Letters {
            anchor: Anchor::Middle,
            colour: readable_on(colour),
            size: LETTERS * 0.92,
            bold: false,
            upright: false,
        };
        if width_of(&text, letters.size) < wide {
            svg.text(
                (x + wide / 2.0, y + CELL_HEIGHT / 2.0 + 3.0),
                &text,
                &letters,
            );
        }
    }
}

/// The contour between cells above and below 1. It follows cell edges: nothing is interpolated
/// between measured values.
fn draw_contour(svg: &mut Svg, map: &Map, place: &Place, bottom: f64) {
    let above = |row: usize, column: usize| -> Option<bool> {
        let cell = map.cells.get(row)?.get(column)?;
        // As displayed: a difference too small for the digits draws no line.
        cell.value.map(|value| (value * 100.0).round() >= 100.0)
    };
    let differ = |a: Option<bool>, b: Option<bool>| matches!((a, b), (Some(a), Some(b)) if a != b);
    let stroke = Stroke::solid("#000000", 2.0);
    for row in 0..map.cells.len() {
        for column in 0..map.cells[row].len() {
            let left = place.left + column as f64 * place.cell;
            let (right, low) = (left + place.cell, bottom - row as f64 * CELL_HEIGHT);
            let high = low - CELL_HEIGHT;
            if differ(above(row, column), above(row, column + 1)) {
                svg.line((right, low), (right, high), &stroke);
            }
            if differ(above(row, column), above(row + 1, column)) {
                svg.line((left, high), (right, high), &stroke);
            }
        }
    }
}
