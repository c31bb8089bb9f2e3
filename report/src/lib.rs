//! Results as tables, plots and one page.
//!
//! ```text
//! load       folders of results, of any backend
//! machine    what a folder tells of its machines
//! study      all results of one scenario, and what was claimed of it
//! figures    which figures results give, and what is in them
//! draw       SVG: axes, lines, areas, dots, bars, maps
//! raster     the same as PNG
//! vega       what the CSV of a figure means, for Vega-Lite
//! page       one page without outside requests, and the same as Markdown
//! compare    two folders side by side, with tolerances
//! ```
//!
//! Nothing here computes what results mean: that is `anabranch_lab::stats` and `::report`.

mod compare;
mod draw;
mod error;
mod figures;
mod load;
mod machine;
mod page;
mod raster;
mod study;
mod sweep;
mod vega;
mod verdict;
mod write;

pub use compare::{Comparison, Judgement, Line, Options, compare};
pub use draw::WIDTHS;
pub use error::ReportError;
pub use figures::Figure;
pub use load::Folder;
pub use raster::Rasteriser;
pub use study::{Agreement, Claim, Study};
pub use write::{PageOptions, Written, page};
