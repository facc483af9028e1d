//! All places where a job may put copies: on its own hosts, in a pool inside `redrun`, and in a site's pool.
//!
//! Input: orders of the coordinator ([`PlaceOrder`]). It chooses a number for each request, which then identifies the
//! place until it is returned. Output: [`PlaceNews`]. A job's own places are used before those of the site.

use crate::spares::{Embedded, News, Spares};
use crate::{JobId, LeaseId, Pool, Request, Settings, Spare};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Rest of a host after the first failed clone; it doubles with each.
const REST_FIRST: Duration = Duration::from_millis(250);
/// Time for the site's pool to grant a place. After it, the coordinator is told that there is none yet.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Orders of the coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlaceOrder {
    /// Requests a place, to be granted when there is one.
    Ask {
        /// Number of the request, used once.
        number: u64,
        /// Memory of the largest replica in bytes, as far as known.
        memory_bytes: u64,
        /// Hosts to avoid if possible.
        apart_from: Vec<String>,
        /// The only host that will do, if any.
        only: Option<String>,
    },
    /// The request is withdrawn, granted or not.
    Withdraw(u64),
    /// The copy in this place runs, so the host is good.
    Succeeded(u64),
    /// The place is returned: it is not needed, or the copy there has ended.
    Release(u64),
    /// The place is returned because the clone failed, perhaps because of the host.
    Failed {
        /// Number of the request.
        number: u64,
        /// Reason of the failure, for messages.
        why: String,
    },
    /// A process has ended that did not occupy a place of a pool: its host has one more place.
    Freed(String),
    /// The host is to become free: nothing more is put there.
    Close(String),
}

/// Results for the coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PlaceNews {
    /// A place is granted.
    Granted {
        /// Number of the request.
        number: u64,
        /// Host on which the place is.
        spare: Spare,
    },
    /// There is no place yet; `Granted` may follow.
    NoneYet {
        /// Number of the request.
        number: u64,
        /// Reasons why hosts cannot be granted, as far as known, one line each.
        why: Vec<String>,
    },
    /// The job has lost a place.
    Lost {
        /// Number of the request.
        number: u64,
        /// Reason of the loss, for messages.
        why: String,
    },
    /// The job should leave this place, because its host is to become free.
    Leave(u64),
    /// A message for the user.
    Note(String),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum Origin {
    Own,
    Site,
}

/// All places that a job may use. `S` gives access to the site's pool.
#[derive(Debug, Serialize, Deserialize)]
pub struct Places<S = Embedded> {
    job: JobId,
    own: Embedded,
    site: Option<S>,
    /// Requirements for hosts of the site's pool.
    site_request: Request,
    /// Waiting requests. Until the time, if any, no `NoneYet` is reported.
    waiting: BTreeMap<u64, Option<Duration>>,
    held: BTreeMap<u64, (Origin, LeaseId)>,
    /// Hosts that are to become free, or are gone.
    closed: BTreeSet<String>,
    news: VecDeque<PlaceNews>,
}

impl<S: Spares> Places<S> {
    /// Starts without hosts. `site_request` has the requirements for hosts of the site's pool.
    #[must_use]
    pub fn new(job: u64, site: Option<S>, site_request: Request) -> Self {
        let job = JobId(job);
        let pool = Pool::new(Settings { rest_first: REST_FIRST, ..Settings::embedded() });
        Self {
            job,
            own: Embedded::new(pool, job),
            site,
            site_request: Request { job, ..site_request },
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            closed: BTreeSet::new(),
            news: VecDeque::new(),
        }
    }

    /// Adds places for `count` copies on a host, which may be new or closed.
    pub fn add(&mut self, host: &str, count: u32, now: Duration) {
        self.closed.remove(host);
        let before = self.slot_count(host);
        self.own.change(|pool| pool.add(Spare::new(host, before + count), now));
        self.handle(now);
    }

    fn slot_count(&self, host: &str) -> u32 {
        self.own
            .pool()
            .hosts(Duration::ZERO)
            .find(|status| status.spare.name == host)
            .map_or(0, |status| status.spare.slot_count)
    }

