//! Line charts with two logarithmic axes, as SVG.

use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;
/// The area of the lines: left, right, top, bottom.
const AREA: [f64; 4] = [80.0, 720.0, 50.0, 500.0];
/// Colours that differ for most eyes, also on white paper.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A chart; times are in microseconds.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x_title: String,
    /// Values with a line and a label on the horizontal axis.
    pub(crate) x_ticks: Vec<(f64, String)>,
    pub(crate) series: Vec<Series>,
}

/// One line of a chart.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// In the order in which they are joined; all positive.
    pub(crate) points: Vec<(f64, f64)>,
    /// Which of the colours; counts around.
    pub(crate) colour: usize,
    pub(crate) dashed: bool,
}

/// A logarithmic axis: the values at its ends and the places of these.
#[derive(Clone, Copy, Debug)]
struct Axis {
    values: [f64; 2],
    places: [f64; 2],
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let [low, high] = self.values.map(f64::ln);
        let share = if high > low { (value.ln() - low) / (high - low) } else { 0.5 };
        self.places[0] + share * (self.places[1] - self.places[0])
    }
}

/// The least and the largest of positive values; a decade if there are none.
fn range(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let found = values.filter(|value| value.is_finite() && *value > 0.0);
    let [low, high] =
        found.fold([f64::INFINITY, 0.0], |[low, high], value| [low.min(value), high.max(value)]);
    if low <= high { [low, high] } else { [1.0, 10.0] }
}

/// The powers of ten that hold a range.
fn decades([low, high]: [f64; 2]) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last.max(first + 1)).map(|power| 10f64.powi(power)).collect()
}

/// A time in microseconds, in the unit in which it is a short number.
fn time_name(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1.0 => (us * 1e3, "ns"),
        us if us < 1e3 => (us, "us"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", (value * 1e3).round() / 1e3)
}

/// Text that may stand in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Chart {
    /// The drawing.
    pub(crate) fn svg(&self) -> String {
        let [left, right, top, bottom] = AREA;
        let times = range(self.series.iter().flat_map(|series| &series.points).map(|point| point.1));
        let decades = decades(times);
        let y = Axis { values: [decades[0], decades[decades.len() - 1]], places: [bottom, top] };
        let x = Axis { values: range(self.x_ticks.iter().map(|tick| tick.0)), places: [left, right] };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"14\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, [WIDTH / 2.0, 28.0], "middle\" font-size=\"17", &self.title);
        text(&mut svg, [(left + right) / 2.0, bottom + 45.0], "middle", &self.x_title);
        for time in decades {
            let place = y.place(time);
            line(&mut svg, [left, place], [right, place]);
            text(&mut svg, [left - 8.0, place + 5.0], "end", &time_name(time));
        }
        for (value, name) in &self.x_ticks {
            let place = x.place(*value);
            line(&mut svg, [place, top], [place, bottom]);
            text(&mut svg, [place, bottom + 20.0], "middle", name);
        }
        for (number, series) in self.series.iter().enumerate() {
            series.draw(&mut svg, x, y);
            let place = top + 10.0 + 22.0 * number as f64;
            series.stroke(&mut svg, &format!("{},{place} {},{place}", right + 15.0, right + 50.0));
            text(&mut svg, [right + 58.0, place + 5.0], "start", &series.name);
        }
        svg + "</svg>\n"
    }
}

impl Series {
    fn colour(&self) -> &'static str {
        COLOURS[self.colour % COLOURS.len()]
    }

    fn stroke(&self, svg: &mut String, places: &str) {
        let (colour, dashes) = (self.colour(), if self.dashed { " stroke-dasharray=\"6 4\"" } else { "" });
        push(
            svg,
            format_args!(
                "<polyline points=\"{places}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>\n"
            ),
        );
    }

    fn draw(&self, svg: &mut String, x: Axis, y: Axis) {
        let places: Vec<[f64; 2]> =
            self.points.iter().map(|point| [x.place(point.0), y.place(point.1)]).collect();
        let joined: Vec<String> = places.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        self.stroke(svg, &joined.join(" "));
        for [x, y] in places.iter().filter(|_| !self.dashed) {
            let colour = self.colour();
            push(svg, format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>\n"));
        }
    }
}

fn line(svg: &mut String, from: [f64; 2], to: [f64; 2]) {
    let ([x1, y1], [x2, y2]) = (from, to);
    push(svg, format_args!("<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>\n"));
}

fn text(svg: &mut String, at: [f64; 2], anchor: &str, what: &str) {
    let ([x, y], what) = (at, escaped(what));
    push(svg, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>\n"));
}

fn push(svg: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = svg.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal factors are equal distances, and the ends are where they should be.
    #[test]
    fn axes_are_logarithmic() {
        let axis = Axis { values: [1.0, 100.0], places: [0.0, 200.0] };
        let places = [1.0, 10.0, 100.0].map(|value| axis.place(value).round());
        assert_eq!(places, [0.0, 100.0, 200.0]);
        assert_eq!(Axis { values: [4.0, 4.0], places: [0.0, 10.0] }.place(4.0), 5.0);
    }

    /// The range of times is held by whole decades, also when it is a single value or none.
    #[test]
    fn decades_hold_ranges() {
        assert_eq!(decades([0.25, 31000.0]), [0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0]);
        assert_eq!(decades([10.0, 10.0]), [10.0, 100.0]);
        assert_eq!(range([3.0, f64::NAN, 0.0, 2.0].into_iter()), [2.0, 3.0]);
        assert_eq!(range(std::iter::empty()), [1.0, 10.0]);
        assert_eq!([0.1, 1.0, 1e4, 1e6].map(time_name), ["100 ns", "1 us", "10 ms", "1 s"]);
    }

    /// The drawing is XML with a line and a name for every series, within its area.
    #[test]
    fn drawings_are_whole() {
        let series = |name: &str, dashed| Series {
            name: name.into(),
            points: vec![(8.0, 0.2), (1024.0, 3.0)],
            colour: 7,
            dashed,
        };
        let chart = Chart {
            title: "a < b & c".into(),
            x_title: "bytes".into(),
            x_ticks: vec![(8.0, "8".into()), (1024.0, "1K".into())],
            series: vec![series("2 ranks", false), series("floor", true)],
        };
        let svg = chart.svg();
        let tree = roxmltree::Document::parse(&svg).unwrap();
        let lines: Vec<_> = tree.descendants().filter(|node| node.has_tag_name("polyline")).collect();
        assert_eq!(lines.len(), 2 * 2, "a line and its sample for each");
        assert_eq!(lines.iter().filter(|line| line.has_attribute("stroke-dasharray")).count(), 2);
        let texts: Vec<_> = tree.descendants().filter_map(|node| node.text()).collect();
        for text in ["a < b & c", "bytes", "8", "1K", "2 ranks", "floor", "100 ns", "10 us"] {
            assert!(texts.contains(&text), "{text}");
        }
        for node in tree.descendants().filter(|node| node.has_tag_name("circle")) {
            let at = |name| node.attribute(name).unwrap().parse::<f64>().unwrap();
            assert!((AREA[0]..=AREA[1]).contains(&at("cx")) && (AREA[2]..=AREA[3]).contains(&at("cy")));
        }
    }
}
