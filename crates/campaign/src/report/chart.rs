//! Figures as SVG, PNG and PDF: curves and bars with error bars, heat maps, panels over time. They
//! contain no script and no font file. Colours are set by class, so that a page can replace them in
//! dark mode.
//!
//! ```text
//! Figure ─► draw (one file for each shape) ─► SVG ─┬─► report.html, figures/*.svg
//!                                                  └─► raster ─► figures/*.png, figures/*.pdf
//! ```
//!
//! A figure whose values differ by more than a factor of [`UNEQUAL`] gets a logarithmic axis, so
//! that small ones are legible. Every mark has its data as `data-…` attributes: series (`of`),
//! position (`at`), value (`y`), range (`low`, `high`) and `state`.

mod bars;
mod curves;
mod draw;
pub(crate) mod files;
mod grid;
mod heat;
mod lines;
mod panels;
#[cfg(test)]
pub(crate) mod read;
mod scale;
mod shares;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt::Write;

pub(crate) use curves::curves;
pub use curves::{Curve, along};
use method::units::in_groups;

use crate::text::visible;

/// A point with the range of its repetitions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dot {
    /// Value along the horizontal axis.
    pub x: f64,
    /// Value along the vertical axis: the median.
    pub y: f64,
    /// The smallest and the largest value; equal for a single value.
    pub range: (f64, f64),
    /// The values of all repetitions, each shown as a small dot; may be empty.
    pub each: Vec<f64>,
    /// True for a proven lower end without an upper one: "≥" before the value of a bar, a triangle
    /// in a curve.
    pub at_least: bool,
    /// True if its trials failed: a bar is then hollow, and a curve shows a cross at the axis
    /// instead of the value.
    pub failed: bool,
}

impl Dot {
    /// Creates a value without repetitions.
    pub fn at(x: f64, y: f64) -> Dot {
        Dot { x, y, range: (y, y), ..Dot::default() }
    }
}

/// A curve, or the bars of one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Its points, in the order in which the curve connects them.
    pub dots: Vec<Dot>,
}

/// A row of a heat map: its name, and its values, each with a flag for a lower bound.
pub type HeatRow = (String, Vec<Option<(f64, bool)>>);

/// A heat map.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// Name of the map.
    pub name: String,
    /// Column names.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<HeatRow>,
}

/// A diagram stacked with others that have the same horizontal axis.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The series, shown against the requested value.
    pub series: Series,
    /// The requested value at every position, shown as a line.
    pub wanted: f64,
}

/// One of the small diagrams of a grid.
#[derive(Clone, Debug)]
pub struct Multiple {
    /// Name of the diagram.
    pub name: String,
    /// Its curves; curves with the same name have the same colour in all diagrams.
    pub series: Vec<Series>,
    /// Position of a vertical line.
    pub mark: Option<f64>,
}

/// Content of a figure.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Curves over numbers.
    Lines(Vec<Series>),
    /// Curves of shares in per cent over offered rates, one for each server.
    Shares(Vec<Series>),
    /// Horizontal bars in groups, one below the other; `x` of a dot is the number of its group.
    Bars {
        /// Names of the groups.
        groups: Vec<String>,
        /// Bars by colour.
        series: Vec<Series>,
    },
    /// Cells shaded by value, in one map or in several side by side.
    Heat {
        /// The maps.
        maps: Vec<HeatMap>,
        /// The value of the darkest cell, the same in all maps that are compared.
        highest: f64,
    },
    /// Panels one below the other, one for each series: the ranges of its dots as a band, their
    /// values as a curve.
    Panels {
        /// The panels, from the top.
        panels: Vec<Panel>,
        /// True if all have the same vertical scale; otherwise each has its own, which need not
        /// begin at 0.
        shared: bool,
    },
    /// Small diagrams side by side, with one horizontal axis.
    Grid {
        /// The diagrams, row by row.
        panels: Vec<Multiple>,
        /// True if all have the same vertical scale; otherwise each has its own from 0.
        shared: bool,
    },
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name without extension.
    pub file: String,
    /// Heading.
    pub title: String,
    /// Label of the horizontal axis, with its unit; for bars, the meaning of their groups, empty if
    /// it is obvious.
    pub x_label: String,
    /// Label of the vertical axis, with its unit; for bars, the meaning of their length.
    pub y_label: String,
    /// The content.
    pub shape: Shape,
}

/// Values that differ by more than this factor get a logarithmic axis.
pub const UNEQUAL: f64 = 20.0;

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
/// Number of colours for curves.
pub(crate) const COLOURS: usize = 6;
/// Marks a proven lower end without an upper one.
pub const AT_LEAST: &str = "≥ ";

/// Returns the style of a figure in a separate file, without variables, which some programs do not
/// support.
fn style_alone() -> String {
    let variables =
        [("var(--ink,#222)", "#222"), ("var(--line,#ddd)", "#ddd"), ("var(--paper,#fff)", "#fff")];
    variables
        .iter()
        .fold(STYLE.to_owned(), |style, (variable, value)| style.replace(variable, value))
}

impl Figure {
    /// Returns the figure as an SVG element; `alone` adds the style, for a separate file.
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

    /// Draws the content of the figure; returns its height.
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

/// Returns the data of a mark as attributes.
fn data(of: &str, at: &str, dot: &Dot) -> String {
    let state = match (dot.failed, dot.at_least) {
        (true, _) => "failed",
        (_, true) => "at-least",
        _ => "",
    };
    let (low, high) = dot.range;
    format!(
        "data-of=\"{}\" data-at=\"{}\" data-y=\"{}\" data-low=\"{low}\" data-high=\"{high}\" data-state=\"{state}\"",
        escape(of),
        escape(at),
        dot.y
    )
}

/// Returns the value of a mark as text.
fn value(dot: &Dot) -> String {
    match (dot.failed, dot.y == 0.0) {
        (true, true) => "failed".into(),
        (true, false) => format!("{}, failed", number(dot.y)),
        _ => format!("{}{}", if dot.at_least { AT_LEAST } else { "" }, number(dot.y)),
    }
}

/// Formats a number with grouped thousands and only the significant digits.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 || v.fract() == 0.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        // Two significant digits.
        v => (1.0 - v.log10().floor()).min(9.0) as usize,
    };
    let text = format!("{value:.digits$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", &text[..]), |text| ("-", text));
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let (whole, rest) = (in_groups(whole), rest.trim_end_matches('0'));
    if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
}

/// Escapes text for HTML and SVG.
pub fn escape(text: &str) -> String {
    let text = visible(text).replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
