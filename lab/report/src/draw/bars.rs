//! Rows of shares that add up to a whole.

use super::legend::{self, Sample};
use super::svg::{Anchor, LETTERS, Letters, Stroke, Svg, fitted, width_of};
use super::{NARROW, Plot, palette};

/// Rows of stacked bars of equal length.
#[derive(Debug, Clone)]
pub(crate) struct Bars {
    /// Row names, with a share for each part.
    pub(crate) rows: Vec<(String, Vec<f64>)>,
    /// The names of the parts, for the legend.
    pub(crate) parts: Vec<String>,
    /// The title of the axis below.
    pub(crate) title: String,
}

const ROW: f64 = 21.0;

impl Plot for Bars {
    fn draw(&self, id: &str, width: f64) -> Svg {
        let mut svg = Svg::new(id, width, 0.0);
        let entries: Vec<(usize, String, Sample)> = self
            .parts
            .iter()
            .enumerate()
            .map(|(series, name)| (series, name.clone(), Sample::Patch))
            .collect();
        let top = legend::draw(&mut svg, (2.0, 4.0), width - 4.0, &entries) + 6.0;
        let most = if width < NARROW { 0.36 } else { 0.3 } * width;
        let widest = self.rows.iter().map(|(name, _)| width_of(name, LETTERS));
        let left = widest.fold(0.0, f64::max).min(most) + 10.0;
        let long = width - 14.0 - left;
        for (order, (name, shares)) in self.rows.iter().enumerate() {
            let y = top + order as f64 * ROW;
            let name = fitted(name, LETTERS, most);
            let letters = Letters::plain(Anchor::End);
            svg.text((left - 7.0, y + 11.5), &name, &letters);
            let total: f64 = shares.iter().sum();
            let mut from = left;
            for (series, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                let wide = share / total * long;
                draw_part(&mut svg, series, share / total, (from, y), wide);
                from += wide;
            }
        }
        let bottom = top + self.rows.len() as f64 * ROW;
        let axis = Stroke::solid(palette::QUIET, 0.8);
        svg.line((left, bottom), (left + long, bottom), &axis);
        for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
            let at = left + long * percent / 100.0;
            svg.line((at, bottom), (at, bottom + 3.0), &axis);
            let letters = Letters::quiet(Anchor::Middle);
            svg.text((at, bottom + 13.0), &format!("{percent}"), &letters);
        }
        let letters = Letters::plain(Anchor::Middle);
        svg.text((left + long / 2.0, bottom + 27.0), &self.title, &letters);
        svg.set_height(bottom + 31.0);
        svg
    }
}

fn draw_part(svg: &mut Svg, series: usize, share: f64, (x, y): (f64, f64), wide: f64) {
    let fill = svg.hatch(series);
    svg.rectangle((x, y), (wide, ROW - 5.0), &fill, 1.0);
    svg.outline(
        (x, y),
        (wide, ROW - 5.0),
        &Stroke::solid(palette::PAPER, 1.0),
    );
    let text = format!("{:.0} %", share * 100.0);
    let room = width_of(&text, LETTERS) + 4.0;
    if wide > room + 4.0 {
        // A background patch keeps the number legible on the hatching.
        let middle = x + wide / 2.0;
        svg.rectangle(
            (middle - room / 2.0, y + 2.0),
            (room, ROW - 9.0),
            palette::PAPER,
            0.9,
        );
        let letters = Letters::plain(Anchor::Middle);
        svg.text((middle, y + 11.5), &text, &letters);
    }
}
