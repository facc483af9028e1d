//! `--profile`: measurements of a run.

use redrt_tests::{Ended, Job, compile, compile_case, prefix};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const RANKS: u32 = 4;

/// Bytes by sender and receiver of `known.c`, run with this number of ranks.
fn known_traffic(ranks: u32) -> BTreeMap<(u64, u64), f64> {
    let mut traffic = BTreeMap::new();
    for rank in 0..ranks {
        let mut send = |to: u32, bytes: u32| {
            *traffic.entry((rank.into(), (to % ranks).into())).or_insert(0.0) += f64::from(bytes);
        };
        for _ in 0..2 {
            send(rank + 1, (rank + 1) * (100 + rank) * 8);
            send(rank + 2, 100_000 + rank);
        }
        if rank == 0 {
            (1..ranks).for_each(|to| send(to, 1));
        }
    }
    traffic
}

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("a profile is JSON")
}

fn traffic(profile: &Value) -> BTreeMap<(u64, u64), f64> {
    let entries = profile["traffic"].as_array().into_iter().flatten();
    let entries = entries.map(|entry| {
        let number = |place: usize| entry[place].as_u64().expect("ranks are numbers");
        ((number(0), number(1)), entry[2].as_f64().expect("bytes are numbers"))
    });
    entries.collect()
}

fn profiled(job: Job) -> (Ended, Value) {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let path = directory.path().join("profile.json");
    let ended = job.options(&["--profile", &path.display().to_string()]).run().ended_well();
    (ended, read(&path))
}

#[test]
fn bytes_by_pair_of_ranks_are_exact() {
    for (degree, transport) in [(1, "auto"), (1, "tcp"), (2, "auto"), (2, "tcp"), (3, "auto")] {
        let job = Job::new(RANKS, &compile_case("known")).degree(degree).transport(transport);
        let (ended, profile) = profiled(job);
        assert_eq!(traffic(&profile), known_traffic(RANKS), "r = {degree} over {transport}: {ended}");
        assert_eq!((&profile["ranks"], &profile["degree"]), (&RANKS.into(), &f64::from(degree).into()));
        // Ranks 1 to 3 wait 0.4 s in MPI_Recv.
        let (recv_s, mpi_s) = (&profile["calls"]["recv_s"], &profile["calls"]["mpi_s"]);
        assert!(recv_s.as_f64() >= Some(0.25) && mpi_s.as_f64() >= recv_s.as_f64(), "{profile}");
        assert!(mpi_s.as_f64() < profile["elapsed_s"].as_f64(), "{profile}");
        assert_eq!(profile["calls"]["collective_s"].as_f64(), Some(0.0), "{profile}");
        assert!(profile["image_bytes"].as_f64() > Some(1e6), "{profile}");
        assert!(ended.err.contains("between ranks, profile "), "{ended}");
    }
}

#[test]
fn a_replica_that_dies_takes_nothing_out_of_the_profile() {
    let (ended, profile) = profiled(Job::new(RANKS, &compile_case("known")).degree(2).inject("kill:1.0@#2"));
    assert_eq!(traffic(&profile), known_traffic(RANKS), "{ended}");
    assert_eq!((&profile["losses"], &profile["injected"]), (&1.into(), &1.into()), "{profile}");
}

#[test]
fn a_copy_goes_on_with_the_counts_of_its_source() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let (stop, path) = (directory.path().join("stop"), directory.path().join("profile.json"));
    let job = Job::new(RANKS, &compile_case("known")).degree(2).limit(Duration::from_secs(120));
    let job = job.options(&["--spares", "2", "--profile", &path.display().to_string()]);
    let job = job.arguments(&[&stop.display().to_string()]).start();
    job.wait_until("waiting", |job| job.output().contains("waiting"));
    // Both first replicas of rank 1 die, so that copies report all its counts.
    for (count, replica) in [(1, "1.0"), (2, "1.1")] {
        job.kill_replica(replica);
        job.wait_for("recovered", count);
    }
    std::fs::write(&stop, "").expect("the directory is there");
    let ended = job.wait().ended_well();
    let profile = read(&path);
    assert_eq!(traffic(&profile), known_traffic(RANKS), "{ended}");
    assert_eq!((&profile["losses"], &profile["copies"]), (&2.into(), &2.into()), "{profile}");
    for figure in ["window_s", "copy_s", "stop_s"] {
        assert!(profile[figure].as_f64() > Some(0.0), "{figure}: {profile}");
    }
    // A copy takes over the time of a call that began before the cut; the sum stays below the time of the run.
    assert!(profile["calls"]["mpi_s"].as_f64() < profile["elapsed_s"].as_f64(), "{profile}");
}

