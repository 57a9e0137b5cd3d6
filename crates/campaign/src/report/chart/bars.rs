//! Bars beside each other, with their values.

use std::fmt::Write;

use super::scale::Scale;
use super::{
    AT_LEAST, BOTTOM, COLOURS, Dot, Figure, HEIGHT, Key, LEFT, RIGHT, Series, WIDTH, error_bar, escape, label_below,
    legend, number, text_width,
};

/// The widest that a bar is.
const WIDEST: f64 = 60.0;

impl Figure {
    pub(super) fn bars(&self, out: &mut String, groups: &[String], series: &[Series]) {
        let dots = || series.iter().flat_map(|s| &s.dots);
        let room = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
        let step = (room * 0.9 / series.len().max(1) as f64).min(WIDEST * 2.0);
        let widest = dots().map(|d| text_width(&value(d))).fold(0.0, f64::max);
        // Values that are wider than their bars' places stand upright.
        let upright = widest > step;
        let tops = dots().map(|d| d.range.1);
        let values: Vec<f64> = dots().map(|d| d.y).collect();
        let scale = Scale::for_all(&values, tops, if upright { 1.35 } else { 1.12 });
        self.frame(out, &scale);
        for (n, group) in groups.iter().enumerate() {
            label_below(out, LEFT + room * (n as f64 + 0.5), HEIGHT, group);
        }
        let width = (step * 0.9).min(WIDEST);
        for (i, s) in series.iter().enumerate() {
            for d in &s.dots {
                let middle = LEFT + room * (d.x + 0.5) + step * (i as f64 - (series.len() as f64 - 1.0) / 2.0);
                bar(out, s, i % COLOURS, d, (middle, width), &scale);
                label(out, d, middle, &scale, upright);
            }
        }
        if series.len() > 1 {
            legend(out, Key::Bar, series.iter().map(|s| s.name.as_str()));
        }
    }
}

fn bar(out: &mut String, s: &Series, c: usize, d: &Dot, (middle, width): (f64, f64), scale: &Scale) {
    let (top, floor) = (scale.y(d.y), HEIGHT - BOTTOM);
    let failed = if d.failed { " failed" } else { "" };
    let _ = write!(
        out,
        "<rect class=\"c{c}{failed}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\"><title>{}: {}{}</title></rect>",
        middle - width / 2.0,
        (floor - top).max(0.0),
        escape(&s.name),
        value(d),
        if d.failed { ", failed" } else { "" }
    );
    error_bar(out, middle, scale.y(d.range.0), scale.y(d.range.1));
}

/// The value of a bar, as it stands above it.
fn value(d: &Dot) -> String {
    format!("{}{}", if d.at_least { AT_LEAST } else { "" }, number(d.y))
}

fn label(out: &mut String, d: &Dot, x: f64, scale: &Scale, upright: bool) {
    let y = scale.y(d.range.1.max(d.y)) - 6.0;
    if upright {
        let failed = if d.failed { ", failed" } else { "" };
        let _ = write!(
            out,
            "<text class=\"small\" transform=\"translate({:.1} {y:.1}) rotate(-90)\">{}{failed}</text>",
            x + 4.0,
            value(d)
        );
        return;
    }
    let _ = write!(out, "<text class=\"small\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", value(d));
    if d.failed {
        let above = y - 13.0;
        let _ = write!(out, "<text class=\"small\" x=\"{x:.1}\" y=\"{above:.1}\" text-anchor=\"middle\">failed</text>");
    }
}
