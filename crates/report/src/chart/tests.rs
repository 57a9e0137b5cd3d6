//! Tests that figures are well-formed and legible, and show their data.

use crate::chart::curves::{Curve, along, curves};
use crate::chart::figure::{Dot, HeatMap, HeatRow, Multiple, Panel, Series};
use crate::chart::files;
use crate::chart::read::{elements, marks, texts, value_at};
use crate::format::number;
use testbed::golden;

use super::*;

#[test]
fn numbers_are_readable() {
    for (value, text) in [
        (0.0, "0"),
        (1234567.0, "1\u{202f}234\u{202f}567"),
        (-1234.0, "-1\u{202f}234"),
        (2.5, "2.5"),
        (0.1234, "0.123"),
        (0.000_51, "0.00051"),
    ] {
        assert_eq!(number(value), text);
    }
}

fn series(name: &str, dots: &[Dot]) -> Series {
    Series { name: name.into(), dots: dots.to_vec() }
}

fn map(name: &str, rows: Vec<HeatRow>) -> HeatMap {
    HeatMap { name: name.into(), columns: vec!["0 %".into(), "50 %".into()], rows }
}

fn figure(file: &str, shape: Shape) -> Figure {
    let text = |s: &str| s.to_owned();
    Figure {
        file: text(file),
        title: text("Title"),
        x_label: text("load"),
        y_label: text("queries/s"),
        shape,
    }
}

#[test]
fn figures_are_well_formed_whatever_they_are_called() {
    let dots = vec![
        Dot { range: (8.0, 12.0), at_least: true, ..Dot::at(1.0, 10.0) },
        Dot { failed: true, each: vec![0.0, 30.0], ..Dot::at(2.0, 20.0) },
    ];
    let all = vec![series("<&\"a", &dots)];
    let multiple = |series| Multiple { name: "a & b".into(), series, mark: Some(1.5) };
    let shapes = [
        Shape::Lines(all.clone()),
        Shape::Shares(all.clone()),
        Shape::Shares(vec![]),
        Shape::Bars { groups: vec!["a".into(), "b".into(), "c".into()], series: all.clone() },
        Shape::Bars { groups: vec![], series: vec![] },
        Shape::Heat {
            maps: vec![map(
                "<",
                vec![("0 %".into(), vec![Some((5.0, true))]), ("1".into(), vec![None])],
            )],
            highest: 0.0,
        },
        Shape::Heat { maps: vec![], highest: 1.0 },
        Shape::Lines(vec![]),
        Shape::Panels { panels: vec![], shared: true },
        Shape::Panels {
            panels: vec![Panel { series: series("<", &[]), wanted: 0.0 }],
            shared: false,
        },
        Shape::Grid { panels: vec![], shared: true },
        Shape::Grid { panels: vec![multiple(all), multiple(vec![])], shared: false },
    ];
    for shape in shapes {
        let figure = Figure { title: "a < b".into(), ..figure("f", shape) };
        let svg = figure.svg(true);
        assert_eq!(svg.matches('<').count(), svg.matches('>').count(), "{svg}");
        assert!(
            !svg.contains("NaN")
                && !svg.contains("inf")
                && !svg.contains("<&")
                && !svg.contains("var("),
            "{svg}"
        );
        assert!(raster::png(&svg, files::SCALE).unwrap().starts_with(b"\x89PNG\r\n"));
        assert!(raster::pdf(&svg).unwrap().starts_with(b"%PDF-"));
    }
}

#[test]
fn bars_carry_their_values_and_failed_ones_are_hollow() {
    let range = (40_000.0, 43_000.0);
    let sound = Dot { range, at_least: true, ..Dot::at(0.0, 41_000.0) };
    let failed = Dot { failed: true, ..Dot::at(1.0, 17_627.0) };
    let groups = vec!["75 %".into(), "100 %".into()];
    let svg =
        figure("bars", Shape::Bars { groups, series: vec![series("dns64d", &[sound, failed])] })
            .svg(true);
    assert!(svg.contains(">≥ 41\u{202f}000<") && svg.contains(">17\u{202f}627, failed<"), "{svg}");
    assert_eq!(svg.matches("class=\"c0 failed\"").count(), 1, "{svg}");
    golden::check(env!("CARGO_MANIFEST_DIR"), "chart-bars.svg", &svg);
}

