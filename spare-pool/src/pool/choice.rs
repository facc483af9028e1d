//! Which host suits a request: what rules one out, and which of the others is best.

use super::entry::Entry;
use crate::host::{Admission, Facts, Unseen};
use crate::lease::{JobId, Request};
use redrt_types::is_same_host;
use std::time::Duration;

/// Why a host cannot be given for a request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// It was marked as bad, by a person or after failures.
    #[error("bad: {why}")]
    Bad {
        /// What is wrong with it.
        why: String,
    },
    /// It is to become free.
    #[error("draining")]
    Draining,
    /// Another job has it.
    #[error("leased to job {0}")]
    Leased(JobId),
    /// The job has all its places.
    #[error("all its places are taken")]
    Full,
    /// The request rules it out.
    #[error("ruled out by the request")]
    Excluded,
    /// A clone to it failed a short while ago.
    #[error("resting for {} s after {strikes} failed clones", .left.as_secs() + 1)]
    Resting {
        /// How many.
        strikes: u32,
        /// How long it is still left alone.
        left: Duration,
    },
    /// It has not been looked at lately.
    #[error("not looked at yet")]
    Unchecked,
    /// It could not be looked at.
    #[error("unreachable: {why}")]
    Unreachable {
        /// Why.
        why: Unseen,
    },
    /// Another version of redrt is there.
    #[error("its redrt is version {there}, the job's {wanted}")]
    Version {
        /// There.
        there: String,
        /// Of the job.
        wanted: String,
    },
    /// There is too little memory.
    #[error("{free_bytes} bytes of memory, {wanted_bytes} are needed")]
    Memory {
        /// That can be had.
        free_bytes: u64,
        /// That is needed.
        wanted_bytes: u64,
    },
    /// The processor lacks something.
    #[error("its processor lacks {missing}")]
    Features {
        /// What.
        missing: String,
    },
}

/// Why a host cannot be given for a request; `None` if it can.
pub(crate) fn unfit(entry: &Entry, request: &Request, now: Duration) -> Option<Unfit> {
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

fn short_of(entry: &Entry, facts: &Facts, request: &Request) -> Option<Unfit> {
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

/// The less the better. Apart from siblings first, then what has not failed, then what the job has anyway, so that
/// whole hosts are left for others; then the least loaded, and the one that is least too good.
pub(crate) fn cost(entry: &Entry, request: &Request) -> impl Ord + use<> {
    let name = entry.spare.name.clone();
    let beside_sibling = request.apart_from_hosts.contains(&name);
    let in_rack = entry.spare.rack.as_ref().is_some_and(|rack| request.apart_from_racks.contains(rack));
    let facts = entry.facts.as_ref();
    // In quarters of its processors: smaller differences are chance.
    let load = facts.map_or(0, |facts| facts.load_milli / 250 / u64::from(facts.cpu_count.max(1)));
    let surplus = facts.map_or(0, |facts| facts.cpu_features.difference(&request.cpu_features).count());
    let free_bytes = facts.map_or(0, |facts| entry.free_bytes(facts));
    (beside_sibling, in_rack, entry.health.strikes, entry.job().is_none(), load, surplus, free_bytes, name)
}
