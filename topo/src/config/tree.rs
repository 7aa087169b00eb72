//! A YAML document as a tree of bounded size that keeps what a mapping would drop: keys that come twice.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// Most values of a document once its aliases are written out; ten thousand nodes of eight GPUs take half of them.
pub(crate) const VALUES_MAX: usize = 1_000_000;

/// One value of a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Tree>),
    /// Keys and values in the order of the file, merged ones behind; a key may stand here more than once.
    Table(Vec<(Tree, Tree)>),
    /// A value with a tag of its own, such as `!x`.
    Tagged(String),
}

impl Tree {
    /// The value as a number, if it is one.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::Unsigned(number) => Some(number as f64),
            Self::Signed(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            Self::Text(ref text) => padded(text)?.parse().ok(),
            _ => None,
        }
    }

    /// The value as a text, if it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The value as a whole number from 0, if it is one.
    pub(crate) fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(number) => Some(number),
            Self::Text(ref text) => padded(text)?.parse().ok(),
            _ => None,
        }
    }
}

/// Digits behind a leading zero, such as `007`: FakeGPU and YAML 1.2 read a number, the YAML library a text.
fn padded(text: &str) -> Option<&str> {
    let number = text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    number.then_some(text)
}

/// Reads one value and takes each of its parts from a common budget, so that a few aliases of aliases cannot fill
/// the memory.
#[derive(Clone, Copy)]
pub(crate) struct Seed<'a> {
    pub(crate) budget: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        let Some(left) = self.budget.get().checked_sub(1) else {
            return Err(de::Error::custom(TOO_MANY));
        };
        self.budget.set(left);
        deserializer.deserialize_any(self)
    }
}

/// What the error of an exhausted budget says.
pub(crate) const TOO_MANY: &str = "more than a million values, counting what aliases repeat";

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(truth))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Tree, E> {
        Ok(Tree::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Tree, E> {
        Ok(u64::try_from(number).map_or(Tree::Signed(number), Tree::Unsigned))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Tree, E> {
        Ok(Tree::Float(number as f64))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Tree, E> {
        Ok(Tree::Float(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Tree, E> {
        Ok(Tree::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut table = Vec::new();
        let mut merged = Vec::new();
        while let Some(key) = entries.next_key_seed(self)? {
            let value = entries.next_value_seed(self)?;
            match (&key, value) {
                (Tree::Text(text), Tree::Table(from)) if text == "<<" => merged.push(from),
                (Tree::Text(text), Tree::List(from)) if text == "<<" && from.iter().all(is_table) => {
                    merged.extend(from.into_iter().filter_map(entries_of));
                }
                (_, value) => table.push((key, value)),
            }
        }
        for (key, value) in merged.into_iter().flatten() {
            // A merged table gives only what nobody before it has given. Tables that use merging are small; a large
            // one is cut off here, before the search gets slow.
            if table.len() > MERGED_MAX {
                return Err(de::Error::custom("a table that merges others has too many keys"));
            }
            if !table.iter().any(|(known, _)| *known == key) {
                table.push((key, value));
            }
        }
        Ok(Tree::Table(table))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Tree, A::Error> {
        let (tag, content) = tagged.variant::<String>()?;
        content.newtype_variant::<de::IgnoredAny>()?;
        Ok(Tree::Tagged(tag))
    }
}

/// Most keys of a table that merges others; every table of the format has fewer than ten.
const MERGED_MAX: usize = 1000;

fn is_table(tree: &Tree) -> bool {
    matches!(tree, Tree::Table(_))
}

fn entries_of(tree: Tree) -> Option<Vec<(Tree, Tree)>> {
    match tree {
        Tree::Table(entries) => Some(entries),
        _ => None,
    }
}
