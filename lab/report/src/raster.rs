//! Drawings as PNG, for programs that cannot read SVG.

use crate::error::ReportError;
use crate::figures::Figure;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Dots per inch.
const RESOLUTION: f64 = 300.0;

/// A renderer with the fonts of this machine.
#[derive(Debug)]
pub struct Rasteriser {
    options: Options<'static>,
}

impl Rasteriser {
    /// Finds the fonts; `None` if there are none, so that no text could be drawn.
    pub fn new() -> Option<Self> {
        let mut options = Options {
            font_family: "sans-serif".to_owned(),
            ..Options::default()
        };
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        // Not every system defines "sans-serif": the first installed font of this list is taken.
        let preferred = [
            "Helvetica",
            "Arial",
            "Liberation Sans",
            "DejaVu Sans",
            "Noto Sans",
        ];
        let is_there = |family: &str| {
            fonts
                .faces()
                .any(|face| face.families.iter().any(|(name, _)| name == family))
        };
        let family = match preferred.into_iter().find(|family| is_there(family)) {
            Some(family) => family.to_owned(),
            None => fonts.faces().next()?.families.first()?.0.clone(),
        };
        fonts.set_sans_serif_family(family);
        Some(Self { options })
    }

    /// The figure as a PNG file of 300 dots per inch.
    ///
    /// # Errors
    /// [`ReportError::Raster`] if the drawing is too large or cannot be parsed.
    pub fn png(&self, figure: &Figure, width: f64) -> Result<Vec<u8>, ReportError> {
        let failed = |what: String| ReportError::Raster {
            figure: figure.name.clone(),
            what,
        };
        let tree = Tree::from_str(&figure.svg(width), &self.options)
            .map_err(|error| failed(error.to_string()))?;
        let scale = (RESOLUTION / 96.0) as f32;
        let size = tree.size().to_int_size();
        let size = size
            .scale_by(scale)
            .ok_or_else(|| failed("has no size".to_owned()))?;
        let mut pixels = Pixmap::new(size.width(), size.height())
            .ok_or_else(|| failed("is too large".to_owned()))?;
        resvg::render(
            &tree,
            Transform::from_scale(scale, scale),
            &mut pixels.as_mut(),
        );
        pixels
            .encode_png()
            .map_err(|error| failed(error.to_string()))
    }
}
