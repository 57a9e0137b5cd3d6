//! Curves with a numeric horizontal axis.

use std::fmt::Write;

use crate::chart::draw::{
    Area, BELOW, LEFT, RIGHT, TOP, WIDTH, cross, error_bar, legend, text, triangle,
};
use crate::chart::figure::{COLOURS, Dot, Figure, Series, data, escape, value};
use crate::chart::scale::Scale;

/// Maximum number of points that are marked on a curve. A curve with more points is drawn as a
/// curve over time: its points have no marks, and its axis begins at 0.
const MARKED: usize = 40;
const HEIGHT: f64 = 280.0;

impl Figure {
    pub(super) fn lines(&self, out: &mut String, series: &[Series]) -> f64 {
        let scale = scale_of(series);
        let area = Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, floor: TOP + HEIGHT };
        area.vertical(out, &scale);
        let dots: Vec<Dot> = series.iter().flat_map(|s| s.dots.clone()).collect();
        let places = Scale::for_places(&dots.iter().map(|d| d.x).collect::<Vec<_>>());
        area.horizontal(out, &places, false);
        text(out, "", (8.0, 16.0), "start", &self.value_label(scale.is_logarithmic()));
        let x_label = format!(
            "{}{}",
            self.x_label,
            if places.is_logarithmic() { " (logarithmic axis)" } else { "" }
        );
        text(out, "", ((area.left + area.right) / 2.0, area.floor + 36.0), "middle", &x_label);
        let names: Vec<&str> = series.iter().map(|s| s.name.as_str()).collect();
        draw(out, series, &names, &area, &places, &scale);
        legend(out, area.floor + BELOW + 12.0, (LEFT, WIDTH - RIGHT), &names, &dots)
    }
}

/// Returns the vertical axis for these curves.
pub(super) fn scale_of(series: &[Series]) -> Scale {
    let sound = || series.iter().flat_map(|s| &s.dots).filter(|d| !d.failed);
    let tops = || sound().map(|d| d.each.iter().copied().fold(d.range.1.max(d.y), f64::max));
    let is_sweep = series.iter().all(|s| s.dots.len() <= MARKED);
    if is_sweep {
        Scale::for_all(&sound().map(|d| d.y).collect::<Vec<_>>(), tops())
    } else {
        Scale::linear(tops().fold(0.0, f64::max))
    }
}

/// Draws curves in a plot area. The position of a curve's name in `names` determines its colour.
pub(super) fn draw(
    out: &mut String,
    series: &[Series],
    names: &[&str],
    area: &Area,
    places: &Scale,
    scale: &Scale,
) {
    // Crosses of curves that fail at the same position are stacked.
    let mut crosses: Vec<(f64, usize)> = Vec::new();
    for s in series {
        let c = names.iter().position(|name| *name == s.name).unwrap_or_default() % COLOURS;
        curve(out, s, c, area, places, scale);
        for d in s.dots.iter().filter(|d| d.failed) {
            let x = area.x(places, d.x);
            let at = crosses.iter().position(|(known, _)| (known - x).abs() < 8.0).unwrap_or_else(
                || {
                    crosses.push((x, 0));
                    crosses.len() - 1
                },
            );
            let y = area.floor - 8.0 - 12.0 * crosses[at].1 as f64;
            crosses[at].1 += 1;
            let (data, name) = (data(&s.name, &d.x.to_string(), d), escape(&s.name));
            let _ = write!(
                out,
                "<path class=\"cross s{c}\" {data} d=\"{}\"><title>{name}: failed</title></path>",
                cross((x, y))
            );
        }
    }
}

fn curve(out: &mut String, s: &Series, c: usize, area: &Area, places: &Scale, scale: &Scale) {
    let sound: Vec<&Dot> = s.dots.iter().filter(|d| !d.failed).collect();
    let at = |d: &Dot| (area.x(places, d.x), area.y(scale, d.y));
    let path: Vec<String> =
        sound.iter().map(|d| at(d)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let name = escape(&s.name);
    let is_marked = s.dots.len() <= MARKED;
    let data_of = if is_marked { String::new() } else { over_time(&s.name, &sound) };
    let _ = write!(out, "<polyline class=\"curve s{c}\"{data_of} points=\"{}\"/>", path.join(" "));
    for d in &sound {
        let (x, y) = at(d);
        error_bar(out, x, area.y(scale, d.range.0), area.y(scale, d.range.1));
        for &one in &d.each {
            let y = area.y(scale, one);
            let _ =
                write!(out, "<circle class=\"c{c} each\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
        if !is_marked {
            continue;
        }
        let (data, title) =
            (data(&s.name, &d.x.to_string(), d), format!("<title>{name}: {}</title>", value(d)));
        let _ = match d.at_least {
            true => {
                write!(out, "<path class=\"c{c}\" {data} d=\"{}\">{title}</path>", triangle((x, y)))
            }
            false => write!(
                out,
                "<circle class=\"c{c}\" {data} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">{title}</circle>"
            ),
        };
    }
}

/// Returns the data attributes (`data-…`) of the SVG element of a curve without marks. They contain the values of all
/// points of the curve.
pub(super) fn over_time(name: &str, dots: &[&Dot]) -> String {
    let list = |get: fn(&Dot) -> f64| {
        dots.iter().map(|d| get(d).to_string()).collect::<Vec<_>>().join(" ")
    };
    let [at, y, low, high] =
        [list(|d| d.x), list(|d| d.y), list(|d| d.range.0), list(|d| d.range.1)];
    format!(
        " data-of=\"{}\" data-at=\"{at}\" data-y=\"{y}\" data-low=\"{low}\" data-high=\"{high}\"",
        escape(name)
    )
}
