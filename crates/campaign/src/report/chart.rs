//! Figures as SVG: lines with error bars, bars with error bars, heat maps. No script, no font file, colours by class, so that a page
//! can give them others in the dark.

use std::fmt::Write;

/// A point with the range of its repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// Horizontal.
    pub x: f64,
    /// Vertical: the median.
    pub y: f64,
    /// Smallest and largest.
    pub range: (f64, f64),
    /// Whether it may be more: marked with ≥.
    pub at_least: bool,
}

/// A curve, or the bars of one colour.
#[derive(Clone, Debug)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Its points.
    pub dots: Vec<Dot>,
}

/// A row of a heat map: its name, and its values with whether each may be more.
pub type Row = (String, Vec<Option<(f64, bool)>>);

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Curves over numbers.
    Lines(Vec<Series>),
    /// Bars beside each other; `x` of a dot is the number of its group.
    Bars {
        /// Names of the groups.
        groups: Vec<String>,
        /// Bars by colour.
        series: Vec<Series>,
    },
    /// Cells by value.
    Heat {
        /// Column names.
        columns: Vec<String>,
        /// Rows.
        rows: Vec<Row>,
    },
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name without extension.
    pub file: String,
    /// Heading.
    pub title: String,
    /// Horizontal axis, with its unit.
    pub x_label: String,
    /// Vertical axis, with its unit.
    pub y_label: String,
    /// What is drawn.
    pub shape: Shape,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 92.0;

/// Colours that colour-blind people can tell apart (Okabe and Ito), and what else a figure needs on its own.
pub const STYLE: &str = "\
.fig{font:13px system-ui,sans-serif}.fig text{fill:var(--ink,#222)}.fig .axis{stroke:var(--ink,#222)}\
.fig .grid{stroke:var(--line,#ddd)}.fig .err{stroke:var(--ink,#222);stroke-width:1.2}.fig .curve{fill:none;stroke-width:2}\
.fig .c0{fill:#0072b2}.fig .c1{fill:#e69f00}.fig .c2{fill:#009e73}.fig .c3{fill:#cc79a7}.fig .c4{fill:#56b4e9}.fig .c5{fill:#d55e00}\
.fig .s0{stroke:#0072b2}.fig .s1{stroke:#e69f00;stroke-dasharray:8 3}.fig .s2{stroke:#009e73;stroke-dasharray:2 3}\
.fig .s3{stroke:#cc79a7;stroke-dasharray:8 3 2 3}.fig .s4{stroke:#56b4e9;stroke-dasharray:12 4}.fig .s5{stroke:#d55e00;stroke-dasharray:4 2}\
.fig .cell{fill:#0072b2}.fig text.on{fill:#fff}";
const COLOURS: usize = 6;
/// Marks what may be more than it says.
pub const AT_LEAST: &str = "≥ ";

impl Figure {
    /// The figure as an SVG element; `alone` gives it its style, for a file of its own.
    pub fn svg(&self, alone: bool) -> String {
        let mut out = String::new();
        let style = if alone { format!("<style>{STYLE}</style>") } else { String::new() };
        let title = escape(&self.title);
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{title}\"><title>{title}</title>{style}"
        );
        if alone {
            let _ = write!(out, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>");
        }
        match &self.shape {
            Shape::Lines(series) => self.lines(&mut out, series),
            Shape::Bars { groups, series } => self.bars(&mut out, groups, series),
            Shape::Heat { columns, rows } => self.heat(&mut out, columns, rows),
        }
        out.push_str("</svg>");
        out
    }

