//! Curves over numbers.

use std::fmt::Write;

use super::scale::{Scale, ticks};
use super::{
    BOTTOM, COLOURS, Dot, FAILED, Figure, HEIGHT, Key, LEFT, RIGHT, Series, WIDTH, error_bar, escape, label_below,
    legend, number,
};

/// A curve with more points than this is one over time: its points are not marked, and its axis begins at 0.
const MARKED: usize = 40;
/// More places than this on the horizontal axis are marked at round numbers only.
const PLACES: usize = 12;

impl Figure {
    pub(super) fn lines(&self, out: &mut String, series: &[Series]) {
        let dots = || series.iter().flat_map(|s| &s.dots);
        let sound: Vec<f64> = dots().filter(|d| !d.failed).map(|d| d.y).collect();
        let tops = || dots().filter(|d| !d.failed).map(|d| d.range.1);
        let is_sweep = series.iter().all(|s| s.dots.len() <= MARKED);
        let scale =
            if is_sweep { Scale::for_all(&sound, tops(), 1.0) } else { Scale::linear(tops().fold(0.0, f64::max)) };
        self.frame(out, &scale);
        let x = horizontal(out, &dots().map(|d| d.x).collect::<Vec<_>>(), HEIGHT);
        for (i, s) in series.iter().enumerate() {
            curve(out, s, i % COLOURS, &x, &scale);
        }
        legend(out, Key::Curve, series.iter().map(|s| s.name.as_str()));
        if dots().any(|d| d.failed) {
            let (x, y) = (WIDTH - RIGHT, HEIGHT - BOTTOM + 42.0);
            let _ = write!(out, "<text class=\"small\" x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{FAILED} failed</text>");
        }
    }
}

/// Marks the horizontal axis of a figure of `height`; returns where a value lies.
pub(super) fn horizontal(out: &mut String, values: &[f64], height: f64) -> impl Fn(f64) -> f64 + use<> {
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let (low, high) = match values.len() {
        0 => (0.0, 1.0),
        _ if low < high => (low, high),
        _ => (low - 1.0, low + 1.0),
    };
    let x = move |value: f64| LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT);
    let mut marks = values.to_vec();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    if marks.len() > PLACES {
        let step = ticks(high - low);
        let first = (low / step).ceil() as i64;
        marks = (first..=(high / step).floor() as i64).map(|i| i as f64 * step).collect();
    }
    for mark in marks {
        label_below(out, x(mark), height, &number(mark));
    }
    x
}

fn curve(out: &mut String, s: &Series, c: usize, x: &impl Fn(f64) -> f64, scale: &Scale) {
    let (failed, sound): (Vec<Dot>, Vec<Dot>) = s.dots.iter().partition(|d| d.failed);
    let path: Vec<String> = sound.iter().map(|d| format!("{:.1},{:.1}", x(d.x), scale.y(d.y))).collect();
    let _ = write!(out, "<polyline class=\"curve s{c}\" points=\"{}\"/>", path.join(" "));
    let name = escape(&s.name);
    for d in &sound {
        error_bar(out, x(d.x), scale.y(d.range.0), scale.y(d.range.1));
        if d.at_least {
            // Beside the point: above it the mark of another curve may stand, left of it the axis.
            let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\">≥</text>", x(d.x) + 6.0, scale.y(d.y) - 6.0);
        }
        if s.dots.len() <= MARKED {
            let _ = write!(
                out,
                "<circle class=\"c{c}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{name}: {}</title></circle>",
                x(d.x),
                scale.y(d.y),
                number(d.y)
            );
        }
    }
    for d in &failed {
        let floor = HEIGHT - BOTTOM - 4.0;
        let _ = write!(
            out,
            "<text class=\"c{c} cross\" x=\"{:.1}\" y=\"{floor:.1}\" text-anchor=\"middle\">{FAILED}<title>{name}: failed at {}</title></text>",
            x(d.x),
            number(d.x)
        );
    }
}
