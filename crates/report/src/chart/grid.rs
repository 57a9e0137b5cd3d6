//! Small diagrams side by side, with a common horizontal axis.

use std::fmt::Write;

use crate::chart::draw::{
    Area, BELOW, LEFT, RIGHT, WIDTH, begin_panel, further_lines, legend, text,
};
use crate::chart::figure::{Dot, Figure, Multiple, Series};
use crate::chart::lines::{draw, scale_of};
use crate::chart::scale::Scale;

/// Maximum number of diagrams in a row.
const COLUMNS: usize = 3;
/// Space above the first row for the label of the vertical axis.
const HEAD: f64 = 26.0;
const NAME: f64 = 22.0;
const MARKS: f64 = 74.0;
/// Horizontal space in each cell that must stay free beside the name of the cell's diagram.
const NAME_GAP: f64 = 24.0;
const HEIGHT: f64 = 110.0;
const FOOT: f64 = 26.0;

impl Figure {
    pub(super) fn grid(&self, out: &mut String, panels: &[Multiple], shared: bool) -> f64 {
        let columns = panels.len().clamp(1, COLUMNS);
        let width = (WIDTH - RIGHT) / columns as f64;
        let name = NAME + further_lines(panels.iter().map(|p| p.name.as_str()), width - NAME_GAP);
        let height = name + HEIGHT + FOOT;
        let all: Vec<Series> = panels.iter().flat_map(|panel| panel.series.clone()).collect();
        let mut names: Vec<&str> = Vec::new();
        for series in &all {
            if !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        let dots: Vec<Dot> = all.iter().flat_map(|series| series.dots.clone()).collect();
        let places = Scale::for_places(&dots.iter().map(|d| d.x).collect::<Vec<_>>());
        let together = scale_of(&all);
        for (n, panel) in panels.iter().enumerate() {
            let (row, column) = (n / columns, n % columns);
            let (left, top) = (width * column as f64, HEAD + height * row as f64);
            let right = left + width - 10.0;
            let area =
                Area { left: left + MARKS, right, top: top + name, floor: top + name + HEIGHT };
            let own;
            let scale = if shared {
                &together
            } else {
                own = scale_of(&panel.series);
                &own
            };
            cell(out, panel, &names, &area, (&places, scale));
        }
        let end = HEAD + height * panels.len().div_ceil(columns) as f64;
        let is_logarithmic = shared && together.is_logarithmic();
        text(out, "", (8.0, 16.0), "start", &self.value_label(is_logarithmic));
        text(out, "", (WIDTH / 2.0, end + 14.0), "middle", &self.x_label);
        // If each diagram has a single curve without a name, no legend is needed.
        let named: &[&str] = if names == [""] { &[] } else { &names };
        if named.is_empty() && !dots.iter().any(|dot| dot.failed || dot.at_least) {
            return end + 26.0;
        }
        legend(out, end + BELOW, (LEFT, WIDTH - RIGHT), named, &dots)
    }
}

fn cell(
    out: &mut String,
    panel: &Multiple,
    names: &[&str],
    area: &Area,
    (places, scale): (&Scale, &Scale),
) {
    let room = area.right - area.left + MARKS + 10.0 - NAME_GAP;
    begin_panel(out, &panel.name, (area.left - MARKS + 10.0, area.top - 8.0), room);
    area.vertical(out, scale);
    area.horizontal(out, places, false);
    if let Some(mark) = panel.mark {
        let (x, Area { top, floor, .. }) = (area.x(places, mark), *area);
        let _ = write!(
            out,
            "<line class=\"wanted\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{floor:.1}\"/>"
        );
    }
    draw(out, &panel.series, names, area, places, scale);
    out.push_str("</g>");
}
