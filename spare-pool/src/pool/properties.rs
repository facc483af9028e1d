//! Properties that hold for a pool after any sequence of operations.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Operation {
    Add { host: usize, slot_count: u32 },
    Remove(usize),
    Drain(usize),
    Bad(usize),
    Seen { host: usize, memory_bytes: Option<u64> },
    Request { job: u64, memory_bytes: u64, apart_from: usize },
    LeaseNow { job: u64 },
    Withdraw(usize),
    Renew(u64),
    Release(usize),
    Failed(usize),
    Succeeded(usize),
    ReleaseAll(u64),
    Pass { seconds: u64 },
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    let (host, job) = (0..HOSTS.len(), 0_u64..4);
    prop_oneof![
        2 => (host.clone(), 1_u32..3).prop_map(|(host, slot_count)| Operation::Add { host, slot_count }),
        1 => host.clone().prop_map(Operation::Remove),
        1 => host.clone().prop_map(Operation::Drain),
        1 => host.clone().prop_map(Operation::Bad),
        6 => (host.clone(), proptest::option::weighted(0.8, 0_u64..20))
            .prop_map(|(host, memory_bytes)| Operation::Seen { host, memory_bytes }),
        6 => (job.clone(), 0_u64..12, host)
            .prop_map(|(job, memory_bytes, apart_from)| Operation::Request { job, memory_bytes, apart_from }),
        2 => job.clone().prop_map(|job| Operation::LeaseNow { job }),
        1 => (0_usize..8).prop_map(Operation::Withdraw),
        3 => job.clone().prop_map(Operation::Renew),
        3 => (0_usize..8).prop_map(Operation::Release),
        3 => (0_usize..8).prop_map(Operation::Failed),
        1 => (0_usize..8).prop_map(Operation::Succeeded),
        1 => job.prop_map(Operation::ReleaseAll),
        4 => (0_u64..40).prop_map(|seconds| Operation::Pass { seconds }),
        1 => Just(Operation::Restart),
    ]
}

/// A pool, and the state that an observer derives from its outputs.
struct Observed {
    settings: Settings,
    pool: Pool,
    now: Duration,
    stored: Stored,
    held: BTreeMap<LeaseId, Lease>,
    heard: BTreeMap<JobId, Duration>,
    ever_granted: BTreeSet<LeaseId>,
    slot_counts: BTreeMap<String, u32>,
}

impl Observed {
    fn new(is_watched: bool, places_per_job_max: Option<u32>) -> Self {
        let shared = Settings::shared();
        let watch = shared.watch.filter(|_| is_watched);
        let settings = Settings { watch, places_per_job_max, ..shared };
        Self {
            pool: Pool::new(settings.clone()),
            settings,
            now: Duration::ZERO,
            stored: Stored::default(),
            held: BTreeMap::new(),
            heard: BTreeMap::new(),
            ever_granted: BTreeSet::new(),
            slot_counts: BTreeMap::new(),
        }
    }

    fn lease_of(&self, number: usize) -> Option<LeaseId> {
        self.held.keys().nth(number).copied()
    }

    fn give_back(&mut self, number: usize, end: impl FnOnce(&mut Pool, LeaseId, Duration) -> bool) {
        let Some(id) = self.lease_of(number) else { return };
        self.held.remove(&id);
        assert!(end(&mut self.pool, id, self.now), "{id} was held");
    }

    fn perform(&mut self, operation: Operation) {
        let now = self.now;
        match operation {
            Operation::Add { host, slot_count } => {
                self.slot_counts.insert(HOSTS[host].into(), slot_count);
                self.pool.add(Spare::new(HOSTS[host], slot_count), now);
            }
            Operation::Remove(host) => drop(self.pool.remove(HOSTS[host], now)),
            Operation::Drain(host) => drop(self.pool.drain(HOSTS[host], now)),
            Operation::Bad(host) => drop(self.pool.mark_bad(HOSTS[host], "it is", now)),
            Operation::Seen { host, memory_bytes } => {
                let facts = memory_bytes.map(|memory_bytes| Facts { memory_bytes, ..Facts::default() });
                self.pool.seen(HOSTS[host], facts.ok_or_else(|| Unseen::Said("no route".into())), now);
            }
            Operation::Request { job, memory_bytes, apart_from } => {
                let request = Request::new(JobId(job)).with_memory(memory_bytes).apart_from([HOSTS[apart_from]]);
                self.pool.request(request, now);
            }
            Operation::LeaseNow { job } => {
                if let Some(lease) = self.pool.lease(Request::new(JobId(job)), now) {
                    self.granted(lease);
                }
            }
            Operation::Withdraw(number) => {
                let ticket = self.pool.waiting().nth(number).map(|(ticket, _)| ticket);
                if let Some(ticket) = ticket {
                    assert!(self.pool.withdraw(ticket));
                }
            }
            Operation::Renew(job) => {
                self.heard.insert(JobId(job), now);
                self.pool.renew(JobId(job), now);
            }
            Operation::Release(number) => self.give_back(number, Pool::release),
            Operation::Failed(number) => self.give_back(number, |pool, id, now| pool.failed(id, "it did", now)),
            Operation::Succeeded(number) => {
                if let Some(id) = self.lease_of(number) {
                    assert!(self.pool.succeeded(id, now));
                }
            }
            Operation::ReleaseAll(job) => {
                self.held.retain(|_, lease| lease.job != JobId(job));
                self.pool.release_all(JobId(job), now);
            }
            Operation::Pass { seconds } => {
                self.now += Duration::from_secs(seconds);
                self.pool.advance(self.now);
            }
            Operation::Restart => {
                assert_eq!(self.pool.stored(), self.stored);
                self.pool = Pool::restore(self.settings.clone(), self.stored.clone(), now);
                assert_eq!(self.pool.stored(), self.stored, "the pool that was stored is the one that is restored");
                for lease in self.held.values() {
                    self.heard.insert(lease.job, now);
                }
            }
        }
    }

