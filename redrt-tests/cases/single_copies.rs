//! Data that exists once: bytes that a leader has read, its decisions, the pages of a clone. A flip there is found.

use redrt_tests::{Ended, Job, Running, compile, compile_source};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Reads a file in pieces, by POSIX or by MPI-IO, and prints a sum of its bytes.
const READING: &str = r#"
    #include <fcntl.h>
    #include <mpi.h>
    #include <stdio.h>
    #include <string.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        static unsigned char piece[5000];
        long sum = 0, count = 0;
        int rank, length;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (rank == 0 && strcmp(argv[2], "posix") == 0) {
            int fd = open(argv[1], O_RDONLY);
            while ((length = read(fd, piece, sizeof piece)) > 0)
                for (int i = 0; i < length; i++)
                    sum += ++count * piece[i];
            close(fd);
        } else if (rank == 0) {
            MPI_File file;
            MPI_Status status;
            MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
            do {
                MPI_File_read(file, piece, sizeof piece, MPI_BYTE, &status);
                MPI_Get_count(&status, MPI_BYTE, &length);
                for (int i = 0; i < length; i++)
                    sum += ++count * piece[i];
            } while (length > 0);
            MPI_File_close(&file);
        }
        MPI_Bcast(&sum, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (rank == 1)
            printf("%ld\n", sum);
        MPI_Finalize();
        return 0;
    }"#;

/// A file that has not changed for a while, by its time of change.
fn settled_file(directory: &Path) -> String {
    let path = directory.join("input");
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(&path, bytes).expect("the directory is there");
    let changed = std::fs::metadata(&path).and_then(|facts| facts.modified()).expect("it was written");
    // The test waits for the file's age, and not for another process.
    while SystemTime::now().duration_since(changed).unwrap_or_default() < Duration::from_millis(2100) {
        std::thread::sleep(Duration::from_millis(20));
    }
    path.display().to_string()
}

#[test]
fn a_flip_in_a_leaders_read_is_reported_if_siblings_read_too() {
    let (directory, program) = compile_source(READING);
    let path = settled_file(directory.path());
    for kind in ["posix", "mpi"] {
        let job = || Job::new(2, &program).arguments(&[&path, kind]);
        let alone = job().run().ended_well();
        for degree in [2, 3] {
            let sound = job().degree(degree).options(&["--verify-reads"]).run().ended_well().printed(&alone.out);
            assert_eq!(sound.number("divergences"), 0, "{sound}");
            let wrong = job().degree(degree).options(&["--verify-reads"]).inject("read:0.0@#3").run();
            assert_eq!(wrong.number("injected"), 1, "{wrong}");
            assert_eq!(wrong.number("divergences"), u64::from(degree) - 1, "{wrong}");
            let _ = wrong.said("reads other bytes").said("input");
            // Without the option a flip cannot be noticed.
            let silent = job().degree(degree).inject("read:0.0@#3").run().ended_with(0);
            assert!(silent.number("divergences") == 0 && silent.out != alone.out, "{silent}");
        }
    }
}

/// A rank that is asked for the sources of its receives, so that its leader decides a lot.
fn deciding(fault: &str, degree: u16, transport: &str) -> Ended {
    Job::new(3, &compile("master_worker")).degree(degree).transport(transport).inject(fault).run()
}

#[test]
fn a_flip_in_a_decision_frame_is_refused_and_changes_nothing() {
    for transport in ["shm", "tcp"] {
        for degree in [2, 3] {
            let alone = Job::new(3, &compile("master_worker")).run().ended_well();
            let ended = deciding("decision:0.0@#2", degree, transport).ended_with(0).printed(&alone.out);
            assert_eq!(ended.number("injected"), 1, "{ended}");
            let ended = ended.said("does not fit its checksum");
            assert_eq!(ended.events("refused").count(), 1, "{ended}");
        }
    }
}

/// Kills a replica and waits until a copy is there.
fn lose(job: &Running, replica: &str) {
    job.kill_replica(replica);
    job.wait_for("recovered", 1);
}

#[test]
fn a_flip_in_a_page_of_a_clone_makes_another_clone() {
    let job = Job::new(3, &compile("until")).degree(2).options(&["--spares", "1", "--verify-clones"]);
    let ended = crate::disturbed(job.inject("clone:1.0@#1"), |job| lose(job, "1.1"));
    assert_eq!((ended.number("recovered"), ended.number("injected")), (1, 1), "{ended}");
    let _ = ended.said("hashes to");
}
