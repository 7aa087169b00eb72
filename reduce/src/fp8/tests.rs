//! The conversions against the definition of the formats, and against a table made elsewhere.

use super::*;
use half::f16;

/// The table: all values as another implementation of the formats gives them.
const TABLE: &str = include_str!("../../testdata/fp8_values.txt");

/// The value of a code, written down from the definition: sign, exponent field, fraction field.
fn defined(format: &Format, code: u8) -> f64 {
    let (exponent, fraction) = (code >> format.fraction_bits & (0x7f >> format.fraction_bits), code & 0x7f);
    let steps = f64::from(1u32 << format.fraction_bits);
    let fraction = f64::from(fraction % (1 << format.fraction_bits)) / steps;
    let bias = format.bias as i32;
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(1 - bias),
        _ => (1.0 + fraction) * 2f64.powi(i32::from(exponent) - bias),
    };
    let magnitude = match (format.infinity, exponent, code & 0x7f) {
        (None, _, 0x7f) => f64::NAN,
        (Some(_), 31, 0x7c) => f64::INFINITY,
        (Some(_), 31, _) => f64::NAN,
        _ => magnitude,
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The code of `value` by looking at all finite ones.
fn nearest(format: &Format, value: f32) -> u8 {
    if value.is_nan() {
        return 0x7f;
    }
    let finite = (0..0x80u8).filter(|code| defined(format, *code).is_finite());
    let distance = |code: &u8| (defined(format, *code) - f64::from(value.abs())).abs();
    // Of two at the same distance, the even one. Beyond the largest number, where distances are no longer exact, it is
    // the answer.
    let best = finite
        .min_by(|a, b| {
            let closer = distance(a).total_cmp(&distance(b));
            closer.then((a & 1).cmp(&(b & 1)))
        })
        .unwrap();
    let beyond = f64::from(value.abs()) >= defined(format, format.largest);
    let best = if beyond { format.largest } else { best };
    if value.is_sign_negative() { best | 0x80 } else { best }
}

fn formats() -> [(&'static str, Format); 2] {
    [("e4m3", E4M3), ("e5m2", E5M2)]
}

#[test]
fn all_codes_have_the_value_of_the_definition_and_the_table() {
    // Proves the value of each of the 256 codes of both formats, twice over.
    for (name, format) in formats() {
        let rows: Vec<&str> = TABLE.lines().filter_map(|line| line.strip_prefix(name)).collect();
        assert_eq!(rows.len(), 256, "{name}");
        for (code, row) in (0..=255u8).zip(rows) {
            let [index, bits] = row.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{row}") };
            assert_eq!(u8::from_str_radix(index, 16), Ok(code));
            let table = f32::from_bits(u32::from_str_radix(bits, 16).unwrap());
            let value = format.decode(code);
            let same = |other: f64| (value.is_nan() && other.is_nan()) || f64::from(value) == other;
            assert!(same(f64::from(table)), "{name} {code:#x}: {value}, the table {table}");
            assert!(same(defined(&format, code)), "{name} {code:#x}: {value}");
            assert!(value.is_nan() || value.is_sign_negative() == (code >= 0x80), "{name} {code:#x}");
        }
    }
    for code in 0..=255 {
        assert_eq!(F8E4M3::from_bits(code).is_nan(), F8E4M3::from_bits(code).to_f32().is_nan());
        assert_eq!(F8E5M2::from_bits(code).is_nan(), F8E5M2::from_bits(code).to_f32().is_nan());
    }
}

#[test]
fn numbers_come_back_and_the_rest_saturates() {
    // Proves that finite numbers survive the way to binary32 and back, that infinities saturate and that all NaNs
    // become one.
    for (name, format) in formats() {
        for code in 0..=255u8 {
            let value = format.decode(code);
            let want = match code & 0x7f {
                _ if value.is_nan() => 0x7f,
                _ if value.is_infinite() => code & 0x80 | format.largest,
                _ => code,
            };
            assert_eq!(format.encode(value), want, "{name} {code:#x}");
        }
    }
    assert_eq!(F8E4M3::from_f32(-f32::INFINITY).to_f32(), -448.0);
    assert_eq!(F8E5M2::from_f32(f32::INFINITY).to_f32(), 57344.0);
    assert_eq!(F8E5M2::from_f32(-1e30).to_f32(), -57344.0);
    assert_eq!(F8E4M3::from_f32(-f32::NAN).to_bits(), 0x7f);
}

#[test]
fn conversions_find_the_nearest_number() {
    // Proves the rounding over all binary16 values, and over binary32 values around each midpoint between numbers.
    for (name, format) in formats() {
        let check = |value: f32| {
            let (got, want) = (format.encode(value), nearest(&format, value));
            assert_eq!(got, want, "{name}: {value:e} ({:#x})", value.to_bits());
        };
        (0..=u16::MAX).for_each(|bits| check(f16::from_bits(bits).to_f32()));
        for code in 0..format.largest {
            let (below, above) = (format.decode(code), format.decode(code + 1));
            for start in [below, (below + above) / 2.0, above] {
                for bits in start.to_bits().saturating_sub(3)..=start.to_bits() + 3 {
                    check(f32::from_bits(bits));
                    check(-f32::from_bits(bits));
                }
            }
        }
        // Every exponent and the upper fraction bits, with what is below them at its ends.
        for upper in (0..1u32 << 16).step_by(7) {
            for lower in [0, 1, 0x7fff, 0x8000, 0xffff] {
                check(f32::from_bits(upper << 16 | lower));
            }
        }
    }
}
