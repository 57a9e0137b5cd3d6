//! Figures, and the kinds of their content.

use hosts::text::visible;

use crate::format::{AT_LEAST, number};

/// A point of a curve, or a bar, with the range of the values in repeated measurements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dot {
    /// Value along the horizontal axis.
    pub x: f64,
    /// Value along the vertical axis: the median of the repeated measurements.
    pub y: f64,
    /// The smallest and the largest value. Both are equal if there is only one value.
    pub range: (f64, f64),
    /// The values of all repetitions, each shown as a small dot; may be empty.
    pub each: Vec<f64>,
    /// True if the searches prove only that the rate is at least this value. A bar then has "≥" before
    /// its value, and a curve shows a triangle.
    pub at_least: bool,
    /// True if the trials failed. A bar is then hollow, and a curve shows a cross at the axis
    /// instead of the value.
    pub failed: bool,
}

impl Dot {
    /// Creates a value that was measured only once.
    pub fn at(x: f64, y: f64) -> Dot {
        Dot { x, y, range: (y, y), ..Dot::default() }
    }
}

/// A curve, or the bars of one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the series in the legend.
    pub name: String,
    /// Points, in the order in which the curve connects them.
    pub dots: Vec<Dot>,
}

/// A row of a heat map: its name and its values. The flag of a value is true if the value is a lower bound.
pub(crate) type HeatRow = (String, Vec<Option<(f64, bool)>>);

/// A heat map.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// Name of the heat map.
    pub name: String,
    /// Names of the columns of the heat map.
    pub columns: Vec<String>,
    /// Rows of the heat map.
    pub rows: Vec<HeatRow>,
}

/// A diagram that is stacked with other diagrams. All have the same horizontal axis.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The measured values.
    pub series: Series,
    /// Target of the measured values, shown as a horizontal line.
    pub wanted: f64,
}

/// One of the small diagrams of a grid.
#[derive(Clone, Debug)]
pub struct Multiple {
    /// Name of the diagram.
    pub name: String,
    /// Curves. Curves with the same name have the same colour in all diagrams.
    pub series: Vec<Series>,
    /// Position of an additional vertical line on the horizontal axis; absent if the diagram has no
    /// such line.
    pub mark: Option<f64>,
}

/// Content of a figure.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Curves with a numeric horizontal axis.
    Lines(Vec<Series>),
    /// A curve for each server: percentages (vertical) by offered rate (horizontal).
    Shares(Vec<Series>),
    /// Horizontal bars in groups. The groups are one below the other. In each mark ([`Dot`]), the field `x` is the
    /// index of the group.
    Bars {
        /// Names of the groups of bars.
        groups: Vec<String>,
        /// The bars. All bars of a series have the same colour.
        series: Vec<Series>,
    },
    /// Heat maps: the shade of a cell shows its value. Several maps are side by side.
    Heat {
        /// The heat maps.
        maps: Vec<HeatMap>,
        /// The value of the darkest cell. This value is the same in all maps that are compared.
        highest: f64,
    },
    /// A diagram for each series. The diagrams are one below the other. The values are a curve, and
    /// their ranges are a band around the curve.
    Panels {
        /// The diagrams, starting at the top.
        panels: Vec<Panel>,
        /// True if all diagrams have the same vertical scale. Otherwise each diagram has a separate scale, which need
        /// not begin at 0.
        shared: bool,
    },
    /// Small diagrams side by side, with a common horizontal axis.
    Grid {
        /// The diagrams, row by row.
        panels: Vec<Multiple>,
        /// True if all diagrams have the same vertical scale. Otherwise each diagram has a separate
        /// scale that begins at 0.
        shared: bool,
    },
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name without extension.
    pub file: String,
    /// Heading of the figure.
    pub title: String,
    /// Label of the horizontal axis, with its unit. For bars: the meaning of the groups; empty if the meaning is
    /// obvious.
    pub x_label: String,
    /// Label of the vertical axis, with its unit. For bars: the quantity that the length of a bar
    /// shows.
    pub y_label: String,
    /// Content of the figure.
    pub shape: Shape,
}

/// Values that differ by more than this factor get a logarithmic axis.
pub(super) const UNEQUAL: f64 = 20.0;
/// Number of colours for curves.
pub(crate) const COLOURS: usize = 6;

/// Returns the values of a mark as data attributes of an SVG element.
pub(super) fn data(of: &str, at: &str, dot: &Dot) -> String {
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
pub(super) fn value(dot: &Dot) -> String {
    match (dot.failed, dot.y == 0.0) {
        (true, true) => "failed".into(),
        (true, false) => format!("{}, failed", number(dot.y)),
        _ => format!("{}{}", if dot.at_least { AT_LEAST } else { "" }, number(dot.y)),
    }
}

/// Escapes text for HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    let text = visible(text).replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
