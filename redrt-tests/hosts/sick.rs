//! Hosts that are sick for a whole job: one corrupts a message now and then, another is slow.

use crate::nothing_left;
use redrt_tests::lab::lab;
use redrt_tests::{Job, compile, compile_case, report};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The output is right all the same.
#[test]
fn a_host_that_corrupts_messages_is_named_and_drained() {
    let Some(lab) = lab(5) else { return };
    let stop = lab.path("stop");
    let job = Job::new(4, &compile("until"))
        .arguments(&[&stop.display().to_string()])
        .degree(3)
        .options(&["--spares", "2", "--inject", "sick:h2:1000"])
        .on_hosts(&lab, "h1:8,h2:8,h3:8,h4:8,h5:8")
        .limit(Duration::from_secs(240))
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    job.wait_for("host-bad", 1);
    job.wait_for("host-free", 1);
    job.wait_for("recovered", 3);
    let there: Vec<_> = job.replicas().into_iter().filter(|replica| replica.ends_with(" on h2")).collect();
    assert!(there.is_empty(), "{there:?}");
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait().ended_with(0).said("host h2 corrupts data: its replicas move away");
    let is_right = |line: &str| line == "computing" || line.ends_with(": right");
    assert!(ended.out.lines().count() == 5 && ended.out.lines().all(is_right), "{ended}");
    // All mismatches are against replicas on that host, and each strike was followed by a copy.
    let hosts: Vec<_> = ended.events("mismatch").map(|record| record["host"].as_str().unwrap_or_default()).collect();
    assert!(hosts.len() >= 3 && hosts.iter().all(|host| *host == "h2"), "{hosts:?}");
    assert_eq!((ended.events("strike").count(), ended.events("host-bad").count()), (3, 1), "{ended}");
    assert!(ended.number("recovered") >= 3, "{ended}");
    // Several ranks have the host in common, so it is named, and not the program.
    let reasons: Vec<_> = ended.events("attribution").map(|record| (&record["cause"], &record["hosts"])).collect();
    assert_eq!(reasons, [(&json!("hardware"), &json!(["h2"]))], "{ended}");
    assert_eq!(report(&[&ended])["attribution"][0]["cause"], "hardware", "{ended}");
    nothing_left(&lab, &ended);
}

/// A host that gives its processes a third of the time: it stops them and lets them go on, again and again.
struct Slow {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Slow {
    fn new(processes: Vec<i32>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let send = move |signal| {
            for process in &processes {
                // SAFETY: - the call takes any number; the processes are the lab's.
                unsafe { libc::kill(*process, signal) };
            }
        };
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                for (signal, milliseconds) in [(libc::SIGSTOP, 40), (libc::SIGCONT, 20)] {
                    send(signal);
                    std::thread::sleep(Duration::from_millis(milliseconds));
                }
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

#[test]
#[ignore = "scripts/test.sh --all: how slow a host is shows where nothing else uses the processors"]
fn a_host_that_is_three_times_slower_gets_a_strike() {
    let Some(lab) = lab(3) else { return };
    let stop = lab.path("stop");
    let job = Job::new(3, &compile("until"))
        .arguments(&[&stop.display().to_string()])
        .degree(3)
        .environment("UNTIL_PAUSE", "5000")
        .options(&["--look-interval", "0.1"])
        .on_hosts(&lab, "h1:3,h2:3,h3:3")
        .limit(Duration::from_secs(240))
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let slow = Slow::new(lab.processes("h2", "until"));
    job.wait_for("slow-host", 1);
    drop(slow);
    std::fs::write(&stop, "").expect("it can be written");
    let ended = job.wait().ended_with(0).said("h2");
    let told: Vec<_> = ended.events("slow-host").map(|record| record["host"].clone()).collect();
    assert_eq!(told, [json!("h2")], "{ended}");
    let strikes: Vec<_> = ended.events("strike").map(|record| record["host"].clone()).collect();
    assert_eq!(strikes, [json!("h2")], "{ended}");
    nothing_left(&lab, &ended);
}

#[test]
fn what_differs_on_whatever_hosts_it_runs_is_the_programs() {
    let Some(lab) = lab(4) else { return };
    let program = compile_case("nondeterministic");
    let run = |hosts: &str| {
        let job = Job::new(2, &program).arguments(&["clock"]).degree(2).on_hosts(&lab, hosts);
        let ended = job
            .limit(Duration::from_secs(120))
            .run()
            .ended_with(0)
            .said("open: rank 1 differed once, and nobody knows");
        nothing_left(&lab, &ended);
        ended
    };
    let (one, other) = (run("h1:2,h2:2"), run("h3:2,h4:2"));
    let reasons = |jobs: &[&_]| report(jobs)["attribution"].as_array().cloned().unwrap_or_default();
    assert_eq!(reasons(&[&one])[0]["cause"], "open", "one pair of hosts says nothing");
    let reasons = reasons(&[&one, &other]);
    let [reason] = reasons.as_slice() else { panic!("{reasons:?}") };
    assert_eq!((&reason["cause"], &reason["hosts"]), (&json!("software"), &json!(["h1", "h2", "h3", "h4"])));
}
