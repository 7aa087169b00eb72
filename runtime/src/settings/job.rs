//! What a job is called where it shares a coordinator with others.

use super::env::Vars;
use super::form::{Form, Reading, utf8};
use super::table::{JOB, PMIX_NAMESPACE, PRTE_JOB, RUN_ID, SLURM_JOB, SLURM_STEP};
use crate::error::Error;
use std::ffi::OsStr;

/// Longest name that a user may give.
const NAME_BYTES: usize = 64;
/// Longest name of a launcher's, so that what stands in front of it fits as well.
const LABEL_BYTES: usize = 48;
/// What torchrun calls a job that was given no name.
const NO_RUN_ID: &str = "none";

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

/// A name that a user gives to a job.
#[derive(Debug)]
pub(super) struct JobName;

impl Form<String> for JobName {
    fn read(&self, text: &OsStr) -> Result<Reading<String>, String> {
        let text = utf8(text);
        if text.is_empty() || text.len() > NAME_BYTES || !text.bytes().all(is_plain) {
            return Err(format!("a name of 1 to {NAME_BYTES} letters, digits, `-`, `.` and `_`"));
        }
        Ok(Reading::Value(text.into()))
    }

    fn allowed(&self) -> String {
        format!("1 to {NAME_BYTES} letters, digits, `-`, `.`, `_`")
    }
}

/// A name that a launcher has given, whatever it holds: it is not the user's to change.
#[derive(Debug)]
pub(super) struct Label;

impl Form<String> for Label {
    fn read(&self, text: &OsStr) -> Result<Reading<String>, String> {
        let bytes = text.as_encoded_bytes();
        if bytes.len() <= LABEL_BYTES && bytes.iter().all(|byte| is_plain(*byte)) {
            return Ok(Reading::Value(utf8(text).into()));
        }
        // Names that differ only in what is left out stay different by the sum behind them (FNV-1a).
        let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let plain = bytes.iter().take(LABEL_BYTES - 17);
        let plain: String = plain.map(|byte| if is_plain(*byte) { char::from(*byte) } else { '_' }).collect();
        let label = format!("{plain}-{sum:016x}");
        Ok(Reading::Near(label.clone(), format!("{label} is used, of 1 to {LABEL_BYTES} plain bytes")))
    }

    fn allowed(&self) -> String {
        "any text".into()
    }
}

/// The same of torchrun, where one word stands for no name.
#[derive(Debug)]
pub(super) struct RunId;

impl Form<String> for RunId {
    fn read(&self, text: &OsStr) -> Result<Reading<String>, String> {
        if text == NO_RUN_ID {
            return Ok(Reading::Default("the job was given no --rdzv-id".into()));
        }
        Label.read(text)
    }

    fn allowed(&self) -> String {
        format!("any text; `{NO_RUN_ID}` counts as not set")
    }
}

/// The name of this job: the user's, or else that of the launcher that has one, in the order of the table.
///
/// It has at most 64 bytes.
///
/// # Errors
/// [`Error::Setting`] for a bad name in `RINGCCL_JOB`.
pub fn job_name(vars: &Vars) -> Result<Option<String>, Error> {
    if let Some(name) = JOB.get(vars)? {
        return Ok(Some(name));
    }
    if let Some(id) = RUN_ID.get(vars)? {
        return Ok(Some(format!("torchrun-{id}")));
    }
    if let Some(job) = SLURM_JOB.get(vars)? {
        let step = SLURM_STEP.get(vars)?.map_or(String::new(), |step| format!(".{step}"));
        return Ok(Some(format!("slurm-{job}{step}")));
    }
    let mpi = PMIX_NAMESPACE.get(vars)?.map_or_else(|| PRTE_JOB.get(vars), |name| Ok(Some(name)))?;
    Ok(mpi.map(|name| format!("mpi-{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    fn name(pairs: &[(&str, &str)]) -> Option<String> {
        job_name(&Vars::from_pairs(pairs.iter().copied())).unwrap()
    }

    #[test]
    fn the_first_that_has_a_name_gives_it() {
        // Ours, torchrun, Slurm with its step, PMIx, Open MPI; each line takes away what counted before.
        let all = [
            ("RINGCCL_JOB", "mine"),
            ("TORCHELASTIC_RUN_ID", "run"),
            ("SLURM_JOB_ID", "12"),
            ("SLURM_STEP_ID", "3"),
            ("PMIX_NAMESPACE", "prterun-host-7@1"),
            ("OMPI_MCA_ess_base_jobid", "99"),
        ];
        let expected = [
            "mine",
            "torchrun-run",
            "slurm-12.3",
            "mpi-prterun-host-7_1-",
            "mpi-prterun-host-7_1-",
            "mpi-99",
        ];
        for (from, expected) in expected.iter().enumerate() {
            let name = name(&all[from..]).unwrap();
            // A step without its job names nothing.
            assert!(name.starts_with(expected), "{from}: {name}");
        }
        assert_eq!(name(&all[3..4]), None);
        assert_eq!(name(&[]), None);
        assert_eq!(name(&all[2..3]).as_deref(), Some("slurm-12"));
    }

    #[test]
    fn torchrun_says_none_for_no_name() {
        // Its default is no name, and leaves the word to Slurm.
        assert_eq!(name(&[("TORCHELASTIC_RUN_ID", "none")]), None);
        let pairs = [("TORCHELASTIC_RUN_ID", "none"), ("SLURM_JOB_ID", "5")];
        assert_eq!(name(&pairs).as_deref(), Some("slurm-5"));
    }

    #[test]
    fn names_of_users_are_checked() {
        // Both ends of the length, and every kind of letter that may not stand in it.
        let read = |text: &str| JobName.read(text.as_ref());
        assert!(read("a").is_ok() && read(&"x".repeat(64)).is_ok());
        for bad in ["", "a b", "a/b", "a\n", "\u{e9}", &"x".repeat(65)] {
            assert!(read(bad).unwrap_err().starts_with("a name of 1 to 64 letters"), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn names_of_launchers_are_bounded_and_stay_different(
            a in proptest::collection::vec(1_u8.., 1..200),
            b in proptest::collection::vec(1_u8.., 1..200),
        ) {
            let read = |bytes: &[u8]| match Label.read(OsStr::from_bytes(bytes)) {
                Ok(Reading::Value(text) | Reading::Near(text, _)) => text,
                other => panic!("{other:?}"),
            };
            let (first, second) = (read(&a), read(&b));
            prop_assert!(!first.is_empty() && first.len() <= LABEL_BYTES && first.bytes().all(is_plain));
            prop_assert_eq!(a == b, first == second);
        }
    }
}