#[test]
fn unequal_servers_get_a_logarithmic_axis() {
    let of = |least: f64| {
        let servers = [("dns64d", 66_000.0), ("Unbound", 41_000.0), ("BIND", least)];
        let groups = servers.map(|(name, _)| name.to_owned()).to_vec();
        let dots: Vec<Dot> =
            servers.iter().enumerate().map(|(i, (_, y))| Dot::at(i as f64, *y)).collect();
        figure("unequal", Shape::Bars { groups, series: vec![series("rate", &dots)] }).svg(true)
    };
    let (unequal, equal) = (of(1_000.0), of(4_000.0));
    assert!(unequal.contains("(logarithmic axis)") && !equal.contains("(logarithmic axis)"));
    let all = elements(&unequal);
    let marks: Vec<f64> =
        all.iter().filter(|e| e.is("c0") && e.name == "circle").map(|e| e.number("cx")).collect();
    assert!(marks.len() == 3 && marks[0] > marks[1] && marks[1] > marks[2], "{marks:?}");
    let is_bar = |svg: &str| elements(svg).iter().any(|e| e.name == "rect" && e.is("c0"));
    assert!(!is_bar(&unequal) && is_bar(&equal), "a length on a logarithmic axis has no meaning");
    golden::check(env!("CARGO_MANIFEST_DIR"), "chart-unequal.svg", &unequal);
}

#[test]
fn a_failed_load_is_a_cross_and_no_part_of_the_curve() {
    let failed = Dot { failed: true, ..Dot::at(100.0, 130.0) };
    let more = Dot { at_least: true, ..Dot::at(75.0, 2.5) };
    let all = [
        series("dns64d", &[Dot::at(25.0, 1.0), Dot::at(50.0, 2.0), more, failed.clone()]),
        series("BIND", &[failed]),
    ];
    let svg = figure("lines", Shape::Lines(all.to_vec())).svg(true);
    assert!(!svg.contains("dns64d: 130"), "{svg}");
    let points = svg.split_once("points=\"").unwrap().1.split_once('"').unwrap().0;
    assert_eq!(points.split(' ').count(), 3, "{points}");
    let crosses: Vec<String> = elements(&svg)
        .iter()
        .filter(|e| e.is("cross") && e.get("data-of").is_some())
        .filter_map(|e| e.get("d"))
        .collect();
    assert!(crosses.len() == 2 && crosses[0] != crosses[1], "none hides the other: {crosses:?}");
    golden::check(env!("CARGO_MANIFEST_DIR"), "chart-lines.svg", &svg);
}

#[test]
fn heat_maps_of_one_report_share_their_scale() {
    let of = |name: &str, value: f64| {
        map(name, vec![("0 %".to_owned(), vec![Some((value, false)), None])])
    };
    let maps = vec![of("dns64d", 66_000.0), of("Unbound", 41_000.0)];
    let svg = figure("heat", Shape::Heat { maps, highest: 66_000.0 }).svg(true);
    let shades: Vec<f64> = elements(&svg)
        .iter()
        .filter(|e| e.get("data-y").is_some())
        .map(|e| e.number("opacity"))
        .collect();
    assert!(shades.len() == 2 && shades[0] > shades[1], "{shades:?}");
    golden::check(env!("CARGO_MANIFEST_DIR"), "chart-heat.svg", &svg);
}

