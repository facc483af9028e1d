//! From attached hosts to replicas that run on them.

use super::{Shell, pools, start_record};
use anyhow::{Context, Result};
use job_options::Fault;
use job_root::{HostFacts, Input};
use placement::plan::Launcher;
use redrt_types::{ReplicaId, is_same_host};
use redrt_wire::daemon::{Application, Launch, ToDaemon};
use redrt_wire::fault::ProcessFault;
use redrt_wire::slots::Slots;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

impl Shell<'_> {
    pub(super) fn launch(&mut self) -> Result<()> {
        let job = self.run.job;
        if self.run.root.return_count() == 0 {
            self.run.started_at = Instant::now();
        }
        let facts =
            |host| HostFacts { name: self.run.fleet.name(host).to_owned(), cpu_count: self.run.fleet.cpu_count(host) };
        let hosts = (0..self.run.fleet.plan().hosts.len() as u32).map(facts).collect();
        self.handle(Input::Launched { hosts });
        if !self.run.root.is_launched() {
            // The root has said why not.
            return Ok(());
        }
        let is_restored = self.run.root.newest_checkpoint().is_some();
        let applications = if is_restored { job.applications.clone() } else { self.applications() };
        let start_time_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        self.abandon_newer_lines();
        let restore = self.restore()?;
        self.make_shared_log();
        // An image carries its process's processor affinity, and may go to another host than the rankfile names.
        let slots = if restore.is_none() { self.slots() } else { Vec::new() };
        let launch = Launch {
            job: self.run.number,
            world: job.world.clone(),
            view: self.run.root.coordinator().view().clone(),
            options: job.options.clone(),
            placement: for_daemons(self.run.root.placement()),
            applications,
            application_of_rank: job.application_of_rank.clone(),
            faults: self.process_faults()?,
            start_time_ns,
            start_monotonic_ns: monotonic_ns(),
            host_name: self.run.fleet.name(0).to_owned(),
            cloneable: job.is_cloneable || job.checkpoint.is_some(),
            origin: self.run.origin(),
            allows_other_mpi: job.allows_other_mpi,
            binding: job.hosts.binding,
            slots,
            // A spawned job's standard input has another use.
            standard_input: job.origin.is_none(),
            restore,
        };
        let hosts: Vec<_> =
            (0..self.run.fleet.plan().hosts.len() as u32).map(|host| self.run.fleet.name(host).to_owned()).collect();
        if self.run.root.return_count() == 0 {
            let fields = start_record::start_record(job, &launch, &hosts);
            self.teller.record(audit_log::JOB_START, &fields);
            self.teller.notify(audit_log::JOB_START, &fields, "");
            self.tell_of_resumption();
        }
        if let Err(error) = self.reach.write_down(&self.run) {
            self.teller.console.warning(&format!("redctl will not find this job here: {error:#}"));
        }
        self.run.fleet.watch();
        self.coming.launch = Some(launch.clone());
        self.run.fleet.send_all(&ToDaemon::Launch(Box::new(launch)));
        if let Some(returning) = &mut self.returns.under_way {
            returning.launched_at = Instant::now();
        }
        Ok(())
    }

    /// Tells the user how processes are laid out.
    pub(super) fn tell_of_layout(&self, report: &[String], notes: &[String]) {
        let job = self.run.job;
        if job.hosts.report {
            report.iter().for_each(|line| self.teller.console.plain(line));
        }
        if job.quiet {
            return;
        }
        notes.iter().for_each(|line| self.teller.console.plain(line));
        if matches!(job.hosts.launcher, Launcher::Slurm { .. }) && job.is_replicated() && !is_told_no_kill() {
            self.teller.console.plain(
                "note: Slurm ends this job when a host fails, unless it was asked for with --no-kill, which Slurm does \
                 not tell (SBATCH_NO_KILL=yes says that it was)",
            );
        }
    }

    /// The programs with settings for their hosts.
    fn applications(&self) -> Vec<Application> {
        let on = |host| self.run.root.placement().iter().filter(|at| **at == Some(host)).count() as u32;
        let host = |host| pools::Host { process_count: on(host), cpu_count: self.run.fleet.cpu_count(host) };
        let hosts: Vec<_> = (0..self.run.fleet.plan().hosts.len() as u32).map(host).collect();
        let mut applications = self.run.job.applications.clone();
        for application in &mut applications {
            let set = pools::let_sleep(application, &hosts);
            if self.run.job.verbose && !set.is_empty() {
                let program = application.program.display();
                let words = set.join(" ");
                self.teller.console.plain(&format!(
                    "{program}: threads share cores, so those without work sleep: {words} (docs/hosts.md)"
                ));
            }
        }
        applications
    }

    /// Cores that a rankfile assigns to processes.
    fn slots(&self) -> Vec<(ReplicaId, Slots)> {
        let places = self.run.job.hosts.ranks.iter();
        places.filter_map(|place| Some((place.replica, place.slots.clone()?))).collect()
    }

    /// Faults that processes inject themselves.
    pub(super) fn process_faults(&self) -> Result<Vec<(ReplicaId, ProcessFault)>> {
        let mut faults = Vec::new();
        for fault in &self.run.job.faults {
            match fault {
                Fault::Process(replica, fault) => faults.push((*replica, *fault)),
                Fault::Sick { host, period } => {
                    let mut numbers = 0..self.run.fleet.plan().hosts.len() as u32;
                    let found = numbers.find(|number| is_same_host(self.run.fleet.name(*number), host));
                    let host = found.with_context(|| format!("--inject sick:{host}: the job has no host {host}"))?;
                    let all = self.run.job.world.replicas().filter(|replica| self.run.root.host(*replica).is_some());
                    faults.extend(all.map(|replica| (replica, ProcessFault::Sick { host, period: *period })));
                }
                Fault::Timed(_) | Fault::Random(_) => {}
            }
        }
        Ok(faults)
    }
}

/// True if Slurm keeps the job when a host fails, judged by the variables that sbatch and salloc read.
fn is_told_no_kill() -> bool {
    ["SBATCH_NO_KILL", "SALLOC_NO_KILL"].iter().any(|name| std::env::var_os(name).is_some())
}

/// Placement for daemons. Free places get host 0: the view says that they are free.
pub(super) fn for_daemons(placement: &[Option<u32>]) -> Vec<u32> {
    placement.iter().map(|host| host.unwrap_or_default()).collect()
}

fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, |now| now.as_nanos() as u64)
}
