//! Whole jobs of small programs and of the stand-in agent (`examples/agent.rs`): redrun, redrtd and real processes.

use super::program;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn agent() -> String {
    let test = std::env::current_exe().expect("a test knows its own file");
    let agent: PathBuf = test.parent().unwrap().with_file_name("examples").join("agent");
    assert!(agent.exists(), "{} was not built", agent.display());
    agent.to_str().unwrap().to_owned()
}

struct Ended {
    code: i32,
    out: String,
    err: String,
    took: Duration,
}

fn redrun(arguments: &[&str]) -> Ended {
    redrun_with_input(arguments, b"")
}

fn redrun_with_input(arguments: &[&str], input: &[u8]) -> Ended {
    let begin = Instant::now();
    let mut child = start(arguments, Stdio::piped());
    let mut standard_input = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The job may end before it has read all input.
    let writer = std::thread::spawn(move || drop(standard_input.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    ended(&output, begin)
}

fn start(arguments: &[&str], input: Stdio) -> Child {
    let mut command = Command::new(program("redrun"));
    command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn ended(output: &Output, begin: Instant) -> Ended {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().unwrap_or_else(|| panic!("redrun died of {:?}", output.status.signal()));
    Ended { code, out: text(&output.stdout), err: text(&output.stderr), took: begin.elapsed() }
}

/// Runs the stand-in agent through these steps.
fn agents(options: &[&str], steps: &[&str]) -> Ended {
    let agent = agent();
    redrun(&[options, &[agent.as_str()], steps].concat())
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Number of processes whose command line holds `mark`.
fn processes_with(mark: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(mark)).count()
}

fn wait_until(what: &str, limit: Duration, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < limit, "{what} took longer than {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn programs_without_mpi_run_and_print_once() {
    let job = redrun(&["-n", "3", "sh", "-c", "echo rank $PMI_RANK of $REDRT_SIZE"]);
    assert_eq!((job.code, sorted_lines(&job.out)), (0, vec!["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]));
    assert_eq!(job.err, "");
    let job = redrun(&["-r", "2", "-n", "2", "-l", "sh", "-c", "echo rank $PMI_RANK"]);
    assert_eq!((job.code, sorted_lines(&job.out)), (0, vec!["[0] rank 0", "[1] rank 1"]));
    assert!(job.err.contains("2 ranks x 2 replicas"), "{}", job.err);
}

#[test]
fn replicas_of_a_rank_have_the_same_environment() {
    let job = redrun(&["-r", "3", "-n", "2", "sh", "-c", "env | sort; ls /proc/self/fd | grep 20"]);
    assert_eq!(job.code, 0);
    assert!(!job.err.contains("differs"), "{}", job.err);
    assert_eq!(job.out.matches("REDRT_CONTROL_FD=200").count(), 2);
}

#[test]
fn exit_codes_are_the_lowest_ranks() {
    assert_eq!(redrun(&["-n", "2", "sh", "-c", "exit $PMI_RANK"]).code, 1);
    assert_eq!(redrun(&["-n", "3", "sh", "-c", "exit $((PMI_RANK + 4))"]).code, 4);
    assert_eq!(redrun(&["-r", "2", "-n", "2", "sh", "-c", "exit 3"]).code, 3);
    let job = redrun(&["-n", "1", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(job.code, 139);
    assert!(job.err.contains("rank 0") && job.err.contains("SIGSEGV"), "{}", job.err);
}

#[test]
fn wrong_usage_is_one_line_and_code_2() {
    for arguments in [
        &["-n", "0", "true"][..],
        &["-rmk", "x", "true"],
        &["-n", "-1", "true"],
        &["-n", "1", "true", ":"],
        &["no-such-program"],
        &["-r", "0", "true"],
        &["--inject", "x", "true"],
        &[],
    ] {
        let job = redrun(arguments);
        assert_eq!((job.code, job.err.lines().count(), job.out.as_str()), (2, 1, ""), "{arguments:?}: {}", job.err);
    }
}

/// Messages of a replicated job without MPI, without the warning that no message was compared, which comes last.
#[track_caller]
fn without_warning(said: &str) -> String {
    const WARNING: &str = "redrun: warning: no message was compared: no process of this program called MPI_Init.";
    let (before, warning) = said.split_at(said.find(WARNING).unwrap_or_else(|| panic!("not told: {said}")));
    assert_eq!(warning.lines().count(), 1, "{said}");
    without_preload(before)
}

/// Messages without the line that the preload library is missing. cargo builds it beside `redrun` only on request, and
/// these programs need nothing of it.
fn without_preload(said: &str) -> String {
    const MISSING: &str = "redrun: warning: libredrt_preload.so was not found: clocks, random numbers and process ids \
                           differ between replicas\n";
    said.replace(MISSING, "")
}

#[test]
fn input_of_any_size_reaches_every_replica_of_rank_0() {
    let input: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let script = "if [ $PMI_RANK = 0 ]; then sleep 0.2; wc -c; else wc -c >&2; fi";
    let job = redrun_with_input(&["-r", "2", "-n", "2", "-q", "sh", "-c", script], &input);
    assert_eq!((job.code, job.out.trim()), (0, "12000000"));
    assert_eq!(sorted_lines(&without_warning(&job.err)), ["[1.0] 0", "[1.1] 0"]);
}

#[test]
fn a_program_that_does_not_read_its_input_still_ends() {
    let job = redrun_with_input(&["-n", "1", "true"], &vec![b'x'; 4 << 20]);
    assert_eq!(job.code, 0);
}

#[test]
fn output_is_whole_however_much_and_lines_do_not_mix() {
    let job = redrun(&["-r", "2", "-n", "3", "-q", "seq", "100000"]);
    assert_eq!(job.code, 0);
    let mut lines: Vec<u32> = job.out.lines().map(|line| line.parse().unwrap()).collect();
    lines.sort_unstable();
    assert_eq!(lines, (1..=100_000).flat_map(|line| [line; 3]).collect::<Vec<u32>>());
    assert!(redrun(&["-n", "2", "printf", "no end"]).out.len() == 12);
}

#[test]
fn output_goes_to_files_by_rank() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("new/out");
    let script = "echo out $PMI_RANK; echo err $PMI_RANK >&2";
    let arguments = ["-r", "2", "-n", "2", "-q", "--output-dir", place.to_str().unwrap(), "sh", "-c", script];
    let job = redrun(&arguments);
    assert_eq!((job.code, job.out.as_str(), without_warning(&job.err).as_str()), (0, "", ""));
    let text = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
    assert_eq!(
        (text("rank.1.out"), text("rank.1.0.err"), text("rank.1.1.err")),
        ("out 1\n".into(), "err 1\n".into(), "err 1\n".into())
    );
    let job = redrun(&["--output-dir", "/proc/no", "true"]);
    assert!(job.code == 1 && job.err.contains("--output-dir /proc/no"), "{}", job.err);
}

#[test]
fn redctl_shows_kills_and_stops() {
    let redctl = |arguments: &[&str]| {
        let output = Command::new(program("redctl")).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let log = tempfile::tempdir().unwrap();
    let path = log.path().join("audit");
    let mut command = Command::new(program("redrun"));
    let agent = agent();
    command.args(["-r", "2", "-n", "2", "--audit", path.to_str().unwrap(), &agent, "hello", "ready", "cards", "hang"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begin = Instant::now();
    let audit = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("the launch", Duration::from_secs(10), || audit().matches("\"started\"").count() == 4);
    let start: serde_json::Value = serde_json::from_str(audit().lines().next().unwrap()).unwrap();
    let id = start["job"].as_str().unwrap();
    assert!(redctl(&["list"]).1.contains(id));
    let status =
        || -> serde_json::Value { serde_json::from_str(&redctl(&["--job", id, "status", "--json"]).1).unwrap() };
    wait_until("MPI_Init", Duration::from_secs(10), || status()["state"] == "running");
    assert_eq!((status()["ranks"].as_array().unwrap().len(), status()["view"].as_u64()), (2, Some(0)));
    assert!(redctl(&["--job", id, "status"]).1.contains("1.1 on"));
    assert!(redctl(&["--job", id, "kill", "7.0"]).2.contains("no live replica 7.0"));
    assert!(redctl(&["--job", id, "kill", "1.1"]).0);
    wait_until("the loss", Duration::from_secs(10), || status()["view"] == 1);
    assert_eq!(status()["ranks"][1]["replicas"][1]["state"], "lost");
    let listed: serde_json::Value = serde_json::from_str(&redctl(&["list", "--json"]).1).unwrap();
    let own = listed.as_array().unwrap().iter().find(|job| job["job"] == id).unwrap();
    assert_eq!((&own["program"], &own["ranks"], &own["replicas"]), (&agent.as_str().into(), &2.into(), &3.into()));
    assert_eq!(own["health"], "1 of 2 ranks short of replicas");
    let mut watching = Command::new(program("redctl"));
    watching.args(["--job", id, "status", "--watch=1"]).stdout(Stdio::piped());
    let mut watching = watching.spawn().unwrap();
    let mut shown = BufReader::new(watching.stdout.take().unwrap());
    let mut line = String::new();
    shown.read_line(&mut line).unwrap();
    assert!(line.starts_with(&format!("job {id}: running")), "{line}");
    assert!(redctl(&["--job", id, "stop"]).0);
    let mut rest = String::new();
    shown.read_to_string(&mut rest).unwrap();
    assert!(watching.wait().unwrap().success() && rest.ends_with(&format!("job {id} has ended\n")), "{rest}");
    let job = ended(&child.wait_with_output().unwrap(), begin);
    assert!(job.code == 130 && job.err.contains("lost replica 1.1"), "{}", job.err);
    assert!(!redctl(&["--job", id, "status"]).0);
    assert!(redctl(&["--job", "none", "status"]).2.contains("no job none"));
}

#[test]
fn a_replica_that_prints_something_else_is_named() {
    // The process id is the same in all replicas where the preload library was built; the number in the link is not.
    let script = "sleep 0.1; echo same; readlink /proc/self; echo same";
    let job = redrun(&["-r", "2", "-n", "1", "sh", "-c", script]);
    assert_eq!((job.code, job.out.lines().count()), (0, 3));
    assert!(job.err.contains("line 2 of the standard output of rank 0, byte "), "{}", job.err);
    assert!(job.err.contains("replicas differ and there is no majority: \""), "{}", job.err);
    let quiet = redrun(&["-r", "2", "--stdout", "leader", "-n", "1", "sh", "-c", script]);
    assert!(quiet.code == 0 && quiet.out.lines().count() == 3 && !quiet.err.contains("corruption"), "{}", quiet.err);
    assert!(redrun(&["-r", "2", "--on-sdc", "abort", "-n", "1", "sh", "-c", script]).code == 1);
}

#[test]
fn the_protocol_runs_from_hello_to_release() {
    let job = agents(&["-r", "2", "-n", "3"], &["hello", "ready", "cards", "show", "finalize", "say=bye"]);
    assert_eq!(job.code, 0);
    assert_eq!(sorted_lines(&job.out), [vec!["bye"; 3], vec!["cards 6, view 0"; 3]].concat());
    assert!(job.err.contains("6 messages compared"), "{}", job.err);
}

#[test]
fn cards_hold_real_process_ids() {
    let job = agents(&["-r", "2", "-n", "2"], &["hello", "ready", "cards", "pids", "finalize"]);
    assert_eq!((job.code, job.out.matches("true").count()), (0, 2), "{}", job.out);
}

#[test]
fn a_killed_replica_makes_a_view_and_a_warning() {
    let steps = ["hello", "ready", "cards", "1.0:kill", "view=1", "finalize", "show"];
    let job = agents(&["-r", "2", "-n", "2"], &steps);
    assert_eq!((job.code, sorted_lines(&job.out)), (0, vec!["cards 4, view 1"; 2]));
    assert!(job.err.contains("lost replica 1.0") && job.err.contains("SIGKILL"), "{}", job.err);
    // Also before any process has the cards, and while others wait in MPI_Finalize.
    let job = agents(&["-r", "2", "-n", "2"], &["hello", "0.1:kill", "ready", "cards", "show", "finalize"]);
    assert_eq!((job.code, sorted_lines(&job.out)), (0, vec!["cards 3, view 1"; 2]));
    let job = agents(&["-r", "2", "-n", "2"], &["hello", "ready", "0.1:sleep=200", "0.1:kill", "finalize", "show"]);
    assert_eq!((job.code, sorted_lines(&job.out)), (0, vec!["cards 4, view 1"; 2]));
}

#[test]
fn a_lost_rank_ends_the_job_within_a_second() {
    let job = agents(&["-r", "2", "-n", "2"], &["hello", "ready", "cards", "1:exit=3", "hang"]);
    assert_eq!(job.code, 3);
    assert!(job.err.contains("rank 1 is lost") && job.took < Duration::from_secs(2), "{:?} {}", job.took, job.err);
    let job = agents(&["-n", "2"], &["hello", "ready", "cards", "1:exit=0", "hang"]);
    assert_eq!(job.code, 1);
    assert!(job.err.contains("before MPI_Finalize"), "{}", job.err);
}

#[test]
fn abort_ends_the_job_with_its_code() {
    let job = agents(&["-r", "2", "-n", "2"], &["hello", "ready", "cards", "0:say=last words", "0:abort=42", "hang"]);
    assert_eq!((job.code, job.out.as_str()), (42, "last words\n"));
    assert!(job.err.contains("MPI_Abort with code 42"), "{}", job.err);
}

#[test]
fn replicas_cut_short_by_the_end_of_the_job_do_not_differ() {
    let script = "if [ $PMI_RANK = 0 ]; then sleep 0.3; exit 5; fi; while :; do echo some line; done";
    let job = redrun(&["-r", "3", "-n", "2", "sh", "-c", script]);
    assert_eq!(job.code, 5);
    assert!(job.out.lines().all(|line| line == "some line") && !job.out.is_empty());
    assert!(!job.err.contains("differs"), "{}", job.err);
}

#[test]
fn an_agent_that_talks_rubbish_is_killed() {
    let job = agents(&["-r", "2", "-n", "1"], &["hello", "ready", "0.0:rubbish", "0.0:hang", "view=1", "finalize"]);
    assert_eq!(job.code, 0);
    assert!(job.err.contains("control message") && job.err.contains("lost replica 0.0"), "{}", job.err);
}

#[test]
fn a_rank_that_skips_init_does_not_hang_the_others() {
    let script = format!("[ $PMI_RANK = 1 ] || exec {} hello ready cards finalize", agent());
    let job = redrun(&["-n", "2", "sh", "-c", &script]);
    assert_eq!(job.code, 1);
    assert!(job.err.contains("without calling MPI_Init"), "{}", job.err);
}

#[test]
fn timed_and_random_kills_happen() {
    let job = agents(&["-r", "2", "-n", "2", "--inject", "kill:1.1@0.2s"], &["hello", "ready", "view=1", "finalize"]);
    assert_eq!(job.code, 0);
    assert!(job.err.contains("injected kill:1.1@0.2s") && job.took > Duration::from_millis(200), "{}", job.err);
    let options = ["-r", "3", "-n", "2", "--inject", "random:mtbf=0.05s,seed=3"];
    let job = agents(&options, &["hello", "ready", "view=4", "finalize"]);
    assert_eq!(job.code, 0, "{}", job.err);
}

#[test]
fn timeout_ends_the_job_with_124() {
    let job = redrun(&["--timeout", "0.3", "-n", "2", "sleep", "50"]);
    assert_eq!(job.code, 124);
    assert!(job.took < Duration::from_secs(3) && job.err.contains("exceeded"), "{}", job.err);
}

#[test]
fn the_first_signal_is_gentle_and_the_second_is_not() {
    let script = "trap 'echo caught; exit 0' TERM; echo ready; sleep 50 & wait";
    let signal = |child: &Child, name: &str| {
        assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
    };
    let begin = Instant::now();
    let mut child = start(&["-n", "1", "sh", "-c", script], Stdio::null());
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    signal(&child, "-INT");
    let job = ended(&child.wait_with_output().unwrap(), begin);
    assert_eq!((job.code, job.out.as_str()), (130, "caught\n"));

    let stubborn = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let mut child = start(&["-n", "1", "sh", "-c", stubborn], Stdio::null());
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    signal(&child, "-TERM");
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, "-TERM");
    let job = ended(&child.wait_with_output().unwrap(), begin);
    assert_eq!(job.code, 143);
    assert!(job.took < Duration::from_secs(4));
}

#[test]
fn nothing_is_left_when_redrun_or_redrtd_is_killed() {
    for victim in ["redrun", "redrtd"] {
        // A duration that no other process sleeps for, by which these are found.
        let mark = format!("86{}{}", std::process::id(), victim.len());
        let script = format!("setsid sleep {mark}.5 & sleep {mark}.5");
        let mut child = start(&["-r", "2", "-n", "2", "sh", "-c", &script], Stdio::null());
        let sleeping = format!("sleep\0{mark}.5");
        wait_until("the launch", Duration::from_secs(10), || processes_with(&sleeping) == 8);
        let daemons = Command::new("pgrep").args(["-P", &child.id().to_string(), "redrtd"]).output().unwrap();
        let daemon = String::from_utf8(daemons.stdout).unwrap().trim().to_owned();
        let pid = if victim == "redrun" { child.id().to_string() } else { daemon };
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        wait_until("the sweep", Duration::from_secs(2), || processes_with(&sleeping) == 0);
        assert!(!child.wait().unwrap().success());
    }
}

#[test]
fn a_stranger_is_refused_and_the_job_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    // Runs until its input ends.
    let arguments = ["--audit", log.to_str().unwrap(), "-n", "1", "cat"];
    let mut child = start(&arguments, Stdio::piped());
    let begin = Instant::now();
    let daemon_arguments = || {
        let daemons = Command::new("pgrep").args(["-P", &child.id().to_string(), "-a", "redrtd"]).output().unwrap();
        String::from_utf8(daemons.stdout).unwrap()
    };
    wait_until("the daemon", Duration::from_secs(60), || daemon_arguments().contains("--connect"));
    let line = daemon_arguments();
    let mut stranger = std::net::TcpStream::connect(line.split_whitespace().last().unwrap()).unwrap();
    stranger.write_all(&[0; 56]).unwrap();
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    assert!(answer.is_empty(), "a stranger was answered");
    drop(child.stdin.take());
    let job = ended(&child.wait_with_output().unwrap(), begin);
    assert_eq!(job.code, 0);
    assert!(job.err.contains("refused a connection"), "{}", job.err);
    assert!(std::fs::read_to_string(log).unwrap().contains("connection-refused"));
}

#[test]
fn audit_log_and_json_summary_tell_what_happened() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (log, summary) = (path("log"), path("summary"));
    let options = ["-r", "2", "-n", "2", "--audit", &log, "--json-summary", &summary];
    assert_eq!(agents(&options, &["hello", "ready", "cards", "0:event", "1.1:kill", "view=1", "finalize"]).code, 0);
    let text = std::fs::read_to_string(log).unwrap();
    let records: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |event: &str| records.iter().filter(|record| record["event"] == event).count();
    assert_eq!((records[0]["event"].as_str(), count("started"), count("exit")), (Some("job-start"), 4, 3), "{text}");
    assert_eq!((count("divergence"), count("replica-lost"), count("job-end")), (2, 1, 1), "{text}");
    let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(summary).unwrap()).unwrap();
    assert_eq!((&summary["exit_code"], &summary["lost"]), (&0.into(), &serde_json::json!(["1.1"])));
}

#[test]
fn directories_for_logs_and_profiles_are_made() {
    let directory = tempfile::tempdir().unwrap();
    let [logs, profiles] = ["new/logs/", "profiles/"].map(|name| directory.path().join(name));
    let named = |option: &str, path: &Path| [option.to_owned(), path.to_str().unwrap().to_owned()];
    let (audit, profile) = (named("--audit", &logs), named("--profile", &profiles));
    let options = [&audit[..], &profile[..]].concat();
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    assert_eq!(redrun(&[&options[..], &["-n", "1", "true"]].concat()).code, 0);
    let names = |path| -> Vec<_> { std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect() };
    let ends = |path, end| matches!(&names(path)[..], [name] if name.to_str().unwrap().ends_with(end));
    assert!(ends(&logs, ".jsonl") && ends(&profiles, ".profile.json"));
    let job = redrun(&["--audit", "/proc/no/", "-n", "1", "true"]);
    assert!(job.code == 2 && job.err.contains("--audit /proc/no/"), "{}", job.err);
}

#[test]
fn several_programs_make_one_job() {
    let job = redrun(&["-n", "1", "echo", "one", ":", "-n", "2", "-env", "X", "two", "sh", "-c", "echo $X $PMI_SIZE"]);
    assert_eq!((job.code, sorted_lines(&job.out)), (0, vec!["one", "two 3", "two 3"]));
}

#[test]
fn many_processes_start_fast() {
    let job = agents(&["-n", "256", "-q"], &["hello", "ready", "cards", "finalize"]);
    assert_eq!(job.code, 0, "{}", job.err);
    assert!(job.took < Duration::from_secs(10), "{:?}", job.took);
}