    /// Removes a host that is gone. Whatever was there is lost already.
    pub fn remove(&mut self, host: &str, now: Duration) {
        self.closed.insert(host.to_owned());
        self.own.change(|pool| pool.remove(host, now));
        self.handle(now);
    }

    /// Number of free places on the job's own hosts: on `host` alone if `is_only`, else on all others.
    #[must_use]
    pub fn free_count(&self, host: &str, is_only: bool, now: Duration) -> u32 {
        let open = self.own.pool().hosts(now).filter(|status| (status.spare.name == host) == is_only);
        let open = open.filter(|status| status.admission == crate::Admission::Open);
        open.map(|status| status.spare.slot_count.saturating_sub(status.leased_count)).sum()
    }

    /// Returns true if there is a site's pool, which may have places unknown here.
    #[must_use]
    pub fn has_site(&self) -> bool {
        self.site.is_some()
    }

    /// Carries out an order of the coordinator.
    pub fn obey(&mut self, order: PlaceOrder, now: Duration) {
        match order {
            PlaceOrder::Ask { number, memory_bytes, apart_from, only } => {
                self.ask(number, memory_bytes, apart_from, only, now);
            }
            PlaceOrder::Withdraw(number) => {
                if self.waiting.remove(&number).is_some() {
                    self.own.withdraw(number, now);
                    if let Some(site) = &mut self.site {
                        site.withdraw(number, now);
                    }
                }
                let is_its =
                    |news: &PlaceNews| matches!(news, PlaceNews::Granted { number: other, .. } if *other == number);
                self.news.retain(|news| !is_its(news));
                self.give_back(number, now, |pool, lease| pool.release(lease, now));
            }
            PlaceOrder::Succeeded(number) => {
                if let Some((origin, lease)) = self.held.get(&number).copied() {
                    self.pool(origin).succeeded(lease, now);
                }
            }
            PlaceOrder::Release(number) => self.give_back(number, now, |pool, lease| pool.release(lease, now)),
            PlaceOrder::Failed { number, why } => {
                self.give_back(number, now, |pool, lease| pool.failed(lease, &why, now));
            }
            PlaceOrder::Freed(host) => {
                if !self.closed.contains(&host) {
                    self.add(&host, 1, now);
                }
            }
            PlaceOrder::Close(host) => {
                self.own.change(|pool| pool.drain(&host, now));
                self.closed.insert(host);
            }
        }
        self.handle(now);
    }

    fn pool(&mut self, origin: Origin) -> &mut dyn Spares {
        match (origin, &mut self.site) {
            (Origin::Site, Some(site)) => site,
            _ => &mut self.own,
        }
    }

    fn give_back(&mut self, number: u64, now: Duration, how: impl FnOnce(&mut dyn Spares, LeaseId)) {
        if let Some((origin, lease)) = self.held.remove(&number) {
            how(self.pool(origin), lease);
            self.handle(now);
        }
    }

    fn ask(&mut self, number: u64, memory_bytes: u64, apart_from: Vec<String>, only: Option<String>, now: Duration) {
        let others = |only: &String| -> Vec<String> {
            self.own.pool().hosts(now).map(|status| status.spare.name).filter(|name| name != only).collect()
        };
        let excluded = only.as_ref().map(others).unwrap_or_default();
        let own = Request::new(self.job).apart_from(apart_from.clone()).excluding(excluded);
        self.waiting.insert(number, None);
        self.own.request(number, own.clone(), now);
        self.handle(now);
        if !self.waiting.contains_key(&number) {
            return;
        }
        match &mut self.site {
            Some(site) if only.is_none() => {
                let request = self.site_request.clone().with_memory(memory_bytes).apart_from(apart_from);
                site.request(number, request, now);
                self.waiting.insert(number, Some(now + ANSWER_TIME));
            }
            _ => {
                let why = self.own.why_none(&own, now);
                self.news.push_back(PlaceNews::NoneYet { number, why });
            }
        }
    }