    fn lines(&self, out: &mut String, series: &[Series]) {
        let dots = || series.iter().flat_map(|s| &s.dots);
        let (low, high) = dots().fold((f64::MAX, f64::MIN), |(low, high), d| (low.min(d.x), high.max(d.x)));
        let (low, high) = if low < high { (low, high) } else { (low - 1.0, low + 1.0) };
        let y = self.frame(out, dots().map(|d| d.range.1).fold(0.0, f64::max));
        let x = |value: f64| LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT);
        let mut marks: Vec<f64> = dots().map(|d| d.x).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        if marks.len() > 12 {
            let step = ticks(high - low);
            marks = (0..=((high - low) / step) as usize).map(|i| low + i as f64 * step).collect();
        }
        for mark in marks {
            label_below(out, x(mark), &number(mark));
        }
        for (i, s) in series.iter().enumerate() {
            let c = i % COLOURS;
            let path: Vec<String> = s.dots.iter().map(|d| format!("{:.1},{:.1}", x(d.x), y(d.y))).collect();
            let _ = write!(out, "<polyline class=\"curve s{c}\" points=\"{}\"/>", path.join(" "));
            for d in &s.dots {
                error_bar(out, x(d.x), y(d.range.0), y(d.range.1));
                at_least(out, d, x(d.x), y(d.range.1));
                if s.dots.len() <= 40 {
                    let _ = write!(out, "<circle class=\"c{c}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\">", x(d.x), y(d.y));
                    let _ = write!(out, "<title>{}: {}</title></circle>", escape(&s.name), number(d.y));
                }
            }
        }
        legend(out, series.iter().map(|s| s.name.as_str()));
    }

    fn bars(&self, out: &mut String, groups: &[String], series: &[Series]) {
        let highest = series.iter().flat_map(|s| &s.dots).map(|d| d.range.1).fold(0.0, f64::max);
        let y = self.frame(out, highest);
        let room = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
        let width = (room * 0.8 / series.len().max(1) as f64).min(60.0);
        for (n, group) in groups.iter().enumerate() {
            label_below(out, LEFT + room * (n as f64 + 0.5), group);
        }
        for (i, s) in series.iter().enumerate() {
            for d in &s.dots {
                let middle = LEFT + room * (d.x + 0.5) + width * (i as f64 - (series.len() as f64 - 1.0) / 2.0);
                let (top, floor) = (y(d.y), y(0.0));
                let _ = write!(
                    out,
                    "<rect class=\"c{}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}: {}</title></rect>",
                    i % COLOURS,
                    middle - width * 0.45,
                    width * 0.9,
                    (floor - top).max(0.0),
                    escape(&s.name),
                    number(d.y)
                );
                error_bar(out, middle, y(d.range.0), y(d.range.1));
                at_least(out, d, middle, y(d.range.1));
            }
        }
        if series.len() > 1 {
            legend(out, series.iter().map(|s| s.name.as_str()));
        }
    }

    fn heat(&self, out: &mut String, columns: &[String], rows: &[Row]) {
        let highest = rows.iter().flat_map(|(_, values)| values).flatten().map(|v| v.0).fold(0.0, f64::max).max(1e-9);
        let width = (WIDTH - LEFT - RIGHT) / columns.len().max(1) as f64;
        let height = (HEIGHT - TOP - BOTTOM) / rows.len().max(1) as f64;
        for (n, column) in columns.iter().enumerate() {
            label_below(out, LEFT + width * (n as f64 + 0.5), column);
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
                let share = 0.06 + 0.9 * value / highest;
                let on = if share > 0.5 { " class=\"on\"" } else { "" };
                let _ = write!(
                    out,
                    "<rect class=\"cell\" opacity=\"{share:.2}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
                     <text{on} x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"middle\">{mark}{}</text>",
                    width - 2.0,
                    height - 2.0,
                    left + width / 2.0,
                    number(*value)
                );
            }
        }
        self.axis_labels(out);
    }

    /// Axes, grid and their labels up to `highest`; returns where a value lies.
    fn frame(&self, out: &mut String, highest: f64) -> impl Fn(f64) -> f64 + use<> {
        let step = ticks(highest.max(1e-9));
        let top = (highest.max(1e-9) / step).ceil() * step;
        let floor = HEIGHT - BOTTOM;
        let y = move |value: f64| floor - value.max(0.0) / top * (floor - TOP);
        for i in 0..=(top / step).round() as usize {
            let value = i as f64 * step;
            let at = y(value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                number(value)
            );
        }
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{floor}\" y2=\"{floor}\"/>\
             <line class=\"axis\" x1=\"{LEFT}\" x2=\"{LEFT}\" y1=\"{TOP}\" y2=\"{floor}\"/>",
            WIDTH - RIGHT
        );
        self.axis_labels(out);
        y
    }

    fn axis_labels(&self, out: &mut String) {
        let (middle, height) = ((LEFT + WIDTH - RIGHT) / 2.0, (TOP + HEIGHT - BOTTOM) / 2.0);
        let _ = write!(
            out,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(16 {height}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BOTTOM + 42.0,
            escape(&self.x_label),
            escape(&self.y_label)
        );
    }
}

