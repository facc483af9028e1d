use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn facts(memory_bytes: u64, features: &[&str]) -> Facts {
    Facts {
        version: "1".into(),
        memory_bytes,
        cpu_features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        cpu_count: 4,
        load_milli: 0,
    }
}

fn pool_of(hosts: &[(&str, u32)]) -> Pool {
    let mut pool = Pool::new(Settings::embedded());
    for (name, slot_count) in hosts {
        pool.add(Spare::new(*name, *slot_count), at(0));
    }
    pool
}

fn request(job: u64) -> Request {
    Request::new(JobId(job))
}

fn name(lease: Option<Lease>) -> Option<String> {
    lease.map(|lease| lease.spare.name)
}

fn outputs(pool: &mut Pool) -> Vec<Output> {
    std::iter::from_fn(|| pool.poll_output()).collect()
}

fn granted(pool: &mut Pool) -> Vec<(Ticket, String)> {
    let grants = outputs(pool).into_iter().filter_map(|output| match output {
        Output::Granted(ticket, lease) => Some((ticket, lease.spare.name)),
        _ => None,
    });
    grants.collect()
}

#[test]
fn a_host_is_of_one_job_at_a_time() {
    let mut pool = pool_of(&[("a", 2)]);
    let one = pool.lease(request(1), at(1)).unwrap();
    assert!(pool.lease(request(2), at(1)).is_none());
    assert!(pool.lease(request(1), at(1)).is_some(), "it has two places");
    assert!(pool.lease(request(1), at(1)).is_none(), "and no third");
    assert!(pool.release(one.id, at(2)) && !pool.release(one.id, at(2)));
    assert!(pool.lease(request(2), at(2)).is_none(), "the other place is still in use");
    pool.release_all(JobId(1), at(3));
    assert!(pool.lease(request(2), at(3)).is_some());
    assert_eq!(outputs(&mut pool), [], "nothing is stored inside a job, and leases were handed out at once");
}

#[test]
fn what_suits_best_is_chosen() {
    let mut pool = pool_of(&[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)]);
    pool.add(Spare { rack: Some("r1".into()), ..Spare::new("b", 1) }, at(0));
    let found: [(&str, u64, &[&str], u64); 5] =
        [("a", 8, &["x"], 0), ("b", 8, &["x"], 0), ("c", 8, &["x"], 3000), ("d", 8, &["x", "y"], 0), ("e", 4, &[], 0)];
    for (host, memory_bytes, features, load_milli) in found {
        pool.seen(host, Ok(Facts { load_milli, ..facts(memory_bytes, features) }), at(0));
    }
    let wanted = |memory_bytes: u64| Request {
        version: Some("1".into()),
        cpu_features: ["x".to_owned()].into(),
        apart_from_racks: ["r1".to_owned()].into(),
        ..request(1).with_memory(memory_bytes).apart_from(["a"])
    };
    let why = |pool: &Pool, host: &str| {
        let wanted = wanted(9);
        pool.explain(&wanted, at(0)).find(|(name, _)| *name == host).map(|(_, unfit)| unfit.to_string())
    };
    assert_eq!(why(&pool, "a").unwrap(), "8 bytes of memory, 9 are needed");
    assert!(pool.lease(wanted(9), at(0)).is_none());
    // Order of preference: more features than needed before a loaded host, then the rack of a sibling, last the host of
    // a sibling.
    let order: Vec<_> = (0..4).map(|_| name(pool.lease(wanted(8), at(0))).unwrap()).collect();
    assert_eq!(order, ["d", "c", "b", "a"]);
    assert!(pool.lease(wanted(1), at(0)).is_none());
    let lacking = wanted(1);
    let unfit: Vec<_> = pool.explain(&lacking, at(0)).map(|(_, unfit)| unfit.to_string()).collect();
    assert_eq!(unfit[4], "its processor lacks x");
    let other = Request { version: Some("2".into()), ..request(1) };
    assert_eq!(pool.explain(&other, at(0)).last().unwrap().1.to_string(), "its redrt is version 1, the job's 2");
    assert_eq!(name(pool.lease(request(1).excluding(["e"]), at(0))), None);
    assert_eq!(name(pool.lease(request(1), at(0))).as_deref(), Some("e"));
}

