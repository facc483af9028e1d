//! Listings of directories: all replicas of a rank are shown the same names, whichever dies, while files come and go.

use redrt_tests::{Ended, Job, Random, breadth, compile, prefix};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn lost(ended: &Ended) -> usize {
    ended.summary["lost"].as_array().map_or(0, Vec::len)
}

/// Runs the test program, whose output must be that of a run alone, without any mismatch.
fn check(job: impl FnOnce(Job) -> Job, alone: &str) -> Ended {
    let ended = job(Job::new(2, &compile("listings"))).run().ended_well().printed(alone);
    assert_eq!((ended.number("divergences"), ended.number("mismatches")), (0, 0), "{ended}");
    ended
}

fn alone() -> String {
    let ended = Job::new(2, &compile("listings")).run().ended_well();
    assert!(ended.out.starts_with("listings "), "{ended}");
    ended.out
}

#[test]
fn listings_are_what_they_are_alone() {
    let alone = alone();
    for (degree, transport) in [(2, "shm"), (2, "tcp"), (3, "shm")] {
        check(|job| job.degree(degree).transport(transport), &alone);
    }
}

/// The next leader goes on behind the last name that was shown, with the names that are there by then.
#[test]
fn a_leader_may_die_in_the_midst_of_a_listing() {
    let alone = alone();
    let mut random = Random::from_environment();
    // Changes 603 to 702 are made during a listing of earlier ones, later changes during walks over trees.
    for (first, changes) in [(603, 50), (653, 50), (703, 200), (903, 30)] {
        let fault = format!("kill:{}.0@file#{}", random.from_one_to(2) - 1, first + random.from_one_to(changes) - 1);
        let ended = check(|job| job.degree(2).inject(&fault), &alone);
        assert_eq!(lost(&ended), 1, "{ended}");
    }
}

#[test]
fn replicas_may_die_at_any_time_while_all_list() {
    let alone = alone();
    let mut random = Random::from_environment();
    for index in [0, 1, 1] {
        let fault = format!("kill:{}.{index}@#{}", random.from_one_to(2) - 1, random.from_one_to(20));
        check(|job| job.degree(2).inject(&fault), &alone);
    }
}

/// A process is copied in the midst of a listing; the copy goes on after its source is gone too.
#[test]
fn copies_go_on_with_listings() {
    let program = compile("listings");
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("the temporary directory can be written"));
    let [alone, replicated] = directories.each_ref().map(|directory| directory.path().join("files"));
    let signal = directories[0].path().join("go on");
    let job = |files: &Path| {
        Job::new(2, &program).arguments(&["1", &files.display().to_string(), &signal.display().to_string()])
    };
    let running = job(&replicated).degree(2).options(&["--spares", "1"]).limit(Duration::from_secs(120)).start();
    running.wait_until("waiting", |running| running.output().contains("waiting"));
    for (count, replica) in ["0.0", "0.1", "1.1"].into_iter().enumerate() {
        running.kill_replica(replica);
        running.wait_for("recovered", count + 1);
    }
    fs::write(&signal, "").expect("the directory is there");
    let ended = running.wait().ended_well();
    assert_eq!((lost(&ended), ended.number("divergences")), (3, 0), "{ended}");
    let undisturbed = job(&alone).run().ended_well();
    assert_eq!(ended.out, undisturbed.out, "{ended}");
    assert_eq!(fs::read_dir(&replicated).expect("it is there").count(), 0);
}

/// Each listing goes to the other rank, and so its replicas' names are compared. Both ranks make and remove files in
/// one directory.
const PYTHON: &str = r#"
import ctypes, glob, hashlib, os, pathlib, shutil, sys
mpi = ctypes.CDLL(sys.argv[1] + "/lib/libmpi_abi.so.1", ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
world, byte = ctypes.c_void_p(0x101), ctypes.c_void_p(0x247)
number = ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(number))
rank, names = number.value, []

def exchange():
    told = hashlib.sha256(repr(names).encode()).digest()
    heard = ctypes.create_string_buffer(32)
    mpi.MPI_Sendrecv(told, 32, byte, 1 - rank, 1, heard, 32, byte, 1 - rank, 1, world, None)

folder = sys.argv[2]
own = f"{folder}/{rank}"
os.makedirs(own + "/a/b/c")
for step in range(8):
    for name in ["x", "y", "a/z", "a/b/w", "a/b/c/v"]:
        pathlib.Path(f"{own}/{name}{step}.txt").write_text(name)
    names += os.listdir(own)
    names += [(entry.name, entry.is_dir(), entry.inode() > 0) for entry in os.scandir(own + "/a")]
    names += list(os.walk(own)) + [found[2] for found in os.fwalk(own)]
    names += glob.glob(own + "/**/*.txt", recursive=True)
    names += [str(path) for path in pathlib.Path(own).rglob("v*")]
    for entry in os.scandir(own + "/a/b"):
        if entry.is_file():
            os.remove(entry.path)
            exchange()
    pathlib.Path(f"{folder}/common-{rank}-{step}").touch()
    names += os.listdir(folder)
    exchange()
    os.remove(f"{folder}/common-{rank}-{step}")
    shutil.copytree(own, own + "-copy")
    shutil.rmtree(own + "-copy")
held = open(own + "/held", "w+")
held.write("held")
shutil.rmtree(own)
held.seek(0)
print(len(names) if rank == 0 else "", held.read(), os.path.exists(own))
exchange()
mpi.MPI_Finalize()
"#;

#[test]
fn python_lists_what_it_lists_alone() {
    let directory = tempfile::tempdir().expect("the temporary directory can be written");
    let script = directory.path().join("listing.py");
    fs::write(&script, PYTHON).expect("the directory is there");
    let run = |job: &dyn Fn(Job) -> Job| {
        let files = tempfile::tempdir().expect("the temporary directory can be written");
        let words = [script.as_path(), prefix(), files.path()].map(|path| path.display().to_string());
        let job = job(Job::new(2, Path::new("python3")).arguments(&words.each_ref().map(String::as_str)));
        let ended = job.run().ended_well();
        let mut lines: Vec<_> = ended.out.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        assert_eq!(lines.iter().filter(|line| line.ends_with("held False")).count(), 2, "{ended}");
        assert_eq!(fs::read_dir(files.path()).expect("it is there").count(), 0, "{ended}");
        ended
    };
    run(&|job| job);
    let faults = [None, Some("kill:0.0@file#40"), Some("kill:1.0@file#90"), Some("kill:0.0@#9")];
    for fault in breadth(&faults[..2], &faults[..]).iter().copied() {
        let ended = run(&|job| match fault {
            Some(fault) => job.degree(2).inject(fault),
            None => job.degree(2),
        });
        let found = (lost(&ended), ended.number("divergences"), ended.number("mismatches"));
        assert_eq!(found, (usize::from(fault.is_some()), 0, 0), "{ended}");
    }
}
