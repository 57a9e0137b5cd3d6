//! Reads back the values that a figure shows, from the data attributes and the positions of its marks.

use crate::chart::draw::text_width;

/// Data attributes of a mark in a figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Name of the small diagram that contains the mark; empty in figures without small diagrams.
    pub(crate) panel: String,
    /// Name of the series to which the mark belongs.
    pub(crate) of: String,
    /// Position of the mark on the horizontal axis.
    pub(crate) at: String,
    /// Value of the mark. For a curve over time: the values of all points, in order.
    pub(crate) y: Vec<f64>,
    /// Lower and upper ends of the range that the mark shows.
    pub(crate) range: (Vec<f64>, Vec<f64>),
    /// State of the mark: `at-least` for a lower bound, `failed` if trials failed, otherwise empty.
    pub(crate) state: String,
}

/// An element of an SVG: its name, its attributes and its text.
#[derive(Clone, Debug)]
pub(crate) struct Element<'a> {
    pub(crate) name: &'a str,
    attributes: &'a str,
    pub(crate) words: String,
    /// Name of the small diagram that contains the element.
    pub(crate) panel: String,
}

impl Element<'_> {
    pub(crate) fn get(&self, attribute: &str) -> Option<String> {
        let (_, rest) = self.attributes.split_once(&format!(" {attribute}=\""))?;
        Some(plain(rest.split_once('"')?.0))
    }

    pub(crate) fn number(&self, attribute: &str) -> f64 {
        self.get(attribute).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
    }

    pub(crate) fn is(&self, class: &str) -> bool {
        self.get("class").is_some_and(|classes| classes.split(' ').any(|word| word == class))
    }
}

fn plain(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Returns all elements of an SVG, in the order of the text.
pub(crate) fn elements(svg: &str) -> Vec<Element<'_>> {
    let (mut all, mut panel) = (Vec::new(), String::new());
    for piece in svg.split('<').skip(1) {
        let (tag, words) = piece.split_once('>').unwrap_or((piece, ""));
        if tag == "/g" {
            panel.clear();
        }
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        let mut element = Element {
            name,
            attributes: &tag[name.len()..],
            words: plain(words),
            panel: String::new(),
        };
        if name == "g" {
            panel = element.get("data-panel").unwrap_or_default();
        }
        element.panel.clone_from(&panel);
        all.push(element);
    }
    all
}

/// Returns the data of all marks of a figure.
pub(crate) fn marks(svg: &str) -> Vec<Mark> {
    let of = |element: Element<'_>| {
        let list = |attribute: &str| {
            let text = element.get(attribute).unwrap_or_default();
            text.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<f64>>()
        };
        Some(Mark {
            of: element.get("data-of")?,
            at: element.get("data-at")?,
            y: list("data-y"),
            range: (list("data-low"), list("data-high")),
            state: element.get("data-state").unwrap_or_default(),
            panel: element.panel,
        })
    };
    elements(svg).into_iter().filter_map(of).collect()
}

/// A rectangle: left, top, right, bottom.
pub(crate) type Extent = (f64, f64, f64, f64);

/// Returns the texts of a figure with their estimated positions.
pub(super) fn texts(svg: &str) -> Vec<(String, Extent)> {
    let of = |element: &Element<'_>| {
        let is_small = element.is("small");
        let width = text_width(&element.words, is_small);
        let (x, y) = (element.number("x"), element.number("y"));
        let left = match element.get("text-anchor").as_deref() {
            Some("middle") => x - width / 2.0,
            Some("end") => x - width,
            _ => x,
        };
        (
            element.words.clone(),
            (left, y - if is_small { 8.0 } else { 10.0 }, left + width, y + 2.0),
        )
    };
    elements(svg).iter().filter(|element| element.name == "text").map(of).collect()
}

/// Returns the value at a position on an axis. `marks` are the visible tick marks of the axis as (position, value), in
/// ascending order.
pub(super) fn value_at(marks: &[(f64, f64)], place: f64, is_logarithmic: bool) -> f64 {
    let scaled = |value: f64| if is_logarithmic { value.ln() } else { value };
    let (first, last) = (marks[0], marks[marks.len() - 1]);
    let share = (place - first.0) / (last.0 - first.0);
    let value = scaled(first.1) + share * (scaled(last.1) - scaled(first.1));
    if is_logarithmic { value.exp() } else { value }
}
