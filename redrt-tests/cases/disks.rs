//! Full disks and file systems that stand still, below a job's output and records.

use redrt_tests::{Disk, Job, compile, compile_source};
use std::path::Path;

/// Each rank prints this number of lines of 50 bytes once the file in its argument exists.
fn printing(line_count: u32) -> (tempfile::TempDir, std::path::PathBuf) {
    compile_source(&format!(
        r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(int argc, char **argv) {{
            int rank;
            MPI_Init(&argc, &argv);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            while (argc > 1 && access(argv[1], F_OK) != 0)
                usleep(2000);
            for (int i = 0; i < {line_count}; i++)
                printf("rank %2d says line %8d, which is no great matter\n", rank, i);
            MPI_Finalize();
            return 0;
        }}"#
    ))
}

fn expected(rank: u32, line_count: u32) -> String {
    (0..line_count).map(|i| format!("rank {rank:2} says line {i:8}, which is no great matter\n")).collect()
}

#[test]
fn a_full_disk_ends_the_job_with_exit_code_74() {
    let Some(disk) = Disk::small(64 << 10) else { return };
    let (_program, program) = printing(4_000);
    for degree in [1, 2] {
        let out = disk.path(&format!("out{degree}"));
        let job = Job::new(2, &program).degree(degree).options(&["--output-dir", &out.display().to_string()]);
        let ended = job.run().ended_with(74).said("No space left on device").said("rank.").said("ending the job");
        assert_eq!(ended.events("output-failed").count(), 1, "{ended}");
    }
}

#[test]
fn standard_output_to_a_full_disk_is_not_called_closed() {
    let (_program, program) = printing(10);
    for degree in [1, 2] {
        let job = Job::new(2, &program).degree(degree).standard_output(Path::new("/dev/full"));
        let ended = job.run().ended_with(74).said("Failed to write standard output: No space left on device");
        assert!(!ended.err.contains("closed"), "{ended}");
    }
}

#[test]
fn a_limit_of_file_sizes_ends_the_job_with_exit_code_74() {
    let (directory, program) = printing(4_000);
    let (out, go) = (directory.path().join("out"), directory.path().join("go"));
    let job = Job::new(2, &program).degree(2).options(&["--output-dir", &out.display().to_string()]);
    let job = job.arguments(&[&go.display().to_string()]).start();
    job.wait_for("started", 4);
    let limit = libc::rlimit { rlim_cur: 64 << 10, rlim_max: 64 << 10 };
    // SAFETY: - `limit` is valid for the read of one limit; no old limit is written, and the process's memory is not
    //           touched.
    let failed = unsafe { libc::prlimit(job.redrun(), libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    std::fs::write(&go, "").expect("the directory is there");
    let _ = job.wait().ended_with(74).said("File too large").said("rank.");
}

#[test]
fn with_wait_a_job_goes_on_when_there_is_room_again() {
    let Some(disk) = Disk::small(1 << 20) else { return };
    let (_program, program) = printing(2_000);
    disk.fill();
    let out = disk.path("out");
    let options = ["--on-output-error", "wait", "--output-dir", &out.display().to_string()];
    let job = Job::new(2, &program).degree(2).options(&options).start();
    job.wait_for("output-waits", 1);
    disk.make_room();
    let _ = job.wait().ended_with(0).said("No space left on device").said("can be written again");
    for rank in 0..2 {
        let text = std::fs::read_to_string(out.join(format!("rank.{rank}.out"))).expect("it was written");
        assert!(text == expected(rank, 2_000), "{} bytes", text.len());
    }
}

#[test]
fn an_audit_log_whose_file_system_stands_still_holds_nobody_up() {
    let Some(mut disk) = Disk::freezable() else { return };
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let stop = directory.path().join("stop");
    let job = Job::new(3, &compile("until")).degree(2).audit_at(&disk.path("audit"));
    let job = job.arguments(&[&stop.display().to_string()]).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    let pid = job.pid_of("1.1");
    disk.freeze();
    // SAFETY: - a signal to another process touches no memory of this one.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    job.wait_until("warning", |job| job.errors().contains("takes nothing: its file system stands still"));
    std::fs::write(&stop, "").expect("the directory is there");
    // The job computes to its end while its log cannot be written.
    job.wait_until("end", |job| job.output().contains("rank 2: right"));
    disk.thaw();
    let ended = job.wait().ended_with(0);
    assert_eq!(ended.summary["lost"], serde_json::json!(["1.1"]), "{ended}");
    assert!(ended.verified.1.contains("unchanged") && ended.events("replica-lost").count() == 1, "{ended}");
}

#[test]
fn output_files_on_a_frozen_file_system_become_whole() {
    let Some(mut disk) = Disk::freezable() else { return };
    let (directory, program) = printing(2_000);
    let (out, go) = (disk.path("out"), directory.path().join("go"));
    let job = Job::new(2, &program).degree(2).options(&["--output-dir", &out.display().to_string()]);
    let job = job.arguments(&[&go.display().to_string()]).start();
    job.wait_for("started", 4);
    disk.freeze();
    std::fs::write(&go, "").expect("the directory is there");
    job.wait_until("warning", |job| job.errors().contains("takes nothing: its file system stands still"));
    disk.thaw();
    let _ = job.wait().ended_with(0);
    for rank in 0..2 {
        let text = std::fs::read_to_string(out.join(format!("rank.{rank}.out"))).expect("it was written");
        assert!(text == expected(rank, 2_000), "{} bytes", text.len());
    }
}

#[test]
fn a_summary_on_a_frozen_file_system_is_written_in_the_end() {
    let Some(mut disk) = Disk::freezable() else { return };
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let (stop, summary) = (directory.path().join("stop"), disk.path("summary.json"));
    let job = Job::new(3, &compile("until")).degree(2).summary_at(&summary);
    let job = job.arguments(&[&stop.display().to_string()]).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    disk.freeze();
    std::fs::write(&stop, "").expect("the directory is there");
    // The job ends and reports it while its summary cannot be written.
    job.wait_until("warning", |job| job.errors().contains("summary.json takes nothing"));
    assert!(job.output().contains("rank 2: right"), "{}", job.output());
    disk.thaw();
    let ended = job.wait().ended_with(0);
    assert_eq!(ended.summary["exit_code"], 0, "{ended}");
}
