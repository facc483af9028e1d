//! The first record of a job's audit log.

use job_options::Job;
use redrt_types::VirtualRank;
use redrt_wire::daemon::Launch;
use serde_json::{Value, json};

/// Programs, hosts and options of the job.
pub(super) fn start_record(job: &Job, launch: &Launch, hosts: &[String]) -> Value {
    let programs: Vec<_> =
        job.applications.iter().map(|application| application.program.display().to_string()).collect();
    let degrees: Vec<_> = (0..job.world.rank_count()).map(|rank| job.degree(VirtualRank(rank))).collect();
    json!({
        "job": format!("{:016x}", launch.job), "version": env!("CARGO_PKG_VERSION"), "hosts": hosts,
        "programs": programs, "ranks": job.world.rank_count(), "degrees": degrees,
        "seed": format!("{:016x}", job.options.seed), "protocol": format!("{:?}", job.options.protocol),
        "verification": format!("{:?}", job.options.verification),
        "transport": format!("{:?}", job.options.transport),
        "determinism": format!("{:?}", job.options.determinism),
        "files": format!("{:?}", job.options.files),
        "threads": format!("{:?}", job.options.threads),
    })
}
