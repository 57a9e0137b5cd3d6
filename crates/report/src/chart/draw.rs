//! Drawing primitives for all figures: areas with axes, texts and legends.

use std::fmt::Write;

use crate::chart::figure::{COLOURS, Dot, escape};
use crate::chart::scale::Scale;
use crate::format::number;

/// The width of every figure.
pub(super) const WIDTH: f64 = 720.0;
/// Width of the space for the tick marks of the vertical axis and their numbers.
pub(super) const LEFT: f64 = 84.0;
pub(super) const RIGHT: f64 = 16.0;
/// Space above a plot area for the label of the vertical axis.
pub(super) const TOP: f64 = 30.0;
/// Space below a plot area for the tick marks and the label of the horizontal axis.
pub(super) const BELOW: f64 = 48.0;
/// The height of a line of a legend.
const LEGEND_LINE: f64 = 18.0;
/// The distance between lines of a text.
const LINE: f64 = 14.0;

/// Rectangle in which the values of a figure are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) floor: f64,
}

impl Area {
    /// Returns the position of a value on a vertical scale.
    pub(super) fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.floor - scale.share(value) * (self.floor - self.top)
    }

    /// Returns the position of a value on a horizontal scale.
    pub(super) fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + scale.share(value) * (self.right - self.left)
    }

    /// Draws both axes, and the grid and tick marks of the vertical axis. If two tick marks are close together, one of
    /// them is drawn without its number.
    pub(super) fn vertical(&self, out: &mut String, scale: &Scale) {
        let marks: Vec<f64> = scale.marks();
        for &value in &marks {
            let (at, Area { left, right, .. }) = (self.y(scale, value), *self);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            );
        }
        for (value, at) in numbered(&marks, |value| (self.y(scale, value), 7.0)) {
            text(out, "small ytick", (self.left - 6.0, at + 4.0), "end", &number(value));
        }
        self.axes(out);
    }

    /// Draws the axis lines at the left and at the bottom of the plot area.
    pub(super) fn axes(&self, out: &mut String) {
        let Area { left, right, top, floor } = *self;
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{floor:.1}\" y2=\"{floor:.1}\"/>\
             <line class=\"axis\" x1=\"{left:.1}\" x2=\"{left:.1}\" y1=\"{top:.1}\" y2=\"{floor:.1}\"/>"
        );
    }

    /// Draws the tick marks of a horizontal axis below the plot area. Numbers that would overlap other numbers are
    /// omitted.
    pub(super) fn horizontal(&self, out: &mut String, scale: &Scale, with_grid: bool) {
        let marks: Vec<f64> = scale.marks();
        for &value in marks.iter().filter(|_| with_grid) {
            let (at, Area { top, floor, .. }) = (self.x(scale, value), *self);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top:.1}\" y2=\"{floor:.1}\"/>"
            );
        }
        let place =
            |value: f64| (self.x(scale, value), text_width(&number(value), true) / 2.0 + 3.0);
        for (value, at) in numbered(&marks, place) {
            text(out, "small xtick", (at, self.floor + 16.0), "middle", &number(value));
        }
    }
}

/// Returns the tick marks that are labelled with a number, and their positions on the axis, in ascending order. If two
/// numbers would overlap, one of them is omitted; powers of ten are kept. `place` returns the position of the middle of
/// a number, and half the width of the number.
fn numbered(marks: &[f64], place: impl Fn(f64) -> (f64, f64)) -> Vec<(f64, f64)> {
    let is_power = |value: f64| value > 0.0 && (value.log10() - value.log10().round()).abs() < 1e-9;
    let (powers, others): (Vec<f64>, Vec<f64>) =
        marks.iter().copied().partition(|&value| is_power(value));
    // On a linear axis powers of ten are not special.
    let by_rank = if powers.len() > 1 { [powers, others].concat() } else { marks.to_vec() };
    let mut taken: Vec<(f64, f64, f64)> = Vec::new();
    for value in by_rank {
        let (at, half) = place(value);
        let is_free =
            |&(_, other, other_half): &(f64, f64, f64)| (at - other).abs() >= half + other_half;
        if taken.iter().all(is_free) && at + half <= WIDTH + 3.0 {
            taken.push((value, at, half));
        }
    }
    taken.sort_by(|a, b| a.0.total_cmp(&b.0));
    taken.into_iter().map(|(value, at, _)| (value, at)).collect()
}

/// Draws a text at a point. `anchor` selects whether the start, the middle or the end of the text
/// is at the point.
pub(super) fn text(out: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, words: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let anchor =
        if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
    let _ = write!(out, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>", escape(words));
}

/// Draws lines of text one below the other. The coordinates are those of the first line.
pub(super) fn text_lines(
    out: &mut String,
    class: &str,
    (x, y): (f64, f64),
    anchor: &str,
    lines: &[String],
) {
    for (n, line) in lines.iter().filter(|line| !line.is_empty()).enumerate() {
        text(out, class, (x, y + LINE * n as f64), anchor, line);
    }
}

/// Begins the SVG group of one of several diagrams, and writes the name of the diagram. The last line of the name is at
/// the given coordinates. The caller closes the SVG group.
pub(super) fn begin_panel(out: &mut String, name: &str, (x, y): (f64, f64), room: f64) {
    let escaped = escape(name);
    let _ = write!(out, "<g data-panel=\"{escaped}\"><title>{escaped}</title>");
    let lines = wrapped(name, room, true);
    let first = y - LINE * (lines.len().max(1) - 1) as f64;
    text_lines(out, "small head", (x, first), "start", &lines);
}

/// Returns the height of all lines after the first, for the name that has the most lines when wrapped to the width
/// `room`.
pub(super) fn further_lines<'a>(names: impl Iterator<Item = &'a str>, room: f64) -> f64 {
    let lines = names.map(|name| wrapped(name, room, true).len()).max().unwrap_or(1);
    LINE * (lines.max(1) - 1) as f64
}

