//! Jobs in allocations of a real Slurm.

use crate::elsewhere::{Left, see_end};
use crate::{program, undisturbed};
use redrt_tests::lab::slurm_lab;
use redrt_tests::quorum::{OWN, coordinators_on};
use redrt_tests::{Lab, prefix};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn redrun() -> String {
    prefix().join("bin/redrun").display().to_string()
}

/// Runs a command to its end: output, errors and success.
fn run(command: &mut Command) -> (String, String, bool) {
    let output = command.stdin(Stdio::null()).output().expect("it can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.success())
}

#[track_caller]
fn empty(lab: &Lab) {
    let left = lab.left_behind(Duration::from_secs(5));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn nodes_and_slots_are_taken_from_the_allocation() {
    let Some(lab) = slurm_lab(3) else { return };
    let heat = program("heat");
    let out = undisturbed(&heat);
    let binary = redrt_tests::compile("heat").display().to_string();
    let mut salloc = lab.on("ctl");
    salloc.args(["salloc", "--quiet", "-N3", "--exclusive"]).args([
        &redrun(),
        "-r",
        "3",
        "-n",
        "4",
        "--report-placement",
    ]);
    let (printed, said, well) = run(salloc.arg(&binary).args(heat.arguments));
    assert!(well && printed == out, "{said}\n{printed}");
    for host in ["h1", "h2", "h3"] {
        assert!(said.contains(&format!("placement: {host}: ")), "{said}");
    }
    assert!(said.contains("note: Slurm ends this job when a host fails, unless"), "{said}");
    empty(&lab);

    // The ranks take all slots: three nodes of four.
    let mut salloc = lab.on("ctl");
    salloc.args(["salloc", "--quiet", "-N3", "--exclusive", &redrun(), "sh", "-c", "echo $REDRT_SIZE"]);
    let (printed, said, well) = run(&mut salloc);
    assert!(well && printed == "12\n".repeat(12), "{said}\n{printed}");

    let file_of = |name: &str| lab.path(name).display().to_string();
    let script = lab.path("batch");
    let text = format!("#!/bin/sh\n{} -q -r 2 -n 4 {binary} {}\n", redrun(), heat.arguments.join(" "));
    std::fs::write(&script, text).expect("it can be written");
    let mut sbatch = lab.on("ctl");
    let file = lab.path("batch.out");
    sbatch.args(["sbatch", "--wait", "-N2", "--exclusive"]).arg(format!("--output={}", file.display())).arg(&script);
    let (_, said, well) = run(&mut sbatch);
    let printed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(well && printed == out, "{said}\n{printed}");
    empty(&lab);

    // The installed script.
    let path = format!("PATH={}:/usr/bin:/bin", prefix().join("bin").display());
    let mut sbatch = lab.on("ctl");
    sbatch.args([&path, "RANKS=4", "sbatch", "--wait", "-N3", "--exclusive"]);
    sbatch.arg(format!("--output={}", file_of("script.out"))).arg(format!("--error={}", file_of("script.err")));
    sbatch.arg(format!("--chdir={}", file_of("."))).arg(prefix().join("share/redrt/redrun.sbatch"));
    let (_, said, well) = run(sbatch.arg(&binary).args(heat.arguments));
    let [printed, errors] =
        ["script.out", "script.err"].map(|name| std::fs::read_to_string(file_of(name)).unwrap_or_default());
    assert!(well && printed == out && errors.contains("4 ranks x 2 replicas"), "{said}\n{printed}\n{errors}");
    // The script asks for --no-kill, so the note about it is absent.
    assert!(!errors.contains("note: Slurm ends"), "{errors}");
    empty(&lab);
}

#[test]
fn a_node_may_be_lost() {
    let Some(lab) = slurm_lab(4) else { return };
    let stop = lab.path("stop");
    let binary = redrt_tests::compile("until");
    let out = lab.path("out");
    let mut salloc = lab.on("ctl");
    salloc.args(["salloc", "--quiet", "--no-kill", "-N4", "--exclusive", &redrun(), "-r", "2", "-n", "4"]);
    salloc.arg(binary).arg(&stop).stdin(Stdio::null()).stderr(Stdio::piped());
    salloc.stdout(std::fs::File::create(&out).expect("it can be written"));
    let mut child = salloc.spawn().expect("salloc can be run");
    let printed = || std::fs::read_to_string(&out).unwrap_or_default();
    let begin = Instant::now();
    while !printed().contains("computing") {
        assert!(begin.elapsed() < Duration::from_secs(60), "the job does not start");
        assert!(child.try_wait().expect("our child").is_none(), "the job has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    lab.cut_power("h3");
    std::thread::sleep(Duration::from_secs(3));
    std::fs::write(&stop, "").expect("it can be written");
    let output = child.wait_with_output().expect("our child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("lost host h3"), "{said}\n{}", printed());
    empty(&lab);
}

/// Its daemons were started by srun, none of them on its host. MUNGE identifies their user.
#[test]
fn a_coordinator_that_is_killed_within_an_allocation_comes_back() {
    let Some(lab) = slurm_lab(3) else { return };
    let [stop, out, audit] = ["stop", "out", "audit.jsonl"].map(|name| lab.path(name));
    let mut salloc = lab.on("ctl");
    salloc.args(["salloc", "--quiet", "-N3", "--exclusive", &redrun(), "--detachable", "-r", "2", "-n", "4"]);
    salloc.args(["--coordinators", "1"]);
    salloc.arg("--audit").arg(&audit).arg(redrt_tests::compile("until")).arg(&stop);
    salloc.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(std::fs::File::create(&out).expect("it can be written"));
    let mut child = salloc.spawn().expect("salloc can be run");
    wait_for_text(&out, "computing");
    let count = |event: &str| {
        let log = std::fs::read_to_string(&audit).unwrap_or_default();
        log.matches(&format!("\"event\":\"{event}\"")).count()
    };
    let mut killed = Vec::new();
    for number in 1..=3 {
        let coordinators = coordinators_on(&lab, "ctl");
        let coordinator =
            *coordinators.iter().find(|coordinator| !killed.contains(*coordinator)).expect("it came back");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(coordinator), nix::sys::signal::Signal::SIGKILL)
            .expect("it runs");
        killed.push(coordinator);
        let begin = Instant::now();
        while count("reattached") < 3 * number {
            assert!(begin.elapsed() < Duration::from_secs(60), "coordinator {number} has no hosts");
            assert!(child.try_wait().expect("our child").is_none(), "the job has ended");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    std::fs::write(&stop, "").expect("it can be written");
    let output = child.wait_with_output().expect("our child");
    let (said, printed) = (String::from_utf8_lossy(&output.stderr), std::fs::read_to_string(&out).unwrap_or_default());
    assert!(output.status.success(), "{said}\n{printed}");
    assert_eq!(printed.lines().filter(|line| line.ends_with(": right")).count(), 4, "{said}\n{printed}");
    assert_eq!((count("came-back"), count("replica-lost")), (3, 0), "{said}");
    empty(&lab);
}

/// The coordinator's srun is lost, and the batch script with it. Both streams are one file, which all hosts see.
#[test]
fn a_coordinator_comes_back_when_the_batch_node_is_lost() {
    lose_batch_host(3, &[]);
}

/// Lost replicas are copied to the node that was kept free.
#[test]
fn replicas_of_the_batch_node_are_copied_to_a_spare() {
    lose_batch_host(4, &["--spares", "1"]);
}

fn lose_batch_host(node_count: u32, options: &[&str]) {
    let Some(lab) = slurm_lab(node_count) else { return };
    let [stop, out, audit] = ["stop", "out", "audit.jsonl"].map(|name| lab.path(name).display().to_string());
    let program = redrt_tests::compile("until").display().to_string();
    let all = ["--detachable", "--coordinators", "3", "-r", "2", "-n", "4", "--audit", &audit];
    let words = [&all[..], options, &[&program, &stop]].concat().join(" ");
    let mut sbatch = lab.on("ctl");
    sbatch.args(["sbatch", "--no-kill", &format!("-N{node_count}"), "--exclusive", "--output", &out, "--wrap"]);
    let (_, said, well) = run(sbatch.arg(format!("{}={} exec {} {words}", OWN.0, OWN.1, redrun())));
    assert!(well, "{said}");
    wait_for_text(Path::new(&out), "computing");
    crate::elsewhere::settle(&lab, "h1");
    let (left, mut coordinator) = Left::lose(&lab, "h1", "h2");
    let events = |event: &str| {
        let log = std::fs::read_to_string(&audit).unwrap_or_default();
        log.matches(&format!("\"event\":\"{event}\"")).count()
    };
    wait_for_text(Path::new(&audit), "\"daemon-lost\"");
    let begin = Instant::now();
    while !options.is_empty() && (events("replica-lost") == 0 || events("recovered") < events("replica-lost")) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{} copies", events("recovered"));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(&stop, "").expect("it can be written");
    let (code, shown, said) = see_end(&left, &lab, "h2");
    assert_eq!((code, shown.as_str()), (Some(0), ""), "{said}");
    assert_eq!(coordinator.wait().expect("our child").code(), Some(0));
    let printed = std::fs::read_to_string(&out).unwrap_or_default();
    let count = |end: &str| printed.lines().filter(|line| line.ends_with(end)).count();
    assert_eq!((count("computing"), count(": right")), (1, 4), "{printed}");
    empty(&lab);
}

/// Peers elect a coordinator on another node, whose job ends well. No script is there whose end would end the
/// allocation.
#[test]
fn an_allocation_ends_with_its_job_when_the_batch_node_is_lost() {
    let Some(lab) = slurm_lab(4) else { return };
    let [stop, out, audit] = ["stop", "out", "audit.jsonl"].map(|name| lab.path(name).display().to_string());
    let program = redrt_tests::compile("until").display().to_string();
    let words = ["--detachable", "-r", "2", "-n", "4", "--spares", "1", "--audit", &audit, &program, &stop].join(" ");
    let mut sbatch = lab.on("ctl");
    sbatch.args(["sbatch", "--no-kill", "-N4", "--exclusive", "--output", &out, "--wrap"]);
    let (said, errors, well) = run(sbatch.arg(format!("{}={} exec {} {words}", OWN.0, OWN.1, redrun())));
    assert!(well, "{errors}");
    let id = said.split_whitespace().last().expect("sbatch names the job").to_owned();
    wait_for_text(Path::new(&out), "computing");
    crate::elsewhere::settle(&lab, "h1");
    lab.cut_power("h1");
    wait_for_text(Path::new(&audit), "\"recovered\"");
    std::fs::write(&stop, "").expect("it can be written");
    let printed =
        wait_for_text(Path::new(&out), &format!("the batch script is lost with node h1: scancel --quiet {id}"));
    assert_eq!(printed.lines().filter(|line| line.ends_with(": right")).count(), 4, "{printed}");
    assert!(printed.contains("exit code 0"), "{printed}");
    let begin = Instant::now();
    while !run(lab.on("ctl").args(["squeue", "--noheader", "--states=RUNNING"])).0.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the allocation is there");
        std::thread::sleep(Duration::from_millis(100));
    }
    empty(&lab);
}

/// Each group is reached by an srun of its own, and their hosts are hosts of one job.
#[test]
fn all_groups_of_a_heterogeneous_job_take_part() {
    let Some(lab) = slurm_lab(3) else { return };
    let heat = program("heat");
    let out = undisturbed(&heat);
    let binary = redrt_tests::compile("heat").display().to_string();
    let [script, printed, said] = ["het", "het.out", "het.err"].map(|name| lab.path(name));
    let words = format!("-r 2 -n 4 --report-placement {binary} {}", heat.arguments.join(" "));
    let groups = "#SBATCH -N1 --exclusive\n#SBATCH hetjob\n#SBATCH -N2 --exclusive\n";
    std::fs::write(&script, format!("#!/bin/sh\n{groups}{} {words}\n", redrun())).expect("it can be written");
    let mut sbatch = lab.on("ctl");
    sbatch.args(["sbatch", "--wait"]).arg(format!("--output={}", printed.display()));
    let (_, told, well) = run(sbatch.arg(format!("--error={}", said.display())).arg(&script));
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    assert!(well && text(&printed) == out, "{told}\n{}\n{}", text(&said), text(&printed));
    for host in ["h1", "h2", "h3"] {
        assert!(text(&said).contains(&format!("placement: {host}: ")), "{}", text(&said));
    }
    empty(&lab);
}

#[test]
fn a_bare_srun_explains_itself() {
    let Some(lab) = slurm_lab(2) else { return };
    let binary = redrt_tests::compile("heat");
    let mut srun = lab.on("ctl");
    let library = format!("LD_LIBRARY_PATH={}", prefix().join("lib").display());
    let (_, said, well) = run(srun.args([&library, "srun", "-N2", "-n2"]).arg(&binary).args(["32", "40"]));
    assert!(!well && said.contains("redrun") && said.contains("srun"), "{said}");
    let (printed, said, well) =
        run(lab.on("ctl").args([&library, "srun", "-N1", "-n1"]).arg(&binary).args(["32", "40"]));
    assert!(well && !printed.is_empty(), "{said}");
}

/// The installed script for jobs that take longer than their time limit: on a signal near the limit it saves the job
/// and requeues it, and the job goes on from there.
#[test]
fn a_job_whose_time_is_nearly_up_is_saved_and_goes_on_later() {
    let Some(lab) = slurm_lab(3) else { return };
    let file_of = |name: &str| lab.path(name).display().to_string();
    let path = format!("PATH={}:/usr/bin:/bin", prefix().join("bin").display());
    let stop = lab.path("stop");
    let on_ctl = |words: &[&str]| run(lab.on("ctl").args(words));
    let output = || std::fs::read_to_string(file_of("out")).unwrap_or_default();
    let errors = || std::fs::read_to_string(file_of("err")).unwrap_or_default();
    let queue = || on_ctl(&["sh", "-c", "squeue --format='%i %T %r %S'; sinfo --Node --format='%N %T %E'"]).0;
    let wait_until = |what: &str, condition: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !condition() {
            let in_time = begin.elapsed() < Duration::from_secs(120);
            assert!(in_time, "{what}: {}\n{}\n{}", output(), errors(), queue());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let mut sbatch = lab.on("ctl");
    sbatch.args([&path, "RANKS=3", "sbatch", "--parsable", "-N3", "--exclusive"]);
    sbatch.arg(format!("--output={}", file_of("out"))).arg(format!("--error={}", file_of("err")));
    sbatch.arg(format!("--chdir={}", file_of("."))).arg(prefix().join("share/redrt/redrun-resume.sbatch"));
    let (job, said, well) = run(sbatch.arg(redrt_tests::compile("until")).arg(&stop));
    assert!(well, "{said}");
    let job = job.trim();
    let state = || on_ctl(&["squeue", "--noheader", "--format=%T", "--jobs", job]).0.trim().to_owned();
    wait_until("it computes", &|| output().contains("computing"));
    on_ctl(&["scancel", "--batch", "--signal=USR1", job]);
    wait_until("it is in the queue again", &|| state() == "PENDING" && errors().contains("to be resumed"));
    std::fs::write(&stop, "").expect("it can be written");
    // Slurm lets a requeued job wait for two minutes, counted from the report of the last node that the job has left
    // it; that may come after the first request here. A report that comes after the new beginning ends the new job.
    let has_left = || lab.names().all(|host| lab.processes(host, "slurmstepd").is_empty());
    wait_until("it has ended", &|| {
        if state() == "PENDING" && has_left() {
            on_ctl(&["scontrol", "update", &format!("JobId={job}"), "StartTime=now"]);
        }
        output().lines().filter(|line| line.ends_with(": right")).count() == 3
    });
    assert_eq!(output().lines().filter(|line| *line == "computing").count(), 1, "{}", output());
    assert!(errors().contains("goes on from checkpoint 1"), "{}", errors());
    wait_until("its checkpoints are gone", &|| {
        std::fs::read_dir(file_of("redrt-checkpoints")).is_ok_and(|mut names| names.next().is_none())
    });
    empty(&lab);
}

/// Then two of its hosts are on one node, or one node has nothing to do.
#[test]
#[ignore = "scripts/test.sh --all: which steps there are is tested in control-network"]
fn a_job_that_was_saved_goes_on_with_another_number_of_nodes() {
    let Some(lab) = slurm_lab(2) else { return };
    let binary = redrt_tests::compile("until");
    for (before, after) in [("-N2", "-N1"), ("-N1", "-N2")] {
        let [stop, out, store] = ["stop", "out", "store"].map(|name| lab.path(&format!("{name}{before}")));
        let salloc = |nodes: &str, words: &[&str]| {
            let mut salloc = lab.on("ctl");
            salloc.args(["salloc", "--quiet", "--exclusive", nodes, &redrun()]).args(words).stdin(Stdio::null());
            salloc
        };
        let place = store.display().to_string();
        let mut first = salloc(before, &["-r", "2", "-n", "3", "--checkpoint", "asked", "--checkpoint-dir", &place]);
        let file = std::fs::File::create(&out).expect("it can be written");
        first.arg(&binary).arg(&stop).stderr(file.try_clone().expect("it is open")).stdout(file);
        let mut first = first.spawn().expect("salloc can be run");
        wait_for_text(&out, "computing");
        let (_, said, well) = run(lab.on("ctl").arg(prefix().join("bin/redctl")).args(["checkpoint", "--stop"]));
        assert!(well, "{said}");
        let code = first.wait().expect("our child").code();
        assert_eq!(code, Some(75), "saved on {before}");
        std::fs::write(&stop, "").expect("it can be written");
        let (printed, said, well) = run(&mut salloc(after, &["--resume", &place]));
        let mut lines: Vec<_> = printed.lines().collect();
        lines.sort_unstable();
        assert!(
            well && lines == ["rank 0: right", "rank 1: right", "rank 2: right"],
            "{before}, {after}: {printed}\n{said}"
        );
        empty(&lab);
    }
}

/// Waits until a file has this text.
fn wait_for_text(path: &Path, text: &str) -> String {
    let begin = Instant::now();
    loop {
        let said = std::fs::read_to_string(path).unwrap_or_default();
        if said.contains(text) {
            return said;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{text:?} does not come: {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `scancel --batch` sends at once the signal that `--signal=B:USR1@…` sends near the time limit.
#[test]
fn a_signal_of_slurm_reaches_the_program() {
    let Some(lab) = slurm_lab(2) else { return };
    let (script, out) = (lab.path("signalled.sh"), lab.path("signalled.out"));
    let binary = redrt_tests::compile_case("signalled");
    let text = format!("#!/bin/sh\n#SBATCH --signal=B:USR1@300\nexec {} -r 2 -n 3 {} 1\n", redrun(), binary.display());
    std::fs::write(&script, text).expect("it can be written");
    let mut sbatch = lab.on("ctl");
    sbatch.args(["sbatch", "--parsable", "-N2", "--exclusive", "--time=10"]);
    let (job, said, well) = run(sbatch.arg(format!("--output={}", out.display())).arg(&script));
    assert!(well, "{said}");
    wait_for_text(&out, "computing");
    let (_, said, well) = run(lab.on("ctl").args(["scancel", "--batch", "--signal=USR1", job.trim()]));
    assert!(well, "{said}");
    let said = wait_for_text(&out, "exit code 0");
    assert_eq!(said.matches(&format!(": signal {} ", libc::SIGUSR1)).count(), 3, "{said}");
    empty(&lab);
}

#[test]
fn an_array_of_jobs_has_a_log_and_output_for_each() {
    let Some(lab) = slurm_lab(2) else { return };
    let path = format!("PATH={}:/usr/bin:/bin", prefix().join("bin").display());
    std::fs::write(lab.path("arguments"), "one\ntwo words\n").expect("it can be written");
    let program = lab.path("program");
    script_file::write(&program, "#!/bin/sh\necho \"$REDRT_RANK: $# $*\"\n");
    let mut sbatch = lab.on("ctl");
    sbatch.args([&path, "RANKS=2", "SPARES=0", "sbatch", "--wait", "-N2", "--exclusive", "--array=1-2"]);
    sbatch.arg(format!("--chdir={}", lab.path(".").display())).arg(prefix().join("share/redrt/redrun-array.sbatch"));
    let (_, said, well) = run(sbatch.arg(&program).arg("arguments"));
    assert!(well, "{said}");
    for (task, arguments) in [(1, "1 one"), (2, "2 two words")] {
        let of_rank = |rank: u32| {
            let name = format!("redrun-output/{task}/rank.{rank}.out");
            std::fs::read_to_string(lab.path(&name)).unwrap_or_default()
        };
        assert_eq!([of_rank(0), of_rank(1)], [0, 1].map(|rank| format!("{rank}: {arguments}\n")));
    }
    let logs = std::fs::read_dir(lab.path("redrun-audit")).expect("there are logs").count();
    assert_eq!(logs, 2);
    empty(&lab);
}
