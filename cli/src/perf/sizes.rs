//! Sizes to measure, and whether the machine can hold them.

use super::{Args, Spec};
use anyhow::{Result, bail, ensure};
use ringccl::DType;

/// A number of bytes with an optional K, M or G, or a KB-like suffix.
pub(crate) fn bytes(option: &str, text: &str) -> Result<u64> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.trim_end_matches("IB").trim_end_matches('B');
    let (number, shift) = match digits.strip_suffix(['K', 'M', 'G']) {
        Some(number) => (number, 10 * (1 + "KMG".find(&digits[number.len()..]).unwrap_or(0))),
        None => (digits, 0),
    };
    let value = number.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    value.ok_or_else(|| anyhow::anyhow!("{option} {text}: a size is a whole number of bytes, or of K, M, G"))
}

/// The sizes from smallest to largest, each a whole number of elements.
pub(super) fn list(args: &Args, dtype: DType) -> Result<Vec<u64>> {
    let element = dtype.size_bytes() as u64;
    let (min, max) = (bytes("-b", &args.min_bytes)?, bytes("-e", &args.max_bytes)?);
    ensure!(
        min >= element,
        "-b {}: the smallest size is one element, {element} bytes of {dtype}",
        args.min_bytes
    );
    ensure!(min <= max, "-b {} is above -e {}; exchange them", args.min_bytes, args.max_bytes);
    ensure!(max <= 1 << 44, "-e {}: sizes end at 16 TiB", args.max_bytes);
    let step = args.step_bytes.as_deref().map(|text| bytes("-i", text)).transpose()?;
    if step == Some(0) {
        bail!("-i 0: the increment is at least 1 byte");
    }
    let factor = args.step_factor.unwrap_or(2);
    ensure!(factor >= 2, "-f {factor}: the factor is at least 2");
    let mut sizes = Vec::new();
    let mut size = min;
    while size <= max {
        let whole = size / element * element;
        if sizes.last() != Some(&whole) {
            sizes.push(whole);
        }
        ensure!(sizes.len() <= 100_000, "more than 100,000 sizes; take a larger -i");
        size = step.map_or(size * factor, |step| size + step);
    }
    Ok(sizes)
}

/// Refuses what the machine's memory cannot hold, with the arithmetic.
pub(super) fn ensure_memory(spec: &Spec) -> Result<()> {
    let largest = spec.sizes.last().copied().unwrap_or(0);
    // Send and receive buffer; in place uses one of them.
    let each = spec.kind.memory(spec.ranks, largest);
    let needed = each * u64::from(spec.ranks);
    let Some(available) = available_bytes() else { return Ok(()) };
    ensure!(
        needed <= available,
        "{} ranks x {each} bytes of buffers = {needed} bytes, but {available} are available; use at most -e {}M",
        spec.ranks,
        (u128::from(largest) * u128::from(available) / u128::from(needed)) >> 20,
    );
    Ok(())
}

/// Memory that can be had: the machine's, or what the control group leaves.
fn available_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? << 10;
    let number = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let group = number("memory.max").map(|max| max.saturating_sub(number("memory.current").unwrap_or(0)));
    Some(group.map_or(machine, |group| group.min(machine)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Suffixes are powers of 1024; anything else is refused with the option's name.
    #[test]
    fn sizes_are_read() {
        for (text, value) in
            [("8", 8), ("1K", 1024), ("64k", 65536), ("2M", 2 << 20), ("1G", 1 << 30), ("4KiB", 4096)]
        {
            assert_eq!(bytes("-b", text).unwrap(), value, "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "8T", "99999999999999999999", "99999999999999G"] {
            assert!(bytes("-b", text).unwrap_err().to_string().contains("-b"), "{text}");
        }
    }
}
