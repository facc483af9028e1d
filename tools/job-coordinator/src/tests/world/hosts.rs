//! Hosts of a job: launches on them, their losses, and returns to other ones.

use super::pool::SitePool;
use super::*;

impl Job {
    /// Launches processes on the hosts of this life. Now and then a host cannot be had after a return.
    pub(super) fn launch(&mut self) {
        self.is_to_launch = false;
        if self.from.is_some() && self.scenario.random.u8(0..4) == 0 {
            for _ in 0..self.scenario.random.u8(1..3) {
                let host = self.scenario.random.u32(0..self.hosts.len() as u32);
                if !self.is_over && !self.dead_hosts.contains(&host) {
                    self.dead_hosts.extend(self.numbers_of(host));
                    let (name, why) = (self.hosts[host as usize].clone(), "it does not answer".into());
                    self.give(Input::HostNotHad { host, name, why });
                }
            }
            return;
        }
        self.are_held = false;
        let hosts = self.hosts.iter().map(|name| HostFacts { name: name.clone(), cpu_count: 2 }).collect();
        self.give(Input::Launched { hosts });
        self.check_placement();
        self.now += Duration::from_millis(40);
        self.loading_at = self.from.is_some().then_some(self.now);
        self.give(Input::Loading);
        self.gone.clear();
        self.memory.launched();
        let from = self.coordinator.newest_checkpoint().map(|kept| kept.manifest.generation);
        from.into_iter().for_each(|from| self.storage.abandon_newer(from));
        for replica in self.live().into_iter().filter(|replica| replica.rank == VirtualRank(0)) {
            self.typed.load(replica, from);
        }
        for replica in self.live() {
            self.says(replica, |replica| FromDaemon::Started { replica, pid: 1 });
            self.agent(replica, FromAgent::Hello);
            let card = self.card(replica);
            self.agent(replica, FromAgent::Ready(card));
        }
    }

    /// Begins a return: the daemons of the life that ends say nothing more.
    pub(super) fn go_back(&mut self, chosen: Return) {
        self.check_return(&chosen);
        self.answers.clear();
        (self.pool, self.has_joined) = (SitePool::default(), false);
        self.clones.clear();
        self.checkpoint_askers.clear();
        self.writing = None;
        self.ready.clear();
        let Return { kept, hosts, count, .. } = chosen;
        let name = |host: PlannedHost| host.name.map(|name| name.name).expect("all have names");
        self.next_hosts = hosts.into_iter().map(name).collect();
        let world = self.coordinator.world.clone();
        let view = View::with_degrees(&world, &self.scenario.degrees);
        let generation = kept.manifest.generation;
        self.memory.begin_life(generation);
        let manager = self.scenario.manager(world, view, count, Some(generation), self.memory.proven());
        let input_bytes = kept.manifest.input_bytes;
        self.from = Some(kept.clone());
        let life = Life { manager, restored: Vec::new(), input_bytes, from: Some(kept) };
        self.later(Input::WentBack(Box::new(life)));
    }

    /// Checks that the job goes on from the newest checkpoint that it can load, that no newer one will be kept, and
    /// that it does so on hosts that live.
    pub(super) fn check_return(&mut self, chosen: &Return) {
        let newest = self.storage.newest().map(|kept| kept.manifest.generation);
        let known = self.coordinator.manager().checkpoint().and_then(replication_manager::CheckpointWatch::newest);
        let here = self.coordinator.newest_checkpoint().map(|kept| kept.manifest.generation);
        // A checkpoint that the archive gets meanwhile changes nothing for this return.
        let is_store = |input: &&Input| match input {
            Input::Store { answer, .. } => !matches!(answer, StoreAnswer::Archived(_)),
            _ => false,
        };
        let unheard = self.answers.values().flatten().find(is_store);
        let is_archive = |order: &StoreOrder| matches!(order.work, StoreWork::Archive(_));
        let is_settled = self.storage.work().iter().all(is_archive) && unheard.is_none();
        let is_newest = newest == known && newest == here && newest == Some(chosen.kept.manifest.generation);
        if let Some(wrong) = self.memory.check_return(chosen.kept.manifest.generation) {
            self.difference_returns += 1;
            return self.record_wrong(wrong);
        }
        let wrong = (!(chosen.is_older || is_newest && is_settled)).then(|| {
            let left = self.storage.work();
            format!("back to {known:?} and {here:?} of {newest:?}, with {left:?} and {unheard:?} to come")
        });
        self.record_wrong(wrong);
        let (generation, level) = (chosen.kept.manifest.generation, chosen.kept.manifest.level);
        if level != self.scenario.level {
            self.archive_returns += 1;
            let is_there = self.storage.is_archived(generation);
            self.record_wrong((!is_there).then(|| format!("back to {generation} of the archive, which lacks it")));
        }
        let name = |host: &PlannedHost| host.name.as_ref().map(|name| name.name.clone()).unwrap_or_default();
        let lost = chosen.hosts.iter().map(name).find(|name| self.living(name).is_none());
        self.record_wrong(lost.map(|name| format!("back to host {name}, which is lost")));
    }

