//! Figures as files: SVG, and PNG for programs that do not read SVG.

use std::path::Path;

use super::Figure;
use crate::archive::{ArchiveError, write_whole};

/// Pixels for each unit of the SVG: figures are 1440 pixels wide.
pub(super) const SCALE: f32 = 2.0;

/// Writes a figure as SVG and as PNG into `folder`, each whole or not at all.
///
/// # Errors
/// If a file cannot be written or the figure cannot be drawn.
pub(crate) fn write(figure: &Figure, folder: &Path) -> Result<(), ArchiveError> {
    let svg = figure.svg(true);
    write_whole(&folder.join(format!("{}.svg", figure.file)), svg.as_bytes())?;
    let path = folder.join(format!("{}.png", figure.file));
    let png = raster::png(&svg, SCALE).map_err(|error| ArchiveError::Io {
        doing: "draw",
        path: path.clone(),
        source: std::io::Error::other(error),
    })?;
    write_whole(&path, &png)
}
