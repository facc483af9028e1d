//! Files for a site's administrator: rules, a dashboard, checks of hosts, units.

use super::program;
use audit_log::log::Log;
use audit_log::{JOB_END, JOB_START};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn admin(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../admin").join(name)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Directories of the system's programs, including those that only the administrator has in PATH.
fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// True if a program of the system is installed; otherwise that is printed.
fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").env("PATH", search_path()).output().is_ok();
    if !is_there {
        println!("{program} is not there (scripts/setup-tests.sh installs it): what it checks is not");
    }
    is_there
}

fn accepted(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}

/// Names that begin with `redrt_`, without the endings that Prometheus and OpenMetrics append.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text.split(|c| !is_of_name(c)).filter(|word| word.starts_with("redrt_"));
    names.map(str::to_owned).collect()
}

/// A rule about a metric that nobody exports never fires, unnoticed.
#[test]
fn rules_and_the_dashboard_name_metrics_that_there_are() {
    let told = metrics(&text(&admin("../docs/metrics.md")));
    let dashboard: Value = serde_json::from_str(&text(&admin("grafana/redrt.json"))).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<_> =
        targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect();
    assert!(expressions.len() > 10);
    let rules = text(&admin("prometheus/alerts.yml"));
    let named = metrics(&(expressions.join(" ") + &rules));
    let unknown: Vec<_> = named.difference(&told).collect();
    assert!(named.len() > 10 && unknown.is_empty(), "docs/metrics.md does not have {unknown:?}");
}

#[test]
fn what_prometheus_and_logrotate_read_is_right() {
    if is_there("promtool") {
        let promtool =
            |words: &[&str], name: &str| Command::new("promtool").args(words).arg(admin(name)).output().unwrap();
        accepted(&promtool(&["check", "rules"], "prometheus/alerts.yml"));
        accepted(&promtool(&["check", "config", "--syntax-only"], "prometheus/scrape.yml"));
    }
    if is_there("logrotate") {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        accepted(
            &Command::new("logrotate")
                .env("PATH", search_path())
                .arg("-d")
                .arg("-s")
                .arg(&state)
                .arg(admin("logrotate.conf"))
                .output()
                .unwrap(),
        );
    }
}

/// Every line of the example is commented out, and every name in it is an option.
#[test]
fn the_example_of_a_sites_options_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("redrt.toml");
    let lines = text(&admin("redrt.toml"));
    let wanted: String = lines
        .lines()
        .map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')).unwrap_or(line).to_owned() + "\n")
        .collect();
    assert!(wanted.matches(" = ").count() > 6, "{wanted}");
    let racks = directory.path().join("racks");
    std::fs::write(&racks, "r1 h1 h2\n").unwrap();
    let here = |path: &str, name: &str| (path.to_owned(), directory.path().join(name).display().to_string());
    let mut wanted = wanted;
    for (from, to) in
        [here("/etc/redrt/racks", "racks"), here("/var/log/redrt", "log"), here("/var/lib/redrt/targets", "")]
    {
        wanted = wanted.replace(&from, &to);
    }
    // No daemon keeps this pool.
    let wanted: String =
        wanted.lines().filter(|line| !line.starts_with("pool")).map(|line| format!("{line}\n")).collect();
    std::fs::write(&file, wanted).unwrap();
    let mut redrun = Command::new(program("redrun"));
    let output = redrun.args(["-n", "1", "true"]).env("REDRT_CONFIG", &file).output().unwrap();
    accepted(&output);
    assert!(directory.path().join("log").is_dir(), "the audit log is where the site wants it");
}

