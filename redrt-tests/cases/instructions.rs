//! Cost of a short message, and of an operation on a window, in instructions. Times are measured elsewhere; this count
//! is the same in each run, so it shows a change that makes all messages dearer.

use redrt_tests::{Job, compile_case};
use std::path::Path;

/// A cost above its limit is measured again, up to this many times in all. On a loaded machine up to half of the counts
/// include work for late arrivals, so the least of 16 is the same each time.
const TRIES_MAX: u32 = 16;

/// Messages, or operations, in a process's count: `ROUNDS * MESSAGES` of `instructions.c`.
const MESSAGES: u64 = 8 * 32;

/// Kind of operation, degree, and the limit on instructions for each message in the process that needs most. Limits are
/// a tenth above the count on the day they were set: compilers differ.
const LIMITS: [(&str, u16, u64); 14] = [
    ("isend", 1, 575),
    ("send", 1, 600),
    ("irecv", 1, 460),
    ("waitall", 1, 730),
    ("recv", 1, 1_470),
    ("fence", 1, 390),
    ("put", 1, 595),
    ("accumulate", 1, 830),
    ("lock", 1, 725),
    ("isend", 2, 1_935),
    ("send", 2, 1_975),
    ("irecv", 2, 670),
    ("waitall", 2, 3_900),
    ("recv", 2, 3_150),
];

/// Instructions in the measured function, for each process that was in it.
fn counted(directory: &Path) -> Vec<u64> {
    let files = std::fs::read_dir(directory).expect("the directory is there");
    let files = files.map(|file| file.expect("the directory can be read").path());
    let outputs = files.filter(|file| file.extension().is_some_and(|extension| extension == "callgrind"));
    let summary = |file: &Path| {
        let text = std::fs::read_to_string(file).expect("callgrind wrote it");
        let summary = text.lines().find_map(|line| line.strip_prefix("summary: ")?.trim().parse().ok());
        summary.unwrap_or_else(|| panic!("{} has no summary", file.display()))
    };
    outputs.map(|file| summary(&file)).filter(|count| *count > 0).collect()
}

/// Instructions for each message in the process that needs most.
fn measured(program: &Path, what: &str, degree: u16) -> u64 {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let path = directory.path().display().to_string();
    let toggle = format!("--toggle-collect=measured_{what}");
    let out = format!("--callgrind-out-file={path}/%p.callgrind");
    let (tool, degree_text) = (["-q", "--tool=callgrind", "--collect-atstart=no"], degree.to_string());
    let job = Job::new(2, Path::new("valgrind")).degree(degree).options(&["--files", "all"]).arguments(&tool);
    let job = job.arguments(&[&toggle, &out, &program.display().to_string(), &path, &degree_text]);
    let ended = job.run().ended_well();
    assert_eq!(ended.out, "", "{ended}");
    let counts = counted(directory.path());
    assert_eq!(counts.len(), usize::from(degree), "{what} at r = {degree}: {counts:?}");
    counts.into_iter().max().expect("there are some") / MESSAGES
}

#[test]
#[ignore = "scripts/test.sh --all: it counts what an optimized library does"]
fn a_short_message_costs_no_more_instructions_than_it_did() {
    let program = compile_case("instructions");
    let mut dearer = Vec::new();
    for (what, degree, limit) in LIMITS {
        // Other work that a call finds, such as acknowledgements that have just come, adds to the count and differs
        // from run to run.
        let mut count = u64::MAX;
        for _ in 0..TRIES_MAX {
            count = count.min(measured(&program, what, degree));
            if count <= limit {
                break;
            }
        }
        println!("{what} at r = {degree}: {count} instructions a message, {limit} at most");
        if count > limit {
            dearer.push(format!("{what} at r = {degree}: {count} instructions a message, more than {limit}"));
        }
    }
    assert!(
        dearer.is_empty(),
        "{dearer:#?}\nIf that is worth it, write down why in docs/performance/instructions.md, and the new counts here"
    );
}
