//! What all figures are drawn with: areas with their axes, texts, legends.

use std::borrow::Cow;
use std::fmt::Write;

use super::scale::Scale;
use super::{COLOURS, Dot, escape, number};

/// The width of every figure.
pub(super) const WIDTH: f64 = 720.0;
/// Room for the marks of the vertical axis.
pub(super) const LEFT: f64 = 84.0;
pub(super) const RIGHT: f64 = 16.0;
/// Room for the label of the vertical axis, which stands above it.
pub(super) const TOP: f64 = 30.0;
/// Room below an area for the marks and the label of the horizontal axis.
pub(super) const BELOW: f64 = 48.0;
/// The height of a line of a legend.
const LEGEND_LINE: f64 = 18.0;

/// The part of a figure in which values lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) floor: f64,
}

impl Area {
    /// Where a value lies on a vertical scale.
    pub(super) fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.floor - scale.share(value) * (self.floor - self.top)
    }

    /// Where a value lies on a horizontal scale.
    pub(super) fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + scale.share(value) * (self.right - self.left)
    }

    /// Both axes, and the grid and marks of the vertical one; marks that are too close to the one
    /// below have no number.
    pub(super) fn vertical(&self, out: &mut String, scale: &Scale) {
        let mut last = f64::MAX;
        for value in scale.marks() {
            let at = self.y(scale, value);
            let (left, right) = (self.left, self.right);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
            );
            if last - at >= 14.0 {
                text(out, "small ytick", (left - 6.0, at + 4.0), "end", &number(value));
                last = at;
            }
        }
        self.axes(out);
    }

    /// Lines at the left and at the foot.
    pub(super) fn axes(&self, out: &mut String) {
        let Area { left, right, top, floor } = *self;
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{left:.1}\" x2=\"{right:.1}\" y1=\"{floor:.1}\" y2=\"{floor:.1}\"/>\
             <line class=\"axis\" x1=\"{left:.1}\" x2=\"{left:.1}\" y1=\"{top:.1}\" y2=\"{floor:.1}\"/>"
        );
    }

    /// The marks of a horizontal scale below the area; those that would run into the one before
    /// have no number.
    pub(super) fn horizontal(&self, out: &mut String, scale: &Scale, with_grid: bool) {
        let mut last = f64::MIN;
        for value in scale.marks() {
            let (at, words) = (self.x(scale, value), number(value));
            if with_grid {
                let (top, floor) = (self.top, self.floor);
                let _ = write!(
                    out,
                    "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top:.1}\" y2=\"{floor:.1}\"/>"
                );
            }
            let half = text_width(&words, true) / 2.0;
            if at - half > last + 6.0 && at + half <= WIDTH {
                text(out, "small xtick", (at, self.floor + 16.0), "middle", &words);
                last = at + half;
            }
        }
    }
}

/// A text that begins, ends or has its middle (`anchor`) at a point.
pub(super) fn text(out: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, words: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let anchor =
        if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
    let _ = write!(out, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>", escape(words));
}

/// Begins one of several diagrams and writes its name at a point; the caller closes the group.
pub(super) fn begin_panel(out: &mut String, name: &str, at: (f64, f64), room: f64) {
    let escaped = escape(name);
    let _ = write!(out, "<g data-panel=\"{escaped}\"><title>{escaped}</title>");
    text(out, "small head", at, "start", &fitted(name, room, true));
}

/// About how wide a text is, in wide fonts.
pub(super) fn text_width(words: &str, is_small: bool) -> f64 {
    words.chars().count() as f64 * if is_small { 7.0 } else { 8.2 }
}

/// A text that is cut off where it is wider than `room`.
pub(super) fn fitted(words: &str, room: f64, is_small: bool) -> Cow<'_, str> {
    if text_width(words, is_small) <= room {
        return words.into();
    }
    let mut cut = words.to_owned();
    while cut.pop().is_some() && text_width(&cut, is_small) + text_width("…", is_small) > room {}
    (cut.trim_end().to_owned() + "…").into()
}

/// A vertical range.
pub(super) fn error_bar(out: &mut String, x: f64, low: f64, high: f64) {
    if (low - high).abs() >= 0.5 {
        let (left, right) = (x - 4.0, x + 4.0);
        let _ = write!(
            out,
            "<path class=\"err\" d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}H{right:.1}M{left:.1} {high:.1}H{right:.1}\"/>"
        );
    }
}

/// A horizontal range.
pub(super) fn error_bar_along(out: &mut String, y: f64, low: f64, high: f64) {
    if (low - high).abs() >= 0.5 {
        let (top, foot) = (y - 4.0, y + 4.0);
        let _ = write!(
            out,
            "<path class=\"err\" d=\"M{low:.1} {y:.1}H{high:.1}M{low:.1} {top:.1}V{foot:.1}M{high:.1} {top:.1}V{foot:.1}\"/>"
        );
    }
}

/// A triangle: what may be more.
pub(super) fn triangle((x, y): (f64, f64)) -> String {
    format!("M{x:.1} {:.1}L{:.1} {:.1}H{:.1}Z", y - 6.0, x + 5.5, y + 4.0, x - 5.5)
}

/// A cross: what failed.
pub(super) fn cross((x, y): (f64, f64)) -> String {
    let (left, right, top, foot) = (x - 4.0, x + 4.0, y - 4.0, y + 4.0);
    format!("M{left:.1} {top:.1}L{right:.1} {foot:.1}M{left:.1} {foot:.1}L{right:.1} {top:.1}")
}

/// The names of curves by colour, and what triangles and crosses mean where there are some; returns
/// where it ends.
pub(super) fn legend(out: &mut String, from: f64, names: &[&str], dots: &[Dot]) -> f64 {
    let mut flow = Flow { x: LEFT, y: from };
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
        text(out, "", (x + 28.0, y), "start", &fitted(name, WIDTH - RIGHT - x - 28.0, false));
    }
    let failed = dots.iter().any(|d| d.failed);
    let at_least = dots.iter().any(|d| d.at_least && !d.failed);
    let mut mark = |class: &str, words: &str, path: fn((f64, f64)) -> String| {
        let (x, y) = flow.next(words);
        let _ = write!(out, "<path class=\"{class}\" d=\"{}\"/>", path((x + 11.0, y - 4.0)));
        text(out, "", (x + 28.0, y), "start", words);
    };
    if at_least {
        mark("err", "may be more", triangle);
    }
    if failed {
        mark("err cross", "failed", cross);
    }
    flow.y + 8.0
}

/// Where the entries of a legend stand: line after line.
struct Flow {
    x: f64,
    y: f64,
}

impl Flow {
    fn next(&mut self, words: &str) -> (f64, f64) {
        let width = 46.0 + text_width(words, false);
        if self.x + width > WIDTH - RIGHT && self.x > LEFT {
            (self.x, self.y) = (LEFT, self.y + LEGEND_LINE);
        }
        let at = (self.x, self.y);
        self.x += width;
        at
    }
}
