//! Coordinators whose hosts are lost, and that come back on other hosts from nothing but their journals.

use crate::{HOSTS, nothing_left};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redrt_tests::lab::lab;
use redrt_tests::quorum::{OWN, coordinators_on, end_of, jobs_on, peers_on};
use redrt_tests::{Job, Lab, MARK, Random, Running, compile, compile_case, kill_marked, prefix};
use std::fs::DirBuilder;
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A coordinator's remains on other hosts: its journal and its command line.
pub struct Left {
    job: String,
    journal: Vec<u8>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

fn words(path: &str) -> Vec<String> {
    let bytes = std::fs::read(path).expect("the process is there");
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The state in /proc of a process.
fn state(process: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Stops the coordinator, so that it does nothing more, and takes its remains at that moment.
fn leave(lab: &Lab, host: &str) -> Left {
    let coordinator = *coordinators_on(lab, host).first().expect("it is there");
    kill(Pid::from_raw(coordinator), Signal::SIGSTOP).expect("it runs");
    wait_until("stop", || state(coordinator) == Some('T'));
    // Peers would bring the coordinator back.
    lab.names()
        .flat_map(|host| peers_on(lab, host))
        .for_each(|id| kill(Pid::from_raw(id), Signal::SIGKILL).expect("it runs"));
    let entries = std::fs::read_dir(jobs_on(lab, host)).expect("it is there").flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let job =
        names.find_map(|name| name.strip_suffix(".root").map(str::to_owned)).expect("the coordinator has a journal");
    let journal = jobs_on(lab, host).join(format!("{job}.root/journal"));
    let begun = words(&format!("/proc/{coordinator}/cmdline")).into_iter().skip(2);
    let environment = words(&format!("/proc/{coordinator}/environ"));
    let environment = environment.iter().filter_map(|word| word.split_once('='));
    Left {
        job,
        journal: std::fs::read(journal).expect("it can be read"),
        arguments: begun.filter(|word| !word.starts_with("--come-back=")).collect(),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    }
}

impl Left {
    /// Brings the coordinator back on this host.
    fn come_back(&self, lab: &Lab, host: &str) -> Child {
        let directory = jobs_on(lab, host).join(format!("{}.root", self.job));
        DirBuilder::new().recursive(true).mode(0o700).create(&directory).expect("a new directory");
        std::fs::write(directory.join("journal"), &self.journal).expect("a new file");
        let mut command = lab.on(host);
        command.arg(prefix().join("bin/redrun")).arg("--coordinator").arg(format!("--come-back={}", self.job));
        command.args(&self.arguments).env_clear().envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let coordinator = command.spawn().expect("redrun is there");
        let console_socket = jobs_on(lab, host).join(format!("{}.console", self.job));
        wait_until("root", || console_socket.exists());
        coordinator
    }

    /// Cuts the power of the coordinator's host and brings the coordinator back on `next`; its process is returned.
    pub fn lose(lab: &Lab, host: &str, next: &str) -> (Self, Child) {
        let left = leave(lab, host);
        lab.cut_power(host);
        let coordinator = left.come_back(lab, next);
        (left, coordinator)
    }

    fn attach(&self, lab: &Lab, host: &str) -> Command {
        let mut command = lab.on(host);
        command.arg(format!("{}={}", OWN.0, OWN.1)).arg(prefix().join("bin/redrun")).args(["--attach", &self.job]);
        command
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < LIMIT, "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until several hosts decide: a daemon that does not know several leaves with its coordinator. Then waits for
/// two rounds of the coordinator's work: the journal has a round's records by the end of the next.
pub fn settle(lab: &Lab, host: &str) {
    let coordinator_hosts = || {
        let status: serde_json::Value =
            serde_json::from_slice(&try_redctl(lab, host, &["status", "--json"]).stdout).ok()?;
        status["root"]["hosts"].as_array().map(Vec::len)
    };
    wait_until("several coordinators", || coordinator_hosts().is_some_and(|count| count > 1));
    (0..2).for_each(|_| redctl(lab, host, "status"));
}

fn redctl(lab: &Lab, host: &str, word: &str) {
    let output = try_redctl(lab, host, &[word]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn try_redctl(lab: &Lab, host: &str, words: &[&str]) -> Output {
    let mut command = lab.on(host);
    command.arg(format!("{}={}", OWN.0, OWN.1)).arg(prefix().join("bin/redctl")).args(words);
    command.output().expect("redctl is there")
}

pub fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

pub const RIGHT: [&str; 5] = ["computing", "rank 0: right", "rank 1: right", "rank 2: right", "rank 3: right"];

/// Exit code, output and errors of a console on this host.
pub fn see_end(left: &Left, lab: &Lab, host: &str) -> (Option<i32>, String, String) {
    end_of(left.attach(lab, host).stdin(Stdio::null()))
}

pub fn begin(lab: &Lab, options: &[&str]) -> (PathBuf, Running) {
    begin_in(OWN.1, lab, options)
}

/// Begins a job with its record in this directory.
pub fn begin_in(directory: &str, lab: &Lab, options: &[&str]) -> (PathBuf, Running) {
    let stop = lab.path("stop");
    let all = ["--detachable", "--coordinators", "3", "--transport", "tcp", "--fan-out", "2"];
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
    let job = job.on_hosts(lab, HOSTS).options(&all).options(options).environment(OWN.0, directory);
    let job = job.limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    (stop, job)
}

/// The job's standard output and standard error are files that the hosts share.
#[test]
fn a_coordinator_whose_hosts_are_lost_comes_back_on_a_third() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &["--spares", "1"]);
    settle(&lab, "h1");
    let lost = job.replicas().iter().filter(|replica| replica.ends_with(" on h1")).count();
    let (_, mut second) = Left::lose(&lab, "h1", "h2");
    job.wait_for("recovered", lost);
    let (left, mut third) = Left::lose(&lab, "h2", "h3");
    // Its parent on its host was stopped with it.
    second.kill().and_then(|()| second.wait().map(drop)).expect("it is our child");
    job.wait_until("loss of the second host", |job| job.count("daemon-lost") == 2);
    std::fs::write(&stop, "").expect("it can be written");
    let (code, shown, said) = see_end(&left, &lab, "h3");
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{said}");
    assert_eq!(third.wait().expect("it is our child").code(), Some(0));
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT, "{ended}");
    assert_eq!(ended.events("came-back").count(), 2, "{ended}");
    assert_eq!(ended.events("mismatch").count(), 0, "{ended}");
    nothing_left(&lab, &ended);
}

/// A job whose console has pipes. The next console, on another host, shows the rest of its output.
struct Piped {
    console: Child,
    output: ChildStdout,
    shown: Vec<u8>,
}

impl Piped {
    fn start(mut command: Command) -> Self {
        let mut console = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("redrun is there");
        let output = console.stdout.take().expect("it is piped");
        Self { console, output, shown: Vec::new() }
    }

    fn say(&mut self, line: &str) {
        let input = self.console.stdin.as_mut().expect("it is piped");
        input.write_all(format!("{line}\n").as_bytes()).expect("the job reads");
    }

    /// Reads output and checks that it is exactly this.
    fn see(&mut self, wanted: &str) {
        let mut bytes = vec![0; wanted.len()];
        self.output.read_exact(&mut bytes).expect("the job prints");
        assert_eq!(String::from_utf8_lossy(&bytes), wanted);
        self.shown.append(&mut bytes);
    }
}

fn answer(number: u32, line: &str) -> String {
    let rows = (0..200).map(|row| format!("line {number}, row {row}\n"));
    format!("got {line}\n{}", rows.collect::<String>())
}

/// The console also takes the job's input from then on.
#[test]
fn a_console_on_another_host_shows_the_rest_of_the_output() {
    let Some(lab) = lab(3) else { return };
    let mark = format!("elsewhere-{}", std::process::id());
    let redrun = prefix().join("bin/redrun").display().to_string();
    let program = compile_case("echoing").display().to_string();
    let mut command = lab.on("h1");
    command.args([&format!("{}={}", OWN.0, OWN.1), &format!("{MARK}={mark}"), &redrun]);
    // With so small a journal, snapshots replace it now and then.
    command.args(["--detachable", "--coordinators", "3", "--coordinator-journal", "4KiB", "-q", "--hosts", "h1,h2,h3"]);
    command.args(["--launcher-exec", &lab.ssh()]);
    let mut job = Piped::start({
        command.args(["-r", "2", "-n", "3", &program]);
        command
    });
    job.say("one");
    job.see(&answer(0, "one"));
    settle(&lab, "h1");
    let (left, mut coordinator) = Left::lose(&lab, "h1", "h2");
    job.console.wait().expect("it is our child");
    let mut job = Piped::start(left.attach(&lab, "h2"));
    job.say("two");
    job.see(&answer(1, "two"));
    // All output was acknowledged to this coordinator, so the next coordinator on its host knows how much was shown.
    kill(Pid::from_raw(*coordinators_on(&lab, "h2").first().expect("it is there")), Signal::SIGKILL).expect("it runs");
    coordinator.wait().expect("it is our child");
    // The console stays attached across the coordinator's return, as on the first host.
    job.say("end");
    job.see(&answer(2, "end"));
    assert_eq!(job.console.wait().expect("it is our child").code(), Some(7));
    let mut rest = Vec::new();
    job.output.read_to_end(&mut rest).expect("it is a pipe");
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    let left = lab.left_behind(Duration::from_secs(3));
    kill_marked(&mark);
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// At r = 1: ranks lost with the coordinator's host are loaded on the remaining hosts.
#[test]
fn a_job_that_loses_a_rank_with_its_coordinator_goes_back() {
    let Some(lab) = lab(3) else { return };
    let (stop, store) = (lab.path("stop"), lab.path("store").display().to_string());
    let job = Job::new(3, &compile("until")).arguments(&[&stop.display().to_string()]);
    let job = job.on_hosts(&lab, "h1,h2,h3").environment(OWN.0, OWN.1).limit(Duration::from_secs(120));
    let job = job
        .options(&["--detachable", "--coordinators", "3", "--checkpoint", "0.5s", "--checkpoint-dir", &store])
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    job.wait_for("checkpoint", 1);
    settle(&lab, "h1");
    let (_, mut second) = Left::lose(&lab, "h1", "h2");
    job.wait_for("went-back", 1);
    job.wait_for("checkpoint", job.count("checkpoint") + 1);
    let (left, mut third) = Left::lose(&lab, "h2", "h3");
    second.kill().and_then(|()| second.wait().map(drop)).expect("it is our child");
    job.wait_for("went-back", 2);
    std::fs::write(&stop, "").expect("it can be written");
    let (code, shown, said) = see_end(&left, &lab, "h3");
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{said}");
    assert_eq!(third.wait().expect("it is our child").code(), Some(0));
    let ended = job.wait();
    assert_eq!(lines(&ended.out), RIGHT[..4], "{ended}");
    nothing_left(&lab, &ended);
}

/// The lost host alone had a file that names hosts, and the job's output. Its checkpoints are known on all hosts.
#[test]
fn files_on_the_lost_host_alone_do_not_hinder_a_failover() {
    let Some(lab) = lab(3) else { return };
    let mark = format!("alone-{}", std::process::id());
    let stop = lab.path("stop").display().to_string();
    let on_h1 = |name: &str| Path::new("/proc").join(lab.init("h1").to_string()).join("root/run").join(name);
    std::fs::create_dir(on_h1("audit")).expect("a new directory");
    std::fs::write(on_h1("hostfile"), "h1\nh2\nh3\n").expect("a new file");
    let redrun = prefix().join("bin/redrun").display().to_string();
    let words = ["--detachable", "--coordinators", "3", "--coordinator-journal", "4KiB", "--launcher-exec", &lab.ssh()]
        .join(" ");
    let checkpoints = "--checkpoint asked --checkpoint-dir /run/checkpoints --checkpoint-level partner";
    let hosts = "--hostfile /run/hostfile --audit /run/audit/log --profile /run/profile/ --metrics 127.0.0.1:0";
    let program = compile("until").display().to_string();
    let line = format!("{redrun} {words} {hosts} {checkpoints} -r 2 -n 4 {program} {stop} > /run/output");
    let mut command = lab.on_in("h1", &lab.path(""));
    command.args([&format!("{}={}", OWN.0, OWN.1), &format!("{MARK}={mark}")]).args(["sh", "-c", &line]);
    let mut console = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("redrun is there");
    let shown = || std::fs::read_to_string(on_h1("output")).unwrap_or_default();
    wait_until("output", || shown() == "computing\n");
    redctl(&lab, "h1", "checkpoint");
    settle(&lab, "h1");
    let (left, mut coordinator) = Left::lose(&lab, "h1", "h2");
    console.wait().expect("it is our child");
    // The checkpoint has room here, once the loss of the first host is detected.
    wait_until("checkpoint", || try_redctl(&lab, "h2", &["checkpoint"]).status.success());
    std::fs::write(&stop, "").expect("it can be written");
    let (code, shown, said) = see_end(&left, &lab, "h2");
    assert_eq!((code, lines(&shown)), (Some(0), RIGHT[1..].to_vec()), "{said}");
    let lost = ["standard output does not go on where it was", "there is no audit log"];
    for part in lost.into_iter().chain(["the coordinator of this job goes on on host h2"]) {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert!(!said.contains("--resume finds none"), "{said}");
    assert_eq!(coordinator.wait().expect("it is our child").code(), Some(0));
    let left = lab.left_behind(Duration::from_secs(3));
    kill_marked(&mark);
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// The second host is lost before the loss of the first is detected.
#[test]
fn the_next_host_of_the_coordinator_may_be_lost_at_once() {
    let Some(lab) = lab(4) else { return };
    let stop = lab.path("stop");
    let job = Job::new(3, &compile("until")).arguments(&[&stop.display().to_string()]).degree(3);
    let job = job.on_hosts(&lab, HOSTS).environment(OWN.0, OWN.1).limit(Duration::from_secs(120));
    let ranks = lab.path("ranks");
    let job =
        job.options(&["--detachable", "--coordinators", "5", "--output-dir", &ranks.display().to_string()]).start();
    let of = |rank: u32| std::fs::read_to_string(ranks.join(format!("rank.{rank}.out"))).unwrap_or_default();
    job.wait_until("computing", |_| of(1) == "computing\n");
    settle(&lab, "h1");
    let (_, mut second) = Left::lose(&lab, "h1", "h2");
    let (left, mut third) = Left::lose(&lab, "h2", "h3");
    second.kill().and_then(|()| second.wait().map(drop)).expect("it is our child");
    std::fs::write(&stop, "").expect("it can be written");
    let (code, shown, said) = see_end(&left, &lab, "h3");
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{said}");
    assert_eq!(third.wait().expect("it is our child").code(), Some(0));
    let ended = job.wait();
    assert_eq!([of(0), of(1), of(2)].concat().lines().collect::<Vec<_>>(), [RIGHT[1], RIGHT[0], RIGHT[2], RIGHT[3]]);
    nothing_left(&lab, &ended);
}

/// The output is complete, without a line twice.
#[test]
fn output_to_a_shared_file_survives_lost_coordinator_hosts() {
    const LINES: u64 = 100_000;
    let Some(lab) = lab(4) else { return };
    let mut random = Random::from_environment();
    let place = lab.path("printing");
    std::fs::create_dir(&place).expect("a new directory");
    let expected: String = (0..LINES).map(|line| format!("this is line {line} of what rank 1 has to say\n")).collect();
    let out = lab.path("out");
    let job = Job::new(2, &compile_case("printing")).arguments(&[&place.display().to_string(), &LINES.to_string()]);
    let job =
        job.degree(3).on_hosts(&lab, HOSTS).environment(OWN.0, OWN.1).options(&["--detachable", "--coordinators", "5"]);
    let job = job.standard_output(&out).limit(Duration::from_secs(120)).start();
    settle(&lab, "h1");
    std::fs::write(place.join("go"), "").expect("a new file");
    let shown_bytes = || std::fs::metadata(&out).map_or(0, |metadata| metadata.len());
    let mut lose = |host, next| {
        // All output may have been shown: then the job has ended, and the next coordinator knows it.
        let seen = shown_bytes();
        let wanted = seen + random.draw() % ((expected.len() as u64 - seen) / 2 + 1);
        wait_until("output", || shown_bytes() >= wanted);
        Left::lose(&lab, host, next)
    };
    let (_, mut second) = lose("h1", "h2");
    let (left, mut third) = lose("h2", "h3");
    second.kill().and_then(|()| second.wait().map(drop)).expect("it is our child");
    let (code, shown, said) = see_end(&left, &lab, "h3");
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{said}");
    assert_eq!(third.wait().expect("it is our child").code(), Some(0));
    let ended = job.wait();
    let printed = std::fs::read_to_string(&out).expect("it is there");
    assert!(printed == expected, "{} bytes instead of {}\n{ended}", printed.len(), expected.len());
    nothing_left(&lab, &ended);
}

/// The stopped coordinator's daemons follow the next root, whose term is higher, and reject the stopped one. The
/// console of the stopped coordinator ends, and the job goes on.
#[test]
fn a_coordinator_that_was_only_stopped_does_no_harm() {
    let Some(lab) = lab(4) else { return };
    let (stop, job) = begin(&lab, &[]);
    settle(&lab, "h1");
    let stopped = *coordinators_on(&lab, "h1").first().expect("it is there");
    let left = leave(&lab, "h1");
    let mut second = left.come_back(&lab, "h2");
    kill(Pid::from_raw(stopped), Signal::SIGCONT).expect("it is there");
    job.wait_until("end of its console", Running::has_ended);
    std::fs::write(&stop, "").expect("it can be written");
    let (code, shown, said) = see_end(&left, &lab, "h2");
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{said}");
    assert_eq!(second.wait().expect("it is our child").code(), Some(0));
    let ended = job.wait();
    assert_eq!((lines(&ended.out), ended.code), (RIGHT.to_vec(), Some(76)), "{ended}");
    assert!(!ended.err.contains(" lost "), "{ended}");
    nothing_left(&lab, &ended);
}

/// Without other coordinators they would end within the detection timeout.
#[test]
fn processes_wait_their_lease_for_a_lost_coordinator_and_end() {
    let Some(lab) = lab(3) else { return };
    let (stop, lease, silence) = (lab.path("stop"), Duration::from_secs(6), Duration::from_millis(500));
    let options = ["--detachable", "--coordinators", "3", "--coordinator-lease", "6s", "--detect-timeout", "0.5"];
    let job = Job::new(3, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
    let job = job.on_hosts(&lab, "h1,h2,h3").environment(OWN.0, OWN.1).options(&options).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    settle(&lab, "h1");
    let ranks = |host| lab.processes(host, "until");
    let before = [ranks("h2"), ranks("h3")];
    // They heard the coordinator last when it stopped, or a heartbeat earlier: half of the lease is a safe lower bound.
    let (since, shortest) = (Instant::now(), lease / 2);
    leave(&lab, "h1");
    lab.cut_power("h1");
    std::thread::sleep((silence * 5).saturating_sub(since.elapsed()));
    let after = [ranks("h2"), ranks("h3")];
    let is_early = since.elapsed() < shortest;
    assert!(!is_early || after == before, "{before:?} have ended early: {after:?}\n{}", job.errors());
    let left = lab.left_behind(LIMIT);
    assert!(left.is_empty(), "left behind: {left:?}");
    assert!(since.elapsed() >= shortest, "they have ended after {:?}\n{}", since.elapsed(), job.errors());
    drop(job.wait());
}