#[test]
fn memory_that_is_lent_is_not_free() {
    let mut pool = pool_of(&[("a", 4)]);
    pool.seen("a", Ok(facts(10, &[])), at(0));
    let first = pool.lease(request(1).with_memory(6), at(0)).unwrap();
    assert!(pool.lease(request(1).with_memory(6), at(0)).is_none());
    assert!(pool.lease(request(1).with_memory(4), at(0)).is_some());
    pool.release(first.id, at(1));
    assert!(pool.lease(request(1).with_memory(6), at(1)).is_some());
}

#[test]
fn a_failed_host_rests_longer_each_time_and_is_bad_at_last() {
    let mut pool = pool_of(&[("a", 1)]);
    let mut now = at(0);
    for rest in [10, 20] {
        let lease = pool.lease(request(1), now).unwrap();
        assert!(pool.failed(lease.id, "broken", now));
        assert!(pool.lease(request(1), now).is_none());
        assert_eq!(pool.next_event(now), Some(now + at(rest)));
        now += at(rest);
    }
    // Another host is preferred until a clone succeeds.
    pool.add(Spare::new("b", 1), now);
    let other = pool.lease(request(1), now).unwrap();
    assert_eq!(other.spare.name, "b");
    let lease = pool.lease(request(1), now).unwrap();
    assert!(pool.succeeded(lease.id, now));
    pool.release(lease.id, now);
    pool.release(other.id, now);
    for _ in 0..3 {
        let lease = pool.lease(request(1).excluding(["b"]), now).unwrap();
        pool.failed(lease.id, "broken", now);
        now += at(600);
    }
    let status = pool.hosts(now).next().unwrap();
    assert_eq!((status.state(), status.strikes), ("bad", 3));
    assert_eq!(status.admission, Admission::Bad { why: "3 clones to it failed, the last one: broken".into() });
    // A person repairs the host and adds it again.
    pool.add(Spare::new("a", 1), now);
    assert!(pool.lease(request(1).excluding(["b"]), now).is_some());
}

#[test]
fn a_drained_host_is_left_and_lent_no_more() {
    let mut pool = pool_of(&[("a", 2)]);
    let lease = pool.lease(request(1), at(0)).unwrap();
    assert!(pool.drain("a", at(0)) && !pool.drain("x", at(0)));
    assert!(pool.lease(request(1), at(0)).is_none());
    assert_eq!(pool.leaving(JobId(1)).collect::<Vec<_>>(), [lease.id]);
    assert_eq!(pool.hosts(at(0)).next().unwrap().state(), "draining");
    pool.release(lease.id, at(1));
    assert_eq!(pool.hosts(at(1)).next().unwrap().state(), "drained");
    assert!(pool.lease(request(1), at(1)).is_none());
    assert!(pool.remove("a", at(1)) && !pool.remove("a", at(1)));
}

#[test]
fn a_removed_host_ends_its_leases() {
    let mut pool = pool_of(&[("a", 1)]);
    let lease = pool.lease(request(1), at(0)).unwrap();
    pool.remove("a", at(1));
    assert_eq!(outputs(&mut pool), [Output::Ended(lease.clone(), Ended::Removed)]);
    assert!(!pool.failed(lease.id, "too late", at(1)));
}

#[test]
fn a_request_takes_a_spare_the_moment_one_appears() {
    let mut pool = Pool::new(Settings::embedded());
    let ticket = pool.request(request(1), at(0));
    assert_eq!(granted(&mut pool), []);
    pool.add(Spare::new("a", 1), at(5));
    assert_eq!(granted(&mut pool), [(ticket, "a".into())]);
    assert!(!pool.withdraw(ticket));
}

#[test]
fn who_has_least_is_served_first_and_then_who_waits_longest() {
    let mut pool = pool_of(&[("a", 1), ("b", 1)]);
    let rich: Vec<_> = (0..2).map(|_| pool.lease(request(1), at(0)).unwrap()).collect();
    let again = pool.request(request(1), at(0));
    let poor = pool.request(request(2), at(0));
    let poor_too = pool.request(request(3), at(0));
    pool.release(rich[0].id, at(1));
    assert_eq!(granted(&mut pool), [(poor, "a".into())]);
    pool.release_all(JobId(2), at(1));
    assert_eq!(granted(&mut pool), [(poor_too, "a".into())]);
    // A later request of a job with fewer leases goes first, but not one of a job with equally few.
    pool.release(rich[1].id, at(1));
    assert_eq!(granted(&mut pool), [(again, "b".into())]);
    let waits = pool.request(request(4), at(1));
    pool.request(request(5), at(1));
    pool.release_all(JobId(3), at(2));
    assert_eq!(granted(&mut pool), [(waits, "a".into())]);
}