#[test]
fn the_profile_of_a_failed_job_teaches_no_time() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let path = directory.path().join("profile.json");
    let job = Job::new(RANKS, &compile_case("known")).inject("kill:1.0@#2");
    let ended = job.options(&["--profile", &path.display().to_string()]).run();
    let profile = read(&path);
    assert_ne!(profile["exit_code"], 0, "{ended}");
    assert_eq!((profile["calls"].is_null(), traffic(&profile).len()), (true, 0), "{profile}");
    assert!(ended.err.contains("the profile has no calls and no traffic: 4 of 4 ranks"), "{ended}");
}

#[test]
fn an_unwritable_profile_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let missing = directory.path().join("no-such-directory/profile.json").display().to_string();
    let ended = Job::new(3, &compile("until")).options(&["--profile", &missing]).run();
    assert_eq!((ended.code, ended.err.lines().count()), (Some(2), 1), "{ended}");
    assert!(ended.err.contains(&format!("--profile {missing}: No such file or directory")), "{ended}");
}

#[test]
fn a_profile_that_a_full_disk_does_not_take_is_told_of() {
    let ended = Job::new(RANKS, &compile_case("known")).options(&["--profile", "/dev/full"]).run();
    assert_eq!(ended.code, Some(1), "{ended}");
    assert!(ended.err.contains("Failed to write the profile /dev/full: No space left on device"), "{ended}");
}

/// Runs `redplan` with a store in this directory.
fn redplan(directory: &Path, words: &[&str]) -> Value {
    let mut command = Command::new(prefix().join("bin/redplan"));
    command.args(words).arg("--json").env("REDRT_PLAN_STORE", directory.join("plan.redb"));
    let output = command.output().expect("redplan can be run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "redplan {}: {said}", words.join(" "));
    serde_json::from_slice(&output.stdout).expect("redplan answers in JSON")
}

#[test]
fn redplan_learns_what_redrun_has_profiled() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let profiles = directory.path().join("profiles");
    std::fs::create_dir(&profiles).expect("the directory is there");
    let (known, place) = (compile_case("known"), profiles.display().to_string());
    // In a directory each run has a file of its own. The third run is disturbed, and its time is not learned.
    let run = |degree: u16, fault: Option<&str>| {
        let job = Job::new(RANKS, &known).degree(degree).options(&["--profile", &place]);
        fault.into_iter().fold(job, Job::inject).run().ended_well()
    };
    run(1, None);
    run(2, None);
    run(2, Some("kill:1.0@#2"));
    let answer = redplan(directory.path(), &["learn", &place]);
    let programs = answer["tables"][0]["rows"].as_array().cloned().unwrap_or_default();
    assert_eq!(programs.len(), 1, "{answer}");
    assert_eq!(
        (&programs[0]["program"], &programs[0]["ranks"], &programs[0]["runs"], &programs[0]["beta_by"]),
        (&known.display().to_string().into(), &RANKS.into(), &3.into(), &"measured".into()),
        "{answer}"
    );
    assert!(programs[0]["work_s"].as_f64() > Some(0.4), "{answer}");
    // Clusters are made from the messages on record.
    let file = std::fs::read_dir(&profiles).expect("it is there").next().expect("a profile").expect("it has a name");
    let matrix = file.path().display().to_string();
    redplan(directory.path(), &["cluster", "--matrix", &matrix, "--hosts", "4x1"]);
}