fn label_below(out: &mut String, x: f64, text: &str) {
    let y = HEIGHT - BOTTOM + 20.0;
    let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", escape(text));
}

fn error_bar(out: &mut String, x: f64, low: f64, high: f64) {
    if (low - high).abs() >= 0.5 {
        let _ = write!(
            out,
            "<path class=\"err\" d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}H{:.1}M{:.1} {high:.1}H{:.1}\"/>",
            x - 4.0,
            x + 4.0,
            x - 4.0,
            x + 4.0
        );
    }
}

/// Marks a point that may be higher.
fn at_least(out: &mut String, dot: &Dot, x: f64, y: f64) {
    if dot.at_least {
        let _ = write!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">≥</text>", y - 7.0);
    }
}

fn legend<'a>(out: &mut String, names: impl Iterator<Item = &'a str>) {
    let mut x = LEFT;
    let mut y = HEIGHT - 24.0;
    for (i, name) in names.enumerate() {
        // Letters are about 8 wide, in wide fonts 9.
        let width = 44.0 + name.chars().count() as f64 * 8.5;
        if x + width > WIDTH - RIGHT && x > LEFT {
            (x, y) = (LEFT, y + 18.0);
        }
        let c = i % COLOURS;
        let _ = write!(
            out,
            "<line class=\"curve s{c}\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/><rect class=\"c{c}\" x=\"{:.1}\" \
             y=\"{:.1}\" width=\"8\" height=\"8\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            x + 22.0,
            y - 4.0,
            y - 4.0,
            x + 7.0,
            y - 8.0,
            x + 28.0,
            escape(name)
        );
        x += width;
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides `range` into three to eight.
fn ticks(range: f64) -> f64 {
    let rough = range / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough).unwrap_or(power * 10.0)
}

/// A number as people write it: thousands apart, no more digits than it has meaning.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v.fract() == 0.0 => 0,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) && whole.as_bytes()[i - 1] != b'-' {
            grouped.push('\u{202f}');
        }
        grouped.push(c);
    }
    let rest = rest.trim_end_matches('0');
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

/// Text for HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        for (value, text) in [
            (0.0, "0"),
            (1234567.0, "1\u{202f}234\u{202f}567"),
            (-1234.0, "-1\u{202f}234"),
            (2.5, "2.5"),
            (0.1234, "0.123"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn axes_have_a_handful_of_round_marks() {
        for range in [0.7, 3.0, 17.0, 99.0, 131_072.0, 1e-3] {
            let step = ticks(range);
            assert!((3.0..=10.0).contains(&(range / step)), "{range} by {step}");
        }
    }

    #[test]
    fn figures_are_well_formed_whatever_they_are_called() {
        let dots = vec![
            Dot { x: 1.0, y: 10.0, range: (8.0, 12.0), at_least: true },
            Dot { x: 2.0, y: 20.0, range: (20.0, 20.0), at_least: false },
        ];
        let series = vec![Series { name: "<&\"a".into(), dots }];
        let shapes = [
            Shape::Lines(series.clone()),
            Shape::Bars { groups: vec!["a".into(), "b".into(), "c".into()], series },
            Shape::Heat {
                columns: vec!["0 %".into()],
                rows: vec![("0 %".into(), vec![Some((5.0, true))]), ("1".into(), vec![None])],
            },
            Shape::Lines(vec![]),
        ];
        for shape in shapes {
            let text = |s: &str| s.to_owned();
            let figure =
                Figure { file: text("f"), title: text("a < b"), x_label: text("x"), y_label: text("y"), shape };
            let svg = figure.svg(true);
            assert_eq!(svg.matches('<').count(), svg.matches('>').count(), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<&"), "{svg}");
        }
    }
}
