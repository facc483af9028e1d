//! Attacks by another user of a host, and from another host of the network, on every listening socket. docs/security.md
//! has the outcome that each must have.

use crate::nothing_left;
use crate::pool::{ChildGuard, program, redctl, wait};
use redrt_tests::lab::{address, lab};
use redrt_tests::{Job, Lab, Running, compile};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const ATTACK: &str = include_str!("attack.py");
/// The user `nobody`, without rights anywhere.
const NOBODY: &str = "65534";
/// More silent connections than the descriptors that a daemon may have by default.
const SILENT_COUNT: &str = "1100";

/// An attack that goes on until this value is dropped.
struct Attack<'a> {
    lab: &'a Lab,
    host: String,
    /// `nsenter`, the attacker's parent.
    process: Child,
}

impl<'a> Attack<'a> {
    fn by_nobody(lab: &'a Lab, host: &str, words: &[String]) -> Self {
        Self::start(lab, host, NOBODY, words)
    }

    /// An attack by root, who may listen on a link.
    fn by_root(lab: &'a Lab, host: &str, words: &[String]) -> Self {
        Self::start(lab, host, "0", words)
    }

    fn start(lab: &'a Lab, host: &str, uid: &str, words: &[String]) -> Self {
        let mut command = lab.on(host);
        let command = command.args(["python3", "-c", ATTACK, uid]).args(words);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("python3 can be run");
        let mut line = String::new();
        let said = process.stdout.take().expect("it has a pipe");
        BufReader::new(said).read_line(&mut line).expect("it says something");
        assert_eq!(line, "attacking\n", "{words:?} on {host}");
        Self { lab, host: host.to_owned(), process }
    }
}

impl Drop for Attack<'_> {
    fn drop(&mut self) {
        // The attackers themselves are killed: the end of `nsenter` would leave them running.
        for process in self.lab.processes(&self.host, "python3") {
            // SAFETY: - the call takes any number; the process is one of the lab's.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        let _ = self.process.wait();
    }
}

/// Ports on a host with a listening socket.
fn ports(lab: &Lab, host: &str) -> Vec<String> {
    let output = lab.on(host).args(["cat", "/proc/net/tcp"]).output().expect("it can be read");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let listening = text.lines().filter(|line| line.split_whitespace().nth(3) == Some("0A"));
    let port = |line: &str| u16::from_str_radix(line.split_whitespace().nth(1)?.split(':').nth(1)?, 16).ok();
    // The port of ssh is not redrt's to defend.
    listening.filter_map(port).filter(|port| *port != 22).map(|port| port.to_string()).collect()
}

fn words(kind: &[&str], ports: &[String]) -> Vec<String> {
    kind.iter().map(|word| (*word).to_owned()).chain(ports.iter().cloned()).collect()
}

/// Processor time of these programs on a host so far.
fn processor_time(lab: &Lab, host: &str, programs: &[&str]) -> Duration {
    let ticks = |process: i32| -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let fields: Vec<_> = stat.rsplit(')').next()?.split_whitespace().collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    let processes = programs.iter().flat_map(|program| lab.processes(host, program));
    Duration::from_millis(10 * processes.filter_map(ticks).sum::<u64>())
}

