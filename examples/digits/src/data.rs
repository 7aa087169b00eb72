//! The handwritten digits: reading, checking and splitting them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use crate::hash::Fnv;
use crate::rng::Rng;

/// Pixels of one image: 8 rows of 8.
pub const PIXELS: usize = 64;
/// Number of classes: the digits 0 to 9.
pub const CLASSES: usize = 10;
/// Highest pixel value of the data set.
const PIXEL_MAX: u8 = 16;
/// A data file beyond this size is refused before it is held in memory.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The split must not change with the seed of a training run, so that accuracies can be compared.
const SPLIT_SEED: u64 = 1797;

static BUILT_IN: &[u8] = include_bytes!("../data/digits.csv");

/// Images with their labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    pixels: Vec<f32>,
    labels: Vec<u8>,
}

/// A data set cut in two.
#[derive(Debug, Clone)]
pub struct Split {
    /// What the model is fitted to.
    pub train: Dataset,
    /// What its accuracy is measured on.
    pub test: Dataset,
}

impl Dataset {
    /// The data set that is part of this program: 1,797 images.
    ///
    /// # Errors
    /// [`Error::DataField`] or [`Error::DataFile`] if this build was made from a damaged copy.
    pub fn built_in() -> Result<Self> {
        Self::parse("data/digits.csv (built in)", BUILT_IN)
    }

    /// Reads a file with lines of 64 pixels (0 to 16) and a label (0 to 9), separated by commas.
    ///
    /// # Errors
    /// [`Error::Read`] if it is not a readable regular file, [`Error::DataFile`] if it is empty or larger
    /// than 64 MiB, [`Error::DataField`] with line and field if its content is something else.
    pub fn load(path: &Path) -> Result<Self> {
        let failed = |source| Error::Read { file: path.to_path_buf(), source };
        // Looked at before it is opened: opening a FIFO would wait for its writer.
        if !path.metadata().map_err(failed)?.is_file() {
            return Err(failed(std::io::Error::other("not a regular file")));
        }
        let mut text = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
        let name = path.display().to_string();
        if text.len() as u64 > FILE_BYTES_MAX {
            let found = format!("more than {FILE_BYTES_MAX} bytes");
            return Err(Error::DataFile { file: name, found, expected: "a smaller file".into() });
        }
        Self::parse(&name, &text)
    }

    /// Reads `text`; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`Dataset::load`].
    pub fn parse(name: &str, text: &[u8]) -> Result<Self> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if text.is_empty() {
            let expected = format!("lines of {PIXELS} pixels and a label");
            return Err(Error::DataFile { file: name.into(), found: "no data".into(), expected });
        }
        let mut set = Self { pixels: Vec::new(), labels: Vec::new() };
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            set.push_line(line.strip_suffix(b"\r").unwrap_or(line)).map_err(|bad| Error::DataField {
                file: name.into(),
                line: index + 1,
                field: bad.field,
                found: bad.found,
                expected: bad.expected,
            })?;
        }
        Ok(set)
    }

    fn push_line(&mut self, line: &[u8]) -> std::result::Result<(), BadField> {
        let mut fields = line.split(|byte| *byte == b',');
        for field in 1..=PIXELS + 1 {
            let (what, max) =
                if field <= PIXELS { ("a pixel", PIXEL_MAX) } else { ("a label", CLASSES as u8 - 1) };
            let bad =
                |found| BadField { field, found, expected: format!("{what}, an integer from 0 to {max}") };
            let text = fields.next().ok_or_else(|| bad("the end of the line".into()))?;
            let value = small_number(text).filter(|value| *value <= max).ok_or_else(|| bad(shown(text)))?;
            if field <= PIXELS {
                self.pixels.push(f32::from(value) / f32::from(PIXEL_MAX));
            } else {
                self.labels.push(value);
            }
        }
        match fields.next() {
            None => Ok(()),
            Some(text) => Err(BadField {
                field: PIXELS + 2,
                found: shown(text),
                expected: "the end of the line".into(),
            }),
        }
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of one image, row by row, scaled to 0.0 ..= 1.0.
    ///
    /// # Panics
    /// If there is no image `index`.
    pub fn image(&self, index: usize) -> &[f32] {
        &self.pixels[index * PIXELS..(index + 1) * PIXELS]
    }

    /// The digit that image `index` shows.
    ///
    /// # Panics
    /// If there is no image `index`.
    pub fn label(&self, index: usize) -> u8 {
        self.labels[index]
    }

    /// A hash of all pixels and labels, by which ranks find out that they read different files.
    pub fn fingerprint(&self) -> u64 {
        Fnv::default().floats(&self.pixels).bytes(&self.labels).finish()
    }

    /// Cuts the set in a training part of four fifths and a test part, always in the same way (1,797 images:
    /// 1,437 and 360).
    ///
    /// # Errors
    /// [`Error::Option`] if there are fewer than 5 images.
    pub fn split(&self) -> Result<Split> {
        if self.len() < 5 {
            let value = format!("a file of {} images", self.len());
            return Err(Error::Option { option: "--data", value, remedy: "at least 5 are needed".into() });
        }
        let order = Rng::new(SPLIT_SEED).permutation(self.len());
        let (test, train) = order.split_at(self.len().div_ceil(5));
        Ok(Split { train: self.pick(train), test: self.pick(test) })
    }

    fn pick(&self, indices: &[usize]) -> Self {
        Self {
            pixels: indices.iter().flat_map(|index| self.image(*index)).copied().collect(),
            labels: indices.iter().map(|index| self.labels[*index]).collect(),
        }
    }
}

/// What is wrong with a line.
struct BadField {
    field: usize,
    found: String,
    expected: String,
}

/// The value of one or two decimal digits.
fn small_number(text: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| byte - b'0');
    match text {
        [ones] => digit(ones),
        [tens, ones] => Some(digit(tens)? * 10 + digit(ones)?),
        _ => None,
    }
}

/// A field for an error message: escaped, and cut because a hostile line may be the whole file.
fn shown(text: &[u8]) -> String {
    const MAX: usize = 20;
    let cut = text.get(..MAX).unwrap_or(text);
    format!("`{}`{}", cut.escape_ascii(), if text.len() > MAX { " and more" } else { "" })
}

#[cfg(test)]
mod tests;
