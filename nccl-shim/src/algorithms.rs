//! What `NCCL_ALGO` and `NCCL_PROTO` leave of the algorithms that a collective has.
//!
//! Names of GPUs' algorithms are accepted in lists. Where nothing else is left the call fails, as in NCCL since 2.24.

use crate::env;
use crate::failure::Failure;
use ringccl::settings::Vars;
use topo::nccl::release::Release;
use topo::nccl::tuner::{Algorithm, Collective, Environment, Permission, Protocol};

/// The collectives that the variables leave an algorithm for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usable {
    /// Those without one, with what was set.
    refused: Vec<(Collective, String)>,
}

/// The algorithms that exist without a GPU.
fn of_hosts(collective: Collective) -> &'static [Algorithm] {
    match collective {
        Collective::AllReduce => &[Algorithm::Ring, Algorithm::Tree],
        Collective::AllGather | Collective::ReduceScatter => &[Algorithm::Ring, Algorithm::Pat],
        Collective::Broadcast | Collective::Reduce => &[Algorithm::Ring],
    }
}

impl Usable {
    /// Reads both variables.
    ///
    /// # Errors
    /// `ncclInvalidUsage` for a list that is none.
    pub(crate) fn of(vars: &Vars) -> Result<Self, Failure> {
        let set = ["NCCL_ALGO", "NCCL_PROTO"].map(|name| (name, env::text(vars, name)));
        let pairs: Vec<(&str, &str)> =
            set.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        if pairs.is_empty() {
            return Ok(Self::default());
        }
        let environment = Environment::parse(pairs.iter().copied(), Release::NEWEST)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let all = [
            Collective::Broadcast,
            Collective::Reduce,
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::AllReduce,
        ];
        let what: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let refused = all.into_iter().filter(|collective| !is_usable(&environment, *collective));
        Ok(Self { refused: refused.map(|collective| (collective, what.join(" "))).collect() })
    }

    /// Whether a collective can run.
    ///
    /// # Errors
    /// `ncclInvalidUsage` with the variables and what they may name.
    #[inline]
    pub(crate) fn check(&self, collective: Option<Collective>, dtype: &str) -> Result<(), Failure> {
        if self.refused.is_empty() { Ok(()) } else { self.check_slowly(collective, dtype) }
    }

    #[cold]
    fn check_slowly(&self, collective: Option<Collective>, dtype: &str) -> Result<(), Failure> {
        let Some((collective, what)) = self.refused.iter().find(|(refused, _)| Some(*refused) == collective)
        else {
            return Ok(());
        };
        let has: Vec<&str> = of_hosts(*collective).iter().map(|algorithm| algorithm.name()).collect();
        Err(Failure::usage(format!(
            "{} of {dtype}: no usable algorithm with {what}; without a GPU it has {}",
            collective.name(),
            has.join(", ")
        )))
    }
}

fn is_usable(environment: &Environment, collective: Collective) -> bool {
    let has_protocol = [Protocol::Ll, Protocol::Ll128, Protocol::Simple]
        .into_iter()
        .any(|protocol| environment.permission(collective, protocol) != Permission::Off);
    has_protocol && of_hosts(collective).iter().any(|algorithm| environment.allows(collective, *algorithm))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usable(name: &str, value: &str) -> Result<Usable, Failure> {
        Usable::of(&Vars::from_pairs([(name, value)]))
    }

    /// A list that names no algorithm of hosts refuses those collectives, and no others.
    #[test]
    fn only_what_is_left_runs() {
        let of = |value: &str, collective| {
            usable("NCCL_ALGO", value).unwrap().check(Some(collective), "float").is_ok()
        };
        assert!(of("Tree", Collective::AllReduce) && !of("Tree", Collective::Broadcast));
        assert!(of("NVLS,Ring", Collective::Broadcast) && !of("NVLS", Collective::AllReduce));
        assert!(of("allreduce:NVLS", Collective::Reduce) && !of("allreduce:NVLS", Collective::AllReduce));
        assert!(of("PAT", Collective::AllGather) && !of("PAT", Collective::Reduce));
        assert!(usable("NCCL_ALGO", "^Ring").unwrap().check(None, "float").is_ok());
        let text = usable("NCCL_ALGO", "NVLS").unwrap().check(Some(Collective::Reduce), "float").unwrap_err();
        assert!(text.text().contains("NCCL_ALGO=NVLS") && text.text().contains("Ring"), "{}", text.text());
        assert!(usable("NCCL_ALGO", "Bus").is_err() && usable("NCCL_PROTO", "LL64").is_err());
    }
}
