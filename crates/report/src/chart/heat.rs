//! Heat maps: the shade of a cell shows its value. All maps of a figure have the same scale.

use std::fmt::Write;

use crate::chart::draw::{RIGHT, WIDTH, begin_panel, further_lines, text, text_width};
use crate::chart::figure::{Figure, HeatMap, escape};
use crate::format::{AT_LEAST, number};

/// Minimum width of a cell. If two maps side by side would have narrower cells, each map is as wide
/// as the figure.
const CELL: f64 = 70.0;
const ROW: f64 = 26.0;
/// Width of the space for the names of rows.
const NAMES: f64 = 62.0;
const HEAD: f64 = 44.0;
const FOOT: f64 = 14.0;
const TOP: f64 = 22.0;

impl Figure {
    pub(super) fn heat(&self, out: &mut String, maps: &[HeatMap], highest: f64) -> f64 {
        let highest = highest.max(1e-9);
        text(
            out,
            "",
            (8.0, 16.0),
            "start",
            &format!("rows: {}; columns: {}", self.y_label, self.x_label),
        );
        let most = maps.iter().map(|map| map.columns.len()).max().unwrap_or(1).max(1);
        let widest = NAMES + most as f64 * CELL + 10.0;
        let beside = ((WIDTH - RIGHT) / widest).floor().clamp(1.0, 2.0) as usize;
        let room = (WIDTH - RIGHT) / beside as f64;
        let mut top = TOP;
        for row in maps.chunks(beside) {
            top += further_lines(row.iter().map(|map| map.name.as_str()), room - 16.0);
            for (n, map) in row.iter().enumerate() {
                let cell =
                    ((room - NAMES - 10.0) / map.columns.len().max(1) as f64).min(2.0 * CELL);
                draw(out, map, (room * n as f64, top), (room, cell), highest);
            }
            let rows = row.iter().map(|map| map.rows.len()).max().unwrap_or_default();
            top += HEAD + ROW * rows as f64 + FOOT;
        }
        colour_bar(out, highest, top + 6.0);
        top + 34.0
    }
}

fn draw(
    out: &mut String,
    map: &HeatMap,
    (left, top): (f64, f64),
    (room, width): (f64, f64),
    highest: f64,
) {
    begin_panel(out, &map.name, (left + 8.0, top + 18.0), room - 16.0);
    for (n, column) in map.columns.iter().enumerate() {
        let at = left + NAMES + width * (n as f64 + 0.5);
        text(out, "small", (at, top + HEAD - 8.0), "middle", column);
    }
    for (r, (row, values)) in map.rows.iter().enumerate() {
        let y = top + HEAD + ROW * r as f64;
        text(out, "small", (left + NAMES - 6.0, y + 17.0), "end", row);
        for (c, value) in values.iter().enumerate() {
            let Some((value, at_least)) = value else { continue };
            let shade = opacity(*value, highest);
            let (x, column) =
                (left + NAMES + width * c as f64, map.columns.get(c).map_or("", String::as_str));
            let _ = write!(
                out,
                "<rect class=\"cell\" data-of=\"{}\" data-at=\"{}\" data-y=\"{value}\" data-state=\"{}\" opacity=\"{shade:.2}\" \
                 x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                escape(row),
                escape(column),
                if *at_least { "at-least" } else { "" },
                width - 2.0,
                ROW - 2.0
            );
            let words =
                format!("{}{}", if *at_least { AT_LEAST.trim_end() } else { "" }, number(*value));
            let class = if shade > LIGHT { "small on" } else { "small" };
            text(out, class, (x + width / 2.0 - 1.0, y + 17.0), "middle", &words);
        }
    }
    out.push_str("</g>");
}

/// Shade above which white text is easier to read than dark text.
const LIGHT: f64 = 0.8;

/// Returns the opacity of the cell for a value. A cell with the value 0 remains visible.
fn opacity(value: f64, highest: f64) -> f64 {
    0.06 + 0.9 * (value / highest).clamp(0.0, 1.0)
}

/// Draws the legend of the shades.
fn colour_bar(out: &mut String, highest: f64, y: f64) {
    const STEPS: usize = 10;
    let (width, left) = (24.0, NAMES);
    text(out, "small", (left - 6.0, y + 11.0), "end", "0");
    for step in 0..STEPS {
        let opacity = opacity((step as f64 + 0.5) / STEPS as f64, 1.0);
        let x = left + width * step as f64;
        let _ = write!(
            out,
            "<rect class=\"cell\" opacity=\"{opacity:.2}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width}\" height=\"14\"/>"
        );
    }
    let (end, most) = (left + width * STEPS as f64 + 6.0, number(highest));
    text(out, "small", (end, y + 11.0), "start", &most);
    let words = "queries/s, one scale for all maps";
    text(out, "small", (end + text_width(&most, true) + 12.0, y + 11.0), "start", words);
}