    /// Checks that siblings are apart, and processes which go on from images are launched where these are.
    pub(super) fn check_placement(&mut self) {
        if self.from.is_none() && self.scenario.degrees.iter().all(|degree| *degree <= 2) {
            let ranks = 0..self.scenario.degrees.len() as u32;
            let host_of = |index| ranks.clone().map(move |rank| ReplicaId::new(rank, index));
            let pairs = host_of(0)
                .zip(host_of(1))
                .map(|(one, other)| (one, self.coordinator.host(one), self.coordinator.host(other)));
            let together = pairs.filter(|(_, one, _)| one.is_some()).find(|(_, one, other)| one == other);
            let wrong = together.map(|(one, ..)| format!("{one} and its sibling are on one host"));
            self.record_wrong(wrong);
        }
        let Some(kept) = self.from.clone().filter(|_| self.coordinator.is_launched()) else { return };
        let manifest = &kept.manifest;
        if !manifest.level.is_of_hosts() || manifest.level.is_fetched() {
            return;
        }
        for replica in self.live() {
            let host = self.coordinator.host(replica).map(|host| self.hosts[host as usize].clone());
            let of = manifest.image(replica.rank).host;
            let is_there = |name: &String| manifest.holders(of).any(|at| manifest.hosts[at as usize] == *name);
            let wrong = !host.as_ref().is_some_and(is_there);
            self.record_wrong(wrong.then(|| format!("{replica} is on {host:?}, where its image is not")));
        }
    }

    /// All numbers of the machine with this one: a machine that has taken the place of another has several.
    fn numbers_of(&self, host: u32) -> Vec<u32> {
        let is_it = |other: &u32| self.hosts[*other as usize] == self.hosts[host as usize];
        (0..self.hosts.len() as u32).filter(is_it).collect()
    }

    pub(super) fn lose_host(&mut self) {
        let host = self.scenario.random.u32(0..self.hosts.len() as u32);
        let names: BTreeSet<_> = self.dead_hosts.iter().map(|host| &self.hosts[*host as usize]).collect();
        if names.len() < 2 && !self.dead_hosts.contains(&host) {
            self.numbers_of(host).into_iter().for_each(|host| self.lose_number(host));
        }
    }

    fn lose_number(&mut self, host: u32) {
        if self.dead_hosts.insert(host) {
            self.answers.remove(&host);
            let there = |replica: &ReplicaId| self.coordinator.host(*replica) == Some(host);
            let lost: Vec<_> = self.coordinator.world.replicas().filter(there).collect();
            self.gone.extend(lost);
            let (name, why) = (self.hosts[host as usize].clone(), "its power".into());
            self.give(match self.coordinator.is_launched() {
                true => Input::HostLost { host, name, why },
                false => Input::HostNotHad { host, name, why },
            });
        }
    }

    /// Answers a request for a host: its daemon joins, or cannot be reached.
    pub(super) fn find_host(&mut self, name: String) {
        if let Some(host) = self.living(&name) {
            return self.later(Input::HostFound { host, name, is_new: false });
        }
        if self.scenario.random.u8(0..4) == 0 {
            return self.later(Input::HostNotFound { name, why: "no daemon has connected".into() });
        }
        let host = self.hosts.len() as u32;
        self.hosts.push(name.clone());
        self.has_joined = true;
        self.later(Input::HostFound { host, name, is_new: true });
    }

    /// Number of the living host with this name.
    pub(super) fn living(&self, name: &str) -> Option<u32> {
        let lives = |host: &u32| !self.dead_hosts.contains(host) && !self.dismissed.contains(host);
        (0..self.hosts.len() as u32).find(|host| lives(host) && self.hosts[*host as usize] == name)
    }

    /// Lets the site's pool grant a place, or lose its host.
    pub(super) fn handle_pool(&mut self) {
        if let Some(news) = self.pool.grant() {
            return self.give(Input::Site(news));
        }
        let lost = self.scenario.random.choice(self.pool.leases.clone()).filter(|_| self.has_joined);
        if let Some(id) = lost.filter(|_| self.scenario.random.bool()) {
            let lease = Lease { id, job: JobId(JOB), user: None, spare: Spare::new("site", 2), memory_bytes: 0 };
            self.give(Input::Site(News::Leave(lease)));
        }
    }
}
