//! Drawing: plain SVG with text as text, for a page, for a paper, and for a raster image.
//!
//! Lengths are CSS pixels, 96 to the inch. Every plot is drawn once for each of [`WIDTHS`], not
//! scaled, so that its letters keep their size.

mod bars;
mod dots;
mod grid;
mod heat;
mod legend;
mod palette;
mod panel;
mod scale;
mod svg;
#[cfg(test)]
mod tests;

pub(crate) use bars::Bars;
pub(crate) use dots::{Dot, Dots, Reference};
pub(crate) use grid::Grid;
pub(crate) use heat::{Cell, Heat, Map, Ramp};
pub(crate) use panel::{Area, Axis, Line, Panel, Rule, Trace};
pub(crate) use scale::{Scale, Unit, decimals};
pub(crate) use svg::{Svg, escaped};

use std::fmt::Debug;

/// The widths of plots: two columns of a paper (178 mm) and one (85 mm).
pub const WIDTHS: [(f64, &str); 2] = [(672.8, "178mm"), (321.3, "85mm")];

/// Narrower plots are drawn for one column.
pub(crate) const NARROW: f64 = 450.0;

/// Something that can be drawn at any width.
pub(crate) trait Plot: Debug {
    /// Draws it; `id` is unique among all drawings of a page.
    fn draw(&self, id: &str, width: f64) -> Svg;
}
