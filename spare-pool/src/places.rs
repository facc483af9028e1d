//! All places where a job may put copies: those of its own hosts, in a pool inside `redrun`, and those of a site's
//! pool.
//!
//! Enter: what the coordinator wants ([`PlaceOrder`]), by numbers that it chooses; each is of one place from the
//! question to the return. Leave: [`PlaceNews`]. A job's own places go before those of the site's pool.

use crate::spares::{Embedded, News, Spares};
use crate::{JobId, LeaseId, Pool, Request, Settings, Spare};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The rest of a host after the first clone to it failed; it doubles with each.
const REST_FIRST: Duration = Duration::from_millis(250);
/// A site's pool that has a place says so within this time; after that it is said that there is none.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// What the coordinator wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlaceOrder {
    /// A place, when there is one.
    Ask {
        /// By this number. Used once.
        number: u64,
        /// Memory of the largest replica, as far as that is known.
        memory_bytes: u64,
        /// Rather not on these hosts.
        apart_from: Vec<String>,
        /// Nowhere but on this host.
        only: Option<String>,
    },
    /// It is not needed any more.
    Withdraw(u64),
    /// The copy there runs: the host is good.
    Succeeded(u64),
    /// It is given back: not needed, or the copy there has ended.
    Release(u64),
    /// It is given back because the clone failed, for a reason that may lie with the host.
    Failed {
        /// The number of the place's question.
        number: u64,
        /// The reason.
        why: String,
    },
    /// A process has ended that was not in a place of a pool: there is one place more on its host.
    Freed(String),
    /// A host is to become free: nothing more is put there.
    Close(String),
}

/// What the coordinator is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PlaceNews {
    /// Here is a place.
    Granted {
        /// The number of the question.
        number: u64,
        /// The host.
        spare: Spare,
    },
    /// There is none for now; `Granted` may follow.
    NoneYet {
        /// The number of the question.
        number: u64,
        /// Why each host cannot be given, as far as that is known.
        why: Vec<String>,
    },
    /// A place is the job's no more.
    Lost {
        /// The number of the place's question.
        number: u64,
        /// Why, in words.
        why: String,
    },
    /// The host of this place is to become free.
    Leave(u64),
    /// Something the user should know.
    Note(String),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
enum Origin {
    Own,
    Site,
}

/// See the module. `S` is how the site's pool is reached.
#[derive(Debug, Serialize, Deserialize)]
pub struct Places<S = Embedded> {
    job: JobId,
    own: Embedded,
    site: Option<S>,
    /// What a host of the site's pool must have.
    site_request: Request,
    /// Questions that wait, and until when nothing is said of those.
    waiting: BTreeMap<u64, Option<Duration>>,
    held: BTreeMap<u64, (Origin, LeaseId)>,
    /// Hosts that are to become free, or are gone.
    closed: BTreeSet<String>,
    news: VecDeque<PlaceNews>,
}

impl<S: Spares> Places<S> {
    /// None at first.
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

    /// Adds room for `count` copies on a host, which may be closed or new.
    pub fn add(&mut self, host: &str, count: u32, now: Duration) {
        self.closed.remove(host);
        let before = self.slot_count(host);
        self.own.change(|pool| pool.add(Spare::new(host, before + count), now));
        self.hear(now);
    }

    fn slot_count(&self, host: &str) -> u32 {
        self.own
            .pool()
            .hosts(Duration::ZERO)
            .find(|status| status.spare.name == host)
            .map_or(0, |status| status.spare.slot_count)
    }

    /// A host is gone: nothing can be put there, and what was there is lost already.
    pub fn remove(&mut self, host: &str, now: Duration) {
        self.closed.insert(host.to_owned());
        self.own.change(|pool| pool.remove(host, now));
        self.hear(now);
    }

    /// Places on the job's own hosts that are free now, on all hosts but one; or on that one alone.
    #[must_use]
    pub fn free_count(&self, host: &str, is_only: bool, now: Duration) -> u32 {
        let open = self.own.pool().hosts(now).filter(|status| (status.spare.name == host) == is_only);
        let open = open.filter(|status| status.admission == crate::Admission::Open);
        open.map(|status| status.spare.slot_count.saturating_sub(status.leased_count)).sum()
    }

    /// Whether there may be places that are not known here.
    #[must_use]
    pub fn has_site(&self) -> bool {
        self.site.is_some()
    }

    /// Does what the coordinator wants.
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
        self.hear(now);
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
            self.hear(now);
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
        self.hear(now);
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

    fn hear(&mut self, now: Duration) {
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
            // Of the job's own hosts the coordinator knows already.
            News::Leave(_) if origin == Origin::Own => {}
            News::Leave(lease) => {
                let number = number_of(&self.held, lease.id);
                self.news.extend(number.map(PlaceNews::Leave));
            }
            News::Note(line) => self.news.push_back(PlaceNews::Note(line)),
        }
    }

    /// Does what is due: when the site's pool was heard of, and at [`Places::next_event`].
    pub fn work(&mut self, now: Duration) {
        self.own.work(now);
        if let Some(site) = &mut self.site {
            site.work(now);
        }
        self.hear(now);
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

    /// What the coordinator has not been told yet.
    pub fn poll_news(&mut self) -> Option<PlaceNews> {
        self.news.pop_front()
    }

    /// When [`Places::work`] has something to do though nothing has happened.
    #[must_use]
    pub fn next_event(&self, now: Duration) -> Option<Duration> {
        let own = if self.waiting.is_empty() { None } else { self.own.next_event(now) };
        let site = self.site.as_ref().and_then(|site| site.next_event(now));
        own.into_iter().chain(site).chain(self.waiting.values().copied().flatten()).min()
    }

    /// The site's pool, if the job uses it. What it hears is for [`Places::work`].
    pub fn site_mut(&mut self) -> Option<&mut S> {
        self.site.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Facts;

    const NOW: Duration = Duration::from_secs(1);
    /// Of the site's host.
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

    /// A site's pool with one host.
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
    fn the_site_is_asked_for_as_much_memory_as_the_largest_replica_has() {
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
        // Withdrawn after it was granted, and before anybody knew.
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