#[test]
fn nobody_is_overtaken_for_ever() {
    let mut pool = pool_of(&[("a", 1), ("b", 1)]);
    pool.lease(request(1), at(0)).unwrap();
    let mut lessee = pool.lease(request(100), at(0)).unwrap();
    let patient = pool.request(request(1), at(0));
    // An endless sequence of jobs without leases, each in time for the place of the one before.
    for round in 0_u32.. {
        pool.request(request(u64::from(round) + 101), at(0));
        pool.release(lessee.id, at(0));
        let grants: Vec<_> = outputs(&mut pool)
            .into_iter()
            .filter_map(|output| if let Output::Granted(ticket, lease) = output { Some((ticket, lease)) } else { None })
            .collect();
        assert_eq!(grants.len(), 1);
        let (ticket, lease) = grants.into_iter().next().unwrap();
        if ticket == patient {
            assert_eq!(round, Settings::embedded().overtaken_max);
            return;
        }
        lessee = lease;
    }
}

#[test]
fn a_job_may_be_kept_to_its_share() {
    let mut pool = Pool::new(Settings { places_per_job_max: Some(1), ..Settings::embedded() });
    pool.add(Spare::new("a", 2), at(0));
    pool.add(Spare::new("b", 2), at(0));
    assert!(pool.lease(request(1), at(0)).is_some() && pool.lease(request(1), at(0)).is_none());
    assert!(pool.lease(request(2), at(0)).is_some());
}

#[test]
fn only_a_job_that_renews_keeps_its_leases() {
    let mut pool = Pool::new(Settings { watch: None, ..Settings::shared() });
    pool.add(Spare::new("a", 1), at(0));
    pool.add(Spare::new("b", 1), at(0));
    let gone = pool.lease(request(1), at(0)).unwrap();
    pool.lease(request(2), at(0)).unwrap();
    pool.renew(JobId(2), at(50));
    assert_eq!(pool.next_event(at(50)), Some(at(60)));
    pool.advance(at(59));
    assert_eq!(pool.leases(JobId(1)).count(), 1);
    outputs(&mut pool);
    pool.advance(at(60));
    assert_eq!(outputs(&mut pool), [Output::Store(Change::LeaseEnded(gone.id)), Output::Ended(gone, Ended::Expired)]);
    assert_eq!((pool.leases(JobId(1)).count(), pool.leases(JobId(2)).count()), (0, 1));
}

#[test]
fn idle_hosts_are_watched_and_lent_only_when_they_were_seen() {
    let mut pool = Pool::new(Settings::shared());
    let spare = Spare::new("a", 1);
    pool.add(spare.clone(), at(0));
    let looks = |pool: &mut Pool| outputs(pool).into_iter().filter(|output| matches!(output, Output::Look(_))).count();
    assert_eq!(looks(&mut pool), 1);
    let wanted = request(1);
    assert_eq!(pool.explain(&wanted, at(0)).next().unwrap().1, Unfit::Unchecked);
    // The first look is not answered in time, a later one is.
    pool.advance(at(10));
    assert_eq!(pool.hosts(at(10)).next().unwrap().state(), "unreachable");
    pool.seen("a", Err(Unseen::Said("no route".into())), at(11));
    assert!(pool.lease(wanted.clone(), at(11)).is_none());
    assert_eq!(pool.explain(&wanted, at(11)).next().unwrap().1.to_string(), "unreachable: no route");
    let next = pool.next_event(at(11)).unwrap();
    assert_eq!(next, at(31), "each failure doubles the time to the next look");
    pool.advance(next);
    assert_eq!(looks(&mut pool), 1);
    pool.seen("a", Ok(facts(10, &[])), next);
    let lease = pool.lease(wanted.clone(), next).unwrap();
    // While the host is leased there are no looks; afterwards there is one before the next lease.
    pool.renew(JobId(1), next + at(50));
    assert_eq!(pool.next_event(next + at(50)), Some(next + at(110)));
    assert_eq!(looks(&mut pool), 0);
    pool.release(lease.id, next + at(51));
    assert!(pool.lease(wanted, next + at(51)).is_none());
    assert_eq!(looks(&mut pool), 1);
}
