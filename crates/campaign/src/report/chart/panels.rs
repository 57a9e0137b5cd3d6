//! Panels below each other over one horizontal axis: each shows a series, the band of its ranges, and what it should be.

use std::fmt::Write;

use super::lines::horizontal;
use super::{BOTTOM, COLOURS, Figure, LEFT, Panel, RIGHT, TOP, WIDTH, escape, number};

/// The height of a panel, and what lies between two.
const PANEL: f64 = 84.0;
const GAP: f64 = 14.0;

/// The height of a figure of so many panels.
pub(super) fn height(panels: usize) -> f64 {
    TOP + panels.max(1) as f64 * PANEL + BOTTOM - 30.0
}

impl Figure {
    pub(super) fn panels(&self, out: &mut String, panels: &[Panel], shared: bool) {
        // There is no legend below: the names stand in the panels.
        let height = height(panels.len()) + 30.0;
        let xs: Vec<f64> = panels.iter().flat_map(|p| &p.series.dots).map(|d| d.x).collect();
        let x = horizontal(out, &xs, height);
        let together = panels.iter().map(extent).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        for (n, panel) in panels.iter().enumerate() {
            let extent = together.filter(|_| shared).unwrap_or_else(|| extent(panel));
            let top = TOP + n as f64 * PANEL;
            draw(out, panel, n % COLOURS, &x, &Place { top, floor: top + PANEL - GAP, extent });
        }
        self.axis_labels(out, false, height);
    }
}

/// Where a panel lies, and the values at its ends.
struct Place {
    top: f64,
    floor: f64,
    extent: (f64, f64),
}

impl Place {
    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.extent;
        self.floor - (value - low) / (high - low) * (self.floor - self.top)
    }
}

/// The least and the most of a panel, with what was wanted, and never nothing.
fn extent(panel: &Panel) -> (f64, f64) {
    let start = (panel.wanted, panel.wanted);
    let (low, high) = panel
        .series
        .dots
        .iter()
        .fold(start, |(low, high), d| (low.min(d.range.0).min(d.y), high.max(d.range.1).max(d.y)));
    let least = (panel.wanted.abs() * 0.01).max(1.0);
    (low.min(panel.wanted - least), high.max(panel.wanted + least))
}

fn draw(out: &mut String, panel: &Panel, c: usize, x: &impl Fn(f64) -> f64, place: &Place) {
    let Place { top, floor, extent: (low, high) } = *place;
    let right = WIDTH - RIGHT;
    let _ = write!(
        out,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{LEFT}\" y1=\"{top:.1}\" y2=\"{floor:.1}\"/>\
         <line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{floor:.1}\" y2=\"{floor:.1}\"/>"
    );
    let wanted = place.y(panel.wanted);
    // Where there is room between the ends, what was wanted has its number too.
    let between = (wanted > top + 22.0 && wanted < floor - 12.0).then_some((panel.wanted, wanted + 4.0));
    for (value, at) in [(high, top + 10.0), (low, floor)].into_iter().chain(between) {
        let _ = write!(
            out,
            "<text class=\"small\" x=\"{}\" y=\"{at:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            number(value)
        );
    }
    let dots = &panel.series.dots;
    let along = |pick: &dyn Fn(usize) -> f64, order: &mut dyn Iterator<Item = usize>| -> Vec<String> {
        order.map(|i| format!("{:.1},{:.1}", x(dots[i].x), place.y(pick(i)))).collect()
    };
    let upper = along(&|i| dots[i].range.1, &mut (0..dots.len()));
    let lower = along(&|i| dots[i].range.0, &mut (0..dots.len()).rev());
    let _ = write!(out, "<polygon class=\"c{c} band\" points=\"{} {}\"/>", upper.join(" "), lower.join(" "));
    let _ = write!(out, "<line class=\"wanted\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{wanted:.1}\" y2=\"{wanted:.1}\"/>");
    let curve = along(&|i| dots[i].y, &mut (0..dots.len()));
    let _ = write!(
        out,
        "<polyline class=\"curve thin s{c}\" points=\"{}\"/><text class=\"small\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        curve.join(" "),
        LEFT + 6.0,
        top + 10.0,
        escape(&panel.series.name)
    );
}
