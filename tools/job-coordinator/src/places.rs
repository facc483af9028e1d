//! The places for copies: on hosts of the job, on hosts that join while it runs, and in the site's pool.
//!
//! ```text
//!   replication manager ── order ──▶ places ── order ──▶ site's pool ── news ──┐
//!        ▲                   │    ▲                                    │
//!        └────── news ───────┘    └────────────────────────────────────┘
//!                   └ granted on a host that is not part of the job: it is asked for, and the news wait
//! ```

use crate::hosts::Hosts;
use crate::launching::HostPlaces;
use crate::messages::Output;
use crate::{Coordinator, Input};
use redrt_wire::daemon::HostName;
use replication_manager::ChangeRequest;
use serde::{Deserialize, Serialize};
use spare_pool::{News, PlaceNews, PlaceOrder, Places, Request, Site, Spare};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The job's places, and the hosts that they are on.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Spares {
    job: u64,
    /// The request to the site's pool. None where it is not used.
    site: Option<Request>,
    places: Places<Site>,
    /// Places that were granted on hosts which were asked for and have not joined yet, by host name.
    awaited: BTreeMap<String, Vec<(u64, Spare)>>,
    /// Places that the job has on hosts of the site's pool, by host number.
    site_hosts: BTreeMap<u32, BTreeSet<u64>>,
    /// Hosts of the site's pool on which the job may have no places any more.
    returned: BTreeSet<u32>,
}

impl Spares {
    /// A job without places.
    pub fn new(job: u64, site: Option<Request>) -> Self {
        let request = site.clone().unwrap_or_else(|| Request::new(spare_pool::JobId(job)));
        Self {
            job,
            places: Places::new(job, site.is_some().then(Site::default), request),
            site,
            awaited: BTreeMap::new(),
            site_hosts: BTreeMap::new(),
            returned: BTreeSet::new(),
        }
    }

    /// Drops all hosts and places, because another life of the job begins.
    pub fn begin_anew(&mut self) {
        *self = Self::new(self.job, self.site.take());
    }

    /// Adds the rooms of the hosts on which processes are launched.
    pub fn launched(&mut self, host_places: Vec<HostPlaces>, now: Duration) {
        for HostPlaces { name, count } in host_places.into_iter().filter(|host_places| host_places.count > 0) {
            self.places.add(&name, count, now);
        }
    }

    pub fn obey(&mut self, order: PlaceOrder, now: Duration) {
        if let PlaceOrder::Release(number) | PlaceOrder::Failed { number, .. } = &order {
            for (host, numbers) in &mut self.site_hosts {
                if numbers.remove(number) && numbers.is_empty() {
                    self.returned.insert(*host);
                }
            }
        }
        self.places.obey(order, now);
    }

    /// Drops a host that was lost, with the places on it.
    pub fn lose(&mut self, host: u32, name: &str, now: Duration) {
        self.places.remove(name, now);
        for number in self.site_hosts.remove(&host).into_iter().flatten() {
            self.places.obey(PlaceOrder::Failed { number, why: "the host was lost".into() }, now);
        }
    }

    /// Drops a host that has no replicas any more and gets none.
    pub fn dismiss(&mut self, host: u32) {
        self.site_hosts.remove(&host);
    }

    /// Number of copies that fit where a request leads to. None if a site's pool may have more.
    pub fn room(&self, request: &ChangeRequest, hosts: &Hosts, now: Duration) -> Option<u32> {
        let name = |host: &u32| if hosts.has(*host) { hosts.name(*host) } else { "" };
        let anywhere_but = |name| (!self.places.has_site()).then(|| self.places.free_count(name, false, now));
        match request {
            ChangeRequest::Migrate { to: Some(host), .. } => Some(self.places.free_count(name(host), true, now)),
            ChangeRequest::Migrate { to: None, .. } | ChangeRequest::Degree { .. } => anywhere_but(""),
            ChangeRequest::Drain { host } => anywhere_but(name(host)),
        }
    }

    pub fn next_event(&self, now: Duration) -> Option<Duration> {
        self.places.next_event(now)
    }

    pub fn work(&mut self, now: Duration) {
        self.places.work(now);
    }

    fn record_site_place(&mut self, host: u32, number: u64) {
        if let Some(numbers) = self.site_hosts.get_mut(&host) {
            numbers.insert(number);
            self.returned.remove(&host);
        }
    }