#[test]
fn panels_show_bands_around_the_requested_value() {
    let stall = Dot { range: (-50.0, 48.0), ..Dot::at(0.2, 0.0) };
    let dots = [Dot::at(0.1, 0.0), stall, Dot::at(0.3, 0.0)];
    let panels = vec![
        Panel { series: series("Unbound at 41 000", &dots), wanted: 0.0 },
        Panel { series: series("dns64d at 66 000", &dots[..1]), wanted: 0.0 },
    ];
    let svg = figure("panels", Shape::Panels { panels, shared: true }).svg(true);
    assert_eq!(
        (svg.matches("class=\"wanted\"").count(), svg.matches(" band\"").count()),
        (2, 2),
        "{svg}"
    );
    golden::check(env!("CARGO_MANIFEST_DIR"), "chart-panels.svg", &svg);
}

#[test]
fn small_diagrams_stand_side_by_side() {
    let curve = |top: f64| -> Vec<Dot> {
        (1..=60).map(|s| Dot::at(f64::from(s), top / f64::from(s))).collect()
    };
    let panel = |name: &str, top: f64| Multiple {
        name: name.into(),
        series: vec![series("", &curve(top))],
        mark: Some(20.0),
    };
    let panels: Vec<Multiple> =
        ["dns64d, 1 core", "BIND, 1 core", "Unbound, 1 core", "Unbound, 2 cores"]
            .map(|name| panel(name, 2.0))
            .into();
    let svg = figure("grid", Shape::Grid { panels, shared: false }).svg(true);
    let found = marks(&svg);
    assert_eq!(found.len(), 4);
    assert!(
        found.iter().all(|mark| mark.y.len() == 60) && found[3].panel == "Unbound, 2 cores",
        "{found:?}"
    );
    golden::check(env!("CARGO_MANIFEST_DIR"), "chart-grid.svg", &svg);
}

#[test]
fn every_search_is_a_dot() {
    let dot = Dot {
        range: (0.0, 4_000.0),
        each: vec![0.0, 0.0, 3_050.0, 4_000.0],
        ..Dot::at(0.0, 1_525.0)
    };
    let all = vec![series("CoreDNS", &[dot])];
    let bars = Shape::Bars { groups: vec!["CoreDNS".into()], series: all.clone() };
    for (shape, place) in [(bars, "cx"), (Shape::Lines(all), "cy")] {
        let svg = figure("searches", shape).svg(true);
        let small: Vec<f64> =
            elements(&svg).iter().filter(|e| e.is("each")).map(|e| e.number(place)).collect();
        assert_eq!(small.len(), 4, "{svg}");
        assert!(small[0] == small[1] && small[1] != small[2] && small[2] != small[3], "{small:?}");
    }
}

#[test]
fn valid_shares_run_from_0_to_100_percent() {
    let dots = |top: f64| -> Vec<Dot> {
        let at = |rate: f64| Dot::at(rate, (100.0 * top / rate).min(100.0));
        [500.0, 1_000.0, 2_000.0, 4_000.0, 40_000.0].map(at).into()
    };
    let all = vec![series("dns64d", &dots(3_000.0)), series("BIND", &dots(900.0))];
    let svg = figure("shares", Shape::Shares(all)).svg(true);
    for what in [">100<", ">0<", ">dns64d<", ">BIND<", "(logarithmic axis)", "data-y=\"45\""] {
        assert!(svg.contains(what), "{what} is not in {svg}");
    }
    golden::check(env!("CARGO_MANIFEST_DIR"), "chart-valid-shares.svg", &svg);
}

