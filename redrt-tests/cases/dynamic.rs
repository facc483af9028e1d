//! Jobs that meet: spawned, over ports and over sockets. `dynamic.c` has the checks of MPI.

use redrt_tests::{Job, Running, breadth, compile_case};
use std::process::{Child, Command, Stdio};

fn job(rank_count: u32, arguments: &[&str]) -> Job {
    let job = Job::new(rank_count, &compile_case("dynamic")).arguments(arguments);
    job.environment("PARENTS", &rank_count.to_string())
}

/// All ways in which processes of different jobs work together.
const WAYS: [&str; 10] =
    ["all", "each", "multiple", "generations", "introduce", "mixed", "names", "join", "refusals", "unparted"];

#[test]
fn jobs_meet_in_every_way() {
    for transport in ["shm", "tcp"] {
        for rank_count in breadth(3..=3, 1..=3) {
            for way in WAYS {
                let ended = job(rank_count, &[way]).transport(transport).run().ended_well();
                let _ = ended.printed(&format!("{way}: right\n"));
            }
        }
    }
}

#[test]
fn jobs_part_however_each_side_lets_go() {
    let _ = job(2, &["lettings go"]).run().ended_well().printed("lettings go: right\n");
}

#[test]
fn children_end_once_their_parent_has_freed_what_connects_them() {
    let _ = job(2, &["outlived"]).run().ended_well().printed("outlived: right\n");
}

#[test]
fn encrypted_jobs_meet_too() {
    for way in ["all", "names"] {
        let _ = job(2, &[way]).options(&["--secure"]).transport("tcp").run().ended_well();
    }
}

#[test]
fn jobs_that_have_met_end_together() {
    let ended = job(2, &["ends", "aborting"]).run().ended_with(7);
    let _ = ended.said("rank 1 (replica 1.0 on").said("called MPI_Abort with code 7").said("that this one has spawned");
    let _ = job(2, &["abandon"]).run().ended_with(6).said("called MPI_Abort with code 6");
}

#[test]
fn a_signal_ends_a_job_with_those_it_has_spawned() {
    let running = job(1, &["ends", "waiting"]).start();
    running.wait_until("spawned", |running| running.processes("dynamic").len() == 3);
    running.signal(libc::SIGTERM);
    let _ = running.wait().ended_with(128 + libc::SIGTERM);
}

#[test]
fn a_spawned_job_does_not_outlive_the_redrun_above_it() {
    let running = job(1, &["ends", "waiting"]).start();
    running.wait_until("spawned", |running| running.processes("dynamic").len() == 3);
    running.signal(libc::SIGKILL);
    let ended = running.wait();
    assert_eq!(ended.code, Some(128 + libc::SIGKILL), "{ended}");
    assert!(ended.left.is_empty(), "{ended}");
}

/// Two jobs with nothing in common but the name of a port.
fn two_jobs(variables: &[(&str, &str)]) -> (Running, Job) {
    let directory = tempfile::tempdir().expect("the temporary directory can be written").keep();
    let file = directory.join("port");
    let name = file.display().to_string();
    let with = |job: Job| variables.iter().fold(job, |job, (variable, value)| job.environment(variable, value));
    let accepting = with(job(2, &["accept", &name])).start();
    accepting.wait_until("the port", |_| file.exists());
    (accepting, with(job(2, &["connect", &name])))
}

#[test]
fn jobs_of_different_redruns_meet_at_a_port() {
    for variables in [&[][..], &[("FREES", "1")]] {
        let (accepting, connecting) = two_jobs(variables);
        let _ = connecting.run().ended_well().printed("connected\nconnected\n");
        let _ = accepting.wait().ended_well().printed("accepted\naccepted\n");
    }
}

#[test]
fn the_death_of_a_job_that_is_connected_is_told() {
    let (accepting, connecting) = two_jobs(&[("DIES", "1")]);
    let _ = connecting.run().ended_with(5);
    let _ = accepting.wait().ended_with(1).said("to which this process is connected, has ended without disconnecting");
}

#[test]
fn replicas_are_refused_other_jobs_with_the_reason() {
    for way in ["all", "names", "join"] {
        let ended = job(2, &[way]).degree(2).run();
        assert!(ended.code.is_some_and(|code| code != 0), "{ended}");
        let _ = ended.said("MPI_ERR_UNSUPPORTED_OPERATION").said("with redrun -r 1 without --spares and --pool only");
    }
}

#[test]
fn programs_without_redrun_can_meet_but_spawn_nothing() {
    let program = compile_case("dynamic");
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let file = directory.path().join("port");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).env("PARENTS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it can be run")
    };
    let ended = |process: Child| {
        let output = process.wait_with_output().expect("it is our child");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let name = file.display().to_string();
    let accepting = run(&["accept", &name]);
    while !file.exists() {
        std::thread::yield_now();
    }
    assert_eq!(ended(run(&["connect", &name])), (Some(0), String::new()));
    assert_eq!(ended(accepting), (Some(0), String::new()));
    let (code, said) = ended(run(&["all"]));
    assert!(code != Some(0) && said.contains("was not started by redrun"), "{code:?} {said}");
}
