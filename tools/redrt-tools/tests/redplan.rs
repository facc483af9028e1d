//! The program `redplan`: its answers, its pictures, and its messages for wrong input.

use super::program;
use audit_log::log::Log;
use audit_log::{JOB_END, JOB_START};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

fn redplan(arguments: &[&str]) -> Output {
    Command::new(program("redplan")).args(arguments).output().unwrap()
}

#[track_caller]
fn text(arguments: &[&str]) -> String {
    let output = redplan(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn answer_json(arguments: &[&str]) -> Value {
    let with: Vec<_> = arguments.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&text(&with)).unwrap()
}

/// The line of an error, with this exit code.
#[track_caller]
fn refused(arguments: &[&str], code: i32) -> String {
    let output = redplan(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.starts_with("redplan: ") && error.lines().count() == 1 && output.stdout.is_empty(), "{error}");
    error
}

const SCALE: [&str; 11] =
    ["scale", "--work", "256h", "--mttf", "438000h", "--clone", "2min", "--relaunch", "2min", "--beta", "0.1"];

#[test]
fn figure_3_9_of_dino_comes_out_as_published_and_corrected() {
    let hours =
        |answer: &Value, row: usize, key: &str| answer["tables"][0]["rows"][row][key].as_f64().unwrap() / 3600.0;
    let published = answer_json(&[SCALE.as_slice(), &["--as-published"]].concat());
    assert!((hours(&published, 0, "two_s") - 282.77).abs() < 0.006);
    assert!((hours(&published, 8, "two_s") - 719.67).abs() < 0.006);
    assert!((hours(&published, 8, "two_with_cloning_s") - 404.84).abs() < 0.006);
    let corrected = answer_json(&SCALE);
    assert!((hours(&corrected, 8, "two_s") - 438.01).abs() < 0.006);
    assert!(corrected["notes"][0].as_str().unwrap().contains("faster than r = 3 up to 54"), "{corrected}");
    let both = answer_json(&[SCALE.as_slice(), &["--beta", "0.2"]].concat());
    assert_eq!(both["tables"].as_array().unwrap().len(), 2);
    assert!(both["notes"][1].as_str().unwrap().contains("β 0.2: r = 2 with cloning is faster than r = 3 up to 94"));
}

#[test]
fn advice_ends_with_a_line_to_paste_and_says_what_it_assumed() {
    let job = ["advise", "--work", "24h", "-n", "1024", "-N", "16", "--mtbf", "10d"];
    let advice = text(&job);
    assert!(advice.contains("\nredrun -n 1024 -N 16 --spares 16 --checkpoint 402s PROGRAM\n"), "{advice}");
    assert!(advice.contains("Assumed, for nothing was measured: --beta 0.05, --restart 60s, --window 30s"), "{advice}");
    assert!(
        advice.contains("With --image, --disk-rate and --network-rate there are rows with checkpoints on the hosts"),
        "{advice}"
    );
    // A program that cannot be saved needs replicas.
    let unsaved = [job.as_slice(), &["--no-checkpoints"]].concat();
    let advice = text(&unsaved);
    assert!(advice.contains("\nredrun -r 2 -n 1024 -N 16 --spares "), "{advice}");
    assert!(!advice.contains("--checkpoint") && !advice.contains("erasure"), "{advice}");
    let rows = answer_json(&unsaved);
    assert_eq!(rows["tables"][0]["rows"][0]["degree"], 2.0);
    // A job that never ends has no figure, and is listed last.
    let never = answer_json(&["advise", "--work", "24h", "-n", "64", "-N", "1", "--mtbf", "10s", "--window", "1s"]);
    assert_eq!(never["tables"][0]["rows"].as_array().unwrap().last().unwrap()["time_s"], Value::Null);
}

#[test]
fn times_are_predicted_by_formula_simulation_and_given_losses() {
    let job = ["predict", "--work", "35s", "-n", "2", "--beta", "0.1", "--restart", "3s"];
    let saved = ["--checkpoint", "10s", "--save-time", "1s", "--save-stop", "1s", "--save-slowdown", "0"];
    let time = |more: &[&str]| {
        let answer = answer_json(&[job.as_slice(), more].concat());
        let row = answer["tables"][0]["rows"][0].clone();
        (row["time_s"].as_f64().unwrap(), row["source"].as_str().unwrap().to_owned())
    };
    assert_eq!(time(&[]), (35.0, "losses as given".into()));
    assert!((time(&["-r", "2"]).0 - 38.5).abs() < 1e-9);
    assert_eq!(time(&saved).0, 38.0);
    // Five seconds of work after a checkpoint are repeated, three seconds later.
    assert_eq!(time(&[saved.as_slice(), &["--lose", "1@16s"]].concat()).0, 46.0);
    let (long, by) = time(&[saved.as_slice(), &["--mtbf", "2min"]].concat());
    assert!(by == "formula" && long > 38.0, "{long} {by}");
    let (long, by) = time(&["-r", "2", "--mtbf", "2min", "--checkpoint", "10s"]);
    assert!(by == "simulation" && long > 38.5, "{long} {by}");
    assert!(refused(&[job.as_slice(), &["--lose", "2@1s"]].concat(), 2).contains("rank 2 is not there"));
    assert!(refused(&[job.as_slice(), &["--first-checkpoint", "1s"]].concat(), 2).contains("--checkpoint"));
}

#[test]
fn a_profile_of_a_disturbed_run_has_no_time_but_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("failed.json");
    let profile = |more: &str| {
        std::fs::write(&path, format!(r#"{{"format":1,"program":"app","ranks":8,"elapsed_s":9{more}}}"#)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    for more in [r#","exit_code":9"#, r#","losses":1"#, r#","injected":1"#, r#","returns":1"#, r#","checkpoints":1"#] {
        let error = refused(&["advise", "--profile", &profile(more), "-N", "4", "--mtbf", "1y"], 2);
        assert!(error.contains("no run of app was left alone"), "{error}");
        // The cause of an interruption is useful beside a time that is given.
        text(&["advise", "--profile", &profile(more), "--work", "1h", "-N", "4", "--mtbf", "1y"]);
    }
    assert!(refused(&["advise", "--profile", "/nowhere.json", "-N", "4", "--mtbf", "1y"], 2).contains("/nowhere.json"));
    assert!(refused(&["advise", "--profile", "/", "-N", "4", "--mtbf", "1y"], 2).contains("profile /"));
    assert!(refused(&["learn", "/proc/version"], 2).contains("no line of it is an audit record"));
    let full = refused(&[SCALE.as_slice(), &["--svg", "/dev/full"]].concat(), 1);
    assert!(full.contains("Failed to draw /dev/full"), "{full}");
}

#[test]
fn advice_takes_the_time_of_runs_from_profiles() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, degree: u32, elapsed: u32, ranks: u32| {
        let path = directory.path().join(name);
        let profile =
            format!(r#"{{"format":1,"program":"app","ranks":{ranks},"degree":{degree},"elapsed_s":{elapsed}}}"#);
        std::fs::write(&path, profile).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, two, other) = (write("1", 1, 1000, 8), write("2", 2, 1200, 8), write("3", 1, 1000, 16));
    let answer = answer_json(&["advise", "--profile", &one, "--profile", &two, "-N", "4", "--mtbf", "1000y"]);
    let rows = answer["tables"][0]["rows"].as_array().unwrap();
    let double = rows.iter().find(|row| row["degree"] == 2.0).unwrap();
    assert!((double["time_s"].as_f64().unwrap() - 1200.0).abs() < 0.1, "{double}");
    let error = refused(&["advise", "--profile", &one, "--profile", &other, "-N", "4", "--mtbf", "1y"], 2);
    assert!(error.contains("app with 8 ranks, another of app with 16"));
    std::fs::write(&one, r#"{"format":7,"program":"app","ranks":8,"elapsed_s":1}"#).unwrap();
    assert!(refused(&["advise", "--profile", &one, "-N", "4", "--mtbf", "1y"], 2).contains("format 7"));
}

#[test]
fn a_chain_of_1024_ranks_has_16_clusters_within_the_baseline() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (clusters, radar) = (path("clusters.json"), path("radar.svg"));
    let answer = answer_json(&["cluster", "--chain", "--hosts", "64x16", "--output", &clusters, "--svg", &radar]);
    assert!(answer["notes"][0].as_str().unwrap().ends_with("16 clusters"), "{answer}");
    let written: Value = serde_json::from_slice(&std::fs::read(clusters).unwrap()).unwrap();
    assert_eq!(written["cluster_of_rank"].as_array().unwrap().len(), 1024);
    assert_eq!(written["groups"].as_array().unwrap().len(), 256);
    assert!(std::fs::read_to_string(radar).unwrap().contains("baseline"));
    // A sixteenth of the job, measured and scaled, is divided in the same way.
    let pairs: Vec<_> = (1..64).flat_map(|rank| [(rank - 1, rank, 8), (rank, rank - 1, 8)]).collect();
    let matrix = path("m.json");
    std::fs::write(&matrix, serde_json::json!({"ranks": 64, "pairs": pairs}).to_string()).unwrap();
    let scaled = answer_json(&["cluster", "--matrix", &matrix, "--scale", "16", "--hosts", "64x16"]);
    assert_eq!(scaled["tables"], answer["tables"]);
}

#[test]
fn matrices_that_do_not_fit_are_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.json");
    let matrix = path.to_str().unwrap();
    let with = |text: &str, hosts: &str, code: i32| {
        std::fs::write(&path, text).unwrap();
        refused(&["cluster", "--matrix", matrix, "--hosts", hosts], code)
    };
    assert!(with(r#"{"ranks":4,"pairs":[]}"#, "3x1", 2).contains("4 ranks are not 3 hosts x 1"));
    assert!(with(r#"{"ranks":4,"pairs":[[0,4,1]]}"#, "4x1", 2).contains("0 → 4"));
    assert!(with(r#"{"ranks":4,"pairs":[[0,3,-1]]}"#, "4x1", 2).contains("-1 bytes"));
    assert!(with("no json", "4x1", 1).contains("m.json"));
    assert!(refused(&["cluster", "--matrix", "/nowhere/m.json", "--hosts", "4x1"], 1).contains("/nowhere/m.json"));
}

#[test]
fn first_points_and_choices_of_spares_are_those_of_the_tables() {
    // Table 5.6, BT-C, with the slow-down in three digits.
    let choice = text(&[
        "spare-choice",
        "--work",
        "631.51",
        "--overhead",
        "0.05924",
        "--slowdown",
        "1.285",
        "--interval",
        "85.34",
        "--restart-remaining",
        "2.22",
        "--copy",
        "16.65",
        "--restart-spare",
        "2",
    ]);
    assert!(choice.contains("From 97.7"), "{choice}");
    // Fialho's interval of table 5.5, CG-D.
    let interval =
        answer_json(&["interval", "--mtti", "720", "--checkpoint", "120.7", "--restart", "110", "--work", "1792.66"]);
    assert!((interval["tables"][0]["rows"][2]["interval_s"].as_f64().unwrap() - 278.35).abs() < 0.006);
    let points = interval["tables"][1]["rows"].as_array().unwrap();
    let time = |row: usize| points[row]["time_s"].as_f64().unwrap();
    assert!(time(2) <= time(0) && time(2) <= time(1) && time(2) <= time(3), "{points:?}");
}

#[test]
fn every_command_answers_and_wrong_figures_have_one_line() {
    assert!(
        text(&["partial", "--hosts", "100000", "--mttf", "43800h", "--checkpoint", "15min", "--restart", "15min"])
            .contains("6.47")
    );
    assert!(
        text(&["spares", "--time", "200h", "--hosts", "64000", "--mttf", "50y", "--window", "10min"])
            .contains("Spare hosts")
    );
    assert!(text(&["detect", "--hosts", "256", "--interval", "94s"]).contains("47.00 s"));
    for what in ["man", "bash", "zsh", "fish"] {
        assert!(text(&["generate", what]).contains("redplan"));
    }
    assert!(
        refused(&["advise", "--work", "24h", "-n", "4", "-N", "1", "--mtbf", "0s"], 2)
            .contains("failures of a host is 0")
    );
    assert!(refused(&["advise", "-n", "4", "-N", "1", "--mtbf", "1y"], 2).contains("--work is needed"));
    assert!(refused(&["interval", "--mtti", "3 weeks", "--checkpoint", "1s"], 2).contains("is not a time"));
    assert!(refused(&["detect", "--hosts", "4", "--svg", "x.svg"], 2).contains("no picture"));
    assert!(
        refused(&["spares", "--time", "200h", "--hosts", "64000", "--mttf", "1h", "--window", "1h"], 2)
            .contains("faster")
    );
    refused(
        &[
            "scale",
            "--work",
            "1h",
            "--beta",
            "0",
            "--mttf",
            "1y",
            "--clone",
            "1s",
            "--relaunch",
            "1s",
            "--from",
            "9",
            "--to",
            "9",
        ],
        2,
    );
    refused(&[], 2);
}

/// Writes the log of a job of two ranks on hosts a and b. With `loses`, rank 1 is lost with its host b.
fn write_log(path: &Path, number: u64, degrees: [u64; 2], loses: bool) {
    let mut log = Log::open(path).unwrap();
    let start = json!({
        "job": format!("{number:016x}"), "hosts": ["a", "b"], "programs": ["./heat"], "ranks": 2, "degrees": degrees, "seed": "0",
    });
    log.record(JOB_START, &start);
    for index in 0..degrees[0] {
        for rank in 0..2 {
            let host = if (rank + index) % 2 == 0 { "a" } else { "b" };
            log.record("started", &json!({ "replica": format!("{rank}.{index}"), "host": host, "pid": 9 }));
        }
    }
    // Records have real times, so the job must take some.
    std::thread::sleep(std::time::Duration::from_millis(20));
    if loses {
        let lost = json!({ "replica": "1.0", "host": "b", "exit": { "signal": 9 }, "left": 0, "view": 1 });
        log.record("rank-lost", &lost);
    }
    log.record(JOB_END, &json!({ "exit_code": if loses { 1 } else { 0 } }));
}

#[test]
fn facts_of_logs_and_profiles_are_kept_once_and_used_in_advice() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (store, profile) = (path("deep/plan.redb"), path("p.json"));
    write_log(Path::new(&path("1.jsonl")), 1, [1, 1], false);
    write_log(Path::new(&path("2.jsonl")), 2, [2, 2], false);
    write_log(Path::new(&path("3.jsonl")), 3, [1, 1], true);
    std::fs::write(&profile, r#"{"format":1,"program":"other","ranks":8,"elapsed_s":1000}"#).unwrap();
    let learn = ["learn", &path("1.jsonl"), &path("2.jsonl"), &path("3.jsonl"), &profile, "--store", &store];
    let first = answer_json(&learn);
    assert_eq!(first["notes"][0], "Runs whose time was learned: 3");
    assert!(first["notes"][1].as_str().unwrap().starts_with("Jobs that tell no time: 1."), "{first}");
    // Learning the same files again changes nothing.
    assert_eq!(answer_json(&learn), first);
    let known = answer_json(&["known", "--store", &store]);
    assert_eq!(known["tables"], first["tables"]);
    let (programs, hosts) = (&known["tables"][0]["rows"], &known["tables"][1]["rows"]);
    assert_eq!(
        (&programs[0]["program"], &programs[0]["runs"], &programs[0]["ranks"]),
        (&json!("./heat"), &json!(2), &json!(2))
    );
    assert_eq!((&programs[0]["beta_by"], &programs[1]["work_s"]), (&json!("measured"), &json!(1000.0)));
    assert_eq!((&hosts[0]["losses"], &hosts[1]["losses"]), (&json!(0), &json!(1)));
    // The program's time and the site's failures are found in the store.
    let advice =
        answer_json(&["advise", "--program", "other", "-n", "8", "-N", "4", "--mtbf", "1000y", "--store", &store]);
    assert!((advice["tables"][0]["rows"][0]["time_s"].as_f64().unwrap() - 1000.0).abs() < 0.1, "{advice}");
    let site = text(&["advise", "--work", "1ms", "-n", "8", "-N", "4", "--store", &store]);
    assert!(site.contains("Hosts lost: 1 in "), "{site}");
    let advise =
        |more: &[&str]| refused(&[&["advise", "-N", "1", "--store", &store, "--mtbf", "1y"], more].concat(), 2);
    assert!(advise(&["--program", "none", "-n", "8"]).contains("no run of none with 8 ranks"));
    let empty = path("empty.redb");
    assert!(
        refused(&["advise", "--work", "1h", "-n", "8", "-N", "4", "--store", &empty], 2).contains("no job was learned")
    );
    // A log that was changed teaches nothing.
    let changed = std::fs::read_to_string(path("1.jsonl")).unwrap().replace("./heat", "./cool");
    std::fs::write(path("4.jsonl"), changed).unwrap();
    assert!(refused(&["learn", &path("4.jsonl"), "--store", &store], 1).contains("nothing is learned"));
    assert_eq!(answer_json(&["known", "--store", &store])["tables"], first["tables"]);
    // A file of another kind is refused as the store.
    assert!(refused(&["known", "--store", &profile], 1).contains("p.json"));
}

/// Writes the log of a job of one rank with three replicas on hosts a, b and c. The replica on b sends `count` messages
/// that are outvoted.
fn write_verdicts(path: &Path, number: u64, count: u64) {
    let mut log = Log::open(path).unwrap();
    let start = json!({
        "job": format!("{number:016x}"), "hosts": ["a", "b", "c"], "programs": ["./heat"], "ranks": 1, "degrees": [3], "seed": "0",
    });
    log.record(JOB_START, &start);
    for (index, host) in ["a", "b", "c"].iter().enumerate() {
        log.record("started", &json!({ "replica": format!("0.{index}"), "host": host, "pid": 9 }));
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    for sequence in 0..count {
        let votes = ["a", "b", "c"].iter().enumerate().map(|(index, host)| {
            json!({ "replica": format!("0.{index}"), "host": host, "core": 1, "digest": format!("{:032x}", index % 2) })
        });
        let mismatch = json!({
            "receiver": "0.0", "receiver_host": "a", "sender": 0, "supplier": "0.0", "supplier_host": "a", "core": 1, "element": "f64",
            "communicator": "MPI_COMM_WORLD", "context": "0000000000001000", "tag": 7, "sequence": sequence, "length_bytes": 800,
            "payload": "00", "votes": votes.collect::<Vec<_>>(), "finding": "replica-corrupt", "culprit": "0.1", "host": "b",
            "action": "outvoted", "view": 1,
        });
        log.record("mismatch", &mismatch);
    }
    log.record(JOB_END, &json!({ "exit_code": 0 }));
}

#[test]
fn advice_counts_on_no_host_that_was_found_to_corrupt_data() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let store = path("plan.redb");
    write_verdicts(Path::new(&path("1.jsonl")), 1, 2);
    write_verdicts(Path::new(&path("2.jsonl")), 2, 2);
    // The directory also has a profile and a file that is neither.
    std::fs::write(path("x.profile.json"), r#"{"format":1,"program":"other","ranks":8,"elapsed_s":1000}"#).unwrap();
    std::fs::write(path("summary.json"), "{}").unwrap();
    let known = answer_json(&["learn", directory.path().to_str().unwrap(), "--store", &store]);
    assert_eq!(known["tables"][0]["rows"].as_array().map(Vec::len), Some(2), "{known}");
    let hours = |host: usize| known["tables"][1]["rows"][host]["hours"].as_f64().unwrap();
    assert_eq!(known["tables"][1]["rows"][1]["state"], "sick", "{known}");
    let advise = |more: &[&str]| {
        let job = ["advise", "--work", "1ms", "-n", "2", "-N", "1", "--store", &store];
        [job.as_slice(), more].concat().iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let words = |advise: &[String]| text(&advise.iter().map(String::as_str).collect::<Vec<_>>());
    let open = words(&advise(&[]));
    assert!(open.contains("Sick, so leave them out of --hosts of redrun: b\n"), "{open}");
    // The lifetime of hosts comes from the sound ones.
    assert!(open.contains(&format!("in {:.1} host hours", hours(0) + hours(2))), "{open}");
    let three = words(&advise(&["--hosts", "3"]));
    assert!(three.contains("Of 3 hosts, 2 are counted on, without those that are sick: b\n"), "{three}");
    assert!(!three.contains("redrun -r 2"), "two ranks twice need four hosts, or three at least: {three}");
    let none = advise(&["--hosts", "1"]);
    let error = refused(&none.iter().map(String::as_str).collect::<Vec<_>>(), 2);
    assert!(error.contains("--hosts 1: as many or more are sick: b"), "{error}");
}
