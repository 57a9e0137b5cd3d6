//! Figures as SVG, PNG and PDF: curves and bars with error bars, heat maps, panels over time.
//! Figures contain no script and no font file. CSS classes set the colours, so that a page can
//! replace the colours in dark mode.
//!
//! ```text
//! Figure ─► draw (one file for each shape) ─► SVG ─┬─► report.html, figures/*.svg
//!                                                  └─► raster ─► figures/*.png, figures/*.pdf
//! ```
//!
//! If the values differ by more than a factor of [`figure::UNEQUAL`], the axis is logarithmic, so
//! that small values are legible. Every mark has `data-…` attributes: series (`of`), position
//! (`at`), value (`y`), range (`low`, `high`) and `state`.

mod bars;
mod curves;
mod draw;
mod figure;
pub(crate) mod files;
mod grid;
mod heat;
mod lines;
mod panels;
mod scale;
mod shares;

use std::fmt::Write;

pub(crate) use curves::{Curve, along, curves};
pub(crate) use figure::{COLOURS, HeatMap, HeatRow, Multiple, escape};
pub use figure::{Dot, Figure, Panel, Series, Shape};

/// Style sheet with colours that colour-blind people can distinguish (M. Okabe and K. Ito, "Color
/// Universal Design", 2008).
pub const STYLE: &str = "\
.fig{font-size:13px;font-family:system-ui,sans-serif}.fig text{fill:var(--ink,#222)}.fig .axis{stroke:var(--ink,#222)}\
.fig .grid{stroke:var(--line,#ddd)}.fig .err{fill:none;stroke:var(--ink,#222);stroke-width:1.2}.fig .curve{fill:none;stroke-width:2}\
.fig .wanted{stroke:var(--ink,#222);stroke-dasharray:3 3}.fig .small{font-size:11px}\
.fig .head{font-weight:600;paint-order:stroke;stroke:var(--paper,#fff);stroke-width:5px;stroke-linejoin:round}\
.fig .c0{fill:#0072b2}.fig .c1{fill:#e69f00}.fig .c2{fill:#009e73}.fig .c3{fill:#cc79a7}.fig .c4{fill:#56b4e9}.fig .c5{fill:#d55e00}\
.fig .s0{stroke:#0072b2}.fig .s1{stroke:#e69f00;stroke-dasharray:8 3}.fig .s2{stroke:#009e73;stroke-dasharray:2 3}\
.fig .s3{stroke:#cc79a7;stroke-dasharray:8 3 2 3}.fig .s4{stroke:#56b4e9;stroke-dasharray:12 4}.fig .s5{stroke:#d55e00;stroke-dasharray:4 2}\
.fig .thin{stroke-width:1;stroke-dasharray:none}.fig .cross{fill:none;stroke-width:3;stroke-dasharray:none}\
.fig .each{fill-opacity:.45}.fig .failed{fill-opacity:.2;stroke:var(--ink,#222);stroke-dasharray:3 2}.fig .band{fill-opacity:.35;stroke:none}\
.fig .cell{fill:#0072b2}.fig text.on{fill:#fff}";

/// Returns the style for a figure in a separate file. The style uses no CSS variables, because some
/// programs do not support them.
fn style_alone() -> String {
    let variables =
        [("var(--ink,#222)", "#222"), ("var(--line,#ddd)", "#ddd"), ("var(--paper,#fff)", "#fff")];
    variables
        .iter()
        .fold(STYLE.to_owned(), |style, (variable, value)| style.replace(variable, value))
}

impl Figure {
    /// Returns the figure as an SVG element. If `alone` is true, the element includes the style
    /// that a separate file needs.
    pub fn svg(&self, alone: bool) -> String {
        let mut drawn = String::new();
        let (width, height) = (self.width(), self.draw(&mut drawn));
        let title = escape(&self.title);
        let mut out = String::new();
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{title}\"><title>{title}</title>"
        );
        if alone {
            let style = style_alone();
            let _ = write!(
                out,
                "<style>{style}</style><rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>"
            );
        }
        out + &drawn + "</svg>"
    }

    fn width(&self) -> f64 {
        match self.shape {
            Shape::Shares(_) => shares::WIDTH,
            _ => draw::WIDTH,
        }
    }

    /// Draws the content of the figure and returns its height.
    fn draw(&self, out: &mut String) -> f64 {
        match &self.shape {
            Shape::Lines(series) => self.lines(out, series),
            Shape::Shares(series) => self.shares(out, series),
            Shape::Bars { groups, series } => self.bars(out, groups, series),
            Shape::Heat { maps, highest } => self.heat(out, maps, *highest),
            Shape::Panels { panels, shared } => self.panels(out, panels, *shared),
            Shape::Grid { panels, shared } => self.grid(out, panels, *shared),
        }
    }

    /// Returns the label of the value axis.
    fn value_label(&self, is_logarithmic: bool) -> String {
        format!("{}{}", self.y_label, if is_logarithmic { " (logarithmic axis)" } else { "" })
    }
}

#[cfg(test)]
pub(crate) mod read;
#[cfg(test)]
pub(crate) mod tests;