    fn granted(&mut self, lease: Lease) {
        assert!(self.ever_granted.insert(lease.id), "{} was given twice", lease.id);
        let there = || self.held.values().filter(|other| other.spare.name == lease.spare.name);
        assert!(there().all(|other| other.job == lease.job), "{lease:?} is of a host that another job has");
        let slot_count = self.slot_counts[&lease.spare.name];
        assert!((there().count() as u32) < slot_count, "{lease:?} is one too many");
        self.heard.insert(lease.job, self.now);
        self.held.insert(lease.id, lease);
    }

    fn handle(&mut self) {
        let mut stored_leases = BTreeSet::new();
        while let Some(output) = self.pool.poll_output() {
            match output {
                Output::Store(change) => {
                    if let Change::Lease(lease) = &change {
                        stored_leases.insert(lease.id);
                    }
                    self.stored.apply(change);
                }
                Output::Granted(_, lease) => {
                    assert!(stored_leases.contains(&lease.id), "{lease:?} is told before it is stored");
                    self.granted(lease);
                }
                Output::Ended(lease, why) => {
                    assert!(!self.stored.leases.contains_key(&lease.id), "{lease:?} is over and still stored");
                    if why == Ended::Expired {
                        let heard = self.heard[&lease.job];
                        assert!(self.now >= heard + Duration::from_secs(60), "{lease:?} ended too early");
                    }
                    assert!(self.held.remove(&lease.id).is_some(), "{lease:?} was not held");
                }
                Output::Look(spare) => assert!(self.settings.watch.is_some(), "nobody wants to look at {spare:?}"),
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.pool.stored(), self.stored);
        assert_eq!(self.pool.stored().leases, self.held);
        for lease in self.held.values() {
            let age = self.now - self.heard[&lease.job];
            assert!(age < Duration::from_secs(60), "{lease:?} is of a job that vanished {age:?} ago");
        }
        // No request waits for a place that it could have.
        for (ticket, request) in self.pool.waiting() {
            let count = self.held.values().filter(|lease| lease.job == request.job).count() as u32;
            let has_its_share = self.settings.places_per_job_max.is_some_and(|count_max| count >= count_max);
            let unfit = self.pool.explain(request, self.now).count();
            assert!(has_its_share || unfit == self.pool.hosts(self.now).count(), "{ticket:?} waits in vain");
        }
    }

    /// Following `next_event` advances the time: nothing is due for ever.
    fn check_time(&self) {
        let mut pool = self.pool.clone();
        let mut now = self.now;
        for _ in 0..20 {
            let Some(next) = pool.next_event(now) else { return };
            pool.advance(next);
            assert!(pool.next_event(next).is_none_or(|later| later > next), "something is due at {next:?} for ever");
            now = next;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn leases_are_exclusive_end_and_survive(
        is_watched: bool,
        places_per_job_max in proptest::option::of(1_u32..4),
        operations in proptest::collection::vec(operation(), 1..80),
    ) {
        let mut observed = Observed::new(is_watched, places_per_job_max);
        for operation in operations {
            observed.perform(operation);
            observed.handle();
            observed.check();
        }
        observed.check_time();
    }

    /// If hosts keep becoming free, each request that can use one is granted, even if new ones keep coming.
    #[test]
    fn nobody_starves(jobs in proptest::collection::vec(0_u64..6, 1..40), patient in 0_u64..6) {
        let overtaken_max = 3;
        let mut pool = Pool::new(Settings { overtaken_max, ..Settings::embedded() });
        let now = Duration::ZERO;
        pool.add(Spare::new("a", 1), now);
        let mut holder = pool.lease(Request::new(JobId(99)), now).expect("it is free");
        let before: Vec<_> = jobs.iter().map(|job| pool.request(Request::new(JobId(*job)), now)).collect();
        let ticket = pool.request(Request::new(JobId(patient)), now);
        let turn_max = before.len() as u32 + overtaken_max + 1;
        let mut turns = 0;
        loop {
            // In each turn a new job without leases makes a request.
            pool.request(Request::new(JobId(1000 + u64::from(turns))), now);
            pool.release(holder.id, now);
            turns += 1;
            prop_assert!(turns <= turn_max, "not served in {turns} turns");
            let (to, lease) = std::iter::from_fn(|| pool.poll_output())
                .find_map(|output| if let Output::Granted(to, lease) = output { Some((to, lease)) } else { None })
                .expect("somebody waits");
            if to == ticket {
                break;
            }
            holder = lease;
        }
    }
}
