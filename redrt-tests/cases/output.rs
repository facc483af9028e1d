//! Standard output of replicas that differs, or comes at different times.

use redrt_tests::{Ended, Job, Running, compile, compile_case};
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

const LINE: &str = "computing\n";

/// `until` at this degree until the directory has a file `stop`. The only line that it prints while it computes is
/// corrupted in one replica of rank 1.
fn start(degree: u16, replica: &str, options: &[&str]) -> (TempDir, Running) {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let stop = directory.path().join("stop");
    let job = Job::new(3, &compile("until")).degree(degree).options(options).inject(&format!("stdout:{replica}@#1"));
    let job = job.arguments(&[&stop.display().to_string()]).start();
    (directory, job)
}

/// Such a job, which goes on until these events are in the audit log.
fn corrupted(degree: u16, replica: &str, options: &[&str], found: &[&str]) -> Ended {
    let (directory, job) = start(degree, replica, options);
    found.iter().for_each(|event| job.wait_for(event, 1));
    std::fs::write(directory.path().join("stop"), "").expect("the directory is there");
    job.wait()
}

/// The only line that differs.
#[track_caller]
fn mismatch(ended: &Ended) -> &Value {
    let all: Vec<_> = ended.events("output-mismatch").collect();
    let [mismatch] = all[..] else { ended.fail(&format!("not one mismatch: {all:?}")) };
    assert_eq!((&mismatch["rank"], &mismatch["line"]), (&1.into(), &1.into()), "{mismatch}");
    mismatch
}

fn replicas(side: &Value) -> Vec<&str> {
    side["replicas"].as_array().into_iter().flatten().filter_map(|one| one["replica"].as_str()).collect()
}

#[test]
fn an_outvoted_line_retires_its_replica_with_a_strike() {
    for replica in ["1.0", "1.2"] {
        let found = ["output-mismatch", "retired", "strike", "recovered"];
        let ended = corrupted(3, replica, &["--spares", "1"], &found).ended_with(0);
        let ended = ended.said(&format!("replica {replica} on ")).said("outvoted by its siblings");
        let mismatch = mismatch(&ended);
        let told = (&mismatch["finding"], &mismatch["culprit"], &mismatch["action"]);
        assert_eq!(told, (&"replica-corrupt".into(), &replica.into(), &"outvoted".into()), "{mismatch}");
        assert_eq!(replicas(&mismatch["sides"][1]), [replica], "{mismatch}");
        assert_eq!(mismatch["sides"][0]["text"], LINE.trim_end(), "{mismatch}");
        assert_eq!(ended.retired(), [replica]);
        assert_eq!(ended.number("output_mismatches"), 1, "{ended}");
        let ended = ended.said(&format!("1 line of standard output differed ({replica}: 1)")).said("0 mismatches\n");
        assert!(ended.out.starts_with(LINE) && ended.out.matches("right\n").count() == 3, "{ended}");
    }
}

#[test]
fn with_correct_and_report_a_replica_with_a_wrong_line_stays() {
    for policy in ["correct", "report"] {
        let ended = corrupted(3, "1.1", &["--on-sdc", policy], &["output-mismatch"]).ended_with(0);
        assert_eq!(mismatch(&ended)["culprit"], "1.1");
        assert!(ended.out.starts_with(LINE) && ended.retired().is_empty(), "{ended}");
    }
}

#[test]
fn of_two_both_sides_are_told_and_that_of_the_leader_is_shown() {
    for (replica, other) in [("1.0", "1.1"), ("1.1", "1.0")] {
        let ended = corrupted(2, replica, &[], &["output-mismatch"]).ended_with(0);
        let mismatch = mismatch(&ended);
        let told = (&mismatch["finding"], &mismatch["culprit"], &mismatch["action"]);
        assert_eq!(told, (&"undecidable".into(), &Value::Null, &"delivered".into()), "{mismatch}");
        let sides = [replicas(&mismatch["sides"][0]), replicas(&mismatch["sides"][1])];
        assert_eq!(sides, [["1.0"], ["1.1"]], "{mismatch}");
        let right = usize::from(replica == "1.0");
        assert_eq!(mismatch["sides"][right]["text"], LINE.trim_end(), "{other} is right: {mismatch}");
        assert_eq!(ended.out.starts_with(LINE), right == 0, "{ended}");
        // All later lines agree.
        assert!(ended.out.contains("rank 1: right\n") && ended.retired().is_empty(), "{ended}");
    }
}

#[test]
fn with_abort_nothing_undecided_is_shown() {
    // The job must end without the file.
    let (_directory, job) = start(2, "1.0", &["--on-sdc", "abort"]);
    let ended = job.wait().ended_with(1);
    assert_eq!(mismatch(&ended)["action"], "aborted");
    assert!(ended.out.len() < LINE.len() && LINE.starts_with(&ended.out), "{ended}");
    let _ = ended.said("ending the job, as --on-sdc=abort asks");
}

#[test]
fn the_leaders_text_is_shown_as_it_is_if_that_is_asked_for() {
    for (replica, is_right) in [("1.0", false), ("1.1", true)] {
        let ended = corrupted(2, replica, &["--stdout", "leader"], &["injected"]).ended_with(0);
        assert_eq!(ended.events("output-mismatch").count(), 0, "{ended}");
        assert_eq!(ended.out.starts_with(LINE), is_right, "{ended}");
        assert!(ended.out.contains("rank 1: right\n"), "{ended}");
    }
}

#[test]
fn text_goes_on_where_a_lost_leader_stopped() {
    for options in [["--stdout", "leader"], ["--stdout", "voted"]] {
        let job = Job::new(3, &compile("until")).degree(2).options(&options).options(&["--spares", "1"]);
        let _ = crate::disturbed(job, |job| {
            for replica in ["1.0", "1.1"] {
                let before = job.count("recovered");
                job.kill_replica(replica);
                job.wait_for("recovered", before + 1);
            }
        });
    }
}

/// `printing` with this many lines; its late replica begins when `may_begin` has returned.
#[track_caller]
fn with_a_late_replica(degree: u16, line_count: usize, may_begin: impl FnOnce(&redrt_tests::Running)) -> Ended {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let (path, count) = (directory.path().display().to_string(), line_count.to_string());
    let job = Job::new(2, &compile_case("printing"))
        .degree(degree)
        .options(&["--files", "all"])
        .arguments(&[&path, &count])
        .start();
    may_begin(&job);
    std::fs::write(Path::new(&path).join("go"), "").expect("the directory is there");
    let ended = job.wait().ended_well();
    let expected = (0..line_count).map(|line| format!("this is line {line} of what rank 1 has to say\n"));
    if ended.out != expected.collect::<String>() {
        ended.fail(&format!("{} bytes of another output", ended.out.len()));
    }
    ended
}

#[test]
fn one_of_three_that_stands_still_holds_no_text_up() {
    let _ = with_a_late_replica(3, 50, |job| job.wait_until("text", |job| job.output().lines().count() == 50));
}

#[test]
fn one_of_two_that_is_far_ahead_waits_and_says_why() {
    let ended = with_a_late_replica(2, 500_000, |job| job.wait_for("output-held", 1));
    let _ = ended.said("has printed much that its siblings have not: it waits for them");
}
