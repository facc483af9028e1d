//! The test programs without faults: the same output whatever the degree and the transport, and no report.

use redrt_tests::{Job, Program};

const DEGREES: [u16; 3] = [1, 2, 3];
const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

fn same_output_everywhere(name: &str) {
    let program = Program::named(name).expect("a test program");
    let alone = Job::of(&program).run().ended_well();
    assert!(!alone.out.is_empty(), "{name} prints nothing");
    for transport in TRANSPORTS {
        for degree in DEGREES {
            let job = Job::of(&program).degree(degree).transport(transport).run().ended_well().printed(&alone.out);
            let compared = job.summary["statistics"]["messages_compared"].as_u64().unwrap_or_default();
            if (compared > 0) != (degree > 1) {
                job.fail(&format!("{compared} messages compared at r = {degree}"));
            }
        }
    }
}

macro_rules! programs {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                same_output_everywhere(stringify!($name));
            }
        )*
    };
}

programs!(heat cg master_worker polling collectives threads ring alltoall clocks cancel);

#[test]
fn all_programs_are_tested() {
    let sources = std::fs::read_dir(redrt_tests::root().join("tests/programs")).expect("the programs").flatten();
    let names = sources.filter_map(|entry| entry.file_name().into_string().ok()?.strip_suffix(".c").map(String::from));
    // It ends when a file appears: the tests with several hosts use it.
    let names = names.filter(|name| name != "until");
    let missing: Vec<_> = names.filter(|name| Program::named(name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
