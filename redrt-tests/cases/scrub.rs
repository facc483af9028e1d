//! `--scrub` names corrupt memory before any message carries it, and reports no sound memory.

use redrt_tests::{Ended, Job, Program, Random, Running, breadth, compile_source};
use serde_json::Value;
use std::time::Duration;
use tempfile::TempDir;

/// Ranks 1 and 2 reduce again and again until rank 0, which waits for a file, tells them to stop. Once another file is
/// there, the first replica of rank 1 to see it changes a bit that it never sends.
const RESTING: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    #define COUNT 100000
    /* Of the heap's first page the C library has made something else in each process; larger blocks may lie elsewhere in some. */
    #define SMALL 10000
    static long table[COUNT];
    /* Replicas ask for files at different times, so what they ask for is kept on the stack, which is not compared. */
    static char *file(char path[4096], const char *name) {
        snprintf(path, 4096, "%s/%s", getenv("REDRT_TEST_DIRECTORY"), name);
        return path;
    }
    int main(int argc, char **argv) {
        int rank, stop = 0, tried = 0;
        char path[4096];
        MPI_Comm workers;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        long *block = malloc(SMALL * sizeof *block), *small = malloc(SMALL * sizeof *small);
        for (int i = 0; i < COUNT; i++)
            table[i] = i * 7 + rank;
        for (int i = 0; i < SMALL; i++)
            small[i] = block[i] = i;
        /* Bound by the dynamic linker now, and not at another time in each replica: its tables are compared. */
        int is_first = symlink("x", file(path, "early")) == 0;
        MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &workers);
        if (rank == 0) {
            while (access(file(path, "stop"), F_OK) != 0)
                usleep(2000);
            MPI_Send(&stop, 1, MPI_INT, 1, 9, MPI_COMM_WORLD);
        }
        while (rank != 0 && !stop) {
            long one = 1, sum;
            MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, workers);
            table[sum] += 1;
            if (rank == 1)
                MPI_Iprobe(0, 9, MPI_COMM_WORLD, &stop, MPI_STATUS_IGNORE);
            MPI_Bcast(&stop, 1, MPI_INT, 0, workers);
            if (rank == 1 && !tried && access(file(path, "corrupt"), F_OK) == 0) {
                tried = 1;
                is_first = symlink("x", file(path, "first")) == 0;
                if (is_first)
                    WHERE ^= 1 << 7;
            }
        }
        if (rank == 1)
            MPI_Recv(&stop, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            printf("done %ld\n", small[9] - 9);
        MPI_Finalize();
        return 0;
    }"#;

/// A running job of the program.
struct Resting {
    directory: TempDir,
    job: Running,
}

impl Resting {
    fn start(degree: u16, place: &str) -> Self {
        Self::start_with(degree, place, &[])
    }

    fn start_with(degree: u16, place: &str, options: &[&str]) -> Self {
        let (directory, program) = compile_source(&RESTING.replace("WHERE", place));
        // Each replica makes the link itself, so that only one of them is the first.
        let job = Job::new(3, &program)
            .degree(degree)
            .options(&["--scrub", "0.05", "--files", "all"])
            .options(options)
            .limit(Duration::from_secs(120));
        let job = job.environment("REDRT_TEST_DIRECTORY", &directory.path().display().to_string()).start();
        Self { directory, job }
    }

    fn make(&self, name: &str) {
        std::fs::write(self.directory.path().join(name), "").expect("the directory is there");
    }

    fn wait_until(&self, what: &str, is_it: impl Fn(&Value) -> bool) {
        self.job.wait_until(what, |job| job.audit().iter().any(&is_it));
    }

    fn end(self) -> Ended {
        self.make("stop");
        self.job.wait().ended_with(0).printed("done 0\n")
    }
}

/// More pages than one rank has, so both ranks' pages have been compared.
fn is_watched(record: &Value) -> bool {
    record["pages_watched"].as_u64() >= Some(400)
}

