//! Conversion of SVG to PNG and PDF. The font is part of the program, so a figure looks the same on
//! every machine.
//!
//! This is a separate crate, so that a change in the report code does not recompile the renderer.
#![forbid(unsafe_code)]

mod pdf;
mod svg;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::Tree;

use svg::OPTIONS;

pub use pdf::pdf;
pub use svg::PaintError;

/// Renders an SVG as PNG, with `scale` pixels for each unit of the SVG.
///
/// # Errors
/// Returns an error if the text is not SVG, or if the picture is empty, is too large, or cannot be
/// encoded.
pub fn png(svg: &str, scale: f32) -> Result<Vec<u8>, PaintError> {
    draw(svg, scale)?.encode_png().map_err(|error| PaintError::Encoding(error.to_string()))
}

fn draw(svg: &str, scale: f32) -> Result<Pixmap, PaintError> {
    let tree = Tree::from_str(svg, &OPTIONS)?;
    let size = tree.size();
    let (width, height) =
        ((size.width() * scale).ceil() as u32, (size.height() * scale).ceil() as u32);
    let mut picture = Pixmap::new(width, height).ok_or(PaintError::Size { width, height })?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut picture.as_mut());
    Ok(picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a white page of 100 × 20 units that contains `text`.
    fn page(text: &str) -> String {
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='100' height='20' font-family='system-ui, sans-serif'>\
             <rect width='100' height='20' fill='white'/><text x='4' y='15' font-size='14'>{text}</text></svg>"
        )
    }

    #[test]
    fn text_is_drawn_with_the_font_of_the_program() {
        let dark = |text| {
            let picture = draw(&page(text), 2.0).unwrap();
            assert_eq!((picture.width(), picture.height()), (200, 40));
            picture.pixels().iter().filter(|pixel| pixel.red() < 128).count()
        };
        assert!(dark("Ωµ ≥ ü") > 100, "{}", dark("Ωµ ≥ ü"));
        assert_eq!(dark(" "), 0);
    }

    #[test]
    fn pictures_are_png_and_errors_are_reported() {
        assert!(png(&page("a"), 1.0).unwrap().starts_with(b"\x89PNG\r\n"));
        assert!(matches!(png("text", 1.0), Err(PaintError::Svg(_))));
        assert!(matches!(png(&page("a"), 0.0), Err(PaintError::Size { .. })));
    }
}
