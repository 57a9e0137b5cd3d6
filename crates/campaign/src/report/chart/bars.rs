//! Horizontal bars below each other, with their values at their ends: names and values have room,
//! however many bars there are.

use std::fmt::Write;

use super::draw::{Area, RIGHT, WIDTH, error_bar_along, fitted, text, text_width};
use super::scale::Scale;
use super::{COLOURS, Dot, Figure, Series, data, escape, value};

/// The height of a bar with what lies between two.
const ROW: f64 = 22.0;
const BAR: f64 = 15.0;
/// The room of names, at the most.
const NAMES: f64 = 250.0;

/// A bar, and the series that it belongs to.
struct Bar<'a> {
    name: &'a str,
    group: &'a str,
    colour: usize,
    of: &'a Series,
    dot: &'a Dot,
}

impl Figure {
    pub(super) fn bars(&self, out: &mut String, groups: &[String], series: &[Series]) -> f64 {
        // Bars of one series are named after their groups, others after their series below the name
        // of their group.
        let is_one = series.len() == 1;
        let mut lines: Vec<Result<Bar<'_>, String>> = Vec::new();
        for (n, group) in groups.iter().enumerate() {
            let mut bars: Vec<Bar<'_>> = Vec::new();
            for (i, of) in series.iter().enumerate() {
                let name = if is_one { group } else { &of.name };
                let here = of.dots.iter().filter(|dot| dot.x == n as f64);
                bars.extend(here.map(|dot| Bar { name, group, colour: i % COLOURS, of, dot }));
            }
            if !is_one && !bars.is_empty() {
                let head = if self.x_label.is_empty() {
                    group.clone()
                } else {
                    format!("{}: {group}", self.x_label)
                };
                lines.push(Err(head));
            }
            lines.extend(bars.into_iter().map(Ok));
        }
        let top = if is_one && !self.x_label.is_empty() { 26.0 } else { 10.0 };
        let area = place(&lines, top);
        let sound: Vec<f64> = lines.iter().flatten().map(|bar| bar.dot.y).collect();
        let scale = Scale::for_all(&sound, lines.iter().flatten().map(|bar| bar.dot.range.1));
        area.horizontal(out, &scale, true);
        area.axes(out);
        if top > 10.0 {
            text(
                out,
                "small",
                (area.left - 8.0, 16.0),
                "end",
                &fitted(&self.x_label, area.left - 10.0, true),
            );
        }
        for (n, line) in lines.iter().enumerate() {
            let y = area.top + ROW * (n as f64 + 0.5);
            match line {
                Err(head) => {
                    text(out, "head", (8.0, y + 4.0), "start", &fitted(head, WIDTH - 16.0, false));
                }
                Ok(bar) => draw(out, bar, y, &area, &scale),
            }
        }
        let label = self.value_label(scale.is_logarithmic());
        text(out, "", ((area.left + area.right) / 2.0, area.floor + 36.0), "middle", &label);
        area.floor + 48.0
    }
}

/// Where the bars lie: names to the left, values to the right.
fn place(lines: &[Result<Bar<'_>, String>], top: f64) -> Area {
    let widest = |words: &mut dyn Iterator<Item = f64>| words.fold(40.0, f64::max);
    let names = widest(&mut lines.iter().flatten().map(|bar| text_width(bar.name, false)));
    let values = widest(&mut lines.iter().flatten().map(|bar| text_width(&value(bar.dot), false)));
    let right = WIDTH - RIGHT - values - 6.0;
    Area { left: names.min(NAMES) + 20.0, right, top, floor: top + ROW * lines.len().max(1) as f64 }
}

fn draw(out: &mut String, bar: &Bar<'_>, y: f64, area: &Area, scale: &Scale) {
    let Bar { name, group, colour, of, dot } = *bar;
    text(out, "", (area.left - 8.0, y + 4.5), "end", &fitted(name, area.left - 12.0, false));
    let end = area.x(scale, dot.y);
    let failed = if dot.failed { " failed" } else { "" };
    let _ = write!(
        out,
        "<rect class=\"c{colour}{failed}\" {} x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\"><title>{}, {}: {}</title></rect>",
        data(&of.name, group, dot),
        area.left,
        y - BAR / 2.0,
        (end - area.left).max(0.0),
        escape(&of.name),
        escape(group),
        value(dot),
    );
    error_bar_along(out, y, area.x(scale, dot.range.0), area.x(scale, dot.range.1));
    text(out, "", (end.max(area.x(scale, dot.range.1)) + 7.0, y + 4.5), "start", &value(dot));
}
