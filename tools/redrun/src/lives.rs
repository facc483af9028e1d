//! Lives of the job, and all that comes to it while it runs: launches and returns, hosts that join and leave, jobs that
//! its processes spawn. The coordinator decides; here it is carried out.

use super::clones::Clones;
use super::fleet::Fleet;
use super::joining::{Awaited, SpareError};
use super::launching::{applications, for_daemons, monotonic_ns, process_faults, slots};
use super::spares::SitePool;
use super::spawned::{News, Plan};
use super::{Shell, checkpoints, start_record};
use anyhow::{Context, Result};
use control_network::hub::LinkId;
use job_coordinator::{HostFacts, Input, JobOrder, Return};
use nix::sys::signal::Signal;
use placement::plan::HostPlan;
use redrt_types::ReplicaId;
use redrt_wire::daemon::{HostName, Launch, ToDaemon};
use redrt_wire::dynamic::Origin;
use redrt_wire::secret::Secret;
use replication_manager::ChangeRequestError;
use spare_pool::Spare;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

impl Shell<'_> {
    /// Launches the processes on the hosts, all of which have attached.
    pub(super) fn launch(&mut self) -> Result<()> {
        let job = self.run.job;
        if self.run.coordinator.return_count() == 0 {
            self.run.started_at = Instant::now();
        }
        let facts =
            |host| HostFacts { name: self.run.fleet.name(host).to_owned(), cpu_count: self.run.fleet.cpu_count(host) };
        let hosts = (0..self.run.fleet.plan().hosts.len() as u32).map(facts).collect();
        self.handle(Input::Launched { hosts });
        if !self.run.coordinator.is_launched() {
            // The coordinator has said why not.
            return Ok(());
        }
        let is_restored = self.run.coordinator.newest_checkpoint().is_some();
        let applications =
            if is_restored { job.applications.clone() } else { applications(&self.run, self.reporter.console) };
        let start_time_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let mut restore = None;
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.abandon_newer(&self.run, self.reporter.console);
            restore = checkpoints.restore(&self.run, self.reporter.console)?;
            checkpoints.make_shared_log(&self.run);
        }
        // An image carries its process's processor affinity, and may go to another host than the rankfile names.
        let slots = if restore.is_none() { slots(&self.run) } else { Vec::new() };
        let launch = Launch {
            job: self.run.number,
            world: job.world.clone(),
            view: self.run.coordinator.manager().view().clone(),
            options: job.options.clone(),
            placement: for_daemons(self.run.coordinator.placement()),
            applications,
            application_of_rank: job.application_of_rank.clone(),
            faults: process_faults(&self.run)?,
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
        if self.run.coordinator.return_count() == 0 {
            let fields = start_record::start_record(job, &launch, &hosts);
            self.reporter.record(audit_log::JOB_START, &fields);
            self.reporter.notify(audit_log::JOB_START, &fields, "");
            checkpoints::report_resumption(&self.run, &mut self.reporter);
        }
        if let Err(error) = self.reach.write_down(&self.run) {
            self.reporter.console.warning(&format!("redctl will not find this job here: {error:#}"));
        }
        self.run.fleet.watch();
        self.coming.launch = Some(launch.clone());
        self.run.fleet.send_all(&ToDaemon::Launch(Box::new(launch)));
        self.handle(Input::Loading);
        Ok(())
    }

    /// Starts the job from a checkpoint, with new daemons. All its processes are gone.
    pub(super) fn go_back(&mut self, due: Return) -> Result<()> {
        let Return { kept, hosts, count, .. } = due;
        self.run.fleet.end(false);
        host_processes::sweep::kill_descendants(false);
        self.reach.entry = None;
        let checkpoints = self.checkpoints.as_ref().map(|checkpoints| (checkpoints, count));
        let has_input = |bytes| self.run.coordinator.has_input_since(bytes);
        let view = kept.manifest.view_of_images(&kept.manifest.degrees);
        let life =
            checkpoints::life::life(self.run.job, Some(self.run.now()), view, Some(kept), checkpoints, has_input);
        self.coming.site.leave();
        let site = SitePool::new(self.run.job, self.run.number)?;
        self.coming.begin_life(site);
        // Daemons of the previous life that counted as dead must not know the secret.
        let secret = Secret::generate().context("Failed to make the job's secret")?.sealing(self.run.job.hosts.secure);
        self.ledger.returned(&secret);
        let coordinator_lease =
            if self.ledger.is_kept() { self.run.fleet.plan().coordinator_lease } else { Duration::ZERO };
        let plan = HostPlan { coordinator_lease, hosts, ..self.run.fleet.plan().clone() };
        self.reporter.clones = Clones::default();
        let has_several_coordinators = self.run.fleet.has_several_coordinators() || self.quorum.voters.len() > 1;
        self.run.fleet =
            Fleet::start(plan, secret, self.reach.consoles.is_some(), self.ledger.clone(), has_several_coordinators)?;
        self.quorum.notice = coordinator_quorum::Notice::default();
        self.handle(Input::WentBack(Box::new(life)));
        Ok(())
    }

    /// Carries out `redctl spare add`. True if that is complete already.
    pub(super) fn add_spare(
        &mut self,
        link: LinkId,
        name: &HostName,
        place_count: Option<u32>,
    ) -> Result<bool, SpareError> {
        if !self.run.job.is_cloneable {
            return Err(ChangeRequestError::NotCloneable.into());
        }
        if !self.run.coordinator.is_launched() || self.ending.code.is_some() {
            return Err(SpareError::NotRunning);
        }
        if let Some(host) = self.run.find_host(&name.name) {
            if self.coming.joining.contains_key(&host) {
                return Err(SpareError::Awaited { host: name.name.clone() });
            }
            self.open_host(host, name.user.clone(), Some(place_count.unwrap_or(1)));
            return Ok(true);
        }
        let spare = Spare { user: name.user.clone(), ..Spare::new(&name.name, place_count.unwrap_or(1)) };
        let awaited = Awaited { for_user: Some(place_count), link: Some(link), ..Awaited::default() };
        self.add_host(&spare, awaited).map_err(SpareError::Daemon)?;
        Ok(false)
    }

    /// Finds a host for the root, or begins to add it.
    pub(super) fn find_or_add(&mut self, spare: &Spare) {
        let found = self.run.find_host(&spare.name);
        if let Some(awaited) = found.and_then(|host| self.coming.joining.get_mut(&host)) {
            awaited.for_coordinator = true;
            return;
        }
        if self.replay.is_some() {
            // The journal has the outcome.
            return self.add_noted_host();
        }
        let name = spare.name.clone();
        if let Some(host) = found {
            return self.handle(Input::HostFound { host, name, is_new: false });
        }
        if let Err(error) = self.add_host(spare, Awaited::noted(None)) {
            self.handle(Input::HostNotFound { name, why: format!("{error:#}") });
        }
    }

    fn add_host(&mut self, spare: &Spare, awaited: Awaited) -> Result<()> {
        let host = self.run.fleet.add(spare)?;
        self.ledger.added(spare, awaited.for_user);
        self.coming.joining.insert(host, awaited);
        Ok(())
    }

    fn open_host(&mut self, host: u32, user: Option<String>, count: Option<u32>) {
        let (name, cpu_count) = (self.run.fleet.name(host).to_owned(), self.run.fleet.cpu_count(host));
        self.handle(Input::SpareAdded { host, name, user, count, cpu_count });
    }

    /// Takes in an added host whose daemon has attached.
    pub(super) fn host_joined(&mut self, host: u32) {
        let Some(Awaited { for_user, link, is_launched, .. }) = self.coming.joining.remove(&host) else { return };
        if let Some(launch) = self.coming.launch.as_ref().filter(|_| !is_launched) {
            let mut launch = launch.clone();
            launch.view = self.run.coordinator.manager().view().clone();
            launch.placement = for_daemons(self.run.coordinator.placement());
            self.run.fleet.send(host, &ToDaemon::Launch(Box::new(launch)));
        }
        if let Some(link) = link {
            self.run.fleet.answer(link, String::new());
        }
        match for_user {
            Some(count) => {
                let user = self.run.fleet.plan().hosts[host as usize].name.as_ref().and_then(|name| name.user.clone());
                self.open_host(host, user, count);
            }
            None => {
                let name = self.run.fleet.name(host).to_owned();
                self.handle(Input::HostFound { host, name, is_new: true });
            }
        }
    }

    /// Answers requests for a host whose addition failed.
    pub(super) fn host_not_joined(&mut self, host: u32, why: &str) {
        let name = self.run.fleet.name(host).to_owned();
        let Some(awaited) = self.coming.joining.remove(&host) else { return };
        if let Some(link) = awaited.link {
            self.run.fleet.answer(link, format!("host {name}: {why}"));
        }
        if awaited.for_coordinator {
            self.handle(Input::HostNotFound { name, why: why.to_owned() });
        }
    }

    /// Lets the daemon of a host leave.
    pub(super) fn dismiss_host(&mut self, host: u32) {
        match self.replay {
            Some(_) => self.run.fleet.lost_before(host),
            None => self.run.fleet.dismiss(host),
        }
    }

    /// Carries out an order of the coordinator about other jobs. A job that has to do with them does not come back:
    /// none is given in a replay.
    pub(super) fn order_jobs(&mut self, order: JobOrder) {
        if self.replay.is_some() {
            return;
        }
        if self.ledger.is_kept() && matches!(order, JobOrder::Start { .. } | JobOrder::Ask { .. }) {
            self.ledger.give_up("its processes have to do with other jobs");
        }
        let own = self.run.origin();
        let (job, outputs, bell, is_seated) =
            (self.run.job, &self.outputs, &self.wakers.bell, self.reach.consoles.is_some());
        let plan = |replica: ReplicaId, port| {
            let application = job.application_of_rank[replica.rank.0 as usize];
            Plan {
                origin: Origin { tree: own.tree, parent_port: Some(port), place_count: 0 },
                options: job_options::options_for_spawned(job),
                environment: job.applications[application as usize].environment.clone(),
                relay: is_seated.then(|| (outputs.standard(), bell.clone())),
            }
        };
        if let Some(news) = self.spawned.obey(order, plan) {
            self.handle(Input::OtherJob(news));
        }
    }

    pub(super) fn work_on_spawned(&mut self) {
        for news in self.spawned.work() {
            match news {
                News::Job(news) => self.handle(Input::OtherJob(news)),
                News::Orphaned => self.interrupt(Signal::SIGTERM as i32),
            }
        }
    }
}