/// Writes a log in which a host corrupts messages repeatedly.
fn write_log(directory: &Path) {
    let mut log = Log::open(&directory.join("job.jsonl")).expect("a new file");
    let hosts = ["node1", "node2", "node3"];
    log.record(JOB_START, &json!({
            "job": "feed000000000001", "hosts": hosts, "programs": ["./heat"], "ranks": 2, "degrees": [3, 3], "seed": "0",
        }));
    for (rank, index) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)] {
        log.record("started", &json!({ "replica": format!("{rank}.{index}"), "host": hosts[index], "pid": 9 }));
    }
    for sequence in 0..4 {
        let vote = |index: usize| json!({ "replica": format!("1.{index}"), "host": hosts[index], "core": 1, "digest": format!("{index:032x}") });
        log.record("mismatch", &json!({
            "receiver": "0.0", "receiver_host": "node1", "sender": 1, "supplier": "1.0", "supplier_host": "node1", "core": 1,
            "element": "f64", "communicator": "MPI_COMM_WORLD", "context": "0000000000001000", "tag": 7, "sequence": sequence,
            "length_bytes": 800, "payload": "00", "votes": [vote(0), vote(1), vote(2)], "finding": "replica-corrupt",
            "culprit": "1.1", "host": "node2", "action": "outvoted", "view": 1,
        }));
    }
    log.record(JOB_END, &json!({ "exit_code": 0 }));
    log.close();
}

/// A script of the kit in its installed form, with the programs of this build.
fn installed(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(Path::new(name).file_name().expect("it has a name"));
    let script = text(&admin(name)).replace("@PREFIX@/share/redrt/admin/", &format!("{}/", directory.display()));
    script_file::write(&path, &script);
    path
}

#[test]
fn a_host_that_corrupts_data_takes_no_job_and_is_drained() {
    let directory = tempfile::tempdir().unwrap();
    let (logs, empty) = (directory.path().join("logs"), directory.path().join("empty"));
    [&logs, &empty].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    write_log(&logs);
    let told = directory.path().join("told");
    let scontrol = directory.path().join("scontrol");
    script_file::write(&scontrol, &format!("#!/bin/sh\nprintf '%s|' \"$@\" >> {}\n", told.display()));
    installed(directory.path(), "redrt-host-check");
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let run = |name: &str, host: &str, logs: &Path| {
        let mut script = Command::new(installed(directory.path(), name));
        script.env("PATH", &path).env("SLURMD_NODENAME", host).env("REDRT_LOGS", logs);
        let output = script.env("REDREPORT", program("redreport")).output().unwrap();
        let drained = std::fs::read_to_string(&told).unwrap_or_default();
        let _ = std::fs::remove_file(&told);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), drained)
    };
    let nothing = |code| (Some(code), String::new(), String::new());
    for name in ["slurm/prolog.sh", "slurm/epilog.sh", "slurm/health.sh"] {
        assert_eq!(run(name, "node1", &logs), nothing(0), "{name}");
        assert_eq!(run(name, "node2", &empty), nothing(0), "{name}");
        assert_eq!(run(name, "node2", Path::new("/no/such")), nothing(0), "{name}");
    }
    let (code, said, drained) = run("slurm/prolog.sh", "node2", &logs);
    assert!(
        code == Some(1) && said.starts_with("redrt: node2: corrupts data") && drained.is_empty(),
        "{said} {drained}"
    );
    for name in ["slurm/epilog.sh", "slurm/health.sh"] {
        let (code, _, drained) = run(name, "node2", &logs);
        let begin = "update|nodename=node2|state=drain|reason=redrt: node2: corrupts data";
        assert!(code == Some(0) && drained.starts_with(begin), "{name}: {drained}");
    }
    // NHC sources its checks, and provides `die`.
    let nhc = installed(directory.path(), "nhc/redrt.nhc");
    let script = format!("die() {{ echo \"$2\"; }}; . {}; check_redrt", nhc.display());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("SLURMD_NODENAME", "node2").env("REDRT_LOGS", &logs);
    let output = bash.env("REDREPORT", program("redreport")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1) && said.starts_with("check_redrt: redrt: node2: corrupts"), "{said}");
}
