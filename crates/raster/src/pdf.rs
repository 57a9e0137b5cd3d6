//! SVG figures as PDF, for papers. Texts become outlines, so the file needs no font.
//!
//! The writer supports the SVG subset of the report's figures: paths and texts, filled and stroked in plain colours,
//! with opacity. A general converter (`svg2pdf`, `krilla-svg`) is not used, because it depends on a different version
//! of the SVG parser.

use miniz_oxide::deflate::compress_to_vec_zlib;
use pdf_writer::types::{LineCapStyle, LineJoinStyle};
use pdf_writer::writers::ExtGraphicsState;
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref};
use resvg::usvg::tiny_skia_path::{PathSegment, Point, Transform};
use resvg::usvg::{
    FillRule, Group, LineCap, LineJoin, Node, Paint, PaintOrder, Path, Stroke, Tree,
};

use crate::svg::{OPTIONS, PaintError};

/// Compression level of the page: 6 is the default of zlib.
const LEVEL: u8 = 6;

/// Converts an SVG to a PDF of one page. One unit of the SVG becomes one point.
///
/// # Errors
/// Returns an error if the text is not SVG, or uses gradients, patterns, pictures, clip paths, masks or filters.
pub fn pdf(svg: &str) -> Result<Vec<u8>, PaintError> {
    let tree = Tree::from_str(svg, &OPTIONS)?;
    let size = tree.size();
    let mut page = Page { content: Content::new(), opacities: Vec::new() };
    // The origin of a PDF page is its lower left corner, so the y axis is reversed.
    let upright = Transform::from_row(1.0, 0.0, 0.0, -1.0, 0.0, size.height());
    page.group(tree.root(), upright, 1.0)?;
    Ok(page.finish(size.width(), size.height()))
}

/// A page that is being drawn.
struct Page {
    content: Content,
    /// Opacities in use. Each opacity becomes a graphics state of the page.
    opacities: Vec<f32>,
}

impl Page {
    /// Draws a group. The opacity of the group is applied to each path separately. This is exact
    /// only if the paths do not overlap.
    fn group(
        &mut self,
        group: &Group,
        transform: Transform,
        opacity: f32,
    ) -> Result<(), PaintError> {
        if group.clip_path().is_some() || group.mask().is_some() || !group.filters().is_empty() {
            return Err(PaintError::Unsupported);
        }
        let (transform, opacity) =
            (transform.pre_concat(group.transform()), opacity * group.opacity().get());
        for node in group.children() {
            match node {
                Node::Group(inner) => self.group(inner, transform, opacity)?,
                Node::Text(text) => self.group(text.flattened(), transform, opacity)?,
                Node::Path(path) => self.path(path, transform, opacity)?,
                Node::Image(_) => return Err(PaintError::Unsupported),
            }
        }
        Ok(())
    }

    fn path(&mut self, path: &Path, at: Transform, opacity: f32) -> Result<(), PaintError> {
        if !path.is_visible() {
            return Ok(());
        }
        self.content.save_state();
        self.content.transform([at.sx, at.ky, at.kx, at.sy, at.tx, at.ty]);
        match path.paint_order() {
            PaintOrder::FillAndStroke => {
                self.fill(path, opacity)?;
                self.stroke(path, opacity)?;
            }
            PaintOrder::StrokeAndFill => {
                self.stroke(path, opacity)?;
                self.fill(path, opacity)?;
            }
        }
        self.content.restore_state();
        Ok(())
    }

    fn fill(&mut self, path: &Path, opacity: f32) -> Result<(), PaintError> {
        let Some(fill) = path.fill() else { return Ok(()) };
        let [r, g, b] = colour(fill.paint())?;
        self.set_opacity(fill.opacity().get() * opacity);
        self.content.set_fill_rgb(r, g, b);
        self.outline(path);
        match fill.rule() {
            FillRule::NonZero => self.content.fill_nonzero(),
            FillRule::EvenOdd => self.content.fill_even_odd(),
        };
        Ok(())
    }

    fn stroke(&mut self, path: &Path, opacity: f32) -> Result<(), PaintError> {
        let Some(stroke) = path.stroke() else { return Ok(()) };
        let [r, g, b] = colour(stroke.paint())?;
        self.set_opacity(stroke.opacity().get() * opacity);
        self.content.set_stroke_rgb(r, g, b);
        self.pen(stroke);
        self.outline(path);
        self.content.stroke();
        Ok(())
    }

    fn pen(&mut self, stroke: &Stroke) {
        self.content.set_line_width(stroke.width().get());
        self.content.set_miter_limit(stroke.miterlimit().get());
        self.content.set_line_cap(match stroke.linecap() {
            LineCap::Butt => LineCapStyle::ButtCap,
            LineCap::Round => LineCapStyle::RoundCap,
            LineCap::Square => LineCapStyle::ProjectingSquareCap,
        });
        self.content.set_line_join(match stroke.linejoin() {
            LineJoin::Miter | LineJoin::MiterClip => LineJoinStyle::MiterJoin,
            LineJoin::Round => LineJoinStyle::RoundJoin,
            LineJoin::Bevel => LineJoinStyle::BevelJoin,
        });
        let dashes = stroke.dasharray().unwrap_or_default();
        self.content.set_dash_pattern(dashes.iter().copied(), stroke.dashoffset());
    }

