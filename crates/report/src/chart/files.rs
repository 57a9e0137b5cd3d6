//! Figures as files: SVG, PNG for programs that do not read SVG, and PDF for LaTeX.

use std::path::Path;

use hosts::new_file::{FileError, write_whole};
use raster::PaintError;

use crate::chart::figure::Figure;

/// Pixels for each unit of the SVG: most figures are 1440 pixels wide.
pub(super) const SCALE: f32 = 2.0;

/// Writes a figure as SVG, PNG and PDF into `folder`. Each file is written atomically.
///
/// # Errors
/// Returns an error if a file cannot be written or the figure cannot be drawn.
pub(crate) fn write(figure: &Figure, folder: &Path) -> Result<(), FileError> {
    let svg = figure.svg(true);
    write_as(figure, folder, "svg", Ok(svg.clone().into_bytes()))?;
    write_as(figure, folder, "png", raster::png(&svg, SCALE))?;
    write_as(figure, folder, "pdf", raster::pdf(&svg))
}

fn write_as(
    figure: &Figure,
    folder: &Path,
    extension: &str,
    drawn: Result<Vec<u8>, PaintError>,
) -> Result<(), FileError> {
    let path = folder.join(format!("{}.{extension}", figure.file));
    let drawn =
        drawn.map_err(|error| FileError::of("draw", &path)(std::io::Error::other(error)))?;
    write_whole(&path, &drawn)
}
