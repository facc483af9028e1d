//! Files: data that is written once must be there once, also when any replica dies in the midst of it.

use redrt_tests::{Job, Program, Random, breadth, compile_case, compile_source};

#[test]
fn files_are_right_after_any_loss() {
    for name in ["files", "datareps"] {
        right_after_any_loss(Program::named(name).expect("a test program"));
    }
}

/// Kills the replica that writes, and one that does not, before each of many sends.
fn right_after_any_loss(program: Program) {
    let alone = Job::of(&program).run().ended_well();
    let mut random = Random::from_environment();
    for (transport, degree) in [("shm", 2), ("tcp", 2), ("shm", 3)] {
        for rank in (0..program.rank_count).step_by(breadth(3, 1)) {
            for replica in ["0", "1"] {
                // Each rank sends more than 100 messages.
                let send = random.from_one_to(100);
                let job = Job::of(&program).degree(degree).transport(transport);
                let ended =
                    job.inject(&format!("kill:{rank}.{replica}@#{send}")).run().ended_well().printed(&alone.out);
                let lost = ended.summary["lost"].as_array().map_or(0, Vec::len);
                if lost != 1 || ended.number("divergences") != 0 {
                    ended.fail(&format!("{lost} replicas lost instead of one, or paths parted"));
                }
            }
        }
    }
}

/// The leader of each rank is killed, and then its successor.
#[test]
fn files_are_right_when_writer_after_writer_dies() {
    let program = Program::named("files").expect("a test program");
    let alone = Job::of(&program).run().ended_well();
    for (first, second) in [(3, 9), (40, 41), (70, 90)] {
        let job = Job::of(&program).degree(3);
        let job = (0..3).fold(job, |job, rank| job.inject(&format!("kill:{rank}.0@#{first}")));
        let ended = job.inject(&format!("kill:1.1@#{second}")).run().ended_well().printed(&alone.out);
        let lost = ended.summary["lost"].as_array().map_or(0, Vec::len);
        if lost != 4 {
            ended.fail(&format!("{lost} replicas lost instead of four"));
        }
    }
}

/// Two ranks count in one file. Leaders die after a lock, write or unlock that no sibling knows of yet, before a send,
/// and one after the other.
#[test]
fn what_is_counted_under_a_lock_is_right_whoever_dies() {
    let (program, mut random) = (compile_case("locked"), Random::from_environment());
    let directory = tempfile::tempdir().expect("a directory for the file");
    for which in ["fcntl", "lockf", "flock", "ofd"] {
        for faults in [&[][..], &["file#"], &["#"], &["file#", "file#"]] {
            let degree = faults.len() as u16 + 1;
            let file = directory.path().join(format!("{which}-{degree}")).display().to_string();
            let job = Job::new(2, &program).degree(degree).arguments(&[&file, which, "40"]);
            let job = faults.iter().zip(0..).fold(job, |job, (what, index)| {
                job.inject(&format!("kill:0.{index}@{what}{}", random.from_one_to(35)))
            });
            let ended = job.run().ended_well();
            assert_eq!(ended.out.lines().last(), Some("80"), "{which}, {faults:?}: {ended}");
            std::fs::remove_file(&file).expect("the program has made it");
        }
    }
}

/// Each replica reads the processor's own counter, which is not agreed on.
#[test]
fn replicas_that_would_write_other_bytes_are_reported() {
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <x86intrin.h>
        int main(int argc, char **argv) {
            MPI_File file;
            MPI_Init(&argc, &argv);
            unsigned long long count = __rdtsc(), found = 0;
            MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
            MPI_File_write_at(file, 0, &count, 8, MPI_BYTE, MPI_STATUS_IGNORE);
            MPI_File_read_at(file, 0, &found, 8, MPI_BYTE, MPI_STATUS_IGNORE);
            MPI_File_close(&file);
            printf("%llu\n", found);
            MPI_Finalize();
            return 0;
        }"#;
    let (directory, program) = compile_source(source);
    let file = directory.path().join("file");
    let ended = Job::new(1, &program).degree(2).arguments(&[&file.display().to_string()]).run();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.number("divergences") > 0 && ended.err.contains("would write different bytes"), "{ended}");
    // All read the bytes of one replica, so they print the same.
    let bytes = std::fs::read(&file).expect("the program has written it");
    let count = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    assert_eq!(ended.out, format!("{count}\n"), "{ended}");
}
