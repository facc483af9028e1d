//! POSIX files: a replicated program leaves the same files as a run alone, whichever replica dies.

use redrt_tests::{Ended, Job, Random, compile, compile_case, compile_source, prefix};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Contents of every file below a directory. Lines appended by several ranks are sorted.
pub fn content(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("the directory is there") {
        let path = entry.expect("it can be read").path();
        let name = path.strip_prefix(directory).expect("it is in there").display().to_string();
        if path.is_dir() {
            files.extend(content(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
            continue;
        }
        let mut bytes = fs::read(&path).expect("the file is there");
        if name == "all.log" {
            let mut lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            lines.sort_unstable();
            bytes = lines.concat();
        }
        files.insert(name, bytes);
    }
    files
}

/// Runs a job in a new directory, the program's last argument, and returns the files that it leaves there.
fn run(job: Job) -> (Ended, BTreeMap<String, Vec<u8>>) {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let ended = job.arguments(&[&directory.path().display().to_string()]).run();
    (ended, content(directory.path()))
}

/// Runs the test program, which must leave the files of a run alone.
fn check(rounds: &str, job: impl Fn(Job) -> Job, alone: &(Ended, BTreeMap<String, Vec<u8>>)) -> Ended {
    let (ended, files) = run(job(Job::new(3, &compile("posix"))).arguments(&[rounds]));
    let ended = ended.ended_well().printed(&alone.0.out);
    if files != alone.1 {
        ended.fail("other files than alone");
    }
    if ended.number("divergences") != 0 {
        ended.fail("paths parted");
    }
    ended
}

fn alone(rounds: &str) -> (Ended, BTreeMap<String, Vec<u8>>) {
    let (ended, files) = run(Job::new(3, &compile("posix")).arguments(&[rounds]));
    (ended.ended_well(), files)
}

fn lost(ended: &Ended) -> usize {
    ended.summary["lost"].as_array().map_or(0, Vec::len)
}

#[test]
fn files_are_what_they_are_alone() {
    let alone = alone("2");
    for (degree, transport) in [(2, "shm"), (2, "tcp"), (3, "shm")] {
        check("2", |job| job.degree(degree).transport(transport), &alone);
    }
}

/// The leader dies after a change that no sibling knows of: each of its changes is made once.
#[test]
fn what_a_dying_leader_has_done_is_not_done_twice() {
    let alone = alone("1");
    let mut random = Random::from_environment();
    // Each rank makes more than 70 changes in a round.
    for part in 0..7 {
        let change = part * 10 + random.from_one_to(10);
        let fault = format!("kill:{}.0@file#{change}", random.from_one_to(3) - 1);
        let ended = check("1", |job| job.degree(2).inject(&fault), &alone);
        if lost(&ended) != 1 {
            ended.fail(&format!("nobody made change {change}"));
        }
    }
}

#[test]
fn files_are_right_when_writer_after_writer_dies() {
    let alone = alone("1");
    let mut random = Random::from_environment();
    for _ in 0..3 {
        let mut change = || random.from_one_to(40);
        let faults = (0..3).flat_map(|rank| [(rank, 0, change()), (rank, 1, change())]).collect::<Vec<_>>();
        let job = |job: Job| {
            let inject = |job: Job, fault: &(i32, i32, u64)| {
                job.inject(&format!("kill:{}.{}@file#{}", fault.0, fault.1, fault.2))
            };
            faults.iter().fold(job.degree(3), inject)
        };
        let ended = check("1", job, &alone);
        if lost(&ended) != 6 {
            ended.fail("six replicas should have been lost");
        }
    }
}

#[test]
fn followers_may_die_at_any_time_too() {
    let alone = alone("1");
    let mut random = Random::from_environment();
    for (degree, transport) in [(2, "shm"), (3, "tcp")] {
        for _ in 0..3 {
            let (rank, send) = (random.from_one_to(3) - 1, random.from_one_to(20));
            let fault = format!("kill:{rank}.1@#{send}");
            check("1", |job| job.degree(degree).transport(transport).inject(&fault), &alone);
        }
    }
}

/// A process with open files is copied; the copy goes on with them after its source is gone too.
#[test]
fn copies_go_on_with_open_files() {
    let program = compile("posix");
    let directories = [(); 3].map(|()| tempfile::tempdir().expect("the temporary directory can be written"));
    let [alone, replicated, signal] = directories.each_ref().map(|directory| directory.path().join("files"));
    let job = |files: &Path| {
        fs::create_dir(files).expect("a new directory");
        Job::new(3, &program).arguments(&["2", &files.display().to_string(), &signal.display().to_string()])
    };
    let running = job(&replicated).degree(2).options(&["--spares", "1"]).limit(Duration::from_secs(120)).start();
    running.wait_until("waiting", |running| running.output().contains("waiting"));
    for (count, replica) in ["0.0", "0.1", "1.1", "2.0", "2.1"].into_iter().enumerate() {
        running.kill_replica(replica);
        running.wait_for("recovered", count + 1);
    }
    fs::write(&signal, "").expect("the directory is there");
    let ended = running.wait().ended_well();
    assert_eq!((lost(&ended), ended.number("divergences")), (5, 0), "{ended}");
    let undisturbed = job(&alone).run().ended_well();
    assert_eq!((&ended.out, content(&replicated)), (&undisturbed.out, content(&alone)), "{ended}");
}

#[test]
fn fortran_files_are_what_they_are_alone() {
    let program = compile_case("writing");
    let (alone, files) = run(Job::new(2, &program));
    let alone = alone.ended_well();
    assert!(alone.out.starts_with("lines 4"), "{alone}");
    for fault in [None, Some("kill:1.0@file#3"), Some("kill:0.0@file#8"), Some("kill:0.0@#2")] {
        let job = Job::new(2, &program).degree(2);
        let (ended, found) = run(match fault {
            Some(fault) => job.inject(fault),
            None => job,
        });
        let ended = ended.ended_well().printed(&alone.out);
        assert_eq!((lost(&ended), &found), (usize::from(fault.is_some()), &files), "{ended}");
    }
}

/// Two functions by ctypes: no MPI for Python is needed.
const PYTHON: &str = r#"
import ctypes, json, os, shutil, sys, tempfile
mpi = ctypes.CDLL(sys.argv[1] + "/lib/libmpi_abi.so.1", ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
folder = sys.argv[2]
os.makedirs(folder + "/a/b", exist_ok=True)
for step in range(5):
    with open(folder + "/log.txt", "a") as log:
        print("step", step, file=log)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        json.dump({"step": step, "values": list(range(2000))}, file)
    os.replace(file.name, folder + "/a/state.json")
    shutil.copy(folder + "/a/state.json", folder + f"/a/b/{step}.json")
    if os.path.exists(folder + "/a/b/old.json"):
        os.remove(folder + "/a/b/old.json")
    os.rename(folder + f"/a/b/{step}.json", folder + "/a/b/old.json")
with open(folder + "/a/state.json") as file:
    print(json.load(file)["step"], os.path.getsize(folder + "/log.txt"))
mpi.MPI_Finalize()
"#;

#[test]
fn python_files_are_what_they_are_alone() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let script = directory.path().join("files.py");
    fs::write(&script, PYTHON).expect("the directory is there");
    let words = [script.display().to_string(), prefix().display().to_string()];
    let job = || Job::new(1, Path::new("python3")).arguments(&words.each_ref().map(String::as_str));
    let (alone, files) = run(job());
    let alone = alone.ended_well();
    assert_eq!(alone.out, "4 35\n");
    for change in [None, Some(4), Some(17), Some(31)] {
        let job = job().degree(2);
        let (ended, found) = run(match change {
            Some(change) => job.inject(&format!("kill:0.0@file#{change}")),
            None => job,
        });
        let ended = ended.ended_well().printed(&alone.out);
        assert_eq!((lost(&ended), &found), (usize::from(change.is_some()), &files), "{ended}");
    }
}

/// Files opened before `MPI_Init` and written after it; buffers that `exit` writes; writes after `MPI_Finalize`.
const EARLY_AND_LATE: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    static FILE *opened(const char *folder, const char *name, const char *mode) {
        char path[1000];
        snprintf(path, sizeof path, "%s/%s", folder, name);
        FILE *file = fopen(path, mode);
        if (!file)
            exit(1);
        return file;
    }
    int main(int argc, char **argv) {
        FILE *early = opened(argv[1], "early", "a"), *late, *kept;
        MPI_Init(&argc, &argv);
        kept = opened(argv[1], "kept", "w");
        for (int k = 0; k < 100; k++)
            fprintf(early, "early %d\n", k);
        fclose(early);
        fprintf(kept, "before\n");
        MPI_Finalize();
        fprintf(kept, "after\n");
        late = opened(argv[1], "late", "a");
        fprintf(late, "late\n");
        fclose(late);
        return 0;
    }"#;

#[test]
fn what_is_written_before_and_after_mpi_is_there_once() {
    let (_directory, program) = compile_source(EARLY_AND_LATE);
    let (alone, files) = run(Job::new(1, &program));
    let _ = alone.ended_well();
    assert_eq!((files["kept"].as_slice(), files["late"].as_slice()), (&b"before\nafter\n"[..], &b"late\n"[..]));
    for degree in [2, 3] {
        let (ended, found) = run(Job::new(1, &program).degree(degree));
        assert_eq!(found, files, "{}", ended.ended_well());
    }
}

#[test]
fn all_replicas_write_if_that_is_asked_for() {
    let source = r#"
        #include <fcntl.h>
        #include <mpi.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            char path[1000];
            MPI_Init(&argc, &argv);
            snprintf(path, sizeof path, "%s/log", argv[1]);
            int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
            if (write(fd, "line\n", 5) != 5)
                return 1;
            close(fd);
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = compile_source(source);
    for (files, lines) in [("all", 2), ("once", 1)] {
        let (ended, found) = run(Job::new(1, &program).degree(2).options(&["--files", files]));
        assert_eq!(found["log"], b"line\n".repeat(lines), "{}", ended.ended_well());
    }
}

#[test]
fn a_program_that_would_write_other_bytes_is_reported() {
    let source = r#"
        #include <mpi.h>
        #include <stdio.h>
        #include <x86intrin.h>
        int main(int argc, char **argv) {
            char path[1000];
            MPI_Init(&argc, &argv);
            snprintf(path, sizeof path, "%s/count", argv[1]);
            FILE *file = fopen(path, "w");
            fprintf(file, "%020llu\n", (unsigned long long)__rdtsc());
            fclose(file);
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = compile_source(source);
    let (ended, found) = run(Job::new(1, &program).degree(2));
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.number("divergences") > 0 && ended.err.contains("would write different bytes"), "{ended}");
    assert_eq!(found["count"].len(), 21, "{ended}");
}

#[test]
fn memory_that_is_written_to_a_file_by_all_is_said_to_be() {
    let source = r#"
        #include <fcntl.h>
        #include <mpi.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            char path[1000];
            MPI_Init(&argc, &argv);
            snprintf(path, sizeof path, "%s/mapped", argv[1]);
            int fd = open(path, O_RDWR | O_CREAT, 0600);
            if (ftruncate(fd, 4096))
                return 1;
            char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (memory == MAP_FAILED)
                return 2;
            memset(memory, 'x', 4096);
            munmap(memory, 4096);
            close(fd);
            MPI_Finalize();
            return 0;
        }"#;
    let (_directory, program) = compile_source(source);
    let (ended, found) = run(Job::new(1, &program).degree(2));
    let ended = ended.ended_well();
    assert_eq!(found["mapped"], [b'x'; 4096]);
    assert!(ended.err.contains("through mapped memory is written by every replica"), "{ended}");
}

/// Programs of distributions are hardened: compilers call functions that check the size of the buffer.
#[test]
fn files_agree_by_other_names_of_the_functions() {
    let alone = run(Job::new(2, &compile_case("hardened")));
    let alone = (alone.0.ended_well(), alone.1);
    let text = "rank 0: 0 round rankrou, ";
    assert!(alone.0.out.contains(text), "{}", alone.0);
    for transport in ["shm", "tcp"] {
        let (ended, files) = run(Job::new(2, &compile_case("hardened")).degree(3).transport(transport));
        let ended = ended.ended_well().printed(&alone.0.out);
        assert_eq!(ended.events("mismatch").count(), 0, "{ended}");
        assert_eq!(ended.number("divergences"), 0, "{ended}");
        assert!(files == alone.1, "{ended}");
    }
}

/// Of all functions that make names: `mkstemp` and its kin, and those that leave it to the program to open the file.
#[test]
fn names_of_temporary_files_agree() {
    let source = r#"
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    char made[] = "/tmp/redrt-made-XXXXXX", named[] = "/tmp/redrt-named-XXXXXX", wrong[] = "/tmp/XXX", room[L_tmpnam];
    int fd = mkstemp(made);
    unlink(made);
    close(fd);
    char *others[] = {made, mktemp(named), tmpnam(NULL), tmpnam(room), tempnam("/nonexistent", "prefix"), mktemp(wrong)};
    char all[400] = "", heard[400];
    for (int i = 0; i < 6; i++) strcat(strcat(all, others[i] ? others[i] : "nothing"), " ");
    for (int i = 1; i < 5; i++)
        if (!others[i] || strlen(others[i]) < 10 || access(others[i], F_OK) == 0) return 1;
    MPI_Sendrecv(all, sizeof all, MPI_CHAR, 0, 0, heard, sizeof heard, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("%s\n", all);
    return MPI_Finalize();
}
"#;
    let (_directory, program) = compile_source(source);
    let ended = Job::new(1, &program).degree(3).environment("TMPDIR", "/var/tmp").run().ended_well();
    assert!(ended.out.contains(" /var/tmp/prefi"), "{ended}");
    assert_eq!((ended.number("mismatches"), ended.events("mismatch").count()), (0, 0), "{ended}");
}
