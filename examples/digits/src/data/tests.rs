use std::io::Write;

use super::{BUILT_IN, Dataset, PIXELS};
use crate::error::Error;
use crate::hash::Fnv;
use crate::rng::Rng;

fn line(label: &str) -> String {
    format!("{}{label}\n", "7,".repeat(PIXELS))
}

#[test]
fn committed_file_is_the_published_one() {
    // Proves that the committed data are complete and unchanged: rows, classes, sums over all pixels.
    let set = Dataset::built_in().unwrap();
    assert_eq!(set.len(), 1797);
    let mut classes = [0; 10];
    let (mut sum, mut weighted) = (0u64, 0u64);
    for index in 0..set.len() {
        classes[usize::from(set.label(index))] += 1;
        for (place, pixel) in set.image(index).iter().enumerate() {
            assert!((0.0..=1.0).contains(pixel));
            let value = (pixel * 16.0) as u64;
            sum += value;
            weighted += value * (place as u64 + 1) * (index as u64 + 1);
        }
    }
    assert_eq!(classes, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    assert_eq!((sum, weighted), (561_718, 16_337_198_609));
    assert_eq!(BUILT_IN.len(), 264_712);
    assert_eq!(Fnv::default().bytes(BUILT_IN).finish(), 0x0b6d_b7d4_442b_bc5d);
}

#[test]
fn split_is_fixed_and_complete() {
    // Proves that the split is 1,437 to 360, the same each time, and holds every image once.
    let set = Dataset::built_in().unwrap();
    let split = set.split().unwrap();
    assert_eq!((split.train.len(), split.test.len()), (1437, 360));
    assert_eq!(split.test, set.split().unwrap().test);
    let rows = |set: &Dataset| {
        let mut rows: Vec<_> = (0..set.len())
            .map(|i| (set.image(i).iter().map(|p| p.to_bits()).collect::<Vec<_>>(), set.label(i)))
            .collect();
        rows.sort();
        rows
    };
    let mut both = rows(&split.train);
    both.extend(rows(&split.test));
    both.sort();
    assert_eq!(both, rows(&set));
}

#[test]
fn bad_fields_are_named() {
    // Proves that each kind of damage is refused with file, line and field.
    let good = line("3");
    let long = format!("{},1\n", "x".repeat(100));
    let cases: [(String, usize, usize, &str); 10] = [
        (line("10"), 2, 65, "`10`"),
        (line(""), 2, 65, "``"),
        (line("-1"), 2, 65, "`-1`"),
        (good.replacen("7,", "17,", 1), 2, 1, "`17`"),
        (good.replacen("7,7", "7,5.0", 1), 2, 2, "`5.0`"),
        (good.replacen("7,7", "7, 7", 1), 2, 2, "` 7`"),
        ("1,2,3\n".into(), 2, 4, "the end of the line"),
        (line("3,4"), 2, 66, "`4`"),
        ("\n".into(), 2, 1, "``"),
        (long, 2, 1, "`xxxxxxxxxxxxxxxxxxxx` and more"),
    ];
    for (bad, line_number, field_number, text) in cases {
        match Dataset::parse("some.csv", format!("{good}{bad}{good}").as_bytes()) {
            Err(Error::DataField { file, line, field, found, .. }) => {
                assert_eq!(
                    (file.as_str(), line, field, found.as_str()),
                    ("some.csv", line_number, field_number, text)
                );
            }
            other => panic!("{bad:?} gave {other:?}"),
        }
    }
}

#[test]
fn line_ends_do_not_matter() {
    // Proves that CRLF and a missing last line end are read like the published form.
    let expected = Dataset::parse("a", format!("{}{}", line("3"), line("4")).as_bytes()).unwrap();
    assert_eq!(expected.len(), 2);
    for text in
        [format!("{}{}", line("3"), line("4").trim_end()), (line("3") + &line("4")).replace('\n', "\r\n")]
    {
        assert_eq!(Dataset::parse("a", text.as_bytes()).unwrap(), expected);
    }
}

#[test]
fn unusable_files_are_refused() {
    // Proves that empty, missing, too small and non-regular files are errors that say so.
    assert!(matches!(Dataset::parse("a", b""), Err(Error::DataFile { .. })));
    assert!(matches!(Dataset::parse("a", b"\n"), Err(Error::DataFile { .. })));
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(Dataset::load(folder.path()), Err(Error::Read { .. })));
    assert!(matches!(Dataset::load(&folder.path().join("none.csv")), Err(Error::Read { .. })));
    let small = Dataset::parse("a", line("3").repeat(4).as_bytes()).unwrap();
    assert!(matches!(small.split(), Err(Error::Option { option: "--data", .. })));
}

#[test]
fn files_are_read_as_the_built_in_data() {
    // Proves that a file given with --data and the built-in copy go through the same reader.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(BUILT_IN).unwrap();
    let loaded = Dataset::load(file.path()).unwrap();
    assert_eq!(loaded.fingerprint(), Dataset::built_in().unwrap().fingerprint());
}

#[test]
fn damaged_bytes_never_panic() {
    // Proves that a file with any byte replaced is read or refused, never worse (seed 1, 20,000 files).
    let mut rng = Rng::new(1);
    let original = line("3").repeat(3).into_bytes();
    for _ in 0..20_000 {
        let mut text = original.clone();
        for _ in 0..=rng.below(3) {
            let place = rng.below(text.len());
            text[place] = rng.next_u64() as u8;
        }
        text.truncate(rng.below(text.len() + 1));
        if let Ok(set) = Dataset::parse("a", &text) {
            assert_eq!(set.pixels.len(), set.len() * PIXELS);
        }
    }
}
