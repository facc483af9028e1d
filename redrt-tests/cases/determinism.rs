//! `--check-determinism` names the places where a program is not deterministic, and reports nothing for others.

use redrt_tests::{Ended, Job, Program, breadth, compile, compile_case};
use serde_json::Value;

fn checked(mode: &str, options: &[&str]) -> Ended {
    let job = Job::new(3, &compile_case("nondeterministic")).arguments(&[mode]);
    job.options(&["--check-determinism"]).options(options).run()
}

/// The record of the only message that differs.
#[track_caller]
fn only_message(ended: &Ended) -> &Value {
    let determinism = &ended.summary["determinism"];
    assert_eq!(determinism["deterministic"], false, "{ended}");
    let Some([message]) = determinism["messages"].as_array().map(Vec::as_slice) else {
        ended.fail(&format!("not one message: {determinism:#}"))
    };
    let place = [&message["sender"], &message["receiver"], &message["sequence"], &message["count"]];
    assert_eq!(place.map(Value::as_u64), [Some(1), Some(0), place[2].as_u64(), Some(1)], "{message:#}");
    message
}

/// Number of the test program's line with these words.
fn line_with(words: &str) -> usize {
    let source = include_str!("nondeterministic.c");
    source.lines().position(|line| line.contains(words)).expect("the program has such a line") + 1
}

/// Checks the functions that led to the message, in one replica and the other.
#[track_caller]
fn assert_stacks(message: &Value, expected: &[(&str, usize)]) {
    for replica in ["1.0", "1.1"] {
        let callers = message["stacks"][replica]["callers"].as_array().cloned().unwrap_or_default();
        for ((function, line), caller) in expected.iter().zip(&callers) {
            let place = format!("nondeterministic.c:{line}");
            assert_eq!((&caller["function"], &caller["place"]), (&(*function).into(), &place.into()), "{message:#}");
        }
        assert!(callers.len() >= expected.len(), "{replica}: {message:#}");
    }
}

#[test]
fn memory_that_was_never_written_is_found_where_it_is_sent() {
    let ended = checked("uninitialized", &[]).ended_with(1);
    let message = only_message(&ended);
    assert_eq!((&message["call"], &message["tag"]), (&"MPI_Send".into(), &7.into()), "{message:#}");
    assert_eq!(message["communicator"], "MPI_COMM_WORLD", "{message:#}");
    assert_stacks(
        message,
        &[
            ("send_sums", line_with("MPI_Send(sums")),
            ("work", line_with("    send_sums(sums);")),
            ("main", line_with("work(round, is_wrong && is_uninitialized)")),
        ],
    );
    let difference = &message["difference"];
    let element = [&difference["element"], &difference["index"]];
    assert_eq!(element, [&Value::from("f64"), &Value::from(32)], "{message:#}");
    assert_eq!(difference["values"].as_array().map(Vec::len), Some(2), "{message:#}");
    let ended =
        ended.said("the program is not deterministic").said("MPI_Send of rank 1 to rank 0: MPI_COMM_WORLD, tag 7");
    let _ = ended.said("sent by 1.0 and 1.1 here:").said("element 32 (f64): ");
}

#[test]
fn a_clock_that_is_not_agreed_on_is_found() {
    for transport in ["shm", "tcp"] {
        let ended = checked("clock", &["--transport", transport]).ended_with(1);
        let message = only_message(&ended);
        assert_stacks(message, &[("main", line_with("MPI_Send(&ticks"))]);
        let values = &message["difference"]["values"];
        let number = |at: usize| values[at].as_str().and_then(|text| text.parse::<u64>().ok());
        assert!(number(0).is_some() && number(1).is_some() && number(0) != number(1), "{message:#}");
    }
}

#[test]
fn the_collective_that_carries_it_is_named() {
    let ended = checked("collective", &[]).ended_with(1);
    let message = only_message(&ended);
    assert_eq!(message["call"], "MPI_Reduce", "{message:#}");
    assert_stacks(message, &[("main", line_with("MPI_Reduce(&ticks"))]);
}

#[test]
fn a_line_of_output_that_differs_is_told_with_both_texts() {
    let ended = checked("output", &[]).ended_with(1);
    let determinism = &ended.summary["determinism"];
    let line = &determinism["output"][0];
    assert_eq!((&line["rank"], &line["line"]), (&1.into(), &4.into()), "{determinism:#}");
    let texts = line["texts"].as_array().cloned().unwrap_or_default();
    assert!(texts.len() == 2 && texts[0] != texts[1], "{determinism:#}");
    assert!(texts.iter().all(|text| text.as_str().is_some_and(|text| text.starts_with("rank 1 round 3: "))));
    assert_eq!(determinism["messages"].as_array().map(Vec::len), Some(0), "{determinism:#}");
    let _ = ended.said("line 4 that rank 1 prints: ");
}

