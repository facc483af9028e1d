//! Jobs that lose a rank go back to a checkpoint by themselves; jobs that were ended, or lost with their `redrun`, are
//! resumed.

use crate::while_computing;
use redrt_tests::{Ended, Job, Program, Random, Running, breadth, compile, compile_case};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

pub const LIMIT: Duration = Duration::from_secs(180);

pub fn store() -> TempDir {
    tempfile::tempdir().expect("the temporary directory can be written")
}

pub fn saved(job: Job, when: &str, store: &TempDir) -> Job {
    job.options(&["--checkpoint", when, "--checkpoint-dir", &store.path().display().to_string()])
}

/// A job of `until` that takes checkpoints on request.
pub fn until(degree: u16, transport: &str, store: &TempDir) -> Job {
    saved(
        Job::new(3, &compile("until")).degree(degree).transport(transport).environment("UNTIL_MIB", "4"),
        "asked",
        store,
    )
}

/// The file that lets the processes of `until` go on to their ends.
struct Stop(TempDir);

impl Stop {
    fn path(&self) -> PathBuf {
        self.0.path().join("stop")
    }

    fn give(&self) {
        std::fs::write(self.path(), "").expect("the directory is there");
    }
}

/// A job of `until` that computes, and the directory of its checkpoints.
fn computing(degree: u16) -> (Running, TempDir, Stop) {
    let (store, stop) = (store(), Stop(store()));
    let job = until(degree, "auto", &store).arguments(&[&stop.path().display().to_string()]).limit(LIMIT).start();
    job.wait_until("computing", |job| job.output().contains("computing"));
    (job, store, stop)
}

