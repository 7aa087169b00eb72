//! Times over sizes, or over what else grows, both in logarithms, as SVG.

use std::fmt::Write as _;

/// Size of the picture, and of the borders around the curves, in pixels.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 50.0;
/// Colours that stay apart for most eyes, also printed.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#a07800", "#7f3c8d", "#555555"];

/// What grows from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// Sizes, marked at powers of two in units.
    Bytes,
    /// Numbers, marked at powers of two, in this unit.
    Number(&'static str),
}

/// One algorithm with one protocol, or one cluster.
pub(super) struct Curve {
    pub(super) name: String,
    /// Bytes or what else grows, and microseconds, both above 0.
    pub(super) points: Vec<(f64, f64)>,
}

/// A picture of curves and of the line that the choice follows.
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) subtitle: String,
    pub(super) curves: Vec<Curve>,
    /// A broad line below the others, with its name.
    pub(super) chosen: Option<(String, Vec<(f64, f64)>)>,
    pub(super) axis: Axis,
}

/// From numbers to pixels.
struct Scale {
    /// Logarithms to base 2 of the least and the largest size.
    x: (f64, f64),
    /// Logarithms to base 10 of the least and the largest time, whole.
    y: (f64, f64),
}

impl Scale {
    fn of(plot: &Plot) -> Self {
        let chosen = || plot.chosen.iter().flat_map(|(_, points)| points);
        let all = || plot.curves.iter().flat_map(|curve| &curve.points).chain(chosen());
        let least = |pick: fn(&(f64, f64)) -> f64| all().map(pick).fold(f64::INFINITY, f64::min);
        let most = |pick: fn(&(f64, f64)) -> f64| all().map(pick).fold(f64::NEG_INFINITY, f64::max);
        let x = (least(|point| point.0).log2(), most(|point| point.0).log2());
        let y = (least(|point| point.1).log10().floor(), most(|point| point.1).log10().ceil());
        // A picture needs some room, also for one size or one time.
        let widened = |(low, high): (f64, f64)| {
            if low.is_finite() && high.is_finite() { (low, high.max(low + 1.0)) } else { (0.0, 1.0) }
        };
        Self { x: widened(x), y: widened(y) }
    }

    fn x(&self, bytes: f64) -> f64 {
        LEFT + (bytes.log2() - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, us: f64) -> f64 {
        HEIGHT - BOTTOM - (us.log10() - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }
}

impl Plot {
    /// The picture.
    pub(super) fn svg(&self) -> String {
        let scale = Scale::of(self);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        // Writing to a String cannot fail.
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>", escape(&self.title));
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"44\" fill=\"#555\">{}</text>", escape(&self.subtitle));
        axes(&mut svg, &scale, self.axis);
        if let Some((name, points)) = &self.chosen {
            let line = path(&scale, points);
            let _ = writeln!(svg, "<path d=\"{line}\" fill=\"none\" stroke=\"#ffd84d\" stroke-width=\"9\"/>");
            legend(&mut svg, 0, name, "stroke=\"#ffd84d\" stroke-width=\"9\"");
        }
        for (i, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let dash = if i < COLOURS.len() { "" } else { " stroke-dasharray=\"6 3\"" };
            let line = path(&scale, &curve.points);
            let _ = writeln!(
                svg,
                "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"{dash}/>"
            );
            legend(&mut svg, i + 1, &curve.name, &format!("stroke=\"{colour}\" stroke-width=\"2\"{dash}"));
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn path(scale: &Scale, points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (i, (bytes, us)) in points.iter().enumerate() {
        let _ = write!(path, "{}{:.1} {:.1}", if i == 0 { "M" } else { " L" }, scale.x(*bytes), scale.y(*us));
    }
    path
}

fn axes(svg: &mut String, scale: &Scale, axis: Axis) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let (first, last) = (scale.x.0.ceil() as u32, scale.x.1.floor() as u32);
    let each = ((last.saturating_sub(first)) / 10).max(1) as usize;
    for power in (first..=last).step_by(each) {
        let x = scale.x(2f64.powi(power as i32));
        let _ = writeln!(svg, "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            mark(power, axis)
        );
    }
    for power in scale.y.0 as i32..=scale.y.1 as i32 {
        let y = scale.y(10f64.powi(power));
        let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{} us</text>",
            LEFT - 8.0,
            y + 4.0,
            10f64.powi(power)
        );
    }
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#555\"/>",
        right - LEFT,
        bottom - TOP
    );
}

fn mark(power: u32, axis: Axis) -> String {
    match axis {
        Axis::Bytes => size(power),
        Axis::Number(unit) => format!("{}{unit}", 1u64 << power.min(63)),
    }
}

/// `2^power` bytes in the largest unit that divides it.
fn size(power: u32) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    format!("{}{}", 1u32 << (power % 10), units[(power / 10).min(6) as usize])
}

fn legend(svg: &mut String, row: usize, name: &str, stroke: &str) {
    let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 12.0 + 20.0 * row as f64);
    let _ = writeln!(svg, "<path d=\"M{x} {y}h26\" {stroke}/>");
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{}</text>", x + 34.0, y + 4.0, escape(name));
}

/// Text that SVG reads as text.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_hold_every_curve_inside_the_frame() {
        // Points are within the picture, names are escaped, sizes and times have their marks.
        let curve = Curve { name: "Ring <LL>".into(), points: vec![(8.0, 10.2), (1e9, 26000.0)] };
        let plot = Plot {
            title: "a & b".into(),
            subtitle: String::new(),
            curves: vec![curve],
            chosen: Some(("chosen".into(), vec![(8.0, 10.2)])),
            axis: Axis::Bytes,
        };
        let svg = plot.svg();
        assert!(svg.contains("Ring &lt;LL&gt;") && svg.contains("a &amp; b"));
        assert!(svg.contains(">8</text>") && svg.contains(">100000 us</text>"));
        let scale = Scale::of(&plot);
        assert_eq!((scale.x(8.0), scale.y(10.0)), (LEFT, HEIGHT - BOTTOM));
        assert!(scale.x(1e9) <= WIDTH - RIGHT + 0.01 && scale.y(26000.0) >= TOP);
    }

    #[test]
    fn a_picture_of_nothing_is_a_picture() {
        // No curve and one point give finite coordinates.
        for chosen in [None, Some((String::new(), vec![(1.0, 1.0)]))] {
            let axis = Axis::Number("");
            let svg =
                Plot { title: String::new(), subtitle: String::new(), curves: Vec::new(), chosen, axis }
                    .svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        assert_eq!([0, 9, 10, 33].map(size), ["1", "512", "1K", "8G"]);
    }
}
