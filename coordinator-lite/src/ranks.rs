//! Lists of ranks, kept and shown as ranges.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Sorted ranks, shown as `1, 3-7`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankList(Vec<(u32, u32)>);

impl RankList {
    /// Number of ranks in the list.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|&(first, last)| u64::from(last.saturating_sub(first)) + 1).sum()
    }

    /// Whether the list holds no rank.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `rank` is in the list.
    pub fn contains(&self, rank: u32) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&rank))
    }
}

impl FromIterator<u32> for RankList {
    /// Collects ranks that come in ascending order.
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for rank in ranks {
            match runs.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
                _ => runs.push((rank, rank)),
            }
        }
        Self(runs)
    }
}

impl fmt::Display for RankList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, &(first, last)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match last.saturating_sub(first) {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first}, {last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_lists_are_shown_as_ranges() {
        // Ranges keep the message of 64 missing ranks on one line.
        let show = |ranks: &[u32]| ranks.iter().copied().collect::<RankList>().to_string();
        assert_eq!(show(&[]), "");
        assert_eq!(show(&[4]), "4");
        assert_eq!(show(&[1, 2, 5, 6, 7, u32::MAX]), "1, 2, 5-7, 4294967295");
        let list: RankList = [1, 2, 5].into_iter().collect();
        assert_eq!(list.len(), 3);
        assert!(list.contains(2) && !list.contains(3) && !list.is_empty());
    }
}
