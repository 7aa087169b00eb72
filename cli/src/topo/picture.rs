//! A node as an SVG picture: CPUs above, what is plugged into them below, NVLinks at the bottom.

use std::fmt::Write as _;

use ::topo::nccl::system::{Device, Node, NvPeer, Slot};

use super::nodes::{Numbers, capability, cpu_name};

/// Sizes in pixels.
const BOX: (usize, usize) = (104, 36);
const GAP: (usize, usize) = (12, 34);
const MARGIN: usize = 16;
const FONT: usize = 11;

/// A box of the picture.
struct Shape {
    x: usize,
    y: usize,
    /// Fill colour.
    fill: &'static str,
    lines: [String; 2],
    /// Speed of the link to the box above, and that box.
    above: Option<(usize, f32)>,
}

/// The boxes so far.
struct Picture {
    shapes: Vec<Shape>,
    numbers: Numbers,
    /// Where each GPU's box is.
    gpus: Vec<usize>,
    /// Left edge of the next box without boxes below it.
    x: usize,
    deepest: usize,
}

/// Draws one node.
pub(super) fn svg(name: &str, node: &Node) -> String {
    let mut picture =
        Picture { shapes: Vec::new(), numbers: Numbers::default(), gpus: Vec::new(), x: MARGIN, deepest: 0 };
    for (i, cpu) in node.cpus.iter().enumerate() {
        let lines = [format!("CPU {i}"), cpu_name(cpu.kind)];
        picture.place(lines, "#d9e2ef", None, 0, &cpu.slots);
    }
    picture.write(name, node)
}

impl Picture {
    /// Puts a box above those of its slots; returns its number.
    fn place(
        &mut self,
        lines: [String; 2],
        fill: &'static str,
        above: Option<(usize, f32)>,
        depth: usize,
        slots: &[Slot],
    ) -> usize {
        let number = self.shapes.len();
        let start = self.x;
        let y = MARGIN + FONT * 2 + depth * (BOX.1 + GAP.1);
        self.shapes.push(Shape { x: start, y, fill, lines, above });
        self.deepest = self.deepest.max(y);
        for slot in slots {
            self.plug(slot, number, depth + 1);
        }
        if self.x == start {
            self.x += BOX.0 + GAP.0;
        }
        // In the middle of what is below.
        self.shapes[number].x = (start + self.x - BOX.0 - GAP.0) / 2;
        number
    }

    fn plug(&mut self, slot: &Slot, above: usize, depth: usize) {
        let above = Some((above, slot.bandwidth));
        match &slot.device {
            Device::Switch(below) => {
                self.place(["PCIe switch".into(), String::new()], "#eeeeee", above, depth, below);
            }
            Device::Gpu(gpu) => {
                let lines = [format!("GPU {}", self.numbers.gpu()), format!("sm {}", capability(gpu.sm))];
                let shape = self.place(lines, "#cde8c9", above, depth, &[]);
                self.gpus.push(shape);
            }
            Device::Card(ports) => {
                let numbers: Vec<String> = ports.iter().map(|_| self.numbers.port().to_string()).collect();
                let speed = ports.iter().map(|port| f64::from(port.mbps) / 1000.0).sum::<f64>();
                let lines = [format!("port {}", numbers.join(", ")), format!("{speed} Gb/s")];
                self.place(lines, "#f6dfc0", above, depth, &[]);
            }
        }
    }