/// A data race decides what a thread sends. Stacks of threads begin elsewhere than that of the main thread.
#[test]
fn a_data_race_is_found_where_a_thread_sends() {
    let ended = Job::new(3, &compile_case("racing")).options(&["--check-determinism"]).run().ended_with(1);
    let message = only_message(&ended);
    for replica in ["1.0", "1.1"] {
        let callers = message["stacks"][replica]["callers"].as_array().cloned().unwrap_or_default();
        let functions: Vec<_> = callers.iter().map(|caller| caller["function"].as_str().unwrap_or_default()).collect();
        assert_eq!(functions, ["send_counter", "work"], "{message:#}");
    }
    let last = &message["last_common_lock"]["stack"];
    assert_eq!((&last["call"], &last["callers"][0]["function"]), (&"pthread_mutex_lock".into(), &"begin".into()));
    let _ = ended.said("in thread ").said("the last lock that both took alike: pthread_mutex_lock, operation ");
}

/// A thread of the follower ends after fewer locks than the leader's takes. Nobody knows beforehand in which run that
/// happens; no run may stand still.
#[test]
fn a_thread_that_takes_fewer_locks_is_found() {
    let program = compile_case("unequal");
    for _ in 0..60 {
        let ended = Job::new(2, &program).options(&["--check-determinism"]).run();
        // The other way round, a thread takes more locks than in its leader. That shows where the leader still runs.
        if ended.number("divergences") > 0 && !ended.err.contains("takes a lock that it did not take in its leader") {
            let ended = ended.ended_with(1).said("has ended without taking a lock that it took in its leader");
            let others = &ended.summary["determinism"]["others"][0];
            assert_eq!(others["last_common_lock"]["stack"]["callers"][0]["function"], "take", "{others:#}");
            let _ = ended.said("the last lock that both took alike").said("then took another one: pthread_mutex_lock");
            return;
        }
        let expected = i32::from(ended.number("divergences") > 0);
        let _ = ended.ended_with(expected);
    }
    panic!("the threads took as many locks each time");
}

#[test]
fn programs_that_are_deterministic_pass() {
    let ended = checked("none", &[]).ended_well().said("the program was deterministic: ");
    assert_eq!(ended.summary["determinism"]["deterministic"], true, "{ended}");
    for name in ["heat", "master_worker", "collectives", "onesided", "threads"] {
        let program = Program::named(name).expect("a test program");
        let alone = Job::of(&program).run().ended_well();
        let ended = Job::of(&program).options(&["--check-determinism"]).run();
        let _ = ended.ended_well().printed(&alone.out).said("the program was deterministic: ");
    }
}

/// Links are opened and copies made at different moments in each replica. Neither may move the program's allocations,
/// even where all threads are to share the program's one arena of the C library's heap.
#[test]
fn memory_has_the_same_addresses_in_all_replicas() {
    let program = compile("addresses");
    for arenas in breadth(&[None][..], &[None, Some("1")]).iter().copied() {
        for (degree, transport) in breadth(&[(2, "tcp")][..], &[(2, "shm"), (2, "tcp"), (3, "tcp")]).iter().copied() {
            let job = |rounds: &str| {
                let job = Job::new(3, &program).arguments(&[rounds]).degree(degree).transport(transport);
                arenas.into_iter().fold(job, |job, count| job.environment("MALLOC_ARENA_MAX", count))
            };
            let rounds = if transport == "tcp" { "1500" } else { "3000" };
            let _ = job(rounds).options(&["--spares", "1"]).inject("kill:2.1@#300").run().ended_well();
            if transport == "tcp" {
                let resets = (0..10).map(|turn| format!("reset:1.1-{}.0@#{}", turn % 2 * 2, 5 + 7 * turn));
                let ended = resets.fold(job("40"), |job, reset| job.inject(&reset)).run().ended_well();
                assert!(ended.events("reconnected").count() > 0, "{ended}");
            }
        }
    }
}

/// The C library allocates from the program's heap when the library first asks for its own clock. That happens in
/// `MPI_Init`, before any replica measures a time.
#[test]
fn after_init_the_library_allocates_nothing_from_the_heap() {
    let program = compile("addresses");
    for _ in 0..8 {
        let job = Job::new(2, &program).arguments(&["40"]).degree(3).options(&["--verify", "deferred"]);
        let ended = job.run().ended_well();
        assert_eq!(ended.number("mismatches"), 0, "{ended}");
    }
}

/// Tables of the library's heap grow at moments that differ between replicas: one of 64 KiB is mapped for each 512 MiB
/// of addresses that the heap comes to, and the kernel chooses the heap's place. So the library chooses the tables'
/// place.
#[test]
fn tables_of_the_librarys_heap_lie_apart_from_the_program() {
    const REMOTE: std::ops::Range<u64> = 0x5800_0000_0000..0x6000_0000_0000;
    let ended = Job::new(1, &compile_case("apart")).run().ended_well();
    let start = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let starts: Vec<_> = ended.out.lines().filter_map(start).collect();
    assert!(starts.iter().any(|start| REMOTE.contains(start)), "{ended}");
}
