//! `redreport` on logs as `redrun` writes them, and its page in a real browser.

use super::program;
use audit_log::heads::{HeadStore, Note};
use audit_log::log::Log;
use audit_log::{JOB_END, JOB_START};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn redreport(arguments: &[&str]) -> Output {
    Command::new(program("redreport")).args(arguments).output().expect("it can be run")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn mismatch(sender: u64, culprit: Option<u64>, sequence: u64, receiver: &str, finding: &str) -> Value {
    let vote = |index: u64| {
        json!({
            "replica": format!("{sender}.{index}"), "host": format!("node{}", index + 1),
            "core": if index == 0 { Value::Null } else { json!(10 + index) }, "digest": format!("{:032x}", index),
        })
    };
    // Two replicas are no majority: nobody can judge between them.
    let votes: Vec<_> = (0..if culprit.is_some() { 3 } else { 2 }).map(vote).collect();
    json!({
        "receiver": receiver, "receiver_host": "node1", "sender": sender, "supplier": format!("{sender}.0"),
        "supplier_host": "node1", "core": culprit.map(|index| 10 + index), "element": "f64",
        "communicator": "MPI_COMM_WORLD <&\">", "context": "0000000000001000", "tag": 7, "sequence": sequence, "length_bytes": 800,
        "payload": "00", "votes": votes, "finding": finding,
        "culprit": culprit.map(|index| format!("{sender}.{index}")), "host": "node2", "action": "outvoted", "view": 1,
    })
}

/// Writes the log of a job of two ranks with three replicas each on three hosts. In it `count` messages of 1.1 on node2
/// are outvoted, and two receivers report each.
fn write_job(path: &Path, number: u64, count: u64, is_injected: bool) {
    let mut log = Log::open(path).expect("a new file");
    let start = json!({
        "job": format!("feed{number:012x}"), "hosts": ["node1", "node2", "node3"], "programs": ["./heat"], "ranks": 2,
        "degrees": [3, 3], "seed": "0",
    });
    log.record(JOB_START, &start);
    for (rank, index) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
        let started = json!({ "replica": format!("{rank}.{index}"), "host": format!("node{}", index + 1), "pid": 9 });
        log.record("started", &started);
    }
    if is_injected {
        log.record("injected", &json!({ "replica": "1.1", "host": "node2", "fault": "bit 3 flipped" }));
    }
    for sequence in 0..count {
        for receiver in ["0.0", "0.2"] {
            log.record("mismatch", &mismatch(1, Some(1), sequence, receiver, "replica-corrupt"));
        }
        let evidence = json!({
            "receiver": "0.1", "sender": 1, "context": "0000000000001000", "tag": 7, "sequence": sequence, "one": "1.1",
            "one_host": "node2", "other": "1.2", "other_host": "node3", "other_is_right": true, "first_byte": 8,
            "xor": "0100000000000000", "element": "f64", "index": 1, "one_value": "1e0", "other_value": "2e0", "ulps": 4,
            "bytes": 1, "bits": 1, "lengths": null,
        });
        log.record("evidence", &evidence);
    }
    if count > 0 {
        log.record("retired", &json!({ "replica": "1.1", "host": "node2", "reason": "outvoted" }));
        let lost = json!({ "replica": "1.1", "host": "node2", "exit": { "signal": 9 }, "left": 2, "view": 1 });
        log.record("replica-lost", &lost);
        log.record("copy-runs", &json!({ "replica": "1.1", "host": "node4", "pid": 10 }));
        log.record("recovered", &json!({ "replica": "1.1", "source": "1.2", "host": "node4", "window_ms": 1.0 }));
    }
    for replica in ["0.0", "1.2"] {
        let coverage = json!({
            "replica": replica, "host": "node1", "messages_sent": 10, "bytes_sent": 80, "messages_compared": 100,
            "bytes_compared": 4096, "communicators": [
                { "communicator": "MPI_COMM_WORLD", "messages": 60, "bytes": 4000 },
                { "communicator": "row", "messages": 40, "bytes": 96 },
            ],
        });
        log.record("coverage", &coverage);
    }
    let short_s = if count > 0 { 18.0 } else { 0.0 };
    let ranks =
        if count > 0 { json!([{ "rank": 1, "short_s": 18.0, "single_s": 0.0, "missing": 0 }]) } else { json!([]) };
    let redundancy = json!({ "required_s": 100.0, "short_s": short_s, "single_s": 0.0, "missing": 0, "ranks": ranks });
    log.record("redundancy", &redundancy);
    log.record(JOB_END, &json!({ "exit_code": 0 }));
}

