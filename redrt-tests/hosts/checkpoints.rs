//! Jobs with a checkpoint whose hosts lose their power.

use crate::nothing_left;
use redrt_tests::lab::lab;
use redrt_tests::{Ended, Job, Lab, Running, compile, compile_case};
use std::time::Duration;

fn count(job: &Running, event: &str) -> usize {
    job.audit().iter().filter(|record| record["event"] == event).count()
}

fn is_right(line: &str) -> bool {
    line == "computing" || line.ends_with(": right")
}

/// Ranks that compute on these hosts until the lab's file `stop` is there. Checkpoints are taken on request only.
fn saving(lab: &Lab, rank_count: u32, hosts: &str) -> Job {
    let job = Job::new(rank_count, &compile("until")).arguments(&[&lab.path("stop").display().to_string()]);
    let job = job.options(&["--checkpoint", "asked", "--checkpoint-dir", &lab.path("store").display().to_string()]);
    job.on_hosts(lab, hosts).limit(Duration::from_secs(120))
}

/// Starts a job and, once its ranks compute, takes a checkpoint.
fn saved(job: Job) -> Running {
    let job = computing(job);
    save(&job);
    job
}

fn computing(job: Job) -> Running {
    let job = job.start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    job
}

fn save(job: &Running) {
    job.redctl(&["checkpoint"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
}

/// At r = 1 the loss of any host takes the job back to its checkpoint, and the host's ranks go on elsewhere.
#[test]
fn a_job_without_replicas_survives_the_loss_of_hosts() {
    goes_on_without_hosts(|job, lost| {
        job.wait_until("all run again", |job| count(job, "started") == 4 * (lost + 1));
    });
}

#[test]
#[ignore = "scripts/test.sh --all: a table of the daemon's turns shows what comes first"]
fn a_job_that_has_just_gone_back_is_saved_at_once() {
    goes_on_without_hosts(|_, _| ());
}

/// `before_next`: a wait after each return, by the returns so far, before the next checkpoint.
fn goes_on_without_hosts(before_next: impl Fn(&Running, usize)) {
    let Some(lab) = lab(4) else { return };
    let job = computing(saving(&lab, 4, "h1,h2,h3,h4").limit(Duration::from_secs(180)));
    for (lost, host) in (1..).zip(["h2", "h4"]) {
        save(&job);
        lab.cut_power(host);
        job.wait_until("the job goes back", |job| count(job, "went-back") == lost);
        before_next(&job, lost);
    }
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    let ended =
        job.wait().ended_well().said("the job goes back to checkpoint 1").said("the job goes back to checkpoint 2");
    // A silent host is lost for a while before the loss is detected.
    let detected: Vec<_> = ended.events("went-back").map(|record| record["detected_seconds"].as_f64()).collect();
    assert!(detected.len() == 2 && detected.iter().all(|time| time.is_some_and(|time| time > 0.0)), "{detected:?}");
    assert!(ended.out.lines().count() == 5 && ended.out.lines().all(is_right), "{ended}");
    nothing_left(&lab, &ended);
}

/// All other hosts hear both.
#[test]
#[ignore = "scripts/test.sh --all: the simulator of tools/host-watch plays it"]
fn a_job_goes_back_without_one_of_two_hosts_cut_apart() {
    let Some(lab) = lab(4) else { return };
    let job = saved(saving(&lab, 4, "h1,h2,h3,h4").options(&["--transport", "tcp"]));
    lab.cut_between("h2", "h3");
    job.wait_until("the job goes back", |job| count(job, "went-back") == 1 || job.has_ended());
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    let ended = job.wait().ended_well().said("lost host h3").said("it and h2 do not hear each other");
    assert!(ended.out.lines().count() == 5 && ended.out.lines().all(is_right), "{ended}");
    nothing_left(&lab, &ended);
}

/// An ssh client says nothing when its host loses its power in the midst of a launch.
#[test]
fn a_job_goes_back_without_a_host_whose_launcher_says_nothing() {
    let Some(lab) = lab(3) else { return };
    let job = saved(saving(&lab, 3, "h1,h2,h3"));
    let ssh = std::fs::read_to_string(lab.ssh()).expect("it can be read");
    let waits = "case \" $* \" in *' h2 '*) exec tail -f /dev/null ;; esac";
    std::fs::write(lab.ssh(), ssh.replacen('\n', &format!("\n{waits}\n"), 1)).expect("it can be written");
    job.redctl(&["kill", "2.0"]).expect("it is there");
    job.wait_until("the job goes back", |job| count(job, "went-back") == 1 || job.has_ended());
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    let ended = job.wait().ended_well().said("the job goes back without h2");
    assert!(ended.out.lines().count() == 4 && ended.out.lines().all(is_right), "{ended}");
    nothing_left(&lab, &ended);
}

/// The advice for one replica: a host that is kept free takes the ranks of a lost one.
#[test]
fn a_job_without_replicas_goes_on_on_its_spare_host() {
    let Some(lab) = lab(3) else { return };
    let job = saved(saving(&lab, 4, "h1,h2,h3").options(&["-N", "2", "--spares", "1"]));
    lab.cut_power("h2");
    job.wait_until("the job goes back", |job| count(job, "went-back") == 1);
    job.wait_until("all run again", |job| count(job, "started") == 8);
    let hosts = |job: &Running| -> Vec<String> {
        let started = job.audit().into_iter().filter(|record| record["event"] == "started");
        started.filter_map(|record| Some(record["host"].as_str()?.to_owned())).collect()
    };
    let mut again = hosts(&job).split_off(4);
    again.sort_unstable();
    assert_eq!(again, ["h1", "h1", "h3", "h3"]);
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    let ended = job.wait().ended_well();
    assert!(ended.out.lines().count() == 5 && ended.out.lines().all(is_right), "{ended}");
    nothing_left(&lab, &ended);
}

/// All processes have called `MPI_Finalize`; the lost one has not written all its output yet.
#[test]
fn a_job_goes_back_when_a_finalized_process_loses_its_host() {
    let Some(lab) = lab(2) else { return };
    let (files, store, ranks) = (lab.path("files"), lab.path("store"), lab.path("ranks"));
    std::fs::create_dir(&files).expect("it can be made");
    // Its new host has fewer slots than the rankfile names.
    std::fs::write(&ranks, "rank 0=h2 slot=0\nrank 1=h1 slot=0\n").expect("it can be written");
    let job = Job::new(2, &compile_case("lingering"))
        .arguments(&[&files.display().to_string()])
        .options(&["--checkpoint", "asked", "--checkpoint-dir", &store.display().to_string()])
        .options(&["--rankfile", &ranks.display().to_string()])
        .on_hosts(&lab, "h1,h2")
        .limit(Duration::from_secs(120))
        .start();
    job.wait_until("it is saved", |job| count(job, "checkpoint") == 1);
    std::fs::write(files.join("go"), "").expect("it can be written");
    job.wait_until("over", |_| files.join("over").exists());
    lab.cut_power("h2");
    job.wait_until("the job goes back", |job| count(job, "went-back") == 1);
    std::fs::write(files.join("end"), "").expect("it can be written");
    let ended = job.wait().ended_well().said("the job goes back to checkpoint 1");
    assert_eq!(ended.out, "what was computed\n", "{ended}");
    nothing_left(&lab, &ended);
}

/// `redrun` and all hosts are lost.
#[test]
fn a_job_is_resumed_on_fewer_hosts_than_it_had() {
    let Some(lab) = lab(3) else { return };
    let job = saved(saving(&lab, 3, "h1,h2,h3").degree(2));
    job.signal(libc::SIGKILL);
    let _ = job.wait();
    lab.cut_power("h3");
    std::fs::write(lab.path("stop"), "").expect("it can be written");
    let ended =
        Job::resume(&lab.path("store")).on_hosts(&lab, "h2,h1").limit(Duration::from_secs(120)).run().ended_well();
    assert!(ended.out.lines().count() == 3 && ended.out.lines().all(is_right), "{ended}");
    nothing_left(&lab, &ended);
}

/// A job that can soon get another host does not go on for hours on too few hosts.
#[test]
fn a_job_stops_to_be_resumed_if_that_ends_it_sooner() {
    let Some(lab) = lab(3) else { return };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let (stop, checkpoints, store) = (lab.path("stop"), lab.path("checkpoints"), lab.path("plan.redb"));
    let (program, store) = (compile("until"), store.display().to_string());
    let profile = lab.path("until.profile.json");
    let ranks = 2 * cpus;
    let learned = serde_json::json!({
        "format": 1, "program": program.display().to_string(), "ranks": ranks, "elapsed_s": 36_000,
    });
    std::fs::write(&profile, learned.to_string()).expect("it can be written");
    let redplan = std::process::Command::new(redrt_tests::prefix().join("bin/redplan"))
        .args(["learn", "--store", &store, &profile.display().to_string()])
        .output();
    assert!(redplan.expect("redplan can be started").status.success());
    let job = Job::new(ranks, &program)
        .arguments(&[&stop.display().to_string()])
        .environment("REDRT_PLAN_STORE", &store)
        .options(&["-N", &cpus.to_string(), "--checkpoint", "asked", "--host-wait", "10min"])
        .options(&["--checkpoint-dir", &checkpoints.display().to_string()])
        .on_hosts(&lab, "h1,h2")
        .limit(Duration::from_secs(120))
        .start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    job.redctl(&["checkpoint"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
    lab.cut_power("h2");
    let ended = job.wait().said("up to 98 % waiting for another ends sooner: resume the job with redrun --resume ");
    assert_eq!(ended.code, Some(75), "{ended}");
    std::fs::write(&stop, "").expect("it can be written");
    let ended = Job::resume(&checkpoints).on_hosts(&lab, "h1,h3").limit(Duration::from_secs(120)).run().ended_well();
    assert!(ended.out.lines().count() == ranks as usize && ended.out.lines().all(is_right), "{ended}");
    nothing_left(&lab, &ended);
}

/// Ranks of a host that share memory, and their output at the end; `lose` takes hosts away meanwhile.
fn sharing(lab: &Lab, hosts: &str, options: &[&str], lose: impl FnOnce(&Running)) -> Ended {
    let stop = lab.path("stop");
    let _ = std::fs::remove_file(&stop);
    let job = Job::new(4, &compile("shares")).arguments(&["100", &stop.display().to_string()]);
    let job = job.options(&["--checkpoint", "asked", "--checkpoint-dir", &lab.path("store").display().to_string()]);
    let job = computing(job.options(options).on_hosts(lab, hosts).limit(Duration::from_secs(120)));
    lose(&job);
    std::fs::write(&stop, "").expect("the lab's directory is there");
    job.wait()
}

/// After a return the ranks that share memory are on one host again; with replicas, planes that lost nothing go on.
#[test]
fn ranks_that_share_memory_go_on_together_after_a_loss() {
    let Some(lab) = lab(5) else { return };
    let replicated = ["-r", "2", "--report-placement"];
    let ended = sharing(&lab, "h1:2,h2:2,h3:2,h4:2", &replicated, |job| {
        lab.cut_power("h4");
        job.wait_until("its replicas are lost", |job| count(job, "replica-lost") == 2);
    });
    let ended = ended.ended_well();
    assert!(ended.out.starts_with("computing\n2 of 4 share memory: "), "{ended}");
    let right = ended.out.clone();
    for (hosts, lost, options) in
        [("h1:2,h2:2", "h2", &["--checkpoint-level", "partner"][..]), ("h1:2,h3:2,h5:2", "h3", &["--spares", "1"])]
    {
        let ended = sharing(&lab, hosts, options, |job| {
            save(job);
            lab.cut_power(lost);
            job.wait_until("all run again", |job| count(job, "went-back") == 1);
        });
        nothing_left(&lab, &ended.ended_well().printed(&right));
    }
}

/// The ranks stay together even where processes are saved one by one.
#[test]
fn ranks_that_share_memory_are_resumed_together_on_another_host() {
    let Some(lab) = lab(3) else { return };
    let ended = sharing(&lab, "h1:4", &["--spares", "0"], |job| {
        job.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
    });
    let _ = ended.ended_with(75);
    let ended = Job::resume(&lab.path("store")).on_hosts(&lab, "h2:2,h3:2").limit(Duration::from_secs(60)).run();
    let ended = ended.ended_well();
    assert!(ended.out.starts_with("4 of 4 share memory: "), "{ended}");
    let started = ended.events("started").map(|record| record["host"].as_str());
    assert_eq!(started.collect::<Vec<_>>(), [Some("h2"); 4], "{ended}");
    nothing_left(&lab, &ended);
}
