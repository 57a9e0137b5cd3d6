//! Cells by value.

use std::fmt::Write;

use super::{AT_LEAST, BOTTOM, Figure, HEIGHT, LEFT, RIGHT, Row, TOP, WIDTH, escape, label_below, number};

impl Figure {
    pub(super) fn heat(&self, out: &mut String, columns: &[String], rows: &[Row], highest: f64) {
        let highest = highest.max(1e-9);
        let width = (WIDTH - LEFT - RIGHT) / columns.len().max(1) as f64;
        let height = (HEIGHT - TOP - BOTTOM) / rows.len().max(1) as f64;
        for (n, column) in columns.iter().enumerate() {
            label_below(out, LEFT + width * (n as f64 + 0.5), HEIGHT, column);
        }
        for (r, (row, values)) in rows.iter().enumerate() {
            let top = TOP + height * r as f64;
            let middle = top + height / 2.0 + 4.0;
            let _ =
                write!(out, "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>", LEFT - 8.0, escape(row));
            for (c, value) in values.iter().enumerate() {
                let left = LEFT + width * c as f64;
                let Some((value, at_least)) = value else { continue };
                let mark = if *at_least { AT_LEAST } else { "" };
                let opacity = opacity(*value, highest);
                let on = if opacity > LIGHT { " class=\"on\"" } else { "" };
                let _ = write!(
                    out,
                    "<rect class=\"cell\" opacity=\"{opacity:.2}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
                     <text{on} x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"middle\">{mark}{}</text>",
                    width - 2.0,
                    height - 2.0,
                    left + width / 2.0,
                    number(*value)
                );
            }
        }
        self.axis_labels(out, false, HEIGHT);
        colour_bar(out, highest);
    }
}

/// From this shade on white text is easier to read than dark text.
const LIGHT: f64 = 0.8;

/// How dark a value is; 0 can still be seen.
fn opacity(value: f64, highest: f64) -> f64 {
    0.06 + 0.9 * (value / highest).clamp(0.0, 1.0)
}

/// What the shades mean.
fn colour_bar(out: &mut String, highest: f64) {
    const STEPS: usize = 10;
    let (width, y) = (24.0, HEIGHT - 28.0);
    let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">0</text>", LEFT - 6.0, y + 11.0);
    for step in 0..STEPS {
        let opacity = opacity((step as f64 + 0.5) / STEPS as f64, 1.0);
        let x = LEFT + width * step as f64;
        let _ = write!(
            out,
            "<rect class=\"cell\" opacity=\"{opacity:.2}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width}\" height=\"14\"/>"
        );
    }
    let end = LEFT + width * STEPS as f64 + 6.0;
    let _ = write!(out, "<text x=\"{end:.1}\" y=\"{:.1}\">{}</text>", y + 11.0, number(highest));
}