/// Estimates the width of a text in a wide font.
pub(super) fn text_width(words: &str, is_small: bool) -> f64 {
    words.chars().count() as f64 * if is_small { 7.0 } else { 8.2 }
}

/// Wraps a text to the width `room`. Words that are longer than a line are broken.
pub(super) fn wrapped(words: &str, room: f64, is_small: bool) -> Vec<String> {
    let most = ((room / text_width("n", is_small)) as usize).max(4);
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        let letters: Vec<char> = word.chars().collect();
        for (n, piece) in letters.chunks(most).enumerate() {
            let piece: String = piece.iter().collect();
            let last = lines.last_mut().expect("there is a first line");
            let used = last.chars().count();
            let fits = used == 0 || used + 1 + piece.chars().count() <= most;
            if n > 0 || !fits {
                lines.push(piece);
            } else {
                last.push_str(if used == 0 { "" } else { " " });
                last.push_str(&piece);
            }
        }
    }
    lines
}

/// Draws a vertical error bar.
pub(super) fn error_bar(out: &mut String, x: f64, low: f64, high: f64) {
    if (low - high).abs() >= 0.5 {
        let (left, right) = (x - 4.0, x + 4.0);
        let _ = write!(
            out,
            "<path class=\"err\" d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}H{right:.1}M{left:.1} {high:.1}H{right:.1}\"/>"
        );
    }
}

/// Draws a horizontal error bar.
pub(super) fn error_bar_along(out: &mut String, y: f64, low: f64, high: f64) {
    if (low - high).abs() >= 0.5 {
        let (top, foot) = (y - 4.0, y + 4.0);
        let _ = write!(
            out,
            "<path class=\"err\" d=\"M{low:.1} {y:.1}H{high:.1}M{low:.1} {top:.1}V{foot:.1}M{high:.1} {top:.1}V{foot:.1}\"/>"
        );
    }
}

/// Returns a triangle, the mark of a lower bound.
pub(super) fn triangle((x, y): (f64, f64)) -> String {
    format!("M{x:.1} {:.1}L{:.1} {:.1}H{:.1}Z", y - 6.0, x + 5.5, y + 4.0, x - 5.5)
}

/// Returns a cross, the mark of a failure.
pub(super) fn cross((x, y): (f64, f64)) -> String {
    let (left, right, top, foot) = (x - 4.0, x + 4.0, y - 4.0, y + 4.0);
    format!("M{left:.1} {top:.1}L{right:.1} {foot:.1}M{left:.1} {foot:.1}L{right:.1} {top:.1}")
}

/// Draws the legend between a left and a right edge, and returns the position of its lower end. The
/// legend explains the colours of the curves. It also explains triangles and crosses if the figure
/// contains any.
pub(super) fn legend(
    out: &mut String,
    from: f64,
    (left, right): (f64, f64),
    names: &[&str],
    dots: &[Dot],
) -> f64 {
    let mut flow = Flow { x: left, y: from, left, right };
    for (i, name) in names.iter().enumerate() {
        let (c, (x, y)) = (i % COLOURS, flow.next(name));
        let (end, at) = (x + 22.0, y - 4.0);
        let _ = write!(
            out,
            "<line class=\"curve s{c}\" x1=\"{x:.1}\" x2=\"{end:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <rect class=\"c{c}\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/>",
            x + 7.0,
            y - 8.0
        );
        let lines = wrapped(name, right - left - 28.0, false);
        text_lines(out, "", (x + 28.0, y), "start", &lines);
        flow.y += LINE * (lines.len().max(1) - 1) as f64;
    }
    let failed = dots.iter().any(|d| d.failed);
    let at_least = dots.iter().any(|d| d.at_least && !d.failed);
    let mut mark = |class: &str, words: &str, path: fn((f64, f64)) -> String| {
        let (x, y) = flow.next(words);
        let _ = write!(out, "<path class=\"{class}\" d=\"{}\"/>", path((x + 11.0, y - 4.0)));
        text(out, "", (x + 28.0, y), "start", words);
    };
    if at_least {
        mark("err", "lower bound", triangle);
    }
    if failed {
        mark("err cross", "failed", cross);
    }
    flow.y + 8.0
}

/// Layout of the entries of a legend, line by line.
struct Flow {
    x: f64,
    y: f64,
    left: f64,
    right: f64,
}

impl Flow {
    fn next(&mut self, words: &str) -> (f64, f64) {
        let width = 46.0 + text_width(words, false);
        if self.x + width > self.right && self.x > self.left {
            (self.x, self.y) = (self.left, self.y + LEGEND_LINE);
        }
        let at = (self.x, self.y);
        self.x += width;
        at
    }
}
