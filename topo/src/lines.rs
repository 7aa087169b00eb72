//! Where in a file a field stands: an index by indentation, since the YAML reader keeps no places.
//!
//! It follows block style, which is how cluster files are written; what stands inside braces is
//! found by the line of the field around it. A wrong guess costs a line number and nothing else.

use std::collections::HashMap;

/// Lines by field, such as `nodes[0].gpus[1].profile`.
#[derive(Debug, Default)]
pub(crate) struct Lines<'t> {
    /// The lines of the file.
    all: Vec<&'t str>,
    by_field: HashMap<String, usize>,
    /// Lines of keys that stand in one table more than once: all but the first.
    again: HashMap<String, Vec<usize>>,
}

/// Deepest field that is looked for; fields of cluster files are half as deep.
const DEPTH_MAX: usize = 12;

/// One step of the way from the top of the file to the current line.
struct Step {
    indent: usize,
    is_item: bool,
    field: String,
}

impl<'t> Lines<'t> {
    pub(crate) fn of(text: &'t str) -> Self {
        let mut lines = Self { all: text.lines().collect(), ..Self::default() };
        let mut way: Vec<Step> = Vec::new();
        let mut items: HashMap<String, usize> = HashMap::new();
        for (i, line) in text.lines().enumerate() {
            let mut rest = line.trim_start_matches(' ');
            let mut indent = line.len() - rest.len();
            // Dashes may stand before one another and before a key on the same line.
            while let Some(after) = rest.strip_prefix("- ").or_else(|| (rest == "-").then_some("")) {
                way.retain(|step| step.indent < indent || (step.indent == indent && !step.is_item));
                if way.len() >= DEPTH_MAX {
                    break;
                }
                let parent = way.last().map_or("", |step| &step.field);
                let index = items.entry(parent.to_owned()).or_default();
                let field = format!("{parent}[{index}]");
                *index += 1;
                lines.add(&field, i + 1);
                way.push(Step { indent, is_item: true, field });
                let shifted = after.trim_start_matches(' ');
                indent += rest.len() - shifted.len();
                rest = shifted;
            }
            let Some(key) = key(rest) else { continue };
            way.retain(|step| step.indent < indent);
            if way.len() >= DEPTH_MAX {
                continue;
            }
            let parent = way.last().map_or("", |step| &step.field);
            let field = join(parent, key);
            lines.add(&field, i + 1);
            way.push(Step { indent, is_item: false, field });
        }
        lines
    }

    /// The line of the key `field` that stands in its table for the `occurrence`-th time, from 0.
    pub(crate) fn line_of(&self, field: &str, occurrence: usize) -> Option<usize> {
        let again = occurrence.checked_sub(1).and_then(|i| self.again.get(field)?.get(i).copied());
        again.or_else(|| self.line(field))
    }

    /// The line of `field`, or of the nearest field around it.
    pub(crate) fn line(&self, field: &str) -> Option<usize> {
        let mut field = field;
        loop {
            if let Some(&line) = self.by_field.get(field) {
                return Some(line);
            }
            field = &field[..field.rfind(['.', '['])?];
        }
    }

    /// The text of the line on which `field` itself stands.
    pub(crate) fn text_of(&self, field: &str) -> Option<&'t str> {
        self.all.get(self.by_field.get(field)? - 1).copied()
    }

    /// The first line with a name wins: what follows may be text that only looks like a field.
    fn add(&mut self, field: &str, line: usize) {
        let first = *self.by_field.entry(field.to_owned()).or_insert(line);
        if first != line {
            self.again.entry(field.to_owned()).or_default().push(line);
        }
    }
}

/// The field `key` inside of `parent`.
pub(crate) fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

/// The key of a line such as `key: value`, without quotes.
fn key(rest: &str) -> Option<&str> {
    if rest.starts_with(['#', '{', '[', '&', '*', '!', '|', '>']) {
        return None;
    }
    let (key, value) = rest.split_once(':')?;
    let key = key.trim_end().trim_matches(['"', '\'']);
    (!key.is_empty() && (value.is_empty() || value.starts_with([' ', '\t', '\r']))).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_are_found_in_block_style() {
        // The line of every kind of field of a real file.
        let lines = Lines::of(include_str!("../testdata/lab.yaml"));
        let expected = [
            ("version", 1),
            ("cluster.name", 3),
            ("nodes", 5),
            ("nodes[0]", 6),
            ("nodes[0].id", 6),
            ("nodes[0].ranks", 8),
            ("nodes[0].ranks[1]", 8),
            ("nodes[1].gpus[1].profile", 17),
            ("nodes[1].gpus[7].profile", 15),
            ("fabric.inter_node.oversubscription", 27),
            ("fabric.inter_node.colour", 23),
        ];
        for (field, line) in expected {
            assert_eq!(lines.line(field), Some(line), "{field}");
        }
        assert_eq!(lines.line("nothing"), None);
    }

    #[test]
    fn lists_may_stand_under_their_key_or_be_nested() {
        // YAML allows the dash in the column of the key, quotes, comments and dash after dash.
        let text =
            "# a: b\nnodes:\n- id: a\n  'ranks': [0]\n- id: b\nother:\n- - x\n  - y: 1\nurl: http://x\n";
        let lines = Lines::of(text);
        let expected =
            [("nodes[0].ranks", 4), ("nodes[1].id", 5), ("other", 6), ("other[0][1].y", 8), ("url", 9)];
        for (field, line) in expected {
            assert_eq!(lines.line(field), Some(line), "{field}");
        }
        assert_eq!(lines.line("a"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[-: \n\"'#a\u{e4}\\[{]{0,80}", field in "[a.\\[\\]0]{0,9}") {
            let _ = Lines::of(&text).line(&field);
        }
    }
}
