//! One pair of axes, with lines, areas and marks.

use super::palette;
use super::scale::Scale;
use super::svg::{Anchor, LETTERS, Letters, Stroke, Svg, fitted, width_of};

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    /// Its title, with the unit.
    pub(crate) title: String,
    /// Its scale.
    pub(crate) scale: Scale,
    /// Its numbers; round ones if `None`.
    pub(crate) ticks: Option<Vec<(f64, String)>>,
}

impl Axis {
    /// An axis with round numbers.
    pub(crate) fn new(title: impl Into<String>, scale: Scale) -> Self {
        Self {
            title: title.into(),
            scale,
            ticks: None,
        }
    }

    fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        match &self.ticks {
            Some(ticks) => ticks.clone(),
            None => self.scale.ticks(count),
        }
    }
}

/// How points are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    /// With a line.
    Line,
    /// With a line that stays level until the next point.
    Step,
    /// With a line, and a mark at each point.
    Marked,
    /// Not at all: marks only.
    Marks,
}

/// The line of one series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    /// The series, which determines colour, dashes and mark.
    pub(crate) series: usize,
    /// How points are joined.
    pub(crate) trace: Trace,
    /// The points.
    pub(crate) points: Vec<(f64, f64)>,
    /// The band around them: `(x, low, high)`.
    pub(crate) band: Vec<(f64, f64, f64)>,
}

/// An area of one series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Area {
    /// The series.
    pub(crate) series: usize,
    /// Its outline: `(x, low, high)`.
    pub(crate) points: Vec<(f64, f64, f64)>,
}

/// A straight line across a panel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rule {
    /// Vertical, at an event.
    Event(f64, String),
    /// Horizontal, at a bound.
    Bound(f64, String),
    /// The diagonal where both axes have the same value, with a margin of this share.
    Diagonal(f64),
}

/// One pair of axes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    /// The title above.
    pub(crate) title: String,
    /// The horizontal axis.
    pub(crate) x: Axis,
    /// The vertical axis.
    pub(crate) y: Axis,
    /// Areas, drawn behind all lines.
    pub(crate) areas: Vec<Area>,
    /// The lines.
    pub(crate) lines: Vec<Line>,
    /// Straight lines.
    pub(crate) rules: Vec<Rule>,
}

/// Which of the text around a panel is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around {
    pub(crate) x_title: bool,
    pub(crate) y_title: bool,
}

/// Room for the title above the axes.
pub(crate) const ABOVE: f64 = 17.0;
/// Room below the axes for numbers, and for the title.
pub(crate) const BELOW: f64 = 15.0;
pub(crate) const TITLE: f64 = 14.0;

impl Panel {
    /// An empty panel.
    pub(crate) fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            areas: Vec::new(),
            lines: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// The room that the numbers on the left need.
    pub(crate) fn left(&self, height: f64) -> f64 {
        let ticks = self.y.ticks(y_count(height));
        let widest = ticks.iter().map(|(_, text)| width_of(text, LETTERS));
        widest.fold(0.0, f64::max) + 7.0
    }

    /// Draws the panel with its axes in the rectangle at `at`.
    pub(crate) fn draw(&self, svg: &mut Svg, at: (f64, f64), size: (f64, f64), around: Around) {
        let (left, top) = at;
        let (right, bottom) = (left + size.0, top + size.1);
        let x = self.x.scale.between(left, right);
        let y = self.y.scale.between(bottom, top);
        self.draw_axes(svg, &x, &y, (left, right, top, bottom));
        svg.clipped(
            (left - 0.5, top - 3.0),
            (size.0 + 1.0, size.1 + 3.5),
            |svg| {
                self.draw_data(svg, &x, &y);
            },
        );
        self.draw_rules(svg, &x, &y, (left, right, top, bottom));
        if !self.title.is_empty() {
            let mut letters = Letters::plain(Anchor::Start);
            letters.bold = true;
            let title = fitted(&self.title, LETTERS * 1.06, size.0);
            svg.text((left, top - 6.0), &title, &letters);
        }
        if around.x_title {
            let middle = f64::midpoint(left, right);
            let letters = Letters::plain(Anchor::Middle);
            svg.text((middle, bottom + BELOW + 9.0), &self.x.title, &letters);
        }
        if around.y_title {
            let middle = f64::midpoint(top, bottom);
            let mut letters = Letters::plain(Anchor::Middle);
            letters.upright = true;
            let title = fitted(&self.y.title, LETTERS, size.1 + 30.0);
            svg.text((left - self.left(size.1) - 4.0, middle), &title, &letters);
        }
    }