pub fn checkpoint(job: &Running) {
    job.redctl(&["checkpoint"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
}

/// Waits until the job has gone back for the `count`-th time, and all its processes are known.
pub fn is_back(job: &Running, count: usize, process_count: usize) {
    job.wait_for("went-back", count);
    job.wait_for("started", process_count * (count + 1));
}

fn kill(id: i32) {
    // SAFETY: - a signal to another process touches no memory of this one.
    unsafe { libc::kill(id, libc::SIGKILL) };
}

pub fn is_right(ended: Ended) -> Ended {
    let ended = ended.ended_well();
    let mut lines: Vec<_> = ended.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["computing", "rank 0: right", "rank 1: right", "rank 2: right"], "{ended}");
    ended
}

#[test]
fn a_job_without_mpi_says_that_nothing_was_saved() {
    let store = store();
    let ended = saved(Job::new(2, "true".as_ref()), "1h", &store).run().ended_with(0);
    let _ = ended.said("nothing was saved: no process of this program called MPI_Init");
    let quiet = saved(Job::new(2, &compile_case("counts")).arguments(&["1"]), "1h", &store).run();
    assert!(quiet.code == Some(0) && !quiet.err.contains("nothing was saved"), "{quiet}");
}

#[test]
fn a_job_goes_back_whenever_a_rank_is_lost() {
    for transport in ["shm", "tcp"] {
        let store = store();
        let mut socket = None;
        let ended = while_computing(LIMIT, until(1, transport, &store), |job| {
            socket = socket_of(job.pid_of("0.0"));
            checkpoint(job);
            for (count, replica) in (1..).zip(["1.0", "0.0", "2.0"]) {
                job.kill_replica(replica);
                is_back(job, count, 3);
                // Too many returns to the same checkpoint would end the job.
                checkpoint(job);
            }
        });
        let ended = is_right(ended).said("the job goes back to checkpoint 1").said("the job goes back to checkpoint 3");
        assert_eq!(ended.events("checkpoint").count(), 4, "{ended}");
        // Daemons of the job's former launches have ended by themselves and removed their sockets.
        let socket = socket.expect("the daemon has made one for it");
        assert!(!socket.exists(), "{} is left: {ended}", socket.display());
    }
}

/// Socket of a process's cloner agent. Daemons that were killed in other tests may have left sockets of the same name,
/// without a listener.
fn socket_of(pid: i32) -> Option<PathBuf> {
    let temporary = std::fs::read_dir(std::env::temp_dir()).expect("there is one").flatten();
    let mut paths = temporary.map(|entry| entry.path().join(format!("{pid}.sock")));
    paths.find(|path| std::os::unix::net::UnixStream::connect(path).is_ok())
}

#[test]
fn shared_memory_that_comes_and_goes_is_saved_and_loaded() {
    let program = compile_case("sharing");
    let job = |degree| Job::new(2, &program).degree(degree).arguments(&["60"]).limit(LIMIT);
    let sorted = |ended: &Ended| {
        let mut lines: Vec<_> = ended.out.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let alone = sorted(&job(1).run().ended_well());
    // An image with shared memory that is gone when the image is complete could not be loaded.
    for degree in breadth(&[1, 2][..], &[1, 1, 1, 1, 2, 2]).iter().copied() {
        let store = store();
        let job = saved(job(degree), "50ms", &store).start();
        job.wait_until("a checkpoint, or the end", |job| job.count("checkpoint") > 0 || job.has_ended());
        let running = job.replicas();
        let ids = running.iter().filter_map(|one| Some(job.pid_of(one.split(' ').next()?)));
        ids.for_each(kill);
        let ended = job.wait().ended_well();
        assert_eq!(sorted(&ended), alone, "{ended}");
        assert!(ended.events("went-back").count() > 0, "{ended}");
    }
}

#[test]
fn what_comes_and_goes_is_no_reason_to_take_no_checkpoint() {
    let count = breadth(6, 40);
    let program = compile_case("sharing");
    let store = store();
    // The program makes and removes shared memory and pipes all the time.
    let job = saved(Job::new(2, &program).arguments(&["1000000", "500"]).limit(LIMIT), "asked", &store).start();
    job.wait_for("started", 2);
    job.wait_until("a checkpoint", |job| job.redctl(&["checkpoint"]).is_ok());
    for _ in 0..count {
        job.redctl(&["checkpoint"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
    }
    job.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", job.errors()));
    let _ = job.wait().ended_with(75);
}

#[test]
fn with_replicas_a_job_goes_back_when_all_of_one_rank_are_lost() {
    for transport in ["shm", "tcp"] {
        let store = store();
        let ended = while_computing(LIMIT, until(2, transport, &store), |job| {
            checkpoint(job);
            let both = ["1.0", "1.1"].map(|replica| job.pid_of(replica));
            both.into_iter().for_each(kill);
            is_back(job, 1, 6);
            // All replicas are back, so one may be lost.
            job.kill_replica("2.1");
            job.wait_for("replica-lost", 2);
        });
        is_right(ended).said("rank 2 goes on with 1 replica");
    }
}

#[test]
fn a_job_that_was_saved_and_ended_is_resumed_where_it_was() {
    let (begin, store, stop) = computing(1);
    begin.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", begin.errors()));
    let first = begin.wait().ended_with(75).said("to be resumed");
    assert_eq!(first.out, "computing\n", "{first}");
    stop.give();
    let second = resume(store.path()).run().ended_well().said("goes on from checkpoint 1");
    let mut lines: Vec<_> = second.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rank 0: right", "rank 1: right", "rank 2: right"], "{second}");
}

#[test]
fn a_job_is_resumed_with_more_replicas_than_were_saved() {
    let (store, directory) = (store(), store());
    let stop = directory.path().join("stop");
    let begin = until(1, "auto", &store).options(&["--spares", "0", "--max-degree", "2"]);
    let begin = begin.arguments(&[&stop.display().to_string()]).limit(LIMIT).start();
    begin.wait_until("computing", |job| job.output().contains("computing"));
    begin.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", begin.errors()));
    let _ = begin.wait().ended_with(75);
    let refused = resume(store.path()).options(&["-r", "4"]).run();
    assert!(refused.code == Some(2) && refused.err.contains("places for 3 replicas of rank 0"), "{refused}");
    // All replicas are loaded from the images of one each. One checkpoint later the job is resumed with fewer replicas.
    let second = resume(store.path()).options(&["-r", "2"]).start();
    second.wait_for("started", 6);
    second.redctl(&["checkpoint"]).unwrap_or_else(|why| panic!("{why}: {}", second.errors()));
    second.kill_replica("1.0");
    second.wait_for("replica-lost", 1);
    second.redctl(&["checkpoint", "--stop"]).unwrap_or_else(|why| panic!("{why}: {}", second.errors()));
    let _ = second.wait().ended_with(75);
    std::fs::write(&stop, "").expect("the directory is there");
    let third = resume(store.path()).options(&["-r", "1"]).run().ended_well();
    assert_eq!(third.out.lines().filter(|line| line.ends_with(": right")).count(), 3, "{third}");
    assert_eq!(third.events("started").count(), 3, "{third}");
}

/// A return also brings back a replica that was missing at the checkpoint.
#[test]
fn one_image_of_each_rank_brings_all_replicas_back() {
    let store = store();
    let ended = while_computing(LIMIT, until(2, "auto", &store), |job| {
        job.kill_replica("0.1");
        job.wait_for("replica-lost", 1);
        checkpoint(job);
        assert_eq!(images(store.path()), ["0.image", "1.image", "2.image"]);
        ["1.0", "1.1"].map(|replica| job.pid_of(replica)).into_iter().for_each(kill);
        job.wait_for("went-back", 1);
        job.wait_for("started", 12);
        // The missing replica is back as well: of each rank either replica can go on alone.
        for (count, replica) in (2..).zip(["0.0", "1.0", "2.1"]) {
            job.kill_replica(replica);
            job.wait_for("replica-lost", count + 1);
        }
    });
    let _ = is_right(ended);
}

/// Names of the images below `directory`, sorted. Their sizes depend on the writes meanwhile.
fn images(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("it can be read").flatten().map(|entry| entry.path());
    let (below, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let names = files.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let mut found: Vec<_> = below.iter().flat_map(|path| images(path)).collect();
    found.extend(names.filter(|name| name.ends_with(".image")));
    found.sort_unstable();
    found
}

pub fn resume(store: &Path) -> Job {
    Job::resume(store).limit(LIMIT)
}

#[test]
fn a_job_that_was_lost_with_its_redrun_is_resumed() {
    for degree in [1, 2] {
        let (begin, store, stop) = computing(degree);
        checkpoint(&begin);
        begin.signal(libc::SIGKILL);
        assert_ne!(begin.wait().code, Some(0));
        stop.give();
        let second = resume(store.path()).run().ended_well();
        assert_eq!(second.out.lines().filter(|line| line.ends_with(": right")).count(), 3, "{second}");
    }
}

/// Input comes before the checkpoint, more than is read ahead; then before the return, and after it.
#[test]
fn a_job_that_goes_back_goes_on_in_its_standard_input() {
    for degree in [1, 2] {
        let store = store();
        let input = store.path().join("input");
        let made = std::process::Command::new("mkfifo").arg(&input).status();
        assert!(made.expect("mkfifo is there").success());
        let mut typed = std::fs::File::options().read(true).write(true).open(&input).expect("it was made");
        let job = saved(Job::new(2, &compile_case("counting")).degree(degree), "asked", &store);
        let job = job.standard_input(&input).limit(LIMIT).start();
        let (mut bytes, mut sum) = (0, 0_u64);
        let mut type_in = |mark: u32, kib: usize| {
            let text = [vec![b'0' + mark as u8; 1023], vec![b'\n']].concat().repeat(kib);
            let text = [&text[..], b"mark\n"].concat();
            typed.write_all(&text).expect("the job reads it");
            bytes += text.len();
            sum = text.iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            let read = format!("mark {mark} after {bytes} bytes\n");
            job.wait_until(&read, |job| job.output().contains(&read));
            format!("{bytes} bytes, {sum:x}")
        };
        type_in(1, 400);
        checkpoint(&job);
        type_in(2, 40);
        (0..degree).for_each(|index| kill(job.pid_of(&format!("1.{index}"))));
        is_back(&job, 1, 2 * usize::from(degree));
        let sum = type_in(3, 400);
        drop(typed);
        let ended = job.wait().ended_well();
        let lines: Vec<_> = ended.out.lines().collect();
        assert_eq!((lines.len(), lines[3]), (4, sum.as_str()), "{ended}");
    }
}

/// A process that waits in `MPI_Finalize` has told the coordinator so, and tells the new one after a return.
#[test]
fn a_job_goes_back_to_a_checkpoint_of_leaving_processes() {
    for degree in [1, 2] {
        let store = store();
        let job = saved(Job::new(3, &compile_case("leaving")).degree(degree), "asked", &store);
        let ended = while_computing(LIMIT, job, |job| {
            let are_leaving = |job: &Running| {
                let status = job.redctl(&["status"]).unwrap_or_default();
                status.matches("finalizing").count() == 2 * usize::from(degree)
            };
            job.wait_until("all but one rank are in MPI_Finalize", are_leaving);
            checkpoint(job);
            let all: Vec<_> =
                job.replicas().iter().filter_map(|one| one.split(' ').next().map(str::to_owned)).collect();
            all.iter().for_each(|replica| kill(job.pid_of(replica)));
            is_back(job, 1, 3 * usize::from(degree));
        });
        let ended = ended.ended_well();
        let mut lines: Vec<_> = ended.out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["computing", "rank 0 has left", "rank 1 has left", "rank 2 has left"], "{ended}");
    }
}

/// All processes are killed at a moment drawn from the seed: the output is that of an undisturbed run.
#[test]
fn programs_whose_processes_are_all_killed_print_the_same() {
    let mut random = Random::from_environment();
    let all = [("cg", 3, ["512", "600"]), ("alltoall", 3, ["1500", "2000"]), ("ring", 3, ["0.2", "80"])];
    let first = random.draw() as usize % all.len();
    for (name, rank_count, arguments) in all.into_iter().cycle().skip(first).take(breadth(1, all.len())) {
        let program = compile(name);
        let job = || Job::new(rank_count, &program).arguments(&arguments).limit(LIMIT);
        let alone = job().run().ended_well();
        for degree in [1, 2] {
            let store = store();
            let running = saved(job().degree(degree), "200ms", &store).start();
            let mut lost = 0;
            for _ in 0..2 {
                let before = running.count("checkpoint");
                running
                    .wait_until("a checkpoint, or the end", |job| job.count("checkpoint") > before || job.has_ended());
                std::thread::sleep(Duration::from_micros(random.from_one_to(300_000)));
                let victims: Vec<_> =
                    running.replicas().iter().map(|one| one.split(' ').next().unwrap_or_default().to_owned()).collect();
                if running.has_ended() || victims.len() < rank_count as usize {
                    break;
                }
                victims.iter().for_each(|replica| kill(running.pid_of(replica)));
                lost += 1;
                running.wait_until("the job goes back", |job| job.count("went-back") >= lost || job.has_ended());
            }
            let ended = running.wait().ended_well();
            assert_eq!(ended.out, alone.out, "{name} at r = {degree}, lost {lost} times: {ended}");
        }
    }
}

#[test]
fn files_that_are_appended_to_have_each_line_once() {
    for degree in [1, 2] {
        let (store, directory) = (store(), store());
        let files = ["appended", "written"].map(|name| directory.path().join(name).display().to_string());
        let job = Job::new(2, &compile_case("appending")).degree(degree).limit(LIMIT);
        let job = saved(job.arguments(&[&files[0], &files[1], "3000"]), "asked", &store).start();
        job.wait_until("computing", |job| job.output().contains("computing"));
        checkpoint(&job);
        // The program goes on for a while.
        let lines = |file: &String| std::fs::read_to_string(file).unwrap_or_default().lines().count();
        let before = lines(&files[0]);
        job.wait_until("more lines", |_| lines(&files[0]) > before + 20);
        let running = job.replicas();
        let of_rank = running.iter().filter_map(|one| one.split(' ').next()).filter(|name| name.starts_with("1."));
        let ids: Vec<_> = of_rank.map(|replica| job.pid_of(replica)).collect();
        ids.into_iter().for_each(kill);
        let ended = job.wait().ended_well();
        assert_eq!(ended.number("returns"), 1, "{ended}");
        let expected: String = (0..3000).map(|step| format!("step {step} sum {}\n", 2 * step + 1)).collect();
        for file in &files {
            assert!(std::fs::read_to_string(file).unwrap_or_default() == expected, "{file} at r = {degree}: {ended}");
        }
    }
}

#[test]
fn a_job_goes_back_when_its_only_daemon_is_killed() {
    let store = store();
    let ended = while_computing(LIMIT, until(1, "auto", &store), |job| {
        checkpoint(job);
        let [_, _, daemon] = job.chain();
        kill(daemon);
        job.wait_for("went-back", 1);
    });
    is_right(ended).said("the job goes back to checkpoint 1");
}

/// A program that crashes has its own exit code. One that is killed from outside is to be resumed.
#[test]
fn a_program_that_fails_by_itself_is_not_started_for_ever() {
    for (signal, code, said) in [
        (libc::SIGSEGV, 139, "the program fails on its way from there each time"),
        (libc::SIGKILL, 75, "times without another since; ending it, to be resumed"),
    ] {
        let store = store();
        let ended = while_computing(LIMIT, until(1, "auto", &store), |job| {
            checkpoint(job);
            for count in 1..=3 {
                job.signal_replica("1.0", signal);
                is_back(job, count, 3);
            }
            job.signal_replica("1.0", signal);
            job.wait_for("rank-lost", 1);
        });
        ended.ended_with(code).said("for the 3. time").said(said);
    }
}

#[test]
fn a_failed_checkpoint_is_reported_and_the_job_goes_on() {
    let store = store();
    let ended = while_computing(LIMIT, until(1, "auto", &store), |job| {
        checkpoint(job);
        // Neither directories nor files can be made, as on a full disk.
        let path = std::fs::read_dir(store.path())
            .expect("it is there")
            .next()
            .expect("the job's")
            .expect("it is there")
            .path();
        std::fs::rename(path.join("line-1"), path.join("line-9")).expect("it can be renamed");
        std::fs::write(path.join("line-2.partial"), "in the way").expect("it can be written");
        let why = job.redctl(&["checkpoint"]).expect_err("it cannot be made");
        assert!(why.contains("checkpoint 2 was not taken") && why.contains("line-2.partial"), "{why}");
    });
    is_right(ended).said("checkpoint 2 was not taken");
}

/// The daemon has a limit on file sizes, which its helpers inherit.
#[test]
fn a_limit_on_file_sizes_costs_one_checkpoint_and_no_more() {
    let store = store();
    let ended = while_computing(LIMIT, until(1, "auto", &store), |job| {
        let [_, _, daemon] = job.chain();
        let limit = |bytes| {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: - the limit lives until the call returns; nothing is written.
            let done = unsafe { libc::prlimit(daemon, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) };
            assert_eq!(done, 0);
        };
        limit(1 << 20);
        let why = job.redctl(&["checkpoint"]).expect_err("it cannot be written");
        assert!(why.contains("File too large"), "{why}");
        limit(libc::RLIM_INFINITY);
        checkpoint(job);
    });
    is_right(ended).said("File too large");
}

/// The first checkpoint is void because a replica is lost.
#[test]
fn a_checkpoint_is_taken_right_after_one_that_was_given_up() {
    let store = store();
    let ended = while_computing(LIMIT, until(2, "auto", &store), |job| {
        let is_begun = || {
            let below = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
            below(store.path()).any(|of_job| of_job.join("line-1.partial").exists())
        };
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| job.redctl(&["checkpoint"]));
            job.wait_until("a checkpoint is begun", |job| is_begun() || job.count("checkpoint") > 0);
            job.kill_replica("1.1");
            // The checkpoint was given up, or was complete before the loss.
            drop(asked.join().expect("redctl is answered"));
        });
        // A helper may notice the end of the process before the loss is recorded; a checkpoint begun in between would
        // be void too.
        job.wait_for("replica-lost", 1);
        checkpoint(job);
    });
    is_right(ended);
}

/// A process that is loading an image of this directory, in a namespace of its own.
fn loading(store: &Path) -> Option<i32> {
    let has_image = |id: i32| {
        let files = std::fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
        let mut paths = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        paths.any(|path| path.starts_with(store) && path.extension().is_some_and(|extension| extension == "image"))
    };
    let is_inside = |id: i32| {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        ids.is_some_and(|ids| ids.split_whitespace().count() > 1)
    };
    let mut all = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    all.find_map(|entry| entry.file_name().to_str()?.parse().ok().filter(|id| is_inside(*id) && has_image(*id)))
}

#[test]
fn a_kill_during_the_load_does_not_discredit_a_checkpoint() {
    let store = store();
    // An image of this size takes a moment to load.
    let ended = while_computing(LIMIT, until(1, "auto", &store).environment("UNTIL_MIB", "256"), |job| {
        checkpoint(job);
        job.kill_replica("1.0");
        let loads = std::cell::Cell::new(None);
        job.wait_until("a process is loaded", |_| {
            loads.set(loading(store.path()));
            loads.get().is_some()
        });
        loads.get().into_iter().for_each(kill);
        job.wait_for("went-back", 1);
    });
    let ended = is_right(ended).said("the job goes back to checkpoint 1, for the 2. time");
    assert!(!ended.err.contains("cannot be loaded"), "{ended}");
}

#[test]
fn a_torn_image_is_passed_over_and_told() {
    let (begin, store, stop) = computing(1);
    checkpoint(&begin);
    checkpoint(&begin);
    begin.signal(libc::SIGKILL);
    let _ = begin.wait();
    stop.give();
    let of_job =
        std::fs::read_dir(store.path()).expect("it is there").next().expect("the job's").expect("it is there").path();
    let image = of_job.join("line-2/1.image");
    let len = std::fs::metadata(&image).expect("it is there").len();
    let file = std::fs::File::options().write(true).open(&image).expect("it can be opened");
    // The length stays: only a read of the bytes shows the damage.
    use std::os::unix::fs::FileExt;
    file.write_all_at(&[0x5a; 64], len / 2).expect("it can be written");
    let ended = resume(store.path()).run().ended_well();
    ended.said("checkpoint 2 cannot be loaded: replica 1.0").said("trying checkpoint 1");
}

#[test]
fn a_job_that_runs_is_not_resumed_a_second_time() {
    let (begin, store, stop) = computing(1);
    checkpoint(&begin);
    let second = resume(store.path()).run().ended_with(2).said("runs already");
    assert_eq!(second.err.lines().count(), 1, "{second}");
    stop.give();
    is_right(begin.wait());
}

#[test]
fn what_cannot_be_resumed_is_one_line_and_exit_code_2() {
    let store = store();
    let nothing = store.path().join("nothing");
    for (words, line) in [
        (vec![nothing.display().to_string()], "there is no such directory"),
        (vec![store.path().display().to_string()], "has no checkpoint"),
        (vec![store.path().display().to_string(), "./app".into()], "leave out ./app"),
        (vec!["12ab".into(), "-n".into(), "3".into()], "leave out -n"),
        // The directory that is searched does not exist either.
        (vec!["12ab".into()], "no job like this has a checkpoint in"),
    ] {
        let ended = Job::resume_with(&words).run().ended_with(2);
        assert!(ended.err.contains(line) && ended.err.trim_end().lines().count() == 1, "{words:?}: {ended}");
    }
}

/// Stops a process until this value is dropped.
struct Frozen(i32);

impl Frozen {
    fn new(id: i32) -> Self {
        // SAFETY: - a signal to another process touches no memory of this one.
        unsafe { libc::kill(id, libc::SIGSTOP) };
        Self(id)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // SAFETY: - a signal to another process touches no memory of this one.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }
}

#[test]
fn a_stopped_process_that_prevents_a_checkpoint_is_named() {
    let (job, _store, stop) = computing(1);
    let id = job.pid_of("1.0");
    let frozen = Frozen::new(id);
    let why = job.redctl(&["checkpoint"]).expect_err("it cannot be saved");
    assert!(why.contains("1.0 on ") && why.contains(&format!("process {id} has not answered within ")), "{why}");
    assert!(why.contains(&format!("kill -CONT {id}")), "{why}");
    drop(frozen);
    checkpoint(&job);
    stop.give();
    is_right(job.wait());
}

#[test]
fn options_of_checkpoints_without_checkpoints_are_refused() {
    for option in [
        ["--checkpoint-dir", "store"],
        ["--checkpoint-compression", "lz4"],
        ["--checkpoint-encrypt", "key"],
        ["--mtbf", "1h"],
    ] {
        let ended = Job::new(3, &compile("until")).options(&option).run().ended_with(2);
        assert!(ended.err.contains(option[0]) && ended.err.contains("say when with --checkpoint"), "{ended}");
    }
}

#[test]
fn programs_are_all_saved_and_loaded() {
    let of_gate = ["collectives", "onesided"].map(|name| Program::named(name).expect("it is there"));
    for program in breadth(of_gate.to_vec(), Program::ALL.to_vec()) {
        let store = store();
        let alone = Job::of(&program).run().ended_well();
        let ended = saved(Job::of(&program).limit(LIMIT), "100ms", &store).run().ended_well();
        assert_eq!(sorted(&ended), sorted(&alone), "{}: {ended}", program.name);
    }
}

fn sorted(ended: &Ended) -> Vec<&str> {
    let mut lines: Vec<_> = ended.out.lines().collect();
    lines.sort_unstable();
    lines
}