/// A directory with the logs of four jobs: two with three verdicts in all, one undisturbed, one with an injected fault.
fn write_logs() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let logs = directory.path().join("logs");
    std::fs::create_dir(&logs).expect("a new directory");
    for (number, count) in [(1, 2), (2, 1), (3, 0), (4, 5)] {
        write_job(&logs.join(format!("{number}.jsonl")), number, count, number == 4);
    }
    (directory, logs)
}

/// It corrupts messages in several jobs.
#[test]
fn a_corrupting_host_is_named_with_the_command_to_drain_it() {
    let (_directory, logs) = write_logs();
    let output = redreport(&[&logs.display().to_string()]);
    let text = said(&output);
    assert!(output.status.success(), "{output:?}");
    for part in [
        "4 jobs, 1 of them with injected faults",
        "800 messages compared (32.0 KiB), 8 verdicts",
        "node2: corrupts data: 3 of the 3 verdicts of all jobs, in 2 of them, with ",
        " % of the process hours; all from core 11\n",
        "scontrol update nodename=node2 state=drain reason=\"redrt: 3 corrupt messages in 2 jobs, last ",
        "1.1 on node2, core 11 is corrupt: message 0 from rank 1 to 0",
        "1 bit differs, the first in byte 8 (xor 0100000000000000), element 1 (f64): 1e0 in that of 1.1, 2e0 in that of 1.2, which is right, 4 ulp apart",
        "3 replicas lost, 3 replaced",
        "86.5 % of rank hours had all replicas",
        "  82.0 % of rank hours had all replicas\n",
        "exit: signal 9",
        "row: 320 messages (768 bytes)",
        "open: rank 1 of ./heat differed 2 times, always on node2: if it follows the rank when that is moved (redctl migrate)",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

/// The user has named the wrong file, or the log is gone.
#[test]
fn what_is_no_audit_log_is_refused_with_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    for (log, says) in [
        (path("notes", "not\na log\n"), "no line of it is an audit record"),
        (path("one", "{}"), "no line of it is an audit record"),
        ("/no/such".to_owned(), "No such file"),
    ] {
        let output = redreport(&[&log]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(says) && error.lines().count() == 1, "{error}");
    }
    // A job that ends before its first record leaves an empty log.
    assert_eq!(redreport(&[&path("empty", "")]).status.code(), Some(0));
}

/// The question of a prolog and a health check.
#[test]
fn sick_hosts_are_told_by_an_exit_code() {
    let (directory, logs) = write_logs();
    let logs = logs.display().to_string();
    let ask = |words: &[&str]| {
        let output = redreport(&[&["sick"], words].concat());
        (output.status.code(), said(&output))
    };
    let (code, text) = ask(&["--host", "node2.cluster", &logs]);
    assert_eq!((code, text.lines().count()), (Some(4), 1), "{text}");
    assert!(text.starts_with("node2: corrupts data: 3 of the 3 verdicts"), "{text}");
    assert_eq!(ask(&["--host", "node1", &logs]), (Some(0), String::new()));
    assert_eq!(ask(&[&logs]).0, Some(4));
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_eq!(ask(&[&empty.display().to_string()]), (Some(0), String::new()));
    assert_eq!(ask(&["/no/such"]).0, Some(2));
}

#[test]
fn injected_faults_count_if_that_is_asked_for() {
    let (_directory, logs) = write_logs();
    let text = said(&redreport(&["--count-injected", &logs.display().to_string()]));
    assert!(text.contains("node2: corrupts data: 8 of the 8 verdicts of all jobs, in 3 of them"), "{text}");
}

#[test]
fn in_json_all_reports_of_a_message_are_one_verdict() {
    let (_directory, logs) = write_logs();
    let report: Value = serde_json::from_slice(&redreport(&["--json", &logs.display().to_string()]).stdout).unwrap();
    assert_eq!(report["jobs"][0]["verdicts"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        report["jobs"][0]["verdicts"][0]["suspects"],
        json!([{ "replica": "1.1", "host": "node2", "core": 11 }])
    );
    assert_eq!((&report["totals"]["verdicts"], &report["totals"]["ranks"]["1"][0]), (&json!(8), &json!(400)));
    assert_eq!((&report["hosts"][0]["state"], &report["hosts"][1]["state"]), (&json!("sick"), &json!("clear")));
    let lives = report["jobs"][0]["lives"].as_array().unwrap();
    assert!(lives.iter().any(|life| life["replica"] == "1.1" && life["host"] == "node4" && life["lost"] == false));
    assert_eq!(report["spheres"][0]["live_min"], 2);
}

#[test]
fn where_nobody_knows_which_is_wrong_both_hosts_are_suspected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut log = Log::open(&path).unwrap();
    let start = json!({ "job": "1", "hosts": ["node1", "node2"], "programs": ["x"], "ranks": 2, "degrees": [2, 2] });
    log.record(JOB_START, &start);
    log.record("mismatch", &mismatch(1, None, 3, "0.0", "undecidable"));
    log.record(JOB_END, &json!({ "exit_code": 0 }));
    drop(log);
    let output = redreport(&[&path.display().to_string()]);
    let text = said(&output);
    assert!(
        text.contains("replicas differ, nobody knows which is right: 1.0 on node1; 1.1 on node2, core 11"),
        "{text}"
    );
    assert!(text.contains("node1: suspected 1 times, always with node2"), "{text}");
    assert!(!text.contains("scontrol"), "{text}");
}

/// Writes the log of a job of four ranks on three hosts. These replicas are outvoted or, in pairs, differ; where nobody
/// can judge, receivers take the first message.
fn write_verdicts(path: &Path, number: u64, hosts: [&str; 3], degree: u64, verdicts: &[(u64, Option<u64>)]) {
    let mut log = Log::open(path).expect("a new file");
    let start = json!({
        "job": format!("{number:x}"), "hosts": hosts, "programs": ["./app"], "ranks": 4, "degrees": vec![degree; 4],
    });
    log.record(JOB_START, &start);
    let place = |rank: u64, index: u64| hosts[((rank + index) % 3) as usize];
    for (rank, index) in (0..4).flat_map(|rank| (0..degree).map(move |index| (rank, index))) {
        log.record("started", &json!({ "replica": format!("{rank}.{index}"), "host": place(rank, index), "pid": 9 }));
    }
    for (sequence, (sender, culprit)) in verdicts.iter().enumerate() {
        let receiver = (sender + 1) % 4;
        for index in 0..degree {
            let finding = if culprit.is_some() { "replica-corrupt" } else { "undecidable" };
            let mut record = mismatch(*sender, *culprit, sequence as u64, &format!("{receiver}.{index}"), finding);
            record["receiver_host"] = place(receiver, index).into();
            record["action"] = if culprit.is_some() { "outvoted" } else { "delivered" }.into();
            for vote in 0..degree {
                record["votes"][vote as usize]["host"] = place(*sender, vote).into();
            }
            log.record("mismatch", &record);
        }
    }
    log.record(JOB_END, &json!({ "exit_code": 0 }));
}

/// Hosts, degree, and for each verdict the rank and the outvoted replica, if it is known.
type Verdicts<'a> = ([&'a str; 3], u64, &'a [(u64, Option<u64>)]);

