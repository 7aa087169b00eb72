//! Numbers with units: `400Gb/s`, `50 GB/s`, `25us`.

/// Units of a speed, with what one of them is in 10^9 bits per second; longer names first.
const SPEEDS: [(&str, f64); 14] = [
    ("gbit/s", 1.0),
    ("mbit/s", 1e-3),
    ("tbit/s", 1e3),
    ("gbps", 1.0),
    ("mbps", 1e-3),
    ("tbps", 1e3),
    ("GB/s", 8.0),
    ("MB/s", 8e-3),
    ("TB/s", 8e3),
    ("Gb/s", 1.0),
    ("Mb/s", 1e-3),
    ("Tb/s", 1e3),
    ("G", 1.0),
    ("T", 1e3),
];

/// Units of a time, with what one of them is in microseconds.
const TIMES: [(&str, f64); 5] = [("ns", 1e-3), ("us", 1.0), ("\u{b5}s", 1.0), ("ms", 1e3), ("s", 1e6)];

/// What a number counts, so that its unit may be written behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// 10^9 bits per second.
    GigabitsPerSecond,
    /// 10^9 bytes per second.
    GigabytesPerSecond,
    /// Microseconds.
    Microseconds,
}

impl Unit {
    /// An example for messages.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::GigabitsPerSecond => "`400Gb/s`",
            Self::GigabytesPerSecond => "`48GB/s`",
            Self::Microseconds => "`25us`",
        }
    }

    /// The value of a text in this unit: a number and one of the unit's names, with or without a blank between.
    /// Bytes and bits are told apart by their capital.
    pub(crate) fn read(self, text: &str) -> Option<f64> {
        let text = text.trim();
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, unit) = (text[..end].parse::<f64>().ok()?, text[end..].trim());
        let of = |names: &[(&str, f64)]| {
            let found = names.iter().find(|(name, _)| match name.contains(['B', 'b']) && name.len() == 4 {
                // `GB/s` is not `Gb/s`, but `gbps` may be written in any case.
                true if name.contains('/') => *name == unit,
                _ => name.eq_ignore_ascii_case(unit),
            });
            found.map(|(_, factor)| number * factor)
        };
        match self {
            Self::GigabitsPerSecond => of(&SPEEDS),
            Self::GigabytesPerSecond => of(&SPEEDS).map(|gigabits| gigabits / 8.0),
            Self::Microseconds => of(&TIMES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_in_every_common_form() {
        // Bits and bytes by their capital, blanks or none, and what is no unit.
        for (text, gbps) in [
            ("400Gb/s", 400.0),
            ("50 GB/s", 400.0),
            ("100000Mb/s", 100.0),
            ("0.4Tb/s", 400.0),
            ("25 Gbit/s", 25.0),
            ("200gbps", 200.0),
            ("100G", 100.0),
        ] {
            let read = Unit::GigabitsPerSecond.read(text).unwrap();
            assert!((read - gbps).abs() < 1e-9, "{text}: {read}");
        }
        assert_eq!(Unit::GigabytesPerSecond.read("48GB/s"), Some(48.0));
        for (text, us) in [("25us", 25.0), ("1.5 ms", 1500.0), ("300ns", 0.3), ("2\u{b5}s", 2.0)] {
            assert!((Unit::Microseconds.read(text).unwrap() - us).abs() < 1e-9, "{text}");
        }
        for text in ["400", "400 parsecs", "Gb/s", "-4Gb/s", "1.2.3us", "4us", "gb/s"] {
            assert_eq!(Unit::GigabitsPerSecond.read(text), None, "{text}");
        }
        assert_eq!(Unit::Microseconds.read("4Gb/s"), None);
    }
}
