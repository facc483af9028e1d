//! The state of the pool as JSON.

use serde_json::{Value, json};
use spare_pool::{Admission, HostStatus, JobId, Pool};
use std::collections::BTreeSet;
use std::time::Duration;

/// The complete state.
pub fn status(pool: &Pool, connected: &[JobId], now: Duration) -> Value {
    let hosts: Vec<_> = pool.hosts(now).map(|status| host(&status, now)).collect();
    let stored = pool.stored();
    let holders = stored.leases.values().map(|lease| lease.job);
    let known: BTreeSet<_> = holders.chain(connected.iter().copied()).collect();
    let jobs: Vec<_> = known
        .into_iter()
        .map(|job| {
            let user = pool.leases(job).find_map(|lease| lease.user.clone());
            let leases = pool.leases(job).map(|lease| json!({ "lease": lease.id.0, "host": lease.spare.name }));
            json!({
                "job": job.to_string(),
                "user": user,
                "connected": connected.contains(&job),
                "leases": leases.collect::<Vec<_>>(),
            })
        })
        .collect();
    let waiting: Vec<_> = pool
        .waiting()
        .map(|(_, request)| {
            let reasons = pool.explain(request, now);
            json!({
                "job": request.job.to_string(),
                "memory_bytes": request.memory_bytes,
                "why": reasons.map(|(host, unfit)| json!({ "host": host, "why": unfit.to_string() })).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "lease_time_s": pool.settings().lease_time.map(|time| time.as_secs_f64()),
        "hosts": hosts,
        "jobs": jobs,
        "waiting": waiting,
    })
}

fn host(status: &HostStatus, now: Duration) -> Value {
    let why = match &status.admission {
        Admission::Bad { why } => Some(why.clone()),
        _ => status.unreachable.as_ref().map(ToString::to_string),
    };
    let facts = status.facts.as_ref();
    json!({
        "host": status.spare.name,
        "user": status.spare.user,
        "state": status.state(),
        "why": why,
        "slots": status.spare.slot_count,
        "leased": status.leased_count,
        "job": status.job.map(|job| job.to_string()),
        "rack": status.spare.rack,
        "launcher": status.spare.launcher,
        "strikes": status.strikes,
        "rests_s": status.backs_off_until.map(|until| until.saturating_sub(now).as_secs_f64()),
        "version": facts.map(|facts| &facts.version),
        "memory_bytes": facts.map(|facts| facts.memory_bytes),
        "cpus": facts.map(|facts| facts.cpu_count),
        "load": facts.map(|facts| facts.load_milli as f64 / 1000.0),
        "cpu_features": facts.map(|facts| &facts.cpu_features),
    })
}
