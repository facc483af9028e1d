//! The test programs with faults: a sample of the jobs of `scripts/kill-campaign.sh` and `scripts/flip-campaign.sh`,
//! and losses that come together.

use redrt_tests::campaign::{FaultKind, Plan};
use redrt_tests::{Job, Program, Random, breadth, compile_source};
use std::time::Duration;

fn plan(kinds: &[FaultKind], sample: usize) -> Plan {
    Plan {
        kinds: kinds.to_vec(),
        programs: Program::ALL.to_vec(),
        degrees: vec![2, 3],
        transports: vec!["shm".into(), "tcp".into()],
        options: Vec::new(),
        moment_count: 20,
        seed: Random::from_environment().draw(),
        sample: Some(sample),
        parallel: 1,
        // The longest program takes 18 s beside others on two processors.
        limit: Duration::from_secs(90),
    }
}

#[test]
fn a_killed_replica_changes_nothing() {
    plan(&[FaultKind::Kill, FaultKind::Kill, FaultKind::KillAtTime, FaultKind::Kill], breadth(4, 80))
        .run(&|_, _| {})
        .assert_right();
}

/// A part of `scripts/chaos-conformance.sh --spare`, drawn from the seed.
#[test]
fn conformance_tests_survive_a_loss_while_a_copy_is_made() {
    let part = breadth(16, 3);
    let first = Random::from_environment().draw() as usize % part;
    let programs = Program::CONFORMANCE.into_iter().skip(first).step_by(part).collect();
    let options = ["--spares", "1"].map(String::from).to_vec();
    let plan =
        Plan { programs, options, degrees: vec![2], transports: vec!["shm".into()], ..plan(&[FaultKind::Kill], 5) };
    plan.run(&|_, _| {}).assert_right();
}

#[test]
fn every_flip_is_reported_against_its_replica() {
    plan(&[FaultKind::Flip, FaultKind::Wire], breadth(5, 60)).run(&|_, _| {}).assert_right();
}

#[test]
fn a_reset_connection_costs_nobody() {
    let plan = Plan { transports: vec!["tcp".into()], ..plan(&[FaultKind::Reset], breadth(3, 40)) };
    plan.run(&|_, _| {}).assert_right();
    for options in [["--protocol", "all-to-all"], ["--verify", "deferred"]] {
        let options = options.into_iter().map(String::from).collect();
        // Windows, and shared file pointers, which are kept in one, need verdicts before the program goes on.
        let with_windows = ["onesided", "files", "datareps", "places", "fortran_f08", "fortran_mpi"];
        let has_windows = |program: &Program| with_windows.contains(&program.name);
        let programs = Program::ALL.into_iter().filter(|program| !has_windows(program)).collect();
        let plan = Plan { options, programs, sample: Some(breadth(1, 12)), ..plan.clone() };
        plan.run(&|_, _| {}).assert_right();
    }
}

/// The last part of a partitioned message sends it, by a thread that holds the engine already.
#[test]
fn a_connection_reset_by_the_last_partition_costs_nobody() {
    let program = Program::named("partitions").expect("a test program");
    let alone = Job::of(&program).run().ended_well();
    let job = Job::of(&program).degree(2).transport("tcp").inject("reset:2.1-1.1@#71");
    let ended = job.run().ended_well().printed(&alone.out);
    if !ended.err.contains("injected reset of the connections with 1.1 at send 71") {
        ended.fail("the connection was not reset");
    }
}

#[test]
fn other_protocols_survive_kills_and_see_flips() {
    let options = [["--protocol", "all-to-all"], ["--verify", "deferred"]];
    for options in options {
        let options: Vec<_> = options.into_iter().map(String::from).collect();
        let programs: Vec<_> = ["heat", "polling"].into_iter().filter_map(Program::named).collect();
        for kinds in [[FaultKind::Kill, FaultKind::Kill], [FaultKind::Flip, FaultKind::Flip]] {
            let plan = Plan { options: options.clone(), programs: programs.clone(), ..plan(&kinds, breadth(2, 16)) };
            plan.run(&|_, _| {}).assert_right();
        }
    }
}