    fn write(&self, name: &str, node: &Node) -> String {
        let bottom = self.deepest + BOX.1;
        let switched = node.nvlinks.iter().find(|link| link.peer == NvPeer::Switch);
        let height = bottom + GAP.1 * 3 + BOX.1 + MARGIN;
        let width = self.x + MARGIN;
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"{FONT}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{MARGIN}\" y=\"{MARGIN}\" font-weight=\"bold\">{}</text>",
            escaped(name)
        );
        for shape in &self.shapes {
            if let Some((above, speed)) = shape.above {
                self.write_link(&mut text, shape, &self.shapes[above], speed);
            }
        }
        if let Some(link) = switched {
            let y = bottom + GAP.1;
            let _ = writeln!(
                text,
                "<rect x=\"{MARGIN}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"#cde8c9\" \
                 stroke=\"#4b7a45\"/>\n<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">NVSwitch, {} links a GPU</text>",
                width - 2 * MARGIN,
                BOX.1,
                width / 2,
                y + BOX.1 / 2 + 4,
                link.links
            );
            for &gpu in &self.gpus {
                let (x, from) = (self.shapes[gpu].x + BOX.0 / 2, self.shapes[gpu].y + BOX.1);
                let _ =
                    writeln!(text, "<path d=\"M{x} {from} V{y}\" stroke=\"#4b7a45\" stroke-width=\"3\"/>");
            }
        }
        self.write_direct(&mut text, node);
        for shape in &self.shapes {
            write_box(&mut text, shape);
        }
        text.push_str("</svg>\n");
        text
    }

    fn write_link(&self, text: &mut String, below: &Shape, above: &Shape, speed: f32) {
        let (x1, y1) = (above.x + BOX.0 / 2, above.y + BOX.1);
        let (x2, y2) = (below.x + BOX.0 / 2, below.y);
        let _ = writeln!(
            text,
            "<path d=\"M{x1} {y1} L{x2} {y2}\" stroke=\"#777777\"><title>{speed} GB/s</title></path>\n\
             <text x=\"{}\" y=\"{}\" fill=\"#555555\">{speed}</text>",
            x2 + 3,
            y2 - 4
        );
    }

    /// Arcs between GPUs that are joined directly, wider for more links.
    fn write_direct(&self, text: &mut String, node: &Node) {
        for (a, &from) in self.gpus.iter().enumerate() {
            for (b, &to) in self.gpus.iter().enumerate().skip(a + 1) {
                let links = node.links_between(a as u32, b as u32);
                if links == 0 {
                    continue;
                }
                let (x1, x2) = (self.shapes[from].x + BOX.0 / 2, self.shapes[to].x + BOX.0 / 2);
                let (y1, y2) = (self.shapes[from].y + BOX.1, self.shapes[to].y + BOX.1);
                let low = self.deepest + BOX.1 + GAP.1 * 3;
                let _ = writeln!(
                    text,
                    "<path d=\"M{x1} {y1} C{x1} {low} {x2} {low} {x2} {y2}\" fill=\"none\" stroke=\"#4b7a45\" \
                     stroke-width=\"{}\"><title>GPU {a} - GPU {b}: {links} NVLinks</title></path>",
                    links.min(6)
                );
            }
        }
    }
}

fn write_box(text: &mut String, shape: &Shape) {
    let (middle, first) = (shape.x + BOX.0 / 2, shape.y + BOX.1 / 2);
    let alone = shape.lines[1].is_empty();
    let _ = writeln!(
        text,
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" stroke=\"#555555\"/>\n\
         <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        shape.x,
        shape.y,
        BOX.0,
        BOX.1,
        shape.fill,
        if alone { first + 4 } else { first - 3 },
        escaped(&shape.lines[0])
    );
    if !alone {
        let y = first + 11;
        let line = escaped(&shape.lines[1]);
        let _ = writeln!(text, "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\">{line}</text>");
    }
}

/// A text that XML takes as it is.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::topo::nccl::profiles;

    #[test]
    fn every_machine_can_be_drawn() {
        // A box for everything that there is, inside of the picture, none over another of its row.
        for name in profiles::names() {
            let node = profiles::find(name).unwrap();
            let picture = svg(name, &node);
            let boxes = picture.matches("fill=\"#cde8c9\" stroke=\"#555555\"").count();
            assert_eq!(boxes, node.gpus().len(), "{name}");
            assert_eq!(picture.matches("fill=\"#d9e2ef\"").count(), node.cpus.len(), "{name}");
            assert_eq!(picture.matches("<text").count(), picture.matches("</text>").count());
            let mut places: Vec<(usize, usize)> = Vec::new();
            for part in picture.split("<rect x=\"").skip(1).filter(|part| part.contains("stroke=\"#555555\""))
            {
                let mut numbers = part.split('"').filter_map(|number| number.parse::<usize>().ok());
                let (x, y) = (numbers.next().unwrap(), numbers.next().unwrap());
                assert!(!places.iter().any(|&(a, b)| b == y && a.abs_diff(x) < BOX.0), "{name} {x} {y}");
                places.push((x, y));
            }
        }
    }

    #[test]
    fn names_cannot_leave_their_element() {
        // A hostile name stays text.
        let picture = svg("<script>\"&\u{7}", &profiles::find("2xrtx4090").unwrap());
        assert!(picture.contains("&lt;script&gt;&quot;&amp; ") && !picture.contains("<script"));
    }
}
