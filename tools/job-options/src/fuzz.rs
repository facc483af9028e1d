//! Arbitrary command lines: each yields a job, a text to print, or a message of one line.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::os::unix::ffi::OsStringExt;

/// Words with a meaning for `redrun`, difficult numbers, and arbitrary text.
fn word() -> impl Strategy<Value = OsString> {
    const WORDS: [&str; 52] = [
        "-r",
        "-n",
        "-np",
        "--np",
        "--degree",
        "--replicate",
        "--protocol",
        "--verify",
        "--determinism",
        "--files",
        "--on-sdc",
        "--stdout",
        "--check-determinism",
        "--metrics",
        "--profile",
        "leader",
        "--spares",
        "--arbitrate",
        "--transport",
        "--timeout",
        "--seed",
        "-l",
        "-q",
        "--inject",
        "-x",
        "-env",
        "--genv",
        "-wdir",
        "--oversubscribe",
        "--generate",
        "--",
        "-",
        ":",
        "-h",
        "--version",
        "true",
        "sh",
        "/",
        "",
        "=",
        "hash",
        "tcp",
        "A=B",
        "0-1:2",
        "kill:0.0@#1",
        "random:mtbf=1s",
        "flip:0.0@#1,wire:0.0@#2",
        "decision:0.0@#1,read:0.0@#2",
        "-lq",
        "-n2",
        "--seed=1",
        "-r=2",
    ];
    const NUMBERS: [&str; 16] = [
        "0",
        "1",
        "2",
        "64",
        "65",
        "1.5",
        "-1",
        "1e9",
        "1e-9",
        "nan",
        "inf",
        "0x10",
        "4294967296",
        "18446744073709551616",
        "1048577",
        "  3",
    ];
    prop_oneof![
        6 => proptest::sample::select(&WORDS[..]).prop_map(OsString::from),
        3 => proptest::sample::select(&NUMBERS[..]).prop_map(OsString::from),
        2 => "[-:=,.#@a-z0-9]{0,12}".prop_map(OsString::from),
        1 => vec(1u8..=u8::MAX, 0..8)
            .prop_map(OsString::from_vec),
    ]
}

/// Checks that the line is printable and not empty.
fn check(line: &str) {
    assert!(!line.is_empty() && !line.contains(char::is_control), "{line:?}");
}

proptest! {
    #[test]
    fn any_command_line_is_a_job_or_refused(words in vec(word(), 0..10)) {
        let arguments = std::iter::once("redrun".into()).chain(words).collect();
        match parse(arguments) {
            Ok(Request::Run(job)) => {
                prop_assert_eq!(job.application_of_rank.len(), job.world.rank_count() as usize);
                let count = job.applications.len() as u32;
                prop_assert!(job.application_of_rank.iter().all(|application| *application < count));
            }
            Ok(Request::RunSpawned(arguments)) => prop_assert!(arguments.spawned),
            Ok(Request::Attach { .. }) => {}
            Ok(Request::Print(text)) => prop_assert!(!text.is_empty()),
            Err(error) => check(&error.to_string()),
        }
    }

    #[test]
    fn any_degrees_make_a_world_or_are_refused(
        rank_count in 1u32..40,
        degree in proptest::option::of("[-+0-9.eEnaif]{0,8}|[0-9]{1,2}(\\.[0-9]{1,3})?"),
        replicate in proptest::option::of("[0-9,:-]{0,16}|[0-3]-[0-9]{1,2}:[1-9](,[0-9]:[0-9])?"),
    ) {
        match degrees::world(rank_count, degree.as_deref(), replicate.as_deref()) {
            Ok(world) => {
                prop_assert_eq!(world.rank_count(), rank_count);
                prop_assert!(world.max_degree() <= World::DEGREE_MAX);
            }
            Err(error) => check(&error.to_string()),
        }
    }

    #[test]
    fn any_fault_is_possible_or_refused(
        text in "(kill|flip|wire|random|[a-z]{0,4}):?[0-9.@#=a-z,:-]{0,20}",
        exact in "(kill|flip|wire):[0-3]\\.[0-3]@#?[0-9.]{1,6}s?",
        seed in any::<u64>(),
    ) {
        let world = World::uniform(2, 2);
        for text in [text, exact] {
            match inject::parse_all(std::slice::from_ref(&text), &world, seed) {
                Ok(faults) => {
                    for fault in faults {
                        let replica = match fault {
                            Fault::Process(replica, _) => replica,
                            Fault::Timed(kill) => kill.replica,
                            Fault::Random(_) | Fault::Sick { .. } => continue,
                        };
                        prop_assert!(world.contains(replica), "{text}");
                    }
                }
                Err(error) => {
                    check(&error.to_string());
                    prop_assert!(error.to_string().starts_with("--inject"), "{error}");
                }
            }
        }
    }

    #[test]
    fn any_time_is_a_duration_or_refused(text in "[-+0-9.eEnaifs]{0,10}") {
        if let Err(error) = inject::parse_seconds(&text) {
            check(&error.to_string());
        }
    }
}
