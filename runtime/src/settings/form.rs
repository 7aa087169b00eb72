//! What the text of a variable may be, and what it becomes.

use crate::fail::FailPoint;
use crate::model::Pace;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How a variable's text is read as a `T`.
pub trait Form<T>: Sync {
    /// Reads the text.
    ///
    /// # Errors
    /// What would be right, to stand behind "not".
    fn read(&self, text: &OsStr) -> Result<Reading<T>, String>;

    /// What the text may be, as the page of settings says it.
    fn allowed(&self) -> String;
}

/// A text that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    /// This value.
    Value(T),
    /// A value near the one that was asked for, and why it is not that one.
    Near(T, String),
    /// A legal wish that this program has nothing for: as if the variable were not set, and why.
    Default(String),
}

impl<T> Reading<T> {
    /// The value with another type; notes stay.
    pub(super) fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Value(value) => Reading::Value(f(value)),
            Self::Near(value, note) => Reading::Near(f(value), note),
            Self::Default(note) => Reading::Default(note),
        }
    }
}

/// A variable's text for a message: one line of bounded length, whatever the text holds.
pub fn shown(text: &OsStr) -> String {
    const LONGEST: usize = 120;
    let mut shown = String::new();
    for (count, letter) in text.to_string_lossy().chars().enumerate() {
        if count == LONGEST {
            shown.push_str("...");
            break;
        }
        if letter.is_control() {
            let _ = write!(shown, "{}", letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// The text as UTF-8, or nothing, which no number and no name equals.
pub(super) fn utf8(text: &OsStr) -> &str {
    text.to_str().unwrap_or_default()
}

/// A whole number of a range.
#[derive(Debug)]
pub(super) struct Number {
    pub(super) min: u64,
    pub(super) max: u64,
    /// The number is a multiple of this.
    pub(super) step: u64,
}

impl Number {
    fn number(&self, text: &OsStr) -> Result<u64, String> {
        let number = utf8(text).parse::<u64>().ok().filter(|n| (self.min..=self.max).contains(n));
        let number = number.ok_or_else(|| format!("a whole number from {} to {}", self.min, self.max))?;
        if !number.is_multiple_of(self.step) {
            return Err(format!("a multiple of {}", self.step));
        }
        Ok(number)
    }

    fn range(&self) -> String {
        let multiple = if self.step == 1 { String::new() } else { format!(", a multiple of {}", self.step) };
        format!("{} to {}{multiple}", self.min, self.max)
    }
}

impl Form<u64> for Number {
    fn read(&self, text: &OsStr) -> Result<Reading<u64>, String> {
        self.number(text).map(Reading::Value)
    }

    fn allowed(&self) -> String {
        self.range()
    }
}

impl Form<u32> for Number {
    fn read(&self, text: &OsStr) -> Result<Reading<u32>, String> {
        // Every table entry of this type has a range within u32.
        self.number(text).map(|number| Reading::Value(number.min(u32::MAX.into()) as u32))
    }

    fn allowed(&self) -> String {
        self.range()
    }
}

impl Form<Duration> for Number {
    fn read(&self, text: &OsStr) -> Result<Reading<Duration>, String> {
        self.number(text).map(|ms| Reading::Value(Duration::from_millis(ms)))
    }

    fn allowed(&self) -> String {
        self.range()
    }
}

/// Any positive number: those outside of a range, or between its steps, become the next smaller one inside.
///
/// For variables of other programs, whose ranges are wider than ours.
#[derive(Debug)]
pub(super) struct Fitted(pub(super) Number);

impl Form<u64> for Fitted {
    fn read(&self, text: &OsStr) -> Result<Reading<u64>, String> {
        let digits = utf8(text);
        let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        // More digits than u64 holds are a large number all the same.
        let asked = if all_digits { digits.parse().unwrap_or(u64::MAX) } else { 0 };
        if asked == 0 {
            return Err("a whole number from 1".into());
        }
        let Number { min, max, step } = self.0;
        let number = (asked.clamp(min, max) / step * step).max(min);
        if number == asked {
            return Ok(Reading::Value(number));
        }
        Ok(Reading::Near(number, format!("{number} is used, of {}", self.0.range())))
    }

    fn allowed(&self) -> String {
        "from 1".into()
    }
}

impl Form<u32> for Fitted {
    fn read(&self, text: &OsStr) -> Result<Reading<u32>, String> {
        let read: Reading<u64> = self.read(text)?;
        Ok(read.map(|number| number.min(u32::MAX.into()) as u32))
    }

    fn allowed(&self) -> String {
        "from 1".into()
    }
}

/// One of a list of names, in any case.
#[derive(Debug)]
pub(super) struct OneOf<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + Sync> Form<T> for OneOf<T> {
    fn read(&self, text: &OsStr) -> Result<Reading<T>, String> {
        let found = self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case(utf8(text)));
        let names = || self.0.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        found.map(|(_, value)| Reading::Value(*value)).ok_or_else(|| format!("one of {}", names()))
    }

    fn allowed(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|(name, _)| format!("`{name}`")).collect();
        format!("{}, in any case", names.join(", "))
    }
}

/// Any text.
#[derive(Debug)]
pub(super) struct Text(pub(super) &'static str);

impl Form<String> for Text {
    fn read(&self, text: &OsStr) -> Result<Reading<String>, String> {
        let text = text.to_str().ok_or_else(|| format!("{} in UTF-8", self.0))?;
        Ok(Reading::Value(text.into()))
    }

    fn allowed(&self) -> String {
        self.0.into()
    }
}

/// A fail point, checked and passed on as text.
#[derive(Debug)]
pub(super) struct FailText;

impl Form<String> for FailText {
    fn read(&self, text: &OsStr) -> Result<Reading<String>, String> {
        let text = utf8(text);
        FailPoint::parse(text).map(|_| Reading::Value(text.into()))
    }

    fn allowed(&self) -> String {
        "`POINT[@TIME]:kill`, `POINT[@TIME]:stop`".into()
    }
}

/// A path of the file system; existence is checked by who uses it.
#[derive(Debug)]
pub(super) struct File(pub(super) &'static str);

impl Form<PathBuf> for File {
    fn read(&self, text: &OsStr) -> Result<Reading<PathBuf>, String> {
        if text.as_encoded_bytes().contains(&0) {
            return Err(format!("{} without a zero byte", self.0));
        }
        Ok(Reading::Value(text.into()))
    }

    fn allowed(&self) -> String {
        self.0.into()
    }
}

/// `model` or `model:FACTOR`.
#[derive(Debug)]
pub(super) struct Paces;

impl Form<Pace> for Paces {
    fn read(&self, text: &OsStr) -> Result<Reading<Pace>, String> {
        let wrong =
            || "model, or model:FACTOR with a factor from 0.001 to 1000000, such as model:0.5".to_owned();
        let text = utf8(text);
        let (name, factor) = text.split_once(':').unwrap_or((text, "1"));
        let factor: f64 = factor.trim().parse().map_err(|_| wrong())?;
        let fits = name.trim().eq_ignore_ascii_case("model") && (0.001..=1e6).contains(&factor);
        let thousandths = (factor * 1e3).round() as u32;
        if fits { Ok(Reading::Value(Pace { thousandths })) } else { Err(wrong()) }
    }

    fn allowed(&self) -> String {
        "`model`, `model:FACTOR`".into()
    }
}

/// A switch as FakeGPU reads it: `0` and `false` are off, anything else is on.
#[derive(Debug)]
pub(super) struct Switch;

impl Form<bool> for Switch {
    fn read(&self, text: &OsStr) -> Result<Reading<bool>, String> {
        let off = ["0", "false"].iter().any(|name| name.eq_ignore_ascii_case(utf8(text)));
        Ok(Reading::Value(!off))
    }

    fn allowed(&self) -> String {
        "`0`, `false`: off; anything else: on".into()
    }
}