    fn draw_axes(
        &self,
        svg: &mut Svg,
        x: &Scale,
        y: &Scale,
        (left, right, top, bottom): (f64, f64, f64, f64),
    ) {
        let grid = Stroke::solid(palette::FAINT, 0.7);
        let axis = Stroke::solid(palette::QUIET, 0.8);
        for (value, text) in self.y.ticks(y_count(bottom - top)) {
            let at = y.at(value);
            svg.line((left, at), (right, at), &grid);
            let letters = Letters::quiet(Anchor::End);
            svg.text((left - 4.0, at + 3.2), &text, &letters);
        }
        let ticks = self.x.ticks(((right - left) / 48.0).max(2.0) as usize);
        let mut free = f64::NEG_INFINITY;
        for (value, text) in ticks {
            let at = x.at(value);
            svg.line((at, bottom), (at, bottom + 3.0), &axis);
            let half = width_of(&text, LETTERS) / 2.0;
            if at - half > free {
                let letters = Letters::quiet(Anchor::Middle);
                svg.text((at, bottom + 12.5), &text, &letters);
                free = at + half + 4.0;
            }
        }
        svg.line((left, bottom), (right, bottom), &axis);
    }

    fn draw_data(&self, svg: &mut Svg, x: &Scale, y: &Scale) {
        for area in &self.areas {
            let place = |value: f64, level: f64| (x.at(value), y.at(level));
            let top: Vec<(f64, f64)> = area.points.iter().map(|p| place(p.0, p.2)).collect();
            let back = area.points.iter().rev().map(|p| place(p.0, p.1));
            let outline: Vec<(f64, f64)> = top.iter().copied().chain(back).collect();
            let fill = svg.hatch(area.series);
            svg.polygon(&outline, &fill, 0.82);
            svg.polyline(&top, &Stroke::solid(palette::colour(area.series), 0.8));
        }
        // With many bands on top of each other, darker ones would hide the lines.
        let shade = if self.lines.len() > 3 { 0.1 } else { 0.18 };
        for line in &self.lines {
            let top = line.band.iter().map(|p| (x.at(p.0), y.at(p.2)));
            let back = line.band.iter().rev().map(|p| (x.at(p.0), y.at(p.1)));
            let outline: Vec<(f64, f64)> = top.chain(back).collect();
            svg.polygon(&outline, palette::colour(line.series), shade);
        }
        for line in &self.lines {
            draw_line(svg, line, x, y);
        }
    }

    fn draw_rules(
        &self,
        svg: &mut Svg,
        x: &Scale,
        y: &Scale,
        (left, right, top, bottom): (f64, f64, f64, f64),
    ) {
        let letters = Letters {
            size: LETTERS * 0.9,
            ..Letters::quiet(Anchor::Start)
        };
        let stroke = Stroke {
            colour: palette::INK,
            width: 0.9,
            dash: "3 2",
        };
        for (order, rule) in self.rules.iter().enumerate() {
            match rule {
                Rule::Event(value, text) => {
                    let at = x.at(*value);
                    let next = self.rules[order + 1..].iter().find_map(|rule| match rule {
                        Rule::Event(later, _) => Some(x.at(*later)),
                        _ => None,
                    });
                    svg.line((at, top - 2.0), (at, bottom), &stroke);
                    let room = next.unwrap_or(right) - at - 5.0;
                    if room > 18.0 {
                        let text = fitted(text, letters.size, room);
                        svg.text((at + 3.0, top + 6.0), &text, &letters);
                    }
                }
                Rule::Bound(value, text) => {
                    let at = y.at(*value);
                    svg.line((left, at), (right, at), &stroke);
                    let text = fitted(text, letters.size, right - left - 6.0);
                    let end = Letters {
                        anchor: Anchor::End,
                        ..letters
                    };
                    svg.text((right - 3.0, at - 3.0), &text, &end);
                }
                Rule::Diagonal(share) => {
                    let (low, high) = x.range();
                    let along = |factor: f64| move |value: f64| (x.at(value), y.at(value * factor));
                    let (above, below) = (along(1.0 + share), along(1.0 - share));
                    svg.clipped((left, top), (right - left, bottom - top), |svg| {
                        let band = [above(low), above(high), below(high), below(low)];
                        svg.polygon(&band, palette::QUIET, 0.16);
                        svg.line(along(1.0)(low), along(1.0)(high), &stroke);
                    });
                }
            }
        }
    }
}

fn draw_line(svg: &mut Svg, line: &Line, x: &Scale, y: &Scale) {
    let places: Vec<(f64, f64)> = line.points.iter().map(|p| (x.at(p.0), y.at(p.1))).collect();
    let stroke = Stroke {
        colour: palette::colour(line.series),
        width: 1.5,
        dash: palette::dash(line.series),
    };
    match line.trace {
        Trace::Line | Trace::Marked => svg.polyline(&places, &stroke),
        Trace::Step => {
            let mut steps: Vec<(f64, f64)> = Vec::with_capacity(places.len() * 2);
            for place in &places {
                if let Some((_, height)) = steps.last() {
                    steps.push((place.0, *height));
                }
                steps.push(*place);
            }
            svg.polyline(&steps, &stroke);
        }
        Trace::Marks => {}
    }
    if matches!(line.trace, Trace::Marked | Trace::Marks) {
        for place in &places {
            svg.mark(*place, line.series, 2.7, line.trace == Trace::Marks);
        }
    }
}

/// How many numbers fit beside an axis of this height.
fn y_count(height: f64) -> usize {
    (height / 26.0).clamp(2.0, 8.0) as usize
}
