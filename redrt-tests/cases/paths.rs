//! A replica whose program parts from its siblings' path is outvoted at r = 3, and reported at r = 2.

use redrt_tests::{Ended, Job, compile_case};

const KINDS: [&str; 8] = ["poll", "stat", "clock", "less", "wrong", "other", "send", "omit"];

/// Runs `parting` with one bit flipped in the third message that a replica of rank 0 has received. Returns the content
/// of the program's file too.
fn run(degree: u16, kind: &str, replica: &str, options: &[&str]) -> (Ended, String) {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let file = directory.path().join("lines");
    let fault = format!("recv:{replica}@#3");
    let job = Job::new(2, &compile_case("parting"))
        .degree(degree)
        .options(&["--inject", &fault, "--look-interval", "0.1"])
        .options(options)
        .arguments(&[kind, &file.display().to_string()]);
    let ended = job.run();
    (ended, std::fs::read_to_string(&file).unwrap_or_default())
}

fn retired(ended: &Ended) -> Vec<String> {
    ended.events("retired").map(|record| record["replica"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_replica_that_takes_another_path_never_beats_two_that_agree() {
    let right: String = (0..40).map(|round| format!("line {round}\n")).collect();
    for kind in KINDS {
        for replica in ["0.0", "0.1"] {
            let (ended, lines) = run(3, kind, replica, &[]);
            let ended = ended.ended_with(0).printed("40 rounds\n");
            assert_eq!(lines, right, "{kind} in {replica}: {ended}");
            assert_eq!(retired(&ended), [replica], "{kind} in {replica}: {ended}");
        }
    }
}

#[test]
fn sound_replicas_stay_where_they_need_not_make_the_same_calls() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let file = directory.path().join("lines").display().to_string();
    let job = Job::new(2, &compile_case("parting")).degree(3).options(&["--determinism", "sends"]);
    let ended = job.arguments(&["nothing", &file]).run().ended_well().printed("40 rounds\n");
    assert_eq!(retired(&ended), [""; 0], "{ended}");
}

#[test]
fn a_leader_that_changes_files_wrongly_is_outvoted() {
    // If a sibling comes there first, the leader has changed nothing.
    let (ended, lines) = run(3, "wrong", "0.0", &["--files", "leader"]);
    let ended = ended.ended_with(0).printed("40 rounds\n");
    let rest: Vec<_> = lines.lines().filter(|line| !line.contains("wrong")).collect();
    let right: Vec<_> = (0..40).map(|round| format!("line {round}")).collect();
    assert_eq!(rest, right, "{lines}");
    assert_eq!(retired(&ended), ["0.0"], "{ended}");
}

#[test]
fn of_two_replicas_that_take_different_paths_both_are_reported() {
    for kind in ["stat", "less", "other"] {
        for replica in ["0.0", "0.1"] {
            let (ended, _) = run(2, kind, replica, &[]);
            let ended = ended.ended_with(0).said("took different paths: ").said("nobody can say who is right");
            assert_eq!(retired(&ended), ["0.1"], "the leader's side goes on: {ended}");
        }
    }
    let (ended, _) = run(2, "other", "0.0", &["--on-sdc", "abort"]);
    let _ = ended.ended_with(1).said("took different paths: ");
}

/// The stack is known for a replica that is still in the call, or with stacks of the latest calls.
#[test]
fn a_parting_is_reported_with_the_stacks_of_both_calls() {
    let (ended, _) = run(2, "stat", "0.1", &[]);
    let ended = ended.ended_with(0);
    let stacks: Vec<_> = ended.events("path-stack").collect();
    let [stack] = stacks[..] else { ended.fail(&format!("not one stack: {stacks:?}")) };
    let files = stack["stack"].as_array().cloned().unwrap_or_default();
    let is_program = |frame: &serde_json::Value| frame["file"].as_str().is_some_and(|file| file.ends_with("/parting"));
    assert!(stack["replica"] == "0.1" && files.iter().any(is_program), "{stack:#}");

    // The waiting replica is ended once it has reported. Its leader may not have received the report by then.
    let tells_both = || {
        let (ended, _) = run(2, "stat", "0.0", &["--check-determinism"]);
        let ended = ended.ended_with(1).said("0.1 asked here");
        let stacks = ended.summary["determinism"]["others"][0]["stacks"].clone();
        let known: Vec<_> = ["0.0", "0.1"].into_iter().filter(|replica| !stacks[replica].is_null()).collect();
        for replica in &known {
            let callers = stacks[replica]["callers"].as_array().cloned().unwrap_or_default();
            assert!(callers.last().is_some_and(|caller| caller["function"] == "main"), "{replica}: {stacks:#}");
        }
        known.len() == 2
    };
    assert!((0..10).any(|_| tells_both()), "the leader has never told where it asked");
}