    /// Returns a host that joined for a place of the site's pool, and on which the job has no place any more.
    fn poll_returned(&mut self) -> Option<u32> {
        while let Some(host) = self.returned.pop_first() {
            if self.site_hosts.get(&host).is_some_and(BTreeSet::is_empty) {
                self.dismiss(host);
                return Some(host);
            }
        }
        None
    }
}

impl Coordinator {
    /// Handles the inputs about hosts and places.
    pub(super) fn handle_places(&mut self, input: Input) {
        let now = self.now;
        match input {
            Input::Site(news) => self.handle_site(news),
            Input::HostFound { host, name, is_new } => {
                self.hosts.join(host, name.clone());
                if is_new {
                    if let Some((_, spare)) = self.spares.awaited.get(&name).and_then(|granted| granted.first()) {
                        let of_plan = HostName { user: spare.user.clone(), name: name.clone() };
                        self.launching.join(host, of_plan, spare.slot_count);
                    }
                    self.spares.site_hosts.insert(host, BTreeSet::new());
                    self.open_host(host, name.clone());
                }
                self.announce_awaited(host, &name);
            }
            Input::HostNotFound { name, why } => {
                for (number, _) in self.spares.awaited.remove(&name).unwrap_or_default() {
                    self.outputs.push_back(Output::Note(format!("spare host {name} cannot be used: {why}")));
                    self.spares.places.obey(PlaceOrder::Failed { number, why: why.clone() }, now);
                    self.announce_place(PlaceNews::Lost { number, why: why.clone() }, None);
                }
            }
            Input::SpareAdded { host, name, user, count, cpu_count } => {
                let count = count.unwrap_or_else(|| self.launching.fair_count(cpu_count));
                self.launching.join(host, HostName { user, name: name.clone() }, count);
                self.outputs.push_back(Output::SpareAdded { host, count });
                self.open_host(host, name.clone());
                self.spares.places.add(&name, count, now);
                self.announce_awaited(host, &name);
            }
            _ => unreachable!("it is not about places"),
        }
    }

    /// Passes on the places that were granted on a host, which has joined now.
    fn announce_awaited(&mut self, host: u32, name: &str) {
        for (number, spare) in self.spares.awaited.remove(name).unwrap_or_default() {
            self.spares.record_site_place(host, number);
            self.announce_place(PlaceNews::Granted { number, spare }, Some(host));
        }
    }

    fn open_host(&mut self, host: u32, name: String) {
        self.hosts.join(host, name.clone());
        self.manager.open_host(host, name);
    }

    fn handle_site(&mut self, news: News) {
        let now = self.now;
        if let Some(site) = self.spares.places.site_mut() {
            site.say(news);
        }
        self.spares.work(now);
    }

    fn announce_place(&mut self, news: PlaceNews, host: Option<u32>) {
        self.manager.handle(self.now, replication_manager::Input::Place { news, host });
    }

    /// Handles one order or piece of news about places. Returns false if there was none.
    pub(super) fn poll_places(&mut self) -> bool {
        if let Some(order) = self.spares.places.site_mut().and_then(Site::poll_order) {
            self.outputs.push_back(Output::Site(order));
            return true;
        }
        if let Some(news) = self.spares.places.poll_news() {
            match news {
                PlaceNews::Granted { number, spare } => self.granted(number, spare),
                PlaceNews::Note(line) => self.outputs.push_back(Output::Note(line)),
                news => self.announce_place(news, None),
            }
            return true;
        }
        let Some(host) = self.spares.poll_returned() else { return false };
        self.hosts.leave(host);
        self.manager.dismiss_host(host);
        self.outputs.push_back(Output::DismissHost(host));
        true
    }

    /// Releases a host that the job has vacated, unless the coordinator is on it: its daemon leaves.
    pub(super) fn free_host(&mut self, host: u32) {
        if !self.launching.is_local(host) {
            self.spares.dismiss(host);
            self.hosts.leave(host);
            self.manager.dismiss_host(host);
            self.outputs.push_back(Output::DismissHost(host));
        }
    }

    fn granted(&mut self, number: u64, spare: Spare) {
        if let Some(host) = self.hosts.number(&spare.name) {
            self.spares.record_site_place(host, number);
            return self.announce_place(PlaceNews::Granted { number, spare }, Some(host));
        }
        let granted = self.spares.awaited.entry(spare.name.clone()).or_default();
        granted.push((number, spare.clone()));
        if granted.len() == 1 {
            self.outputs.push_back(Output::FindHost(spare));
        }
    }
}
