//! Liveness of hosts: this process's beats, its own observations, and the daemons' reports.

use super::{Fleet, HostLoss, News, Role};
use host_watch::{Duty, TICKS, Verdict, Who};
use job_coordinator::Unfit;
use redrt_wire::daemon::{Sign, ToDaemon, Watch};
use redrt_wire::tree::Down;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Losses this soon after a standstill of this process are taken for its consequence.
const STANDSTILL_FELT: Duration = Duration::from_secs(5);

impl Fleet {
    /// Starts watching: all living hosts learn the ring.
    pub fn watch(&mut self) {
        if !self.plan.is_remote() {
            return;
        }
        self.rewatch();
        self.next_tick = Some(Instant::now() + self.tick_time());
    }

    /// Stops watching until [`Fleet::watch`] is called: this process is about to stand still.
    pub fn unwatch(&mut self) {
        if self.next_tick.take().is_some() {
            self.send_all(&ToDaemon::Watch(Watch { ring: Vec::new(), timeout_ms: 0 }));
        }
    }

    /// Length of a tick, the unit in which silence is counted.
    pub fn tick_time(&self) -> Duration {
        self.plan.detect_timeout / TICKS
    }

    pub(super) fn rewatch(&mut self) {
        if !self.complete || !self.plan.is_remote() {
            return;
        }
        let ring = self
            .arbiter
            .ring()
            .iter()
            .filter_map(|host| Some((*host, self.members[*host as usize].attach.as_ref()?.listen)));
        let watch = Watch { ring: ring.collect(), timeout_ms: self.plan.detect_timeout.as_millis() as u32 };
        self.send_all(&ToDaemon::Watch(watch));
        self.observer.watch([], self.arbiter.below_coordinator());
    }

    pub(super) fn tick(&mut self) {
        // Counts from now, however late it is: time in which this process did not run is no silence of hosts.
        self.next_tick = Some(Instant::now() + self.tick_time());
        self.round += 1;
        self.pass(&Down::Beat { round: self.round });
        for host in 0..self.members.len() as u32 {
            if let Some(count) = self.members[host as usize].session.untold() {
                self.acknowledge(host, count);
            }
        }
        for duty in self.observer.tick() {
            self.observed_here(duty);
        }
        let reachable: BTreeMap<_, _> =
            (0..self.members.len() as u32).map(|host| (host, self.way(host).is_some())).collect();
        let verdicts = self.arbiter.tick(|host| reachable[&host]);
        self.carry_out(verdicts);
    }

    /// Notices from a late tick (by half of the detection timeout) that this process did not run.
    pub(super) fn notice_standstill(&mut self) {
        let late = self.next_tick.map_or(Duration::ZERO, |at| at.elapsed());
        if late > self.plan.detect_timeout / 2 {
            self.stood_still = Some((Instant::now(), late));
            self.news.push_back(News::StoodStill(late));
        }
    }

    /// The reason for a loss: a recent standstill of this process comes first.
    fn true_reason(&self, why: HostLoss) -> HostLoss {
        match self.stood_still.filter(|(at, _)| at.elapsed() < STANDSTILL_FELT) {
            Some((_, stood)) => HostLoss::StoodStill { stood, noticed: Box::new(why) },
            None => why,
        }
    }

    pub(super) fn observed_here(&mut self, duty: Duty) {
        if let Duty::Report(host, sign) = duty {
            self.observed(Who::Coordinator, host, sign);
        }
    }

    pub(super) fn observed(&mut self, by: Who, host: u32, sign: Sign) {
        if host as usize >= self.members.len() {
            return;
        }
        let verdicts = self.arbiter.observed(by, host, sign);
        if sign == Sign::Parted && self.next_tick.is_some() {
            self.observer.watch([], self.arbiter.below_coordinator());
        }
        self.carry_out(verdicts);
    }

    pub(super) fn carry_out(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            match verdict {
                Verdict::Probe(Who::Coordinator, host) => {
                    if let Some(sign) = self.observer.sign(host) {
                        self.observed(Who::Coordinator, host, sign);
                    }
                }
                Verdict::Probe(Who::Host(by), host) => self.send(by, &ToDaemon::Probe { host }),
                Verdict::Dead { host, why } => self.bury(host, HostLoss::Dead(why)),
            }
        }
    }

    /// Removes a host that cannot stay in the job, though its daemon lives.
    pub fn expel(&mut self, host: u32, why: Unfit) {
        let why = match why {
            Unfit::Misplaced(why) => HostLoss::Misplaced(why),
            Unfit::Unheard { by } => HostLoss::Unheard { by: self.name(by).to_owned() },
        };
        self.bury(host, why);
    }

    /// Removes a host from the job. If it lives, it is told so.
    pub fn bury(&mut self, host: u32, why: HostLoss) {
        let way = self.way(host);
        let member = &mut self.members[host as usize];
        if std::mem::replace(&mut member.dead, true) {
            return;
        }
        let why = self.true_reason(why);
        let reason = format!("this host was taken for dead: {why}");
        if let Some(way) = way {
            self.hub.send(way, &Down::Stop { host, reason });
        }
        if let Some(link) = self.members[host as usize].link.take() {
            self.roles.insert(link, Role::Buried(host));
        }
        self.arbiter.remove(host);
        self.rewatch();
        self.news.push_back(News::Dead { host, why });
    }
}