/// Changes a bit of `place` once all memory has been compared.
fn corrupt(degree: u16, place: &str) -> Ended {
    let resting = Resting::start(degree, place);
    resting.wait_until("rounds", is_watched);
    resting.make("corrupt");
    resting.wait_until("difference", |record| record["event"] == "memory-differs");
    resting.end()
}

#[test]
fn a_corrupt_page_is_named_before_a_message_carries_it() {
    for place in ["block[5000]", "table[90000]", "small[5000]"] {
        let ended = corrupt(3, place);
        let is_it = |found: &&Value| {
            let counts = [&found["pages"], &found["outvoted"]].map(|list| list.as_array().map_or(0, Vec::len));
            found["rank"] == 1 && counts == [1, 1]
        };
        assert!(ended.events("memory-differs").any(|found| is_it(&found)), "{ended}");
        assert!(ended.retired().is_empty() && ended.mismatches().is_empty(), "{ended}");
    }
}

#[test]
fn of_two_replicas_nobody_is_outvoted_and_the_page_is_named() {
    let ended = corrupt(2, "block[5000]");
    let mut found = ended.events("memory-differs");
    assert!(found.all(|found| found["outvoted"].as_array().is_some_and(Vec::is_empty)), "{ended}");
    assert!(ended.retired().is_empty(), "{ended}");
}

/// The gate takes one of this many programs and degrees.
const GATE_STRIDE: usize = 16;

#[test]
fn sound_replicas_are_left_alone() {
    let all = || Program::ALL.into_iter().flat_map(|program| [(program, 2), (program, 3)]);
    // The gate takes some, drawn from the seed: comparing all memory two hundred times a second takes long.
    let first = Random::from_environment().from_one_to(GATE_STRIDE as u64) as usize - 1;
    for (program, degree) in all().skip(breadth(first, 0)).step_by(breadth(GATE_STRIDE, 1)) {
        let options = ["--scrub", breadth("0.05", "0.005")];
        let job = Job::of(&program).degree(degree).options(&options).limit(Duration::from_secs(180));
        let ended = job.run().ended_well();
        assert!(ended.retired().is_empty() && ended.mismatches().is_empty(), "{ended}");
    }
    let resting = Resting::start(3, "small[0]");
    resting.wait_until("rounds", |record| is_watched(record) && record["comparisons"].as_u64() >= Some(20));
    let ended = resting.end();
    assert!(ended.retired().is_empty() && ended.mismatches().is_empty(), "{ended}");
}

/// One of three replicas is corrupt at rest, and another one dies: the third is copied.
#[test]
fn a_replica_whose_memory_no_other_has_is_not_copied() {
    let resting = Resting::start_with(3, "block[5000]", &["--spares", "1"]);
    resting.wait_until("rounds", is_watched);
    resting.make("corrupt");
    resting.wait_until("difference", |record| record["event"] == "memory-differs");
    let audit = resting.job.audit();
    let found = audit.iter().find(|record| record["event"] == "memory-differs").expect("it was just there");
    let corrupt =
        found["outvoted"][0]["replica"].as_str().unwrap_or_else(|| panic!("of three, one is outvoted: {found}"));
    // The leader is copied only if no other replica can be, so the corrupt one would be the source.
    let killed = if corrupt == "1.1" { "1.2" } else { "1.1" };
    let sound = ["1.0", "1.1", "1.2"].into_iter().find(|one| *one != corrupt && *one != killed).expect("one is left");
    resting.job.kill_replica(killed);
    resting.wait_until("recovery", |record| record["event"] == "recovered");
    let ended = resting.end();
    let recovered = ended.events("recovered").next().expect("it was waited for");
    assert_eq!((&recovered["replica"], &recovered["source"]), (&killed.into(), &sound.into()), "{ended}");
    assert_eq!(ended.events("copy-unproven").count(), 0, "{ended}");
}
