//! A drawing in progress.

use super::palette;
use std::fmt::Write;

/// Fonts in order of preference.
pub(crate) const FONTS: &str =
    "Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif";

/// Size of ordinary letters.
pub(crate) const LETTERS: f64 = 9.5;

/// The point of a text that is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Letters<'a> {
    pub(crate) anchor: Anchor,
    pub(crate) colour: &'a str,
    pub(crate) size: f64,
    pub(crate) bold: bool,
    /// Rotated, to be read from the bottom up.
    pub(crate) upright: bool,
}

impl Letters<'_> {
    /// The style of labels.
    pub(crate) fn plain(anchor: Anchor) -> Self {
        Self {
            anchor,
            colour: palette::INK,
            size: LETTERS,
            bold: false,
            upright: false,
        }
    }

    /// The style of remarks and numbers on axes.
    pub(crate) fn quiet(anchor: Anchor) -> Self {
        Self {
            colour: palette::QUIET,
            ..Self::plain(anchor)
        }
    }
}

/// How a line looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stroke<'a> {
    pub(crate) colour: &'a str,
    pub(crate) width: f64,
    pub(crate) dash: &'a str,
}

impl<'a> Stroke<'a> {
    /// A line without dashes.
    pub(crate) fn solid(colour: &'a str, width: f64) -> Self {
        Self {
            colour,
            width,
            dash: "",
        }
    }

    fn attributes(&self) -> String {
        let mut text = format!(
            "stroke=\"{}\" stroke-width=\"{}\"",
            self.colour,
            short(self.width)
        );
        if !self.dash.is_empty() {
            let _ = write!(text, " stroke-dasharray=\"{}\"", self.dash);
        }
        text
    }
}

/// A drawing of one size.
#[derive(Debug, Clone)]
pub(crate) struct Svg {
    id: String,
    width: f64,
    height: f64,
    definitions: String,
    body: String,
}

impl Svg {
    /// An empty drawing; its height may be set later.
    pub(crate) fn new(id: &str, width: f64, height: f64) -> Self {
        Self {
            id: id.to_owned(),
            width,
            height,
            definitions: String::new(),
            body: String::new(),
        }
    }

    /// Sets the height, once it is known.
    pub(crate) fn set_height(&mut self, height: f64) {
        self.height = height;
    }