/// Names of groups stay left of the axis, and the name of a single series is in the figure.
#[test]
fn names_stay_left_of_the_axis() {
    let long = "a group with a long name, longer than the bars' names";
    let groups = vec!["50 %".to_owned(), long.into()];
    let dots = [Dot::at(0.0, 3.0), Dot::at(1.0, 4.0)];
    for (names, label) in [(&["dns64d", "BIND"][..], "load"), (&["dns64d"], "dns64d; load")] {
        let all: Vec<Series> = names.iter().map(|name| series(name, &dots)).collect();
        let bars = Shape::Bars { groups: groups.clone(), series: all };
        let svg = figure("bars", bars).svg(true);
        let found = elements(&svg);
        let ends = |place: &str| -> Vec<f64> {
            found.iter().filter(|e| e.is("axis")).map(|e| e.number(place)).collect()
        };
        // The horizontal axis comes first.
        let (left, top, floor) = (ends("x1")[1], ends("y1")[1], ends("y2")[1]);
        for (words, extent) in texts(&svg) {
            let is_beside = extent.1 > top && extent.3 < floor && extent.0 < left;
            assert!(!is_beside || extent.2 <= left + 1.0, "{words} crosses the axis: {extent:?}");
        }
        assert!(texts(&svg).iter().any(|(words, _)| words == label), "{label} is not in {svg}");
    }
}

/// Values read from the axes equal the data of the marks.
#[test]
fn marks_lie_at_their_values_on_the_axes() {
    for top in [9.0, 900.0] {
        let dots: Vec<Dot> = [1.0, 2.0, 4.0, 8.0]
            .into_iter()
            .map(|x| Dot::at(x, 1.0 + top * (x / 8.0).powi(3)))
            .collect();
        let svg = figure("lines", Shape::Lines(vec![series("a", &dots)])).svg(true);
        let is_logarithmic = svg.contains("queries/s (logarithmic axis)");
        assert_eq!(is_logarithmic, top > 100.0);
        let all = elements(&svg);
        let axis = |class: &str, place: &str| -> Vec<(f64, f64)> {
            let value = |words: &str| words.replace('\u{202f}', "").parse::<f64>().unwrap();
            all.iter().filter(|e| e.is(class)).map(|e| (e.number(place), value(&e.words))).collect()
        };
        // The number of a mark is four units below its line.
        let y: Vec<(f64, f64)> =
            axis("ytick", "y").into_iter().map(|(at, value)| (at - 4.0, value)).collect();
        let x = axis("xtick", "x");
        let circles: Vec<_> = all.iter().filter(|e| e.name == "circle").collect();
        assert_eq!(circles.len(), 4);
        for (circle, dot) in circles.iter().zip(&dots) {
            let read = (
                value_at(&x, circle.number("cx"), false),
                value_at(&y, circle.number("cy"), is_logarithmic),
            );
            assert!(
                (read.0 - dot.x).abs() < 0.02 && (read.1 / dot.y - 1.0).abs() < 0.02,
                "{read:?} is not {dot:?}"
            );
        }
    }
}

/// Any number of names and values fits, whatever their length.
#[test]
fn no_text_runs_into_another_or_out_of_the_figure() {
    let names: Vec<String> =
        (0..9).map(|i| format!("A DNS64 server with a long name, {i} cores (4+4)")).collect();
    let dots = |n: usize| -> Vec<Dot> {
        let dot = |i: usize| Dot {
            at_least: i == 1,
            failed: i == 2,
            ..Dot::at(i as f64, 10f64.powi(i as i32))
        };
        (0..n).map(dot).collect()
    };
    let all: Vec<Series> = names.iter().map(|name| series(name, &dots(7))).collect();
    let rows = || vec![("100 %".to_owned(), vec![Some((131_072.0, true)); 11])];
    let columns: Vec<String> = (0..11).map(|i| format!("{} %", i * 10)).collect();
    let maps = names
        .iter()
        .map(|name| HeatMap { name: name.clone(), columns: columns.clone(), rows: rows() })
        .collect();
    let shapes = [
        Shape::Bars { groups: names[..7].to_vec(), series: all[..2].to_vec() },
        Shape::Bars { groups: names[..7].to_vec(), series: all[..1].to_vec() },
        Shape::Lines(all[..6].to_vec()),
        Shape::Shares(all[..6].to_vec()),
        Shape::Heat { maps, highest: 131_072.0 },
        Shape::Grid {
            panels: names
                .iter()
                .map(|n| Multiple { name: n.clone(), series: all[..1].to_vec(), mark: None })
                .collect(),
            shared: true,
        },
        Shape::Panels {
            panels: all[..3].iter().map(|s| Panel { series: s.clone(), wanted: 0.0 }).collect(),
            shared: true,
        },
    ];
    for shape in shapes {
        let svg = figure("many", shape).svg(false);
        readable(&svg).unwrap_or_else(|why| panic!("{why}: {svg}"));
        assert!(!svg.contains('…'), "a name is cut off: {svg}");
    }
}

