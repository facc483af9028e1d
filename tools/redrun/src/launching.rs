//! From attached hosts to replicas that run on them.

use super::pools;
use super::repeatable;
use super::run::Run;
use anyhow::{Context, Result};
use job_options::Fault;
use placement::plan::Launcher;
use redrt_types::{ReplicaId, is_same_host};
use redrt_wire::daemon::Application;
use redrt_wire::fault::ProcessFault;
use redrt_wire::slots::Slots;
use say::Console;
use std::time::Duration;

/// Reports to the user how processes are laid out.
pub(super) fn report_layout(run: &Run<'_>, console: &Console, report: &[String], notes: &[String]) {
    let job = run.job;
    if job.hosts.report {
        report.iter().for_each(|line| console.plain(line));
    }
    if job.quiet {
        return;
    }
    notes.iter().for_each(|line| console.plain(line));
    if matches!(job.hosts.launcher, Launcher::Slurm { .. }) && job.is_replicated() && !is_told_no_kill() {
        console.plain(
            "note: Slurm ends this job when a host fails, unless it was asked for with --no-kill, which Slurm does \
             not tell (SBATCH_NO_KILL=yes says that it was)",
        );
    }
}

/// The programs with settings for their hosts.
pub(super) fn applications(run: &Run<'_>, console: &Console) -> Vec<Application> {
    let on = |host| run.coordinator.placement().iter().filter(|at| **at == Some(host)).count() as u32;
    let host = |host| pools::Host { process_count: on(host), cpu_count: run.fleet.cpu_count(host) };
    let hosts: Vec<_> = (0..run.fleet.plan().hosts.len() as u32).map(host).collect();
    let mut applications = run.job.applications.clone();
    let tell = |application: &Application, why: &str, set: &[String], page: &str| {
        if run.job.verbose && !set.is_empty() {
            let (program, words) = (application.program.display(), set.join(" "));
            console.plain(&format!("{program}: {why}: {words} ({page})"));
        }
    };
    for application in &mut applications {
        let set = pools::let_sleep(application, &hosts);
        tell(application, "threads share cores, so those without work sleep", &set, "docs/hosts.md");
        if run.job.is_replicated() {
            let set = repeatable::make_repeatable(application);
            tell(application, "replicas compute the same", &set, "docs/determinism.md");
        }
    }
    applications
}

/// Cores that a rankfile assigns to processes.
pub(super) fn slots(run: &Run<'_>) -> Vec<(ReplicaId, Slots)> {
    let places = run.job.hosts.ranks.iter();
    places.filter_map(|place| Some((place.replica, place.slots.clone()?))).collect()
}

/// Faults that processes inject themselves.
pub(super) fn process_faults(run: &Run<'_>) -> Result<Vec<(ReplicaId, ProcessFault)>> {
    let mut faults = Vec::new();
    for fault in &run.job.faults {
        match fault {
            Fault::Process(replica, fault) => faults.push((*replica, *fault)),
            Fault::Sick { host, period } => {
                let mut numbers = 0..run.fleet.plan().hosts.len() as u32;
                let found = numbers.find(|number| is_same_host(run.fleet.name(*number), host));
                let host = found.with_context(|| format!("--inject sick:{host}: the job has no host {host}"))?;
                let all = run.job.world.replicas().filter(|replica| run.coordinator.host(*replica).is_some());
                faults.extend(all.map(|replica| (replica, ProcessFault::Sick { host, period: *period })));
            }
            Fault::Timed(_) | Fault::Random(_) => {}
        }
    }
    Ok(faults)
}

/// True if Slurm keeps the job when a host fails, judged by the variables that sbatch and salloc read.
fn is_told_no_kill() -> bool {
    ["SBATCH_NO_KILL", "SALLOC_NO_KILL"].iter().any(|name| std::env::var_os(name).is_some())
}

/// Placement for daemons. Free places get host 0: the view says that they are free.
pub(super) fn for_daemons(placement: &[Option<u32>]) -> Vec<u32> {
    placement.iter().map(|host| host.unwrap_or_default()).collect()
}

pub(super) fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, |now| now.as_nanos() as u64)
}