    fn handle(&mut self, now: Duration) {
        for origin in [Origin::Own, Origin::Site] {
            if origin == Origin::Site && self.site.is_none() {
                continue;
            }
            while let Some(news) = self.pool(origin).poll_news() {
                self.take(origin, news, now);
            }
        }
    }

    fn take(&mut self, origin: Origin, news: News, now: Duration) {
        let number_of = |held: &BTreeMap<u64, (Origin, LeaseId)>, lease| {
            held.iter().find(|(_, other)| **other == (origin, lease)).map(|(number, _)| *number)
        };
        match news {
            News::Granted { number, lease } if self.waiting.remove(&number).is_some() => {
                self.held.insert(number, (origin, lease.id));
                let other = if origin == Origin::Own { Origin::Site } else { Origin::Own };
                if other == Origin::Own || self.site.is_some() {
                    self.pool(other).withdraw(number, now);
                }
                self.news.push_back(PlaceNews::Granted { number, spare: lease.spare });
            }
            News::Granted { lease, .. } => self.pool(origin).release(lease.id, now),
            News::Lost { lease, why } => {
                if let Some(number) = number_of(&self.held, lease.id) {
                    self.held.remove(&number);
                    self.news.push_back(PlaceNews::Lost { number, why });
                }
            }
            // The coordinator gave that order itself.
            News::Leave(_) if origin == Origin::Own => {}
            News::Leave(lease) => {
                let number = number_of(&self.held, lease.id);
                self.news.extend(number.map(PlaceNews::Leave));
            }
            News::Note(line) => self.news.push_back(PlaceNews::Note(line)),
        }
    }

