//! Bits that flip in memory at rest, before a checkpoint: it is not proven, and no job goes back to it.

use crate::checkpoints::{LIMIT, checkpoint, resume, saved, store};
use redrt_tests::{Ended, Job, Random, Running, breadth, compile, compile_source};
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::FileExt;
use tempfile::TempDir;

/// Rank 1 has a table, and sends an element of it when rank 0 finds a file. The job ends when that finds another one.
const RESTING: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    static long table[10000];
    static void wait_for(int rank, const char *name) {
        for (int there = 0; !there; usleep(1000)) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%s", getenv("REDRT_TEST_DIRECTORY"), name);
            if (rank == 0)
                there = access(path, F_OK) == 0;
            MPI_Bcast(&there, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
    }
    int main(int argc, char **argv) {
        int rank;
        long value;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (int i = 0; i < 10000; i++)
            table[i] = i;
        if (rank == 1)
            printf("at %p\n", (void *)&table[5000]);
        fflush(stdout);
        wait_for(rank, "send");
        if (rank == 1) {
            printf("next %ld\n", table[5001]);
            fflush(stdout);
            MPI_Send(&table[5000], 1, MPI_LONG, 0, 7, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&value, 1, MPI_LONG, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            printf("value %ld\n", value);
            fflush(stdout);
        }
        wait_for(rank, "end");
        MPI_Finalize();
        return 0;
    }"#;

/// A running job of the program.
struct Resting {
    directory: TempDir,
    job: Running,
    address: u64,
}

impl Resting {
    fn start(degree: u16, options: &[&str]) -> Self {
        let (directory, program) = compile_source(RESTING);
        let store = directory.path().join("checkpoints").display().to_string();
        let job = Job::new(2, &program)
            .degree(degree)
            .options(&["--checkpoint", "asked", "--checkpoint-dir", &store])
            .options(options)
            .environment("REDRT_TEST_DIRECTORY", &directory.path().display().to_string())
            .limit(LIMIT)
            .start();
        job.wait_until("the address of the table", |job| job.output().contains("at 0x"));
        let output = job.output();
        let digits = output.trim().strip_prefix("at 0x").expect("it begins with the address").to_owned();
        let address = u64::from_str_radix(&digits, 16).expect("an address");
        Self { directory, job, address }
    }

    fn make(&self, name: &str) {
        std::fs::write(self.directory.path().join(name), "").expect("the directory is there");
    }

    /// Takes a checkpoint, and waits until it is proven or not.
    fn save(&self, event: &str) {
        let count = self.job.count(event);
        checkpoint(&self.job);
        self.job.wait_for(event, count + 1);
    }

    /// Flips a bit of the element that is sent, in one replica.
    fn flip(&self, replica: &str) {
        self.flip_element(replica, 5000);
    }

    fn flip_element(&self, replica: &str, number: u64) {
        let path = format!("/proc/{}/mem", self.job.pid_of(replica));
        let memory = File::options().read(true).write(true).open(path).expect("memory of a child");
        let mut bytes = [0; 8];
        let address = self.address + (number - 5000) * 8;
        memory.read_exact_at(&mut bytes, address).expect("the table is there");
        assert_eq!(u64::from_ne_bytes(bytes), number);
        memory.write_all_at(&(number ^ 1 << 20).to_ne_bytes(), address).expect("the table may be written");
    }

    fn end(self) -> Ended {
        self.make("end");
        let first = format!("at {:#x}", self.address);
        let ended = self.job.wait().ended_with(0);
        let mut lines: Vec<_> = ended.out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [&first[..], "next 5001", "value 5000"], "{ended}");
        ended
    }
}

/// Which of two replicas is wrong is not known. The job goes back to where they were alike, not to where they were last
/// saved.
#[test]
fn two_replicas_that_differ_go_back_to_what_is_proven() {
    let resting = Resting::start(2, &["--on-sdc", "return"]);
    resting.save("checkpoint-proven");
    resting.flip("1.0");
    resting.save("checkpoint-unproven");
    resting.make("send");
    let ended = resting.end();
    let back: Vec<_> = ended.events("goes-back").map(|record| record["generation"].clone()).collect();
    assert_eq!(back, [json!(1)], "{ended}");
    let _ =
        ended.said("checkpoint 2 is not proven: rank 1 was saved from replica 1.0").said("the newest that is proven");
}

/// A page is not known when a bit flips in it for the first time. It counts in all later checkpoints too.
#[test]
fn what_is_wrong_before_the_first_checkpoint_is_not_proven() {
    let resting = Resting::start(2, &["--on-sdc", "return"]);
    resting.flip("1.0");
    resting.save("checkpoint-unproven");
    resting.save("checkpoint-unproven");
    resting.make("send");
    let ended = resting.job.wait().ended_with(1).said("no checkpoint is proven to which the job could go back");
    assert!(!ended.out.contains("value"), "{ended}");
}

/// Output stops where replicas differ, and goes on after the return.
#[test]
fn output_that_differs_is_shown_as_it_is_after_the_return() {
    let resting = Resting::start(2, &["--on-sdc", "return"]);
    resting.save("checkpoint-proven");
    resting.flip_element("1.1", 5001);
    resting.make("send");
    resting.job.wait_for("went-back", 1);
    let ended = resting.end();
    assert_eq!(ended.events("goes-back").count(), 1, "{ended}");
}

/// The leader of three replicas is wrong, and is ended when it sends. A return after that does not go to the checkpoint
/// that has its memory.
#[test]
fn a_checkpoint_of_a_replica_that_was_wrong_is_passed_over() {
    let resting = Resting::start(3, &[]);
    resting.save("checkpoint-proven");
    resting.flip("1.0");
    resting.save("checkpoint-unproven");
    resting.make("send");
    resting.job.wait_for("retired", 1);
    resting.job.wait_until("the value", |job| job.output().contains("value"));
    resting.job.kill_replica("1.1");
    resting.job.wait_for("replica-lost", 2);
    resting.job.kill_replica("1.2");
    resting.job.wait_for("went-back", 1);
    let ended = resting.end();
    let back = ended.events("goes-back").next().expect("it was waited for");
    assert_eq!((&back["generation"], &back["passes_newer"]), (&json!(1), &json!(true)), "{ended}");
}

/// A follower is wrong: others have the memory that is saved.
#[test]
fn a_checkpoint_of_a_sound_replica_is_proven_beside_a_wrong_one() {
    let resting = Resting::start(3, &[]);
    resting.save("checkpoint-proven");
    resting.flip("1.2");
    resting.save("checkpoint-proven");
    resting.make("send");
    let ended = resting.end();
    assert_eq!(ended.events("checkpoint-unproven").count(), 0, "{ended}");
}

#[test]
fn without_a_proof_a_job_whose_replicas_differ_ends() {
    let resting = Resting::start(2, &["--on-sdc", "return", "--checkpoint-proof", "never"]);
    checkpoint(&resting.job);
    resting.flip("1.1");
    resting.make("send");
    resting.make("end");
    let ended = resting.job.wait().ended_with(1).said("no checkpoint is proven to which the job could go back");
    assert!(!ended.out.contains("value"), "{ended}");
}

/// A job that ends because its replicas differ is resumed from what is proven, by another `redrun`.
#[test]
fn a_job_that_has_ended_is_resumed_from_what_is_proven() {
    let resting = Resting::start(2, &["--on-sdc", "abort"]);
    resting.save("checkpoint-proven");
    resting.flip("1.0");
    resting.save("checkpoint-unproven");
    resting.make("send");
    resting.make("end");
    let Resting { directory, job, .. } = resting;
    let _ = job.wait().ended_with(1).said("the job can be resumed from checkpoint 1: newer ones are not proven");
    let ended = resume(&directory.path().join("checkpoints")).run().ended_with(0);
    let ended = ended.said("goes on from checkpoint 1");
    assert!(ended.out.contains("value 5000"), "{ended}");
}

/// One bit of a process's heap or static data flips at a drawn moment, in jobs that go back when their replicas differ.
/// Each ends aloud or right: 150 of them have found wrong answers.
#[test]
fn no_bit_that_flips_makes_a_wrong_answer() {
    let program = compile("heat");
    let arguments = ["300", "3000"];
    let expected = Job::new(2, &program).arguments(&arguments).limit(LIMIT).run().ended_well().out;
    let mut random = Random::from_environment();
    for _ in 0..breadth(4, 300) {
        let directory = store();
        let [rank, index, send, seed] = [2, 2, 4500, 1 << 30].map(|last| random.from_one_to(last));
        let job = saved(Job::new(2, &program), "0.3s", &directory).degree(2).arguments(&arguments).limit(LIMIT);
        let ended = job
            .options(&["--on-sdc", "return", "--timeout", "90", "--seed", &seed.to_string()])
            .options(&["--inject", &format!("heap:{}.{}@#{send}", rank - 1, index - 1)])
            .run();
        assert!(ended.code != Some(0) || ended.out == expected, "{ended}");
    }
}
