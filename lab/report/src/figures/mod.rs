//! The figures that results give, and their content. A figure without data is not made.

mod agreement;
mod cdf;
mod overview;
mod paths;
mod promise;
mod sweeps;
mod time;
mod view;

pub use promise::promise;
pub(crate) use view::View;

use crate::draw::{Plot, WIDTHS};
use crate::study::Study;
use crate::vega::Chart;
use std::fmt::{Display, Write};

/// A plot with its texts and data.
#[derive(Debug)]
pub struct Figure {
    /// Its name, also in file names.
    pub name: String,
    /// What it shows, in a few words.
    pub title: String,
    /// What a reader has to know: number of runs, kind of interval.
    pub caption: String,
    /// A description for those who cannot see it.
    pub alt: String,
    /// The data it is drawn from, as comma-separated values.
    pub csv: String,
    chart: Chart,
    plot: Box<dyn Plot>,
}

impl Figure {
    pub(crate) fn new(
        (name, title): (String, String),
        caption: String,
        alt: String,
        (csv, chart): (Csv, Chart),
        plot: impl Plot + 'static,
    ) -> Self {
        Self {
            name,
            title,
            caption,
            alt,
            csv: csv.0,
            chart,
            plot: Box::new(plot),
        }
    }

    /// The figure as an SVG file, in one of the [`WIDTHS`], in pixels.
    pub fn svg(&self, width: f64) -> String {
        let id = format!("f-{}", self.name);
        self.plot.draw(&id, width).file(&self.title, &self.alt)
    }

    /// The figure for Vega-Lite, as a file to be kept beside its CSV.
    pub fn vega_lite(&self) -> String {
        self.chart.document(&self.name, &self.title, &self.alt)
    }

    /// The figure for a page in all widths, of which the style sheet shows the one that fits.
    pub(crate) fn inline(&self) -> String {
        let drawing = |(width, name): &(f64, &str)| {
            let id = format!("{}-{name}", self.name);
            let class = format!("w{name}");
            self.plot
                .draw(&id, *width)
                .inline(&class, &self.title, &self.alt)
        };
        WIDTHS.iter().map(drawing).collect()
    }

    /// Width and height in pixels when drawn at `width`.
    pub fn size(&self, width: f64) -> (f64, f64) {
        self.plot.draw("size", width).size()
    }
}

/// Rows of data.
#[derive(Debug)]
pub(crate) struct Csv(String);

impl Csv {
    pub(crate) fn new(names: &[&str]) -> Self {
        Self(format!("{}\n", names.join(",")))
    }

    /// All rows as text.
    pub(crate) fn text(self) -> String {
        self.0
    }

    pub(crate) fn row(&mut self, cells: &[&dyn Display]) {
        for (at, cell) in cells.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let text = cell.to_string();
            let _ = if text.contains([',', '"', '\n', '\r']) {
                write!(self.0, "{comma}\"{}\"", text.replace('"', "\"\""))
            } else {
                write!(self.0, "{comma}{text}")
            };
        }
        self.0.push('\n');
    }
}

/// A figure that may be missing, as a cell.
pub(crate) fn maybe(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// All figures of a study, in the order in which they are shown.
pub(crate) fn figures(study: &Study) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (at, folder) in study.folders.iter().enumerate() {
        let label = (study.folders.len() > 1).then(|| study.label(at));
        let Some(view) = View::of(folder, label) else {
            continue;
        };
        figures.extend(sweeps::ratio_map(&view));
        figures.extend(sweeps::goodput_map(&view));
        figures.extend(sweeps::curves(&view));
        figures.extend(overview::goodput(&view));
        figures.extend(overview::gain(&view));
        figures.extend(cdf::completion(&view));
        figures.extend(time::goodput(&view));
        figures.extend(paths::share(&view));
        figures.extend(overview::wait(&view));
        figures.extend(time::buffer(&view));
        figures.extend(paths::state(&view));
        figures.extend(paths::reasons(&view));
    }
    figures.extend(agreement::scatter(study));
    figures
}
