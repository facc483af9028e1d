//! Objects that are made and freed again and again leave little memory behind.

use redrt_tests::{Job, breadth, compile_case};

/// Kind of object, count, degree, and the limit on the bytes that each may leave behind. An allocator takes memory in
/// steps of up to 2 MiB, spread over the count: a limit is one such step and somewhat more, or two where replicas lag.
const LIMITS: [(&str, u32, u16, i64); 11] = [
    ("communicator", 12_000, 1, 300),
    ("file", 3_000, 1, 1_000),
    ("window", 6_000, 1, 600),
    ("communicator", 12_000, 2, 300),
    ("idup", 12_000, 2, 300),
    ("idup in rows", 12_000, 2, 300),
    ("group", 12_000, 2, 300),
    ("intercommunicator", 6_000, 2, 600),
    ("merged", 6_000, 2, 600),
    ("file", 3_000, 2, 1_500),
    ("window", 2_000, 2, 1_500),
];

#[test]
fn what_is_freed_leaves_little_behind() {
    let program = compile_case("flat");
    for (what, count, degree, limit) in LIMITS {
        let count = count / breadth(2, 1);
        let left_of = |count: u32| {
            let job = Job::new(2, &program).degree(degree).arguments(&[what, &count.to_string()]);
            let ended = job.run().ended_well();
            let bytes = |line: &str| line.rsplit_once("left behind: ")?.1.parse::<i64>().ok();
            let left: Vec<_> = ended.err.lines().filter_map(bytes).collect();
            assert_eq!(left.len(), 2 * usize::from(degree), "{ended}");
            println!("{what} at r = {degree}, {count} of them: {left:?} bytes, {limit} at most");
            left
        };
        let is_little = |left: &[i64]| left.iter().all(|bytes| *bytes <= limit);
        let mut left = left_of(count);
        // On a busy machine replicas lag more, and the allocator takes more steps; their number does not grow with the
        // count.
        if !is_little(&left) {
            left = left_of(4 * count);
        }
        assert!(is_little(&left), "{what} at r = {degree}: {left:?}, more than {limit}");
    }
}
