//! A program that checks itself all the time is copied again and again.

use cloner_tests::{Host, Push, Random, Source, compile, workshop};

/// Number of clones; `REDRT_CLONES` overrides it.
fn clone_count() -> u64 {
    std::env::var("REDRT_CLONES").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
}

#[test]
fn copies_at_random_moments_end_as_their_sources_do() {
    let program = compile("torture.c", &["-lrt"]);
    let host = Host::start();
    let mut random = Random::new("torture");
    for round in 0..clone_count() {
        let seed = random.below(1 << 40).to_string();
        let source = Source::start(&program, &[&seed, "100"]);
        random.moment(1000);
        // Every second round also compares all memory, which changes the timing.
        let options: &[&str] = if round % 2 == 0 { &["--verify-memory"] } else { &[] };
        let push = Push::run(source.pid, &host.address, options);
        assert_eq!(push.code, 0, "round {round}, seed {seed}: {}", push.message);
        let copy = host.output_of_copy();
        let outcome = source.finish();
        assert_eq!(outcome.code, Some(0), "round {round}, seed {seed}");
        assert_eq!(outcome.lines, copy, "round {round}, seed {seed}");
    }
}

#[test]
fn a_copy_of_a_copy_ten_times_over_ends_as_the_first_would_have() {
    let program = compile("torture.c", &["-lrt"]);
    let undisturbed = Source::start(&program, &["12", "100"]).finish();
    let host = Host::start();
    // No generation ends before all of them exist.
    let until = workshop().join("generations");
    std::fs::write(&until, "").expect("the disk has room");
    let source = Source::start(&program, &["12", "100", until.to_str().expect("text")]);
    let mut random = Random::new("generations");
    let mut pid = source.pid;
    for generation in 1..=10 {
        random.moment(50);
        let push = Push::run(pid, &host.address, &["--move"]);
        assert_eq!(push.code, 0, "generation {generation}: {}", push.message);
        pid = push.copy_pid();
    }
    std::fs::remove_file(&until).expect("it is ours");
    assert_eq!(host.output_of_copy(), undisturbed.lines);
    // The first process ended when it moved.
    assert_eq!(source.finish().lines, ["running"]);
}
