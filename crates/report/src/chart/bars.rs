//! Horizontal bars in rows, with the value at the end of each bar. Any number of bars fits. Results
//! of searches are drawn as dots instead of bars. On a logarithmic axis, all values are drawn as
//! dots, because the length of a bar has no meaning there.

use std::fmt::Write;

use crate::chart::draw::{
    Area, RIGHT, WIDTH, error_bar_along, text, text_lines, text_width, wrapped,
};
use crate::chart::figure::{COLOURS, Dot, Figure, Series, data, escape, value};
use crate::chart::scale::Scale;

/// Height of a row with one line of text.
const ROW: f64 = 22.0;
/// Height of each further line of text in a row.
const TEXT: f64 = 14.0;
const BAR: f64 = 15.0;
/// Maximum width of names; longer names are wrapped.
const NAMES: f64 = 250.0;

/// A bar and its series.
struct Bar<'a> {
    name: &'a str,
    group: &'a str,
    colour: usize,
    of: &'a Series,
    dot: &'a Dot,
}

/// A row of the figure: the name of a group, or a bar.
enum Line<'a> {
    /// Name of a group of bars.
    Head(&'a str),
    /// A bar with its name.
    Bar(Bar<'a>),
}

impl<'a> Line<'a> {
    fn name(&self) -> &'a str {
        match self {
            Line::Head(name) => name,
            Line::Bar(bar) => bar.name,
        }
    }

    fn bar(&self) -> Option<&Bar<'a>> {
        if let Line::Bar(bar) = self { Some(bar) } else { None }
    }
}

impl Figure {
    pub(super) fn bars(&self, out: &mut String, groups: &[String], series: &[Series]) -> f64 {
        let lines = lines(groups, series);
        let label = self.groups_label(series);
        let label = wrapped(&label, WIDTH - 16.0, true);
        let top = 10.0 + TEXT * label.iter().filter(|line| !line.is_empty()).count() as f64;
        text_lines(out, "small", (8.0, 16.0), "start", &label);
        let bars = || lines.iter().filter_map(Line::bar);
        let widest = |words: &mut dyn Iterator<Item = f64>| words.fold(40.0, f64::max);
        let names = widest(&mut lines.iter().map(|line| text_width(line.name(), false))).min(NAMES);
        let values = widest(&mut bars().map(|bar| text_width(&value(bar.dot), false)));
        let names_of: Vec<Vec<String>> =
            lines.iter().map(|line| wrapped(line.name(), names, false)).collect();
        let height = |name: &Vec<String>| ROW + TEXT * (name.len().max(1) - 1) as f64;
        let all = names_of.iter().map(height).sum::<f64>().max(ROW);
        let right = WIDTH - RIGHT - values - 6.0;
        let area = Area { left: names + 20.0, right, top, floor: top + all };
        let sound: Vec<f64> = bars().map(|bar| bar.dot.y).collect();
        let scale = Scale::for_all(&sound, bars().map(|bar| bar.dot.range.1));
        area.horizontal(out, &scale, true);
        area.axes(out);
        let mut y = area.top;
        for (line, name) in lines.iter().zip(&names_of) {
            let (height, middle) = (height(name), y + height(name) / 2.0);
            let first = middle + 4.5 - TEXT * (name.len().max(1) - 1) as f64 / 2.0;
            match line {
                Line::Head(_) => text_lines(out, "head", (8.0, first), "start", name),
                Line::Bar(bar) => {
                    text_lines(out, "", (area.left - 8.0, first), "end", name);
                    draw(out, bar, middle, &area, &scale);
                }
            }
            y += height;
        }
        let label = self.value_label(scale.is_logarithmic());
        text(out, "", ((area.left + area.right) / 2.0, area.floor + 36.0), "middle", &label);
        area.floor + 48.0
    }

    /// Returns the label that describes all groups. If there is only one series, the name of the series is added to the
    /// label.
    fn groups_label(&self, series: &[Series]) -> String {
        match series {
            [only] if !self.x_label.is_empty() && !only.name.is_empty() => {
                format!("{}; {}", only.name, self.x_label)
            }
            _ => self.x_label.clone(),
        }
    }
}

/// Returns the rows of the figure. If there is a single series, each bar is labelled with the name
/// of its group. Otherwise each bar is labelled with the name of its series, below the name of its
/// group.
fn lines<'a>(groups: &'a [String], series: &'a [Series]) -> Vec<Line<'a>> {
    let is_one = series.len() == 1;
    let mut lines: Vec<Line<'a>> = Vec::new();
    for (n, group) in groups.iter().enumerate() {
        let mut bars: Vec<Line<'a>> = Vec::new();
        for (i, of) in series.iter().enumerate() {
            let name = if is_one { group } else { &of.name };
            let here = of.dots.iter().filter(|dot| dot.x == n as f64);
            bars.extend(
                here.map(|dot| Line::Bar(Bar { name, group, colour: i % COLOURS, of, dot })),
            );
        }
        if !is_one && !bars.is_empty() {
            lines.push(Line::Head(group));
        }
        lines.extend(bars);
    }
    lines
}

fn draw(out: &mut String, bar: &Bar<'_>, y: f64, area: &Area, scale: &Scale) {
    let Bar { group, colour, of, dot, .. } = *bar;
    let end = area.x(scale, dot.y);
    let failed = if dot.failed { " failed" } else { "" };
    let data = data(&of.name, group, dot);
    let title = format!("{}, {}: {}", escape(&of.name), escape(group), value(dot));
    if scale.is_logarithmic() || !dot.each.is_empty() {
        error_bar_along(out, y, area.x(scale, dot.range.0), area.x(scale, dot.range.1));
        for &one in &dot.each {
            let x = area.x(scale, one);
            let _ = write!(
                out,
                "<circle class=\"c{colour} each\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
            );
        }
        let _ = write!(
            out,
            "<circle class=\"c{colour}{failed}\" {data} cx=\"{end:.1}\" cy=\"{y:.1}\" r=\"5.5\"><title>{title}</title></circle>"
        );
    } else {
        let _ = write!(
            out,
            "<rect class=\"c{colour}{failed}\" {data} x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\"><title>{title}</title></rect>",
            area.left,
            y - BAR / 2.0,
            (end - area.left).max(0.0),
        );
        error_bar_along(out, y, area.x(scale, dot.range.0), area.x(scale, dot.range.1));
    }
    let most = dot.each.iter().map(|&one| area.x(scale, one));
    let edge = most.fold(end.max(area.x(scale, dot.range.1)), f64::max);
    text(out, "", (edge + 9.0, y + 4.5), "start", &value(dot));
}
