//! Legends.

use super::palette;
use super::svg::{Anchor, LETTERS, Letters, Stroke, Svg, fitted, width_of};

/// The sample beside a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sample {
    /// A line with the series' dashes.
    Line {
        /// Whether its points are marked.
        marked: bool,
    },
    /// A patch with the series' hatching.
    Patch,
    /// The series' mark alone.
    Mark,
}

/// The height of a line.
const LINE: f64 = 14.0;
const SAMPLE: f64 = 22.0;

/// Draws entries from left to right, in as many lines as they need, and returns their height.
pub(crate) fn draw(
    svg: &mut Svg,
    at: (f64, f64),
    room: f64,
    entries: &[(usize, String, Sample)],
) -> f64 {
    if entries.is_empty() {
        return 0.0;
    }
    let (mut x, mut y) = at;
    for (series, name, sample) in entries {
        let name = fitted(name, LETTERS, room - SAMPLE - 6.0);
        let width = SAMPLE + 5.0 + width_of(&name, LETTERS) + 14.0;
        if x > at.0 && x + width - 14.0 > at.0 + room {
            (x, y) = (at.0, y + LINE);
        }
        draw_sample(svg, (x, y + 5.0), *series, *sample);
        let letters = Letters::plain(Anchor::Start);
        svg.text((x + SAMPLE + 5.0, y + 8.5), &name, &letters);
        x += width;
    }
    y - at.1 + LINE
}

fn draw_sample(svg: &mut Svg, (x, y): (f64, f64), series: usize, sample: Sample) {
    match sample {
        Sample::Line { marked } => {
            let stroke = Stroke {
                colour: palette::colour(series),
                width: 1.8,
                dash: palette::dash(series),
            };
            svg.line((x, y), (x + SAMPLE, y), &stroke);
            if marked {
                svg.mark((x + SAMPLE / 2.0, y), series, 2.6, false);
            }
        }
        Sample::Patch => {
            let fill = svg.hatch(series);
            svg.rectangle((x + 4.0, y - 5.0), (SAMPLE - 4.0, 10.0), &fill, 1.0);
        }
        Sample::Mark => svg.mark((x + SAMPLE / 2.0 + 4.0, y), series, 3.0, false),
    }
}
