//! Choice of a host for a request: reasons that exclude one, and the ranking of the others.

use super::pooled_host::PooledHost;
use crate::host::{Admission, Facts, Unseen};
use crate::lease::{JobId, Request};
use redrt_types::is_same_host;
use std::time::Duration;

/// Reason why a host cannot be granted for a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// It was marked as bad, by a person or after failures.
    #[error("bad: {why}")]
    Bad {
        /// Reason of that decision.
        why: String,
    },
    /// It is to become free, so nothing more is leased there.
    #[error("draining")]
    Draining,
    /// Another job has a lease on it.
    #[error("leased to job {0}")]
    Leased(JobId),
    /// The job has all its places already.
    #[error("all its places are taken")]
    Full,
    /// The request names it among hosts to exclude.
    #[error("ruled out by the request")]
    Excluded,
    /// A clone to it failed a short time ago.
    #[error("resting for {} s after {strikes} failed clones", .left.as_secs() + 1)]
    Resting {
        /// Number of failed clones since the last successful one.
        strikes: u32,
        /// Time that is left of its rest.
        left: Duration,
    },
    /// Its facts are unknown or out of date.
    #[error("not looked at yet")]
    Unchecked,
    /// It could not be looked at.
    #[error("unreachable: {why}")]
    Unreachable {
        /// Reason why it could not be looked at.
        why: Unseen,
    },
    /// It has another version of redrt than the job.
    #[error("its redrt is version {there}, the job's {wanted}")]
    Version {
        /// Version on the host.
        there: String,
        /// Version of the job.
        wanted: String,
    },
    /// It has too little memory.
    #[error("{free_bytes} bytes of memory, {wanted_bytes} are needed")]
    Memory {
        /// Available memory in bytes.
        free_bytes: u64,
        /// Requested memory in bytes.
        wanted_bytes: u64,
    },
    /// Its processor lacks features that the job's replicas run with.
    #[error("its processor lacks {missing}")]
    Features {
        /// Missing processor features, separated by commas.
        missing: String,
    },
}

/// Returns the reason why a host cannot be granted for a request; `None` if it can.
pub(crate) fn unfit(entry: &PooledHost, request: &Request, now: Duration) -> Option<Unfit> {
    match &entry.admission {
        Admission::Bad { why } => return Some(Unfit::Bad { why: why.clone() }),
        Admission::Draining => return Some(Unfit::Draining),
        Admission::Open => {}
    }
    match entry.job() {
        Some(job) if job != request.job => return Some(Unfit::Leased(job)),
        _ if entry.leases.len() as u64 >= u64::from(entry.spare.slot_count) => return Some(Unfit::Full),
        _ => {}
    }
    if request.excluded.iter().any(|name| is_same_host(name, &entry.spare.name)) {
        return Some(Unfit::Excluded);
    }
    if entry.health.is_resting(now) {
        let (strikes, left) = (entry.health.strikes, entry.health.rests_until - now);
        return Some(Unfit::Resting { strikes, left });
    }
    if let Some(why) = &entry.sight.unreachable {
        return Some(Unfit::Unreachable { why: why.clone() });
    }
    match &entry.facts {
        None if entry.is_watched => Some(Unfit::Unchecked),
        None => None,
        Some(facts) => short_of(entry, facts, request),
    }
}

fn short_of(entry: &PooledHost, facts: &Facts, request: &Request) -> Option<Unfit> {
    if let Some(wanted) = request.version.as_ref().filter(|wanted| **wanted != facts.version) {
        return Some(Unfit::Version { there: facts.version.clone(), wanted: wanted.clone() });
    }
    let free_bytes = entry.free_bytes(facts);
    if free_bytes < request.memory_bytes {
        return Some(Unfit::Memory { free_bytes, wanted_bytes: request.memory_bytes });
    }
    let missing: Vec<_> = request.cpu_features.difference(&facts.cpu_features).map(String::as_str).collect();
    (!missing.is_empty()).then(|| Unfit::Features { missing: missing.join(", ") })
}

/// Ranking of a host; the least is the best. In order of importance: apart from siblings; few strikes; a host that the
/// job uses already, which leaves whole hosts for others; low load; few superfluous features, and little superfluous
/// memory.
pub(crate) fn cost(entry: &PooledHost, request: &Request) -> impl Ord + use<> {
    let name = entry.spare.name.clone();
    let beside_sibling = request.apart_from_hosts.contains(&name);
    let in_rack = entry.spare.rack.as_ref().is_some_and(|rack| request.apart_from_racks.contains(rack));
    let facts = entry.facts.as_ref();
    // Load in quarters of its processors: smaller differences are noise.
    let load = facts.map_or(0, |facts| facts.load_milli / 250 / u64::from(facts.cpu_count.max(1)));
    let surplus = facts.map_or(0, |facts| facts.cpu_features.difference(&request.cpu_features).count());
    let free_bytes = facts.map_or(0, |facts| entry.free_bytes(facts));
    (beside_sibling, in_rack, entry.health.strikes, entry.job().is_none(), load, surplus, free_bytes, name)
}
