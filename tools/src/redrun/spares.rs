//! Where copies can be put: places on hosts of the job, hosts that come while it runs, those of a site's pool.

use super::Shell;
use super::launching::for_daemons;
use crate::cli::Job;
use crate::pool::{Client, facts};
use anyhow::Result;
use control_network::hub::LinkId;
use coordinator::{Recovery, WishError};
use job_root::Input;
use redrt_types::VirtualRank;
use redrt_wire::daemon::{HostName, ToDaemon};
use spare_pool::{JobId, PlaceNews, PlaceOrder, Places, Request, Spare};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Why a host cannot be added by `redctl spare add`.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpareError {
    /// The job does not copy replicas.
    #[error(transparent)]
    Wish(#[from] WishError),
    /// It is beginning or ending.
    #[error("the job is not running")]
    NotRunning,
    /// Somebody has asked for it.
    #[error("host {host} is being added already")]
    Awaited { host: String },
    /// No daemon could be started there.
    #[error("{0:#}")]
    Daemon(anyhow::Error),
}

/// A host that is being added.
enum Awaited {
    /// By `redctl spare add`, which waits for the answer.
    Spare { link: LinkId, place_count: Option<u32> },
    /// For places of the site's pool, by their numbers.
    Places(Vec<(u64, Spare)>),
}

/// All that the shell knows of places.
pub struct Spares {
    places: Places<Client>,
    /// Leases are counted from here on: the job's own time begins anew when it is launched.
    begun_at: Instant,
    awaited: BTreeMap<u32, Awaited>,
    /// Hosts of the site's pool, and the places on each that the job has.
    site_hosts: BTreeMap<u32, BTreeSet<u64>>,
    /// Of those, what the job has no place on any more.
    returned: BTreeSet<u32>,
}

impl Spares {
    /// Connects to the site's pool, if the job is to use it.
    pub fn new(job: &Job, job_number: u64) -> Result<Self> {
        let begun_at = Instant::now();
        let connect =
            |pool: &crate::cli::Pool| Client::connect(pool.address, &pool.secret, JobId(job_number), Duration::ZERO);
        let site = job.pool.as_ref().map(connect).transpose()?;
        let request = Request {
            cpu_features: if site.is_some() { facts::here()?.cpu_features } else { BTreeSet::new() },
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            ..Request::new(JobId(job_number))
        };
        Ok(Self {
            places: Places::new(job_number, site, request),
            begun_at,
            awaited: BTreeMap::new(),
            site_hosts: BTreeMap::new(),
            returned: BTreeSet::new(),
        })
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.places.site().map(Client::fd)
    }

    fn now(&self) -> Duration {
        self.begun_at.elapsed()
    }

    /// How long it takes until there is something to do.
    pub fn next_wait(&self) -> Option<Duration> {
        let now = self.now();
        self.places.next_event(now).map(|at| at.saturating_sub(now))
    }

    pub fn leave(&mut self) {
        self.places.leave();
    }

    /// How many more copies can be put on this host.
    pub fn room_on(&self, host: &str) -> u32 {
        self.places.free_count(host, true, self.now())
    }

    /// How many more can be put anywhere but on one host, if that is known.
    pub fn room(&self, but: Option<&str>) -> Option<u32> {
        (!self.places.has_site()).then(|| self.places.free_count(but.unwrap_or_default(), false, self.now()))
    }

    pub fn host_lost(&mut self, host: u32, name: &str) {
        let now = self.now();
        self.places.remove(name, now);
        if let Some(numbers) = self.site_hosts.remove(&host) {
            for number in numbers {
                self.places.obey(PlaceOrder::Failed { number, why: "the host was lost".into() }, now);
            }
        }
    }
}

impl Shell<'_> {
    /// Lost replicas are to be replaced from now on, on hosts and in places that are kept for that.
    pub(super) fn recovery(&mut self, placement: &[Option<u32>]) -> Recovery {
        let now = self.spares.now();
        let job = self.job;
        let hosts: Vec<_> =
            (0..self.fleet.plan().hosts.len() as u32).map(|host| self.fleet.name(host).to_owned()).collect();
        for (number, host) in (0..).zip(&hosts) {
            let count = self.places_kept_free(number) + self.places_to_judge(number, placement);
            if count > 0 {
                self.spares.places.add(host, count, now);
            }
        }
        let degrees = (0..job.world.rank_count()).map(|rank| job.degree(VirtualRank(rank))).collect();
        let recovery = Recovery::new(hosts, degrees, for_daemons(placement), job.clone_count_max);
        match job.arbitration_interval {
            Some(interval) => recovery.arbitrating(interval),
            None => recovery,
        }
    }

    /// What may be put on a host besides what is launched there.
    fn places_kept_free(&self, number: u32) -> u32 {
        let plan = self.fleet.plan();
        let host = &plan.hosts[number as usize];
        match (host.spare, plan.is_remote()) {
            (true, _) => host.slot_count.unwrap_or_else(|| self.fair_count(number)),
            (false, false) => plan.spare_places,
            (false, true) => 0,
        }
    }

    /// For each replica of a rank with two there is a place for a copy that stands ready; where there are no spare
    /// hosts for them, on those that the job has.
    fn places_to_judge(&self, number: u32, placement: &[Option<u32>]) -> u32 {
        if self.job.arbitration_interval.is_none() {
            return 0;
        }
        let world = &self.job.world;
        let has_two = |rank: VirtualRank| self.job.degree(rank) == 2;
        let launched = world.replicas().zip(placement).filter(|(replica, host)| {
            **host == Some(number) && self.job.view.is_live(*replica) && has_two(replica.rank)
        });
        launched.count() as u32
    }

    /// Number of places of a host for which the user has given none.
    fn fair_count(&self, number: u32) -> u32 {
        let used = self.fleet.plan().hosts.iter().filter(|host| !host.spare).count().max(1) as u32;
        let degrees = (0..self.job.world.rank_count()).map(|rank| u32::from(self.job.degree(VirtualRank(rank))));
        degrees.sum::<u32>().div_ceil(used).max(self.fleet.cpu_count(number))
    }

    /// The pools are told what the coordinator wants.
    pub(super) fn obey_about_place(&mut self, order: PlaceOrder) {
        if let PlaceOrder::Release(number) | PlaceOrder::Failed { number, .. } = &order {
            for (host, numbers) in &mut self.spares.site_hosts {
                if numbers.remove(number) && numbers.is_empty() {
                    self.spares.returned.insert(*host);
                }
            }
        }
        let now = self.spares.now();
        self.spares.places.obey(order, now);
    }

    pub(super) fn work_on_spares(&mut self) {
        let now = self.spares.now();
        self.spares.places.work(now);
        self.hear_of_places();
    }

    /// The coordinator is told what the pools have said.
    pub(super) fn hear_of_places(&mut self) {
        while let Some(news) = self.spares.places.poll_news() {
            match &news {
                PlaceNews::Granted { number, spare } => match self.find_host(&spare.name) {
                    Some(host) if !self.spares.awaited.contains_key(&host) => {
                        self.note_site_place(host, *number);
                        self.tell_of_place(news, Some(host));
                    }
                    awaited => self.await_host(awaited, *number, spare.clone()),
                },
                PlaceNews::Note(line) => self.console.warning(line),
                _ => self.tell_of_place(news, None),
            }
        }
        for host in std::mem::take(&mut self.spares.returned) {
            if self.spares.site_hosts.get(&host).is_some_and(BTreeSet::is_empty) {
                self.spares.site_hosts.remove(&host);
                self.handle(Input::HostDismissed(host));
                self.fleet.dismiss(host);
            }
        }
    }

    fn note_site_place(&mut self, host: u32, number: u64) {
        if let Some(numbers) = self.spares.site_hosts.get_mut(&host) {
            numbers.insert(number);
            self.spares.returned.remove(&host);
        }
    }

    fn tell_of_place(&mut self, news: PlaceNews, host: Option<u32>) {
        self.handle(Input::Job(coordinator::Input::Place { news, host }));
    }

    /// A place was granted on a host that is not part of the job yet.
    fn await_host(&mut self, host: Option<u32>, number: u64, spare: Spare) {
        if let Some(Awaited::Places(places)) = host.and_then(|host| self.spares.awaited.get_mut(&host)) {
            return places.push((number, spare));
        }
        match self.fleet.add(&spare) {
            Ok(host) => {
                self.spares.awaited.insert(host, Awaited::Places(vec![(number, spare)]));
            }
            Err(error) => self.refuse_place(number, &spare.name, &format!("{error:#}")),
        }
    }

    /// A place cannot be used.
    fn refuse_place(&mut self, number: u64, host: &str, why: &str) {
        let now = self.spares.now();
        self.console.warning(&format!("spare host {host} cannot be used: {why}"));
        self.spares.places.obey(PlaceOrder::Failed { number, why: why.to_owned() }, now);
        self.tell_of_place(PlaceNews::Lost { number, why: why.to_owned() }, None);
    }

    /// `redctl spare add`: whether that is done already.
    pub(super) fn add_spare(
        &mut self,
        link: LinkId,
        name: &HostName,
        place_count: Option<u32>,
    ) -> Result<bool, SpareError> {
        if !self.job.is_cloneable {
            return Err(WishError::NotCloneable.into());
        }
        if !self.root.is_launched() || self.exit_code.is_some() {
            return Err(SpareError::NotRunning);
        }
        if let Some(host) = self.find_host(&name.name) {
            if self.spares.awaited.contains_key(&host) {
                return Err(SpareError::Awaited { host: name.name.clone() });
            }
            let count = place_count.unwrap_or(1);
            self.open_host(host, count);
            return Ok(true);
        }
        let spare = Spare { user: name.user.clone(), ..Spare::new(&name.name, place_count.unwrap_or(1)) };
        let host = self.fleet.add(&spare).map_err(SpareError::Daemon)?;
        self.spares.awaited.insert(host, Awaited::Spare { link, place_count });
        Ok(false)
    }

    fn open_host(&mut self, host: u32, place_count: u32) {
        let (now, name) = (self.spares.now(), self.fleet.name(host).to_owned());
        let fields = serde_json::json!({ "host": name, "places": place_count });
        self.record("spare-added", &fields);
        self.handle(Input::HostOpened { host, name: name.clone() });
        self.spares.places.add(&name, place_count, now);
        self.hear_of_places();
    }

    /// The daemon of a host that was added is there.
    pub(super) fn host_joined(&mut self, host: u32) {
        if let Some(launch) = &self.launch {
            let mut launch = launch.clone();
            launch.view = self.root.coordinator().view().clone();
            launch.placement = for_daemons(self.root.placement());
            self.fleet.send(host, &ToDaemon::Launch(Box::new(launch)));
        }
        match self.spares.awaited.remove(&host) {
            Some(Awaited::Spare { link, place_count }) => {
                self.fleet.answer(link, String::new());
                self.open_host(host, place_count.unwrap_or_else(|| self.fair_count(host)));
            }
            Some(Awaited::Places(places)) => {
                let name = self.fleet.name(host).to_owned();
                self.handle(Input::HostOpened { host, name });
                self.spares.site_hosts.insert(host, places.iter().map(|(number, _)| *number).collect());
                for (number, spare) in places {
                    self.tell_of_place(PlaceNews::Granted { number, spare }, Some(host));
                }
                self.hear_of_places();
            }
            None => {}
        }
    }

    /// A host that was to be added cannot be had.
    pub(super) fn host_not_joined(&mut self, host: u32, why: &str) {
        let name = self.fleet.name(host).to_owned();
        match self.spares.awaited.remove(&host) {
            Some(Awaited::Spare { link, .. }) => self.fleet.answer(link, format!("host {name}: {why}")),
            Some(Awaited::Places(places)) => {
                for (number, _) in places {
                    self.refuse_place(number, &name, why);
                }
                self.hear_of_places();
            }
            None => {}
        }
    }

    /// A host that was to become free is: its daemon leaves, unless it is that of this host.
    pub(super) fn host_free(&mut self, host: u32) {
        if !self.fleet.plan().hosts[host as usize].local {
            self.handle(Input::HostDismissed(host));
            self.spares.site_hosts.remove(&host);
            self.fleet.dismiss(host);
        }
    }
}
