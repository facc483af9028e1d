//! Start of daemons on all hosts, level by level of the tree.

use super::{Fleet, News};
use anyhow::{Context, Result, anyhow};
use control_network::job_steps::{JobSteps, job_steps};
use control_network::launcher::{self, DaemonArguments};
use host_watch::shape;
use placement::plan::{HostPlan, Launcher};
use redrt_wire::daemon::{Growth, HostName, Remote, ToDaemon};
use std::time::{Duration, Instant};

/// Time without progress after which the launch has failed. With message and end this stays below 10 s.
const PROGRESS_TIME_MAX: Duration = Duration::from_secs(9);

/// Name of an unnamed host: this one.
fn here() -> HostName {
    HostName { user: None, name: "localhost".into() }
}

impl Fleet {
    /// Starts the daemons that connect to the coordinator directly.
    pub(super) fn launch(&mut self) -> Result<()> {
        let secret = self.hub.secret().clone();
        if let Launcher::Slurm { command, groups } = &self.plan.launcher {
            let (command, groups) = (command.clone(), groups.clone());
            let names: Vec<_> = (0..self.plan.hosts.len() as u32).map(|host| self.name(host).to_owned()).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let JobSteps { steps, elsewhere } = job_steps(&names, &groups);
            for step in &steps {
                let starting = launcher::slurm(&command, step, &self.place(None), &secret)?;
                self.record_starting(starting);
            }
            for host in elsewhere {
                let name = self.plan.hosts[host as usize].name.clone().unwrap_or_else(here);
                let remote = Remote { command: vec!["ssh".into()], ..self.remote()? };
                let started = launcher::remote(&remote, &name, &self.place(Some(host)), &secret);
                self.record_starting(started.with_context(|| format!("host {}", name.name))?);
            }
            return Ok(());
        }
        for host in shape::children(None, self.plan.fan_out, self.plan.hosts.len() as u32) {
            let planned = &self.plan.hosts[host as usize];
            let place = self.place(Some(host));
            let starting = match &planned.name {
                Some(name) if !planned.local => {
                    let started = launcher::remote(&self.remote()?, name, &place, &secret);
                    started.with_context(|| format!("host {}", name.name))?
                }
                _ => launcher::fork(&place, &secret, self.outlives_terminal)?,
            };
            self.record_starting(starting);
        }
        Ok(())
    }

    pub(super) fn record_starting(&mut self, starting: launcher::Starting) {
        self.ledger.launcher(&starting);
        self.starting.push(starting);
    }

    /// Arguments of a daemon that connects to the coordinator.
    pub(super) fn place(&self, host: Option<u32>) -> DaemonArguments {
        let HostPlan { fan_out, coordinator_lease, .. } = self.plan;
        let (coordinator, interface) = (self.hub.address(), self.plan.interface.clone());
        let has_several_coordinators = self.has_several_coordinators;
        DaemonArguments {
            host,
            parent: coordinator,
            coordinator,
            fan_out,
            interface,
            coordinator_lease,
            has_several_coordinators,
        }
    }

    /// Data for daemons that start others.
    pub(super) fn remote(&self) -> Result<Remote> {
        let (Launcher::Remote(command) | Launcher::Slurm { command, .. }) = &self.plan.launcher;
        Ok(Remote {
            command: command.clone(),
            daemon: launcher::daemon_executable()?,
            interface: self.plan.interface.clone(),
            coordinator: self.hub.address(),
            coordinator_lease_ms: self.plan.coordinator_lease.as_millis() as u64,
            has_several_coordinators: self.has_several_coordinators,
        })
    }

    /// Lets a daemon that has attached for the first time start those below it.
    pub(super) fn grown(&mut self, host: u32) {
        self.progress_at = Instant::now();
        let below = shape::children(Some(host), self.plan.fan_out, self.plan.hosts.len() as u32);
        if !below.is_empty() && !matches!(self.plan.launcher, Launcher::Slurm { .. }) {
            let name = |host: u32| self.plan.hosts[host as usize].name.clone().unwrap_or_else(here);
            let hosts = below.map(|host| (host, name(host))).collect();
            match self.remote() {
                Ok(remote) => self.send(host, &ToDaemon::Grow(Growth { hosts, remote })),
                Err(error) => self.news.push_back(News::Failed(error)),
            }
        }
        if self.members.iter().all(|member| member.attach.is_some()) {
            self.complete = true;
            self.news.push_back(News::Complete);
        }
    }

    /// Reports launchers that failed, and hosts that are late.
    pub(super) fn check_launch(&mut self) {
        let is_missing = |host: Option<u32>| match host {
            Some(host) => self.members[host as usize].attach.is_none(),
            None => self.members.iter().any(|member| member.attach.is_none()),
        };
        let starting = self.starting.iter_mut().filter(|starting| is_missing(starting.host));
        let mut failed = starting.filter_map(|starting| starting.ended().map(|why| (starting.host, why)));
        if let Some((host, why)) = failed.next() {
            drop(failed);
            let is_remote = self.plan.is_remote();
            return self.news.push_back(match host {
                Some(host) if is_remote => News::NotStarted { host, why: anyhow!("host {}: {why}", self.name(host)) },
                Some(_) => News::Failed(anyhow!("redrtd ended before it connected: {why}")),
                None => News::Failed(anyhow!("srun could not start the daemons: {why}")),
            });
        }
        drop(failed);
        if self.progress_at.elapsed() > PROGRESS_TIME_MAX {
            let message = self.too_late();
            let is_missing = |host: u32| self.members[host as usize].attach.is_none();
            let above = |host: u32| shape::parent(host, self.plan.fan_out);
            // Only the topmost missing hosts: daemons below them were not started yet.
            let late = (0..self.members.len() as u32).filter(|host| is_missing(*host));
            let late = late.filter(|host| above(*host).is_none_or(|above| !is_missing(above)));
            let news = late.map(|host| News::NotStarted { host, why: anyhow!(message.clone()) });
            self.news.extend(news.collect::<Vec<_>>());
        }
    }

    fn too_late(&mut self) -> String {
        let missing = (0..self.members.len() as u32).filter(|host| self.members[*host as usize].attach.is_none());
        let names: Vec<_> = missing.clone().map(|host| self.name(host).to_owned()).collect();
        let missing: Vec<_> = missing.collect();
        let (waited, coordinator) = (self.launched_at.elapsed().as_secs(), self.hub.address());
        let message = format!(
            "no daemon on {} has connected to {coordinator} within {waited} s: is there a route from there? (--interface \
             chooses the address)",
            names.join(", ")
        );
        let words = self.starting.iter_mut().filter(|one| one.host.is_none_or(|host| missing.contains(&host)));
        match words.filter_map(launcher::Starting::last_words).next() {
            Some(words) => format!("{message}; the launcher said: {words}"),
            None => message,
        }
    }
}
