//! Figures as PNG, for what takes no SVG. The font is part of the program: a figure looks the same
//! on every machine.

use std::path::Path;
use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::Figure;
use crate::archive::{ArchiveError, write_whole};

/// Pixels for each unit of the SVG: figures are 1440 pixels wide.
const SCALE: f32 = 2.0;
/// The family of the font that is part of the program.
const FAMILY: &str = "DejaVu Sans";

/// Draws figures as PNG.
pub struct Painter {
    options: Options<'static>,
}

/// Why a figure could not be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PaintError {
    /// Its SVG is none.
    #[error("the figure is no SVG: {0}")]
    Svg(#[from] resvg::usvg::Error),
    /// It is too large, or nothing.
    #[error("a picture of {width} × {height} pixels cannot be drawn")]
    Size {
        /// Pixels.
        width: u32,
        /// Pixels.
        height: u32,
    },
    /// It cannot be written as PNG.
    #[error("the picture cannot be encoded: {0}")]
    Encoding(String),
}

impl Default for Painter {
    fn default() -> Painter {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(dejavu::sans::regular().to_vec());
        fonts.set_sans_serif_family(FAMILY);
        fonts.set_serif_family(FAMILY);
        let options =
            Options { fontdb: Arc::new(fonts), font_family: FAMILY.into(), ..Options::default() };
        Painter { options }
    }
}

impl Painter {
    /// A figure as PNG.
    ///
    /// # Errors
    /// If it is empty, too large or cannot be encoded.
    pub fn png(&self, figure: &Figure) -> Result<Vec<u8>, PaintError> {
        let tree = Tree::from_str(&figure.svg(true), &self.options)?;
        let size = tree.size();
        let (width, height) =
            ((size.width() * SCALE).ceil() as u32, (size.height() * SCALE).ceil() as u32);
        let mut picture = Pixmap::new(width, height).ok_or(PaintError::Size { width, height })?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut picture.as_mut());
        picture.encode_png().map_err(|error| PaintError::Encoding(error.to_string()))
    }

    /// Writes a figure as SVG and as PNG into `folder`, each whole or not at all.
    ///
    /// # Errors
    /// If a file cannot be written or the figure not be drawn.
    pub fn write(&self, figure: &Figure, folder: &Path) -> Result<(), ArchiveError> {
        write_whole(&folder.join(format!("{}.svg", figure.file)), figure.svg(true).as_bytes())?;
        let path = folder.join(format!("{}.png", figure.file));
        let png = self.png(figure).map_err(|error| ArchiveError::Io {
            doing: "draw",
            path: path.clone(),
            source: std::io::Error::other(error),
        })?;
        write_whole(&path, &png)
    }
}
