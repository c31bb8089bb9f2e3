//! Writes the files of a report.

use crate::draw::WIDTHS;
use crate::error::ReportError;
use crate::figures::{Figure, figures};
use crate::load::Folder;
use crate::page::Page;
use crate::raster::Rasteriser;
use crate::study::Study;
use anabranch_lab::scenario::nearest;
use anabranch_schedulers::Names;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of a report.
#[derive(Debug, Clone, Default)]
pub struct PageOptions {
    /// The output folder, for `report.html`, `report.md` and a folder `plots`.
    pub out: PathBuf,
    /// The figures to write, without a page; all figures and the page if empty.
    pub only: Vec<String>,
    /// Write no PNG files, which take most of the time.
    pub no_png: bool,
    /// The schedulers and controllers that the scenarios of the results may name.
    pub names: Arc<Names>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The page, unless only some figures were asked for.
    pub page: Option<PathBuf>,
    /// The figures, by name.
    pub figures: Vec<String>,
    /// Remarks for the user.
    pub remarks: Vec<String>,
}

/// Makes the report of these results.
///
/// # Errors
/// [`ReportError`] if one of `folders` has no results, a figure asked for does not exist, or a file
/// cannot be written.
pub fn page(folders: &[PathBuf], options: &PageOptions) -> Result<Written, ReportError> {
    let mut loaded = Vec::new();
    for path in folders {
        loaded.extend(Folder::load_all(path, &options.names)?);
    }
    let mut written = Written::default();
    for folder in loaded.iter().filter(|folder| folder.left_out > 0) {
        let (path, count) = (folder.path.display(), folder.left_out);
        let remark = format!("{path}: {count} parts are of another version and were left out");
        written.remarks.push(remark);
    }
    let studies = Study::all(loaded);
    let mut made: Vec<(Study, Vec<Figure>)> = studies
        .into_iter()
        .map(|study| {
            let figures = figures(&study);
            (study, figures)
        })
        .collect();
    choose(&mut made, &options.only)?;
    let plots = options.out.join("plots");
    fs::create_dir_all(&plots).map_err(|error| failed(&plots, error))?;
    let rasteriser = if options.no_png {
        None
    } else {
        Rasteriser::new()
    };
    if rasteriser.is_none() && !options.no_png {
        let remark = "no fonts on this machine: PNG files were left out; SVG needs none";
        written.remarks.push(remark.to_owned());
    }
    for figure in made.iter().flat_map(|(_, figures)| figures) {
        write_figure(&plots, figure, rasteriser.as_ref())?;
        written.figures.push(figure.name.clone());
    }
    if options.only.is_empty() {
        let page = Page::of(&made, &options.out, rasteriser.is_some());
        let html = options.out.join("report.html");
        write(&html, page.html().as_bytes())?;
        write(&options.out.join("report.md"), page.markdown().as_bytes())?;
        written.page = Some(html);
    }
    Ok(written)
}

/// Keeps the figures asked for.
fn choose(made: &mut [(Study, Vec<Figure>)], only: &[String]) -> Result<(), ReportError> {
    if only.is_empty() {
        return Ok(());
    }
    let figures = made.iter().flat_map(|(_, figures)| figures);
    let known: Vec<String> = figures.map(|figure| figure.name.clone()).collect();
    if let Some(name) = only.iter().find(|name| !known.contains(name)) {
        return Err(ReportError::Figure {
            name: name.clone(),
            nearest: nearest(name, known.iter().map(String::as_str)),
            known,
        });
    }
    for (_, figures) in made {
        figures.retain(|figure| only.contains(&figure.name));
    }
    Ok(())
}

fn write_figure(
    plots: &Path,
    figure: &Figure,
    rasteriser: Option<&Rasteriser>,
) -> Result<(), ReportError> {
    for (width, name) in WIDTHS {
        let path = plots.join(format!("{}-{name}.svg", figure.name));
        write(&path, figure.svg(width).as_bytes())?;
        if let Some(rasteriser) = rasteriser {
            let path = plots.join(format!("{}-{name}.png", figure.name));
            write(&path, &rasteriser.png(figure, width)?)?;
        }
    }
    let vega = plots.join(format!("{}.vl.json", figure.name));
    write(&vega, figure.vega_lite().as_bytes())?;
    write(
        &plots.join(format!("{}.csv", figure.name)),
        figure.csv.as_bytes(),
    )
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    fs::write(path, bytes).map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: std::io::Error) -> ReportError {
    ReportError::Output {
        path: path.to_owned(),
        error,
    }
}
