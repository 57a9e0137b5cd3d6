//! Figures as SVG: lines with error bars, bars with error bars, heat maps, panels over time. No script, no font file, colours by
//! class, so that a page can give them others in the dark.
//!
//! A figure whose values differ by more than a factor of [`UNEQUAL`] gets a logarithmic axis, so that small ones can be read.

mod bars;
mod heat;
mod lines;
mod panels;
mod scale;

use std::fmt::Write;

use scale::Scale;

/// A point with the range of its repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dot {
    /// Horizontal.
    pub x: f64,
    /// Vertical: the median.
    pub y: f64,
    /// Smallest and largest.
    pub range: (f64, f64),
    /// Whether it may be more: marked with ≥.
    pub at_least: bool,
    /// Whether it is of trials that failed: a bar is hollow, in a curve a cross at its foot takes the place of the value.
    pub failed: bool,
}

impl Dot {
    /// One value without repetitions.
    pub fn at(x: f64, y: f64) -> Dot {
        Dot { x, y, range: (y, y), ..Dot::default() }
    }
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

/// A diagram of its own above others with the same horizontal axis.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What is in it, with what it is held against.
    pub series: Series,
    /// The value that it should have everywhere, drawn as a line.
    pub wanted: f64,
}

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
        /// The value of the darkest cell, the same in all heat maps that are to be compared.
        highest: f64,
    },
    /// Panels below each other, one for each series: the ranges of its dots as a band, their values as a curve.
    Panels {
        /// From the top.
        panels: Vec<Panel>,
        /// Whether all have one vertical scale; otherwise each has its own, which need not begin at 0.
        shared: bool,
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

/// Values that differ by more than this factor get a logarithmic axis.
pub const UNEQUAL: f64 = 20.0;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 92.0;

/// Colours that colour-blind people can tell apart (M. Okabe and K. Ito, "Color Universal Design", 2008), and what else a figure
/// needs on its own.
pub const STYLE: &str = "\
.fig{font:13px system-ui,sans-serif}.fig text{fill:var(--ink,#222)}.fig .axis{stroke:var(--ink,#222)}\
.fig .grid{stroke:var(--line,#ddd)}.fig .err{stroke:var(--ink,#222);stroke-width:1.2}.fig .curve{fill:none;stroke-width:2}\
.fig .cross{font-size:17px;font-weight:700}.fig .wanted{stroke:var(--ink,#222);stroke-dasharray:3 3}.fig .small{font-size:11px}\
.fig .c0{fill:#0072b2}.fig .c1{fill:#e69f00}.fig .c2{fill:#009e73}.fig .c3{fill:#cc79a7}.fig .c4{fill:#56b4e9}.fig .c5{fill:#d55e00}\
.fig .s0{stroke:#0072b2}.fig .s1{stroke:#e69f00;stroke-dasharray:8 3}.fig .s2{stroke:#009e73;stroke-dasharray:2 3}\
.fig .s3{stroke:#cc79a7;stroke-dasharray:8 3 2 3}.fig .s4{stroke:#56b4e9;stroke-dasharray:12 4}.fig .s5{stroke:#d55e00;stroke-dasharray:4 2}\
.fig .thin{stroke-width:1;stroke-dasharray:none}\
.fig .failed{fill-opacity:.2;stroke:var(--ink,#222);stroke-dasharray:3 2}.fig .band{fill-opacity:.35;stroke:none}\
.fig .cell{fill:#0072b2}.fig text.on{fill:#fff}";
const COLOURS: usize = 6;
/// Marks what may be more than it says.
pub const AT_LEAST: &str = "≥ ";
/// Marks what is of trials that failed.
const FAILED: &str = "✕";

impl Figure {
    /// The figure as an SVG element; `alone` gives it its style, for a file of its own.
    pub fn svg(&self, alone: bool) -> String {
        let mut out = String::new();
        let style = if alone { format!("<style>{STYLE}</style>") } else { String::new() };
        let title = escape(&self.title);
        let height = self.height();
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"{title}\"><title>{title}</title>{style}"
        );
        if alone {
            let _ = write!(out, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>");
        }
        match &self.shape {
            Shape::Lines(series) => self.lines(&mut out, series),
            Shape::Bars { groups, series } => self.bars(&mut out, groups, series),
            Shape::Heat { columns, rows, highest } => self.heat(&mut out, columns, rows, *highest),
            Shape::Panels { panels, shared } => self.panels(&mut out, panels, *shared),
        }
        out.push_str("</svg>");
        out
    }

    fn height(&self) -> f64 {
        match &self.shape {
            Shape::Panels { panels, .. } => panels::height(panels.len()),
            _ => HEIGHT,
        }
    }

    /// Axes, grid and their labels of a scale.
    fn frame(&self, out: &mut String, scale: &Scale) {
        let floor = HEIGHT - BOTTOM;
        for value in scale.marks() {
            let at = scale.y(value);
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
        self.axis_labels(out, scale.is_logarithmic(), HEIGHT);
    }

    fn axis_labels(&self, out: &mut String, is_logarithmic: bool, height: f64) {
        let (middle, center) = ((LEFT + WIDTH - RIGHT) / 2.0, (TOP + height - BOTTOM) / 2.0);
        let _ = write!(
            out,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(16 {center}) rotate(-90)\" text-anchor=\"middle\">{}{}</text>",
            height - BOTTOM + 42.0,
            escape(&self.x_label),
            escape(&self.y_label),
            if is_logarithmic { " (logarithmic axis)" } else { "" }
        );
    }
}

fn label_below(out: &mut String, x: f64, height: f64, text: &str) {
    let y = height - BOTTOM + 20.0;
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

/// What a mark of the legend looks like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Curve,
    Bar,
}

fn legend<'a>(out: &mut String, key: Key, names: impl Iterator<Item = &'a str>) {
    let mut x = LEFT;
    let mut y = HEIGHT - 24.0;
    for (i, name) in names.enumerate() {
        let width = 44.0 + text_width(name);
        if x + width > WIDTH - RIGHT && x > LEFT {
            (x, y) = (LEFT, y + 18.0);
        }
        let c = i % COLOURS;
        if key == Key::Curve {
            let (end, at) = (x + 22.0, y - 4.0);
            let _ =
                write!(out, "<line class=\"curve s{c}\" x1=\"{x:.1}\" x2=\"{end:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        }
        let _ = write!(
            out,
            "<rect class=\"c{c}\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            x + 7.0,
            y - 8.0,
            x + 28.0,
            escape(name)
        );
        x += width;
    }
}

/// About how wide a text is: letters are about 8 wide, in wide fonts 9.
fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 8.5
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
    use crate::golden;

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
            let step = scale::ticks(range);
            assert!((3.0..=10.0).contains(&(range / step)), "{range} by {step}");
        }
    }

    #[test]
    fn figures_are_well_formed_whatever_they_are_called() {
        let dots = vec![
            Dot { range: (8.0, 12.0), at_least: true, ..Dot::at(1.0, 10.0) },
            Dot { failed: true, ..Dot::at(2.0, 20.0) },
        ];
        let series = vec![Series { name: "<&\"a".into(), dots }];
        let shapes = [
            Shape::Lines(series.clone()),
            Shape::Bars { groups: vec!["a".into(), "b".into(), "c".into()], series },
            Shape::Bars { groups: vec![], series: vec![] },
            Shape::Heat {
                columns: vec!["0 %".into()],
                rows: vec![("0 %".into(), vec![Some((5.0, true))]), ("1".into(), vec![None])],
                highest: 0.0,
            },
            Shape::Lines(vec![]),
            Shape::Panels { panels: vec![], shared: true },
            Shape::Panels {
                panels: vec![Panel { series: Series { name: "<".into(), dots: vec![] }, wanted: 0.0 }],
                shared: false,
            },
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

    fn figure(file: &str, shape: Shape) -> String {
        let text = |s: &str| s.to_owned();
        Figure { file: text(file), title: text("Title"), x_label: text("load"), y_label: text("queries/s"), shape }
            .svg(true)
    }

    fn series(name: &str, dots: &[Dot]) -> Series {
        Series { name: name.into(), dots: dots.to_vec() }
    }

    #[test]
    fn bars_carry_their_values_and_failed_ones_are_hollow() {
        let sound = Dot { range: (40_000.0, 43_000.0), at_least: true, ..Dot::at(0.0, 41_000.0) };
        let failed = Dot { failed: true, ..Dot::at(1.0, 17_627.0) };
        let groups = vec!["75 %".into(), "100 %".into()];
        let svg = figure("bars", Shape::Bars { groups, series: vec![series("dns64d", &[sound, failed])] });
        assert!(svg.contains(">≥ 41\u{202f}000<") && svg.contains(">17\u{202f}627<"), "{svg}");
        assert_eq!((svg.matches("class=\"c0 failed\"").count(), svg.matches(">failed<").count()), (1, 1), "{svg}");
        golden::check("chart-bars.svg", &svg);
    }

    #[test]
    fn unequal_servers_get_a_logarithmic_axis_on_which_the_least_can_be_seen() {
        let of = |least: f64| {
            let servers = [("dns64d", 66_000.0), ("Unbound", 41_000.0), ("BIND", least)];
            let groups = servers.map(|(name, _)| name.to_owned()).to_vec();
            let dots: Vec<Dot> = servers.iter().enumerate().map(|(i, (_, y))| Dot::at(i as f64, *y)).collect();
            figure("unequal", Shape::Bars { groups, series: vec![series("rate", &dots)] })
        };
        let (unequal, equal) = (of(1_000.0), of(4_000.0));
        assert!(unequal.contains("(logarithmic axis)") && !equal.contains("(logarithmic axis)"));
        let heights: Vec<f64> = unequal
            .split("<rect class=\"c0\"")
            .skip(1)
            .map(|rect| {
                let (_, rest) = rect.split_once(" height=\"").unwrap();
                rest.split_once('"').unwrap().0.parse().unwrap()
            })
            .collect();
        assert!(heights.len() == 3 && heights.iter().all(|height| *height > 20.0), "{heights:?}");
        assert!(heights[0] > heights[1] && heights[1] > heights[2], "{heights:?}");
        golden::check("chart-unequal.svg", &unequal);
    }

    #[test]
    fn a_failed_load_is_a_cross_and_no_part_of_the_curve() {
        let dots = [Dot::at(25.0, 1.0), Dot::at(50.0, 2.0), Dot { failed: true, ..Dot::at(100.0, 130.0) }];
        let svg = figure("lines", Shape::Lines(vec![series("dns64d", &dots)]));
        assert!(svg.contains("✕") && !svg.contains("dns64d: 130"), "{svg}");
        let points = svg.split_once("points=\"").unwrap().1.split_once('"').unwrap().0;
        assert_eq!(points.split(' ').count(), 2, "{points}");
        golden::check("chart-lines.svg", &svg);
    }

    #[test]
    fn heat_maps_of_one_report_share_their_scale() {
        let of = |value: f64| {
            let rows = vec![("0 %".to_owned(), vec![Some((value, false)), None])];
            figure("heat", Shape::Heat { columns: vec!["0 %".into(), "50 %".into()], rows, highest: 66_000.0 })
        };
        let opacity = |svg: &str| -> f64 {
            let cell = svg.split_once("class=\"cell\" opacity=\"").unwrap().1;
            cell.split_once('"').unwrap().0.parse().unwrap()
        };
        assert!(opacity(&of(41_000.0)) < opacity(&of(66_000.0)));
        golden::check("chart-heat.svg", &of(41_000.0));
    }

    #[test]
    fn panels_show_bands_around_what_was_wanted() {
        let stall = Dot { range: (-50.0, 48.0), ..Dot::at(0.2, 0.0) };
        let dots = [Dot::at(0.1, 0.0), stall, Dot::at(0.3, 0.0)];
        let panels = vec![
            Panel { series: series("Unbound at 41 000", &dots), wanted: 0.0 },
            Panel { series: series("dns64d at 66 000", &dots[..1]), wanted: 0.0 },
        ];
        let svg = figure("panels", Shape::Panels { panels, shared: true });
        assert_eq!((svg.matches("class=\"wanted\"").count(), svg.matches(" band\"").count()), (2, 2), "{svg}");
        golden::check("chart-panels.svg", &svg);
    }
}
