//! Connections between hosts: reset from outside, and read on the way.

use crate::{HOSTS, nothing_left};
use redrt_tests::lab::{address, lab};
use redrt_tests::{Job, Lab, Running, compile, compile_source};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Resets all connections between two hosts, as a device on the way might. `false` where the kernel cannot.
fn reset(lab: &Lab, host: &str, other: &str) -> bool {
    let mut command = lab.on(host);
    let output = command.args(["ss", "--kill", "--no-header", "dst", &address(other)]).output().expect("ss can be run");
    output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("not supported")
}

#[test]
fn connections_that_are_reset_from_outside_cost_nobody() {
    let Some(lab) = lab(4) else { return };
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
    let job = job.on_hosts(&lab, HOSTS).options(&["--transport", "tcp"]).limit(Duration::from_secs(120)).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    // Connections between daemons break too. They break one at a time: a host that loses several at once, and again
    // while it opens them, is taken for dead.
    for (host, other) in [("h2", "h1"), ("h3", "h4"), ("h4", "h1")] {
        let count = |job: &Running| job.audit().iter().filter(|record| record["event"] == "reconnected").count();
        let before = count(&job);
        if !reset(&lab, host, other) {
            eprintln!("skipped: this kernel does not let ss close connections");
            return;
        }
        job.wait_until("reconnection", |job| count(job) > before);
    }
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait().ended_well();
    assert_eq!(ended.out.lines().filter(|line| line.ends_with(": right")).count(), 4, "{ended}");
    assert!(ended.events("reconnected").count() > 0, "nothing was reset\n{ended}");
    for event in ["replica-lost", "daemon-lost", "retired"] {
        assert_eq!(ended.events(event).count(), 0, "{event}\n{ended}");
    }
    nothing_left(&lab, &ended);
}

const LISTEN: &str = "\
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
with open(sys.argv[1], 'wb', 0) as out:
    out.write(b'listening')
    while True:
        out.write(link.recv(1 << 17))
";

/// Records all packets on a host's link.
struct Listener {
    /// `nsenter`, the recorder's parent.
    process: Child,
    file: PathBuf,
}

impl Listener {
    fn start(lab: &Lab, host: &str, name: &str) -> Self {
        let file = lab.path(name);
        let mut command: Command = lab.on(host);
        let process = command.args(["python3", "-c", LISTEN]).arg(&file).stdin(Stdio::null()).spawn();
        let listener = Self { process: process.expect("python3 can be run"), file };
        let begin = Instant::now();
        while listener.heard().is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(10), "nobody listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        listener
    }

    fn heard(&self) -> Vec<u8> {
        std::fs::read(&self.file).unwrap_or_default()
    }

    /// True when the recorded packets have these bytes.
    fn has_heard(&self, what: impl AsRef<[u8]>) -> bool {
        memchr::memmem::find(&self.heard(), what.as_ref()).is_some()
    }
}

impl Listener {
    fn stop(mut self, lab: &Lab, host: &str) {
        for process in lab.processes(host, "python3") {
            // SAFETY: - the call takes any number; the process is one of the lab's.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
        let _ = self.process.wait();
    }
}

const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    int rank;
    static char text[40000];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int length = 64; length <= 40000; length += 39936) {
        for (int at = 0; at + 32 < length; at += 32) memcpy(text + at, rank ? "" : "payload-in-a-message-0123456789.", rank ? 0 : 32);
        if (rank == 0) MPI_Send(text, length, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(text, length, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 1) printf("printed-by-a-rank %.20s\n", text);
    MPI_Finalize();
    return 0;
}
"#;

/// Secrets of the jobs on record for `redctl`, as hexadecimal digits.
fn secrets() -> Vec<String> {
    // SAFETY: - the call takes no argument and cannot fail.
    let directory = std::env::temp_dir().join(format!("redrt-{}", unsafe { libc::geteuid() }));
    let entries = std::fs::read_dir(directory).expect("jobs are written down there").flatten();
    let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    texts.filter_map(|text| Some(text.split_whitespace().nth(1)?.get(..64)?.to_owned())).collect()
}

fn from_hexadecimal(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect()
}

/// A listener hears messages unless the job is secure; it never hears secret, environment or output.
#[test]
fn a_listener_hears_messages_and_of_a_secure_job_nothing() {
    let Some(lab) = lab(2) else { return };
    let (_directory, program): (_, PathBuf) = compile_source(PROGRAM);
    let program: &Path = &program;
    for degree in [1, 2] {
        for secure in [false, true] {
            let listener = Listener::start(&lab, "h2", &format!("heard-{degree}-{secure}"));
            let job = Job::new(2, program).degree(degree).on_hosts(&lab, "h1:1,h2:1").options(&["--transport", "tcp"]);
            let job = job.environment("OF_THE_ENVIRONMENT", "told-to-a-process");
            let job = if secure { job.options(&["--secure"]) } else { job };
            let ended = job.run().ended_well().printed("printed-by-a-rank payload-in-a-message\n");
            assert_eq!(listener.has_heard("payload-in-a-message"), !secure, "degree {degree}\n{ended}");
            for what in ["printed-by-a-rank", "told-to-a-process"] {
                assert!(!listener.has_heard(what), "{what} at degree {degree}\n{ended}");
            }
            listener.stop(&lab, "h2");
            nothing_left(&lab, &ended);
        }
    }
}

/// Content of `until`'s memory.
const BALLAST: &str = "abcdefghijklmnopqrstuvwxyz";

/// A listener between the hosts finds neither in the packets.
#[test]
fn a_jobs_secret_and_the_memory_of_a_copy_cannot_be_read() {
    let Some(lab) = lab(3) else { return };
    for secure in [false, true] {
        let listener = Listener::start(&lab, "h3", &format!("heard-{secure}"));
        let stop = lab.path(&format!("stop-{secure}"));
        let job = Job::new(3, &compile("until")).arguments(&[&stop.display().to_string()]).degree(2);
        let job = job.environment("UNTIL_MIB", "1").options(&["--spares", "1"]).on_hosts(&lab, "h1:3,h2:3,h3:2");
        let job = if secure { job.options(&["--secure"]) } else { job };
        let job = job.limit(Duration::from_secs(120)).start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        job.redctl(&["kill", "1.0"]).expect("it is there");
        job.wait_for("recovered", 1);
        assert!(!listener.has_heard(BALLAST), "secure: {secure}");
        let secrets = secrets();
        assert!(!secrets.is_empty(), "the job is written down");
        for secret in secrets {
            let bytes = from_hexadecimal(&secret);
            assert!(
                bytes.len() >= 32 && !listener.has_heard(&secret) && !listener.has_heard(bytes),
                "secure: {secure}"
            );
        }
        std::fs::write(&stop, "").expect("it can be written");
        let ended = job.wait().ended_well();
        assert_eq!(ended.out.lines().filter(|line| line.ends_with(": right")).count(), 3, "{ended}");
        listener.stop(&lab, "h3");
        nothing_left(&lab, &ended);
    }
}
