//! Choice between bars, curves in one diagram, and small diagrams. The choice depends on the number of curves and the
//! number of different horizontal positions.

use crate::chart::figure::{COLOURS, Dot, Multiple, Series, Shape};
use crate::format::number;

/// Maximum number of horizontal positions for which bars are drawn instead of curves.
const FEW: usize = 3;

/// A curve, with the names that distinguish it from other curves.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Name of the subject of the curve, for example a DUT.
    pub of: String,
    /// Name that distinguishes the curve from other curves of the same subject; may be empty.
    pub what: String,
    /// Points of the curve, in order.
    pub dots: Vec<Dot>,
}

impl Curve {
    fn name(&self) -> String {
        if self.what.is_empty() { self.of.clone() } else { format!("{}, {}", self.of, self.what) }
    }
}

/// Returns the label of the horizontal axis. For bars, the label has no unit, because the names of the groups of bars
/// contain the unit.
pub(crate) fn along(shape: &Shape, words: &str, unit: &str) -> String {
    match shape {
        Shape::Bars { .. } => words.into(),
        _ if unit.is_empty() => words.into(),
        _ => format!("{words},{unit}"),
    }
}

/// Chooses the form in which curves are drawn. If the curves have only a few different horizontal positions, they are
/// drawn as bars with values. If there are more curves than colours, each subject has a small diagram. `unit` is
/// appended to the names of groups of bars.
pub(crate) fn curves(all: Vec<Curve>, unit: &str) -> Shape {
    let mut places: Vec<f64> = all.iter().flat_map(|curve| &curve.dots).map(|dot| dot.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    if places.len() <= FEW {
        let group = |x: f64| places.iter().position(|&place| place == x).unwrap_or_default() as f64;
        let in_group = |dot: &Dot| Dot { x: group(dot.x), ..dot.clone() };
        let series = |curve: &Curve| Series {
            name: curve.name(),
            dots: curve.dots.iter().map(in_group).collect(),
        };
        let groups = places.iter().map(|&place| format!("{}{unit}", number(place))).collect();
        return Shape::Bars { groups, series: all.iter().map(series).collect() };
    }
    if all.len() <= COLOURS {
        let series = |curve: Curve| Series { name: curve.name(), dots: curve.dots };
        return Shape::Lines(all.into_iter().map(series).collect());
    }
    let mut panels: Vec<Multiple> = Vec::new();
    for Curve { of, what, dots } in all {
        let series = Series { name: what, dots };
        match panels.iter_mut().find(|panel| panel.name == of) {
            Some(panel) => panel.series.push(series),
            None => panels.push(Multiple { name: of, series: vec![series], mark: None }),
        }
    }
    Shape::Grid { panels, shared: true }
}
