//! The parts of the library that `NCCL_DEBUG_SUBSYS` chooses from.

/// A set of subsystems: bits in the order of NCCL's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subsys(u32);

const NAMES: [&str; 18] = [
    "INIT",
    "COLL",
    "P2P",
    "SHM",
    "NET",
    "GRAPH",
    "TUNING",
    "ENV",
    "ALLOC",
    "CALL",
    "PROXY",
    "NVLS",
    "BOOTSTRAP",
    "REG",
    "PROFILE",
    "RAS",
    "DESTROY",
    "ALLOC_HOST",
];

#[allow(missing_docs, reason = "NCCL's names")]
impl Subsys {
    pub(crate) const INIT: Self = Self(1);
    pub(crate) const COLL: Self = Self(1 << 1);
    pub(crate) const GRAPH: Self = Self(1 << 5);
    pub(crate) const TUNING: Self = Self(1 << 6);
    pub(crate) const ENV: Self = Self(1 << 7);
    pub(crate) const CALL: Self = Self(1 << 9);
    pub(crate) const BOOTSTRAP: Self = Self(1 << 12);
    pub(crate) const DESTROY: Self = Self(1 << 16);
    const ALL: Self = Self((1 << NAMES.len()) - 1);
}

impl Subsys {
    /// Whether one of `other` is in it.
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// What a list chooses: names with commas between; `^` in front chooses all others. Unknown names choose nothing.
    pub(super) fn chosen(list: Option<&str>) -> Self {
        let Some(list) = list else {
            return Self(Self::INIT.0 | Self::BOOTSTRAP.0 | Self::ENV.0);
        };
        let (inverts, names) = list.strip_prefix('^').map_or((false, list), |names| (true, names));
        let bits = names.split(',').fold(0, |bits, name| {
            let name = name.trim();
            let one = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name));
            let all = if name.eq_ignore_ascii_case("ALL") { Self::ALL.0 } else { 0 };
            bits | all | one.map_or(0, |bit| 1 << bit)
        });
        Self(if inverts { Self::ALL.0 & !bits } else { bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists, exclusions and the default.
    #[test]
    fn lists_choose() {
        assert!(Subsys::chosen(None).has(Subsys::INIT) && !Subsys::chosen(None).has(Subsys::COLL));
        let two = Subsys::chosen(Some("coll, TUNING"));
        assert!(two.has(Subsys::COLL) && two.has(Subsys::TUNING) && !two.has(Subsys::INIT));
        let rest = Subsys::chosen(Some("^COLL"));
        assert!(!rest.has(Subsys::COLL) && rest.has(Subsys::DESTROY));
        assert!(Subsys::chosen(Some("ALL")).has(Subsys::CALL));
        assert!(!Subsys::chosen(Some("nonsense")).has(Subsys::ALL));
    }
}