/// Runs a program with several faults at once. Its output must be that of an undisturbed run.
#[track_caller]
fn survives(name: &str, degree: u16, faults: &[String]) {
    let program = Program::named(name).expect("a test program");
    let alone = Job::of(&program).run().ended_well();
    for transport in ["shm", "tcp"] {
        let job = Job::of(&program).degree(degree).transport(transport);
        let job = faults.iter().fold(job, |job, fault| job.inject(fault));
        let ended = job.run().ended_well().printed(&alone.out);
        let lost = ended.summary["lost"].as_array().map_or(0, Vec::len);
        if lost != faults.len() {
            ended.fail(&format!("{lost} replicas lost instead of {}", faults.len()));
        }
    }
}

#[test]
fn leader_and_next_leader_are_killed() {
    // The sends of rank 0 of master_worker follow its wildcard receives, which its leader decides.
    for (first, second) in [(3, 4), (5, 5), (2, 20)] {
        survives("master_worker", 3, &[format!("kill:0.0@#{first}"), format!("kill:0.1@#{second}")]);
        survives("polling", 3, &[format!("kill:1.0@#{first}"), format!("kill:1.1@#{second}")]);
    }
}

#[test]
fn replicas_of_two_spheres_are_killed_at_once() {
    for send in breadth(&[9][..], &[1, 9, 40]) {
        survives("heat", 2, &[format!("kill:0.0@#{send}"), format!("kill:1.1@#{send}")]);
        survives("heat", 2, &[format!("kill:2.1@#{send}"), format!("kill:3.1@#{send}")]);
        survives("collectives", 2, &[format!("kill:0.1@#{send}"), format!("kill:2.0@#{send}")]);
    }
}

#[test]
fn a_replica_is_killed_while_another_loss_is_being_made_good() {
    // Large messages: resent payloads are still on their way when the next replica dies.
    let mut random = Random::from_environment();
    for _ in 0..breadth(1, 4) {
        let send = random.from_one_to(6);
        survives("ring", 3, &[format!("kill:0.0@#{send}"), format!("kill:1.0@#{}", send + 1)]);
        survives("ring", 3, &[format!("kill:1.1@#{send}"), format!("kill:1.2@#{}", send + 1)]);
    }
}

#[test]
fn all_replicas_but_one_of_every_rank_are_killed() {
    let faults: Vec<_> = (0..4).flat_map(|rank| [(rank, 0), (rank, 2)]).collect();
    let faults: Vec<_> =
        faults.iter().map(|(rank, replica)| format!("kill:{rank}.{replica}@#{}", 5 + rank * 7)).collect();
    survives("heat", 3, &faults);
}

/// One rank sends ten messages, the last of them without a payload.
const TEN_SENDS: &str = r#"
    #include <mpi.h>
    int main(int argc, char **argv) {
        int rank, number = 0;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (int i = 1; i <= 10; i++) {
            if (rank == 0)
                MPI_Send(&number, i < 10, MPI_INT, 1, 0, MPI_COMM_WORLD);
            else
                MPI_Recv(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Finalize();
        return 0;
    }"#;

#[test]
fn a_fault_that_was_not_injected_is_reported() {
    let (_directory, program) = compile_source(TEN_SENDS);
    for fault in ["flip:0.0@#10", "kill:0.0@#20", "kill:0.1@600s", "stdout:1.0@#1", "wire:1.0@#1"] {
        let job = |options: &[&str]| Job::new(2, &program).degree(2).options(options).inject(fault).run();
        let ended = job(&[]).ended_with(0).said(&format!("{fault} was not injected"));
        assert_eq!(ended.summary["not_injected"], serde_json::json!([fault]), "{ended}");
        assert!(ended.err.contains(&format!("not injected: {fault}")), "{ended}");
        assert!(ended.events("not-injected").all(|record| record["fault"] == fault), "{ended}");
        assert_eq!(ended.events("not-injected").count(), 1, "{ended}");
        let _ = job(&["--inject-required"]).ended_with(1).said(&format!("{fault} was not injected"));
    }
    let job = Job::new(2, &program).degree(2).options(&["--inject-required"]).inject("kill:0.1@#5").run();
    let ended = job.ended_with(0);
    assert_eq!(ended.summary["not_injected"], serde_json::json!([]), "{ended}");
}
