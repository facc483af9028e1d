//! Hosts that come and go while the job runs.

use super::{Fleet, Member, News};
use anyhow::{Context, Result, ensure};
use control_network::launcher;
use control_network::launchers;
use placement::plan::{Launcher, PlannedHost};
use redrt_types::is_same_host;
use redrt_wire::daemon::{HostName, Remote, ToDaemon};
use spare_pool::Spare;
use std::time::{Duration, Instant};

/// Time for the daemon of an added host to connect.
const JOIN_TIME_MAX: Duration = Duration::from_secs(10);

impl Fleet {
    /// Number of the living host with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        let is_it = |host: &u32| !self.members[*host as usize].dead && is_same_host(self.name(*host), name);
        (0..self.members.len() as u32).find(is_it)
    }

    /// Starts a daemon on one more host. [`News::Joined`] or [`News::NotJoined`] follows.
    ///
    /// # Errors
    /// When nothing was started.
    pub fn add(&mut self, spare: &Spare) -> Result<u32> {
        let coordinator = self.hub.address();
        ensure!(
            !coordinator.ip().is_loopback(),
            "this job uses one host only, and others could not reach it: -hosts or --interface at its start would change that"
        );
        let host = self.members.len() as u32;
        let name = HostName { user: spare.user.clone(), name: spare.name.clone() };
        let command = match (&spare.launcher, &self.plan.launcher) {
            (Some(name), _) => launchers::command(name).with_context(|| format!("host {}", spare.name))?,
            (None, Launcher::Remote(command)) => command.clone(),
            (None, Launcher::Slurm { .. }) => vec!["ssh".into()],
        };
        let remote = Remote { command, ..self.remote()? };
        let place = self.place(Some(host));
        let secret = self.hub.secret().clone();
        let starting = launcher::remote(&remote, &name, &place, &secret);
        self.record_starting(starting.with_context(|| format!("host {}", spare.name))?);
        self.take_in(spare, Member::default());
        self.joining.insert(host, Instant::now() + JOIN_TIME_MAX);
        Ok(host)
    }

    pub(super) fn take_in(&mut self, spare: &Spare, member: Member) {
        let name = HostName { user: spare.user.clone(), name: spare.name.clone() };
        let slot_count = Some(spare.slot_count);
        self.plan.hosts.push(PlannedHost { name: Some(name), slot_count, spare: true, local: false });
        self.members.push(member);
    }

    /// Takes in an added host that has attached.
    pub(super) fn joined(&mut self, host: u32) {
        self.joining.remove(&host);
        self.arbiter.add(host);
        match self.next_tick {
            Some(_) => self.rewatch(),
            None => self.watch(),
        }
        self.news.push_back(News::Joined(host));
    }

    /// Fails additions whose launcher ended or whose deadline passed.
    pub(super) fn check_joining(&mut self) {
        let now = Instant::now();
        for (host, until) in self.joining.clone() {
            let mut starting = self.starting.iter_mut().filter(|starting| starting.host == Some(host));
            let ended = starting.find_map(launcher::Starting::ended);
            let late = || format!("no daemon has connected to {} within {JOIN_TIME_MAX:?}", self.hub.address());
            let Some(why) = ended.or_else(|| (until <= now).then(late)) else { continue };
            self.joining.remove(&host);
            self.members[host as usize].dead = true;
            self.news.push_back(News::NotJoined { host, why });
        }
    }

    /// Removes a host from the job: its daemon leaves.
    pub fn dismiss(&mut self, host: u32) {
        self.send(host, &ToDaemon::Shutdown { keeps_sessions: false });
        self.members[host as usize].dead = true;
        self.arbiter.remove(host);
        self.rewatch();
    }
}