    fn outline(&mut self, path: &Path) {
        let mut last = Point::zero();
        for segment in path.data().segments() {
            match segment {
                PathSegment::MoveTo(to) => {
                    self.content.move_to(short(to.x), short(to.y));
                    last = to;
                }
                PathSegment::LineTo(to) => {
                    self.content.line_to(short(to.x), short(to.y));
                    last = to;
                }
                PathSegment::QuadTo(by, to) => {
                    self.cubic(towards(last, by), towards(to, by), to);
                    last = to;
                }
                PathSegment::CubicTo(first, second, to) => {
                    self.cubic(first, second, to);
                    last = to;
                }
                PathSegment::Close => {
                    self.content.close_path();
                }
            }
        }
    }

    fn cubic(&mut self, first: Point, second: Point, to: Point) {
        let [x1, y1, x2, y2, x3, y3] =
            [first.x, first.y, second.x, second.y, to.x, to.y].map(short);
        self.content.cubic_to(x1, y1, x2, y2, x3, y3);
    }

    fn set_opacity(&mut self, opacity: f32) {
        let known = self.opacities.iter().position(|&known| known == opacity);
        let at = known.unwrap_or_else(|| {
            self.opacities.push(opacity);
            self.opacities.len() - 1
        });
        self.content.set_parameters(Name(state_name(at).as_bytes()));
    }

    fn finish(self, width: f32, height: f32) -> Vec<u8> {
        let [catalog, pages, page, content] = [1, 2, 3, 4].map(Ref::new);
        let mut pdf = Pdf::new();
        // The version is 1.5, because TeX engines warn about later versions.
        pdf.set_version(1, 5);
        pdf.catalog(catalog).pages(pages);
        pdf.pages(pages).kids([page]).count(1);
        let mut leaf = pdf.page(page);
        leaf.parent(pages).media_box(Rect::new(0.0, 0.0, width, height)).contents(content);
        let mut resources = leaf.resources();
        let mut states = resources.ext_g_states();
        for (at, &opacity) in self.opacities.iter().enumerate() {
            let name = state_name(at);
            let mut state = states.insert(Name(name.as_bytes())).start::<ExtGraphicsState<'_>>();
            state.non_stroking_alpha(opacity).stroking_alpha(opacity);
        }
        states.finish();
        resources.finish();
        leaf.finish();
        let drawn = compress_to_vec_zlib(&self.content.finish(), LEVEL);
        pdf.stream(content, &drawn).filter(Filter::FlateDecode);
        pdf.finish()
    }
}

fn state_name(at: usize) -> String {
    format!("o{at}")
}

/// Rounds a coordinate to two decimals, because finer differences are not visible.
fn short(value: f32) -> f32 {
    (value * 100.0).round() / 100.0
}

/// Converts a quadratic Bézier curve to the identical cubic curve, and returns one of its two control points. `by` is
/// the control point of the quadratic curve. `end` is the end point next to the returned control point.
fn towards(end: Point, by: Point) -> Point {
    Point::from_xy(end.x + (by.x - end.x) * 2.0 / 3.0, end.y + (by.y - end.y) * 2.0 / 3.0)
}

/// Returns the red, green and blue components of a colour, from 0 to 1. Returns an error if the
/// paint is not a plain colour.
fn colour(paint: &Paint) -> Result<[f32; 3], PaintError> {
    match paint {
        Paint::Color(c) => Ok([c.red, c.green, c.blue].map(|part| f32::from(part) / 255.0)),
        _ => Err(PaintError::Unsupported),
    }
}

#[cfg(test)]
mod tests {
    use miniz_oxide::inflate::decompress_to_vec_zlib;

    use super::*;

    const PAGE: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 100 20'><style>.a{fill:#0072b2}</style>\
        <rect class='a' x='10' y='2' width='30' height='4' opacity='0.5'/>\
        <path d='M0 20L50 0' fill='none' stroke='#222' stroke-width='2' stroke-dasharray='8 3'/>TEXT</svg>";

    /// Returns the drawing operators in a PDF.
    fn operators(pdf: &[u8]) -> String {
        let find = |what: &[u8]| pdf.windows(what.len()).position(|bytes| bytes == what).unwrap();
        let (from, to) = (find(b"stream\n") + 7, find(b"\nendstream"));
        String::from_utf8(decompress_to_vec_zlib(&pdf[from..to]).unwrap()).unwrap()
    }

    #[test]
    fn paths_keep_place_colour_opacity_and_dashes() {
        let pdf = pdf(PAGE).unwrap();
        assert!(pdf.starts_with(b"%PDF-1.5"));
        let text = String::from_utf8_lossy(&pdf);
        assert!(text.contains("[0 0 100 20]") && text.contains("/ca 0.5"), "{text}");
        let drawn = operators(&pdf);
        for what in
            ["1 0 0 -1 0 20 cm", "0 0.44705883 0.69803923 rg", "10 2 m", "[8 3] 0 d", "50 0 l"]
        {
            assert!(drawn.contains(what), "{what} is not in {drawn}");
        }
    }

    #[test]
    fn texts_become_outlines() {
        let with = |text: &str| operators(&pdf(&PAGE.replace("TEXT", text)).unwrap()).len();
        let text = with("<text x='4' y='15' font-size='14'>Ωµ ≥ ü</text>");
        assert!(text > with("") + 500, "{text}");
    }

    #[test]
    fn unsupported_elements_are_errors() {
        let gradient = "<linearGradient id='g'><stop stop-color='red'/><stop offset='1' stop-color='blue'/>\
                        </linearGradient><rect width='9' height='9' fill='url(#g)'/>";
        let drawn = pdf(&PAGE.replace("TEXT", gradient));
        assert!(matches!(drawn, Err(PaintError::Unsupported)), "{drawn:?}");
    }
}