/// A job on h1 and h2 with a spare, h3. It computes until the file `stop` is there. h4 has no part in it.
fn start(lab: &Lab) -> Running {
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
    let job = job.on_hosts(lab, "h1:4,h2:4,h3:4").options(&["--spares", "1", "--map-by", "node", "--transport", "tcp"]);
    let job = job.limit(Duration::from_secs(180)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    job
}

/// During the attacks a replica is lost and replaced; the result is right, and nothing else is lost.
fn comes_through(lab: &Lab, job: Running, attacks: Vec<Attack<'_>>) {
    job.redctl(&["kill", "1.0"]).expect("it is there");
    job.wait_for("recovered", 1);
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    let ended = job.wait().ended_well();
    assert_eq!(ended.out.lines().filter(|line| line.ends_with(": right")).count(), 4, "{ended}");
    assert_eq!(ended.events("replica-lost").count(), 1, "{ended}");
    for event in ["daemon-lost", "retired", "strike"] {
        assert_eq!(ended.events(event).count(), 0, "{event}\n{ended}");
    }
    drop(attacks);
    nothing_left(lab, &ended);
}

/// The attackers are another user and another host, and the job's processor time stays small.
#[test]
#[ignore = "scripts/test.sh --all: attacks take their time"]
fn silent_and_slow_connections_keep_nobody_out() {
    const WATCHED: Duration = Duration::from_secs(8);
    let Some(lab) = lab(4) else { return };
    let job = start(&lab);
    let mut attacks = Vec::new();
    for host in ["h1", "h2"] {
        let (target, ports) = (address(host), ports(&lab, host));
        assert!(!ports.is_empty(), "something listens on {host}");
        attacks.push(Attack::by_nobody(&lab, host, &words(&["silent", &target, SILENT_COUNT], &ports)));
        attacks.push(Attack::by_nobody(&lab, "h4", &words(&["silent", &target, SILENT_COUNT], &ports)));
        attacks.push(Attack::by_nobody(&lab, "h4", &words(&["slow", &target], &ports)));
    }
    let spent = |host: &str| processor_time(&lab, host, &["redrun", "redrtd"]);
    let before = ["h1", "h2"].map(spent);
    let begin = Instant::now();
    // Processor time is measured, so a longer pause changes nothing.
    std::thread::sleep(WATCHED);
    for (host, before) in ["h1", "h2"].into_iter().zip(before) {
        let share = (spent(host) - before).as_secs_f64() / begin.elapsed().as_secs_f64();
        println!("{host}: {:.1} % of a core", share * 100.0);
        assert!(share < 0.5, "{host}: {share} of a core");
    }
    comes_through(&lab, job, attacks);
}

#[test]
fn floods_and_repeated_greetings_keep_nobody_out() {
    let Some(lab) = lab(4) else { return };
    let recording = lab.path("greetings").display().to_string();
    let recorder = Attack::by_root(&lab, "h2", &words(&["record", &recording], &[]));
    let job = start(&lab);
    let recorded = std::fs::metadata(&recording).expect("it was made").len();
    assert!(recorded > 100, "{recorded} bytes of greetings were recorded");
    drop(recorder);
    let mut attacks = Vec::new();
    for host in ["h1", "h2"] {
        let (target, ports) = (address(host), ports(&lab, host));
        for from in [host, "h4"] {
            attacks.push(Attack::by_nobody(&lab, from, &words(&["flood", &target], &ports)));
        }
        attacks.push(Attack::by_root(&lab, "h4", &words(&["replay", &target, &recording], &ports)));
    }
    comes_through(&lab, job, attacks);
}

#[test]
fn names_that_another_user_has_taken_cost_no_redundancy() {
    let Some(lab) = lab(4) else { return };
    let attacks: Vec<_> = ["h1", "h2", "h3"].map(|host| Attack::by_nobody(&lab, host, &words(&["squat"], &[]))).into();
    let job = start(&lab);
    comes_through(&lab, job, attacks);
}

/// Daemons without a job: `redspared` on h1, which lends hosts, and `redclone serve` on h2, which takes copies.
#[test]
#[ignore = "scripts/test.sh --all: attacks take their time"]
fn daemons_of_no_job_serve_while_they_are_attacked() {
    const PUSHES: u32 = 3;
    let Some(lab) = lab(4) else { return };
    let spawn = |command: &mut std::process::Command| {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        ChildGuard(command.spawn().expect("it can be run"))
    };
    let mut pool = lab.on("h1");
    pool.arg(program("redspared")).args(["--listen", "7480", "--state"]).arg(lab.path("pool"));
    let _pool = spawn(pool.args(["--launcher-exec", &lab.ssh()]));
    let (secret, admin) = (lab.path("pool.secret"), lab.path("pool.admin"));
    wait("the pool is there", || redctl(&lab, "h3", "h1", &secret, &["status"]).map(drop));

    let (key, place) = (lab.path("clone.secret"), lab.path("clone.address"));
    std::fs::write(&key, "5a".repeat(32)).expect("it can be written");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is there");
    let mut receiver = lab.on("h2");
    receiver.arg(program("redclone")).args(["serve", "--listen", "0.0.0.0:7777", "--secret-file"]).arg(&key);
    let _receiver = spawn(receiver.arg("--address-file").arg(&place));
    wait("the receiver is there", || std::fs::metadata(&place).map(drop).map_err(|error| error.to_string()));
    let mut source = lab.on("h3");
    // The parent of this test may have left it pipes, and a process with a pipe to another cannot be copied.
    source.args(["python3", "-c", "import os, sys; os.closerange(3, 1024); os.execv(sys.argv[1], sys.argv[1:])"]);
    source.arg(program("redclone")).args(["run", "--", "tail", "-f", "/dev/null"]).stderr(Stdio::piped());
    let mut source = source.stdin(Stdio::null()).spawn().expect("redclone can be run");
    let mut said = String::new();
    BufReader::new(source.stderr.take().expect("it has a pipe")).read_line(&mut said).expect("it says something");
    let _source = ChildGuard(source);
    let process = said.trim().strip_prefix("redclone: process ").unwrap_or_else(|| panic!("{said}"));

    let mut attacks = Vec::new();
    for host in ["h1", "h2"] {
        let (target, ports) = (address(host), ports(&lab, host));
        assert!(!ports.is_empty(), "something listens on {host}");
        for from in [host, "h4"] {
            attacks.push(Attack::by_nobody(&lab, from, &words(&["silent", &target, SILENT_COUNT], &ports)));
            attacks.push(Attack::by_nobody(&lab, from, &words(&["slow", &target], &ports)));
            attacks.push(Attack::by_nobody(&lab, from, &words(&["flood", &target], &ports)));
        }
    }
    for round in 1..=PUSHES {
        redctl(&lab, "h3", "h1", &admin, &["add", &format!("h{round}")]).expect("the pool answers");
        let mut push = lab.on("h3");
        push.arg(program("redclone")).args(["push", process, "h2:7777", "--secret-file"]).arg(&key);
        let output = push.stdin(Stdio::null()).output().expect("redclone can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let status = redctl(&lab, "h3", "h1", &secret, &["status", "--json"]).expect("the pool answers");
    assert_eq!(crate::pool::hosts_of(&status).len(), PUSHES as usize, "{status}");
    drop(attacks);
}