    /// Does everything that is due. To be called after messages of the site's pool, and at [`Places::next_event`].
    pub fn work(&mut self, now: Duration) {
        self.own.work(now);
        if let Some(site) = &mut self.site {
            site.work(now);
        }
        self.handle(now);
        let late: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, until)| until.is_some_and(|until| until <= now))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.waiting.insert(number, None);
            self.news.push_back(PlaceNews::NoneYet { number, why: Vec::new() });
        }
    }

    /// Next result for the coordinator.
    pub fn poll_news(&mut self) -> Option<PlaceNews> {
        self.news.pop_front()
    }

    /// Time at which [`Places::work`] is due even if nothing else happens.
    #[must_use]
    pub fn next_event(&self, now: Duration) -> Option<Duration> {
        let own = if self.waiting.is_empty() { None } else { self.own.next_event(now) };
        let site = self.site.as_ref().and_then(|site| site.next_event(now));
        own.into_iter().chain(site).chain(self.waiting.values().copied().flatten()).min()
    }

    /// The site's pool, if the job uses one. After passing messages to it, call [`Places::work`].
    pub fn site_mut(&mut self) -> Option<&mut S> {
        self.site.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Facts;

    const NOW: Duration = Duration::from_secs(1);
    /// Memory of the site's host.
    const MEMORY_BYTES: u64 = 1 << 30;

    fn ask(places: &mut Places, number: u64, only: Option<&str>) {
        let only = only.map(str::to_owned);
        places.obey(PlaceOrder::Ask { number, memory_bytes: 1, apart_from: vec!["a".into()], only }, NOW);
    }

    fn granted(places: &mut Places) -> Option<(u64, String)> {
        match places.poll_news() {
            Some(PlaceNews::Granted { number, spare }) => Some((number, spare.name)),
            Some(PlaceNews::NoneYet { .. }) | None => None,
            other => panic!("{other:?}"),
        }
    }

    fn own() -> Places {
        Places::new(1, None, Request::new(JobId(0)))
    }

    /// Places with a site's pool of one host.
    fn with_site() -> Places {
        let mut pool = Pool::new(Settings::embedded());
        pool.add(Spare::new("site", 1), NOW);
        let facts = Facts { memory_bytes: MEMORY_BYTES, ..Facts::default() };
        pool.seen("site", Ok(facts), NOW);
        Places::new(1, Some(Embedded::new(pool, JobId(1))), Request::new(JobId(0)))
    }

    #[test]
    fn who_waits_is_given_what_appears() {
        let mut places = own();
        ask(&mut places, 1, None);
        assert!(matches!(places.poll_news(), Some(PlaceNews::NoneYet { number: 1, .. })));
        places.add("b", 1, NOW);
        assert_eq!(granted(&mut places), Some((1, "b".into())));
        ask(&mut places, 2, None);
        assert!(
            matches!(places.poll_news(), Some(PlaceNews::NoneYet { number: 2, why }) if why == ["b: all its places are taken"])
        );
        places.obey(PlaceOrder::Release(1), NOW);
        assert_eq!(granted(&mut places), Some((2, "b".into())));
        places.obey(PlaceOrder::Freed("c".into()), NOW);
        assert_eq!(places.free_count("b", false, NOW), 1);
    }

    #[test]
    fn a_named_host_is_the_only_one_that_will_do() {
        let mut places = own();
        places.add("b", 1, NOW);
        places.add("a", 1, NOW);
        ask(&mut places, 1, Some("a"));
        assert_eq!(granted(&mut places), Some((1, "a".into())));
        ask(&mut places, 2, Some("a"));
        assert_eq!(granted(&mut places), None);
        assert_eq!((places.free_count("a", true, NOW), places.free_count("a", false, NOW)), (0, 1));
    }

    #[test]
    fn nothing_is_put_on_a_closed_host_until_it_is_added_again() {
        let mut places = own();
        places.add("b", 1, NOW);
        places.obey(PlaceOrder::Close("b".into()), NOW);
        places.obey(PlaceOrder::Freed("b".into()), NOW);
        ask(&mut places, 1, None);
        assert_eq!(granted(&mut places), None);
        places.add("b", 1, NOW);
        assert_eq!(granted(&mut places), Some((1, "b".into())));
    }

    #[test]
    fn own_places_go_before_those_of_the_site() {
        let mut places = with_site();
        places.add("b", 1, NOW);
        ask(&mut places, 1, None);
        assert_eq!(granted(&mut places), Some((1, "b".into())));
        ask(&mut places, 2, None);
        assert_eq!(granted(&mut places), Some((2, "site".into())));
        places.obey(PlaceOrder::Failed { number: 2, why: "no".into() }, NOW);
        ask(&mut places, 3, None);
        places.work(NOW + ANSWER_TIME);
        assert!(matches!(places.poll_news(), Some(PlaceNews::NoneYet { number: 3, .. })));
    }

    #[test]
    fn the_site_is_asked_for_the_memory_of_the_largest_replica() {
        let mut places = with_site();
        let ask = |number, memory_bytes| PlaceOrder::Ask { number, memory_bytes, apart_from: Vec::new(), only: None };
        places.obey(ask(1, MEMORY_BYTES + 1), NOW);
        assert_eq!(granted(&mut places), None);
        places.obey(PlaceOrder::Withdraw(1), NOW);
        places.obey(ask(2, MEMORY_BYTES), NOW);
        assert_eq!(granted(&mut places), Some((2, "site".into())));
    }

    #[test]
    fn what_both_could_give_is_taken_once() {
        let mut places = with_site();
        ask(&mut places, 1, None);
        assert_eq!(granted(&mut places), Some((1, "site".into())));
        places.add("b", 1, NOW);
        assert_eq!((granted(&mut places), places.free_count("b", true, NOW)), (None, 1));
        // The withdrawal comes after the grant, and before the coordinator has taken it.
        ask(&mut places, 2, None);
        places.obey(PlaceOrder::Withdraw(2), NOW);
        assert_eq!((granted(&mut places), places.free_count("b", true, NOW)), (None, 1));
    }

    #[test]
    fn a_lost_host_takes_its_places_along() {
        let mut places = own();
        places.add("b", 2, NOW);
        ask(&mut places, 1, None);
        assert_eq!(granted(&mut places), Some((1, "b".into())));
        places.remove("b", NOW);
        assert!(matches!(places.poll_news(), Some(PlaceNews::Lost { number: 1, .. })));
        places.obey(PlaceOrder::Release(1), NOW);
        assert_eq!(places.free_count("a", false, NOW), 0);
    }
}