    /// A straight line; nothing if its length is zero.
    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &Stroke<'_>) {
        if !is_long(&[from, to]) {
            return;
        }
        let _ = writeln!(
            self.body,
            "<path d=\"M{} {}L{} {}\" fill=\"none\" {}/>",
            short(from.0),
            short(from.1),
            short(to.0),
            short(to.1),
            stroke.attributes()
        );
    }

    /// A line through points; nothing if they coincide.
    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], stroke: &Stroke<'_>) {
        if !is_long(points) {
            return;
        }
        let _ = writeln!(
            self.body,
            "<path d=\"{}\" fill=\"none\" stroke-linejoin=\"round\" {}/>",
            path(points),
            stroke.attributes()
        );
    }

    /// A filled area; nothing if it is flat. `fill` is a colour or the result of
    /// [`hatch`](Self::hatch).
    pub(crate) fn polygon(&mut self, points: &[(f64, f64)], fill: &str, opacity: f64) {
        if is_flat(points) {
            return;
        }
        let _ = writeln!(
            self.body,
            "<path d=\"{}Z\" fill=\"{fill}\"{}/>",
            path(points),
            opaque(opacity)
        );
    }

    /// A filled rectangle; nothing if it is flat.
    pub(crate) fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), fill: &str, opacity: f64) {
        if is_flat(&[(0.0, 0.0), (size.0.max(0.0), size.1.max(0.0))]) {
            return;
        }
        let _ = writeln!(
            self.body,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"{}/>",
            short(at.0),
            short(at.1),
            short(size.0.max(0.0)),
            short(size.1.max(0.0)),
            opaque(opacity)
        );
    }

    /// The outline of a rectangle; nothing if it is flat.
    pub(crate) fn outline(&mut self, at: (f64, f64), size: (f64, f64), stroke: &Stroke<'_>) {
        if is_flat(&[(0.0, 0.0), (size.0.max(0.0), size.1.max(0.0))]) {
            return;
        }
        let _ = writeln!(
            self.body,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" {}/>",
            short(at.0),
            short(at.1),
            short(size.0.max(0.0)),
            short(size.1.max(0.0)),
            stroke.attributes()
        );
    }

    /// Text with its baseline at `at`.
    pub(crate) fn text(&mut self, at: (f64, f64), text: &str, letters: &Letters<'_>) {
        let anchor = match letters.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = (short(at.0), short(at.1));
        let turned = if letters.upright {
            format!(" transform=\"rotate(-90 {x} {y})\"")
        } else {
            String::new()
        };
        let bold = if letters.bold {
            " font-weight=\"bold\""
        } else {
            ""
        };
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" fill=\"{}\" \
             text-anchor=\"{anchor}\"{bold}{turned}>{}</text>",
            short(letters.size),
            letters.colour,
            escaped(text)
        );
    }

    /// The mark of a series centred at `at`, filled or hollow.
    pub(crate) fn mark(&mut self, at: (f64, f64), series: usize, size: f64, hollow: bool) {
        let (x, y) = at;
        let colour = palette::colour(series);
        let inside = if hollow { palette::PAPER } else { colour };
        let ends = |points: &[(f64, f64)]| {
            let moved: Vec<(f64, f64)> = points
                .iter()
                .map(|(dx, dy)| (x + dx * size, y + dy * size))
                .collect();
            format!("<path d=\"{}Z\"", path(&moved))
        };
        let shape = match palette::mark(series) {
            0 => format!(
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\"",
                short(x),
                short(y),
                short(size)
            ),
            1 => ends(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
            2 => ends(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
            3 => ends(&[(0.0, -1.3), (1.1, 0.0), (0.0, 1.3), (-1.1, 0.0)]),
            4 => ends(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
            5 => ends(&[(-1.2, 0.0), (0.8, -1.1), (0.8, 1.1)]),
            6 => ends(&[(1.2, 0.0), (-0.8, -1.1), (-0.8, 1.1)]),
            _ => ends(&[(-1.2, -0.5), (1.2, -0.5), (1.2, 0.5), (-1.2, 0.5)]),
        };
        let _ = writeln!(
            self.body,
            "{shape} fill=\"{inside}\" stroke=\"{colour}\" stroke-width=\"1\"/>"
        );
    }

    /// A fill in the colour of a series, hatched so that it can be told from others without colour.
    pub(crate) fn hatch(&mut self, series: usize) -> String {
        let name = format!("{}-h{series}", self.id);
        let colour = palette::colour(series);
        let lines = match palette::mark(series) {
            0 => return colour.to_owned(),
            1 => "M-1 7L7 -1M-1 1L1 -1M5 7L7 5",
            2 => "M-1 -1L7 7M5 -1L7 1M-1 5L1 7",
            3 => "M0 3H6",
            4 => "M3 0V6",
            5 => "M0 3H6M3 0V6",
            6 => "M-1 7L7 -1M-1 -1L7 7",
            _ => "M2 3H4M0 0H1M5 0H6",
        };
        let definition = format!(
            "<pattern id=\"{name}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
             <rect width=\"6\" height=\"6\" fill=\"{colour}\"/><path d=\"{lines}\" fill=\"none\" \
             stroke=\"#fefefe\" stroke-opacity=\"0.55\" stroke-width=\"1\"/></pattern>\n"
        );
        if !self.definitions.contains(&definition) {
            self.definitions.push_str(&definition);
        }
        format!("url(#{name})")
    }

    /// Clips what `draw` draws to a rectangle.
    pub(crate) fn clipped(
        &mut self,
        at: (f64, f64),
        size: (f64, f64),
        draw: impl FnOnce(&mut Self),
    ) {
        let count = self.definitions.matches("<clipPath").count();
        let name = format!("{}-c{count}", self.id);
        let _ = writeln!(
            self.definitions,
            "<clipPath id=\"{name}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\
             </clipPath>",
            short(at.0),
            short(at.1),
            short(size.0),
            short(size.1)
        );
        let _ = writeln!(self.body, "<g clip-path=\"url(#{name})\">");
        draw(self);
        self.body.push_str("</g>\n");
    }

    /// The drawing as a separate file, on white.
    pub(crate) fn file(&self, title: &str, about: &str) -> String {
        let millimetres = |length: f64| short(length / 96.0 * 25.4);
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}mm\" height=\"{}mm\" {}\
             <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n{}</svg>\n",
            millimetres(self.width),
            millimetres(self.height),
            self.head(title, about),
            palette::PAPER,
            self.content()
        )
    }

    /// The drawing as part of a page, whose style sheet sets the colours of ink and paper.
    pub(crate) fn inline(&self, class: &str, title: &str, about: &str) -> String {
        format!(
            "<svg class=\"{class}\" style=\"max-width:{}px\" {}{}</svg>\n",
            short(self.width * 1.15),
            self.head(title, about),
            self.content()
        )
    }

    /// Width over height, both in pixels.
    pub(crate) fn size(&self) -> (f64, f64) {
        (self.width, self.height)
    }

    fn head(&self, title: &str, about: &str) -> String {
        let id = &self.id;
        format!(
            "viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\" \
             font-family=\"{FONTS}\">\n<title id=\"{id}-t\">{}</title>\n\
             <desc id=\"{id}-d\">{}</desc>\n",
            short(self.width),
            short(self.height),
            escaped(title),
            escaped(about)
        )
    }

    fn content(&self) -> String {
        if self.definitions.is_empty() {
            return self.body.clone();
        }
        format!("<defs>\n{}</defs>\n{}", self.definitions, self.body)
    }
}

