//! A sender that is faster than its receiver waits, and does not run out of memory; so does a replica that is faster
//! than its sibling.

use redrt_tests::{Job, Running, breadth, compile_case};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Messages of 8 and of 1024 bytes: kept all, they would take more than twice the limit. Each takes 512 bytes beside
/// its payload, 32 MiB may be unacknowledged, and the program itself has a few.
const FLOODS: [(u32, u32); 2] = [(400_000, 8), (100_000, 1024)];
const MIB_MAX: u32 = 96;

#[test]
fn a_sender_faster_than_its_receiver_keeps_a_bounded_amount() {
    let program = compile_case("flood");
    for (count, bytes) in FLOODS {
        for degree in breadth(&[1, 2][..], &[1, 2, 3]).iter().copied() {
            let words = [count.to_string(), bytes.to_string()];
            let job = Job::new(2, &program).degree(degree).arguments(&[&words[0], &words[1]]);
            let sum = u64::from(count) * u64::from(count - 1) / 2;
            let ended = job.run().ended_well().printed(&format!("{sum}\n{sum}\n"));
            let mib = |line: &str| line.split_once("rank 0 had ")?.1.strip_suffix(" MiB")?.parse::<u32>().ok();
            let had: Vec<_> = ended.err.lines().filter_map(mib).collect();
            println!("{count} messages of {bytes} bytes at r = {degree}: {had:?} MiB");
            assert_eq!(had.len(), usize::from(degree), "{ended}");
            assert!(had.iter().all(|mib| *mib <= MIB_MAX), "{had:?} MiB\n{ended}");
        }
    }
}

#[test]
fn a_waiting_sender_goes_on_when_a_receiver_dies() {
    let program = compile_case("flood");
    let sum = "79999800000\n".repeat(2);
    let kills = ["kill:1.0@0.5s", "kill:1.1@0.5s", "kill:0.0@0.5s"];
    for kill in breadth(&kills[1..], &kills[..]) {
        let job = Job::new(2, &program).degree(2).arguments(&["400000", "8"]).inject(kill);
        let ended = job.run().ended_well().printed(&sum);
        assert_eq!(ended.events("replica-lost").count(), 1, "{ended}");
    }
}

/// Time without work after which a process is at rest.
const REST: Duration = Duration::from_millis(300);

/// Waits until a replica has not used the processor for a while.
fn wait_for_rest(job: &Running, replica: &str) {
    let path = format!("/proc/{}/schedstat", job.pid_of(replica));
    let ran = || std::fs::read_to_string(&path).ok()?.split_whitespace().next()?.parse::<u64>().ok();
    let seen = Cell::new((None, Instant::now()));
    job.wait_until("rest", |_| {
        let (now, (before, since)) = (ran(), seen.get());
        if now != before {
            seen.set((now, Instant::now()));
        }
        now == before && since.elapsed() > REST
    });
}

/// A rank's questions to itself have no other bound. A leader must not run ahead for as long as its follower stands
/// still: outcomes that the follower has not come to are kept, and messages to other ranks wait behind them.
#[test]
fn a_leader_that_only_talks_to_itself_waits_for_its_follower() {
    let program = compile_case("ahead");
    for (kind, count) in [("message", 1_000_000_u64), ("window", 400_000)] {
        let count = count / breadth(4, 1);
        let job = Job::new(1, &program).degree(2).arguments(&[kind, &count.to_string()]).start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        job.signal_replica("0.1", libc::SIGSTOP);
        wait_for_rest(&job, "0.0");
        job.signal_replica("0.1", libc::SIGCONT);
        let ended = job.wait().ended_well().printed(&format!("computing\n{}\n", count * (count - 1) / 2));
        let mib = |line: &str| line.split_once("it had ")?.1.strip_suffix(" MiB")?.parse::<u32>().ok();
        let had: Vec<_> = ended.err.lines().filter_map(mib).collect();
        println!("{count} of {kind}: {had:?} MiB");
        assert_eq!(had.len(), 2, "{ended}");
        assert!(had.iter().all(|mib| *mib <= 40), "{had:?} MiB\n{ended}");
    }
}
