//! Options of the SVG reader, the font that it uses for all texts, and the errors of this crate.

use std::sync::{Arc, LazyLock};

use resvg::usvg::{Options, fontdb};

/// Family name of the font that is used for all texts.
const FAMILY: &str = "DejaVu Sans";

pub(crate) static OPTIONS: LazyLock<Options<'static>> = LazyLock::new(options);

/// Errors that [`png`] and [`pdf()`] return.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PaintError {
    /// The text is not SVG.
    #[error("not an SVG: {0}")]
    Svg(#[from] resvg::usvg::Error),
    /// The picture is empty or too large.
    #[error("a picture of {width} × {height} pixels cannot be drawn")]
    Size {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
    },
    /// The picture cannot be encoded as PNG.
    #[error("the picture cannot be encoded: {0}")]
    Encoding(String),
    /// The SVG has elements that [`pdf()`] does not convert.
    #[error(
        "gradients, patterns, pictures, clip paths, masks and filters cannot be converted to PDF"
    )]
    Unsupported,
}

/// Returns the options for the SVG reader. All font families are mapped to a single font.
fn options() -> Options<'static> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.set_sans_serif_family(FAMILY);
    fonts.set_serif_family(FAMILY);
    Options { fontdb: Arc::new(fonts), font_family: FAMILY.into(), ..Options::default() }
}
