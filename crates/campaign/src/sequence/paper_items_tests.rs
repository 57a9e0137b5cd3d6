//! Tests of the function that lists, for a measurement point, the tables and figures of the papers to which the point
//! contributes.

use std::collections::BTreeSet;
use std::path::Path;

use crate::plan::Plan;
use crate::sequence::measure::Paper;

fn labels(plan: &Plan, text: &str) -> Vec<&'static str> {
    let points = plan.points();
    let point =
        points.iter().find(|p| p.to_string() == text).unwrap_or_else(|| panic!("no point {text}"));
    point.measure().paper_items(plan, point).iter().map(|filled| filled.what).collect()
}

#[test]
fn mtd64_ng_has_the_threads_of_the_paper() {
    let plan = Plan::load(Path::new("paper")).unwrap();
    assert_eq!(plan.dut("mtd64-ng").unwrap().threads, Some(30));
}

#[test]
fn points_name_the_tables_that_they_fill() {
    let plan = Plan::load(Path::new("paper")).unwrap();
    for (point, expected) in [
        ("self-test", &["Table I"][..]),
        ("self-test with YADIFA over IPv6", &["Table II"]),
        ("self-test with YADIFA", &["Table I"]),
        ("self-test with NSD", &["Table IV"]),
        ("mtd64-ng, 8 cores with YADIFA, AAAA 0, cached 0, accept 1", &["Table III"]),
        (
            "Unbound, 1 core, AAAA 0, cached 0, accept 1",
            &["Tables V-VII", "Tables XIII-XV", "Tables XVI-XVIII", "Tables XIX-XXI"],
        ),
        ("Unbound, 16 cores, AAAA 0, cached 0, accept 1", &["Tables V-VII", "Tables XIX-XXI"]),
        ("Unbound, 16 cores, AAAA 0, cached 0, accept 0.99", &["Tables VIII-X"]),
        ("PowerDNS, 8 cores (4+4), AAAA 0, cached 0, accept 1", &["Table XI"]),
        ("Unbound, 8 cores (4+4), AAAA 0, cached 0, accept 0.99", &["Table XII"]),
        ("BIND, 2 cores, AAAA 0.4, cached 0, accept 1", &["Tables XIII-XV"]),
        ("PowerDNS, 4 cores, AAAA 0, cached 0.8, accept 1", &["Tables XVI-XVIII"]),
        ("BIND, 4 cores, load 0.75", &["Tables XIX-XXI"]),
        ("Unbound, 8 cores (4+4), constant rate 1500", &["Tables XXII-XXIII", "Fig. 3"]),
        ("Unbound, 1 core, constant rate 500", &["Fig. 3", "Fig. 4"]),
        (
            "BIND, 2 cores, closed loop with 16 threads, governor performance",
            &["Tables I-II", "Fig. 2"],
        ),
        ("BIND, 2 cores, closed loop with 16 threads, governor ondemand", &["Tables III-IV"]),
    ] {
        assert_eq!(labels(&plan, point), expected, "{point}");
    }
}

#[test]
fn points_of_one_rate_at_a_place_make_no_curve() {
    let text = "name = 'x'\n[measure]\nconstant-rates = [{ rates = [100], duration = '1s', repeat = 1 }]\n[[dut]]\ndriver = 'bind'\n";
    let plan = Plan::parse(text, Path::new("p.toml")).unwrap();
    assert!(
        labels(&plan, "BIND, 1 core, constant rate 100").is_empty(),
        "one second, one trial, one rate"
    );
    assert_eq!(
        labels(&plan, "BIND, 1 core, AAAA 0, cached 0, accept 1"),
        ["Tables V-VII"],
        "no shares, no loads"
    );
}

/// For each table or figure of the papers that shows measurements of a server, the built-in plan `paper` has a
/// measurement point.
#[test]
fn all_measurements_of_the_papers_are_covered() {
    let plan = Plan::load(Path::new("paper")).unwrap();
    let points = plan.points();
    let of = |paper: Paper| -> BTreeSet<&str> {
        let filled = points.iter().flat_map(|point| point.measure().paper_items(&plan, point));
        filled.filter(|filled| filled.paper == paper).map(|filled| filled.what).collect()
    };
    let benchmarking = [
        "Table I",
        "Table II",
        "Table III",
        "Table IV",
        "Tables V-VII",
        "Tables VIII-X",
        "Table XI",
        "Table XII",
        "Tables XIII-XV",
        "Tables XVI-XVIII",
        "Tables XIX-XXI",
        "Tables XXII-XXIII",
        "Fig. 3",
        "Fig. 4",
    ];
    assert_eq!(of(Paper::Benchmarking), benchmarking.into());
    assert_eq!(of(Paper::Mtd64), ["Tables I-II", "Tables III-IV", "Fig. 2"].into());
}
