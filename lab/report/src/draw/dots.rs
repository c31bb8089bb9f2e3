//! Rows of figures: the mean with its interval, all points, a box.

use super::legend::{self, Sample};
use super::scale::Scale;
use super::svg::{Anchor, LETTERS, Letters, Stroke, Svg, fitted, width_of};
use super::{NARROW, Plot, palette};

/// One figure of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dot {
    /// Determines colour and mark.
    pub(crate) series: usize,
    /// The figure.
    pub(crate) value: f64,
    /// Its interval.
    pub(crate) interval: Option<(f64, f64)>,
    /// Lower quartile, median, upper quartile, if a box is wanted.
    pub(crate) quartiles: Option<[f64; 3]>,
    /// All values behind the figure, if they are few.
    pub(crate) points: Vec<f64>,
}

/// A vertical line that figures are compared with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reference {
    /// Its position.
    pub(crate) at: f64,
    /// Its name.
    pub(crate) name: String,
}

/// Rows of figures.
#[derive(Debug, Clone)]
pub(crate) struct Dots {
    /// Row names and their figures.
    pub(crate) rows: Vec<(String, Vec<Dot>)>,
    /// The title of the axis below, with its unit.
    pub(crate) title: String,
    /// The scale of that axis.
    pub(crate) scale: Scale,
    /// Vertical lines.
    pub(crate) references: Vec<Reference>,
    /// The names of the series, if a row has several figures.
    pub(crate) legend: Vec<(usize, String)>,
}

const ROW: f64 = 19.0;

impl Plot for Dots {
    fn draw(&self, id: &str, width: f64) -> Svg {
        let mut svg = Svg::new(id, width, 0.0);
        let entries: Vec<(usize, String, Sample)> = self
            .legend
            .iter()
            .map(|(series, name)| (*series, name.clone(), Sample::Mark))
            .collect();
        let mut top = legend::draw(&mut svg, (2.0, 4.0), width - 4.0, &entries) + 4.0;
        let most = if width < NARROW { 0.36 } else { 0.3 } * width;
        let widest = self.rows.iter().map(|(name, _)| width_of(name, LETTERS));
        let left = widest.fold(0.0, f64::max).min(most) + 10.0;
        let right = width - 12.0;
        let x = self.scale.between(left, right);
        top += self.draw_references(&mut svg, &x, top, (left, right));
        let bottom = top + self.rows.len() as f64 * ROW + 4.0;
        self.draw_frame(&mut svg, &x, (left, right, top, bottom));
        for (order, (name, dots)) in self.rows.iter().enumerate() {
            let middle = top + 2.0 + (order as f64 + 0.5) * ROW;
            let letters = Letters::plain(Anchor::End);
            let name = fitted(name, LETTERS, most);
            svg.text((left - 7.0, middle + 3.2), &name, &letters);
            for (nth, dot) in dots.iter().enumerate() {
                let spread = if dots.len() > 1 { 3.0 } else { 0.0 };
                let offset = nth as f64 - (dots.len() - 1) as f64 / 2.0;
                draw_dot(&mut svg, dot, &x, middle + offset * spread);
            }
        }
        svg.set_height(bottom + 30.0);
        svg
    }
}

impl Dots {
    fn draw_frame(
        &self,
        svg: &mut Svg,
        x: &Scale,
        (left, right, top, bottom): (f64, f64, f64, f64),
    ) {
        let count = ((right - left) / 58.0).max(2.0) as usize;
        for (value, text) in x.ticks(count) {
            let at = x.at(value);
            svg.line((at, top), (at, bottom), &Stroke::solid(palette::FAINT, 0.7));
            let letters = Letters::quiet(Anchor::Middle);
            svg.text((at, bottom + 12.0), &text, &letters);
        }
        let axis = Stroke::solid(palette::QUIET, 0.8);
        svg.line((left, bottom), (right, bottom), &axis);
        for reference in &self.references {
            let at = x.at(reference.at);
            let stroke = Stroke {
                colour: palette::INK,
                width: 0.9,
                dash: "3 2",
            };
            svg.line((at, top - 2.0), (at, bottom), &stroke);
        }
        let letters = Letters::plain(Anchor::Middle);
        let middle = f64::midpoint(left, right);
        svg.text((middle, bottom + 26.0), &self.title, &letters);
    }

    /// Draws the names of the vertical lines, each on a line of its own; returns their height.
    fn draw_references(
        &self,
        svg: &mut Svg,
        x: &Scale,
        top: f64,
        (left, right): (f64, f64),
    ) -> f64 {
        let size = LETTERS * 0.9;
        for (order, reference) in self.references.iter().enumerate() {
            let at = x.at(reference.at);
            let half = width_of(&reference.name, size) / 2.0;
            let middle = at.min(right - half).max(left + half);
            let letters = Letters {
                size,
                ..Letters::quiet(Anchor::Middle)
            };
            let y = top + 8.0 + order as f64 * 11.0;
            svg.text((middle, y), &reference.name, &letters);
            let below = top + self.references.len() as f64 * 11.0 + 2.0;
            svg.line(
                (at, y + 2.5),
                (at, below),
                &Stroke::solid(palette::QUIET, 0.5),
            );
        }
        if self.references.is_empty() {
            0.0
        } else {
            self.references.len() as f64 * 11.0 + 4.0
        }
    }
}

fn draw_dot(svg: &mut Svg, dot: &Dot, x: &Scale, y: f64) {
    let colour = palette::colour(dot.series);
    if let Some([low, middle, high]) = dot.quartiles {
        let (from, to) = (x.at(low), x.at(high));
        svg.rectangle((from, y - 6.0), (to - from, 12.0), colour, 0.22);
        svg.outline(
            (from, y - 6.0),
            (to - from, 12.0),
            &Stroke::solid(colour, 0.9),
        );
        let median = Stroke::solid(colour, 2.0);
        svg.line((x.at(middle), y - 6.0), (x.at(middle), y + 6.0), &median);
    }
    for (order, point) in dot.points.iter().enumerate() {
        // Shifted, so that equal points remain visible side by side.
        let off = ((order * 7) % 5) as f64 - 2.0;
        let at = (x.at(*point) - 1.2, y + off * 1.4 - 1.2);
        svg.rectangle(at, (2.4, 2.4), colour, 0.45);
    }
    if let Some((low, high)) = dot.interval {
        svg.line(
            (x.at(low), y),
            (x.at(high), y),
            &Stroke::solid(palette::INK, 1.6),
        );
        for end in [low, high] {
            let at = x.at(end);
            let stroke = Stroke::solid(palette::INK, 1.2);
            svg.line((at, y - 3.0), (at, y + 3.0), &stroke);
        }
    }
    svg.mark((x.at(dot.value), y), dot.series, 3.4, false);
}