/// The text and the JSON of `redreport` on such jobs.
fn told_of(jobs: &[Verdicts<'_>]) -> (String, Value) {
    let directory = tempfile::tempdir().unwrap();
    for (number, (hosts, degree, verdicts)) in (0..).zip(jobs) {
        write_verdicts(&directory.path().join(format!("{number}.jsonl")), number, *hosts, *degree, verdicts);
    }
    let name = directory.path().display().to_string();
    let json = redreport(&["--json", &name]);
    (said(&redreport(&[&name])), serde_json::from_slice(&json.stdout).unwrap())
}

#[test]
fn differences_that_follow_a_rank_are_the_programs_fault() {
    let (text, report) = told_of(&[(["n1", "n2", "n3"], 3, &[(2, Some(0)), (2, Some(1)), (2, Some(2))])]);
    assert!(text.contains(" with tag 7: it follows rank 2 of ./app from host to host (n1, n2 and n3)"), "{text}");
    assert!(!text.contains("scontrol") && text.contains("nothing found on 3 hosts"), "{text}");
    assert_eq!((&report["attribution"][0]["cause"], &report["hosts"][0]["explained"]), (&json!("software"), &json!(1)));
    // At r = 2, in jobs without a common host.
    let (text, report) = told_of(&[(["n1", "n2", "n3"], 2, &[(2, None)]), (["n4", "n5", "n6"], 2, &[(2, None)])]);
    assert!(text.contains("software: "), "{text}");
    assert_eq!(report["attribution"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_several_ranks_have_on_one_host_is_the_hosts() {
    // Replicas 0.1, 1.0 and 3.1 are on n2, or were in the first job.
    let (text, report) = told_of(&[(["n1", "n2", "n3"], 3, &[(0, Some(1)), (1, Some(0)), (3, Some(1))])]);
    assert!(text.contains("hardware: host n2: replicas of ranks 0, 1 and 3 were wrong there, 3 in all"), "{text}");
    assert_eq!(report["attribution"][0]["cause"], "hardware");
    assert!(text.contains("scontrol update nodename=n2"), "{text}");
}

#[test]
fn a_difference_that_spreads_blames_only_its_first_hosts() {
    let spread: Vec<_> = (0..8).map(|number| (number % 4, None)).collect();
    let (text, report) = told_of(&[(["n1", "n2", "n3"], 2, &spread)]);
    assert!(text.contains("n1: suspected 1 times, always with n2") && !text.contains("n3: suspected"), "{text}");
    assert!(
        text.contains("open: rank 0 of ./app differed once, and nobody knows which of n1 and n2 is wrong"),
        "{text}"
    );
    assert_eq!(report["attribution"].as_array().map(Vec::len), Some(1), "{report:#}");
}

#[test]
fn a_line_of_output_counts_as_a_message() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut log = Log::open(&path).unwrap();
    let start = json!({ "job": "1", "hosts": ["node1", "node2"], "programs": ["x"], "ranks": 2, "degrees": [3, 2] });
    log.record(JOB_START, &start);
    let side = |rank: u64, nodes: &[u64], text: &str| {
        let replica = |node: &u64| json!({ "replica": format!("{rank}.{}", node - 1), "host": format!("node{node}") });
        json!({ "replicas": nodes.iter().map(replica).collect::<Vec<_>>(), "text": text, "ended": text.is_empty() })
    };
    for (rank, culprit, sides) in [
        (0, Some("0.1"), [side(0, &[1, 3], "sum = 3.5"), side(0, &[2], "sum = 7.5")]),
        (1, None, [side(1, &[1], "<b>"), side(1, &[2], "")]),
    ] {
        let finding = if culprit.is_some() { "replica-corrupt" } else { "undecidable" };
        let record = json!({
            "rank": rank, "line": 4, "column": 7, "finding": finding, "culprit": culprit, "host": culprit.map(|_| "node2"),
            "sides": sides, "action": "outvoted", "given_up": [],
        });
        log.record("output-mismatch", &record);
    }
    log.record(JOB_END, &json!({ "exit_code": 0 }));
    drop(log);
    let name = path.display().to_string();
    let text = said(&redreport(&[&name]));
    for part in [
        "2 verdicts",
        "0.1 on node2 is corrupt: line 4 of the standard output of rank 0, byte 7\n",
        "\"sum = 3.5\" from 0.0 on node1, 0.2 on node3; \"sum = 7.5\" from 0.1 on node2",
        "replicas differ, nobody knows which is right: 1.0 on node1; 1.1 on node2: line 4 of the standard output of rank 1",
        "\"<b>\" from 1.0 on node1; nothing more from 1.1 on node2",
        "node2: one verdict",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let page = directory.path().join("page");
    assert!(redreport(&["--html", &page.display().to_string(), &name]).status.success());
    assert!(std::fs::read_to_string(&page).unwrap().contains("&quot;&lt;b&gt;&quot; from 1.0 on node1"));
}

#[test]
fn a_changed_log_gives_exit_code_1_and_a_cut_one_is_named() {
    let (_directory, logs) = write_logs();
    let (one, two) = (logs.join("1.jsonl"), logs.join("2.jsonl"));
    let text = std::fs::read_to_string(&one).unwrap();
    std::fs::write(&one, text.replacen("\"sequence\":1", "\"sequence\":7", 1)).unwrap();
    let text = std::fs::read_to_string(&two).unwrap();
    let shorter: Vec<_> = text.lines().collect();
    std::fs::write(&two, shorter[..shorter.len() - 1].join("\n") + "\n").unwrap();
    let output = redreport(&[&logs.display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("DOUBTFUL: ") && said(&output).contains("2.jsonl: the last job has no end"));
    let verify = |path: &Path| redreport(&["verify", &path.display().to_string()]);
    assert_eq!(verify(&one).status.code(), Some(1));
    assert_eq!(verify(&two).status.code(), Some(3));
    assert_eq!(verify(&logs.join("3.jsonl")).status.code(), Some(0));
}

#[test]
fn a_head_that_was_noted_finds_what_was_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    write_job(&path, 1, 0, false);
    let first = std::fs::read(&path).unwrap();
    write_job(&path, 2, 0, false);
    let name = path.display().to_string();
    let words = said(&redreport(&["verify", &name]));
    let head = words.split("head ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    assert_eq!(redreport(&["verify", "--head", &head, &name]).status.code(), Some(0));
    std::fs::write(&path, first).unwrap();
    assert_eq!(redreport(&["verify", &name]).status.code(), Some(0), "whole jobs are cut off");
    assert_eq!(redreport(&["verify", "--head", &head, &name]).status.code(), Some(1));
}

/// The cut is before the first mismatch.
#[test]
fn a_cut_emptied_or_open_log_is_not_called_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let (path, noted) = (directory.path().join("log"), directory.path().join("heads"));
    write_job(&path, 1, 1, false);
    let reading = audit_log::read::read(&path).unwrap();
    let note = Note::new(&path, "feed000000000001", reading.head.unwrap());
    note.write(&HeadStore::File(noted.clone())).unwrap();
    let verify = || {
        let output = redreport(&["verify", "--noted", &noted.display().to_string(), &path.display().to_string()]);
        (output.status.code(), said(&output))
    };
    assert_eq!(verify().0, Some(0));
    let whole = std::fs::read_to_string(&path).unwrap();
    let before: Vec<_> = whole.lines().take_while(|line| !line.contains("\"event\":\"mismatch\"")).collect();
    // The noted heads show that records are missing.
    std::fs::write(&path, before.join("\n") + "\n").unwrap();
    let (code, words) = verify();
    assert!(code == Some(1) && words.contains("CHANGED") && words.contains("is not there"), "{words}");
    // Without them, only the end is missing.
    let output = redreport(&["verify", "--noted", "none", &path.display().to_string()]);
    assert!(output.status.code() == Some(3) && said(&output).contains("INCOMPLETE"), "{output:?}");
    // The end is missing even if another job follows in the log.
    write_job(&path, 2, 0, false);
    let output = redreport(&["verify", "--noted", "none", &path.display().to_string()]);
    assert!(output.status.code() == Some(3) && said(&output).contains("line 1: the job that begins here has no end"));
    std::fs::write(&path, "").unwrap();
    let (code, words) = verify();
    assert!(code == Some(3) && words.contains("there is no job in it") && words.contains("emptied"), "{words}");
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    for (arguments, part) in [
        (&["--nonsense"][..], "unexpected argument"),
        (&[], "no log is named"),
        (&["verify"], "<LOG>"),
        (&["verify", "--head", "x", "log"], "no head of a log"),
        (&["/no/such/log"], "/no/such/log"),
    ] {
        let output = redreport(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{arguments:?}: {text}");
        assert!(text.contains(part), "{text}");
    }
}

/// Chromium without a window. It opens a page at an address with a fragment, and gives the document after the script
/// has run.
struct Browser {
    profile: tempfile::TempDir,
}

impl Browser {
    /// `None` where Chromium is not installed.
    fn find() -> Option<Self> {
        let is_there = Command::new("chromium").arg("--version").output().is_ok_and(|output| output.status.success());
        if !is_there {
            println!("skipped: there is no chromium (scripts/setup-tests.sh installs it)");
        }
        is_there.then(|| Self { profile: tempfile::tempdir().expect("the temporary directory can be written") })
    }

    fn run(&self, arguments: &[&str], page: &Path, fragment: &str) -> Output {
        let mut chromium = Command::new("chromium");
        chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        // Every request to the network would fail.
        chromium.args(["--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1400,1800"]);
        chromium.arg(format!("--user-data-dir={}", self.profile.path().display())).args(arguments);
        let output = chromium.arg(format!("file://{}#{fragment}", page.display())).output().expect("it can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// The first cells of a table's visible rows, in order.
    fn shown(&self, page: &Path, fragment: &str, table: &str) -> Vec<String> {
        let document = said(&self.run(&["--dump-dom"], page, fragment));
        let from = document.find(&format!("<table id=\"{table}\"")).expect("the table is there");
        let rows = &document[from..from + document[from..].find("</table>").expect("it ends")];
        let body = rows.split("<tbody>").nth(1).expect("it has a body");
        let rows = body.split("<tr").skip(1).filter(|row| !row.starts_with(" hidden"));
        let first = |row: &str| row.split("<td").nth(1)?.split('>').nth(1)?.split('<').next().map(str::to_owned);
        rows.filter_map(first).collect()
    }
}

#[test]
fn the_page_renders_sorts_filters_and_prints_in_a_browser() {
    let (directory, logs) = write_logs();
    let page = directory.path().join("report.html");
    assert!(redreport(&["--html", &page.display().to_string(), &logs.display().to_string()]).status.success());
    let source = std::fs::read_to_string(&page).unwrap();
    let from_elsewhere = ["src=", "href=", "url(", "@import", "http://", "https://"];
    assert!(from_elsewhere.iter().all(|part| !source.contains(part)), "the page is not all in one file");
    assert!(source.contains("MPI_COMM_WORLD &lt;&amp;&quot;&gt;") && !source.contains("<&\">"));
    let Some(browser) = Browser::find() else { return };
    assert_eq!(browser.shown(&page, "", "hosts"), ["node2", "node1", "node3", "node4"]);
    assert_eq!(browser.shown(&page, "sort=hosts:0:up", "hosts"), ["node1", "node2", "node3", "node4"]);
    assert_eq!(browser.shown(&page, "sort=hosts:3:down", "hosts")[0], "node2");
    assert_eq!(browser.shown(&page, "sort=hosts:3:up", "hosts")[3], "node2");
    assert_eq!(browser.shown(&page, "filter=node4", "hosts"), ["node4"]);
    assert_eq!(browser.shown(&page, "", "verdicts").len(), 8);
    assert_eq!(browser.shown(&page, "filter=feed000000000002 node2", "verdicts"), ["feed000000000002"]);
    assert!(said(&browser.run(&["--dump-dom"], &page, "filter=nothing-like-it")).contains("0 of "));
    let (print, picture) = (directory.path().join("report.pdf"), directory.path().join("report.png"));
    let _ = browser.run(&[&format!("--print-to-pdf={}", print.display())], &page, "");
    let _ = browser.run(&[&format!("--screenshot={}", picture.display())], &page, "");
    let printed = std::fs::read(&print).unwrap();
    assert!(printed.starts_with(b"%PDF") && printed.len() > 20_000, "{} bytes", printed.len());
    let reader = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&picture).unwrap())).read_info();
    let mut reader = reader.expect("a picture");
    let mut pixels = vec![0; reader.output_buffer_size().expect("it fits")];
    let frame = reader.next_frame(&mut pixels).expect("a picture");
    assert_eq!((frame.width, frame.height), (1400, 1800));
    // The style was applied: the page has the alarm's red border and the ink of text.
    let has = |colour: [u8; 3]| pixels.chunks(frame.color_type.samples()).any(|pixel| pixel[..3] == colour);
    assert!(has([0xb4, 0x23, 0x18]) && has([0x1b, 0x1f, 0x24]), "colours are missing");
}
