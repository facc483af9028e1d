//! A sender that is faster than its receiver waits, and does not run out of memory.

use redrt_tests::{Job, compile_case};

/// Messages of 8 and of 1024 bytes, as many as would take more than twice the limit if all were kept: each takes 512
/// bytes beside its payload, and 32 MiB may be unacknowledged. The program itself has a few.
const FLOODS: [(u32, u32); 2] = [(400_000, 8), (100_000, 1024)];
const MIB_MAX: u32 = 96;

#[test]
fn a_sender_that_is_faster_than_its_receiver_keeps_a_bounded_amount() {
    let program = compile_case("flood");
    for (count, bytes) in FLOODS {
        for degree in [1, 2, 3] {
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
fn a_sender_that_waits_for_acknowledgements_goes_on_when_a_receiver_dies() {
    let program = compile_case("flood");
    let sum = "79999800000\n".repeat(2);
    for kill in ["kill:1.0@0.5s", "kill:1.1@0.5s", "kill:0.0@0.5s"] {
        let job = Job::new(2, &program).degree(2).arguments(&["400000", "8"]).inject(kill);
        let ended = job.run().ended_well().printed(&sum);
        assert_eq!(ended.events("replica-lost").count(), 1, "{ended}");
    }
}
