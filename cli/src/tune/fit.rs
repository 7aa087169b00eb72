//! From times to steps: which candidate is taken from which size on.

/// How much faster, as a factor, what follows must be for a change to be worth a step.
pub(super) const CHANGE: f64 = 1.1;

/// The candidate to take at each size: those whose times, as ratios to the best at their sizes, have the least product,
/// where every change of the candidate counts as a factor of [`CHANGE`].
///
/// `times[candidate][size]`; what was not measured is infinite. With `forwards` no candidate follows a later one.
/// Empty where there are no sizes.
pub(super) fn path(times: &[Vec<f64>], forwards: bool) -> Vec<usize> {
    let sizes = times.first().map_or(0, Vec::len);
    let ratio = |candidate: usize, size: usize| {
        let best = times.iter().map(|times| times[size]).fold(f64::INFINITY, f64::min);
        let ratio = times[candidate][size] / best;
        if ratio.is_finite() { ratio.ln() } else { f64::INFINITY }
    };
    // cost[candidate]: of the best way that ends with it; from[size][candidate]: where that way was before.
    let mut cost = vec![0.0; times.len()];
    let mut from = Vec::with_capacity(sizes);
    for size in 0..sizes {
        let way = |to: usize| {
            let allowed = (0..times.len()).filter(|before| !forwards || *before <= to);
            let priced = allowed.map(|before| {
                let change = if before == to || size == 0 { 0.0 } else { CHANGE.ln() };
                (cost[before] + change, before)
            });
            priced.fold((f64::INFINITY, to), |least, way| if way.0 < least.0 { way } else { least })
        };
        let ways: Vec<(f64, usize)> = (0..times.len()).map(way).collect();
        cost = ways.iter().enumerate().map(|(to, (cost, _))| cost + ratio(to, size)).collect();
        from.push(ways.into_iter().map(|(_, before)| before).collect::<Vec<_>>());
    }
    let last = (0..times.len()).min_by(|a, b| cost[*a].total_cmp(&cost[*b]));
    let Some(mut at) = last else { return vec![] };
    let mut path = vec![0; sizes];
    for size in (0..sizes).rev() {
        path[size] = at;
        at = from[size][at];
    }
    path
}

/// A path as steps: each candidate with the last size at which it is taken; the last step has none.
pub(super) fn steps(path: &[usize], sizes: &[u64]) -> Vec<(usize, Option<u64>)> {
    let mut steps: Vec<(usize, Option<u64>)> = Vec::new();
    for (candidate, size) in path.iter().zip(sizes) {
        match steps.last_mut() {
            Some((last, up_to)) if last == candidate => *up_to = Some(*size),
            _ => steps.push((*candidate, Some(*size))),
        }
    }
    if let Some((_, up_to)) = steps.last_mut() {
        *up_to = None;
    }
    steps
}

/// How many times as long as the best a choice takes, in the geometric mean over the sizes.
pub(super) fn loss(times: &[Vec<f64>], chosen: &[usize]) -> f64 {
    let ratio = |(size, candidate): (usize, &usize)| {
        let best = times.iter().map(|times| times[size]).fold(f64::INFINITY, f64::min);
        (times[*candidate][size] / best).ln()
    };
    let sum: f64 = chosen.iter().enumerate().map(ratio).sum();
    (sum / chosen.len().max(1) as f64).exp()
}

/// The middle one of some numbers, or the upper of two.
pub(super) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: f64 = f64::INFINITY;

    /// What is clearly faster is taken where it is; a small gain at one size is not worth two changes.
    #[test]
    fn clear_gains_are_taken() {
        let times = [vec![1.0, 1.0, 1.03, 2.0, 4.0], vec![3.0, 2.0, 1.0, 1.5, 2.0]];
        assert_eq!(path(&times, false), [0, 0, 1, 1, 1]);
        assert_eq!(steps(&[0, 0, 1, 1, 1], &[8, 16, 32, 64, 128]), [(0, Some(16)), (1, None)]);
        let noise = [vec![1.0, 1.0, 1.04, 1.0, 1.0], vec![1.5, 1.5, 1.0, 1.5, 1.5]];
        assert_eq!(path(&noise, false), [0; 5]);
        assert_eq!(steps(&[0; 5], &[8, 16, 32, 64, 128]), [(0, None)]);
    }

    /// What was not measured is not taken, whatever a change costs; forwards, nobody goes back.
    #[test]
    fn limits_are_kept() {
        let times = [vec![1.0, NEVER, 1.0], vec![1.01, 1.0, 2.0]];
        assert_eq!(path(&times, false), [1, 1, 0]);
        assert_eq!(path(&times, true), [1, 1, 1]);
        assert_eq!(path(&[vec![NEVER, 1.0], vec![5.0, 5.0]], true), [1, 1]);
        assert_eq!(path(&[], false), [0; 0]);
        assert_eq!(path(&[vec![], vec![]], false), [0; 0]);
    }

    /// The path is the cheapest of all that there are.
    #[test]
    fn no_other_path_is_cheaper() {
        let mut state = 7u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1.0 + (state >> 40) as f64 / f64::from(1 << 24)
        };
        for forwards in [false, true] {
            for _ in 0..50 {
                let times: Vec<Vec<f64>> = (0..3).map(|_| (0..4).map(|_| draw()).collect()).collect();
                let cost = |path: &[usize]| {
                    let changes = path.windows(2).filter(|two| two[0] != two[1]).count() as f64;
                    loss(&times, path).ln() * 4.0 + changes * CHANGE.ln()
                };
                let found = cost(&path(&times, forwards));
                for number in 0..81usize {
                    let other: Vec<usize> = (0..4u32).map(|digit| number / 3usize.pow(digit) % 3).collect();
                    if !forwards || other.is_sorted() {
                        assert!(found <= cost(&other) + 1e-9, "{times:?}: {other:?}");
                    }
                }
            }
        }
    }
}
