//! Medians and their printing.

/// The value that `share` (0 to 1) of the values do not exceed, by nearest rank; `None` of no values.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The middle value, or the mean of the two in the middle; `None` of no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let n = sorted.len();
    if n == 0 { None } else { Some((sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0) }
}

/// The mean; `None` of no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() { None } else { Some(values.iter().sum::<f64>() / values.len() as f64) }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Three significant digits, or whole numbers; `-` where there is no value.
pub fn short(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(x) if x < 0.995 => format!("{x:.3}"),
        Some(x) if x < 9.995 => format!("{x:.2}"),
        Some(x) if x < 99.95 => format!("{x:.1}"),
        Some(x) => format!("{x:.0}"),
    }
}

/// `x` in thousandths: a nanosecond of a time in microseconds.
pub fn round3(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}

/// A number of bytes, as `8`, `2K`, `64M` or `1G` (powers of 1024).
///
/// # Errors
/// What a size looks like, for anything else.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let shift = match text.bytes().last() {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("`{text}` is not a size: give bytes, such as 8, 2K, 64M or 1G"))
}

/// Bytes as [`parse_bytes`] reads them, in the largest unit that divides them.
pub fn bytes_name(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or(bytes.to_string(), |(shift, name)| format!("{}{name}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Medians and quantiles of none, one, an even and an odd number of values, in any order.
    #[test]
    fn middles() {
        assert_eq!((median(&[]), quantile(&[], 0.99), mean(&[])), (None, None, None));
        assert_eq!((median(&[3.0]), quantile(&[3.0], 0.99)), (Some(3.0), Some(3.0)));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!((quantile(&hundred, 0.99), quantile(&hundred, 0.0)), (Some(99.0), Some(1.0)));
        assert_eq!(mean(&hundred), Some(50.5));
    }

    /// Sizes are read as they are written, and what is none is refused.
    #[test]
    fn sizes() {
        for (text, bytes) in [("8", 8), ("2K", 2048), ("64M", 64 << 20), ("1G", 1 << 30), ("1536", 1536)] {
            assert_eq!(parse_bytes(text), Ok(bytes));
        }
        assert_eq!(bytes_name(2048), "2K");
        assert_eq!(bytes_name(1537), "1537");
        assert_eq!(bytes_name(0), "0");
        for text in ["", "K", "-8", "1.5M", "8k", "99999999999G", "8Ä"] {
            assert!(parse_bytes(text).unwrap_err().contains("is not a size"), "{text}");
        }
    }

    /// Numbers keep about three digits, also where rounding adds one.
    #[test]
    fn short_numbers() {
        let text = |x| short(Some(x));
        assert_eq!(
            [text(0.1234), text(0.9996), text(9.996), text(99.96), text(1234.5)],
            ["0.123", "1.00", "10.0", "100", "1234"]
        );
        assert_eq!(short(None), "-");
    }
}
