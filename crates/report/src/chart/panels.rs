//! Diagrams one below the other, with a common horizontal axis. Each diagram shows the values of a
//! series as a curve, their ranges as a band, and the requested value as a line.

use std::fmt::Write;

use crate::chart::draw::{Area, LEFT, RIGHT, TOP, WIDTH, begin_panel, further_lines, text};
use crate::chart::figure::{COLOURS, Dot, Figure, Panel};
use crate::chart::lines::over_time;
use crate::chart::scale::Scale;
use crate::format::number;

/// Height of a panel, including the first line of its name.
const PANEL: f64 = 92.0;
const DIAGRAM: f64 = 66.0;
const BOTTOM: f64 = 46.0;
/// Maximum width of the name of a panel.
const NAME: f64 = WIDTH - LEFT - RIGHT;

impl Figure {
    pub(super) fn panels(&self, out: &mut String, panels: &[Panel], shared: bool) -> f64 {
        let xs: Vec<f64> = panels.iter().flat_map(|p| &p.series.dots).map(|d| d.x).collect();
        let places = Scale::for_places(&xs);
        let together = panels.iter().map(extent).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        text(out, "", (8.0, 16.0), "start", &self.y_label);
        let names = further_lines(panels.iter().map(|p| p.series.name.as_str()), NAME);
        let mut area = Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, floor: TOP };
        for (n, panel) in panels.iter().enumerate() {
            let (low, high) = together.filter(|_| shared).unwrap_or_else(|| extent(panel));
            let foot = TOP + (PANEL + names) * (n + 1) as f64;
            area = Area { top: foot - DIAGRAM, floor: foot, ..area };
            let scale = Scale::Linear { low, high, marks: vec![low, high] };
            draw(out, panel, n % COLOURS, &area, (&places, &scale));
        }
        area.horizontal(out, &places, false);
        text(out, "", ((area.left + area.right) / 2.0, area.floor + 36.0), "middle", &self.x_label);
        area.floor + BOTTOM
    }
}

/// Returns the lower and upper ends of the vertical axis of a panel. The axis includes the requested value (`wanted`),
/// and its ends always differ.
fn extent(panel: &Panel) -> (f64, f64) {
    let start = (panel.wanted, panel.wanted);
    let (low, high) =
        panel.series.dots.iter().fold(start, |(low, high), d| {
            (low.min(d.range.0).min(d.y), high.max(d.range.1).max(d.y))
        });
    let least = (panel.wanted.abs() * 0.01).max(1.0);
    (low.min(panel.wanted - least), high.max(panel.wanted + least))
}

fn draw(out: &mut String, panel: &Panel, c: usize, area: &Area, (places, scale): (&Scale, &Scale)) {
    let (series, dots) = (&panel.series, &panel.series.dots);
    begin_panel(out, &series.name, (area.left, area.top - 7.0), NAME);
    area.axes(out);
    let wanted = area.y(scale, panel.wanted);
    // Labels the requested value if the label does not overlap the labels at the axis ends.
    let between = (wanted > area.top + 24.0 && wanted < area.floor - 14.0)
        .then_some((panel.wanted, wanted + 4.0));
    let ends = scale.marks().into_iter().zip([area.floor, area.top + 8.0]);
    for (value, at) in ends.chain(between) {
        text(out, "small", (area.left - 6.0, at), "end", &number(value));
    }
    let at =
        |d: &Dot, value: f64| format!("{:.1},{:.1}", area.x(places, d.x), area.y(scale, value));
    let upper: Vec<String> = dots.iter().map(|d| at(d, d.range.1)).collect();
    let lower: Vec<String> = dots.iter().rev().map(|d| at(d, d.range.0)).collect();
    let _ = write!(
        out,
        "<polygon class=\"c{c} band\" points=\"{} {}\"/>",
        upper.join(" "),
        lower.join(" ")
    );
    let (left, right) = (area.left, area.right);
    let _ = write!(
        out,
        "<line class=\"wanted\" x1=\"{left}\" x2=\"{right}\" y1=\"{wanted:.1}\" y2=\"{wanted:.1}\"/>"
    );
    let curve: Vec<String> = dots.iter().map(|d| at(d, d.y)).collect();
    let data = over_time(&series.name, &dots.iter().collect::<Vec<_>>());
    let _ = write!(
        out,
        "<polyline class=\"curve thin s{c}\"{data} points=\"{}\"/></g>",
        curve.join(" ")
    );
}