/// Checks that all texts are inside the figure, upright and without overlap.
pub(crate) fn readable(svg: &str) -> Result<(), String> {
    if svg.contains("rotate(") {
        return Err("a text is turned".into());
    }
    let view = elements(svg)[0].get("viewBox").ok_or("no size")?;
    let sizes: Vec<f64> = view.split(' ').skip(2).filter_map(|size| size.parse().ok()).collect();
    let [width, height] = sizes[..] else { return Err(format!("no size: {view}")) };
    let all = texts(svg);
    for (i, (words, a)) in all.iter().enumerate() {
        if a.0 < -2.0 || a.1 < 0.0 || a.2 > width + 2.0 || a.3 > height {
            return Err(format!("{words:?} at {a:?} lies outside of {width} × {height}"));
        }
        for (other, b) in &all[..i] {
            if a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3 {
                return Err(format!("{words:?} at {a:?} runs into {other:?} at {b:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn a_text_that_runs_into_another_is_found() {
    let svg = |second: f64| {
        format!(
            "<svg viewBox=\"0 0 720 100\"><text x=\"10\" y=\"50\">first</text><text x=\"{second}\" y=\"52\">second</text></svg>"
        )
    };
    assert!(
        readable(&svg(30.0)).is_err()
            && readable(&svg(90.0)).is_ok()
            && readable(&svg(715.0)).is_err()
    );
}

#[test]
fn few_points_make_bars_and_many_curves_a_grid() {
    let curve = |i: usize, n: usize| Curve {
        of: format!("server {}", i / 2),
        what: format!("{} cores", i % 2),
        dots: (1..=n).map(|x| Dot::at(x as f64, (i + x) as f64)).collect(),
    };
    let of = |n: usize, points: usize| curves((0..n).map(|i| curve(i, points)).collect(), " %");
    let Shape::Bars { groups, series } = of(8, 2) else { panic!("bars") };
    assert_eq!(
        (groups, series[3].name.as_str()),
        (vec!["1 %".to_owned(), "2 %".into()], "server 1, 1 cores")
    );
    assert_eq!(series[3].dots[1], Dot { x: 1.0, y: 5.0, range: (5.0, 5.0), ..Dot::default() });
    let lines = of(6, 5);
    assert!(matches!(&lines, Shape::Lines(all) if all.len() == 6));
    assert_eq!(
        (along(&lines, "load", " %"), along(&of(8, 2), "load", " %")),
        ("load, %".into(), "load".into())
    );
    let Shape::Grid { panels, shared: true } = of(8, 5) else {
        panic!("small diagrams on one scale")
    };
    assert_eq!((panels.len(), panels[3].series[1].name.as_str()), (4, "1 cores"));
}

#[test]
fn a_picture_is_1440_pixels_wide_and_has_its_text() {
    let picture = |name: &str| {
        let bars = Shape::Bars {
            groups: vec![name.into()],
            series: vec![series("s", &[Dot::at(0.0, 1.0)])],
        };
        raster::png(&figure("bars", bars).svg(true), files::SCALE).unwrap()
    };
    let (with_text, without) = (picture("Ωµ ≥ ü"), picture(" "));
    // The width is in the header of the file.
    assert_eq!(with_text[16..20], 1440_u32.to_be_bytes());
    assert_ne!(with_text, without);
}
