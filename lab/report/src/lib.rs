//! Results as tables, plots and one page.
//!
//! ```text
//! load       folders of results, of any backend
//! machine    the facts that a folder records about its machines
//! study      all results of one scenario, and the claims about it
//! figures    the figures that results give, and their content
//! draw       SVG: axes, lines, areas, dots, bars, maps
//! raster     drawings as PNG
//! vega       the meaning of a figure's CSV, for Vega-Lite
//! page       one self-contained page, as HTML and as Markdown
//! compare    two folders side by side, with tolerances
//! ```
//!
//! The meaning of results is computed elsewhere: in `anabranch_lab::stats` and `::report`.

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
pub use figures::{Figure, promise};
pub use load::Folder;
pub use raster::Rasteriser;
pub use study::{Agreement, Claim, Study};
pub use write::{PageOptions, Written, page};
