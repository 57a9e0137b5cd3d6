//! Curves of percentages by offered rate.

use std::fmt::Write;

use crate::chart::draw::{Area, BELOW, RIGHT, TOP, legend, text};
use crate::chart::figure::{COLOURS, Dot, Figure, Series, data, escape};
use crate::chart::scale::Scale;
use crate::format::number;

/// Width of the figure, which fills half of the page.
pub(super) const WIDTH: f64 = 592.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 48.0;

impl Figure {
    /// Draws curves with a vertical axis from 0 to 100 %. At each rate, a curve has a dot, and a vertical line that
    /// shows the range of the percentages in the trials.
    pub(super) fn shares(&self, out: &mut String, series: &[Series]) -> f64 {
        let area = Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, floor: TOP + HEIGHT };
        let marks = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0].to_vec();
        let scale = Scale::Linear { low: 0.0, high: 100.0, marks };
        let rates: Vec<f64> = series.iter().flat_map(|s| &s.dots).map(|d| d.x).collect();
        let places = Scale::for_rates(&rates);
        area.vertical(out, &scale);
        area.horizontal(out, &places, true);
        text(out, "", (8.0, 16.0), "start", &self.y_label);
        let suffix = if places.is_logarithmic() { " (logarithmic axis)" } else { "" };
        let x_label = format!("{}{suffix}", self.x_label);
        text(out, "", ((area.left + area.right) / 2.0, area.floor + 36.0), "middle", &x_label);
        for (n, s) in series.iter().enumerate() {
            curve(out, s, n % COLOURS, &area, (&places, &scale));
        }
        let names: Vec<&str> = series.iter().map(|s| s.name.as_str()).collect();
        legend(out, area.floor + BELOW + 12.0, (LEFT, WIDTH - RIGHT), &names, &[])
    }
}

fn curve(out: &mut String, s: &Series, c: usize, area: &Area, (places, scale): (&Scale, &Scale)) {
    let at = |d: &Dot| (area.x(places, d.x), area.y(scale, d.y));
    let path: Vec<String> = s.dots.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(out, "<polyline class=\"curve s{c}\" points=\"{}\"/>", path.join(" "));
    for d in &s.dots {
        let (x, y) = at(d);
        let (low, high) = (area.y(scale, d.range.0), area.y(scale, d.range.1));
        let _ = write!(out, "<path class=\"curve thin s{c}\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>");
        let _ = write!(
            out,
            "<circle class=\"c{c}\" {} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{} at {} queries/s: {} %</title></circle>",
            data(&s.name, &d.x.to_string(), d),
            escape(&s.name),
            number(d.x),
            number(d.y),
        );
    }
}