/// How much wider than Helvetica the widest of [`FONTS`] is; which of them a reader has is unknown.
const WIDEST: f64 = 1.13;

/// An upper bound for the width of a text in ordinary letters of `size`, from the widths of
/// Helvetica.
pub(crate) fn width_of(text: &str, size: f64) -> f64 {
    let width = |c: char| match c {
        'i' | 'j' | 'l' | '\'' | '|' => 0.23,
        '.' | ',' | ':' | ';' | ' ' | 'f' | 't' | 'I' | '/' | '!' | '[' | ']' => 0.28,
        '(' | ')' | 'r' | '-' => 0.34,
        'm' | 'M' | 'W' | '%' => 0.86,
        'w' => 0.72,
        'A'..='Z' => 0.68,
        '=' | '+' | '±' | '×' | '÷' | '<' | '>' => 0.59,
        _ => 0.556,
    };
    text.chars().map(width).sum::<f64>() * size * WIDEST
}

/// `text` cut to a width, with an ellipsis if it was too long.
pub(crate) fn fitted(text: &str, size: f64, room: f64) -> String {
    if width_of(text, size) <= room {
        return text.to_owned();
    }
    let mut cut = text.to_owned();
    while cut.pop().is_some() && width_of(&cut, size) + size > room {}
    format!("{}…", cut.trim_end())
}

fn opaque(opacity: f64) -> String {
    if opacity < 1.0 {
        format!(" fill-opacity=\"{opacity}\"")
    } else {
        String::new()
    }
}

fn path(points: &[(f64, f64)]) -> String {
    let mut text = String::with_capacity(points.len() * 12);
    for (at, (x, y)) in points.iter().enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        let _ = write!(text, "{command}{} {}", short(*x), short(*y));
    }
    text
}

/// Whether the points differ after rounding. Some programs draw a line of length zero as a dot,
/// others complain.
fn is_long(points: &[(f64, f64)]) -> bool {
    let written = |(x, y): (f64, f64)| (short(x), short(y));
    points
        .windows(2)
        .any(|pair| written(pair[0]) != written(pair[1]))
}

/// Whether the points, after rounding, all have the same height or all the same x, so that they
/// enclose no area.
fn is_flat(points: &[(f64, f64)]) -> bool {
    let same = |get: fn(&(f64, f64)) -> f64| {
        let mut pairs = points.windows(2);
        pairs.all(|pair| (short(get(&pair[0])) - short(get(&pair[1]))).abs() < 0.005)
    };
    same(|point| point.0) || same(|point| point.1)
}

/// A length rounded to a hundredth of a pixel.
fn short(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Text escaped for XML and HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
